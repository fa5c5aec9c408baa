"""Working sets beside a known truth: masim's ``stairs`` and ``zigzag``, and beside ``wss.pl`` on a steady phase."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path

import numpy as np

from benchmarks.masim import Config, command, masim, stairs, zigzag
from benchmarks.programs import find
from benchmarks.recording import environment, record
from benchmarks.run import Run, memtui
from benchmarks.table import Row, once, row
from benchmarks.targets import needs_root
from memtui.session.session import Session
from memtui.session.vma_row import VmaRow

LIMIT_PERCENT = 2
WSS_PL_SECONDS = 0.5
_NS_PER_PAGE = 2000  # of CPU time: many times what a sweep takes, after which masim has surely come round
_STRAY_PAGES = 16  # the C library keeps a few of its own beside the regions
# Of smaps: the head of a mapping, whose path comes last, and its line of referenced bytes.
_HEAD = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$")
_WSS_PL_LINE = re.compile(r"^\d+\.\d+ ( +\d+\.\d+){3}$")
_REFERENCED = re.compile(r"^Referenced: +(\d+) kB$")


@dataclass(frozen=True, slots=True)
class SteadyWindow:
    """A window in which masim swept one of its regions only. ``touched_bytes``: in the memory of all of them."""

    sample: int
    region: int
    touched_bytes: int


def measure(run: Run) -> Iterator[Row]:
    """How far from what is known, in per cent."""
    needs_root()
    for name, config in (
        ("stairs", stairs(first_s=1, phase_s=1) if run.quick else stairs()),
        ("zigzag", zigzag(phases=4, first_s=1, phase_s=1) if run.quick else zigzag()),
    ):
        path = record_whole(config, run.folder, run.folder / f"{name}.memtui", 0.2)
        windows = steady_windows(path, config)
        errors = [percent(window.touched_bytes, config.touched_bytes) for window in windows]
        what = f"masim {name}, {config.touched_bytes / 1e6:.2f} MB in a phase: working set off by"
        yield row(what, errors, "%", LIMIT_PERCENT)
        yield once(f"the one of these {len(errors)} windows that is farthest off", max(errors), "%", LIMIT_PERCENT)
        seen = phases_seen(windows)
        wrong = sum(a != b for a, b in zip_longest(seen, config.order))
        yield once(f"phases of {len(config.order)} that were not seen, or not in their order", wrong, "", 0)
    ours, theirs = beside_wss_pl(run.folder, 5 if run.quick else 20)
    what = (
        f"masim, one phase: anonymous memory ({ours / 1e6:.2f} MB) beside that of wss.pl ({theirs / 1e6:.2f}): off by"
    )
    yield once(what, percent(ours, theirs), "%", LIMIT_PERCENT)


def percent(value: float, beside: float) -> float:
    """By how many per cent it is off."""
    return 100 * abs(value / beside - 1)


def record_whole(config: Config, folder: Path, path: Path, interval_s: float) -> Path:
    """A session of masim from its first instruction to its end."""
    words = memtui(
        "record", "--interval", interval_s, "--max-overhead", "none", "--tracker", "pagetable", "-o", path, "--"
    )
    subprocess.run([*words, *command(config, folder)], check=True, capture_output=True, env=environment())
    return path


def steady_windows(path: Path, config: Config) -> list[SteadyWindow]:
    """The windows in which one region only was swept, and how much was touched.

    On a busy machine masim may get so little of a CPU in a window that it does not come round: that is not steady.
    """
    reader = Session(path)
    try:
        process = reader.processes.all()[-1]
        where = regions_of(reader, process.key, config)
        samples, rows, touched = reader.vmas.wss(0, int(reader.samples.sample[-1]))
        sizes = dict(zip(samples[rows == where.id].tolist(), touched[rows == where.id].tolist(), strict=True))
        windows = [
            w for w in reader.processes.samples(0, int(reader.samples.sample[-1])) if w["process"] == process.key
        ]
        times = {window["sample"]: (window["start_ns"], window["end_ns"]) for window in windows}
        ran_ns = {b["sample"]: b["cpu_ns"] - a["cpu_ns"] for a, b in pairwise(windows)}
        found, begin_ns = [], None  # of the phases
        for sample, size_bytes in sizes.items():
            pages = reader.pages.page_set(sample, process.key)
            assert pages is not None
            counts = np.bincount(region_of(pages.pages() << np.uint64(12), where, config), minlength=config.regions)
            (swept,) = np.nonzero(counts > _STRAY_PAGES)
            start_ns, end_ns = times[sample]
            if begin_ns is None and len(swept) > 1:  # the first phase began in this window, or before it
                begin_ns = end_ns + int(config.first_s * 1e9)
            came_round = ran_ns.get(sample, 0) >= _NS_PER_PAGE * (config.touched_bytes >> 12)
            if len(swept) == 1 and begin_ns is not None and start_ns >= begin_ns and came_round:
                found.append(SteadyWindow(sample, int(swept[0]), size_bytes))
        return found
    finally:
        reader.close()


def regions_of(reader: Session, process: int, config: Config) -> VmaRow:
    """The one mapping that the kernel makes of the regions, which lie side by side."""
    least = config.regions * config.region_bytes
    (found,) = (row for row in reader.vmas.rows(process) if not row.name and row.end - row.start >= least)
    return found


def region_of(addresses: np.ndarray, where: VmaRow, config: Config) -> np.ndarray:
    """In which region addresses lie, those of other mappings left out. The kernel maps downwards."""
    inside = addresses[(addresses >= where.start) & (addresses < where.end)].astype(np.int64)
    return np.minimum((where.end - 1 - inside) // config.touched_bytes, config.regions - 1)


def phases_seen(windows: list[SteadyWindow]) -> list[int]:
    """The regions in the order in which they were swept, without repetition."""
    order = [window.region for window in windows]
    return [region for i, region in enumerate(order) if i == 0 or region != order[i - 1]]


def beside_wss_pl(folder: Path, seconds: float) -> tuple[float, float]:
    """Anonymous bytes touched in a window of masim's steady phase: memtui's median, and what wss.pl counts there.

    Both clear the marks, so one comes after the other. wss.pl tells the sum over all mappings; what mappings of files
    have of it is read from smaps behind it, while it waits for its next reading: its end would make its libraries
    referenced.
    """
    program = find("wss.pl")
    config = zigzag(phases=1, first_s=0.5, phase_s=3600)
    with masim(config, folder) as pid:
        time.sleep(1.5)
        path = folder / "beside-wss-pl.memtui"
        record(pid, path, WSS_PL_SECONDS, seconds)
        cumulative = [str(program), "-C", str(pid), str(WSS_PL_SECONDS)]
        with subprocess.Popen(cumulative, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            try:
                while not _WSS_PL_LINE.match(line := child.stdout.readline()):
                    if not line:
                        raise RuntimeError("wss.pl said nothing")
                files = referenced_bytes(Path(f"/proc/{pid}/smaps").read_text(), files=True)
            finally:
                child.kill()
    return anonymous_bytes(path), float(line.split()[-1]) * 2**20 - files


def anonymous_bytes(path: Path) -> float:
    """The median over all windows but the first."""
    reader = Session(path)
    try:
        names = {row.id: row.name for row in reader.vmas.rows()}
        samples, rows, touched = reader.vmas.wss(1, int(reader.samples.sample[-1]))
        anonymous = np.array([not is_file(names[row]) for row in rows.tolist()])
        sums = np.bincount(samples[anonymous], weights=touched[anonymous])
        return float(np.median(sums[np.unique(samples)]))
    finally:
        reader.close()


def referenced_bytes(smaps: str, *, files: bool) -> int:
    """The sum over mappings of files, or over all others."""
    total, counts = 0, False
    for line in smaps.splitlines():
        if head := _HEAD.match(line):
            counts = is_file(head[1]) == files
        elif counts and (found := _REFERENCED.match(line)):
            total += int(found[1]) << 10
    return total


def is_file(name: str) -> bool:
    """Whether a mapping with this name is one of a file, or the kernel's own."""
    return name.startswith("/") or name in ("[vdso]", "[vvar]", "[vvar_vclock]")
