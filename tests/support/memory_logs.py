"""Logs of other tools as tests need them: generated, and small enough to check by hand."""

from __future__ import annotations

import random

MIB = 1 << 20
A1 = (
    ("in_arg:source_embed_weight", 1048608),
    ("arg_grad:source_embed_weight", 1048608),
    ("forward_features:rnn_l0_t0_i2h", 2097184),
    ("aux_state:bn0_moving_var", 544),
    ("workspace:cudnn_rnn-inl", 4194336),
    ("optimizer_weight_update_source_embed_weight", 1048608),
    ("source", 160),
    ("untagged", 96),
    ("forward_features:flatten0", 64),
    ("forward_features:zzz9", 64),
)
"""Tags and bytes; what the original script makes of them is known (``A1_ANALYSIS``)."""
A1_ANALYSIS = {
    "in_arg": [1048608.0, ["(in_arg:source_embed_weight).\n"]],
    "arg_grad": [1048608.0, ["(arg_grad:source_embed_weight).\n"]],
    "rnn": [2097184.0, ["(forward_features:rnn_l0_t0_i2h).\n"]],
    "aux_state": [544.0, ["(aux_state:bn0_moving_var).\n"]],
    "workspace": [4194336.0, ["(workspace:cudnn_rnn-inl).\n"]],
    "optimizer": [1048608.0, ["(optimizer_weight_update_source_embed_weight).\n"]],
    "(source)": [160.0, ["(source).\n"]],
    "untagged": [96.0, ["(untagged).\n"]],
    "att": [64.0, ["(forward_features:flatten0).\n"]],
}
"""Written by ``memory_analysis.py`` of tbd-tools at f9ad8cc, to the byte (indent 2)."""
ZPP = (
    "1560104632231000 215296 0 forward/DFA_fully_connected_layer_8/MatMul\n"
    "1560104632231086 235520 20224 forward/DFA_fully_connected_layer_8/Add\n"
    "1560104632231090 235520 0 forward/DFA_fully_connected_layer_8/Relu\n"
)


def mxnet_log(rows=A1, *, in_mb: tuple[tuple[str, int], ...] = ()) -> bytes:
    """A log with the noise of a real one around its allocations."""
    lines = [b"INFO:sockeye.train:Training started \xff\n", b"[trace] In InitGraph.\n"]
    free = 12196 * MIB
    for tag, size in rows:
        free -= size
        lines.append(f"[mem] Allocate {size} bytes GPU memory ({tag}).\n".encode())
        lines.append(f"[mem] {free // MIB} MB GPU global memory free, total 12196 MB.\n".encode())
        lines.append(f"[trace_gpuworker] {tag} to FullyConnected\n".encode())
    lines += [f"Allocate {size} MB GPU memory ({tag}).\n".encode() for tag, size in in_mb]
    lines += [b"[trace] Finished binding.\n", b"[mem] Release GPU memory.\n"]
    return b"".join(lines)


def zpp_text(rows: int, seed: int = 1) -> str:
    """Lines as ZPP-MEM writes them: half of them change nothing, and in the end everything is given back."""
    chance = random.Random(seed)
    t_us, usage, held, lines = 1_560_104_632_000_000, 0, [], []
    scopes = ("forward", "gradients", "optimizer")
    for row in range(rows):
        t_us += chance.randrange(0, 40)
        left = rows - row
        if len(held) >= left:
            op, size = held.pop(chance.randrange(len(held)))
            change = -size
        elif chance.random() < 0.53:
            op, change = f"{scopes[row * 3 // rows]}/layer_{row % 30}/Reshape", 0
        elif held and chance.random() < 0.5:
            op, size = held.pop(chance.randrange(len(held)))
            change = -size
        else:
            op, change = f"{scopes[row * 3 // rows]}/layer_{row % 30}/MatMul", chance.randrange(1, 1 << 20)
            held.append((op, change))
        usage += change
        lines.append(f"{t_us} {usage} {change} {op}\n")
    return "".join(lines)
