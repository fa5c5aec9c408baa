"""``--engine submitit``: the parts of a sweep as jobs, with submitit's own executor for one machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.core.file_lock import lock_holder
from memtui.probes.power.energy_source import WHOLE_MACHINE
from tests.support import slurm_stub
from tests.support.bench_jobs import FAST, GRID, keys_in
from tests.support.cli import memtui
from tests.support.live import wait_until

WORDS = ("bench", "relu", *GRID, *FAST, "--engine", "submitit")


def test_without_submitit_it_says_what_to_install(tmp_path):
    code = "import sys; sys.modules['submitit'] = None; from memtui.cli.main import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, *WORDS, "--db", str(tmp_path / "x.db")]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "pip install 'memtui[submitit]'" in result.stderr


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("relu", "--shard", "0/2"), "--shard is one part"),
        (("resnet50",), "are for configurations of an operator"),
        (("resolution", "relu"), "are for configurations of an operator"),
        (("relu", "--engine", "ray"), "invalid choice: 'ray'"),
        (("relu", "--db", "/proc/none/x.db"), "/proc/none/x.db: cannot be used"),
    ],
)
def test_bad_input_is_one_line(argv, message):
    result = memtui("bench", "--engine", "submitit", *argv)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


class TestRun:
    """With submitit and torch."""

    @pytest.fixture(autouse=True)
    def needed(self):
        pytest.importorskip("submitit", reason="submitit is not installed")
        pytest.importorskip("torch", reason="torch is not installed")

    @pytest.fixture
    def here(self):
        """An environment in which no Slurm is found."""
        return {**os.environ, "PATH": str(Path(sys.executable).parent)}

    def test_parts_run_and_are_merged(self, tmp_path, here):
        path = tmp_path / "x y.db"
        argv = (*WORDS, "--jobs", "2", "--db", path)
        result = memtui(*argv, timeout=240, env=here)
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.splitlines()[:2] == ["part 0 of 2: 2 new rows", "part 1 of 2: 1 new rows"]
        assert f"3 new rows in {path}" in result.stdout
        parts = [tmp_path / f"x y-{number}-of-2.db" for number in range(2)]
        assert [len(keys_in(part)) for part in parts] == [2, 1]
        assert keys_in(path) == sorted(key for part in parts for key in keys_in(part))
        assert (tmp_path / "x y-jobs").stat().st_mode & 0o777 == 0o700

        document = json.loads(memtui(*argv, "--json", timeout=240, env=here).stdout)
        assert [(part["number"], part["rows"], part["reason"]) for part in document["parts"]] == [
            (0, 0, ""),
            (1, 0, ""),
        ]
        assert len(keys_in(path)) == 3, "what was measured is not measured again"

    @pytest.mark.slow
    def test_a_failed_part_is_a_line_and_the_others_stay(self, tmp_path, here):
        (tmp_path / "x-0-of-2.db").write_text("this is not a database")
        result = memtui(*WORDS, "--jobs", "2", "--db", tmp_path / "x.db", timeout=240, env=here)
        assert result.returncode == 1
        assert result.stderr.count("\n") == 1
        assert "part 0 of 2: " in result.stderr
        assert "x-0-of-2.db: cannot be read: file is not a database" in result.stderr
        assert "part 1 of 2: 1 new rows" in result.stdout
        assert len(keys_in(tmp_path / "x.db")) == 1

    def test_on_slurm_they_are_an_array(self, tmp_path):
        """A stand-in for it: what is submitted asks for a node of its own, and results come back."""
        path, slurm = tmp_path / "x.db", tmp_path / "slurm"
        result = memtui(*WORDS, "--jobs", "2", "--db", path, timeout=240, env=slurm_stub.install(slurm))
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.splitlines()[:2] == ["part 0 of 2: 2 new rows", "part 1 of 2: 1 new rows"]
        assert len(keys_in(path)) == 3
        options = (slurm / "submitted.sh").read_text()
        assert "#SBATCH --array=0-1" in options
        assert "#SBATCH --exclusive\n" in options
        assert "#SBATCH --time=3\n" in options, "if all windows are disturbed"
        assert "#SBATCH --job-name=memtui-relu\n" in options

    def test_an_interrupt_ends_the_jobs(self, tmp_path, here):
        argv = [sys.executable, "-m", "memtui", *WORDS, "--jobs", "2", "--seconds", "30", "--db", tmp_path / "x.db"]
        with subprocess.Popen(argv, env=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
            fd = os.open(WHOLE_MACHINE, os.O_RDONLY)
            try:
                wait_until(lambda: lock_holder(fd), 60, 0.02)
                assert lock_holder(fd) != bench.pid, "a job is a process of its own"
                bench.send_signal(signal.SIGINT)  # to it alone: a terminal would tell the job, too
                assert bench.wait(20) == 130
                wait_until(lambda: not lock_holder(fd), 60, 0.02)
            finally:
                os.close(fd)
                bench.kill()
