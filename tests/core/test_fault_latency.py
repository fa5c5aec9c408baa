"""What is kept of measured page faults: whose machine it is of, and what cannot be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtui.core.errors import UserError
from memtui.core.fault_latency import FILE_NAME, FaultLatencies, FaultLatency, load, save, stored
from memtui.core.samples import Host

HOST = Host("node7", "6.18.0", "x86_64", 8, 1 << 34)
OF_FILE = FaultLatency("file", "/data", 80_000, 95_000, 140_000, 1000)
OF_SWAP = FaultLatency("swap", "/dev/zram0", 8_000, 9_000, 12_000, 1000)
MEASURED = FaultLatencies(HOST, "2026-11-27T12:00:00+00:00", (OF_FILE, OF_SWAP), ("a reason",))


def test_what_was_stored_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert stored() is None
    for measured in (MEASURED, replace(MEASURED, latencies=())):
        save(measured, tmp_path / "memtui")
        assert stored() == measured
    assert [path.name for path in (tmp_path / "memtui").iterdir()] == [FILE_NAME]


def test_where_it_cannot_be_stored_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        save(MEASURED, tmp_path / "file")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"host": null, "measured": 1, "latencies": []}', "[" * 10_000])
def test_what_is_damaged_is_as_if_it_was_not_there(tmp_path, text):
    (tmp_path / FILE_NAME).write_text(text)
    assert load(tmp_path) is None


def test_it_is_of_one_machine_and_swap_comes_first():
    assert MEASURED.of(HOST) == OF_SWAP
    assert MEASURED.of(replace(HOST, kernel="6.19.1", memory_bytes=1)) == OF_SWAP, "a newer kernel, more memory"
    assert replace(MEASURED, latencies=(OF_FILE,)).of(HOST) == OF_FILE
    assert replace(MEASURED, latencies=()).of(HOST) is None
    for other in (replace(HOST, hostname="laptop"), replace(HOST, architecture="aarch64"), None):
        assert MEASURED.of(other) is None
