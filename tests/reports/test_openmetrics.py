"""``export --to openmetrics``, read back by the parser of prometheus-client, and by promtool where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import pairwise

import pytest

from memtui.core.errors import UserError
from memtui.reports.export import export
from memtui.reports.export.openmetrics import FAMILIES, FILE
from memtui.reports.source import Source
from tests.support.in_process import memtui_here
from tests.support.sessions import messages, write_session

parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="prometheus-client is not installed")


@pytest.fixture
def session(tmp_path):
    return write_session(tmp_path / "s.memtui", messages(20))


def samples_of(path, folder, **more) -> dict[str, list]:
    """Export and read back: the samples of each family, by its name without ``memtui_``."""
    (file,) = export(path, "openmetrics", folder, **more)
    assert file.name == FILE
    families = list(parser.text_string_to_metric_families(file.read_text()))
    return {family.name.removeprefix("memtui_"): family.samples for family in families}


def test_values_and_times_are_those_of_the_session(session, tmp_path):
    families = samples_of(session, tmp_path / "out")
    source = Source(session)
    windows, offset_ns = source.samples, source.hello.clock.wall_offset_ns
    for name, values in (("working_set_bytes", windows.wss_bytes), ("resident_bytes", windows.rss_bytes)):
        assert [sample.value for sample in families[name]] == values[:].tolist()
    times = [float(sample.timestamp) for sample in families["working_set_bytes"]]
    assert times == pytest.approx(((windows.end_ns[:] + offset_ns) / 1e9).tolist(), abs=1e-6)
    paused = families["paused_seconds"]
    assert paused[-1].value == pytest.approx(windows.paused_ns[:].sum() / 1e9)
    assert paused[-1].name == "memtui_paused_seconds_total"
    assert families["windows"][-1].value == len(windows)
    assert {sample.labels["session"] for sample in families["windows"]} == {"s.memtui"}
    source.close()


def test_counters_rise_and_energy_begins_at_nothing(session, tmp_path):
    families = samples_of(session, tmp_path / "out")
    counters = {family.name for family in FAMILIES if family.counter}
    for name in counters & families.keys():
        series: dict[str, list[float]] = {}
        for sample in families[name]:
            series.setdefault(json.dumps(sample.labels, sort_keys=True), []).append(sample.value)
        for values in series.values():
            assert all(before <= after for before, after in pairwise(values)), name
    energy = [sample.value for sample in families["energy_joules"]]
    assert energy[0] == 0 < energy[-1]


def test_what_was_not_measured_has_no_sample(session, tmp_path):
    """No PSS was read, and nothing was trained: neither is 0."""
    families = samples_of(session, tmp_path / "out")
    assert "proportional_resident_bytes" not in families
    assert "training_steps" not in families


def test_a_redacted_one_names_neither_host_nor_path(session, tmp_path):
    plain, redacted = (samples_of(session, tmp_path / f"{redact}", redact=redact) for redact in (False, True))
    hosts = [{sample.labels["host"] for sample in families["windows"]} for families in (plain, redacted)]
    assert hosts[0] != hosts[1]
    assert [s.value for s in plain["working_set_bytes"]] == [s.value for s in redacted["working_set_bytes"]]


def test_without_the_library_a_line_says_what_to_install(session, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client.openmetrics.exposition", None)
    with pytest.raises(UserError, match=r"memtui\[metrics\]"):
        export(session, "openmetrics", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_on_the_command_line(session, tmp_path):
    done = memtui_here("export", session, "--to", "openmetrics", "-o", tmp_path / "out")
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "out" / FILE))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_it(session, tmp_path):
    export(session, "openmetrics", tmp_path / "out")
    words = ["promtool", "tsdb", "create-blocks-from", "openmetrics", tmp_path / "out" / FILE, tmp_path / "data"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "data" / "wal").mkdir()  # as a server has it
    words = ["promtool", "tsdb", "dump", tmp_path / "data"]
    dumped = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert len([line for line in dumped.splitlines() if "memtui_working_set_bytes" in line]) == 20
