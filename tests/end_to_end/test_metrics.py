"""``--metrics``: a recording that is scraped while it goes on, by a plain client and by a Prometheus server."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from memtui.session.session import Session
from tests.support.cli import memtui
from tests.support.sessions import messages, write_session

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
pytestmark = pytest.mark.real_clock(alone=False)

# 64 MiB that are written again and again.
_PROGRAM = """
import time
b = bytearray(64 << 20)
while True:
    for i in range(0, len(b), 4096): b[i] = 1
    time.sleep(0.05)
"""
MIB = 1 << 20


def fetch(url: str, seconds: float = 10.0) -> str:
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        return answer.read().decode()


def until(ask: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first answer that is one."""
    deadline_s = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline_s, "no answer in time"
        time.sleep(0.2)
    return answer


@pytest.fixture
def recording(tmp_path):
    """A recording in progress, the address of its metrics, and its session."""
    path = tmp_path / "s.memtui"
    target = subprocess.Popen([sys.executable, "-c", _PROGRAM])
    words = ("record", str(target.pid), "--metrics", "0", "-o", str(path), "--interval", "0.5")
    process = subprocess.Popen([sys.executable, "-m", "memtui", *words], stderr=subprocess.PIPE, text=True)
    try:
        said = iter(process.stderr.readline, "")
        (url,) = next(
            filter(None, (re.findall(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", line) for line in said))
        )
        yield process, url, path
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        target.kill()
        target.wait()


def test_a_client_gets_what_the_session_has(recording):
    process, url, path = recording

    def windows() -> dict[str, list] | None:
        families = {family.name: family.samples for family in parser.text_string_to_metric_families(fetch(url))}
        return families if families.get("memtui_windows") and families["memtui_windows"][0].value >= 3 else None

    families = until(windows)
    assert families["memtui_resident_bytes"][0].value > 64 * MIB
    seen = {sample.value for sample in families.get("memtui_working_set_bytes", [])}
    assert all(value > 64 * MIB for value in seen), "where this machine sees pages"
    process.send_signal(signal.SIGINT)
    process.wait(30)
    with pytest.raises(urllib.error.URLError):
        fetch(url)
    reader = Session(path)
    assert seen <= {float(value) for value in reader.samples.wss_bytes[:]}
    reader.close()


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_a_prometheus_server_scrapes_it(recording, tmp_path):
    _, url, _ = recording
    target = urllib.parse.urlsplit(url).netloc
    config = tmp_path / "prometheus.yml"
    config.write_text(
        f"scrape_configs: [{{job_name: memtui, scrape_interval: 1s, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    log_path = tmp_path / "log"
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    port = _free_port()
    with log_path.open("w") as log:
        server = subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:

        def ask(query: str) -> list[dict[str, Any]]:
            asked = urllib.parse.urlencode({"query": query})
            try:
                return json.loads(fetch(f"http://127.0.0.1:{port}/api/v1/query?{asked}"))["data"]["result"]
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None, log_path.read_text()
                return []

        (resident,) = until(lambda: ask('memtui_resident_bytes{session="s.memtui"}'))
        assert float(resident["value"][1]) > 64 * MIB
        assert resident["metric"]["job"] == "memtui"
        (rate,) = until(lambda: ask("rate(memtui_windows_total[30s]) > 0"))
        assert float(rate["value"][1]) < 5
    finally:
        server.terminate()
        server.wait(20)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_what_cannot_be_served_is_said_before_anything_starts(tmp_path):
    path, token = tmp_path / "s.memtui", tmp_path / "token"
    token.write_text("abcdefghijklmnop")
    port = _free_port()
    for words, why in (
        (("--metrics", "0.0.0.0:9400"), "--metrics-token-file"),
        (("--metrics", "example.com:80"), "is not an IP address"),
        (("--metrics-token-file", token), "is for --metrics"),
        (("--metrics", "9400", "--metrics-token-file", tmp_path), "is not a file, but a folder"),
    ):
        done = memtui("record", *words, "-o", path, "--", "true")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert why in done.stderr
        assert list(tmp_path.iterdir()) == [token]
    with socket.create_server(("127.0.0.1", port)):
        done = memtui("record", "--metrics", port, "-o", path, "--", "touch", tmp_path / "ran")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert f"cannot listen at 127.0.0.1:{port}" in done.stderr
    assert list(tmp_path.iterdir()) == [token], "the program was not started"


def test_a_session_is_served_until_it_is_enough(tmp_path):
    path = write_session(tmp_path / "s.memtui", messages(20))
    words = ("export", str(path), "--to", "openmetrics", "--metrics", "0")
    process = subprocess.Popen([sys.executable, "-m", "memtui", *words], stderr=subprocess.PIPE, text=True)
    url = re.search(r"http://\S+/metrics", process.stderr.readline())[0]
    assert 'memtui_windows_total{host="' in fetch(url)
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=10)[1], process.returncode) == ("", 0)
    neither = memtui("export", path, "--to", "openmetrics")
    assert (neither.returncode, neither.stderr.count("\n")) == (2, 1)
