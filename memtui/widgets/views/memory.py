"""View models: everything the memory screen shows at one moment, as frozen plain data.

A view holds no handle on a file, a process or a widget, so any of the three can be replaced or faked. Arrays inside
a view are never written to after it was built. ``same`` compares two views by value, which is how a widget learns
that nothing changed and stays quiet.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from memtui.core.fault_latency import FaultLatency

Floats = NDArray[np.float64]
Grid = NDArray[np.float32]
TREND = 12  # entries of a row's trend


def same(a: object, b: object) -> bool:
    """Return whether two view models are equal (arrays by value, nan equal to nan)."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if is_dataclass(a) and type(a).__eq__ is object.__eq__:  # those that hold arrays; the others compare themselves
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


class State(StrEnum):
    """What the playhead does."""

    LIVE = "live"
    PAUSED = "paused"
    PLAYING = "playing"
    ENDED = "ended"


class Sort(StrEnum):
    """Columns the table of address ranges can be sorted by."""

    WSS = "WSS"
    RSS = "RSS"
    PERMS = "perms"
    NAME = "name"
    ADDRESS = "address"


class TensorSort(StrEnum):
    """Columns the table of tensors can be sorted by. ``HOT``: the share of it that the last windows touched."""

    HOT = "recent"
    TOUCHED = "touched"
    SIZE = "size"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The one time axis all panels share. Times are monotonic nanoseconds, ``origin_ns`` is the session's start."""

    origin_ns: int
    start_ns: int
    end_ns: int
    cursor_ns: int
    follow: bool  # the right edge is now

    @property
    def span_ns(self) -> int:
        return max(1, self.end_ns - self.start_ns)

    @property
    def shows_cursor(self) -> bool:
        """Return whether the cursor is drawn as a line: at the right edge it is not."""
        return not self.follow and self.cursor_ns < self.end_ns

    def bins(self, count: int) -> tuple[float, int]:
        """Return the width of one of ``count`` bins and the absolute number of the first.

        Bins lie on a fixed grid from the origin, so a moving window shifts the picture by whole bins: the picture
        moves without flickering.
        """
        width = self.span_ns / max(1, count)
        last = int(np.ceil((self.end_ns - self.origin_ns) / width - 1e-9))
        return width, last - count

    def moment(self, column: int, count: int) -> float:
        """Return the start of a bin, which shows the window that ends next."""
        width, first = self.bins(count)
        return self.origin_ns + (first + column) * width + 1

    def column(self, t_ns: float, count: int) -> int | None:
        """Return the bin in which a moment falls; None where the moment is outside the picture."""
        width, first = self.bins(count)
        index = int(np.ceil((t_ns - self.origin_ns) / width - 1e-9)) - 1 - first
        return index if 0 <= index < count else None


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick on the timeline: ``kind`` as in ``Event``."""

    t_ns: int
    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class HeaderView:
    """The first line."""

    command: str = ""
    pid: int = 0
    others: int = 0  # further processes of the tree
    state: State = State.LIVE
    live_session: bool = True  # still being recorded
    position_s: float = 0.0
    duration_s: float = 0.0
    speed: float = 1.0
    ended: str = ""
    tracker: str = ""
    flush: str = ""
    requested_s: float | None = None
    true_s: float | None = None
    paused_s: float | None = None
    own_cpu: float | None = None  # fraction of one core that watching costs
    lost: float | None = None  # share of its time that the target loses by being watched, an estimate
    traced: float | None = None  # what tracing its training steps takes on top, an estimate
    budgeted_s: float | None = None  # the interval that the budget allows in place of the requested one
    spent: float | None = None  # the share of the time that a budget bounds: what is lost, or memtui's CPU time
    budget: float | None = None  # that share at most
    wait_s: int | None = None  # until the next window that the budget allows
    rearm: str = ""
    given_back_bytes: int | None = None  # accessed and released within the window, at most
    origin_ns: int = 0
    ticks: tuple[Tick, ...] = ()
    notice: str = ""  # a line that matters more than the numbers, e.g. why no window arrives
    warnings: tuple[str, ...] = ()  # a warning about the measurement with its remedy: forms of it, the longest first


@dataclass(frozen=True, slots=True)
class SentencesView:
    """The results from the start to the cursor, in sentences: the forms of each, the longest first."""

    sentences: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class GraphView:
    """Working set and resident set over the visible window, one entry per sample."""

    axis: TimeAxis
    start_ns: Floats
    end_ns: Floats
    wss_bytes: Floats
    rss_bytes: Floats
    now_bytes: float | None = None
    max_bytes: float | None = None  # the largest working set in sight
    rss_now_bytes: float | None = None
    note: str = ""  # why there is no working set
    caveats: tuple[str, ...] = ()  # why the working set at the cursor is not exact, the gravest first
    caption: tuple[str, ...] = ()  # other notes on the window at the cursor
    whose: str = ""  # the process of the graph, where it is of one process
    focus: str = ""  # name of the range whose working set is drawn as a separate line
    focus_bytes: Floats | None = None  # one entry per sample, nan: not known
    focus_now_bytes: float | None = None
    ticks: tuple[Tick, ...] = ()  # of the visible window, by time
    resident: str = "RSS"  # what ``rss_bytes`` is: "PSS" or "sum of RSS" of several processes


@dataclass(frozen=True, slots=True)
class HeatBand:
    """Adjacent rows of cells: a range of memory, a gap, or ranges that did not fit."""

    row: int
    rows: int
    label: str
    kind: str = "range"  # "range", "gap", "more"
    key: int = -1  # of the range
    start: int = 0  # first address
    end: int = 0  # of the last one
    after_gap: bool = False  # addresses were left out before it, without a row for the gap
    who: str = ""  # of several processes: the one with which the label starts


@dataclass(frozen=True, slots=True)
class HeatCursor:
    """The cell under the cursor: ``row`` of cells, and its addresses in the window at ``t_s``."""

    row: int
    start: int  # first address
    name: str
    t_s: float  # of the session
    touched_bytes: int | None = None  # None: no pages were stored of that window
    cell_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class HeatView:
    """The heat map: share of pages accessed per window, two pixel rows to a row of cells, nan: not known."""

    axis: TimeAxis
    share: Grid
    bands: tuple[HeatBand, ...] = ()
    caption: str = ""
    note: str = ""
    cursor: HeatCursor | None = None
    zoom: str = ""  # size of the memory in sight, where a part is zoomed in
    focus: int | None = None  # key of the chosen range
    by_kind: bool = False  # coloured by the kind of tensors
    kinds: NDArray[np.uint8] | None = None  # u1[pixel rows], number of the category, ``NO_KIND``; None: not known
    hottest: HeatBand | None = None  # the range that the caption names


@dataclass(frozen=True, slots=True, eq=False)
class ReuseView:
    """Reuse distances from the session's start to the cursor: shares of all accesses per bin, between two bounds."""

    edges_bytes: Floats = field(default_factory=lambda: np.empty(0))  # f8[bins + 1], rising
    upper: Floats = field(default_factory=lambda: np.empty(0))  # f8[bins], share of touches at their largest distance
    lower: Floats = field(default_factory=lambda: np.empty(0))
    first_share: float | None = None
    touches: int = 0
    half_low_bytes: float | None = None
    half_high_bytes: float | None = None
    half_estimate_bytes: float | None = None  # if the order inside windows is random; None: not known
    size_bytes: Floats = field(default_factory=lambda: np.empty(0))  # miss-ratio curve: sizes of an LRU memory
    miss_low: Floats = field(default_factory=lambda: np.empty(0))
    miss_high: Floats = field(default_factory=lambda: np.empty(0))
    miss_estimate: Floats | None = None  # if the order inside windows is random; None: not known
    most_bytes: tuple[float, float] | None = None  # between which 95 % of the returning touches come back
    most_estimate_bytes: float | None = None
    burst_half_bytes: tuple[float, float, float | None] | None = None  # of the probes of bursts: bounds, estimate
    probe: str = ""  # how long these are, in words
    interval: str = ""  # of the windows, in words; "0.2-1 s" where it changed
    note: str = ""
    whose: str = ""  # the chosen range or process
    seconds: float = 0.0  # in which all touches were counted; 0: not known
    fault_latency: FaultLatency | None = None  # of the machine that the session is of; None: not measured


@dataclass(frozen=True, slots=True)
class DevicePower:
    """One device. ``reason`` explains why there is no figure."""

    name: str
    now_w: float | None = None
    mean_w: float | None = None
    peak_w: float | None = None
    energy_j: float | None = None
    limit_w: float | None = None
    reason: str = ""
    note: str = ""  # what the power covers ("board, 3 processes"), or since when there is no reading
    counters: tuple[str, ...] = ()  # lines on how busy the parts of a GPU are, the most important one first
    added: bool = True  # whether it counts in a sum: a core's power is in its package's


@dataclass(frozen=True, slots=True)
class PowerView:
    devices: tuple[DevicePower, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class RangeRow:
    """One address range of the session."""

    key: int
    start: int
    end: int
    perms: str
    name: str
    wss_bytes: int | None = None
    rss_bytes: int | None = None
    share: float | None = None
    trend: tuple[int, ...] = ()  # 0..8 of the row's own maximum, oldest first
    pid: int | None = None  # only where there is more than one process
    left_out: str = ""  # the filter that greys it
    rss_at_least: bool = False  # RSS is a lower bound: accessed pages are resident, and RSS was read before
    shared_bytes: int | None = None  # part of the working set that other processes accessed, too; None: not known
    who: str = ""  # name of its process, where that says more than the pid: "rank 3"


@dataclass(frozen=True, slots=True)
class TableView:
    rows: tuple[RangeRow, ...] = ()
    left_out: int = 0
    not_matching: int = 0
    filters_on: bool = True
    filter_text: str = ""
    sort: Sort = Sort.WSS
    descending: bool = True
    note: str = ""
    only: int | None = None  # the pid of the ranges, where those of other processes are left out
    left_out_bytes: int | None = None  # touched bytes of the ranges that the filter hides; None: not known
    not_matching_bytes: int | None = None  # of those without the text that was typed
    ranges_bytes: int | None = None  # of these, of those, and of the rows
    wss_bytes: int | None = None  # the working set of the window; pages that several processes touched count once


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process of the tree in the window at the cursor."""

    key: int  # its pid
    role: str
    rank: int | None = None
    local_rank: int | None = None
    wss_bytes: int | None = None
    rss_bytes: int | None = None
    share: float | None = None  # of the working set of the tree
    cpu: float | None = None  # cores it used since the window before
    gpu_bytes: int | None = None  # on all GPUs together
    command: str = ""
    reason: str = ""  # why the working set is missing or not exact
    shared_bytes: int | None = None  # part of the working set that others touched, too; None: not known
    gpu_reason: str = ""  # why its GPU memory is not known
    pss_bytes: int | None = None  # resident, a page of several processes counts once in all of them
    gpus_used: float | None = None  # of all GPUs together, 0.5 is half of one
    gpus_used_reason: str = ""  # why that is not known; empty before the first reading, and in sessions without it
    uss_bytes: int | None = None  # resident, and mapped by no other process
    swap_bytes: int | None = None  # swapped out


@dataclass(frozen=True, slots=True)
class ProcessesView:
    rows: tuple[ProcessRow, ...] = ()
    only: int | None = None  # the pid that all panels are about
    tree: ProcessRow | None = None  # all of them together, where there are several
    pss_note: str = ""  # when PSS was read, or why it is not known
    gaps: int = 0  # processes that were seen to begin or end in the window


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A tensor, several of one layer or kind, or a part of the rest, in the window at the cursor."""

    key: Hashable
    name: str
    kind: int | None = None  # number of the category; None: several, or no tensor
    size_bytes: int | None = None
    touched_bytes: int | None = None  # that lie in touched pages
    recent: float | None = None  # mean share of it that was accessed, over the last windows
    trend: tuple[int, ...] = ()  # 0..8 of its size, oldest first
    last_s: float | None = None  # since it was touched; None: in none of these windows
    rest: bool = False


@dataclass(frozen=True, slots=True)
class TensorsView:
    """The working set of one process by tensor: ``rows`` add up to it."""

    rows: tuple[TensorRow, ...] = ()
    by: str = ""  # what tensors are added up by
    tensors: int = 0  # how many there are
    not_matching: int = 0
    filter_text: str = ""
    sort: TensorSort = TensorSort.HOT
    descending: bool = True
    pid: int | None = None  # of the process, where several processes report tensors
    wss_bytes: int | None = None
    recent_windows: int = 0
    moved: bool = False  # some moved within the window
    note: str = ""


@dataclass(frozen=True, slots=True)
class OutputView:
    """The rows in sight of the output of the program."""

    rows: tuple[str, ...] = ()
    first: int = 0  # number of rows in memory before these
    total: int = 0  # number of rows in memory
    follows: bool = True  # stays at the end when rows are added
    older: bool = False  # the file has more before the rows in memory
    size_bytes: int = 0
    path: str = ""
    note: str = ""  # why there are no rows


@dataclass(frozen=True, slots=True)
class FooterView:
    """The right end of the last line."""

    recorded_bytes: int | None = None
    path: str = ""
    recording: bool = False
    traced: bool = False  # the locations of tensors are known


@dataclass(frozen=True, slots=True, eq=False)
class MemoryView:
    """All parts at one cursor position."""

    header: HeaderView
    graph: GraphView
    heat: HeatView
    reuse: ReuseView
    power: PowerView
    table: TableView
    footer: FooterView
    processes: ProcessesView = ProcessesView()
    output: OutputView = OutputView()
    tensors: TensorsView = TensorsView()
    sentences: SentencesView = SentencesView()
