"""A program in a container of an engine: observed from its first instruction, and gone whichever process is killed.

The engines are those that work here, docker and podman, and a stand-in for docker's command line and daemon.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

import memtui as memtui_package
from memtui.core.errors import UserError
from memtui.study import host_info
from memtui.study.plan import CONTAINER, Run
from memtui.study.recorded_run import Trace
from memtui.study.runs import container, container_engine
from memtui.study.runs.container_engine import PREFIX, Engine, mounts
from memtui.study.runs.runner import perform
from tests.support import engine_stub
from tests.support.live import needs_tracker
from tests.support.study_runs import STEPS, await_none, running
from tests.support.users import temporary_user

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may watch what an engine starts")
STAND_IN = "stand-in"


@contextmanager
def daemon(folder: Path):
    """A stand-in that runs, as ``docker`` on the path."""
    folder.mkdir(exist_ok=True)
    script = folder / "docker"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -P {engine_stub.__file__} "$@"\n')
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        patch.setenv("STAND_IN_FOLDER", str(folder))
        argv = [sys.executable, "-P", engine_stub.__file__, "daemon", str(folder)]
        with subprocess.Popen(argv, start_new_session=True) as child:
            while not (folder / "containers.json").exists():
                time.sleep(0.01)
            yield folder
            child.kill()


@pytest.fixture(params=[STAND_IN, "docker", "podman"])
def means(request, tmp_path, monkeypatch):
    """The method of an engine; the test is skipped where the engine does not work."""
    if request.param == STAND_IN:
        with daemon(tmp_path / "engine"):
            monkeypatch.setattr(container_engine, "ENGINES", ("docker",))
            yield container.means()
        return
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    monkeypatch.setattr(container_engine, "ENGINES", (request.param,))
    working = container.means()
    if working.engine is None:
        pytest.skip(f"it does not work here: {working.why}")
    yield working


def left(engine: Engine) -> list[str]:
    """Containers and images of memtui."""
    folder = os.environ.get("STAND_IN_FOLDER")
    if folder:
        state = json.loads(Path(folder, "containers.json").read_text())
        return [*state["containers"], *state["images"]]
    commands = (["ps", "--all", "--format", "{{.Names}}"], ["images", "--format", "{{.Repository}}"])
    outputs = [
        subprocess.run([*engine.cli, *command], capture_output=True, text=True, check=False) for command in commands
    ]
    if any(output.returncode for output in outputs):
        return ["what goes away while it is listed"]
    return [line for output in outputs for line in output.stdout.split() if PREFIX in line]


def await_nothing_left(engine: Engine) -> None:
    deadline = time.monotonic() + 30
    while left(engine) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left(engine)


@pytest.fixture
def program(tmp_path) -> list[str]:
    path = tmp_path / "steps.py"
    path.write_text(STEPS)
    return [sys.executable, str(path)]


def run_of(program, limit_s=None) -> Run:
    return Run("boxed", tuple(program), 1.0, place=CONTAINER, limit_s=limit_s)


def done(tmp_path, means, program, limit_s=None):
    cpus = [min(os.sched_getaffinity(0))]
    return perform(run_of(program, limit_s), tmp_path / "boxed", cpus, means, lambda progress: None)


@pytest.mark.real_clock(alone=False)
@needs_root
@needs_tracker
def test_a_program_is_seen_from_its_first_instruction_and_nothing_is_left(tmp_path, means, program):
    result = done(tmp_path, means, program, 1.5)
    assert result.limited
    assert result.steps > 5
    trace = Trace(tmp_path / "boxed.memtui", result)
    first, *_ = trace._reader.processes()
    assert (
        f"memtui.study.runs.program_launcher box:{PREFIX}-" in first.command
    )  # it was observed before it executed the program
    assert trace.main.pid == first.pid
    assert program[1] in trace.main.command
    assert trace.main.command != first.command
    assert int(trace.samples.start_ns[0]) < result.first_step_ns
    assert float(trace.wss().max()) >= 4 << 20
    trace.close()
    await_none(program[1])
    await_nothing_left(means.engine)


@pytest.mark.real_clock(alone=False)
@needs_root
@needs_tracker
def test_a_program_ends_by_itself_with_its_status_and_its_output(tmp_path, means):
    code = "import os, sys, time\nprint('here', os.getcwd(), os.environ['MINE'], sys.stdin.read() == '')\ntime.sleep(1)"
    os.environ["MINE"] = "kept"
    try:
        result = done(tmp_path, means, [sys.executable, "-c", code])
        assert result.exit == 0
        assert f"here {Path.cwd()} kept True" in (tmp_path / "boxed.log").read_text()
        with pytest.raises(UserError, match="failed with status 3"):
            done(tmp_path, means, [sys.executable, "-c", f"{code}\nsys.exit(3)"])
    finally:
        del os.environ["MINE"]
    await_nothing_left(means.engine)


@pytest.mark.real_clock(alone=False)
@needs_root
@needs_tracker
@pytest.mark.parametrize("victim", ["study", "worker"])
def test_whoever_is_killed_nothing_is_left(tmp_path, means, program, victim):
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom memtui.study.runs.container import Means\n"
        "from memtui.core.json_fields import from_json\n"
        "from memtui.study.runs.container_engine import Engine\nfrom memtui.study.plan import Run\n"
        "from memtui.study.runs.runner import perform\n"
        "order = json.loads(sys.argv[1])\n"
        "run = Run('boxed', tuple(order['program']), 1.0, place='container')\n"
        "means = Means((), '', engine=from_json(Engine, order['engine']))\n"
        f"perform(run, Path({str(tmp_path / 'boxed')!r}), [{min(os.sched_getaffinity(0))}], means, lambda word: None)\n"
    )
    order = json.dumps({"program": program, "engine": asdict(means.engine)})
    with subprocess.Popen([sys.executable, "-c", code, order], stderr=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 60
        log = tmp_path / "boxed.log"
        while not (log.exists() and "step 3" in log.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert left(means.engine)
        if victim == "study":
            child.kill()
        else:
            (worker,) = [process for process in running("memtui.study.runs.worker") if process.ppid() == child.pid]
            worker.send_signal(signal.SIGKILL)
        child.wait(60)
    await_none(program[1])
    await_nothing_left(means.engine)


def test_an_engine_without_a_daemon_is_told_and_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(container_engine, "ENGINES", ("docker",))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    with daemon(tmp_path / "engine"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("STAND_IN_FOLDER", str(tmp_path))
        method = container.means()
    assert method.engine is None
    assert method.why == "docker: Cannot connect to the Docker daemon. Is the docker daemon running?"
    assert "unshare" in method.what or method.reason


@needs_root
def test_an_engine_that_cannot_run_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(container_engine, "ENGINES", ("docker",))
    with daemon(tmp_path / "engine") as folder:
        monkeypatch.setattr(container_engine, "command", lambda engine, *_: [*engine.cli, "run", "--no-such-option"])
        method = container.means()
        assert method.engine is None
        assert method.why == "docker: unknown flag: --no-such-option"
        assert json.loads((folder / "containers.json").read_text()) == {"containers": {}, "images": []}


@pytest.mark.real_clock(alone=False)
@needs_root
def test_a_process_that_is_not_the_one_is_not_watched(tmp_path, monkeypatch):
    """An engine on another machine, or on the host of this one, reports PIDs that are other processes here."""
    monkeypatch.setattr(container_engine, "ENGINES", ("docker",))
    monkeypatch.setattr(container_engine, "_START_SECONDS", 1.0)
    with daemon(tmp_path / "engine"):
        engine = container.means().engine
        monkeypatch.setattr(container_engine, "_is_there", lambda pid, name: False)
        with pytest.raises(UserError, match="not to be seen from here"):
            container_engine.Container(engine, "memtui-study-here", [0], ["sleep", "9"], (0, 0))
        assert not left(engine)


def test_for_others_than_root_engines_are_not_used(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(
        shutil, "which", lambda name, path: f"/usr/bin/{name}" if name in container_engine.ENGINES else None
    )
    engine, reasons = container_engine.find()
    assert engine is None
    assert len(reasons) == 2
    assert all("only root may watch" in reason for reason in reasons)


def test_what_of_this_machine_is_in_a_container(tmp_path):
    for name in ("usr", "lib64", "home", "data", "proc", "sys", "dev", "run", "var", "etc", "with:colon"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin").symlink_to("usr")
    (tmp_path / "file").touch()
    seen = {word.split(":")[0]: word for word in mounts(tmp_path)}
    python = seen.pop(sys.prefix, None)
    assert sorted(seen) == ["/bin", "/data", "/etc", "/home", "/lib64", "/usr"]
    assert {name for name, word in seen.items() if word.endswith(":ro")} == {"/bin", "/etc", "/lib64", "/usr"}
    assert python is None or python == f"{sys.prefix}:{sys.prefix}:ro"


def test_under_sudo_nothing_of_the_user_reaches_the_engine_of_root(monkeypatch, tmp_path):
    """The user's path, libraries and configuration would run as root."""
    mine = tmp_path / "docker"
    mine.write_text('#!/bin/sh\ntouch "$0.ran"\n')
    mine.chmod(0o755)
    for name, value in (("PATH", str(tmp_path)), ("LD_PRELOAD", "/tmp/x.so"), ("DOCKER_CONFIG", str(tmp_path))):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(container_engine, "invoker", lambda: SimpleNamespace(uid=1000, gid=1000))
    assert set(container_engine.environment()) == {"PATH", "HOME"}
    monkeypatch.setattr(container_engine, "_try", lambda name, path: (None, path))
    _, reasons = container_engine.find()
    assert not [reason for reason in reasons if str(tmp_path) in reason]
    monkeypatch.setattr(container_engine, "invoker", lambda: SimpleNamespace(uid=0, gid=0))
    assert f"docker: {mine}" in container_engine.find()[1]
    assert not mine.with_suffix(".ran").exists()


@needs_root
@needs_tracker
def test_under_sudo_the_program_in_a_container_is_the_users(means, program):
    if "STAND_IN_FOLDER" in os.environ or means.engine.name == "docker":
        pytest.skip("its daemon is found by the environment, which sudo does not pass on")
    with temporary_user("ALL=(ALL:ALL) NOPASSWD: ALL") as user:
        script = user.home / "told.py"
        print_user = "import os; print('uid', os.getuid(), os.environ['HOME'], os.environ.get('MINE'), flush=True)"
        script.write_text(f"{print_user}\n{STEPS}")
        code = (
            "import sys\nfrom pathlib import Path\nfrom memtui.core.privilege import invoker\n"
            "from memtui.study import command\nfrom memtui.study.plan import Run\n"
            "from memtui.study.runs import container, container_engine as engine\n"
            "from memtui.study.runs.runner import perform\n"
            f"engine.ENGINES = ({means.engine.name!r},)\n"
            "with command._files_of(invoker()):\n"
            "    means = container.means()\n"
            f"    run = Run('boxed', (sys.executable, {str(script)!r}), 1.0, place='container', limit_s=1.0)\n"
            f"    told = perform(run, Path({str(user.home / 'boxed')!r}), [0], means, lambda word: None)\n"
            "    print(means.engine.name, told.windows > 2)\n"
        )
        where = f"PYTHONPATH={Path(memtui_package.__file__).parents[1]}"
        done = user.run("sudo", where, sys.executable, "-c", code, MINE="kept")
        assert done.stdout == f"{means.engine.name} True\n", done.stderr
        assert (user.home / "boxed.log").read_text().startswith(f"uid {user.uid} {user.home} kept\n")
        assert (user.home / "boxed.memtui").stat().st_uid == user.uid
    await_nothing_left(means.engine)


def test_secrets_of_the_environment_are_on_no_command_line(monkeypatch):
    monkeypatch.setenv("TOKEN", "hunter2")
    argv = container_engine.command(Engine("docker", "1", ("docker",)), "a", "b", ["true"], (1, 2))
    assert not [word for word in argv if "hunter2" in word]
    assert argv[-2:] == ["b", "true"]
    assert argv[argv.index("--user") + 1] == "1:2"
    assert re.fullmatch(r"\d+", argv[argv.index("--shm-size") + 1])


def test_a_run_in_another_kind_of_container_is_another_run():
    docker = host_info.describe() | {"container": "docker 1"}
    namespaces = docker | {"container": "own namespaces"}
    run = run_of(["true"])
    assert run.key(host_info.surroundings(docker, CONTAINER)) != run.key(host_info.surroundings(namespaces, CONTAINER))
    assert host_info.surroundings(docker) == host_info.surroundings(namespaces)
