"""Seeking in an hour of samples: from the key to the view model that the screen then draws."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import memtui
from benchmarks import synthetic
from benchmarks.run import Run, say
from benchmarks.table import Row, row, tail
from benchmarks.terminal import COLUMNS, ROWS
from memtui.session.session import Session
from memtui.tui.presenters import Presenter, Room
from memtui.tui.screens.layout import arrange

LIMIT_MS = 50
SAMPLES, QUICK_SAMPLES = 18_000, 2_000
SPANS = (("whole session in sight", None), ("60 s in sight", 60_000_000_000))


def measure(run: Run) -> Iterator[Row]:
    """Seeks to random samples, one after the other in one open session, as a user makes them."""
    path = long_session(run)
    times = 20 if run.quick else 100
    random = np.random.default_rng(1)
    for name, span_ns in SPANS:
        presenter, opened = _open(path, span_ns)
        samples = len(presenter.reader.samples)
        first, whole = [], []
        for sample in random.integers(0, samples, times + 1).tolist():
            begin = time.perf_counter()
            presenter.playhead.step(sample - presenter.playhead.index)
            presenter.view()
            first.append(1e3 * (time.perf_counter() - begin))
            while not presenter.complete:
                presenter.view()
            whole.append(1e3 * (time.perf_counter() - begin))
        presenter.reader.release()
        what = f"seek in {samples:,} samples, {name}"
        yield row(what, first[1:], "ms", LIMIT_MS)
        yield tail(f"{what}, 95 % quantile", first[1:], "ms", LIMIT_MS)
        yield row(f"{what}, until the heat map is whole", whole[1:], "ms")
        again = [_open(path, span_ns)[1] for _ in range(3 if run.quick else 10)]
        yield row(f"open {samples:,} samples, {name}", [opened, *again], "ms")


def _open(path: Path, span_ns: int | None) -> tuple[Presenter, float]:
    """A session as the viewer opens it, and the milliseconds until its first view."""
    # The widget brings Textual with it: not before something is drawn.
    from memtui.widgets.heat_map import picture_cells

    begin = time.perf_counter()
    presenter = Presenter(Session(path), follow=False)
    shape = arrange(COLUMNS, ROWS)
    presenter.room = Room(*picture_cells(shape.heat, shape.middle))
    presenter.playhead.span_ns = span_ns
    presenter.view()
    taken = 1e3 * (time.perf_counter() - begin)
    while not presenter.complete:
        presenter.view()
    return presenter, taken


def long_session(run: Run) -> Path:
    """The session, made anew whenever what writes it has changed."""
    samples = QUICK_SAMPLES if run.quick else SAMPLES
    path = run.cache / f"long-{samples}-{_fingerprint()}.memtui"
    if not path.exists():
        run.cache.mkdir(parents=True, exist_ok=True)
        for old in run.cache.glob(f"long-{samples}-*"):
            old.unlink()
        say(f"making a session of {samples:,} samples, once: {path}")
        part = path.with_suffix(".part")
        synthetic.write_session(part, samples)
        part.rename(path)
        if user := os.environ.get("SUDO_UID"):  # what sudo made under build/ is still to be removed without it
            for made in (path, path.parent, path.parent.parent):
                os.chown(made, int(user), -1)
    return path


def _fingerprint() -> str:
    root = Path(memtui.__file__).parent
    folders = [root / "session", root / "analysis", root / "recording/recorder"]
    sources = [root / "core/page_set.py", root / "core/samples.py", Path(synthetic.__file__)]
    sources += sorted(p for folder in folders for p in folder.iterdir() if p.suffix in (".py", ".sql"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:12]
