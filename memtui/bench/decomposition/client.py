"""Has a network taken apart, in a process of its own: a network is the user's program, and needs torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from tempfile import TemporaryFile

from memtui.bench.decomposition.names import NetworkName
from memtui.bench.decomposition.result import Decomposition
from memtui.core.errors import FAILURE, UserError
from memtui.core.json_fields import from_json
from memtui.core.progress_line import ProgressLine
from memtui.probes.process_exit import describe_status

_MOST_S = 600.0
_LAST_BYTES = 1 << 16  # of what it prints, for the reason why it ended


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
            status, answered, last = _run(command)
        except subprocess.TimeoutExpired:
            raise UserError(f"{name.text}: two passes did not end within {_MOST_S:.0f} s") from None
    try:
        answer = from_json(Answer, json.loads(answered))
    except ValueError:
        if status < 0:  # what it printed last is from before
            last = f"it was {describe_status(-status)}"
        hint = "; pip install 'memtui[bench]'" if "No module named 'torch'" in last else ""
        raise UserError(f"{name.text} cannot be taken apart: {last}{hint}", FAILURE) from None
    if answer.failure:
        raise UserError(f"{device} cannot be measured: {answer.failure}", FAILURE)
    if answer.error or answer.decomposition is None:
        raise UserError(answer.error)
    if not answer.decomposition.operators:
        raise UserError(f"{name.text}: a pass calls no operator that is known here; memtui bench list names them")
    return answer.decomposition


def _run(command: list[str]) -> tuple[int, bytes, str]:
    """Run a process; return its status, its standard output, and the last line of its standard error."""
    with TemporaryFile() as errors:  # no pipe: a network may print for minutes
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, timeout=_MOST_S)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = errors.read().decode(errors="replace").strip().splitlines()
    return done.returncode, done.stdout, lines[-1] if lines else f"it ended ({done.returncode})"
