"""Standard streams that are full, closed or gone, and a current directory that is not there: one line, or none."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sessions import messages, write_session

pytestmark = pytest.mark.real_clock(alone=False)

MEMTUI = shlex.join([sys.executable, "-m", "memtui"])


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("session") / "s.memtui"
    write_session(path, messages(20))
    return path


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line of a shell, in a folder that is the home, too."""
    environment = os.environ | {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "PYTHONSAFEPATH": "1"}
    environment.pop("PYTHONUNBUFFERED", None)
    command = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


PRINTED = (
    "--help",
    "--version",
    "report {s}",
    "report {s} --json",
    "report {s} --html",
    "bench list",
    "completion bash",
    "list",
)


@pytest.mark.parametrize("words", PRINTED)
def test_a_full_disk_is_one_line(words, session, tmp_path):
    done = shell(f"{MEMTUI} {words.format(s=session)} > /dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("words", PRINTED)
def test_a_reader_that_left_is_no_error(words, session, tmp_path):
    done = shell(f"{MEMTUI} {words.format(s=session)} | true", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", PRINTED)
def test_an_output_that_is_closed_gets_nothing(words, session, tmp_path):
    done = shell(f"{MEMTUI} {words.format(s=session)} >&-", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("where", ["2> /dev/full", "2>&-", "> /dev/full 2>&1", ">&- 2>&- <&-"])
@pytest.mark.parametrize("words", ["report none.memtui", "nonsense", "record", "stop nobody"])
def test_who_cannot_hear_of_an_error_gets_its_exit_code(words, where, tmp_path):
    done = shell(f"{MEMTUI} {words} {where}", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_closed_streams_do_not_lead_into_the_session(tmp_path):
    """What is opened first would get their numbers, and what is printed."""
    done = shell(
        f"sleep 60 & {MEMTUI} record $! -o s.memtui --duration 1 <&- >&- 2>&-; code=$?; kill $!; exit $code", tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    report = shell(f"{MEMTUI} report s.memtui --json", tmp_path)
    assert json.loads(report.stdout)["end"] == "duration"


GONE = "mkdir gone && cd gone && rmdir ../gone && "


@pytest.mark.parametrize(
    "words", ["list", "report {s}", "report {s} --json", "--help", "bench list", "export {s} --to json -o {s}.out"]
)
def test_no_current_directory_is_needed_where_names_are_whole(words, session, tmp_path):
    done = shell(f"{GONE}{MEMTUI} {words.format(s=session)}", tmp_path)
    assert done.returncode == 0, done
    assert "rror" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "report s.memtui",
        "export {s} --to json -o out",
        "record $$ -o s.memtui",
        "tune grid.toml",
        "train x --config c.toml",
        "bench db info --db x.db",
        "import x.log -o y",
        "place show p.memtui",
    ],
)
def test_names_in_a_directory_that_is_not_there_are_refused_in_one_line(words, session, tmp_path):
    done = shell(f"{GONE}{MEMTUI} {words.format(s=session)}", tmp_path)
    assert done.returncode in (1, 2), done
    assert done.stderr.count("\n") == 1, done.stderr
    assert "--debug" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_recording_without_a_current_directory(tmp_path):
    done = shell(
        f"sleep 60 & {GONE}{MEMTUI} record $! -o {tmp_path}/s.memtui --duration 1; code=$?; kill $!; exit $code",
        tmp_path,
    )
    assert done.returncode == 0, done
    assert "rror" not in done.stderr
