"""The sweep in a process of its own, beside a screen: drawing must not delay a reading of the energy counter.

The rows that were finished are in the database, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from memtui.bench import text
from memtui.bench.configuration import Titles
from memtui.bench.sweep import SweepProgress, Tell
from memtui.core.processes import BackgroundTask


class SweepProcess(BackgroundTask):
    """Starts at once.

    Attributes:
        lines: of the rows that are finished.
        skipped: measured before.
    """

    def __init__(self, work: Callable[[Tell], list[str]], titles: Titles | None = None) -> None:
        """``work`` measures and returns what is to be said at the end. It runs in a child; no thread may run yet."""
        self.skipped = 0
        self.lines: list[text.BenchLine] = []
        titles = titles or Titles([])
        super().__init__(lambda say: work(lambda progress: say(to_plain(progress, titles))))

    def note(self, word: dict[str, Any]) -> None:
        super().note(word)
        self.skipped = word.get("skipped", self.skipped)
        if word.get("row"):
            self.lines.append(text.BenchLine.from_plain(word["row"]["line"]))

    @property
    def measured(self) -> list[text.BenchLine]:
        """Without references."""
        return [line for line in self.lines if not line.reference]


def to_plain(progress: SweepProgress, titles: Titles | None = None) -> dict[str, Any]:
    """Return what a screen shows of it, with what configurations are called beside each other."""
    row, made = progress.row, progress.configuration
    return {
        "phase": progress.phase,
        "number": progress.number,
        "of": progress.of,
        "skipped": progress.skipped,
        "window": progress.window,
        "windows": progress.windows,
        "visit": progress.visit,
        "visits": progress.visits,
        "left_s": progress.left_s,
        "power_w": progress.power_w,
        "source": progress.source,
        "sensor_w": progress.sensor_w,
        "sensor": progress.sensor,
        "t_ns": progress.t_ns,
        "configuration": "" if made is None else made.title,
        "notice": progress.notice,
        "row": None
        if row is None
        else {
            "cells": text.cells(row),
            "label": row.configuration.title,
            "name": (titles or Titles([])).of(row.configuration),
            "line": asdict(text.BenchLine.of(row)),
            "words": text.words(row),
            "ok": row.status == "ok" and not row.flags,
            "reference": row.reference,
        },
    }
