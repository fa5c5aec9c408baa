"""The swap areas of recorded /proc trees, and of this machine."""

from __future__ import annotations

from pathlib import Path

from memtui.probes.swap_areas import SwapArea, swap_areas

SWAPS = """\
Filename				Type		Size		Used		Priority
/dev/zram0                              partition	4194304		1024		100
/var/my\\040swap\\040(deleted)          file		2048		0		-2
"""


def test_areas_with_their_sizes(tmp_path):
    (tmp_path / "swaps").write_text(SWAPS)
    assert swap_areas(tmp_path) == [
        SwapArea("/dev/zram0", 4 << 30, 1 << 20),
        SwapArea("/var/my\\040swap\\040(deleted)", 2 << 20, 0),
    ]


def test_none_and_a_kernel_without_swap(tmp_path):
    assert swap_areas(tmp_path) == []
    (tmp_path / "swaps").write_text(SWAPS.splitlines()[0] + "\n")
    assert swap_areas(tmp_path) == []


def test_those_of_this_machine():
    lines = Path("/proc/swaps").read_text().splitlines()[1:]
    assert [area.name for area in swap_areas()] == [line.split()[0] for line in lines]
