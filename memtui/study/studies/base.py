"""Common parts of the studies: the setting, the program that they run, and the finished runs that they read."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from memtui.analysis.reuse_cdf import Advice, advice
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.statistics import MedianInterval, median_interval
from memtui.core.errors import UserError
from memtui.core.units import duration, size
from memtui.reports.charts.model import Findings
from memtui.study.plan import Run
from memtui.study.recorded_run import Trace
from memtui.study.runs.messages import RunResult

MIB = 1 << 20
START_S = 6.0  # of a run, before the first step: sampler, interpreter, PyTorch, data
IMAGES_PER_S = 500.0  # of one core: an assumption that the first run corrects
VALIDATION = 0.2  # images that the bundled network evaluates after an epoch, per image of the epoch
MISSES = 0.05  # share of returning accesses, in advice on sizes
FULL_IMAGES, QUICK_IMAGES = 50_000, 4096


@dataclass(frozen=True, slots=True)
class Setting:
    """The arguments of a study, and the abilities of this machine.

    Attributes:
        quick: whether runs are short and repeats few.
        cpus: number of CPUs that programs may use.
        command: command line of the user's program; () for the bundled network.
        network: module of the bundled network: "cnn" or "numpy_cnn".
        data: folder with CIFAR-10's binary files; "" for generated images.
        seed: seed of the first repeat.
        seconds: time from the first step of the user's program to the end of a run; None: the program ends.
        container: whether a program can be started in a container.
        no_limit: why the memory of a program cannot be limited here; "" where it can.
    """

    quick: bool
    cpus: int
    command: tuple[str, ...] = ()
    network: str = "cnn"
    data: str = ""
    seed: int = 0
    seconds: float | None = None
    container: bool = True
    no_limit: str = ""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A finished run: its result, and the path of its session."""

    run: Run
    result: RunResult
    session: Path

    def trace(self) -> Trace:
        """Open the session. Raises SessionError."""
        return Trace(self.session, self.result)


class Study(Protocol):
    """An experiment.

    Attributes:
        name: name on the command line.
        title: the question.
        original: method and results of the published notebooks.
        method: method of this study, in sentences.
    """

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def original(self) -> Sequence[str]: ...
    @property
    def method(self) -> Sequence[str]: ...

    def runs(self, setting: Setting) -> list[list[Run]]:
        """Return the runs by repeat. Raises UserError where the study is impossible with this setting."""

    def find(self, setting: Setting, observed: Sequence[FinishedRun]) -> Findings:
        """Return the findings from the finished runs. Raises SessionError."""


def training(
    setting: Setting,
    seed: int,
    *,
    threads: int = 1,
    batch: int = 128,
    quick_s: float = 12.0,
    images: int | None = None,
    network: str = "",
) -> dict[str, Any]:
    """Return program and times of a training, as fields of a ``Run``. ``network``: in place of that of the setting.

    At full length the bundled network learns for one epoch, in a quick study for ``quick_s`` seconds after its first
    step.
    """
    cpus = max(threads, 1)
    if setting.command:
        values = {"threads": str(threads), "batch": str(batch)}
        argv = tuple(_filled(argument, values) for argument in setting.command)
        limit_s = setting.seconds
        return {
            "program": argv,
            "limit_s": limit_s,
            "expected_s": START_S + (limit_s or 60.0),
            "environment": tuple((name, str(threads)) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")),
            "cpus": cpus,
            "seed": seed,
        }
    images = images or (QUICK_IMAGES if setting.quick else FULL_IMAGES)
    argv = (sys.executable, "-P", "-m", f"memtui.study.workloads.{network or setting.network}", "--progress", "1")
    argv += ("--images", str(images), "--batch-size", str(batch), "--threads", str(threads), "--seed", str(seed))
    argv += ("--epochs", "0" if setting.quick else "1")
    if setting.data:
        argv += ("--data", setting.data)
    whole_s = images * (1 + VALIDATION / 3) / IMAGES_PER_S / math.sqrt(threads)
    return {
        "program": argv,
        "limit_s": quick_s if setting.quick else None,
        "expected_s": START_S + (quick_s if setting.quick else whole_s),
        "cpus": cpus,
        "seed": seed,
    }


def without_end(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the bundled network as a command that runs until it is ended."""
    index = argv.index("--epochs")
    return (*argv[: index + 1], "0", *argv[index + 2 :])


def thread_counts(setting: Setting) -> list[int]:
    """Return one, and the number of all CPUs."""
    return [1] if setting.cpus == 1 else [1, setting.cpus]


def of_threads(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def by_group(observed: Sequence[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Return finished runs by group, in the order of repeats."""
    groups: dict[str, list[FinishedRun]] = {}
    for item in sorted(observed, key=lambda item: item.run.repeat):
        groups.setdefault(item.run.group, []).append(item)
    return groups


def require_pages(trace: Trace) -> None:
    """Raise UserError where the trace has no page sets."""
    if trace.main is None:
        pages = trace.hello.pages
        why = f"{pages.reason}" if not pages.ok else "no page set is stored"
        raise UserError(
            f"the tracker {trace.hello.tracker} saw no pages ({why}), and a study of working sets needs them: "
            "memtui doctor says what would"
        )


def mean(values: Any) -> float | None:
    """Return the mean of the values that are not NaN; None without such values."""
    finite = np.asarray(values, float)
    finite = finite[~np.isnan(finite)]
    return float(finite.mean()) if len(finite) else None


def interval_text(interval: MedianInterval | None, *, sign: bool = False) -> str:
    """Return the median of a share with its interval as text, ``1.2 % [0.9, 1.4]``, or why there is no interval."""
    if interval is None:
        return "not known"
    form = "{:+.1f}" if sign else "{:.1f}"
    middle = f"{form.format(interval.median * 100)} %"
    if interval.low is None or interval.high is None:
        return f"{middle} (no interval: {interval.count} repeat{'s' * (interval.count != 1)}, and 95 % needs 6)"
    return f"{middle} [{form.format(interval.low * 100)}, {form.format(interval.high * 100)}]"


def median_of(values: Sequence[float | None]) -> MedianInterval | None:
    """Return the median over repeats."""
    return median_interval(values)


def advice_text(first: tuple[float, ExactReuse], second: tuple[float, ExactReuse]) -> tuple[str, Advice | None]:
    """Return the size of memory that is enough, as text and numbers: one size where two intervals agree, or a range."""
    advised = advice([first, second], MISSES)
    seconds = " and ".join(duration(interval_s) for interval_s, _ in (first, second))
    if advised is None:
        return f"no page came back at windows of {seconds}, so nothing is known of what less memory would cost", None
    misses = f"{MISSES * 100:.0f} %"
    if advised.agree:
        text = (
            f"an LRU memory of {size(advised.bytes_[1])} would miss at most {misses} of returning touches, as windows "
            f"of {seconds} both say"
        )
    else:
        text = (
            f"for at most {misses} misses of returning touches an LRU memory of {size(advised.bytes_[0])} to "
            f"{size(advised.bytes_[1])} is needed: windows of {seconds} do not agree on one size"
        )
    return text, advised


def _filled(argument: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        argument = argument.replace("{" + name + "}", value)
    return argument
