"""Folded stacks and speedscope: every stack with its bytes, in totals that are those of the pages."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from memtui.core.errors import UserError
from memtui.formats.session_writer import write
from memtui.reports.export import export
from memtui.session.session import Session
from tests.mutations import mutate
from tests.support.sessions import messages, write_session
from tests.support.stack_captures import capture_of, imported, imported_of_messages, joined_session
from tests.support.stacked_snapshot import imported as snapshot

MIB = 1 << 20
MUTATIONS = int(os.environ.get("MEMTUI_MUTATIONS", "60"))


@pytest.fixture
def joined(tmp_path):
    return joined_session(tmp_path)


def lines_of(path):
    return {stack: int(value) for stack, _, value in (line.rpartition(" ") for line in path.read_text().splitlines())}


def test_folded_stacks_are_a_file_for_each_kind_of_bytes(joined, tmp_path):
    files = {path.name: lines_of(path) for path in export(joined, "folded", tmp_path / "out")}
    assert sorted(files) == [f"joined-{name}.folded" for name in ("left", "peak", "resident", "touched")]
    hot, cold, moving = (
        f"main (train.py:3);{call}" for call in ("hot (train.py)", "cold (train.py:1)", "moving (train.py:2)")
    )
    assert files["joined-peak.folded"] == {hot: 4 * MIB, cold: 4 * MIB, moving: 64 * MIB}
    touched = files["joined-touched.folded"]
    assert touched == {hot: 4 * MIB, moving: 8 * MIB, "(outside of all blocks)": 8 * 4096}
    session = Session(joined)
    assert sum(touched.values()) == session.samples.stored_bytes[5]


def test_speedscope_has_all_of_them_in_one_file(joined, tmp_path):
    (path,) = export(joined, "speedscope", tmp_path / "out")
    assert path.name == "joined.speedscope.json"
    document = json.loads(path.read_text())
    frames = document["shared"]["frames"]
    profiles = {profile["name"]: profile for profile in document["profiles"]}
    assert list(profiles) == ["peak", "left", "touched", "resident"]
    for profile in profiles.values():
        assert profile["unit"] == "bytes"
        assert profile["endValue"] == sum(profile["weights"])
        assert len(profile["samples"]) == len(profile["weights"])
    names = [[frames[number]["name"] for number in sample] for sample in profiles["peak"]["samples"]]
    assert ["main", "moving"] in names
    assert {"name": "moving", "file": "/x/train.py", "line": 2} in frames


def test_a_redacted_export_has_labels(joined, tmp_path):
    text = "".join(path.read_text() for path in export(joined, "folded", tmp_path / "out", redact=True))
    assert "train" not in text
    assert "moving" not in text
    assert "function-" in text


def test_a_name_cannot_break_a_line(tmp_path):
    imported = imported_of_messages(hot="a;b\nc 5")
    write(imported, tmp_path / "s.memtui")
    peak = next(path for path in export(tmp_path / "s.memtui", "folded", tmp_path / "out") if "peak" in path.name)
    assert f"main (train.py:3);a,b\\nc 5 (train.py) {4 * MIB}" in peak.read_text().splitlines()


def test_a_snapshot_has_the_peak_of_each_device(tmp_path):
    write(snapshot(), tmp_path / "s.memtui")
    (path,) = export(tmp_path / "s.memtui", "folded", tmp_path / "out")
    (step,) = Session(tmp_path / "s.memtui").allocations.steps()
    assert sum(lines_of(path).values()) == step.peak_bytes


def test_a_device_is_a_part_of_the_name_of_a_file(tmp_path):
    read = snapshot()
    (part,) = read.parts
    write(replace(read, parts=(part, replace(part, device="mps/0: a b"))), tmp_path / "s.memtui")
    names = [path.name for path in export(tmp_path / "s.memtui", "folded", tmp_path / "out")]
    assert sorted(names) == ["s-peak-cuda-0.folded", "s-peak-mps-0-a-b.folded"]


def test_stacks_without_any_bytes_say_so(tmp_path):
    capture = capture_of([(0, 0, 0, 5)], 5)
    write(imported(capture), tmp_path / "s.memtui")
    for form in ("folded", "speedscope"):
        with pytest.raises(UserError, match="no bytes of any: there is nothing to export"):
            export(tmp_path / "s.memtui", form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_session_without_stacks_says_so(tmp_path):
    path = write_session(tmp_path / "s.memtui", messages(3))
    for form in ("folded", "speedscope"):
        with pytest.raises(UserError, match=r"has no call stacks; .* of a capture of memray, a CUDA"):
            export(path, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_session_gives_one_line_or_a_result(joined, tmp_path):
    used = refused = 0
    for seed in range(MUTATIONS):
        for beside in tmp_path.glob("s.memtui*"):
            beside.unlink()
        mutate(joined, tmp_path / "s.memtui", seed)
        try:
            export(tmp_path / "s.memtui", ("folded", "speedscope")[seed % 2], tmp_path / "out", force=True)
            used += 1
        except UserError as error:
            refused += "\n" not in str(error)
    assert used + refused == MUTATIONS
    assert min(used, refused) > MUTATIONS // 10, (used, refused)
