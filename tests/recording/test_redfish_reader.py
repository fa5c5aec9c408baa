"""Reading a Redfish service: its cadence, what is said while it hangs, and that a password is not tried again."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time

import pytest

from memtui.core.samples import Status
from memtui.recording.network_power import redfish_reader as module
from memtui.recording.network_power.address import parse_address
from memtui.recording.network_power.cadence import LEAST, Cadence
from memtui.recording.network_power.connection import Connection, NoAnswer
from memtui.recording.network_power.credentials import Credentials
from memtui.recording.network_power.redfish_reader import RedfishReader
from memtui.recording.network_power.redfish_resource import PowerResource
from tests.support.live import wait_until
from tests.support.redfish_service import MAKES, PASSWORD, USER, idrac, instances_of, openbmc, serving


@pytest.fixture(autouse=True)
def made(monkeypatch):
    """Close every reader in the end."""
    readers = instances_of(RedfishReader, monkeypatch)
    yield
    for one in readers:
        if one._connection is not None:
            one._connection.abort()
        if one._thread is not None:
            one._thread.join(10)
        if one._connection is not None:
            one._connection.close()
        os.close(one.ready_fd)
        os.close(one._ready)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "EVERY_S", 0.1)


def reading(service, **about):
    address = parse_address(service.url)
    return RedfishReader(lambda: Connection(address, Credentials(USER, PASSWORD), 1.0), address.chassis, **about)


def next_of(reader, seconds=20.0):
    """Return the next reading; assert that no step takes long."""

    def step():
        select.select([reader.ready_fd], [], [], min(reader.wait_s or 0.05, 0.05))
        begin = time.monotonic()
        found = reader.step()
        assert time.monotonic() - begin < 0.5, "it waited"
        return found

    return wait_until(step, seconds)


@pytest.mark.parametrize("make", MAKES)
def test_a_reading_of_each_make(make):
    tree, kind, watts = MAKES[make]
    with serving(tree()) as service:
        service.password = True
        begin_ns = time.monotonic_ns()
        found = next_of(reading(service))
        assert (found.device, found.scope, found.source) == ("machine", "chassis", "redfish")
        assert (found.power_w, found.status, found.reason) == (watts, Status.OK, "")
        assert begin_ns < found.t_ns < time.monotonic_ns()
        assert service.paths[-1].rstrip("/").endswith(kind)


def test_it_asks_one_resource_every_two_seconds():
    with serving(idrac()) as service:
        reader = reading(service)
        first = next_of(reader)
        asked = len(service.requests)
        second = next_of(reader)
        assert len(service.requests) == asked + 1
        assert second.t_ns - first.t_ns > 1_500_000_000


def test_the_cadence_of_the_controller_is_measured(quick):
    begin = time.monotonic()
    with serving({}) as service:
        service.tree.update(openbmc())
        path = "/redfish/v1/Chassis/chassis/EnvironmentMetrics"
        # A new value every half second, however often it is asked.
        service.tree[path] = lambda: {"PowerWatts": {"Reading": 300.0 + int((time.monotonic() - begin) / 0.5)}}
        reader = reading(service)
        assert next_of(reader).source == "redfish"
        wait_until(lambda: next_of(reader).source != "redfish")
        assert 0.3 < reader._cadence.seconds < 0.8


def test_the_cadence_is_told_in_seconds():
    times = Cadence()
    for t_s in range(0, 10 * (LEAST + 1) + 1, 2):
        assert times.seconds is None
        times.add(t_s, 200.0 + t_s // 10)
    times.add(60, 300)
    assert times.seconds == 10
    times.add(62, None)
    times.add(100, 400.0)
    assert times.seconds == 10, "what changed while nothing was read is not counted"


def test_a_service_that_hangs_is_stale_and_comes_back(quick):
    with serving(idrac()) as service:
        reader = reading(service, patience_s=0.4)
        assert next_of(reader).power_w == 291
        service.fault = "hang"
        lost = wait_until(lambda: (found := next_of(reader)).power_w is None and found)
        assert lost.status == Status.FAILED
        assert lost.reason.startswith("stale since ")
        assert lost.reason.endswith(": the Redfish service does not answer")
        asked = len(service.requests)
        time.sleep(0.1)
        assert len(service.requests) == asked
        service.fault = ""
        assert next_of(reader).power_w == 291


def test_a_refusal_ends_it(quick):
    """A few wrong passwords lock an account."""
    with serving(idrac()) as service:
        service.password = True
        address = parse_address(service.url)
        reader = RedfishReader(lambda: Connection(address, Credentials(USER, "wrong"), 1.0))
        found = next_of(reader)
        assert (found.power_w, found.status) == (None, Status.DENIED)
        assert reader.ended
        assert reader.wait_s is None
        time.sleep(0.5)
        assert reader.step() is None
        assert len(service.requests) == 1


def test_a_refusal_that_comes_too_late_ends_it_as_well(quick):
    asked = []

    class Slow(Connection):
        def get(self, path):
            asked.append(path)
            time.sleep(0.4)
            raise NoAnswer(Status.DENIED, "refused")

    reader = RedfishReader(lambda: Slow(parse_address("bmc"), None), patience_s=0.1)
    reader._resource = PowerResource("Power", "/redfish/v1/Power")
    assert next_of(reader).reason == "the Redfish service does not answer"
    found = next_of(reader)
    assert (found.status, found.reason) == (Status.DENIED, "refused")
    assert reader.ended
    assert len(asked) == 1


@pytest.mark.parametrize("patience_s", [0.2, 20.0])
def test_passwords_without_an_answer_become_rare(quick, monkeypatch, patience_s):
    """A refusal may come too late to be seen, and locks the account all the same."""
    monkeypatch.setattr(module, "FIND_S", 0.2)
    with serving(idrac()) as service:
        service.fault = "hang"
        address = parse_address(service.url)
        reader = RedfishReader(lambda: Connection(address, Credentials(USER, "wrong"), 0.5), patience_s=patience_s)
        said = wait_until(lambda: "only" in (found := next_of(reader)).reason and found)
        assert "asked every 5 minutes only, after 3 passwords without an answer" in said.reason
        assert (said.status, len(service.requests)) == (Status.FAILED, 3)
        assert reader.wait_s > 250


@pytest.mark.parametrize(
    ("fault", "status"), [("404", Status.UNSUPPORTED), ("says x", Status.FAILED), ("500", Status.FAILED)]
)
def test_a_failure_is_tried_again_less_and_less(quick, fault, status):
    with serving(idrac()) as service:
        service.fault = fault
        reader = reading(service)
        first, second, third = [(next_of(reader), time.monotonic()) for _ in range(3)]
        assert first[0].status == third[0].status == status
        assert third[1] - second[1] > 1.2 * (second[1] - first[1])
        service.fault = ""
        assert wait_until(lambda: next_of(reader).power_w) == 291


def test_whatever_goes_wrong_is_a_reason_without_its_words(quick):
    class Broken(Connection):
        def get(self, path):
            raise RuntimeError(PASSWORD)

    reader = RedfishReader(lambda: Broken(parse_address("bmc"), None))
    assert next_of(reader).reason == "reading Redfish failed (RuntimeError)"


def start(url, home, **environment):
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "memtui.recording.network_power", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"HOME": str(home), "PYTHONPATH": os.environ.get("PYTHONPATH", "")} | environment,
    )


def test_the_process_reads_with_netrc_and_ends_with_its_input(tmp_path):
    netrc = tmp_path / ".netrc"
    netrc.write_text(f"machine 127.0.0.1 login {USER} password {PASSWORD}\n")
    netrc.chmod(0o600)
    with serving(idrac()) as service:
        service.password = True
        process = start(service.url, tmp_path)
        found = json.loads(process.stdout.readline())
        assert found["power_w"] == 291
        service.fault = "hang"
        count = len(service.requests)
        wait_until(lambda: len(service.requests) > count)
        begin = time.monotonic()
        process.stdin.close()
        assert process.wait(10) == 0
        assert time.monotonic() - begin < 5, "it does not wait for the service"
        assert process.stderr.read() == b""
        process.stdout.close()
        process.stderr.close()


def test_the_process_says_what_is_wrong_with_the_passwords(tmp_path):
    with serving(idrac()) as service:
        process = start(service.url, tmp_path, MEMTUI_REDFISH_USER=USER)
        found = json.loads(process.stdout.readline())
        assert (found["status"], found["reason"]) == (
            "denied",
            "MEMTUI_REDFISH_PASSWORD is not set, and MEMTUI_REDFISH_USER is",
        )
        assert service.requests == []
        said, errors = process.communicate(timeout=10)
        assert (said, errors, process.returncode) == (b"", b"", 0)


def test_the_process_ends_without_a_word_when_nobody_reads(tmp_path):
    process = start("https://bmc.example", tmp_path, MEMTUI_REDFISH_USER=USER)
    process.stdout.close()
    assert process.wait(20) == 0
    assert process.stderr.read() == b""
    process.stdin.close()
    process.stderr.close()
