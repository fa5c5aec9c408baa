"""A recording without a screen: its line of progress, what stays of it, and the exit code."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memtui.core.console import Console
from memtui.core.errors import FAILURE
from memtui.recording.progress import Progress
from memtui.recording.recorder.limits import CONDITION
from memtui.recording.supervisor import foreground
from memtui.recording.supervisor.foreground import NO_SAMPLE, REACHED, record
from tests.support.live import wait_until

PATH = Path("/tmp/s\x1b[2J.memtui")
SHOWN = r"12 samples, working set 3.00 MiB, 5.00 KiB in /tmp/s\x1b[2J.memtui"


class FakeSupervisor:
    """Polls a few times, then ends as ``how`` does."""

    how: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, observation: Any) -> None:
        self._observation = observation

    def wait(self, poll: Callable[[], object]) -> None:
        for _ in range(3):
            poll()
            time.sleep(0.05)
        self.how()

    def stop(self) -> None:
        self._observation.stopped = True


@pytest.fixture
def observation(monkeypatch) -> SimpleNamespace:
    monkeypatch.setattr(foreground, "Supervisor", FakeSupervisor)
    monkeypatch.setattr(foreground, "_handle_signals", lambda *_, program: None)
    return SimpleNamespace(
        path=PATH,
        progress=Progress(samples=12, wss_bytes=3 << 20, file_bytes=5 << 10),
        notice="",
        owner_notice="",
        ending=None,
        exit_status=0,
        stopped=False,
        finish=lambda: None,
    )


class TerminalStream:
    """Standard error, where a test puts it: a terminal of 120 columns."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 120, 0, 0))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self._output = b""

    def written(self) -> str:
        """Return all that was written until now."""
        with suppress(BlockingIOError):
            while chunk := os.read(self._master, 1 << 16):
                self._output += chunk
        return self._output.decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[TerminalStream]:
    terminal = TerminalStream()
    yield terminal
    terminal.close()


def run(observation: SimpleNamespace, *, program: bool = False) -> tuple[int, list[tuple[Path, bool]]]:
    printed = []
    code = record(
        lambda: observation, Console("record"), lambda path, shown: printed.append((path, shown)), program=program
    )
    return code, printed


def test_on_a_terminal_the_line_is_that_of_every_command_and_the_last_one_stays(observation, terminal, monkeypatch):
    monkeypatch.setattr("memtui.core.progress_line.TERMINAL_FIRST_S", 0.0)
    monkeypatch.setattr("memtui.core.progress_line.TERMINAL_EVERY_S", 0.01)
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    line = f"\r\x1b[Kmemtui record: recording: {SHOWN} ("
    # The recording lasts until a thread, which a busy machine keeps waiting, has written the line.
    monkeypatch.setattr(FakeSupervisor, "how", staticmethod(lambda: wait_until(lambda: line in terminal.written())))
    code, printed = run(observation)
    assert (code, printed, observation.stopped) == (0, [(PATH, True)], True)
    output = terminal.written()
    assert line in output
    assert output.endswith(f"\r\x1b[Kmemtui record: {SHOWN}\r\n")


def test_elsewhere_nothing_is_written_of_a_short_recording(observation, capsys):
    code, printed = run(observation)
    assert (code, printed) == (0, [(PATH, False)])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_the_last_line_stays_however_it_ends(error, observation, terminal, monkeypatch):
    def end() -> None:
        raise error

    monkeypatch.setattr(FakeSupervisor, "how", staticmethod(end))
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    if isinstance(error, KeyboardInterrupt):
        assert run(observation)[0] == 0
    else:
        with pytest.raises(SystemExit):
            run(observation)
    assert observation.stopped
    assert terminal.written().endswith(f"memtui record: {SHOWN}\r\n")


@pytest.mark.parametrize(
    ("ending", "samples", "program", "code", "says"),
    [
        ((CONDITION, "wss > 1 GiB"), 12, False, REACHED, "stopped: wss > 1 GiB"),
        (("error", "the disk is full"), 12, False, FAILURE, "stopped: the disk is full"),
        (None, 0, False, FAILURE, NO_SAMPLE),
        (None, 0, True, 7, NO_SAMPLE),
        (None, 12, True, 7, ""),
    ],
)
def test_exit_codes(ending, samples, program, code, says, observation, capsys):
    observation.ending, observation.exit_status = ending, 7
    observation.progress = Progress(samples=samples)
    assert run(observation, program=program)[0] == code
    assert capsys.readouterr().err == (f"memtui record: {says}\n" if says else "")


def test_what_is_not_known_is_not_0(observation):
    observation.progress = None
    assert foreground._progress(observation) == f"0 samples, working set n/a, 0 B in {PATH}"
