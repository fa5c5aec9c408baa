"""The newest figures of a session, as Prometheus scrapes them."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from memtui.core.metrics_listener import ListenAddress
from memtui.core.readings import MemoryLimit, Power
from memtui.core.samples import Process
from memtui.reports.export.openmetrics import FAMILIES
from memtui.reports.metrics_server import _FINDING, _FULL_IN, MOST_CLIENTS, CurrentFigures, serve
from memtui.reports.source import Source
from memtui.reports.verdict.verdict import RULES
from tests.support.growing_sessions import GIB, MIB, START_S, S, filling, session_of, steady
from tests.support.sessions import messages, write_session

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
DEPLOY = Path(__file__).parents[2] / "deploy"
SLURM = "/slurm/uid_0/job_77/step_0"


def figures_of(path, clock_s=lambda: 0.0) -> dict[str, list]:
    source = Source(path)
    metrics = CurrentFigures(source, clock_s).collect()
    source.close()
    return {metric.name.removeprefix("memtui_"): metric.samples for metric in metrics}


def test_figures_are_those_of_the_newest_window(tmp_path):
    path = write_session(tmp_path / "s.memtui", messages(20))
    figures = figures_of(path)
    source = Source(path)
    windows = source.samples
    for name, value in (
        ("working_set_bytes", windows.wss_bytes[-1]),
        ("resident_bytes", windows.rss_bytes[-1]),
        ("paused_seconds", windows.paused_ns[:].sum() / 1e9),
        ("windows", 20),
    ):
        assert [sample.value for sample in figures[name]] == [pytest.approx(float(value))], name
    assert figures["windows"][0].labels == {"session": "s.memtui", "host": source.hello.host.hostname}
    assert "proportional_resident_bytes" not in figures, "no PSS was read"
    assert "training_steps" not in figures
    energy = {
        (reading.device, reading.scope): reading.energy_j for reading in source.power(0, 2**62) if reading.energy_j
    }
    assert {(s.labels["device"], s.labels["scope"]): s.value for s in figures["energy_joules"]} == energy
    source.close()


def test_findings_and_the_forecast(tmp_path):
    """A leak towards a limit of 2 GiB, in a job of Slurm."""
    path = session_of(
        tmp_path / "s.memtui",
        lambda n: (20, 300 + 5 * n, 30),
        limit=lambda n: replace(filling(n), cgroup=SLURM),
        windows=120,
    )
    figures = figures_of(path)
    found = {sample.labels["rule"]: sample.value for sample in figures["finding"]}
    assert found["oom"] == 1
    assert 0 in found.values()
    assert len(found) < len(RULES), "a rule that cannot know says nothing"
    left_bytes = figures["memory_left_bytes"][0].value
    assert figures["memory_full_in_seconds"][0].value == pytest.approx(left_bytes / (5 * MIB), rel=0.05)
    assert {sample.labels["limit"] for sample in figures["memory_left_bytes"]} == {"step 0 of Slurm job 77"}
    assert figures["windows"][0].labels["job"] == "77"
    assert "memory_full_in_seconds" not in figures_of(session_of(tmp_path / "t.memtui", steady))


def test_a_rank_has_its_numbers_and_no_path_of_a_cgroup_is_shown(tmp_path):
    def stream():
        for message in messages(5):
            if isinstance(message, Process):
                message = replace(message, role=f"{message.role} RANK=3 LOCAL_RANK=1")
            yield message
            if isinstance(message, Process):
                yield Power(limits=(MemoryLimit(START_S * S, "/home/alice/x", GIB, MIB, 0, 0),))

    path = write_session(tmp_path / "s.memtui", stream())
    source = Source(path)
    labels = {}
    for metric in CurrentFigures(source).collect():
        for sample in metric.samples:
            labels |= sample.labels
    source.close()
    assert (labels["rank"], labels["local_rank"]) == ("3", "1")
    assert not [value for value in labels.values() if "/" in value]


def test_a_counter_stays_where_nothing_is_counted_any_more(tmp_path):
    """No power is read after the first scrape: its gauge goes, its counter does not."""
    source, now_s = Source(write_session(tmp_path / "s.memtui", messages(20))), [0.0]
    figures = CurrentFigures(source, lambda: now_s[0])
    before = {metric.name: metric.samples for metric in figures.collect()}
    assert before["memtui_power_watts"]
    source.power = lambda *_: []
    now_s[0] = 60.0
    after = {metric.name: metric.samples for metric in figures.collect()}
    source.close()
    assert after["memtui_energy_joules"] == before["memtui_energy_joules"]
    assert "memtui_power_watts" not in after


def test_many_clients_cost_as_much_as_one(tmp_path):
    source, now_s = Source(write_session(tmp_path / "s.memtui", messages(5))), [0.0]
    figures = CurrentFigures(source, lambda: now_s[0])
    first = figures.collect()
    now_s[0] = 0.9
    assert figures.collect() is first
    now_s[0] = 1.0
    assert figures.collect() is not first
    source.close()


class Served:
    """A session that is served in a thread."""

    def __init__(self, path: Path, address: ListenAddress, token: str = "") -> None:
        self._end = threading.Event()
        listener = address.listen()
        self.name = listener.getsockname()
        self.thread = threading.Thread(target=serve, args=(path, listener, token, self._end.wait), daemon=True)
        self.thread.start()

    def get(self, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", timeout=10)
        connection.sock = self.connect()
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX if isinstance(self.name, str) else socket.AF_INET)
        client.settimeout(10)
        client.connect(self.name)
        return client

    def end(self) -> None:
        self._end.set()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def session(tmp_path):
    return write_session(tmp_path / "s.memtui", messages(20))


def test_over_http(session):
    served = Served(session, ListenAddress())
    status, text = served.get()
    assert status == 200
    families = {family.name for family in parser.text_string_to_metric_families(text)}
    assert {"memtui_working_set_bytes", "memtui_windows"} <= families
    status, text = served.get(Accept="application/openmetrics-text; version=1.0.0")
    assert (status, text.endswith("# EOF\n")) == (200, True)
    assert served.get("/") == (404, "metrics are at /metrics\n")
    assert served.get(method="POST")[0] == 405
    assert served.get("/metrics?name[]=nothing")[0] == 200
    served.end()


def test_who_has_no_token_gets_nothing(session):
    served = Served(session, ListenAddress(), "abcdefghijklmnop")
    for headers in ({}, {"Authorization": "Bearer abcdefghijklmno"}, {"Authorization": "Bearer \xfc"}):
        assert served.get(**headers) == (401, "a token is needed\n")
    assert served.get(Authorization="Bearer abcdefghijklmnop")[0] == 200
    served.end()


def test_on_a_unix_socket_which_goes_with_it(session, tmp_path):
    path = tmp_path / "m.sock"
    served = Served(session, ListenAddress.parse(str(path)))
    assert served.get()[0] == 200
    served.end()
    assert not path.exists()


def test_clients_that_say_nothing_keep_nobody_out_for_long(session):
    served = Served(session, ListenAddress())
    silent = [served.connect() for _ in range(MOST_CLIENTS - 1)]
    assert served.get()[0] == 200
    silent += [served.connect() for _ in range(3)]
    assert silent[-1].recv(1) == b"", "there are too many"
    for client in silent:
        client.close()
    deadline_s = time.monotonic() + 10
    while True:
        try:
            assert served.get()[0] == 200
            break
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < deadline_s
    served.end()


def test_a_session_that_was_damaged_is_one_line(session):
    served = Served(session, ListenAddress())
    assert served.get()[0] == 200
    session.write_bytes(b"x" * session.stat().st_size)
    time.sleep(1.1)
    status, text = served.get()
    assert (status, text.count("\n")) == (503, 1)
    served.end()


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bmemtui_[a-z_]+", text))


def test_board_and_alerts_use_metrics_that_there_are():
    there = {f"memtui_{family.name}{'_total' * family.counter}" for family in (*FAMILIES, _FINDING, _FULL_IN)}
    board = json.loads((DEPLOY / "grafana-board.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    used = names_in("\n".join(expressions)) | names_in((DEPLOY / "memtui-alerts.yml").read_text())
    assert used
    assert used <= there


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_rules_and_figures(session):
    for words in (["check", "config", "prometheus.yml"], ["check", "rules", "memtui-alerts.yml"]):
        done = subprocess.run(["promtool", *words], cwd=DEPLOY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    served = Served(session, ListenAddress())
    text = served.get()[1]
    served.end()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
