"""Call stacks in exports: a number in each row of the allocations, and a table of the stacks."""

from __future__ import annotations

import csv
import json

import pytest

from memtui.formats.session_writer import write
from memtui.reports.export import export
from tests.support.stacked_snapshot import CALLS, FREE, MAIN, imported


@pytest.fixture
def session(tmp_path):
    write(imported(), tmp_path / "s.memtui")
    return tmp_path / "s.memtui"


def frames_of(stacks, number) -> list[tuple[str, str, int]]:
    """Follow the parents of a stack in an exported table, from the innermost call on."""
    by_number = {str(row["stack"]): row for row in stacks}
    frames = []
    while number not in ("", None):
        row = by_number[str(number)]
        frames.append((row["function"], row["file"], int(row["line"] or 0)))
        number = row["parent"]
    return frames


@pytest.mark.parametrize("form", ["csv", "json"])
def test_the_stack_of_every_allocation_can_be_followed(session, tmp_path, form):
    export(session, form, tmp_path / "out")
    if form == "csv":
        allocations, stacks = (
            list(csv.DictReader((tmp_path / "out" / f"{name}.csv").read_text().splitlines()))
            for name in ("allocations", "call_stacks")
        )
    else:
        document = json.loads(next((tmp_path / "out").glob("*.json")).read_text())
        allocations, stacks = document["allocations"], document["call_stacks"]
    found = [frames_of(stacks, row["stack"]) for row in allocations]
    alternating = [[*CALLS, MAIN._replace(line=9 + n % 2)] for n in range(4)]
    assert found == [[MAIN], *alternating, [FREE]]


def test_parquet_has_the_stacks_with_types(session, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export(session, "parquet", tmp_path / "out")
    stacks = parquet.read_table(tmp_path / "out" / "call_stacks.parquet").to_pylist()
    assert frames_of(stacks, len(stacks) - 1) == [FREE]
    assert {row["line"] for row in stacks if row["file"] == ""} == {None}


def test_what_is_redacted_has_no_name_of_a_function_or_file(session, tmp_path):
    export(session, "csv", tmp_path / "out", redact=True)
    text = (tmp_path / "out" / "call_stacks.csv").read_text()
    assert "at::empty" in text
    for secret in ("ada", "forward", "_conv", "main", "drop", "456"):
        assert secret not in text
