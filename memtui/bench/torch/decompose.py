"""The process that runs a user's network once and takes it apart. It prints one line of JSON on its standard output.

    python -P -m memtui.bench.torch.decompose --name net.py:build --device cpu

What the network prints is discarded.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from memtui.bench.configuration import canonical
from memtui.bench.decomposition.client import Answer
from memtui.bench.decomposition.loading import LoadedNetwork, NoNetwork, in_a_line, load
from memtui.bench.decomposition.names import NetworkName
from memtui.bench.decomposition.result import Decomposition, NotCovered, OperatorCalls, shape_text
from memtui.core.frozen_imports import frozen_imports
from memtui.core.json_fields import to_json

with frozen_imports():
    import torch
    from torch.utils._pytree import tree_leaves

    from memtui.bench.torch.watch import Pass, SeenCall, watch

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def decompose(name: NetworkName, device: str, dtype: str) -> Decomposition:
    """Return a network as operators. Raises NoNetwork."""
    network = load(torch, name.text, name.n, name.size, device, _DTYPES.get(dtype, torch.float32))
    cuda = device.startswith("cuda")

    def synchronize() -> None:
        if cuda:
            torch.cuda.synchronize()

    try:
        for _ in range(2):  # the first pass maps memory and chooses algorithms
            seen, result = watch(network.model, network, synchronize)
    except Exception as error:
        raise NoNetwork(f"{name.text}: {in_a_line(error)}") from error
    return _decomposition(name, network, seen, result)


def _decomposition(name: NetworkName, network: LoadedNetwork, seen: Pass, result: Any) -> Decomposition:
    inputs, outputs = _tensors((network.arguments, dict(network.named))), _tensors(result)
    calls = seen.calls
    whole_ns = sum(call.time_ns for call in calls)
    counted_ns = sum(call.time_ns for call in calls if not call.reason)
    leaves = seen.leaves
    return Decomposition(
        name.text,
        name.n,
        name.size,
        shapes=tuple(shape_text(t.shape) for t in inputs),
        numbers=max(1, sum(t.numel() for t in (*inputs, *outputs))),
        parameters=sum(p.numel() for p in network.model.parameters()),
        operators=_operators(calls),
        not_covered=_not_covered(calls, whole_ns),
        leaf_modules=len(leaves),
        leaf_modules_covered=sum(module.covered for module in leaves),
        time_share=counted_ns / whole_ns if whole_ns else 1.0,
    )


def _operators(calls: list[SeenCall]) -> tuple[OperatorCalls, ...]:
    operators: dict[str, OperatorCalls] = {}
    for call in calls:
        for op, parameters in call.operators:
            key = canonical([op, parameters])
            before = operators.get(key) or OperatorCalls(op, parameters, 0)
            operators[key] = OperatorCalls(op, parameters, before.calls + 1)
    return tuple(operators.values())


def _not_covered(calls: list[SeenCall], whole_ns: int) -> tuple[NotCovered, ...]:
    """Return the calls that are not operators, by function, module and reason, the longest first."""
    some: dict[tuple[str, str, str], list[int]] = {}
    for call in calls:
        if call.reason:
            some.setdefault((call.function, call.module, call.reason), []).append(call.time_ns)
    listed = [NotCovered(*key, len(times), sum(times) / max(whole_ns, 1)) for key, times in some.items()]
    return tuple(sorted(listed, key=lambda each: -each.time_share))


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def main() -> int:
    """Run the command line of the process and return its exit status."""
    parser = argparse.ArgumentParser(prog="memtui.bench.torch.decompose")
    parser.add_argument("--name", required=True)
    parser.add_argument("--n", type=int, default=1)
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    torch.set_num_threads(given.threads or max(1, len(os.sched_getaffinity(0)) - 1))
    try:
        if given.device.startswith("cuda") and not torch.cuda.is_available():
            raise RuntimeError(f"{given.device}: this PyTorch ({torch.__version__}) finds no CUDA device")
        answer = Answer(decompose(NetworkName(given.name, given.n, given.size), given.device, given.dtype))
    except NoNetwork as error:
        answer = Answer(error=str(error))
    except RuntimeError as error:
        answer = Answer(failure=str(error).partition("\n")[0])
    except KeyboardInterrupt:
        return 130
    print(json.dumps(to_json(answer)), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
