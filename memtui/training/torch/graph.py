"""Operators of one iteration and the tensors between them (``save_graph``), as text and for Graphviz.

Names are those of the recorded rows: ``forward/FullyConnected_0/aten::addmm``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from memtui.analysis.allocation_trace import PHASES
from memtui.core.errors import FAILURE, UserError
from memtui.core.os_errors import WRITE, refused
from memtui.formats.zpp import SCOPES
from memtui.recording.tracer import manual_backward
from memtui.recording.tracer.layer_labels import HandLabels, layer_labels, layer_names
from memtui.recording.tracer.step_recorder import place_of
from memtui.recording.tracer.torch_private import hushed, raw_uses
from memtui.training.torch.network import Network

FOLDER = "demo"
Edges = dict[tuple[str, str], int]  # from one operator to another: number of tensors


def graph_of(network: Network, run: Callable[[], object]) -> tuple[list[str], Edges]:
    """Return (operators in the order of their first use, edges) of a call of ``run``.

    Raises:
        UserError: the profiler of torch is in use, or does not work here.
    """
    labels = HandLabels(layer_names((network,)))
    try:
        with (
            hushed(),
            torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, record_shapes=True
            ) as profiler,
            layer_labels((network,)),
        ):
            manual_backward.listeners.append(labels)
            try:
                run()
            finally:
                manual_backward.listeners.remove(labels)
        uses = raw_uses(profiler)
    except (RuntimeError, ImportError, AttributeError) as error:
        raise UserError(f"no graph can be recorded: {error}", FAILURE) from None
    nodes: dict[str, None] = {}
    edges: Edges = {}
    writers: dict[int, str] = {}  # by address: the operator that wrote the tensor there
    for use in uses:
        phase, layer = place_of(use.path)
        name = SCOPES.get(PHASES[phase], "") + "/".join(filter(None, (layer, use.op)))
        nodes.setdefault(name)
        for address in use.reads:
            before = writers.get(address)
            if before is not None and before != name:
                edges[before, name] = edges.get((before, name), 0) + 1
        writers.update(dict.fromkeys(use.makes, name))
        if use.op.endswith("_"):  # in place: of its first tensor
            writers.update(dict.fromkeys(use.reads[:1], name))
    return list(nodes), edges


def write_graph(nodes: list[str], edges: Edges, run: str) -> list[Path]:
    """Write ``demo/RUN_graph.txt`` (operators, then edges with the number of tensors) and ``demo/RUN_graph.dot``.

    Raises:
        UserError: the files cannot be written.
    """
    folder = Path(FOLDER)
    text, dot = folder / f"{run}_graph.txt", folder / f"{run}_graph.dot"
    number = {name: index for index, name in enumerate(nodes)}
    try:
        folder.mkdir(exist_ok=True)
        with text.open("x", encoding="utf-8") as file:
            file.writelines(f"op {name}\n" for name in nodes)
            file.writelines(f"edge {before} {after} {count}\n" for (before, after), count in edges.items())
        with dot.open("x", encoding="utf-8") as file:
            file.write("digraph iteration {\n")
            file.writelines(f'  n{index} [label="{name}"];\n' for name, index in number.items())
            file.writelines(f"  n{number[before]} -> n{number[after]};\n" for before, after in edges)
            file.write("}\n")
    except OSError as error:
        raise refused(error.filename, error, WRITE, code=FAILURE) from None
    return [text, dot]
