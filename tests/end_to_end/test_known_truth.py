"""Working sets and the heat map beside what masim is known to touch, and beside wss.pl; skips without these."""

from __future__ import annotations

import csv
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import known_truth, masim
from benchmarks.known_truth import percent, phases_seen, steady_windows
from benchmarks.programs import find
from benchmarks.table import Skip
from memtui.session.session import Session
from tests.support.live import needs_root, needs_tracker

pytestmark = pytest.mark.real_clock


@pytest.fixture
def needs_masim():
    try:
        find("masim")
    except Skip as why:
        pytest.skip(str(why))


def test_a_config_is_in_the_grammar_of_masim():
    config = masim.Config(2, 5000, (1, 0), 0.5, 2)
    regions, *phases = config.text().split("\n\n")
    assert regions == "r0, 5000\nr1, 5000"
    assert phases == [
        "first\n500\nr0, 0, 4096, 1\nr1, 0, 4096, 1",
        "phase 0\n2000\nr1, 0, 4096, 1",
        "phase 1\n2000\nr0, 0, 4096, 1\n",
    ]
    assert config.touched_bytes == 2 * 4096
    assert masim.stairs().touched_bytes == 2442 * 4096
    assert masim.zigzag().touched_bytes == 24415 * 4096


def test_files_and_anonymous_memory_of_smaps_are_told_apart():
    text = (
        "559851-559855 r-xp 00002000 fe:00 25 /usr/bin/x y\nRss: 8 kB\nReferenced:   8 kB\n"
        "7fa870-7fa885 rw-p 00000000 00:00 0 \nReferenced: 100 kB\n"
        "7ffe00-7ffe10 rw-p 00000000 00:00 0   [stack]\nReferenced: 12 kB\n"
        "7ffe20-7ffe30 r-xp 00000000 00:00 0   [vdso]\nReferenced: 4 kB\n"
    )
    assert known_truth.referenced_bytes(text, files=True) == 12 * 1024
    assert known_truth.referenced_bytes(text, files=False) == 112 * 1024


def seen_in_phases(config, folder, interval_s):
    """The session of a whole run and its steady windows: every phase in its turn, each window of the known size."""
    path = known_truth.record_whole(config, folder, folder / "masim.memtui", interval_s)
    windows = steady_windows(path, config)
    assert phases_seen(windows) == list(config.order)
    for window in windows:
        assert percent(window.touched_bytes, config.touched_bytes) <= known_truth.LIMIT_PERCENT, window
    return path, windows


@needs_root
@needs_tracker
def test_masim_climbs_stairs_of_known_size(tmp_path, needs_masim):
    config = masim.stairs(steps=5, first_s=0.6, phase_s=1.0)
    path, windows = seen_in_phases(config, tmp_path, 0.1)
    assert hottest_steps(path, config, tmp_path / "csv", [w.sample for w in windows]) == list(config.order)


def hottest_steps(path, config, folder, samples) -> list[int]:
    """The regions in which ``pages.csv`` has most bytes, from window to window, without repetition."""
    command = [sys.executable, "-m", "memtui", "export", str(path), "--to", "csv", "-o", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    reader = Session(path)
    process = reader.processes.all()[-1]
    where = known_truth.regions_of(reader, process.key, config)
    reader.close()
    touched: dict[int, np.ndarray] = {sample: np.zeros(config.regions) for sample in samples}
    with (folder / "pages.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            sample, start, end = int(line["sample"]), int(line["start"]), int(line["end"])
            if sample in touched and int(line["pid"]) == process.pid and start >= where.start and end <= where.end:
                pages = np.arange(start, end, 4096, dtype=np.uint64)
                regions = known_truth.region_of(pages, where, config)
                touched[sample] += np.bincount(regions, minlength=config.regions)
    hottest = [int(np.argmax(touched[sample])) for sample in samples]
    return [region for i, region in enumerate(hottest) if i == 0 or region != hottest[i - 1]]


@needs_root
@needs_tracker
def test_masim_zigzags_between_regions_of_known_size(tmp_path, needs_masim):
    seen_in_phases(masim.zigzag(phases=3, first_s=0.6, phase_s=2.0), tmp_path, 0.5)


@needs_root
@needs_tracker
def test_anonymous_memory_is_that_of_wss_pl(tmp_path, needs_masim):
    try:
        ours, theirs = known_truth.beside_wss_pl(tmp_path, 1)
    except Skip as why:
        pytest.skip(str(why))
    assert ours > 0.9 * masim.ZIGZAG_BYTES
    assert percent(ours, theirs) <= known_truth.LIMIT_PERCENT
