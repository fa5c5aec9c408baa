"""The recorded iteration in the files of ZPP-MEM: a text, and a picture. Without torch."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.peak_segment import peak_of, segment_label
from memtui.core.errors import FAILURE
from memtui.core.os_errors import WRITE, refused
from memtui.core.units import size
from memtui.formats.zpp import zpp_lines
from memtui.reports.figures.axes import Axes, bytes_scale, footnote, time_scale
from memtui.reports.figures.svg import COLUMN_PT, SMALL_PT, Drawing, wrap

FOLDER = "plots"


def write_plots(trace: StepTrace, run: str, title: str, segments: tuple[tuple[str, ...], ...]) -> list[Path]:
    """Write ``plots/RUN_train_N_meta.txt`` and ``plots/RUN_train_N.svg``, N the number of the iteration from 1.

    Raises:
        UserError: the files cannot be written.
    """
    stem = f"{run}_train_{trace.step + 1}"
    folder = Path(FOLDER)
    text, picture = folder / f"{stem}_meta.txt", folder / f"{stem}.svg"
    since_epoch_ns = time.time_ns() - time.monotonic_ns()
    try:
        folder.mkdir(exist_ok=True)
        with text.open("x", encoding="utf-8") as file:
            file.writelines(zpp_lines(trace, since_epoch_ns))
        with picture.open("x", encoding="utf-8") as file:
            file.write(draw(trace, title, segments).document())
    except OSError as error:
        raise refused(error.filename, error, WRITE, code=FAILURE) from None
    return [text, picture]


def draw(trace: StepTrace, title: str, segments: tuple[tuple[str, ...], ...]) -> Drawing:
    """Draw memory above the start of the step over its time."""
    peak = peak_of(trace, segments)
    caption = title
    if peak is not None:
        where = f", in {segment_label(peak.segment)}" if peak.segment else ""
        caption += f"; peak {size(peak.above_start_bytes)} above the start of the iteration{where} ({peak.op})"
    lines = wrap(caption, COLUMN_PT - 8, SMALL_PT, 3)
    drawing = Drawing(COLUMN_PT, 8 + 96 + 22 + len(lines) * (SMALL_PT + 1.2) + 3, title, caption)
    above = np.maximum(trace.usage_bytes - trace.start_bytes, 0)
    across = time_scale((trace.end_ns - trace.start_ns) / 1e9)
    axes = Axes(drawing, 38.0, 8.0, COLUMN_PT - 46.0, 96.0, across, bytes_scale(float(above.max(initial=1)) * 1.02))
    axes.grid()
    points: list[tuple[float, float]] = [(axes.left, axes.bottom)]
    for t_ns, allocated in zip((trace.t_ns - trace.start_ns).tolist(), above.tolist(), strict=True):
        x = axes.x(t_ns / 1e9)
        points += [(x, points[-1][1]), (x, axes.y(allocated))]
    points.append((axes.left + axes.width, points[-1][1]))
    drawing.polygon([*points, (axes.left + axes.width, axes.bottom)], "wss-area")
    drawing.polyline(points, "wss")
    axes.edges()
    axes.label_up(f"memory ({axes.up.unit if axes.up else ''})")
    axes.label_across(f"time ({across.unit})")
    footnote(drawing, lines, axes.bottom + 22)
    return drawing
