"""A sweep in parts: the script for Slurm, run as Slurm would run it, and what it passes on."""

from __future__ import annotations

import argparse
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.bench.configuration import make
from memtui.bench.jobs import PASSED_ON, longest_minutes, part_argv, script
from memtui.bench.plan import BenchPlan
from memtui.cli.parser import build_parser
from tests.support.bench_jobs import FAST, GRID, keys_in
from tests.support.cli import memtui
from tests.support.in_process import memtui_here

# What a part is told by the words around it, or has no use for.
OWN = {"what", "rest", "device", "shard", "db", "json", "tui", "print_sbatch", "engine", "jobs", "from_run", "clock",
       "unflagged", "to", "output", "force", "help", "debug", "no_config", "color", "theme", "ascii",
       "no_mouse"}  # fmt: skip


def parsed(*argv: str) -> argparse.Namespace:
    return build_parser().parse_args(["bench", *argv])


@pytest.fixture
def folder(tmp_path) -> Path:
    """One with a name that the shell would take apart."""
    path = tmp_path / "a b'c\"$(touch broken)`d`"
    path.mkdir()
    return path


def test_every_option_is_passed_on_or_not_by_intention():
    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert {action.dest for action in commands.choices["bench"]._actions} == OWN | set(PASSED_ON)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "--grid": st.sampled_from(("elements=1,2", "x=-3", "a b='c'")),
            "--config": st.sampled_from(("/x y/sweep.toml", "/--z.toml")),
            "--space": st.sampled_from(("small", "predict")),
            "--dtype": st.sampled_from(("fp32", "bf16")),
            "--cache": st.sampled_from(("cold", "warm")),
            "--threads": st.sampled_from(("1", "12")),
            "--windows": st.sampled_from(("1", "7")),
            "--seconds": st.sampled_from(("0.25", "3")),
            "--warm-up": st.sampled_from(("0.05", "20")),
            "--seed": st.sampled_from(("0", "4", "9")),
            "--assume-watts": st.sampled_from(("95", "0.001")),
            "--quick": st.none(),
            "--again": st.none(),
        },
    )
)
def test_a_part_measures_what_was_asked(options):
    given = [name if value is None else f"{name}={value}" for name, value in options.items()]
    args = parsed("relu", *given, "--grid=elements=5", "--json", "--jobs=2")
    again = parsed(*part_argv(args)[1:])
    assert {name: getattr(again, name) for name in PASSED_ON} == {name: getattr(args, name) for name in PASSED_ON}
    assert (again.what, again.device, again.json, again.tui, again.no_config) == ("relu", "cpu", False, False, True)


def test_a_job_sees_the_gpu_that_it_was_given():
    assert "--device=cuda:0" in part_argv(parsed("relu", "--device", "cuda:3"))
    text = script(parsed("relu", "--device", "cuda:3"), [make("relu", {})])
    assert "#SBATCH --gres=gpu:1\n" in text
    assert "#SBATCH --exclusive\n" in script(parsed("relu"), [make("relu", {})]), (
        "two on a CPU would disturb each other"
    )


def test_no_more_jobs_than_configurations():
    some = [make("relu", {"elements": n}) for n in (1, 2, 3)]
    assert "#SBATCH --array=0-2\n" in script(parsed("relu", "--jobs", "50"), some)
    assert "#SBATCH --array=0-1\n" in script(parsed("relu", "--jobs", "2"), some)


def test_the_time_that_is_asked_for_is_enough():
    plan = BenchPlan(windows=5, seconds=2.0, warm_up_s=10.0)
    assert longest_minutes(plan, 60) * 60 > 63 * (10 + 5 * 2)
    assert longest_minutes(replace(plan, visits=2), 60) * 60 > 63 * (2 * 10 + 5 * 2)
    assert longest_minutes(plan, 120) > 1.9 * longest_minutes(plan, 60) - 2


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("relu", "--shard", "0/2"), "--shard is one part"),
        (("relu", "--json"), "prints a script: no JSON"),
        (("relu", "--engine", "submitit"), "so no --engine"),
        (("list",), "are for configurations of an operator"),
        (("resnet50",), "are for configurations of an operator"),
        (("resolution", "relu"), "are for configurations of an operator"),
        (("relu", "--jobs", "0"), "must be a whole number from 1 to 1000"),
        (("relu", "--db", "a\nb.db"), "cannot stand in a script"),
        (("relu", "--grid", "q=1"), "relu has no parameter q"),
    ],
)
def test_bad_input_is_one_line(argv, message):
    result = memtui_here("bench", *argv, "--print-sbatch")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


def test_the_script_is_a_script_wherever_it_lies(folder):
    result = memtui("bench", "relu", *GRID, "--db", "x y.db", "--print-sbatch", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert subprocess.run(["bash", "-n"], input=result.stdout, text=True, check=False).returncode == 0
    head, _, code = result.stdout.partition("exec ")
    assert all(line.startswith("#") for line in head.splitlines())
    assert "#SBATCH" not in code, "sbatch reads no options behind the first command"


@pytest.mark.slow
def test_run_as_slurm_would(folder):
    """Each task with its number; then the command that the script tells, by a stand-in for sbatch."""
    pytest.importorskip("torch", reason="torch is not installed")
    argv = ("bench", "relu", *GRID, *FAST, "--db", "x y.db", "--jobs", "2", "--print-sbatch")
    text = memtui(*argv, cwd=folder).stdout
    elsewhere = folder.parent
    for task in (1, 0):
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": "1"}
        done = subprocess.run(
            ["bash", "-c", text], env=environment, cwd=elsewhere, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    parts = [folder / f"x y-{number}-of-2.db" for number in range(2)]
    assert [len(keys_in(path)) for path in parts] == [2, 1]
    command = next(line.lstrip("# ") for line in text.splitlines() if "--wrap" in line)
    stand_in = 'sbatch() { while [ "$1" != --wrap ]; do shift; done; sh -c "$2"; }\n'
    done = subprocess.run(
        ["bash", "-c", stand_in + command], cwd=elsewhere, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert keys_in(folder / "x y.db") == sorted(
        make("relu", {"elements": n, "cache": "warm"}).key for n in (100, 200, 300)
    )
    assert not list(folder.parent.rglob("broken"))
