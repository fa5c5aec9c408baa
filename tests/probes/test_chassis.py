"""The power of the machine from a stand-in for ipmitool: its answers, its failures, and that nobody waits for it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.readings import PowerReading
from memtui.core.samples import Status
from memtui.probes.power.chassis import EVERY_NS, PATIENCE_NS, ChassisProbe, watts_of
from memtui.probes.power.probe import PowerProbe

# As ipmitool 1.8.18 prints it.
ANSWER = """
    Instantaneous power reading:                   212 Watts
    Minimum during sampling period:                 12 Watts
    Maximum during sampling period:                436 Watts
    Average power reading over sample period:      208 Watts
    IPMI timestamp:                           Thu Nov 26 11:00:00 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated


"""


def probe(folder: Path, script: str, *, root: bool = True, controller: bool = True) -> ChassisProbe:
    program, device = folder / "ipmitool", folder / "ipmi0"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    if controller:
        device.touch()
    return ChassisProbe(programs=(folder / "nowhere", program), devices=(device,), root=root)


def answer(asked: ChassisProbe, t_ns: int) -> PowerReading:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if readings := asked.read(t_ns):
            return readings[0]
        time.sleep(0.01)
    raise AssertionError("it did not come")


def test_a_reading_every_two_seconds(tmp_path):
    asked = probe(tmp_path, f"echo x >> {tmp_path}/count; echo \"$@\" $PATH > {tmp_path}/said; cat <<'E'{ANSWER}E")
    assert asked.read(1) == (), "it does not wait for the first one"
    assert answer(asked, 5) == PowerReading(5, "machine", "chassis", "ipmi dcmi", power_w=212.0)
    assert (tmp_path / "said").read_text() == "-I open dcmi power reading /usr/sbin:/usr/bin:/sbin:/bin\n"
    assert [asked.read(1 + n) for n in range(1, 100)] == [()] * 99
    assert len((tmp_path / "count").read_text()) == 2
    assert answer(asked, 1 + EVERY_NS).power_w == 212
    assert len((tmp_path / "count").read_text()) == 4
    asked.close()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 1", "ipmitool failed (status 1): the controller may have no DCMI"),
        ("echo nothing", "ipmitool printed no power reading"),
        (f"sed s/activated/deactivated/ <<'E'{ANSWER}E", "the controller does not measure power at present"),
        (f"sed s/212/0/ <<'E'{ANSWER}E", "the controller reads 0 W, which cannot be"),
    ],
)
def test_no_reading_has_a_reason(tmp_path, script, says):
    asked = probe(tmp_path, script)
    reading = answer(asked, 1)
    assert (reading.power_w, reading.status, reading.reason) == (None, Status.FAILED, says)
    asked.close()


def test_a_program_that_hangs_is_ended_and_asked_again(tmp_path):
    asked = probe(tmp_path, f"[ -e {tmp_path}/go ] || exec sleep 100; cat <<'E'{ANSWER}E")
    begin = time.monotonic()
    assert asked.read(1) == asked.read(PATIENCE_NS) == ()
    process = asked._child
    assert asked.read(1 + PATIENCE_NS)[0].reason == "ipmitool did not answer in 10 s"
    assert time.monotonic() - begin < 5
    process.wait()
    (tmp_path / "go").touch()
    assert answer(asked, 2 + PATIENCE_NS).power_w == 212
    asked.close()


def test_it_ends_with_the_probe(tmp_path):
    asked = probe(tmp_path, "exec sleep 100")
    asked.read(1)
    process = asked._child
    asked.close()
    assert process.poll() is not None
    asked.close()


@pytest.mark.parametrize(
    ("without", "says"),
    [({"controller": False}, "/dev/ipmi0"), ({"root": False}, "root only")],
)
def test_what_is_missing_is_said_once(tmp_path, without, says):
    asked = probe(tmp_path, "exit 0", **without)
    (reading,) = asked.read(1)
    assert (reading.status, reading.device) == (Status.UNSUPPORTED, "machine")
    assert says in reading.reason
    assert asked.read(2) == ()
    (capability,) = asked.capabilities()
    assert not capability.ok
    assert capability.remedy


def test_without_the_program(tmp_path):
    asked = ChassisProbe(programs=(tmp_path / "no",), devices=(tmp_path,), root=True)
    assert asked.capabilities()[0].reason == "ipmitool is not installed"


def test_it_is_asked_only_when_the_user_says_so(tmp_path):
    for chassis in (False, True):
        power = PowerProbe(sys_root=tmp_path, nvml=False, chassis=chassis)
        assert ("chassis" in [reading.scope for reading in power.read(1)]) is chassis
        power.close()


@given(st.binary() | st.integers(0, 10**7).map(lambda watts: ANSWER.replace("212", str(watts)).encode()))
def test_watts_are_above_zero_or_there_is_a_reason(text):
    watts, reason = watts_of(text)
    assert (watts is None) == bool(reason)
    assert watts is None or 0 < watts < 10**6
