"""The record of second tries is complete, and no test needed one twice within 20 gates without being mended since."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from tests.support.repository import ROOT

RECORD = ROOT / "docs" / "internals" / "reruns.md"
GATES = ["gate", "date", "commit", "passed", "second tries", "machine"]
TRIES = ["gate", "test", "second try", "mended", "what it was"]
LAST = 20  # gates


@dataclass(frozen=True)
class Record:
    """The rows of both tables, by the names of their columns."""

    gates: list[dict[str, str]]
    tries: list[dict[str, str]]

    @classmethod
    def parse(cls, page: str) -> Record:
        return cls(_table(page, GATES), _table(page, TRIES))

    def defects(self) -> list[str]:
        """Return the tests that needed a second try in two of the last gates, and are not mended."""
        last = {row["gate"] for row in self.gates[-LAST:]}
        unmended = {(_name(row["test"]), row["gate"]) for row in self.tries if row["mended"] == "no"}
        counts = Counter(name for name, gate in unmended if gate in last)
        return sorted(name for name, count in counts.items() if count > 1)


def _table(page: str, columns: list[str]) -> list[dict[str, str]]:
    _, head, rest = page.partition(f"| {' | '.join(columns)} |\n")
    assert head, f"there is no table of {columns}"
    _, *lines = rest.partition("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip().strip("|").split(" | ", len(columns) - 1)] for line in lines]
    assert all(len(row) == len(columns) and all(row) for row in rows), "a cell is missing"
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _name(test: str) -> str:
    """A test by its file and function: without folders, which change, class and parameters."""
    path, _, function = test.strip("`").partition("[")[0].partition("::")
    return f"{path.rpartition('/')[2]}::{function.rpartition('::')[2]}"


def test_no_test_needed_a_second_try_twice_without_being_mended():
    assert Record.parse(RECORD.read_text()).defects() == []


def test_each_gate_has_as_many_second_tries_as_it_says():
    record = Record.parse(RECORD.read_text())
    assert [row["gate"] for row in record.gates] == [str(number) for number in range(1, len(record.gates) + 1)]
    assert [row["date"] for row in record.gates] == sorted(row["date"] for row in record.gates)
    counts = Counter(row["gate"] for row in record.tries)
    del counts["-"]
    assert counts == {row["gate"]: int(row["second tries"]) for row in record.gates if row["second tries"] != "0"}
    assert {row["passed"] for row in record.gates} <= {"yes", "no"}
    assert {row["mended"] for row in record.tries} <= {"yes", "no"}
    for gate in record.gates:
        results = {row["second try"] for row in record.tries if row["gate"] == gate["gate"]}
        # One may also fail for another reason, without a second try.
        assert gate["passed"] == ("yes" if results == {"passed"} else "no") or not results, f"gate {gate['gate']}"


def page(tries: list[tuple[int, str, str]], gates: int = 30) -> str:
    """A record of that many gates and these second tries: gate, test, mended."""
    counts = Counter(gate for gate, _, _ in tries)
    lines = ["# Record", "", f"| {' | '.join(GATES)} |", "|---|---|"]
    lines += [f"| {n} | 2026-11-27 | `f00` | yes | {counts[n]} | CI |" for n in range(1, gates + 1)]
    lines += ["", f"| {' | '.join(TRIES)} |", "|---|---|"]
    lines += [f"| {gate} | `{test}` | passed | {mended} | it was \\| late |" for gate, test, mended in tries]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("tries", "defects"), [
    ([(11, "tests/a/test_x.py::test_a", "no"), (30, "test_x.py::TestIt::test_a[one]", "no")], ["test_x.py::test_a"]),
    ([(10, "test_x.py::test_a", "no"), (30, "test_x.py::test_a", "no")], []),
    ([(29, "test_x.py::test_a", "yes"), (30, "test_x.py::test_a", "no")], []),
    ([(29, "test_x.py::test_a", "no"), (30, "test_y.py::test_a", "no")], []),
    ([(30, "test_x.py::test_a[1]", "no"), (30, "test_x.py::test_a[2]", "no")], []),
    ([(29, "test_x.py::test_a[1]", "no"), (30, "test_x.py::test_a[2]", "no")], ["test_x.py::test_a"]),
    ([("-", "test_x.py::test_a", "no"), (30, "test_x.py::test_a", "no")], []),
    ([], []),
])  # fmt: skip
def test_twice_within_the_last_gates_is_a_defect(tries, defects):
    assert Record.parse(page(tries)).defects() == defects
