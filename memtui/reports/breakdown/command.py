"""``memtui breakdown``: reads the files, adds up, and prints or draws."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from memtui.core import progress_line
from memtui.core.errors import UserError
from memtui.core.file_set import all_or_none
from memtui.core.text import visible
from memtui.reports.breakdown import text
from memtui.reports.breakdown.figure import Graph, draw
from memtui.reports.breakdown.inputs import Held, read
from memtui.reports.breakdown.rules import Breakdown, break_down, without_padding
from memtui.reports.charts import matplotlib_svg
from memtui.reports.charts.matplotlib_pdf import PdfDrawing

ONE_SCALE = "breakdown"  # name of the figure with all files
Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class BreakdownOptions:
    """What the user wants: see ``memtui breakdown --help``. ``form`` is empty for text."""

    rules: str
    percent: float = 0.0
    title: str = ""
    together: bool = False
    subtract_padding: bool = False
    form: str = ""
    folder: Path | None = None
    force: bool = False
    as_json: bool = False


def breakdown(paths: list[Path], asked: BreakdownOptions, say: Say, show: Callable[[str], object]) -> bool:
    """Break every file down; whether all could be read. ``say`` takes what is wrong, ``show`` what is asked for.

    Raises:
        UserError: none can be read, or figures cannot be written.
    """
    if bool(asked.form) != (asked.folder is not None):
        raise UserError("figures need both a form and a folder: --to svg -o DIR")
    if asked.form and asked.as_json:
        raise UserError("either figures (--to) or one JSON document (--json), not both")
    if asked.form == "pdf":
        matplotlib_svg.load()
    found: list[tuple[Held, Breakdown]] = []
    failed: list[tuple[Path, UserError]] = []
    for number, path in enumerate(paths, start=1):
        progress_line.tell(f"{path} ({number} of {len(paths)})" if len(paths) > 1 else str(path))
        try:
            found += [(held, _added_up(held, asked, say)) for held in read(path)]
        except UserError as error:
            failed.append((path, error))
    if not found:
        raise failed[0][1] if len(failed) == 1 else UserError(f"none of {len(failed)} files; the first: {failed[0][1]}")
    for _, why in failed:
        say(str(why))
    if asked.form:
        for written in _figures(found, asked):
            show(str(written))
    elif asked.as_json:
        show(json.dumps(_plain(found, failed, asked), indent=2))
    else:
        show(_text(found, asked))
    return not failed


def _added_up(held: Held, asked: BreakdownOptions, say: Say) -> Breakdown:
    items = held.items
    if asked.subtract_padding:
        if held.padded:
            items = without_padding(items, held.coarse)
        else:
            say(f"{held.path}: sizes of a {held.format} have no padding; nothing is subtracted")
    return break_down(items, asked.rules)


def _text(found: list[tuple[Held, Breakdown]], asked: BreakdownOptions) -> str:
    largest = [max((bar.bytes for bar in one.bars), default=0) for _, one in found]
    scales = [max(largest)] * len(found) if asked.together else largest
    parts = [visible(asked.title)] if asked.title else []
    parts += [
        text.text(held, one, asked.rules, asked.percent, scale)
        for (held, one), scale in zip(found, scales, strict=True)
    ]
    return "\n\n".join(parts)


def _plain(
    found: list[tuple[Held, Breakdown]], failed: list[tuple[Path, UserError]], asked: BreakdownOptions
) -> dict[str, object]:
    return {
        "title": asked.title,
        "rules": asked.rules,
        "fraction_percent": asked.percent,
        "padding_subtracted": asked.subtract_padding,
        "files": [text.plain(held, one, asked.rules, asked.percent) for held, one in found],
        "failed": [{"file": str(path), "reason": str(error)} for path, error in failed],
    }


def _figures(found: list[tuple[Held, Breakdown]], asked: BreakdownOptions) -> list[Path]:
    """Write one figure for each, or one with all of them; all of them, or none."""
    folder = asked.folder or Path()
    graphs = [
        Graph(
            text.heading(held, one, asked.rules),
            text.shown(one.bars, asked.percent),
            text.notes(held, one, asked.rules, asked.percent),
        )
        for held, one in found
    ]
    if asked.together:
        wanted = {ONE_SCALE: graphs}
    else:
        wanted = {}
        for (held, _), graph in zip(found, graphs, strict=True):
            several = [held.path for held, _ in found].count(held.path) > 1
            name = f"{held.path.name}-{held.device or 'cpu'}" if several else held.path.name
            while name in wanted:
                name += "-2"
            wanted[name] = [graph]
    with all_or_none(folder, force=asked.force) as files:
        for name, some in wanted.items():
            files.write(f"{name.replace('/', '_')}.{asked.form}", partial(_write, some, asked))
        return files.finish()


def _write(graphs: list[Graph], asked: BreakdownOptions, file: BinaryIO) -> None:
    file.write(_drawn(graphs, asked))


def _drawn(graphs: list[Graph], asked: BreakdownOptions) -> bytes:
    if asked.form == "pdf":
        drawing = draw(graphs, visible(asked.title), PdfDrawing)
        assert isinstance(drawing, PdfDrawing)
        return drawing.pdf()
    return draw(graphs, asked.title).document().encode()
