"""``memtui export`` of a placement profile: its tables are its content."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from memtui.cli.main import main
from memtui.placement.export import TABLES
from memtui.placement.profile import Profile
from tests.support.placement_cases import STATIC_CASE, in_pages
from tests.support.placement_profiles import written

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def profile() -> Profile:
    return in_pages(STATIC_CASE)


@pytest.fixture
def file(tmp_path: Path, profile: Profile) -> Path:
    return written(tmp_path / "p.memtui", profile).path


def export(file: Path, form: str, folder: Path, *more: str) -> int:
    return main(["export", str(file), "--to", form, "-o", str(folder), *more, "--no-config"])


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_csv_has_kernels_by_configurations(file: Path, profile: Profile, tmp_path: Path) -> None:
    assert export(file, "csv", tmp_path / "out") == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*(f"{name}.csv" for name in TABLES), "meta.json"}
    tables = {name: rows_of(tmp_path / "out" / f"{name}.csv") for name in TABLES}
    assert [row["op"] for row in tables["kernels"]] == [op.name for op in profile.graph.ops]
    assert [int(row["configurations"]) for row in tables["kernels"]] == [2, 4, 8, 2]
    assert [int(row["free"]) for row in tables["kernels"]] == [1, 2, 3, 1]
    assert tables["kernels"][2]["inputs"] == "t1;t2"
    times = {(r["op"], r["configuration"], r["mode"]): float(r["median_ns"]) for r in tables["configurations"]}
    assert times == {(s.op, str(s.configuration), s.mode): s.time_ns[0] for s in profile.samples}
    assert len(tables["samples"]) == sum(len(s.time_ns) for s in profile.samples)
    assert [row["tensor"] for row in tables["tensors"]] == [tensor.name for tensor in profile.graph.tensors]


def test_what_was_not_measured_has_a_row_without_times(tmp_path: Path, profile: Profile) -> None:
    file = written(tmp_path / "p.memtui", Profile(profile.graph, profile.pools)).path
    assert export(file, "csv", tmp_path / "out") == 0
    rows = rows_of(tmp_path / "out" / "configurations.csv")
    assert len(rows) == 16
    assert {(row["mode"], row["samples"], row["median_ns"]) for row in rows} == {("", "0", "")}


def test_every_form_has_the_same(file: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    for form in ("json", "parquet"):
        assert export(file, form, tmp_path / form) == 0
    document = json.loads((tmp_path / "json" / "profile.json").read_text())
    for name, (columns, _) in TABLES.items():
        table = pyarrow.read_table(tmp_path / "parquet" / f"{name}.parquet")
        assert tuple(table.column_names) == columns
        assert table.to_pylist() == document[name]
        assert json.loads(table.schema.metadata[b"memtui"]) == document["meta"]
    unit = pyarrow.read_schema(tmp_path / "parquet" / "configurations.parquet").field("median_ns").metadata[b"unit"]
    assert unit.startswith(b"nanoseconds")


@pytest.mark.parametrize("form", ["svg", "html", "zpp", "chrome"])
def test_forms_of_sessions_are_refused(form: str, file: Path, tmp_path: Path, capsys: Capture) -> None:
    assert export(file, form, tmp_path / "out") == 2
    out, error = capsys.readouterr()
    assert not out
    assert error.endswith(
        f"p.memtui: is a placement profile, which is written as csv, parquet, json, and not as {form}\n"
    )
    assert not (tmp_path / "out").exists()


def test_files_that_are_there_are_not_overwritten_without_force(file: Path, tmp_path: Path, capsys: Capture) -> None:
    assert export(file, "csv", tmp_path / "out") == 0
    assert export(file, "csv", tmp_path / "out") == 2
    assert "--force" in capsys.readouterr().err
    assert export(file, "csv", tmp_path / "out", "--force") == 0


def test_it_may_be_packed(file: Path, tmp_path: Path) -> None:
    assert export(file, "csv", tmp_path / "out", "--gzip") == 0
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".gz"}
