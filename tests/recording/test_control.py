"""The control socket: which requests it accepts, whom it serves, and that no client can block it."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core import privilege
from memtui.recording import control
from memtui.recording.control import (
    CLIENTS,
    LINE_BYTES,
    Control,
    Ended,
    Listener,
    Request,
    connect,
    open_listener,
    parse_request,
)
from tests.support.live import needs_root
from tests.support.users import can_run_as_other, unless_gate


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"stop",
        b"{}",
        b"[]",
        b'"stop"',
        b"\xff",
        b"[" * 4000,
        b'{"do": 5}',
        b'{"do": []}',
        b'{"do": "read"}',
        b'{"do": "stop", "now": true}',
        b'{"do": "interval"}',
        b'{"do": "interval", "interval_ns": 999999}',
        b'{"do": "interval", "interval_ns": 3600000000001}',
        b'{"do": "interval", "interval_ns": 2e8}',
        b'{"do": "interval", "interval_ns": true}',
        b'{"do": "interval", "interval_ns": "200000000"}',
        b'{"do": "signal"}',
        b'{"do": "signal", "name": "SIGKILL"}',
        b'{"do": "signal", "name": 15}',
        b'{"do": "signal", "name": ["SIGTERM"]}',
        b'{"do": "signal", "name": "SIGTERM", "pid": 1}',
        b'{"do": "mark"}',
        b'{"do": "mark", "text": ""}',
        b'{"do": "mark", "text": 5}',
        b'{"do": "mark", "text": "x", "t_ns": -1}',
        b'{"do": "mark", "text": "x", "t_ns": null}',
        b'{"do": "mark", "text": "' + b"x" * 501 + b'"}',
        b" " * LINE_BYTES + b'{"do": "stop"}',
    ],
)
def test_bad_requests(line):
    with pytest.raises(ValueError, match=r"."):
        parse_request(line)


def test_good_requests():
    assert parse_request(b'{"do": "stop"}') == Request("stop")
    assert parse_request(b'{"do": "interval", "interval_ns": 1000000}') == Request("interval", interval_ns=1_000_000)
    assert parse_request('{"do": "mark", "text": "épo\\u001bch"}'.encode()) == Request("mark", text="épo\x1bch")
    assert parse_request(b'{"do": "signal", "name": "SIGUSR1"}') == Request("signal", name="SIGUSR1")
    assert parse_request(b'{"do": "mark", "text": "x", "t_ns": 7}') == Request("mark", text="x", t_ns=7)


@given(st.binary(max_size=200))
def test_no_line_does_more_than_fail(line):
    with pytest.raises(ValueError, match=r"."):
        parse_request(line)


class Served:
    """A control socket and the requests that it received."""

    def __init__(self, folder: Path) -> None:
        self.done: list[Request] = []
        self.listener = Listener(folder / "control", "1-2")
        self.control = Control(self.do, self.listener)

    def do(self, request: Request) -> dict:
        self.done.append(request)
        if request.do == "pause":
            raise ValueError("it cannot be paused")
        return {"seen": len(self.done)}

    def turn(self) -> None:
        """What the supervisor does when something can be read."""
        for _ in range(20):
            ready = select.select(self.control.fds, [], [], 0.02)[0]
            self.control.serve(ready)
            if not ready:
                return


@pytest.fixture
def served(tmp_path):
    served_recording = Served(tmp_path)
    yield served_recording
    served_recording.control.close()


def read(connection: socket.socket) -> list[dict]:
    connection.settimeout(0.2)
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except (TimeoutError, ConnectionResetError):
        pass
    return [json.loads(line) for line in data.splitlines()]


def test_requests_are_answered_in_order(served):
    with connect(served.listener.path, 1) as client:
        client.sendall(b'{"do": "status"}\n{"do": "pause"}\nnonsense\n{"do": "mar')
        served.turn()
        client.sendall(b'k", "text": "x"}\n')
        served.turn()
        answers = read(client)
    assert answers[0] == {"ok": True, "seen": 1}
    assert answers[1] == {"ok": False, "error": "it cannot be paused"}
    assert not answers[2]["ok"]
    assert answers[3] == {"ok": True, "seen": 3}
    assert [request.do for request in served.done] == ["status", "pause", "mark"]


def test_an_order_counts_even_when_its_giver_is_gone(served):
    with connect(served.listener.path, 1) as client:
        client.sendall(b'{"do": "follow"}\n{"do": "stop"}\n')
    served.turn()
    assert [request.do for request in served.done] == ["follow", "stop"]


def test_the_place_is_the_users_alone(served, tmp_path):
    path = served.listener.path
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    served.control.close()
    assert not path.exists()
    path.parent.chmod(0o755)
    with pytest.raises(PermissionError):
        Listener(path.parent, "1-2")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    with pytest.raises(PermissionError):
        Listener(link, "1-2")


def test_a_leftover_is_replaced_and_a_deep_folder_is_no_obstacle(tmp_path):
    deep = tmp_path.joinpath(*["a-rather-long-name-of-a-folder"] * 8)
    first = Listener(deep, "1-2")
    assert len(str(first.path)) > 200
    first.socket.close()  # killed: the name stays
    with pytest.raises(ConnectionRefusedError):
        connect(first.path, 1)
    second = Listener(deep, "1-2")
    connect(second.path, 1).close()
    second.close()


def test_the_second_place_where_the_first_cannot_hold_a_socket(tmp_path):
    listener = open_listener([Path("/proc/nowhere"), tmp_path / "b"], "1-2")
    assert listener is not None
    assert listener.path.parent == tmp_path / "b"
    listener.close()
    assert open_listener([Path("/proc/nowhere")], "1-2") is None


def test_the_runtime_directory_must_be_the_users_alone(tmp_path, monkeypatch):
    user = privilege.Invoker(os.getuid(), os.getgid(), "me", tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    assert privilege.runtime_directory(user) == tmp_path / "memtui"
    tmp_path.chmod(0o750)
    assert privilege.runtime_directory(user) != tmp_path / "memtui"


def test_too_many_clients_and_too_long_lines(served):
    crowd = []
    for _ in range(CLIENTS + 10):
        crowd.append(connect(served.listener.path, 1))
        served.turn()
    assert len(served.control.fds) == CLIENTS + 1
    crowd[-1].sendall(b"x" * LINE_BYTES * 3)
    served.turn()
    assert not read(crowd[-1])[0]["ok"]
    with connect(served.listener.path, 1) as client:  # and there is room for one who behaves
        served.turn()
        client.sendall(b'{"do": "status"}\n')
        served.turn()
        assert read(client)[0]["ok"]
    for client in crowd:
        client.close()


def test_a_client_that_never_reads_is_let_go(served):
    with connect(served.listener.path, 1) as client:
        client.setblocking(False)
        began = time.monotonic()
        try:
            while time.monotonic() - began < 20:
                client.send(b'{"do": "status"}\n' * 50)
                served.turn()
        except BlockingIOError:
            served.turn()
        except (BrokenPipeError, ConnectionResetError):
            pass
        served.turn()
        assert len(served.control.fds) == 1


def test_silence_is_not_waited_for(served, monkeypatch):
    ours, theirs = socket.socketpair()
    served.control.adopt(theirs)  # the screen says nothing for hours
    with connect(served.listener.path, 1) as client:
        client.sendall(b'{"do": "st')
        served.turn()
        assert len(served.control.fds) == 3
        monkeypatch.setattr(control, "PATIENCE_S", 0.0)
        time.sleep(0.01)
        served.control.serve([])
        assert len(served.control.fds) == 2
    served.control.notify_followers(Ended(exit_status=3))
    assert read(ours) == [{"ended": {"asked": False, "exit_status": 3, "outlived": False}}]
    ours.close()


@needs_root
def test_another_user_is_not_listened_to(served):
    """Also when the folder let them in."""
    if why := unless_gate(can_run_as_other()):
        pytest.skip(why)
    served.listener.path.chmod(0o666)
    folder = served.listener.path.parent
    for path in (folder, *folder.parents):
        if path.stat().st_uid == 0 and path != Path("/tmp") and len(path.parts) > 2:
            path.chmod(0o755)
    source = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        's.sendall(b\'{"do": "stop"}\\n\'); print(s.recv(100))'
    )
    argv = [sys.executable, "-I", "-c", source, str(served.listener.path)]
    with subprocess.Popen(argv, user="nobody", group="nogroup", stdout=subprocess.PIPE, text=True) as child:
        for _ in range(100):
            served.turn()
            if child.poll() is not None:
                break
            time.sleep(0.05)
        assert child.stdout is not None
        output = child.stdout.read()
    assert served.done == []
    assert output in ("b''\n", ""), output
    assert child.returncode in (0, 1)
