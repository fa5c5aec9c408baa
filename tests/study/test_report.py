"""Reports of studies from made-up sessions: complete, self-contained, and without active foreign markup."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need matplotlib")

from memtui.core.console import as_json
from memtui.core.errors import UserError
from memtui.core.samples import Options
from memtui.reports.charts import matplotlib_svg
from memtui.reports.charts.model import Chart, ChartLine, HeatChart
from memtui.study import report
from memtui.study.plan import Run
from memtui.study.recorded_run import Trace
from memtui.study.runs.messages import RunResult
from memtui.study.studies.base import FinishedRun, Setting
from memtui.study.studies.catalogue import STUDIES
from tests.support.pages import EVIL, Page
from tests.support.schemas import check
from tests.support.sessions import MS, hello, messages, write_session
from tests.support.study_reports import MACHINE, SAMPLES, assert_harmless, inline_figures, result_of

SETTING = Setting(quick=True, cpus=2)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """A session for each interval."""
    folder, paths = tmp_path_factory.mktemp("study"), {}

    def session(interval_s: float) -> Path:
        if interval_s not in paths:
            stream = messages(SAMPLES, interval_ns=round(interval_s * 1e9))
            paths[interval_s] = write_session(folder / f"{interval_s}.memtui", stream)
        return paths[interval_s]

    return session


def observed(study, setting, sessions) -> list[FinishedRun]:
    runs = [run for repeat in study.runs(setting) for run in repeat]
    return [FinishedRun(run, result_of(run), sessions(run.interval_s)) for run in runs]


@pytest.mark.parametrize("name", STUDIES)
def test_a_report_has_all_that_it_needs_and_fetches_nothing(name, sessions, tmp_path):
    study = STUDIES[name]
    document = report.write(study, SETTING, observed(study, SETTING, sessions), MACHINE, tmp_path, redact=False)
    text = (tmp_path / f"{name}.html").read_text("utf-8")
    page = Page(text)
    assert_harmless(page)
    shown = "".join(page.words)
    assert study.title in shown
    assert all(sentence in shown for sentence in [*document["conclusion"], *study.original, *study.method])
    assert "lab-host" in shown
    assert document["conclusion"]
    figures = inline_figures(page)
    assert len(figures) >= 1
    assert len(list((tmp_path / "figures").glob(f"{name}-*.svg"))) == len(figures), "each has a name of its own"
    stored = json.loads((tmp_path / f"{name}.json").read_text())
    check("study", stored)
    assert stored == json.loads(as_json(document))
    assert oct((tmp_path / f"{name}.html").stat().st_mode)[-3:] == "600"


@pytest.mark.parametrize("name", STUDIES)
def test_every_figure_of_reuse_names_its_interval(name, sessions):
    study = STUDIES[name]
    findings = study.find(SETTING, observed(study, SETTING, sessions))
    for chart in findings.charts:
        if "reuse" in chart.name or "locality" in chart.name:
            assert "windows of" in chart.title or "by window" in chart.title


def test_basic_draws_the_first_twenty_samples_of_its_first_run(sessions):
    study = STUDIES["basic"]
    runs = observed(study, SETTING, sessions)
    (chart,) = (chart for chart in study.find(SETTING, runs).charts if chart.name == "first-samples")
    assert chart.title == "The first 20 samples, windows of 0.2 s"
    wss, rss = chart.lines
    with closing(runs[0].trace()) as trace:
        assert len(trace.samples) > 20
        assert (wss.name, rss.name) == ("WSS", "RSS")
        assert wss.x.tolist() == rss.x.tolist() == list(range(1, 21))
        np.testing.assert_array_equal(wss.y, trace.samples.wss_bytes[:20] / 2**20)
        np.testing.assert_array_equal(rss.y, trace.samples.rss_bytes[:20] / 2**20)


@pytest.mark.parametrize("name", STUDIES)
def test_a_program_whose_steps_leave_no_window_of_training_is_reported_all_the_same(name, sessions, tmp_path):
    study = STUDIES[name]
    runs = [
        replace(item, result=replace(item.result, first_step_ns=1, last_step_ns=2, step_times_ns=(1, 2)))
        for item in observed(study, SETTING, sessions)
    ]
    report.write(study, SETTING, runs, MACHINE, tmp_path, redact=False)
    document = json.loads((tmp_path / f"{name}.json").read_text(), parse_constant=pytest.fail)
    assert document["conclusion"]


def test_a_machine_that_had_other_things_to_do_is_result_of(sessions, tmp_path):
    study = STUDIES["cpus"]
    quiet = observed(study, SETTING, sessions)
    busy = [replace(item, result=replace(item.result, others_cpus=0.9)) for item in quiet]
    for runs, says in ((quiet, False), (busy, True)):
        document = report.write(study, SETTING, runs, MACHINE, tmp_path, redact=False)
        assert any("other programs took 0.9 of 2 CPUs" in text for text in document["doubts"]) is says


def test_the_same_chart_is_drawn_with_the_same_bytes():
    chart = Chart("a", "A", "x", "y", [ChartLine("l", [1, 2], [3, 4])])
    assert matplotlib_svg.svg(chart) == matplotlib_svg.svg(chart)


def test_hostile_names_are_text(sessions, tmp_path):
    study = STUDIES["cpus"]
    setting = replace(SETTING, command=("python", EVIL))
    machine = MACHINE | {"hostname": EVIL, "cpu": EVIL}
    report.write(study, setting, observed(study, setting, sessions), machine, tmp_path, redact=False)
    page = Page((tmp_path / "cpus.html").read_text("utf-8"))
    assert_harmless(page)
    assert not page.named("b")
    assert EVIL in "".join(page.words)
    chart = Chart("a", EVIL, EVIL, "$\\frac{", [ChartLine(EVIL, [1, 2], [3, 4]), ChartLine("x", [1], [1])])
    root = ET.fromstring(matplotlib_svg.svg(chart))
    assert not [e for e in root.iter() if e.tag.rpartition("}")[2] in ("script", "img", "b")]


def test_redacted_it_tells_neither_host_nor_command_nor_path(sessions, tmp_path):
    study = STUDIES["cpus"]
    setting = replace(SETTING, command=("python", "/home/ann/secret-train.py"))
    machine = MACHINE | {"kernel": "6.18.0-annbuilt"}
    report.write(study, setting, observed(study, setting, sessions), machine, tmp_path, redact=True)
    for name in ("cpus.html", "cpus.json"):
        text = (tmp_path / name).read_text("utf-8")
        for secret in ("lab-host", "annbuilt", "/home/ann", "secret-train", str(tmp_path), "0.5.memtui"):
            assert secret not in text, (name, secret)
        assert "6.18.0" in text
    check("study", json.loads((tmp_path / "cpus.json").read_text()))


def test_a_tracker_without_pages_is_one_line(tmp_path):
    session = write_session(tmp_path / "rss.memtui", messages(10, tracked=False))
    study = STUDIES["filters"]
    runs = [run for repeat in study.runs(SETTING) for run in repeat]
    with pytest.raises(UserError, match="saw no pages"):
        study.find(SETTING, [FinishedRun(run, result_of(run), session) for run in runs])


def test_windows_of_training_lie_between_the_first_and_the_last_step(sessions):
    run = Run("x", ("x",), 1.0)
    trace = Trace(sessions(0.2), result_of(run))
    inside = np.flatnonzero(trace.training)
    steps = result_of(run).step_times_ns
    assert trace.by_steps
    assert trace.samples.start_ns[inside[0]] >= steps[0]
    assert trace.samples.end_ns[inside[-1]] <= steps[-1]
    assert len(trace.wss()) == len(inside)
    trace.close()
    without = Trace(sessions(0.2), RunResult())
    assert not without.by_steps
    assert without.training.sum() == SAMPLES - SAMPLES // 10
    without.close()


def test_a_filter_takes_the_ranges_that_it_names_and_no_others(tmp_path):
    stream = messages(SAMPLES)
    next(stream)
    everything = hello(options=Options(200 * MS, filter="none"))
    session = write_session(tmp_path / "s.memtui", chain([everything], stream))
    trace = Trace(session, result_of(Run("x", ("x",), 1.0)))
    whole = trace.training_pages()
    without_code = trace.filtered("exec")
    for pages, remaining in zip(whole, without_code, strict=True):
        assert pages.size_bytes - remaining.size_bytes == 300 * 4096  # what the made-up program touches of its code
    assert [p.size_bytes for p in trace.filtered("noaccess")] == [p.size_bytes for p in whole]
    trace.close()


def test_long_heat_maps_are_averaged_and_short_ones_are_not():
    share = np.tile(np.array([[0.0, 1.0]], np.float32), (2, 2000))
    matplotlib_svg.svg(HeatChart("h", "H", "x", "y", share, vlines=(3.0,)))
    fewer = matplotlib_svg._fewer(share, 1000)
    assert fewer.shape == (2, 1000)
    np.testing.assert_allclose(fewer, 0.5)
    assert matplotlib_svg._fewer(share, 5000) is share


def test_which_container_it_was_and_which_it_was_not(sessions, tmp_path):
    study = STUDIES["basic"]
    machine = MACHINE | {"container_why": "docker: cannot connect to unix:///home/alice/docker.sock"}
    for redact in (False, True):
        document = report.write(study, SETTING, observed(study, SETTING, sessions), machine, tmp_path, redact=redact)
        method = " ".join(document["about"]["method"])
        assert "A container here is: own PID namespaces." in method
        assert ("Not used for it: docker: cannot connect" in method) is not redact
        assert ("alice" in json.dumps(document)) is not redact
    study = STUDIES["cpus"]
    document = report.write(study, SETTING, observed(study, SETTING, sessions), machine, tmp_path, redact=False)
    assert "container" not in " ".join(document["about"]["method"]), "it has no runs in one"
