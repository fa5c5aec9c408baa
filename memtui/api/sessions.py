"""Sessions as tables: ``memtui.open``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from memtui.api.session_rows import OWN_TABLES, Rows, keys_of, longer_windows
from memtui.api.table import Column, Part, Table, session_columns
from memtui.api.window_pages import Pages, WindowPages, pages_of_window
from memtui.core.errors import UserError
from memtui.reports.export.tables import TABLES, Row
from memtui.reports.redact import open_source
from memtui.reports.reuse_summary import DistanceBounds, distance_bounds, exact_reuse
from memtui.reports.source import ReportSource
from memtui.session.file_format import SESSION_SUFFIX

if TYPE_CHECKING:
    from memtui.api.heat import Heat
    from memtui.api.plots import Plots


class Tables:
    """The tables of one session, or of all sessions of a folder, which then begin with a column ``session``.

    Attributes:
        names: of the sessions.
    """

    def __init__(self, path: Path, *, redact: bool) -> None:
        """Open a session, or those of a folder. Raises UserError; see ``memtui.open``."""
        self._path, self._redact, self._named = path, redact, path.is_dir()
        self._sources = _opened(path, redact)
        self.names = [source.short_title for source in self._sources]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<memtui sessions {', '.join(self.names)}>"

    def close(self) -> None:
        """Close the files."""
        for source in self._sources:
            source.close()

    def refresh(self) -> None:
        """Have what was recorded since then, too, and the sessions that are new in a folder. Raises UserError.

        >>> with memtui.open("run.memtui") as session:
        ...     session.refresh()
        ...     len(session.windows)
        10
        """
        sources = _opened(self._path, self._redact)
        self.close()
        self._sources, self.names = sources, [source.short_title for source in sources]

    def table(self, name: str) -> Table:
        """Return a table by its name, also one that is not an attribute.

        Those are the tables of ``memtui export --to csv``: ``samples`` (the tree and its processes), ``reuse_bursts``,
        ``call_stacks``, ``gpu_use``, ``memory_use``, ``numa_use``.

        >>> with memtui.open("run.memtui") as session:
        ...     session.table("samples")
        <memtui table samples: sample, pid, ...>

        Raises UserError for a name that no table has.
        """
        if name == "pages":
            return self.pages
        return Table(name, *self._columns_and_parts(name))

    def _columns_and_parts(self, name: str) -> tuple[list[Column], list[Part]]:
        declared = OWN_TABLES.get(name) or TABLES.get(name)
        if declared is None:
            raise UserError(f"there is no table {name!r}, but {', '.join(sorted({*OWN_TABLES, *TABLES}))}")
        columns, rows = declared
        parts = [Part(self._rows_of(source, rows), source.hello.clock.wall_offset_ns) for source in self._sources]
        return session_columns(("session", *columns) if self._named else columns), parts

    def _rows_of(self, source: ReportSource, rows: Rows) -> Callable[[], Iterable[Row]]:
        if not self._named:
            return lambda: rows(source)
        return lambda: ((source.short_title, *row) for row in rows(source))

    @property
    def plot(self) -> Plots:
        """Figures in matplotlib: ``.working_set() .heatmap() .reuse() .power()``, on axes of yours or new ones.

        Raises UserError for the sessions of a folder.

        >>> with memtui.open("run.memtui") as session:
        ...     axes = session.plot.working_set()
        >>> axes.get_ylabel()
        'MiB'
        """
        from memtui.api.plots import Plots

        return Plots(self._single("figures are"))

    def heatmap(self, bins: tuple[int, int] = (200, 120), pid: int | None = None) -> Heat:
        """Return what was touched by address and time.

        >>> with memtui.open("run.memtui") as session:
        ...     heat = session.heatmap(bins=(200, 120))
        >>> heat.share.shape, heat.pid
        ((120, 200), 4242)

        Args:
            bins: columns of time, and rows of addresses, which are shared by the ranges that were touched most.
            pid: the process; the one that touched most unless given.

        Raises:
            UserError: no pages are stored, of this process or at all; or these are the sessions of a folder.
        """
        from memtui.api.heat import heat_map

        return heat_map(self._single("a heat map is"), bins, pid)

    def working_set(self, seconds: float, pid: int | None = None) -> Table:
        """Return the working sets of longer windows: the pages that were touched in any window within ``seconds``.

        Windows are put together until they last that long, and then anew (Denning's working set at another length of
        the window). Counted are the pages that the filter of the recording has stored, so compare it with the column
        ``stored_bytes`` of ``windows``, and not with ``wss_bytes``; of several processes a page counts for each.

        >>> with memtui.open("run.memtui") as session:
        ...     session.working_set(0.5).to_pandas().wss_bytes.tolist()
        [589824, 565248, 540672]

        Args:
            seconds: the least length; a window that is longer stands alone.
            pid: the process; all unless given.

        Raises:
            UserError: these are the sessions of a folder.
            ValueError: the length is not above 0.
        """
        if not seconds > 0:
            raise ValueError(f"a window lasts more than 0 seconds, and not {seconds!r}")
        source = self._single("a working set is")
        parts = [Part(partial(longer_windows, source, round(seconds * 1e9), pid), source.hello.clock.wall_offset_ns)]
        return Table("working set", session_columns(("start_ns", "end_ns", "wss_bytes", "windows")), parts)

    def reuse_distance(self, share: float = 0.5, pid: int | None = None) -> DistanceBounds | None:
        """Return the reuse distance that this share of all touches that came again does not exceed.

        The order of touches inside a window is not known, so it lies between two bounds: ``.lower`` and ``.upper``, in
        bytes, and ``.estimate``, which supposes a random order. None where no page was touched in two windows.

        >>> with memtui.open("run.memtui") as session:
        ...     distance = session.reuse_distance(0.5)
        >>> distance.lower, distance.upper
        (4096, 278528)

        Args:
            share: above 0, at most 1.
            pid: the process; all together unless given.

        Raises:
            UserError: these are the sessions of a folder.
            ValueError: the share is something else.
        """
        if not 0 < share <= 1:
            raise ValueError(f"a share is above 0 and at most 1, and not {share!r}")
        source = self._single("a reuse distance is")
        return distance_bounds(exact_reuse(source, keys_of(source, pid)), share)

    def _single(self, what: str) -> ReportSource:
        if self._named:
            raise UserError(f"{what} of one session: open its file, and not the folder")
        return self._sources[0]

    @property
    def windows(self) -> Table:
        """Each window of the process tree: working set, RSS and PSS, pauses, and what is known of its quality.

        Columns that their names do not explain: ``wss_low_bytes`` and ``wss_high_bytes`` hold an estimate from a
        sample of the memory. ``stored_bytes`` is the part of the working set of which pages are in the file (the rest
        is left out by the filter); ``shared_bytes`` what several processes touched. Of the working set,
        ``faulted_in_bytes`` are file pages that were mapped for the first time, neighbours of a touch among them, and
        ``unknown_bytes`` pages whose marks could not be cleared before, so perhaps they were not touched. ``paused`` is
        for how long processes were held, ``lost`` about how much time the tree lost in all. ``gaps`` are processes that
        began or ended in the window; ``disturbed`` says who else cleared marks meanwhile.

        >>> with memtui.open("run.memtui") as session:
        ...     int(session.windows.to_pandas().wss_bytes.max())
        557056
        """
        return self.table("windows")

    @property
    def processes(self) -> Table:
        """The processes that there were, every exec as a new one.

        >>> with memtui.open("run.memtui") as session:
        ...     session.processes.to_pandas()[["pid", "command"]]
            pid          command
        0  4242  python train.py
        1  4243  python train.py
        """
        return self.table("processes")

    @property
    def process_windows(self) -> Table:
        """Each window of each process: sizes, CPU time, faults, and what nobody else maps (USS) or is swapped out.

        ``private_bytes`` is the USS. ``flush`` and ``rearm`` say how marks of touched pages were cleared, ``clear_gap``
        how long after they were read; what a program lost (``lost``) is known of the whole tree alone.

        >>> with memtui.open("run.memtui") as session:
        ...     windows = session.process_windows.to_pandas()
        >>> windows.groupby("pid").cpu.sum()
        pid
        4242   0 days 00:00:09.135000
        4243   0 days 00:00:09.135000
        Name: cpu, dtype: timedelta64[ns]
        """
        return self.table("process_windows")

    @property
    def mappings(self) -> Table:
        """Each range of addresses: rights, name, mean touched bytes in its windows, resident bytes at its end.

        >>> with memtui.open("run.memtui") as session:
        ...     mappings = session.mappings.to_pandas()
        >>> mappings.nlargest(1, "wss_bytes")[["name", "wss_bytes"]]
                  name  wss_bytes
        1  /data/x.bin     243712
        """
        return self.table("vmas")

    @property
    def mapping_windows(self) -> Table:
        """Each mapping in each window in which it was touched or resident, with the moment at which the window ended.

        ``start`` and ``end`` are the whole range over the life of the mapping, also where it was smaller then. Resident
        bytes are of the last reading at that time, which may be some windows old, so more may be touched than was
        resident. Mappings without a name are told apart by their addresses. Long.

        >>> with memtui.open("run.memtui") as session:
        ...     mappings = session.mapping_windows.to_pandas()
        >>> touched = mappings.pivot_table(index="sample", columns="name", values="wss_bytes", aggfunc="sum")
        >>> touched.loc[9] - touched.loc[0]  # how much more in the last window than in the first one
        name
        /data/x.bin    -73728
        [heap]              0
        dtype: Int64
        """
        return self.table("mapping_windows")

    @property
    def pages(self) -> Pages:
        """The runs of touched pages of each window. Long: a window has some hundred to some ten thousand.

        ``session.pages(3, pid)`` are the pages of one process in window 3, of the one that touched most unless it is
        given; ``.as_array()`` says where they lie.

        >>> with memtui.open("run.memtui") as session:
        ...     next(iter(session.pages))
        {'sample': 0, ...}
        """

        def of_window(window: int, pid: int | None) -> WindowPages:
            return pages_of_window(self._single("pages of a window are"), window, pid)

        return Pages(*self._columns_and_parts("pages"), of_window)

    @property
    def reuse(self) -> Table:
        """How often each reuse distance came, by process and bound; a first touch has the distance -1.

        >>> with memtui.open("run.memtui") as session:
        ...     reuse = session.reuse.to_pandas()
        >>> int(reuse[(reuse.pid == 4242) & (reuse.bound == "upper")]["count"].sum())  # touches
        675
        """
        return self.table("reuse")

    @property
    def miss_ratio(self) -> Table:
        """The share of touches that an LRU memory of each size would miss: two bounds and an estimate, of each process.

        Sizes are some 9 % apart; ``reuse`` has the distances themselves. First touches miss in any memory.

        >>> with memtui.open("run.memtui") as session:
        ...     ratios = session.miss_ratio.to_pandas()
        >>> int(ratios[ratios.miss_ratio_high < 0.2].size_bytes.min())  # so much memory misses less than a fifth
        311743
        """
        return self.table("miss_ratio")

    @property
    def power(self) -> Table:
        """Each reading of power and energy of each device; a row with a reason for each device that has none.

        >>> with memtui.open("run.memtui") as session:
        ...     session.power.to_pandas().groupby("device").watts.mean()
        device
        GPU 0    300.0
        Name: watts, dtype: Float64
        """
        return self.table("power")

    @property
    def gpu_memory(self) -> Table:
        """The memory of each process on all GPUs together; a row holds until the next one of its process.

        >>> with memtui.open("run.memtui") as session:
        ...     session.gpu_memory.to_pandas().groupby("pid").gpu_bytes.max()
        pid
        4242    9663676416
        4243          <NA>
        Name: gpu_bytes, dtype: Int64
        """
        return self.table("gpu_memory")

    @property
    def memory_limit(self) -> Table:
        """The limit of memory that left least, its use, and how long tasks waited for memory.

        >>> with memtui.open("run.memtui") as session:
        ...     len(session.memory_limit)  # this one ran without a limit
        0
        """
        return self.table("memory_limit")

    @property
    def marks(self) -> Table:
        """The marks on the time axis.

        >>> with memtui.open("run.memtui") as session:
        ...     [mark["text"] for mark in session.marks]
        ['epoch 1']
        """
        return self.table("marks")

    @property
    def events(self) -> Table:
        """What happened: marks, ends of processes, warnings about the quality of windows.

        >>> with memtui.open("run.memtui") as session:
        ...     session.events.to_pandas()[["kind", "text"]]
           kind          text
        0  mark       epoch 1
        1   gap         a gap
        2   end  target ended
        """
        return self.table("events")

    @property
    def steps(self) -> Table:
        """Each training step of a traced program, from 1 on: of step 0 the start is not known.

        A step ends when the optimiser has stepped; pauses of the process are in its time.

        >>> with memtui.open("run.memtui") as session:
        ...     len(session.steps)  # this program was not traced
        0
        """
        return self.table("steps")

    @property
    def allocations(self) -> Table:
        """Each allocation and free of the recorded training steps.

        The first rows of a step, without an operator (``op`` is empty), are what existed when it began.

        >>> with memtui.open("run.memtui") as session:
        ...     len(session.allocations)  # this program was not traced
        0
        """
        return self.table("allocations")

    @property
    def tensors(self) -> Table:
        """Each lasting tensor, and how much of it was touched.

        >>> with memtui.open("run.memtui") as session:
        ...     len(session.tensors)  # this program was not traced
        0
        """
        return self.table("tensors")

    @property
    def training(self) -> Table:
        """What tensors held over time, by category: of recorded steps exactly, of others by looks at some moments.

        ``unknown_bytes`` are tensors of no model, no optimiser and no batch, such as a data set; ``tensors`` has their
        names.

        >>> with memtui.open("run.memtui") as session:
        ...     len(session.training)  # this program was not traced
        0
        """
        return self.table("tensor_usage")

    @property
    def learning(self) -> Table:
        """Loss and accuracy over time, of ``memtui train`` and programs that report them.

        >>> with memtui.open("run.memtui") as session:
        ...     len(session.learning)  # this program was not traced
        0
        """
        return self.table("learning")


def open_tables(path: str | os.PathLike[str], *, redact: bool = False) -> Tables:
    """Open a session, or all sessions of a folder. Raises UserError; see ``memtui.open``."""
    return Tables(Path(path), redact=redact)


def _opened(path: Path, redact: bool) -> list[ReportSource]:
    """Open a session, or all of a folder. Raises UserError, and then leaves none open."""
    paths = sorted(path.glob(f"*{SESSION_SUFFIX}")) if path.is_dir() else [path]
    if not paths:
        raise UserError(f"{path}: no session (*{SESSION_SUFFIX}) is in this folder")
    with ExitStack() as opened:
        sources: list[ReportSource] = []
        for each in paths:
            sources.append(open_source(each, redact=redact))
            opened.callback(sources[-1].close)
        opened.pop_all()
    return sources
