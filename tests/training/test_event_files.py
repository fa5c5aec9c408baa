"""``--tensorboard`` of ``train`` and ``tune``: event files, read back record by record, against results of training."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import struct
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from memtui.core.errors import UserError
from memtui.training.preflight import check_event_files
from tests.support.repository import ROOT

POLYNOMIAL = 0x82F63B78  # CRC-32C, as TFRecord has it


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ POLYNOMIAL * (crc & 1)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records_of(path: Path) -> list[bytes]:
    """TFRecord: length, its checksum, data, its checksum."""
    data, records, position = path.read_bytes(), [], 0
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        content = data[position + 12 : position + 12 + length]
        assert struct.unpack_from("<I", data, position + 8) == (masked(data[position : position + 8]),)
        assert struct.unpack_from("<I", data, position + 12 + length) == (masked(content),)
        records.append(content)
        position += 16 + length
    return records


def scalars_of(folder: Path) -> dict[str, dict[int, float]]:
    """Values by tag and step."""
    from tensorboard.compat.proto.event_pb2 import Event

    (run,) = folder.iterdir()
    (path,) = run.iterdir()
    scalars: dict[str, dict[int, float]] = defaultdict(dict)
    for record in records_of(path):
        event = Event.FromString(record)
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name != "text":
                scalars[value.tag][event.step] = value.simple_value
    return scalars


def test_the_checksum_is_that_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720


def test_the_time_of_an_iteration_has_no_start_and_no_evaluation_in_it(tmp_path):
    """Points come by the clock: one may come at the very iteration at which the accuracy is measured next."""
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed (pip: memtui[tensorboard])")
    pytest.importorskip("torch")
    from memtui.training.torch.event_files import EventFiles

    files, nan, second = EventFiles(tmp_path, "run", {}), math.nan, 10**9
    for seconds, iteration, loss, accuracy in (
        (50, 1, 2.0, nan),
        (54, 5, 1.9, nan),
        (73, 100, 1.8, nan),
        (90, 100, nan, 60.0),
        (94, 102, 1.7, nan),
        (99, 149, 1.6, 70.0),
    ):
        files.add_point((seconds * second, iteration, 1, loss, accuracy, nan))
    files.close()
    scalars = scalars_of(tmp_path)
    assert scalars["train/seconds_per_iteration"] == pytest.approx({5: 1.0, 100: 0.2, 102: 2.0})
    assert list(scalars["train/loss"]) == [1, 5, 100, 102, 149]


def test_a_training_is_written_by_iteration_and_epoch(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed (pip: memtui[tensorboard])")
    pytest.importorskip("torch")
    argv = ("fcReLu", "--type", "DFAMEM", "--epochs", "2", "--set", "eval_period=100")
    without = document(tmp_path, *argv)
    result = document(tmp_path, *argv, "--tensorboard", "events")
    (run,) = result.pop("files")
    assert [tmp_path / run] == [*(tmp_path / "events").iterdir()]
    assert without.pop("files") == []
    assert result == without, "watching changes neither what is learned nor what it takes"
    scalars = scalars_of(tmp_path / "events")
    assert list(scalars["epoch/accuracy_percent"]) == [1, 2]
    assert scalars["epoch/accuracy_percent"][2] == pytest.approx(result["accuracy"])
    assert scalars["epoch/loss"][2] == pytest.approx(result["loss"])
    assert all(seconds > 0 for seconds in scalars["epoch/seconds"].values())
    assert list(scalars["test/accuracy_percent"]) == [100, 149, 200, 298]
    assert max(scalars["train/loss"]) == result["iterations"] == 298
    timed = set(scalars["train/seconds_per_iteration"])
    assert timed <= set(scalars["train/loss"]) - {1}
    assert scalars["train/loss"][298] < scalars["train/loss"][1]
    assert list(scalars["memory/peak_bytes"]) == [3, 5], "without a recording"
    assert scalars["memory/peak_above_start_bytes"][5] == result["peak_above_start_bytes"]
    parts = [values[5] for tag, values in scalars.items() if tag.startswith("memory/at_peak/")]
    assert sum(parts) == scalars["memory/peak_bytes"][5] == result["peak_bytes"]


@pytest.mark.slow
def test_a_grid_has_the_event_files_of_its_trainings(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed (pip: memtui[tensorboard])")
    pytest.importorskip("torch")
    done = memtui(tmp_path, "tune", "fcReLu", "--grid", "type=BP,DFAMEM", "--tensorboard", "events", "--json")
    assert done.returncode == 0, done.stderr
    for name, row in zip(("1-type=BP", "2-type=DFAMEM"), json.loads(done.stdout)["rows"], strict=True):
        scalars = scalars_of(tmp_path / "events" / name)
        assert max(scalars["train/loss"]) == row["iterations"]
        assert scalars["memory/peak_above_start_bytes"][5] == row["peak_above_start_bytes"]
    assert len(list((tmp_path / "events").iterdir())) == 2


def test_the_time_of_an_iteration_is_without_the_start_and_without_the_evaluation(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed (pip: memtui[tensorboard])")
    pytest.importorskip("torch")
    from memtui.training.torch.event_files import EventFiles

    events = EventFiles(tmp_path, "run", {})
    none, start_ns = math.nan, time.monotonic_ns() + 10**9
    for t_ms, iteration, accuracy in ((0, 1, none), (60, 7, none), (80, 9, none), (580, 11, 40.0), (640, 17, none)):
        events.add_point((start_ns + t_ms * 10**6, iteration, 1, 0.5, accuracy, none))
    events.close()
    scalars = scalars_of(tmp_path)
    assert list(scalars["train/loss"]) == [1, 7, 9, 11, 17]
    assert scalars["train/seconds_per_iteration"] == pytest.approx({7: 0.01, 9: 0.01, 17: 0.01})


def test_where_statistics_cannot_be_written_no_run_is_left(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed (pip: memtui[tensorboard])")
    pytest.importorskip("torch")
    (tmp_path / "stats").touch()
    done = train(tmp_path, "fcReLu", "--gather-stats", "--tensorboard", "events")
    assert (done.returncode, done.stdout) == (1, "")
    *_, last = done.stderr.splitlines()  # on a slow machine a line before it says that data are read
    assert last.startswith("memtui train: stats: cannot be ")
    assert list((tmp_path / "events").iterdir()) == []


def document(folder: Path, *argv: str) -> dict:
    done = train(folder, *argv, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def train(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return memtui(folder, "train", *argv)


def memtui(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memtui", *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.parametrize("folder", ["events", "file/events"])
def test_without_tensorboard_a_line_says_what_to_install_before_a_folder_is_made(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"not installed: pip install 'memtui\[tensorboard\]'$") as caught:
        check_event_files(tmp_path / folder)
    assert caught.value.code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_tensorboard_that_cannot_be_imported_is_not_called_missing(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from memtui.training.torch.event_files import EventFiles

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    why = r"TensorBoard cannot be imported \(.*halted.*\): pip install 'memtui\[tensorboard\]'$"
    with pytest.raises(UserError, match=why):
        EventFiles(tmp_path, "run", {})
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_is_a_line_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="name another folder with --tensorboard") as caught:
        check_event_files(tmp_path / "file" / "events")
    assert caught.value.code == 2
    check_event_files(tmp_path / "events")
    assert (tmp_path / "events").is_dir()
