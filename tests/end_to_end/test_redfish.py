"""A recording with the power of the machine from a stand-in for a Redfish service; the password is nowhere after it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing

import numpy as np
import psutil
import pytest

from memtui.core.samples import Status
from memtui.session.session import Session
from tests.support.cli import memtui
from tests.support.live import TRACKER, part, wait_until
from tests.support.redfish_service import PASSWORD, USER, idrac, serving
from tests.support.repository import ROOT
from tests.support.users import NO_PASSWORD, temporary_user

pytestmark = pytest.mark.real_clock(alone=False)

READER = "memtui.recording.network_power"


@pytest.fixture
def environment(tmp_path):
    own = {"XDG_STATE_HOME": str(tmp_path), "MEMTUI_REDFISH_USER": USER, "MEMTUI_REDFISH_PASSWORD": PASSWORD}
    return {**os.environ, **own}


def record(tmp_path, environment, url, *more, seconds=4):
    path = tmp_path / "session"
    arguments = ("--no-sudo", *TRACKER, "--redfish", url, "--duration", seconds, "-o", path, *more)
    return path, memtui("record", *arguments, "--", "sleep", seconds, env=environment)


def machine(path):
    with closing(Session(path)) as session:
        return [reading for reading in session.devices.power(0, 2**62) if reading.scope == "chassis"]


def test_readings_are_in_the_session_and_the_password_is_not(tmp_path, environment):
    with serving(idrac()) as service:
        service.password = True
        path, done = record(tmp_path, environment, service.url, "--chassis-power", "--keep-command", seconds=7)
    assert done.returncode == 0, done.stderr
    readings = machine(path)
    assert {reading.source.split()[0] for reading in readings} == {"redfish"}, "in place of ipmitool"
    assert {reading.power_w for reading in readings} == {291.0}
    assert len(readings) >= 2
    report = memtui("report", path, env=environment)
    assert "machine chassis: mean 291 W by redfish" in report.stdout
    for text in (path.read_bytes().decode("latin-1"), report.stdout, done.stdout, done.stderr):
        assert PASSWORD not in text
        assert USER not in text


def test_the_password_of_the_environment_is_for_one_process(tmp_path, environment):
    words = ("record", "--no-sudo", *TRACKER, "--redfish", "https://127.0.0.1:1", "-o", tmp_path / "session")
    command = [sys.executable, "-m", "memtui", *map(str, words), "--", "sleep", "3"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        parts = {name: part(child.pid, f"memtui.recording.{name}") for name in ("network_power", "recorder", "sampler")}
        children = psutil.Process(child.pid).children
        parts["program"] = wait_until(lambda: next((one for one in children() if one.name() == "sleep"), None))
        have = {name for name, process in parts.items() if PASSWORD in process.environ().values()}
        assert child.wait(30) == 0
    assert have == {"network_power"}


def test_a_hang_delays_no_sample(tmp_path, environment):
    with serving(idrac()) as service:
        service.fault = "hang"
        path, done = record(tmp_path, environment, service.url)
    assert done.returncode == 0, done.stderr
    with closing(Session(path)) as session:
        ends = session.samples.end_ns
        assert len(ends) > 10
        assert np.diff(ends).max() < 3e9


def test_a_refusal_is_a_reason_in_the_session(tmp_path, environment):
    with serving(idrac()) as service:
        service.fault = "401"
        path, done = record(tmp_path, environment, service.url)
        assert len(service.requests) == 1
    assert done.returncode == 0, done.stderr
    (reading,) = machine(path)
    assert (reading.power_w, reading.status) == (None, Status.DENIED)
    assert "refuses (HTTP 401)" in memtui("report", path, env=environment).stdout


def test_a_reader_that_is_killed_is_a_reason(tmp_path, environment):
    with serving(idrac()) as service:
        words = (
            "record",
            "--no-sudo",
            *TRACKER,
            "--redfish",
            service.url,
            "-o",
            tmp_path / "session",
            "--",
            "sleep",
            4,
        )
        command = [sys.executable, "-m", "memtui", *map(str, words)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            part(child.pid, READER).kill()
            assert child.wait(30) == 0
    assert machine(tmp_path / "session")[-1].reason == "the process that reads Redfish ended"


def test_under_sudo_the_user_asks_with_their_netrc_and_root_does_not():
    with temporary_user(NO_PASSWORD) as user, serving(idrac()) as service:
        service.password = True
        netrc = user.home / ".netrc"
        netrc.write_text(f"machine 127.0.0.1 login {USER} password {PASSWORD}\n")
        netrc.chmod(0o600)
        os.chown(netrc, user.uid, user.gid)
        path = user.home / "session"
        memtui_as_root = ("sudo", f"PYTHONPATH={ROOT}", sys.executable, "-m", "memtui")
        words = ("record", "--tracker", "rss", "--redfish", service.url, "-o", path, "--", "sleep", 6)
        child = user.start(*memtui_as_root, *words)
        reader = part(child.pid, READER)
        assert set(reader.uids()) == {user.uid}
        assert not re.search(rf"{PASSWORD}|{USER}", " ".join(reader.cmdline()))
        _, errors = child.communicate(timeout=30)
        assert child.returncode == 0, errors
        assert {reading.power_w for reading in machine(path)} == {291.0}
