"""Has a network taken apart, in a process of its own: a network is the user's program, and needs torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from memtui.bench.decomposition.names import NetworkName
from memtui.bench.decomposition.result import Decomposition
from memtui.core.errors import FAILURE, UserError
from memtui.core.plain_data import from_plain
from memtui.core.progress_line import ProgressLine

_MOST_S = 600.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the process found; or why not: ``error`` is the network's, ``failure`` the device's."""

    decomposition: Decomposition | None = None
    error: str = ""
    failure: str = ""


def decompose(name: NetworkName, device: str, dtype: str, threads: int) -> Decomposition:
    """Return a network as operators.

    Raises UserError: the network cannot be loaded or run, or has no operators.
    """
    command = [sys.executable, "-P", "-m", "memtui.bench.torch.decompose", "--name", name.text, "--n", str(name.n)]
    command += ["--size", str(name.size), "--device", device, "--dtype", dtype, "--threads", str(threads)]
    with ProgressLine("bench", f"taking {name.text} apart"):
        try:
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_MOST_S)
        except subprocess.TimeoutExpired:
            raise UserError(f"{name.text}: two passes did not end within {_MOST_S:.0f} s") from None
    try:
        answer = from_plain(Answer, json.loads(done.stdout))
    except ValueError:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [f"it ended ({done.returncode})"])[-1]
        hint = "; pip install 'memtui[bench]'" if "No module named 'torch'" in last else ""
        raise UserError(f"{name.text} cannot be taken apart: {last}{hint}", FAILURE) from None
    if answer.failure:
        raise UserError(f"{device} cannot be measured: {answer.failure}", FAILURE)
    if answer.error or answer.decomposition is None:
        raise UserError(answer.error)
    if not answer.decomposition.operators:
        raise UserError(f"{name.text}: a pass calls no operator that is known here; memtui bench list names them")
    return answer.decomposition
