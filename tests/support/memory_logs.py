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


SOCKEYE = (
    ("__main__", "log_sockeye_version", "Sockeye version 1.18.85 commit unknown"),
    ("__main__", "log_mxnet_version", "MXNet version 0.12.0"),
    ("__main__", "log_sockeye_args", "Command: /usr/bin/sockeye-train --rnn-num-hidden 512 --num-embed 256:256"),
    ("sockeye.vocab", "build_vocab", "Vocabulary: types: 13/13/13/13 (initial/min_pruned/max_pruned/+special)"),
    ("sockeye.data_io", "get_training_data_iters", "[ 9 11] of 40 buckets have no sentence (0.5% [mem])"),
    ("__main__", "create_training_model", "bucket keys: [(10, 10), (20, 20)], batch of 64"),
    ("sockeye.training", "_log_params", "Total # of parameters: 2621440"),
    ("sockeye.training", "fit", "Training started."),
    ("sockeye.training", "__call__", "Epoch[0] Batch [50]\tSpeed: 429.27 samples/sec 10879.00 tokens/sec"),
    ("sockeye.training", "__call__", "Epoch[0] Batch [100]\tSpeed: 534.38 samples/sec 13846.37 tokens/sec"),
    ("sockeye.training", "_checkpoint", "Checkpoint [1]\tUpdates=1000 Epoch=0 Samples=64000 Time-cost=21.5"),
    ("sockeye.training", "_checkpoint", "Checkpoint [1]\tTrain-perplexity=17.064554"),
)
"""Logger, function and text of some lines of Sockeye 1.18."""


def sockeye_log(*, console: bool, rows=A1) -> bytes:
    """A whole log of Sockeye 1.18 on a patched MXNet: what it shows, or with times what it writes to its file.

    Python and MXNet write to the same stream: at "Training started." the line of one ends with that of the other.
    """
    memory, free, lines = list(rows), 12196 * MIB, []
    for number, (logger, function, text) in enumerate(SOCKEYE):
        where = f"INFO:{logger}" if console else f"2018-03-01:10:11:{number:02}:INFO:{logger}:{function}"
        lines.append(f"[{where}] {text}\n")
        if not logger.startswith("sockeye.training"):
            continue
        for tag, size in memory[:2]:
            free -= size
            lines.append(f"[mem] Allocate {size} bytes GPU memory ({tag}).\n")
            lines.append(f"[mem] {free // MIB} MB GPU global memory free, total 12196 MB.\n")
            lines.append(f"[trace_gpuworker] {tag} to FullyConnected\n")
        memory = memory[2:]
        lines.append(f"[10:11:{number:02}] src/operator/././cudnn_algoreg-inl.h:107: Running performance tests\n")
    assert not memory
    return "".join(lines).replace("Training started.\n", "Training started.").encode()


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
