"""Documents that other programs read are as docs/reference/schemas describes them: of every kind of session."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from memtui.bench.text import to_dict
from memtui.cli.doctor_findings import examine
from memtui.cli.main import main
from memtui.core.console import JSON_VERSION, as_json
from memtui.formats.catalogue import import_file
from memtui.formats.session_writer import write
from memtui.placement.plan import PlacementPlan
from memtui.placement.profiling.progress import ProfileProgress
from memtui.placement.profiling.text import about
from memtui.placement.run import PlanRun
from memtui.reports.charts.model import Findings
from memtui.reports.comparison.text import read, same_windows
from memtui.reports.comparison.text import to_dict as comparison_document
from memtui.reports.export.tables import meta
from memtui.reports.redact import open_source
from memtui.reports.report import build_report
from memtui.study.host_info import describe
from memtui.study.plan import Run
from memtui.study.report import to_dict as study_document
from memtui.study.runs.messages import RunResult
from memtui.study.studies.base import FinishedRun, Setting
from memtui.study.studies.catalogue import STUDIES
from memtui.training.command import TrainRequest
from memtui.training.command import document as train_document
from memtui.training.result import PeakMemory, TrainingResult
from memtui.training.settings import Settings
from memtui.training.tune.command import document
from memtui.training.tune.grid import Grid
from memtui.training.tune.results import Results, TuneRow
from tests.support import sessions
from tests.support.bench_database import row
from tests.support.compared_sessions import long, short
from tests.support.memory_logs import mxnet_log
from tests.support.pages import evil_stream
from tests.support.placement_cases import PAGE, SYNC_CASE, in_pages
from tests.support.placement_profiles import written
from tests.support.schemas import FOLDER, check

LOG = "1700000000000000 4096 4096 conv/forward\n1700000000000100 0 -4096 conv/forward\n"


def printed(document: dict) -> dict:
    return json.loads(as_json(document))


def imported(path: Path) -> Path:
    log = path.with_suffix(".txt")
    log.write_text(LOG)
    write(import_file(log), path)
    return path


def made(name: str, path: Path) -> Path:
    if name == "imported":
        return imported(path)
    streams = {
        "tracked": lambda: sessions.messages(5),
        "no tracker": lambda: sessions.messages(60, tracked=False),
        "empty": lambda: [sessions.hello()],
        "long windows": long,
        "short windows": short,
        "hostile": evil_stream,
    }
    return sessions.write_session(path, streams[name]())


KINDS = ["tracked", "no tracker", "empty", "long windows", "short windows", "hostile", "imported"]


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_report_and_meta(kind, redact, tmp_path):
    path = made(kind, tmp_path / "s.memtui")
    check("report", printed(build_report(path, redact=redact).to_dict()))
    with closing(open_source(path, redact=redact)) as source:
        check("meta", json.loads(json.dumps(meta(source))))


def test_compare(tmp_path):
    paths = [made(kind, tmp_path / f"{kind}.memtui") for kind in ("short windows", "long windows", "no tracker")]
    with closing(open_source(paths[0])) as a, closing(open_source(paths[1])) as b, closing(open_source(paths[2])) as c:
        recorded = read([a, b, c], paths)
        check(
            "compare", printed(comparison_document(recorded, same_windows(recorded, [a, b, c]), list(map(str, paths))))
        )


def test_doctor():
    check("doctor", printed(examine().to_dict()))


def test_bench():
    rows = [row(), replace(row(), status="failed", reason="out of memory")]
    check("bench", printed({"database": "bench.db", "skipped": 0, "rows": list(map(to_dict, rows))}))


def test_tune(tmp_path):
    networks = {"mine": {"extends": "fcReLu", "sequence": [{"layer": "FullyConnected", "units": 10, "flatten": True}]}}
    axes = (("name", ("fcReLu", "mine")), ("data", ("none",)), ("minimum_accuracy", ("1:30,2:50",)))
    results = Results(tmp_path, Grid((*axes, ("sequence", ("fcReLu",))), networks=networks))
    failed_row = TuneRow(seconds=1.0, exit=-9, error="was killed by SIGKILL")
    finished = TuneRow(93.06, float("inf"), 4, 576, "expected 30", 4096, 1024, 2.5, 0, "", "/a/b.memtui")
    check("tune", printed(document(results, {0: finished, 1: failed_row})))
    check("tune", printed(document(results, {})))


def test_train():
    settings = Settings(sequence=({"layer": "FullyConnected", "units": 10},), minimum_accuracy=((1, 30.0), (2, 50.0)))
    peak = PeakMemory(4096, 1024, {"weights": 512}, 512, ["FullyConnected_0"], 512, "aten::mm")
    finished = TrainingResult(4, 576, 93.06, 0.5, "expected 30", ["model.pt"], "", peak)
    check("train", printed(train_document(TrainRequest("mine", settings), finished, Path("/a/b.memtui"))))
    exploded = TrainingResult(0, 5, None, float("inf"), None, [], "five iterations", PeakMemory(peak_reason="none"))
    check("train", printed(train_document(TrainRequest("fcReLu", Settings()), exploded, None)))


@pytest.mark.parametrize("rules", ["compat", "memtui"])
def test_breakdown(rules, tmp_path, capsys):
    path = tmp_path / "rnn.log"
    path.write_bytes(mxnet_log())
    argv = ("breakdown", str(path), str(tmp_path / "none.log"), "--rules", rules, "--json", "--no-config")
    assert main([*argv]) == 2
    document = json.loads(capsys.readouterr().out)
    check("breakdown", document)
    assert (len(document["files"]), len(document["failed"])) == (1, 1)


def test_study(capsys):
    machine = describe() | {"container": "its own PID namespace", "container_why": "no engine"}
    run = Run("0.5 s", ("python", "train.py"), 10.0)
    runs = [FinishedRun(run, RunResult(), Path("/a/b.memtui"))]
    findings = Findings({"wss_bytes": 1, "by_cpus": {"1": None}}, ["so it is"], [], doubts=["not sure"])
    documents = [
        study_document(STUDIES["cpus"], Setting(True, 2), findings, runs, machine, redact=redact)
        for redact in (False, True)
    ]
    for each in documents:
        check("study", printed(each))
    check("study-all", printed({"studies": documents}))
    assert main(["study", "list", "--json", "--no-config"]) == 0
    check("study-list", json.loads(capsys.readouterr().out))


def place(capsys, *argv: object) -> dict:
    assert main(["place", *map(str, argv), "--json", "--no-config"]) == 0
    return json.loads(capsys.readouterr().out)


def test_place(tmp_path, capsys):
    profile = in_pages(SYNC_CASE)
    path = written(tmp_path / "p.memtui", profile).path
    check("place-profile", printed(about(profile, path, ProfileProgress())))
    check("place-compare", place(capsys, "compare", path))
    check("place-solve", place(capsys, "solve", path, "--pareto"))
    document = place(capsys, "solve", path, "--limit", 7 * PAGE, "--formulation", "sync")
    check("place-solve", document)
    plan = PlacementPlan.from_dict(document["plan"])
    assert plan.moves
    run = PlanRun(plan, 1.5, 0.5, False, True, None, PAGE, 0, {"dram": {"0": 1}})
    check("place-solve", document | {"run": [run.to_dict()]})
    for redact in ([], ["--redact"]):
        assert main(["report", str(path), "--json", *redact, "--no-config"]) == 0
        document = json.loads(capsys.readouterr().out)
        check("place-report", document)
        assert document["plans"], "those of the two calls before"
    assert main(["export", str(path), "--to", "csv", "-o", str(tmp_path / "out"), "--no-config"]) == 0
    check("place-meta", json.loads((tmp_path / "out" / "meta.json").read_text()))


SCHEMAS = ["report", "compare", "doctor", "bench", "list", "meta", "tune", "train", "breakdown"]
SCHEMAS += ["study", "study-all", "study-list"]


@pytest.mark.parametrize(
    "name", [*SCHEMAS, "place-profile", "place-compare", "place-solve", "place-report", "place-meta"]
)
def test_what_is_not_described_is_refused(name):
    schema = json.loads((FOLDER / f"{name}.json").read_text())
    assert schema["properties"]["schema_version"] == {"const": JSON_VERSION}
    assert "schema_version" in schema["required"]
    with pytest.raises(jsonschema.ValidationError):
        check(name, {"schema_version": JSON_VERSION, "another": 1})
