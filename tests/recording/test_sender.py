"""What a traced program sends to the recorder: all of it in order, or counted, and nothing that lasts."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from memtui.core.tracer_messages import LearningProgress
from memtui.recording.tracer import sender
from memtui.recording.tracer.sender import WAITING, Sender
from memtui.recording.wire import encode


def progress(number: int) -> LearningProgress:
    return LearningProgress(1, f"{{{number}}}", np.zeros((3, 1), np.int64), np.zeros((3, 1)))


@pytest.fixture
def recorder(tmp_path):
    """A socket at which a recorder would listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "recorder"))
        listening.listen()
        listening.settimeout(60)
        yield listening


def connected(recorder: socket.socket) -> tuple[Sender, socket.socket]:
    opened = Sender(Path(recorder.getsockname()))
    connection, _ = recorder.accept()
    connection.settimeout(60)
    return opened, connection


def received(connection: socket.socket) -> bytes:
    """Return all that comes until the other end is closed."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_what_was_queued_comes_in_order_and_then_the_connection_ends(recorder):
    opened, connection = connected(recorder)
    messages = [progress(number) for number in range(WAITING // 2)]
    for message in messages:
        opened.send(message)
    opened.close()
    with connection:
        assert received(connection) == b"".join(map(encode, messages))
    assert opened.lost == 0
    opened.close()  # again does nothing


def test_without_a_recorder_it_is_an_error_at_once(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        Sender(tmp_path / "none")


def test_a_recorder_that_ended_costs_messages_and_no_more(recorder):
    opened, connection = connected(recorder)
    connection.close()
    deadline_s = time.monotonic() + 60
    while not opened.lost and time.monotonic() < deadline_s:
        opened.send(progress(1))
        time.sleep(0.01)
    opened.close()
    assert opened.lost


def test_a_recorder_that_does_not_read_costs_messages_and_never_waits(recorder, monkeypatch):
    monkeypatch.setattr(sender, "LAST_S", 0.05)
    large = b"x" * (1 << 20)  # more than a socket takes
    monkeypatch.setattr(sender, "encode", lambda message: large)
    opened, connection = connected(recorder)
    for number in range(3 * WAITING):
        opened.send(progress(number))
    assert opened.lost >= WAITING
    opened.close()  # it gives up
    with connection:
        got = len(received(connection))
    assert got % len(large) == 0
    assert got // len(large) + opened.lost <= 3 * WAITING


def test_a_fork_sends_nothing(recorder):
    opened, connection = connected(recorder)
    child = os.fork()
    if child == 0:
        opened.send(progress(1))
        opened.close()
        os._exit(0 if opened._queue.empty() else 1)
    assert os.waitpid(child, 0)[1] == 0
    opened.close()
    with connection:
        assert received(connection) == b""
