"""``memtui tune`` as it is typed, with runs that are real processes: interrupted, killed, resumed, refused."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from memtui.training.tune import runner as module
from memtui.training.tune.grid import GridPoint
from memtui.training.tune.runner import command_of
from tests.support import tune_stub
from tests.support.cli import refused
from tests.support.folders import names_in
from tests.support.in_process import memtui_here
from tests.support.repository import ROOT
from tests.support.schemas import check
from tests.support.tune_stub import FAILS, FAILS_SILENTLY, IS_KILLED, SAYS_NOTHING, STOPS

COMMAND = (sys.executable, "-P", tune_stub.__file__, "tune")
GRID = ("--grid", "name=fcReLu,long_fc", "--grid", "type=BP,DFA", "--grid", "seed=1,2,3")  # 12 runs
RUNS = 12


def environment(folder: Path, seconds: float) -> dict[str, str]:
    more = {"TUNE_RUNS": str(folder / "runs"), "TUNE_SLEEP": str(seconds), "PYTHONPATH": str(ROOT)}
    return {**os.environ, **more}


def tuned(folder: Path, *argv: str, seconds: float = 0.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *argv], cwd=folder, env=environment(folder, seconds), capture_output=True, text=True, timeout=120
    )


def started(folder: Path, *argv: str, seconds: float = 0.0, **more) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *argv],
        cwd=folder,
        env=environment(folder, seconds),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def begun(folder: Path) -> list[tuple[str, int]]:
    """(what, process) of every run that ever began."""
    try:
        lines = (folder / "runs").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [(line.rpartition(" ")[0], int(line.rpartition(" ")[2])) for line in lines]


def ended_in_order(folder: Path) -> list[int]:
    """The processes that were asked to end, and did."""
    return list(map(int, (folder / "runs.ended").read_text().split()))


def table(folder: Path) -> list[dict[str, str]]:
    paths = list((folder / "results").glob("*/summary.csv"))
    assert len(paths) <= 1
    return list(csv.DictReader(paths[0].read_text().splitlines())) if paths else []


def none_lives(folder: Path, seconds: float = 5.0) -> bool:
    """Whether all runs have ended; those of a killed one may take a moment."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(_lives(pid) for _, pid in begun(folder)):
            return True
        time.sleep(0.02)
    return False


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def until(what, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_run_is_memtui_train_and_no_shell(monkeypatch):
    argv = command_of(GridPoint("mine", {"data": "a; rm -rf $HOME 'x"}, ()), Path("n.toml"))
    assert argv == [
        sys.executable, "-P", "-m", "memtui", "train", "mine", "--config", "n.toml", "--set", "data=a; rm -rf $HOME 'x",
        "--no-tui", "--json",
    ]  # fmt: skip
    assert "--config" not in command_of(GridPoint("fcReLu", {}, ()), None)
    with_events = command_of(GridPoint("fcReLu", {"seed": "1"}, ()), None, Path("events/1-seed=1"))
    assert with_events[-6:] == ["--set", "seed=1", "--tensorboard", "events/1-seed=1", "--no-tui", "--json"]


def test_the_grid_of_the_seed(tmp_path):
    """C7: 36 runs in order; those that fail are rows, the others go on; again, nothing is run."""
    (tmp_path / "grid.toml").write_text(
        f"[grid]\nname = ['fcReLu', 'mine']\ntype = ['BP', 'DFA']\nbatch_size = [50, {FAILS}, {STOPS}]\n"
        "learning_rate = [0.01, 0.001, 0.0001]\n[networks.mine]\nextends = 'vgg_16'\n"
    )
    done = tuned(tmp_path, "grid.toml")
    assert done.returncode == 0, done.stderr
    messages = [line for line in done.stderr.splitlines() if not line.startswith("memtui tune: training: ")]
    assert messages == ["memtui tune: 12 of 36 runs failed, and why is in summary.csv; --retry runs them once more"]
    head, *lines, summary = done.stdout.splitlines()
    assert head.split() == ["accuracy", "loss", "peak", "above", "time", "run"]
    assert len(lines) == 36
    assert "failed: the batch is \\x1b[31munlucky" in done.stdout
    assert "stopped early: expected 30 after 3 epochs, got 28" in done.stdout
    assert (tmp_path / summary).name == "summary.csv"
    rows = table(tmp_path)
    assert [(row["name"], row["type"], row["batch_size"], row["learning_rate"]) for row in rows] == [
        (name, rule, batch, rate)
        for name in ("fcReLu", "mine") for rule in ("BP", "DFA") for batch in ("50", FAILS, STOPS)
        for rate in ("0.01", "0.001", "0.0001")
    ]  # fmt: skip
    for row in rows:
        assert row["exit"] == ("1" if row["batch_size"] == FAILS else "0")
        assert row["error"] == ("the batch is \\x1b[31munlucky" if row["batch_size"] == FAILS else "")
        assert row["stopped"] == ("expected 30 after 3 epochs, got 28" if row["batch_size"] == STOPS else "")
        assert (row["accuracy"] == "") == (row["peak_above_start_bytes"] == "") == (row["batch_size"] == FAILS)
        output = (tmp_path / summary).parent / row["output"]
        assert (json.loads(output.read_text())["network"] if row["exit"] == "0" else "") in (row["name"], "")
        assert "iteration: 3" in output.with_suffix(".err").read_text()
    assert len(begun(tmp_path)) == 36
    assert all("--config" not in argv for argv, _ in begun(tmp_path))

    again = tuned(tmp_path, "grid.toml", "--json")
    assert again.returncode == 0
    assert "36 of 36 runs have ended" in again.stderr
    document = json.loads(again.stdout)
    check("tune", document)
    assert (document["runs"], document["failed"], len(document["rows"])) == (36, 12, 36)
    first = document["rows"][0]
    assert (first["name"], first["batch_size"], first["learning_rate"]) == ("fcReLu", 50, 0.01)
    assert (first["accuracy"], first["stopped"], first["error"]) == (float(rows[0]["accuracy"]), None, None)
    assert len(begun(tmp_path)) == 36
    assert table(tmp_path) == rows

    retried = tuned(tmp_path, "grid.toml", "--retry")
    assert len(begun(tmp_path)) == 48
    assert retried.stdout.count("failed:") == 12
    assert len(table(tmp_path)) == 36


def test_every_end_of_a_run_is_a_row(tmp_path):
    result = tuned(tmp_path, "fcReLu", "--grid", f"batch_size={IS_KILLED},{SAYS_NOTHING},{FAILS_SILENTLY},31", "--json")
    assert result.returncode == 0
    killed, silent, quiet, diverged = json.loads(result.stdout)["rows"]
    assert (killed["exit"], killed["error"]) == (-9, "was killed by SIGKILL")
    assert silent["error"].startswith("has no result at the end of 2-")
    assert quiet["error"] == "ended with code 3, and said nothing"
    assert (diverged["loss"], diverged["error"]) == (None, None)


def test_only_when_all_fail_it_fails(tmp_path):
    result = tuned(tmp_path, "fcReLu", "--grid", f"batch_size={FAILS}")
    assert (result.returncode, "1 of 1 runs failed" in result.stderr) == (1, True)


def test_a_change_of_the_grid_is_another_folder(tmp_path):
    for argv in (("--set", "epochs=2"), (), ("--set", "epochs=2"), ("--set", "epochs=2", "--again")):
        assert tuned(tmp_path, "fcReLu", "--grid", "seed=1", *argv).returncode == 0
    assert len(begun(tmp_path)) == 3
    assert len(list((tmp_path / "results").iterdir())) == 3


def test_where_results_go(tmp_path):
    assert tuned(tmp_path, "fcReLu", "--grid", "seed=1", "-o", "a/b").returncode == 0
    (folder,) = (tmp_path / "a" / "b").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [
        "1-seed=1.err",
        "1-seed=1.out",
        "grid.json",
        "summary.csv",
    ]
    seen = tuned(tmp_path, str(folder))
    assert "all 1 runs have ended" in seen.stdout
    assert "seed=1" in seen.stdout
    document = json.loads(tuned(tmp_path, str(folder), "--json").stdout)
    check("tune", document)
    assert document["runs"] == 1
    assert "1 of 1 runs have ended" in tuned(tmp_path, "--resume", str(folder)).stderr
    assert len(begun(tmp_path)) == 1


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "which runs? name a grid"),
        (("fcReLu",), "which runs? name a grid"),
        (("--grid", "type=BP"), "which network?"),
        (("fcRelu", "--grid", "type=BP"), "there is no network fcRelu; did you mean fcReLu"),
        (("fcReLu", "--grid", "typ=BP"), "no setting typ; did you mean type"),
        (("fcReLu", "--grid", "type=BP", "--grid", "type=DFA"), "the axis type stands there twice"),
        (("fcReLu", "--grid", "type=BP,"), "not of the form key=value,value"),
        (("fcReLu", "--grid", "type=BP", "--set", "type=DFA"), "is an axis, and is set for all runs"),
        (("fcReLu", "--grid", "type=BP", "--set", "epoch=3"), "no setting epoch; did you mean epochs"),
        (("fcReLu", "--grid", "type=BP", "--config", "nowhere.toml"), "nowhere.toml: cannot be read: No such file"),
        (("fcReLu", "--grid", "type=BP", "--jobs", "0"), "must be a whole number from 1"),
        (("nowhere.toml",), "nowhere.toml: cannot be read: No such file"),
        (("nowhere.toml", "--grid", "type=BP"), "each say which runs"),
        (("--resume", "nowhere"), "has no grid.json"),
        (("--resume", "nowhere", "--grid", "type=BP"), "no --grid beside it"),
        (("--resume", "nowhere", "fcReLu"), "no fcReLu beside it"),
        (("/",), "is not a folder of memtui tune"),
        (("/", "--set", "epochs=3"), "a folder is looked at, so --set has no meaning"),
        (("/", "--tensorboard", "events"), "is not a folder of memtui tune"),  # it may be of the config file
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(tmp_path, argv, says):
    refused(memtui_here("tune", *argv, cwd=tmp_path), says)
    assert list(tmp_path.iterdir()) == []


def test_event_files_of_each_run_have_a_folder_of_its_name(tmp_path):
    (tmp_path / "file").touch()
    argv = ("fcReLu", "--grid", "type=BP,DFA", "--tensorboard")
    refusal = tuned(tmp_path, *argv, "file/events")
    assert (refusal.returncode, "name another folder with --tensorboard" in refusal.stderr) == (2, True)
    assert names_in(tmp_path) == ["file"], "before a folder is made"
    assert tuned(tmp_path, *argv, "events").returncode == 0
    assert names_in(tmp_path / "events") == ["1-type=BP", "2-type=DFA"]
    (folder,) = (tmp_path / "results").iterdir()
    (folder / "summary.csv").unlink()
    assert tuned(tmp_path, "--resume", f"results/{folder.name}", "--tensorboard", "more").returncode == 0
    assert names_in(tmp_path / "more") == ["1-type=BP", "2-type=DFA"]


def test_what_could_not_train_is_told_before_anything_runs(tmp_path):
    (tmp_path / "grid.toml").write_text(
        "[grid]\nname = ['fcReLu', 'mine']\n"
        "[networks.mine]\nsequence = [{layer = 'ConvolutionalLayer', filter_dim = [3, 3], num_of_filters = 0}]\n"
    )
    result = tuned(tmp_path, "grid.toml")
    assert result.returncode == 2
    assert result.stderr.startswith("memtui tune: mine: ")
    assert result.stderr.count("\n") == 1
    missing = tuned(tmp_path, "fcReLu", "--grid", "dataset_name=digits,mnist", "--set", f"data={tmp_path}")
    assert (missing.returncode, missing.stderr.startswith("memtui tune: dataset_name=mnist: ")) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["grid.toml"]


def test_a_network_of_the_user_goes_to_its_run(tmp_path):
    (tmp_path / "networks.toml").write_text("[mine]\nextends = 'long_fc'\nepochs = 2\n")
    argv = ("mine", "--grid", "seed=1", "--config", "networks.toml", "--json")
    document = json.loads(tuned(tmp_path, *argv).stdout)
    kept = Path(document["folder"]) / "networks.toml"
    assert (tmp_path / kept).read_text() == '["mine"]\n"extends" = "long_fc"\n"epochs" = 2\n'
    assert begun(tmp_path)[0][0].startswith("mine ")


@pytest.mark.real_clock(alone=False)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_and_the_same_command_goes_on(tmp_path, how):
    tune = started(tmp_path, *GRID, seconds=1.0)
    until(lambda: len(begun(tmp_path)) >= 2)
    time.sleep(0.1)  # it has begun to listen
    tune.send_signal(how)
    _, complaints = tune.communicate(timeout=20)
    assert tune.returncode == 128 + how
    assert not any(_lives(pid) for _, pid in begun(tmp_path)), "it ended before memtui did"
    assert ended_in_order(tmp_path) == [begun(tmp_path)[-1][1]]
    ended = table(tmp_path)
    assert len(ended) == len(begun(tmp_path)) - 1, "one was interrupted, and has no row"
    assert f"ended by {how.name}; {len(ended)} of 12 runs have ended; memtui tune --resume results/" in complaints
    resumed = tuned(tmp_path, *GRID)
    assert (resumed.returncode, f"{len(ended)} of 12 runs have ended" in resumed.stderr) == (0, True)
    assert len(table(tmp_path)) == RUNS
    assert table(tmp_path)[: len(ended)] == ended
    assert len(begun(tmp_path)) == RUNS + 1


def test_signals_that_are_ignored_stay_so(tmp_path):
    """As with nohup, and in the background of a script; its runs listen all the same when they are to end."""

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    tune = started(tmp_path, *GRID, seconds=1.0, preexec_fn=ignore)
    until(lambda: begun(tmp_path))
    tune.send_signal(signal.SIGHUP)
    tune.send_signal(signal.SIGINT)
    until(lambda: len(begun(tmp_path)) >= 2)
    time.sleep(0.1)
    tune.terminate()
    tune.communicate(timeout=20)
    assert tune.returncode == 128 + signal.SIGTERM
    assert ended_in_order(tmp_path) == [begun(tmp_path)[-1][1]]


def test_a_run_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    """Its own wish to end in order has a limit."""
    from datetime import UTC, datetime

    from memtui.training.tune.grid import from_options
    from memtui.training.tune.results import create_results

    deaf = "import signal, time; signal.signal(2, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    monkeypatch.setattr(module, "command_of", lambda *what: [sys.executable, "-c", deaf])
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    results = create_results(tmp_path, from_options(["seed=1"], "fcReLu", {}, {}), datetime.now(UTC))
    tuning = module.Tuning(results, lambda progress: None)

    def told(progress) -> None:
        if results.output(0).exists() and results.output(0).stat().st_size:
            os.kill(os.getpid(), signal.SIGINT)

    tuning._report = told
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(module.Interrupted, match="SIGINT"):
        tuning.run()
    assert signal.getsignal(signal.SIGINT) is before
    assert results.rows() == {}


@pytest.mark.real_clock(alone=False)
@pytest.mark.parametrize("seed", range(int(os.environ.get("MEMTUI_CHAOS", "3"))))
def test_killed_at_any_moment_it_loses_no_row_and_repeats_none(tmp_path, seed):
    chance = random.Random(seed)
    lived, complete = 0, []
    for _ in range(4):
        tune = started(tmp_path, *GRID, seconds=0.02)
        time.sleep(chance.uniform(0.2, 1.2))
        tune.kill()
        tune.communicate()
        assert none_lives(tmp_path), "the run ends with it"
        rows = table(tmp_path)
        assert [row for row in rows if row["output"] in {one["output"] for one in complete}] == complete
        complete, lived = rows, lived + 1
    done = tuned(tmp_path, *GRID)
    assert done.returncode == 0, done.stderr
    rows = table(tmp_path)
    assert len(rows) == len({row["output"] for row in rows}) == RUNS
    assert all(row["exit"] == "0" for row in rows)
    assert [row for row in rows if row["output"] in {one["output"] for one in complete}] == complete
    counts = [argv for argv, _ in begun(tmp_path)]
    assert RUNS <= len(counts) <= RUNS + lived, "at most the one that was under way is repeated"


@pytest.mark.real_clock(alone=False)
def test_a_second_one_on_the_folder_names_the_first(tmp_path):
    first = started(tmp_path, *GRID, seconds=20.0)
    try:
        until(lambda: begun(tmp_path))
        second = tuned(tmp_path, *GRID)
        assert second.returncode == 1
        assert f"is being run by process {first.pid}: wait for its end" in second.stderr
        (folder,) = (tmp_path / "results").iterdir()
        assert (
            f"0 of 12 runs have ended; memtui tune --resume results/{folder.name}"
            in tuned(tmp_path, f"results/{folder.name}").stdout
        ), "to look at it is not a second one"
    finally:
        first.terminate()
        first.communicate(timeout=20)
    assert len(begun(tmp_path)) <= 2


def test_a_folder_that_cannot_be_held(tmp_path):
    argv = ("fcReLu", "--grid", "seed=1", "-o", "{odd}")
    assert tuned(tmp_path, *argv).returncode == 0
    (grid,) = tmp_path.glob("{odd}/*/grid.json")
    with grid.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert f"is being run by process {os.getpid()}: wait" in tuned(tmp_path, *argv).stderr


@pytest.mark.real_clock(alone=False)
def test_several_at_a_time(tmp_path):
    tune = started(tmp_path, "fcReLu", "--grid", "seed=1,2,3,4,5", "--jobs", "4", seconds=3.0)
    until(lambda: len(begun(tmp_path)) == 4)
    assert table(tmp_path) == []
    time.sleep(0.2)
    tune.send_signal(signal.SIGINT)
    tune.communicate(timeout=20)
    assert sorted(ended_in_order(tmp_path)) == sorted(pid for _, pid in begun(tmp_path))
    assert tuned(tmp_path, "fcReLu", "--grid", "seed=1,2,3,4,5", "--jobs", "4").returncode == 0
    assert [row["seed"] for row in table(tmp_path)] == list("12345")


def test_a_table_that_cannot_be_written_ends_it_and_its_run(tmp_path):
    argv = ("fcReLu", "--grid", "seed=1,2")
    assert tuned(tmp_path, *argv).returncode == 0
    (summary,) = (tmp_path / "results").glob("*/summary.csv")
    summary.write_text("something else")
    broken = tuned(tmp_path, *argv)
    assert broken.returncode == 1
    assert "is not as memtui wrote it; take it away" in broken.stderr
    assert broken.stderr.count("\n") == 1
    summary.unlink()
    summary.with_name(".summary.csv.new").mkdir()
    broken = tuned(tmp_path, *argv)
    assert (broken.returncode, "summary.csv: cannot be written: Is a directory" in broken.stderr) == (1, True)
    assert none_lives(tmp_path)
