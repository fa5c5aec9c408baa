"""The verdict: what was found about the program's memory, what to do, the figures behind it, and what was looked at."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from memtui.reports.verdict.verdict import Verdict
from memtui.tui.presenters import Presenter
from memtui.tui.screens.parts_screen import CursorScreen
from memtui.tui.screens.presenter_thread import Action
from memtui.widgets import text
from memtui.widgets.table import Column, Listing, ListingView, Row

_LOOKING = "looking ..."
_NO_WINDOW = "no window yet"
_COLUMNS = (Column("", 0),)
_INDENT = "   "
_KEYS = ("↑ ↓ scroll", "← → sample", "space pause", "? help", "Esc back")


class _Ready(Message):
    def __init__(self, verdict: Verdict | None, time_s: float | None) -> None:
        super().__init__()
        self.verdict, self.time_s = verdict, time_s


class VerdictScreen(CursorScreen):
    """Findings and checks as lines of text."""

    HELP = "verdict"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,v,q", "leave", "back"),
    ]

    def __init__(self, submit: Callable[[Action], object]) -> None:
        """Take ``submit``, which runs an action in the thread of the presenter."""
        super().__init__(submit, Listing(ListingView("verdict", _COLUMNS, note=_LOOKING)))
        self._verdict: Verdict | None = None
        self._time_s: float | None = None
        self._note = _LOOKING

    def find(self) -> None:
        def view(presenter: Presenter) -> None:
            end_ns = presenter.verdicts.end_ns
            time_s = None if end_ns is None else (end_ns - presenter.playhead.origin_ns) / 1e9
            self.post_message(_Ready(presenter.verdicts.verdict, time_s))

        self._submit(view)

    def on__ready(self, message: _Ready) -> None:
        if (message.verdict, message.time_s) != (self._verdict, self._time_s) or self._note:
            self._verdict, self._time_s = message.verdict, message.time_s
            self._note = "" if message.verdict is not None else _NO_WINDOW
            self.fill()

    def fill(self) -> None:
        width = self.app.size.width
        findings = self._verdict.findings if self._verdict is not None else []
        rows = verdict_rows(self._verdict, width - 6) if self._verdict is not None else ()
        self.rows.show(ListingView("what was found, and what to do", _COLUMNS, rows, self._note, counted=False))
        parts = [(" verdict", 1)]
        if self._verdict is not None:
            count = f"{len(findings)} finding{'s' * (len(findings) != 1)}"
            parts.append((f"   {count if findings else self._verdict.without_findings}", 1))
        if self._time_s is not None:
            parts.append((f"   window at {self._time_s:.1f} s", 2))
        self.head.show(text.fitting_ranked(parts, width, ""))
        self.foot.show(f" {text.fitting_keys(_KEYS, width - 2)}")

    def action_leave(self) -> None:
        self.app.pop_screen()


def verdict_rows(verdict: Verdict, width: int) -> tuple[Row, ...]:
    """Return a verdict as lines of at most ``width`` cells: findings with their evidence, then what was looked at."""
    lines: list[tuple[str, str]] = []
    for number, finding in enumerate(verdict.findings, 1):
        lines += _wrapped(finding.sentence, width, f"{number}  ", "warning")
        lines += _wrapped(f"Next: {finding.action}", width, _INDENT, "text")
        for line in finding.evidence:
            lines += _wrapped(line, width, f"{_INDENT}- ", "dim")
        lines.append(("", "dim"))
    if not verdict.findings:
        lines += [(f"{verdict.without_findings}.", "text"), ("", "dim")]
    not_applicable = [check for check in verdict.checks if not check.applies]
    for title, checks in (
        ("Looked at", verdict.looked_at),
        ("Not known", verdict.not_known),
        ("Does not apply", not_applicable),
    ):
        if checks:
            lines.append((title, "text"))
            for check in checks:
                lines += _wrapped(check.looked_at, width, f"{_INDENT}- ", "dim")
    return tuple(Row(number, (line,), role) for number, (line, role) in enumerate(lines))


def _wrapped(line: str, width: int, lead: str, role: str) -> list[tuple[str, str]]:
    room = max(width, 20)
    wrapped = textwrap.wrap(text.clean(line), room, initial_indent=lead, subsequent_indent=" " * len(lead))
    return [(part, role) for part in wrapped]
