"""What studies share: what was asked for, the program they run, and what they get to read."""

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
IMAGES_PER_S = 500.0  # of one core, before anything is known of it: an assumption that the first run corrects
VALIDATION = 0.2  # images that the bundled network looks at after an epoch, per image of the epoch
MISSES = 0.05  # of returning touches, in advice on sizes
FULL_IMAGES, QUICK_IMAGES = 50_000, 4096


@dataclass(frozen=True, slots=True)
class Setting:
    """What was asked for, and what there is.

    Attributes:
        quick: short runs and few repeats.
        cpus: how many CPUs programs may use.
        command: of the user's own program; () for the bundled network.
        network: module of the bundled network: "cnn" or "numpy_cnn".
        data: folder with CIFAR-10's binary files; "" for generated images.
        seed: of the first repeat.
        seconds: end of each run of the user's own program, so long after its first step; None: it ends by itself.
        container: whether a program can be started in one.
        no_limit: why no limit can be set on the memory of a program here; "" where one can.
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
class Observed:
    """A finished run: what it came to, and where its session lies."""

    run: Run
    result: RunResult
    session: Path

    def trace(self) -> Trace:
        """Raise SessionError."""
        return Trace(self.session, self.result)


class Study(Protocol):
    """An experiment.

    Attributes:
        name: on the command line.
        title: what it asks.
        original: what the published notebooks did and found.
        method: how it is done here, in sentences.
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
        """Return the runs by repeat. Raises UserError where the study makes no sense with this setting."""

    def find(self, setting: Setting, observed: Sequence[Observed]) -> Findings:
        """Return what its runs came to. Raises SessionError."""


def training(
    setting: Setting,
    seed: int,
    *,
    threads: int = 1,
    batch: int = 128,
    quick_s: float = 12.0,
    images: int | None = None,
) -> dict[str, Any]:
    """Return program and times of a training, as fields of a ``Run``.

    At full length the bundled network learns for one epoch; ``quick_s`` seconds after its first step are enough for a
    quick study.
    """
    cpus = max(threads, 1)
    if setting.command:
        values = {"threads": str(threads), "batch": str(batch)}
        words = tuple(_filled(word, values) for word in setting.command)
        limit_s = setting.seconds
        return {
            "program": words,
            "limit_s": limit_s,
            "expected_s": START_S + (limit_s or 60.0),
            "environment": tuple((name, str(threads)) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")),
            "cpus": cpus,
            "seed": seed,
        }
    images = images or (QUICK_IMAGES if setting.quick else FULL_IMAGES)
    words = (sys.executable, "-P", "-m", f"memtui.study.workloads.{setting.network}", "--progress", "1")
    words += ("--images", str(images), "--batch-size", str(batch), "--threads", str(threads), "--seed", str(seed))
    words += ("--epochs", "0" if setting.quick else "1")
    if setting.data:
        words += ("--data", setting.data)
    whole_s = images * (1 + VALIDATION / 3) / IMAGES_PER_S / math.sqrt(threads)
    return {
        "program": words,
        "limit_s": quick_s if setting.quick else None,
        "expected_s": START_S + (quick_s if setting.quick else whole_s),
        "cpus": cpus,
        "seed": seed,
    }


def without_end(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the bundled network as a command that runs until it is ended."""
    at = words.index("--epochs")
    return (*words[: at + 1], "0", *words[at + 2 :])


def thread_counts(setting: Setting) -> list[int]:
    """Return one, and the number of all CPUs."""
    return [1] if setting.cpus == 1 else [1, setting.cpus]


def of_threads(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def by_group(observed: Sequence[Observed]) -> dict[str, list[Observed]]:
    """Return finished runs by group, in the order of repeats."""
    found: dict[str, list[Observed]] = {}
    for one in sorted(observed, key=lambda one: one.run.repeat):
        found.setdefault(one.run.group, []).append(one)
    return found


def needs_pages(trace: Trace) -> None:
    """Raise UserError where nothing can be said of pages."""
    if trace.main is None:
        pages = trace.hello.pages
        why = f"{pages.reason}" if not pages.ok else "no page set is stored"
        raise UserError(
            f"the tracker {trace.hello.tracker} saw no pages ({why}), and a study of working sets needs them: "
            "memtui doctor says what would"
        )


def mean(values: Any) -> float | None:
    """Return the mean of what is known; None without any."""
    found = np.asarray(values, float)
    found = found[~np.isnan(found)]
    return float(found.mean()) if len(found) else None


def mib(value: float | None) -> str:
    return size(value)


def interval_words(found: MedianInterval | None, *, sign: bool = False) -> str:
    """``1.2 % [0.9, 1.4]`` of a share: a median with its interval, or why there is none."""
    if found is None:
        return "not known"
    form = "{:+.1f}" if sign else "{:.1f}"
    middle = f"{form.format(found.median * 100)} %"
    if found.low is None or found.high is None:
        return f"{middle} (no interval: {found.count} repeat{'s' * (found.count != 1)}, and 95 % needs 6)"
    return f"{middle} [{form.format(found.low * 100)}, {form.format(found.high * 100)}]"


def median_of(values: Sequence[float | None]) -> MedianInterval | None:
    """Return the median over repeats."""
    return median_interval(values)


def advice_words(one: tuple[float, ExactReuse], other: tuple[float, ExactReuse]) -> tuple[str, Advice | None]:
    """Return how much memory would do: one size where two intervals agree, else a range."""
    found = advice([one, other], MISSES)
    seconds = " and ".join(duration(interval_s) for interval_s, _ in (one, other))
    if found is None:
        return f"no page came back at windows of {seconds}, so nothing is known of what less memory would cost", None
    misses = f"{MISSES * 100:.0f} %"
    if found.agree:
        text = (
            f"an LRU memory of {size(found.bytes_[1])} would miss at most {misses} of returning touches, as windows of "
            f"{seconds} both say"
        )
    else:
        text = (
            f"for at most {misses} misses of returning touches an LRU memory of {size(found.bytes_[0])} to "
            f"{size(found.bytes_[1])} is needed: windows of {seconds} do not agree on one size"
        )
    return text, found


def _filled(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace("{" + name + "}", value)
    return word
