"""One check: what memtui said, what another source said, and whether the two agree."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks.table import columns, number

HEAD = ("stage", "what", "memtui", "second source", "tolerance", "verdict")


class Verdict(StrEnum):
    """The outcome of a check. A figure has no second source: it describes the machine."""

    PASS = "pass"
    FAIL = "fail"
    NOT_AVAILABLE = "n/a"
    FIGURE = "figure"


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one comparison.

    Attributes:
        stage: name of the stage.
        what: the quantity.
        verdict: the outcome.
        measured: what memtui said, as text with its unit.
        reference: what the second source said, and which one that is.
        tolerance: the largest difference that passes.
        reason: why it is not available, or a remark.
    """

    stage: str
    what: str
    verdict: Verdict
    measured: str = ""
    reference: str = ""
    tolerance: str = ""
    reason: str = ""

    def cells(self) -> tuple[str, ...]:
        verdict = f"{self.verdict}: {self.reason}" if self.reason else str(self.verdict)
        return self.stage, self.what, self.measured, self.reference, self.tolerance, verdict


class Report:
    """Takes the checks of one stage, and keeps them in a file as they come: a stage may be stopped at any time."""

    def __init__(self, stage: str, folder: Path, *, short: bool = False) -> None:
        """Begin a file.

        Args:
            stage: its name.
            folder: of the results, which stages may put recordings into.
            short: a stage leaves out what takes long.
        """
        self.stage, self.folder, self.short = stage, folder, short
        self._path = folder / f"{stage}.jsonl"
        self._path.write_text("")

    def add(self, check: Check) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(check)) + "\n")
        print("  ".join(cell for cell in check.cells() if cell), flush=True)

    def close(
        self, what: str, measured: float | None, reference: float | None, within: float, unit: str, source: str,
        reason: str = "",
    ) -> None:  # fmt: skip
        """Compare two numbers. ``within``: the largest difference that passes, as a share of the reference."""
        if measured is None or reference is None:
            side = "memtui has no value" if measured is None else f"{source} has no value"
            self.missing(what, f"{side}: {reason}" if reason else side)
            return
        difference = abs(measured - reference) / abs(reference) if reference else abs(measured)
        verdict = Verdict.PASS if difference <= within else Verdict.FAIL
        self.add(
            Check(
                self.stage,
                what,
                verdict,
                f"{number(measured)} {unit}",
                f"{number(reference)} {unit} ({source})",
                f"{100 * within:g} %",
                f"differs by {100 * difference:.2f} %" + (f"; {reason}" if reason else ""),
            )
        )

    def equal(self, what: str, measured: object, reference: object, source: str, reason: str = "") -> None:
        """Compare two values, which have to be equal."""
        verdict = Verdict.PASS if measured == reference else Verdict.FAIL
        self.add(Check(self.stage, what, verdict, str(measured), f"{reference} ({source})", "equal", reason))

    def holds(self, what: str, condition: bool, measured: str, wanted: str, reason: str = "") -> None:
        """Take a condition."""
        self.add(Check(self.stage, what, Verdict.PASS if condition else Verdict.FAIL, measured, wanted, "", reason))

    def figure(self, what: str, measured: str, reason: str = "") -> None:
        """Take a number that describes the machine."""
        self.add(Check(self.stage, what, Verdict.FIGURE, measured, reason=reason))

    def missing(self, what: str, reason: str) -> None:
        """Take what cannot be compared here."""
        self.add(Check(self.stage, what, Verdict.NOT_AVAILABLE, reason=reason))

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """Turn an error of a part of a stage into a failed check: the parts after it still run."""
        try:
            yield
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            self.add(Check(self.stage, what, Verdict.FAIL, reason=text))


def read_checks(path: Path) -> list[Check]:
    """Return the checks in the file of a stage; a line that was being written is left out."""
    checks: list[Check] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        checks.append(Check(**fields | {"verdict": Verdict(fields["verdict"])}))
    return checks


def table(checks: Iterable[Check]) -> str:
    """Return checks as a table of Markdown, for people to read as text."""
    return columns([HEAD, *(check.cells() for check in checks)])


def document_table(checks: Iterable[Check]) -> str:
    """Return that table without blanks that make its columns even, which a long cell would multiply."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [HEAD, ["---"] * len(HEAD), *(c.cells() for c in checks)])


def counts(checks: Sequence[Check]) -> str:
    """Return how many checks have each verdict: "12 pass, 1 fail, 3 n/a, 4 figures"."""
    of = {verdict: sum(check.verdict == verdict for check in checks) for verdict in Verdict}
    named = {Verdict.FIGURE: "figures"}
    return ", ".join(f"{count} {named.get(verdict, verdict)}" for verdict, count in of.items() if count) or "no checks"
