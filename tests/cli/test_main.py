"""The command line as a user meets it: bad input is one line on stderr and exit 2."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from memtui.cli import main
from memtui.core import progress_line
from memtui.core.samples import Event, Window
from memtui.recording import targets
from memtui.reports import export, process_summary
from memtui.reports.process_summary import ProcessSummary
from memtui.session.file_format import SCHEMA_VERSION
from tests.support.cli import memtui, refused
from tests.support.in_process import memtui_here
from tests.support.sessions import messages, write_session
from tests.support.users import temporary_user

ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Path:
    return write_session(tmp_path_factory.mktemp("cli") / "s.memtui", messages(30))


@pytest.fixture
def other():
    """A process that can be observed."""
    with subprocess.Popen(["sleep", "60"]) as child:
        yield child.pid
        child.kill()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["record", "--intervall", "0.2", "1"], "there is no --intervall; did you mean --interval?"),
        (["record", "--max-overhed=1%", "1"], "there is no --max-overhed; did you mean --max-overhead?"),
        (["record", "--frobnicate", "1"], "unrecognized arguments: --frobnicate"),
        (["trace", "python", "x.py", "-v"], "a program comes after --, as in memtui trace -- python x.py -v"),
        (["record", "--interval", "0", "1"], "must be above 0"),
        (["record", "--interval", "-0.5", "1"], "must be above 0"),
        (["record", "--interval", "nan", "1"], "must be above 0"),
        (["record", "--interval", "0.0005", "1"], "from 0.001 to 3600 seconds"),
        (["record", "--interval", "3601", "1"], "from 0.001 to 3600 seconds"),
        (["record", "--duration", "1e10", "1"], "ten years"),
        (["record", "--interval", "fast", "1"], "must be a number of seconds, not 'fast'"),
        (["record", "--duration", "0", "1"], "must be above 0"),
        (["record", "--tracker", "magic", "1"], "invalid choice: 'magic'"),
        (["record", "--filter", "exe", "1"], "exec"),
        (["record"], "name either a PID or a program"),
        (["record", "7", "--", "true"], "name either a PID or a program"),
        (["record", "no-such-thing"], "no process is called 'no-such-thing'"),
        (["record", "-5"], "-5"),
        (["record", "0"], "above 0"),
        (["record", "1"], "is init"),
        (["record", "4999999"], "no process has PID"),
        (["record", "--", "/no/such/program"], "no such program"),
        (
            ["record", "--", "true", "--interval"],
            "before: memtui record --interval S -- true ...; for true: memtui record -- --",
        ),
        (["run", "--", "true", "--tracker", "--filter", "x"], "--tracker behind -- has no value"),
        (["attach"], "PID"),
        (["stop"], "ID|PID|all"),
        (["mark"], "TEXT"),
        (["record", "--tracker", "pagetabel", "1"], "invalid choice: 'pagetabel'; did you mean pagetable?"),
        (["atach", "1"], "memtui: there is no command 'atach'; did you mean attach? see memtui --help"),
        (["xyzzy"], "there is no command 'xyzzy'; there are demo, attach, "),
        (["4242"], "there is no command '4242'; did you mean memtui attach 4242?"),
        (["place", "profil", "mlp"], "memtui place: there is no command 'profil'; did you mean profile?"),
        (["bench", "db", "inf"], "bench db has no 'inf'; did you mean info?"),
        (["bench", "predict", "evl"], "bench predict has no 'evl'; did you mean eval?"),
        (["record", "-x", "1"], "memtui record: unrecognized arguments: -x; see memtui record --help"),
        (["export", "x"], "required"),
        (["export", "x", "--to", "xml", "-o", "y"], "xml"),
    ],
)
def test_bad_words(words, says, tmp_path):
    refused(memtui_here(*words, cwd=tmp_path), says)
    assert list(tmp_path.iterdir()) == []


def test_own_ancestors_are_refused():
    refused(memtui("record", os.getpid()), "pausing it would stop memtui too")


def test_own_pid_is_refused(monkeypatch):
    with pytest.raises(targets.UserError, match="memtui itself"):
        targets.check_target(os.getpid())


def test_kernel_threads_are_refused():
    if not Path("/proc/2/stat").exists() or "kthreadd" not in Path("/proc/2/stat").read_text():
        pytest.skip("no kernel thread is visible in this PID namespace")
    refused(memtui("record", 2), "kernel thread" if ROOT else "")


def test_zombies_are_refused():
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        refused(memtui("record", child.pid), "zombie")


def test_an_existing_output_is_refused(other, tmp_path):
    there = tmp_path / "there.memtui"
    there.write_text("precious")
    refused(memtui("record", other, "-o", there, "--tracker", "rss"), "--force")
    assert there.read_text() == "precious"


def test_an_unwritable_output_is_refused(other, tmp_path):
    refused(memtui("record", other, "-o", tmp_path / "no" / "s.memtui", "--tracker", "rss"), "there is no folder")
    refused(memtui("record", other, "-o", "/proc/s.memtui", "--tracker", "rss"), "cannot be written")


def test_an_impossible_tracker_names_what_would_work(other, tmp_path):
    done = memtui("record", other, "-o", tmp_path / "s.memtui", "--tracker", "damon")
    refused(done, "tracker damon does not work here")
    assert "these would:" in done.stderr
    assert "rss" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["report"], ["replay"], ["export", "--to", "csv", "-o", "out"]])
@pytest.mark.parametrize("kind", ["missing", "empty", "foreign", "truncated", "newer"])
def test_bad_files(words, kind, session, tmp_path):
    bad = tmp_path / "bad.memtui"
    data = session.read_bytes()
    contents = {
        "empty": b"",
        "foreign": b"hello" * 100,
        "truncated": data[: len(data) - 5000],
        "newer": data[:60] + (SCHEMA_VERSION + 1).to_bytes(4, "big") + data[64:],
    }
    if kind != "missing":
        bad.write_bytes(contents[kind])
    refused(memtui_here(words[0], bad, *words[1:], cwd=tmp_path), str(bad))


@pytest.mark.parametrize("words", [["demo"], ["attach", "PID"], ["replay", "FILE"], ["run", "--", "true"]])
def test_a_screen_needs_a_terminal(words, session, other):
    words = [{"PID": other, "FILE": session}.get(w, w) for w in words]
    refused(memtui(*words), "memtui record")


def test_help_and_version():
    assert memtui("--version").stdout.startswith("memtui ")
    help_text = memtui("--help").stdout
    commands = "demo attach run record replay list stop mark report export doctor"
    for command in commands.split():
        assert f"\n  {command} " in help_text
        assert memtui(command, "--help").returncode == 0
    assert memtui().stdout == help_text


def test_report(session):
    text = memtui("report", session)
    assert text.returncode == 0
    assert "python train.py" in text.stdout
    report = json.loads(memtui("report", session, "--json").stdout)
    assert report["samples"] == 30
    assert report["target"] == {"pid": 4242, "command": "python train.py --lr 0.1", "start": 777}
    assert report["wss_bytes"]["status"] == "ok"
    assert report["wss_bytes"]["median"] == (1024 + 2048 + 300 + 8) * 4096
    assert report["interval_s"] == report["true_interval_s"] == 0.2
    assert report["intervals_s"] == [0.2, 0.2]
    assert report["overhead"]["paused_fraction"] == pytest.approx(3 / 203, rel=0.05)
    power = {p["device"]: p for p in report["power"]}
    assert power["CPU"]["mean_w"] is None
    assert power["CPU"]["reason"] == "no RAPL zone"
    assert power["GPU 0"]["energy_j"] == 60 * 25
    assert report["processes"][0]["role"] == "target"
    for key in ("tracker", "flush", "rearm", "rss_bytes", "reuse", "gaps", "disturbed"):
        assert key in report


def test_report_as_a_page_is_the_exported_one(session, tmp_path):
    assert memtui("export", session, "--to", "html", "-o", tmp_path).returncode == 0
    assert memtui("report", session, "--html").stdout == (tmp_path / "report.html").read_text("utf-8")
    refused(memtui_here("report", session, "--html", "--json"), "not allowed with argument")


def test_report_tells_of_marks_and_of_intervals_that_changed(tmp_path):
    def stream():
        *messages_before, end = messages(10)
        for message in messages_before:
            if isinstance(message, Window) and message.sample >= 5:
                message = replace(message, asked_ns=10**9)
            yield message
        yield Event(messages_before[-1].end_ns - 10**8, "mark", "epoch 3")
        yield end

    path = write_session(tmp_path / "s.memtui", stream())
    report = json.loads(memtui("report", path, "--json").stdout)
    assert report["intervals_s"] == [0.2, 1.0]
    assert tuple(report["marks"][-1][key] for key in ("kind", "text")) == ("mark", "epoch 3")
    text = memtui("report", path).stdout
    assert "asked 200 ms to 1.0 s" in text
    assert "epoch 3" in text
    assert memtui("export", path, "--to", "svg", "-o", tmp_path / "svg").returncode == 0
    (figure,) = (tmp_path / "svg").glob("reuse*")
    assert "window of 0.2 s to 1 s" in figure.read_text()


def test_a_report_for_people_names_the_largest_processes_only():
    child = ProcessSummary(0, "child", 0, "", None, "", False, None, 0.0, None, None, None, None, None, "", None, "")
    processes = [replace(child, pid=pid, rss_bytes=pid * 4096.0) for pid in range(60)]
    processes.insert(7, replace(child, pid=999, role="target RANK=0"))
    listed = [process.pid for process in process_summary._largest(processes)]
    assert listed == [999, *range(41, 60)]


def test_report_without_a_working_set_says_why(tmp_path):
    path = write_session(tmp_path / "rss.memtui", messages(10, tracked=False))
    report = json.loads(memtui("report", path, "--json").stdout)
    assert report["wss_bytes"]["median"] is None
    assert "needs root" in report["wss_bytes"]["reason"]
    assert report["reuse"]["median_bytes"] is None
    assert report["rss_bytes"]["median"] > 80 << 20
    assert report["processes"][0]["wss_bytes"] is None


def test_export_csv(session, tmp_path):
    done = memtui("export", session, "--to", "csv", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    heads = {p.stem: p.read_text().splitlines()[0] for p in out.glob("*.csv")}
    assert heads["samples"].startswith("sample,pid,start_ns,end_ns,paused_ns,wss_bytes,rss_bytes")
    assert heads["pages"] == "sample,pid,start,end,page_bytes"
    assert heads["vmas"].startswith("pid,start,end,perms,name,first_sample,last_sample,filtered")
    assert heads["reuse"] == "pid,bound,distance_bytes,count"
    assert heads["power"].startswith("t_ns,device,watts,joules,source,status")
    rows = [line.split(",") for line in (out / "samples.csv").read_text().splitlines()[1:]]
    assert len(rows) == 60
    assert {row[1] for row in rows} == {"0", "4242"}
    pages = [line.split(",") for line in (out / "pages.csv").read_text().splitlines()[1:]]
    of_first = sum(int(end) - int(start) for sample, _, start, end, _ in pages if sample == "0")
    assert of_first == (1024 + 2048 + 8) * 4096
    meta = json.loads((out / "meta.json").read_text())
    assert meta["clock"]["boot_id"]
    assert "units" in meta
    refused(memtui_here("export", session, "--to", "csv", "-o", out), "--force")
    assert memtui("export", session, "--to", "csv", "-o", out, "--force").returncode == 0


def test_export_json(session, tmp_path):
    assert memtui("export", session, "--to", "json", "-o", tmp_path).returncode == 0
    document = json.loads((tmp_path / "session.json").read_text())
    assert len(document["samples"]) == 60
    assert document["reuse"][0]["distance_bytes"] == -1


def test_under_sudo_an_export_is_the_users(session):
    """As sudo starts it: root, with the user in SUDO_UID."""
    with temporary_user() as user:
        mine = user.home / "s.memtui"
        mine.write_bytes(session.read_bytes())
        environ = {"SUDO_UID": str(user.uid), "SUDO_GID": str(user.gid), "PATH": os.environ["PATH"], "HOME": "/root"}
        done = memtui("export", mine, "--to", "svg", "-o", user.home / "out", env=environ)
        assert done.returncode == 0, done.stderr
        paths = [user.home / "out", *(user.home / "out").iterdir()]
        assert {(path.stat().st_uid, path.stat().st_mode & 0o777) for path in paths[1:]} == {(user.uid, 0o600)}
        assert (paths[0].stat().st_uid, paths[0].stat().st_mode & 0o777) == (user.uid, 0o700)
        refused(memtui("export", mine, "--to", "svg", "-o", "/root/out", env=environ), "cannot be written")
        mine.chmod(0o600)
        os.chown(mine, 0, 0)
        refused(memtui("report", mine, env=environ), "cannot be read: Permission denied")


def test_a_closed_pipe_is_no_error(session):
    command = f"{sys.executable} -m memtui export --help | head -1; {sys.executable} -m memtui report {session} | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(("form", "files"), [("csv", "20 files"), ("json", "session.json"), ("html", "report.html")])
def test_an_export_that_takes_its_time_says_so(form, files, session, tmp_path, monkeypatch, capsys):
    def slow(*argv, **options):
        time.sleep(0.5)
        return original(*argv, **options)

    argv = ["export", str(session), "--to", form, "-o"]
    monkeypatch.setattr("memtui.cli.export.SLOW_S", 60.0)
    assert main.main([*argv, str(tmp_path / "fast")]) == 0
    assert capsys.readouterr().err == ""
    original = export.export
    monkeypatch.setattr(export, "export", slow)
    monkeypatch.setattr("memtui.cli.export.SLOW_S", 0.1)
    monkeypatch.setattr(progress_line, "LOG_EVERY_S", 0.1)
    assert main.main([*argv, str(tmp_path / "slow")]) == 0
    output = capsys.readouterr()
    *lines_before, end = output.err.splitlines()
    assert all(line.startswith(f"memtui export: writing {form} into {tmp_path / 'slow'}") for line in lines_before)
    assert len(lines_before) >= 3
    assert end.startswith(f"memtui export: wrote {files}, ")
    assert re.search(r", [0-9.]+ (B|KiB|MiB), in [0-9.]+ m?s$", end), end
    assert sorted(output.out.split()) == sorted(map(str, (tmp_path / "slow").iterdir()))
