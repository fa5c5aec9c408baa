"""``memtui breakdown``: reads the files, adds up their allocations, and prints or draws the sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from memtui.core import progress_line
from memtui.core.console import as_json
from memtui.core.errors import UserError
from memtui.core.file_set import all_or_none
from memtui.core.options import RULES
from memtui.core.text import nearest, printable
from memtui.formats.catalogue import files_of
from memtui.formats.category_rules import RuleSet, bundled
from memtui.formats.category_rules import read as read_rules
from memtui.reports.breakdown import text
from memtui.reports.breakdown.figure import Graph, draw
from memtui.reports.breakdown.inputs import DeviceAllocations, read
from memtui.reports.breakdown.rules import Breakdown, break_down, in_one_order, without_padding
from memtui.reports.breakdown.text import Panel
from memtui.reports.charts import matplotlib_svg
from memtui.reports.charts.matplotlib_pdf import PdfDrawing

COMBINED_NAME = "breakdown"  # name of the figure with all files
Print = Callable[[str], object]
Part = tuple[DeviceAllocations, Breakdown]
Failure = tuple[Path, UserError]


@dataclass(frozen=True, slots=True)
class BreakdownOptions:
    """The options of ``memtui breakdown --help``. ``form`` is empty for text."""

    rules: RuleSet
    percent: float = 0.0
    title: str = ""
    together: bool = False
    subtract_padding: bool = False
    form: str = ""
    folder: Path | None = None
    force: bool = False
    as_json: bool = False
    input_format: str = ""

    def check(self) -> None:
        """Raise UserError where options contradict one another, or another option or a library is missing."""
        if bool(self.form) != (self.folder is not None):
            raise UserError("figures need both a form and a folder: --to svg -o DIR")
        if self.form and self.as_json:
            raise UserError("either figures (--to) or one JSON document (--json), not both")
        if self.form == "pdf":
            matplotlib_svg.load()


def rules_of(given: Path) -> RuleSet:
    """Return the bundled rules of a name, or those of a file. Raises UserError."""
    if (name := str(given)) in RULES:
        return bundled(name)
    if len(given.parts) == 1 and given.suffix != ".toml":
        hint = nearest(name, RULES, f"there are {', '.join(RULES)}, and files named .toml")
        raise UserError(f"--rules: there are no rules {name!r}; {hint}")
    return read_rules(given)


def breakdown(paths: list[Path], options: BreakdownOptions, notify: Print, output: Print) -> bool:
    """Break every file down and return whether all could be read.

    Args:
        paths: the files.
        options: the options of the command.
        notify: prints messages about files that cannot be read.
        output: prints the result.

    Raises:
        UserError: no file can be read, or figures cannot be written.
    """
    options.check()
    parts, failed = _read_all(paths, options, notify)
    panels = _panels(parts, options)
    if options.form:
        for path in _write_figures(panels, options):
            output(str(path))
    elif options.as_json:
        output(as_json(_to_dict(panels, failed, options)))
    else:
        output(_text(panels, options))
    return not failed


def _read_all(paths: list[Path], options: BreakdownOptions, notify: Print) -> tuple[list[Part], list[Failure]]:
    """Return the readable parts of files, and of the files of folders, and the failures.

    Raises UserError where no file can be read.
    """
    parts: list[Part] = []
    failed: list[Failure] = []
    paths = [path for given in paths for path in files_of(given)]
    for number, path in enumerate(paths, start=1):
        progress_line.update(f"{path} ({number} of {len(paths)})" if len(paths) > 1 else str(path))
        try:
            parts += [
                (allocations, _break_down(allocations, options, notify))
                for allocations in read(path, options.input_format)
            ]
        except UserError as error:
            failed.append((path, error))
    if not parts:
        raise failed[0][1] if len(failed) == 1 else UserError(f"none of {len(failed)} files; the first: {failed[0][1]}")
    for _, why in failed:
        notify(str(why))
    return parts, failed


def _break_down(allocations: DeviceAllocations, options: BreakdownOptions, notify: Print) -> Breakdown:
    items = allocations.items
    if options.subtract_padding:
        if allocations.padded:
            items = without_padding(items, allocations.coarse)
        else:
            notify(f"{allocations.path}: sizes of a {allocations.format} have no padding; nothing is subtracted")
    return break_down(items, options.rules)


def _panels(parts: Sequence[Part], options: BreakdownOptions) -> list[Panel]:
    """Return what is shown of each part: categories in one order, and with ``together`` the same ones everywhere."""
    results = in_one_order([result for _, result in parts], complete=options.together)
    listed = [text.above_share(result.bars, options.percent) for result in results]
    if options.together:
        listed = [frozenset().union(*listed)] * len(results)
    return [
        Panel(allocations, result, keys) for (allocations, _), result, keys in zip(parts, results, listed, strict=True)
    ]


def _text(panels: Sequence[Panel], options: BreakdownOptions) -> str:
    largest = [max((bar.bytes for bar in panel.result.bars), default=0) for panel in panels]
    scales = [max(largest)] * len(panels) if options.together else largest
    texts = [printable(options.title)] if options.title else []
    texts += [
        text.text(panel, options.rules, options.percent, scale) for panel, scale in zip(panels, scales, strict=True)
    ]
    return "\n\n".join(texts)


def _to_dict(panels: Sequence[Panel], failed: Sequence[Failure], options: BreakdownOptions) -> dict[str, object]:
    return {
        "title": options.title,
        "rules": options.rules.name,
        "fraction_percent": options.percent,
        "padding_subtracted": options.subtract_padding,
        "files": [text.to_dict(panel, options.rules) for panel in panels],
        "failed": [{"file": str(path), "reason": str(error)} for path, error in failed],
    }


def _write_figures(panels: Sequence[Panel], options: BreakdownOptions) -> list[Path]:
    """Write one figure for each panel, or one figure for all panels; all files, or no file."""
    graphs = [
        Graph(text.heading(panel, options.rules), panel.bars, text.notes(panel, options.rules, options.percent))
        for panel in panels
    ]
    if options.together:
        figures = {COMBINED_NAME: graphs}
    else:
        figures = {}
        paths = [panel.allocations.path for panel in panels]
        for path, panel, graph in zip(paths, panels, graphs, strict=True):
            several = paths.count(path) > 1
            name = f"{path.name}-{panel.allocations.device or 'cpu'}" if several else path.name
            while name in figures:
                name += "-2"
            figures[name] = [graph]
    with all_or_none(options.folder or Path(), force=options.force) as files:
        for name, of_figure in figures.items():
            files.write(f"{name.replace('/', '_')}.{options.form}", partial(_write, of_figure, options))
        return files.finish()


def _write(graphs: list[Graph], options: BreakdownOptions, file: BinaryIO) -> None:
    file.write(_drawn(graphs, options))


def _drawn(graphs: list[Graph], options: BreakdownOptions) -> bytes:
    if options.form == "pdf":
        drawing = draw(graphs, printable(options.title), PdfDrawing)
        assert isinstance(drawing, PdfDrawing)
        return drawing.pdf()
    return draw(graphs, options.title).document().encode()
