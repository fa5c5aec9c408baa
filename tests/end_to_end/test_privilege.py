"""Who is root, and who is not: sudo as users have it, and the capabilities of a running sampler."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from memtui.core import capabilities, privilege
from memtui.core.errors import UserError
from memtui.core.procfs import read_stat
from memtui.core.samples import Options
from memtui.recording.sampler.commands import SamplerConfig
from memtui.recording.supervisor import sudo
from memtui.session.session import Session
from tests.support.folders import names_in
from tests.support.live import (
    assert_exact,
    gone,
    needs_root,
    needs_tracker,
    part,
    pattern,
    pattern_argv,
    runs,
    wait_for_samples,
)
from tests.support.repository import ROOT
from tests.support.terminals import Terminal
from tests.support.users import NO_PASSWORD, PASSWORD, User, own_process, temporary_user

pytestmark = pytest.mark.real_clock(alone=False)

WITH_PASSWORD = "ALL=(ALL:ALL) ALL"
SAMPLER, RECORDER = "memtui.recording.sampler", "memtui.recording.recorder"


def status(pid: int, task: int | None = None) -> dict[str, str]:
    """/proc/PID/status as a dictionary."""
    text = Path(f"/proc/{pid}/task/{task}/status" if task else f"/proc/{pid}/status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def caps(pid: int, field: str = "CapEff") -> set[str]:
    """The capabilities of a process, all of its threads together."""
    tasks = map(int, names_in(f"/proc/{pid}/task"))
    return {name for task in tasks for name in capabilities.names(int(status(pid, task)[field], 16))}


@contextmanager
def watching(user: User, *words: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """``memtui`` of this user in the background."""
    child = user.start(sys.executable, "-m", "memtui", *words, **environment)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
        try:
            child.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()


# -- memtui of an ordinary user asks sudo for the sampler --------------------


@needs_tracker
def test_only_the_sampler_is_root_and_the_numbers_are_exact():
    words = ("random", "--pages", 4000, "--touched", 1000, "--seed", 3)
    with temporary_user(NO_PASSWORD) as user, pattern(*words) as truth:  # the pattern belongs to root
        path = user.home / "s.memtui"
        with watching(user, "record", truth["pid"], "-o", path, "--interval", 0.4) as child:
            wait_for_samples(path, 6).close()
            sampler, recorder = part(child.pid, SAMPLER), part(child.pid, RECORDER)
            uids = [set(p.uids()) for p in (psutil.Process(child.pid), recorder)]
            assert uids == [{user.uid}] * 2
            assert set(sampler.uids()) == {0}
            assert "-I" in sampler.cmdline()
            assert caps(sampler.pid) == set(capabilities.sampler_needs("pagetable"))
            assert status(recorder.pid)["NoNewPrivs"] == "1"
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=20)
            assert child.returncode == 0, err
            assert gone(sampler)
            assert runs(truth["pid"])
        assert path.stat().st_uid == user.uid
        assert_exact(path, truth)
        reader = Session(path)
        assert reader.end is not None
        assert reader.end.kind == "stopped"
        reader.close()


def test_a_sampler_under_sudo_ends_when_its_supervisor_is_killed():
    with temporary_user(NO_PASSWORD) as user, own_process(user, "loop", "--pages", 500) as truth:
        path = user.home / "s.memtui"
        with watching(user, "record", truth["pid"], "-o", path, "--interval", 0.05, "--sudo") as child:
            wait_for_samples(path, 3).close()
            sampler, recorder = part(child.pid, SAMPLER), part(child.pid, RECORDER)
            above = sampler.parent()
            assert above is not None
            assert above.name() == "sudo"
            child.kill()
            assert gone(sampler), "an orphan that is root would watch for ever"
            assert gone(above)
            assert gone(recorder)
            assert runs(truth["pid"])


def test_a_killed_sampler_under_sudo_is_one_line_and_exit_1():
    with temporary_user(NO_PASSWORD) as user, own_process(user, "loop", "--pages", 500) as truth:
        path = user.home / "s.memtui"
        child = user.start(sys.executable, "-m", "memtui", "record", truth["pid"], "-o", path, "--interval", 0.05)
        wait_for_samples(path, 3).close()
        part(child.pid, SAMPLER).kill()
        _, err = child.communicate(timeout=20)
        assert (child.returncode, err.count("\n")) == (1, 1), err
        assert runs(truth["pid"])


def test_the_password_is_asked_for_before_the_screen():
    with temporary_user(WITH_PASSWORD) as user, own_process(user, "loop", "--pages", 500) as truth:
        screen = Terminal("attach", truth["pid"], "--interval", 0.1, module="memtui", before=user.words())
        try:
            screen.read(20, until="only memtui's sampler will be root")
            assert b"\x1b[?1049h" not in screen.output, "the prompt comes before the alternate screen"
            screen.send("wrong\n")
            screen.read(20, until="try again")
            screen.send(PASSWORD + "\n")
            screen.read(30, until="LIVE")
            assert set(part(screen.process.pid, SAMPLER).uids()) == {0}
            screen.send("?")  # keys reach the screen, and not sudo
            screen.read(10, until="help")
            screen.send("\x1b")
            screen.read(1)  # alone: with the next key it would be Alt
            screen.send("q")
            assert screen.end(20) == 0
            assert screen.restored()
            assert runs(truth["pid"])
        finally:
            screen.close()


def test_a_lost_terminal_does_not_end_a_sampler_under_sudo():
    """The sudo around it stays on the terminal it asked on, and is hung up with it; the recording goes on."""
    with temporary_user(WITH_PASSWORD) as user, own_process(user, "loop", "--pages", 500) as truth:
        path = user.home / "s.memtui"
        words = ("attach", truth["pid"], "--interval", 0.1, "--max-overhead", "none", "-o", path)
        screen = Terminal(*words, module="memtui", before=user.words())
        try:
            screen.read(20, until="will be root")
            screen.send(PASSWORD + "\n")
            screen.read(30, until="LIVE")
            sampler = part(screen.process.pid, SAMPLER)
            assert set(sampler.uids()) == {0}
            os.close(screen.master)
            screen.master = -1
            assert screen.process.wait(20) == 129
            before = len(wait_for_samples(path, 1).samples)
            wait_for_samples(path, before + 20).close()
            listed = json.loads(user.memtui("list", "--json").stdout)["recordings"]
            assert [one["pid"] for one in listed] == [truth["pid"]]
            assert listed[0]["samples"] > before
            assert user.memtui("stop", "all").returncode == 0
            assert gone(sampler)
            assert runs(truth["pid"])
        finally:
            screen.close()
            user.memtui("stop", "all")


def test_stopping_the_job_does_not_stop_the_sampler():
    """^Z while it holds the target would hold the target."""
    with temporary_user(WITH_PASSWORD) as user, own_process(user, "loop", "--pages", 500) as truth:
        path = user.home / "s.memtui"
        words = ("record", truth["pid"], "--interval", 0.05, "-o", path)
        screen = Terminal(*words, module="memtui", before=user.words())
        try:
            screen.read(20, until="will be root")
            screen.send(PASSWORD + "\n")
            screen.read(30, until="samples")
            sampler = part(screen.process.pid, SAMPLER)
            screen.send("\x1a")
            time.sleep(1)
            assert sampler.status() != psutil.STATUS_STOPPED
            assert runs(truth["pid"])
        finally:
            screen.process.send_signal(signal.SIGCONT)
            screen.close()


@pytest.mark.parametrize("foreign", [True, False])
@pytest.mark.parametrize("answer", ["\x03", "no\nno\nno\n"])
def test_a_prompt_that_is_refused(answer, foreign):
    with temporary_user(WITH_PASSWORD) as user:
        path = user.home / "s.memtui"
        target = pattern("loop", "--pages", 300) if foreign else own_process(user, "loop", "--pages", 300)
        with target as truth:
            words = ("record", truth["pid"], "--interval", 0.1, "--duration", 1, "-o", path)
            screen = Terminal(*words, module="memtui", before=user.words())
            try:
                for line in answer.splitlines(keepends=True):
                    screen.read(20, until="will be root")
                    screen.screen.reset()
                    screen.send(line)
                code = screen.end(30)
            finally:
                screen.close()
            said = screen.output.decode(errors="replace")
            if foreign:
                assert code == 2, said
                assert "belongs to another user (sudo: " in said
                assert not path.exists()
            else:
                assert code == 0, said
                assert "without root, so pages are not seen one by one (sudo: " in said
                assert path.exists()
            assert runs(truth["pid"])


def test_an_answer_as_soon_as_sudo_asks_is_a_refusal(monkeypatch):
    """A password may be asked for while ``Popen`` has not returned yet."""
    start = subprocess.Popen

    def slow(*words, **options):
        process = start(*words, **options)
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(sudo.os, "geteuid", lambda: 1)
    monkeypatch.setattr(sudo.shutil, "which", lambda _name: "/bin/false")
    monkeypatch.setattr(sudo.subprocess, "Popen", slow)
    with tempfile.TemporaryFile() as says, pytest.raises(UserError, match="interrupted"):
        sudo.start_sampler(says, sudo=True, tracker="auto")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("foreign", [True, False])
def test_who_may_not_use_sudo_is_told_the_ways_out(foreign):
    """A real sudo takes the password, and says that this user is not in the sudoers file."""
    with temporary_user() as user:
        path = user.home / "s.memtui"
        target = pattern("loop", "--pages", 300) if foreign else own_process(user, "loop", "--pages", 300)
        with target as truth:
            words = ("record", truth["pid"], "--interval", 0.1, "--duration", 1, "-o", path)
            screen = Terminal(*words, module="memtui", before=user.words(), columns=200)
            try:
                screen.read(20, until="will be root")
                screen.send(f"{PASSWORD}\n")
                code = screen.end(30)
            finally:
                screen.close()
            said = screen.output.decode(errors="replace")
            assert "is not in the sudoers file" in said
            assert "whoever administers this machine can grant the sudo rule in docs/reference/security.md" in said
            assert ("or watch a process of yours" in said) == foreign
            assert ("--no-sudo does not ask" in said) == (not foreign)
            assert "run: sudo" not in said
            assert code == (2 if foreign else 0), said


def test_the_rule_in_the_docs_allows_the_sampler_and_nothing_else():
    """As an administrator would write it, for this interpreter."""
    text = (ROOT / "docs/reference/security.md").read_text()
    (rule,) = [line.strip() for line in text.splitlines() if line.startswith("    ada ALL=")]
    granted = rule.removeprefix("ada ").replace("/opt/memtui/bin/python3", sys.executable)
    granted = granted.replace("(root) ", "(root) NOPASSWD: ")  # so that nobody has to type
    with temporary_user(granted) as user, own_process(user, "loop", "--pages", 300) as truth:
        path = user.home / "s.memtui"
        done = user.memtui("record", truth["pid"], "--duration", 1, "--sudo", "-o", path)
        assert done.returncode == 0, done.stderr
        assert user.run("sudo", "-n", sys.executable, "-c", "pass").returncode != 0


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ((), ".venv/bin/memtui demo"),
        (("SUDO=",), ".venv/bin/memtui demo --no-sudo"),
        (("SUDO=doas",), "doas .venv/bin/memtui demo"),
    ],
)
def test_make_demo_leaves_the_question_to_memtui_which_goes_on_without(words, command):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    environment = {name: value for name, value in os.environ.items() if name not in ("SUDO", "MAKEFLAGS")}
    make = ["make", "--no-print-directory", "VENV=.venv", "-n", "demo", *words]  # not as a make above this one has it
    done = subprocess.run(make, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == command


def test_without_a_terminal_nobody_is_asked():
    with temporary_user(WITH_PASSWORD) as user:
        with own_process(user, "loop", "--pages", 300) as truth:
            done = user.memtui("record", truth["pid"], "--duration", 1, "-o", user.home / "s.memtui")
            assert done.returncode == 0, done.stderr
            assert done.stderr.count("\n") == 1
            assert "sudo: a password is required" in done.stderr
        with pattern("loop", "--pages", 300) as truth:
            done = user.memtui("record", truth["pid"], "--duration", 1, "-o", user.home / "t.memtui")
            assert done.returncode == 2
            assert done.stderr.count("\n") == 1
            assert f"run: sudo {sys.executable} -m memtui record {truth['pid']}" in done.stderr
            assert not (user.home / "t.memtui").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 0, "without root, so pages are not seen one by one (sudo: it is not installed"),
        (("--no-sudo",), 0, ""),
        (("--tracker", "rss"), 0, ""),
        (("--sudo",), 2, "no root (sudo: it is not installed); leave --sudo out"),
        (("--tracker", "pagetable"), 2, "tracker pagetable needs root (sudo: it is not installed)"),
    ],
)
def test_own_processes_where_sudo_is_missing(words, code, says):
    with temporary_user() as user, own_process(user, "loop", "--pages", 300) as truth:
        path = user.home / "s.memtui"
        done = user.memtui("record", truth["pid"], "--duration", 1, "-o", path, *words, PATH="/nowhere")
        assert done.returncode == code, done.stderr
        assert says in done.stderr
        assert done.stderr.count("\n") == bool(says)
        assert path.exists() == (code == 0)
        if code == 0:
            reader = Session(path)
            assert reader.hello.tracker != "pagetable"
            reader.close()


def test_no_sudo_on_another_users_process():
    with temporary_user(NO_PASSWORD) as user, pattern("loop", "--pages", 300) as truth:
        done = user.memtui("record", truth["pid"], "--no-sudo", "-o", user.home / "s.memtui")
        assert done.returncode == 2
        assert "belongs to another user (--no-sudo was given); run: sudo " in done.stderr


def test_root_runs_nothing_that_lies_around():
    """Neither the current directory, nor PYTHONPATH, nor a user's site-packages decide what the sampler runs."""
    with temporary_user(NO_PASSWORD) as user, pattern("loop", "--pages", 300) as truth:
        marker = user.home / "root-was-here"
        trap = f"import os\nif os.geteuid() == 0: open({str(marker)!r}, 'w')\n"
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        site = user.home / ".local" / "lib" / version / "site-packages"
        for folder in (user.home, site):
            (folder / "memtui").mkdir(parents=True)
            (folder / "memtui" / "__init__.py").write_text(trap)
            for name in ("sitecustomize", "usercustomize", "json", "ctypes"):
                (folder / f"{name}.py").write_text(trap)
        # The user's own memtui would fall for these, which is the user's affair; what counts is what root runs.
        source = (
            "import os, tempfile\n"
            "from memtui.recording.supervisor import sudo as elevate\n"
            f"os.environ['PYTHONPATH'] = {str(user.home)!r}\n"
            f"s = elevate.start_sampler(tempfile.TemporaryFile(), sudo=None, tracker='auto', foreign={truth['pid']})\n"
            "elevate.give_up(s.process, s.stream)\n"
        )
        done = user.run(sys.executable, "-P", "-s", "-c", source)
        assert done.returncode == 0, done.stderr
        assert not marker.exists()


# -- memtui under sudo becomes the user again --------------------


@needs_tracker
def test_under_real_sudo_the_program_gets_the_users_world():
    source = (
        "import json, os, time\n"
        "s = dict(l.split(':\\t', 1) for l in open('/proc/self/status').read().splitlines() if ':\\t' in l)\n"
        "out = {'ids': os.getresuid() + os.getresgid(), 'groups': os.getgroups(), 'env': dict(os.environ),\n"
        "       'caps': s['CapEff'], 'nnp': s['NoNewPrivs']}\n"
        "json.dump(out, open('told.json', 'w')); time.sleep(2)\n"
    )
    with temporary_user(NO_PASSWORD) as user:
        state = user.home / "state"
        lost = {"XDG_STATE_HOME": str(state), "MY_DATA": "/data", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        words = (*("sudo", sys.executable, "-m", "memtui", "record", "--interval", "0.1", "--"), "python", "-c", source)
        child = user.start(*words, **lost)
        sampler, recorder = part(child.pid, SAMPLER), part(child.pid, RECORDER)
        supervisor = recorder.parent()
        assert supervisor is not None
        deadline = time.monotonic() + 15
        while not (user.home / "told.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert set(sampler.uids()) == {0}
        assert "-I" in sampler.cmdline()
        assert b"XDG_STATE_HOME" not in Path(f"/proc/{sampler.pid}/environ").read_bytes()
        for process in (supervisor, recorder):
            assert set(process.uids()) == {user.uid}
            assert set(process.gids()) == {user.gid}
            assert caps(process.pid) == caps(process.pid, "CapPrm") == set()
            assert status(process.pid)["NoNewPrivs"] == "1"
            assert status(process.pid)["Groups"].split() == [str(user.gid)]
        # It holds the pipe to the sampler: no other process of the user may get at it.
        assert user.run("cat", f"/proc/{supervisor.pid}/environ").returncode != 0
        out, err = child.communicate(timeout=30)
        assert child.returncode == 0, err
        assert "root" not in err
        told = json.loads((user.home / "told.json").read_text())
        assert told["ids"] == [user.uid] * 3 + [user.gid] * 3
        assert told["groups"] == [user.gid]
        assert (int(told["caps"], 16), told["nnp"]) == (0, "0"), "a training may need set-user-ID programs"
        env = told["env"]
        assert (env["HOME"], env["USER"], env["LOGNAME"]) == (str(user.home), user.name, user.name)
        assert env["PATH"].startswith(f"{Path(sys.executable).parent}:"), "secure_path is sudo's and not the user's"
        assert {name: env[name] for name in lost} == lost
        assert not any(name.startswith("SUDO_") for name in env)
        path = Path(out.strip())
        assert path.parent == state / "memtui" / "sessions"
        assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (user.uid, 0o600)


@needs_root
def test_without_sudo_everything_is_roots_and_that_is_said(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    words = [sys.executable, "-m", "memtui", "record", "-o", tmp_path / "s.memtui", "--", "sleep", "0.5"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    assert done.stderr.count("\n") == 1
    assert "no SUDO_UID names another user" in done.stderr


@needs_root
@pytest.mark.parametrize("forged", ["", "root", "-1", "4294967295", "99999999999999", "1e3", "0x10", "١", "0;id"])
def test_forged_sudo_variables_are_refused(forged, tmp_path):
    words = [sys.executable, "-m", "memtui", "record", "-o", tmp_path / "s.memtui", "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"SUDO_UID": forged}, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "SUDO_UID is" in done.stderr
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_a_user_id_without_a_name():
    nobody_known = {"SUDO_UID": "3123456789", "SUDO_GID": "3123456788"}
    source = (
        "from memtui.core.privilege import become, invoker; import os, json; become(invoker());"
        "print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, env=os.environ | nobody_known, check=False
    )
    assert json.loads(done.stdout) == [[3123456789] * 3, [3123456788] * 3, [3123456788]]


@needs_root
def test_becoming_a_user_is_verified(monkeypatch):
    """In a child: whatever part of root remains, nothing goes on."""
    source = (
        "import os, sys\n"
        "from memtui.core import privilege\n"
        "skip = sys.argv[1]\n"
        "if skip != 'nothing': setattr(os, skip, lambda *a: None)\n"
        "os.environ['SUDO_UID'] = '65534'\n"
        "try: privilege.become(privilege.invoker())\n"
        "except privilege.UserError as e: print(e.code, e)\n"
        "except PermissionError as e: print('1 refused', e)\n"
        "else: print('became', os.getresuid(), os.getresgid())\n"
    )
    said = {}
    for skip in ("nothing", "setgroups", "setresgid", "setresuid"):
        words = [sys.executable, "-c", source, skip]
        before = {"extra_groups": [0, 4, 27]}
        said[skip] = subprocess.run(words, capture_output=True, text=True, check=True, **before).stdout
    assert said["nothing"] == "became (65534, 65534, 65534) (65534, 65534, 65534)\n"
    assert said["setgroups"].startswith("1 root could not be given up: groups [")
    assert said["setresgid"].startswith("1 root could not be given up: group ids (0, 0, 0)")
    assert said["setresuid"].startswith("1 root could not be given up: user ids (0, 0, 0)")


def test_the_environment_without_a_sudo_to_ask(monkeypatch):
    user = privilege.Invoker(1000, 1000, "ada", Path("/home/ada"), "/bin/zsh")
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in {"HOME": "/root", "PATH": "/sbin:/bin", "MAIL": "/var/mail/root", "SUDO_USER": "ada"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "prefix", "/opt/venv")
    found = privilege.users_environment(user, outer={})
    assert found == {
        "HOME": "/home/ada",
        "USER": "ada",
        "LOGNAME": "ada",
        "SHELL": "/bin/zsh",
        "PATH": "/opt/venv/bin:/sbin:/bin",
        "VIRTUAL_ENV": "/opt/venv",
    }


def test_a_relative_state_directory_is_ignored(monkeypatch):
    user = privilege.Invoker(os.getuid(), os.getgid(), "me", Path("/home/me"))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert privilege.state_directory(user) == Path("/home/me/.local/state/memtui")


# -- the sampler --------------------


@needs_root
@needs_tracker
def test_the_capabilities_of_a_running_sampler(tmp_path):
    """As root without sudo, too; the windows meanwhile are exact on another user's process."""
    words = ("random", "--pages", 4000, "--touched", 1000, "--seed", 5)
    nobody = pwd.getpwnam("nobody")
    command = ["setpriv", f"--reuid={nobody.pw_uid}", "--clear-groups", *pattern_argv(*words, safe_path=True)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as target:
        try:
            assert target.stdout is not None
            truth = json.loads(target.stdout.readline())
            path = tmp_path / "s.memtui"
            record = [sys.executable, "-m", "memtui", "record", str(target.pid), "-o", path, "--interval", "0.4"]
            with subprocess.Popen(record, stdout=subprocess.DEVNULL) as child, ExitStack() as stack:
                stack.callback(child.kill)
                wait_for_samples(path, 6).close()
                sampler = part(child.pid, SAMPLER)
                wanted = set(capabilities.sampler_needs("pagetable"))
                assert wanted == {
                    *("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_OVERRIDE", "CAP_SYS_NICE"),
                }
                for field in ("CapEff", "CapPrm", "CapBnd"):
                    assert caps(sampler.pid, field) == wanted, field
                for field in ("CapInh", "CapAmb"):
                    assert caps(sampler.pid, field) == set(), field
                assert status(sampler.pid)["NoNewPrivs"] == "1"
                child.send_signal(signal.SIGINT)
                child.communicate(timeout=20)
                assert child.returncode == 0
            assert_exact(path, truth)
        finally:
            target.kill()


def test_the_capabilities_are_documented():
    text = (ROOT / "docs/reference/security.md").read_text()
    for tracker in ("pagetable", "idle", "rss"):
        for name in capabilities.sampler_needs(tracker):
            assert f"`{name}`" in text


@needs_root
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_what_a_sampler_opens_and_whom_it_signals(tmp_path):
    """By strace: it writes to clear_refs only, opens nothing of a user's, and signals nobody but its own children."""
    log = tmp_path / "strace"
    with pattern("loop", "--pages", 500) as truth:
        pid = truth["pid"]
        order = SamplerConfig(pid, read_stat(pid).start_ticks, Options(100_000_000, duration_ns=1_500_000_000))
        calls = "open,openat,openat2,creat,kill,tkill,tgkill,rt_sigqueueinfo,pidfd_send_signal,unlink,rename,mkdir"
        before = ("strace", "-f", "-qq", "-o", str(log), "-e", f"trace={calls},clone,clone3,vfork,fork")
        words = [*before, sys.executable, "-P", "-m", SAMPLER]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as child:
            assert child.stdin is not None
            child.stdin.write(order.to_line())
            child.stdin.flush()
            out, _ = child.communicate(timeout=60)
        assert child.returncode == 0
        assert len(out) > 1000
    lines = log.read_text().splitlines()
    main = lines[0].split()[0]
    children = {main} | {m[1] for line in lines if (m := re.search(r"(?:clone3?|v?fork).* = (\d+)$", line))}
    code = tuple(map(str, (sys.prefix, sys.base_prefix, Path(sys.executable).resolve().parent, ROOT)))
    system = ("/proc/", "/sys/", "/usr/", "/lib", "/etc/", "/dev/", "/run/nvidia", "/var/run/nvidia")
    for line in lines:
        if match := re.search(r'open(?:at2?)?\((?:AT_FDCWD|\d+), "([^"]*)", ([A-Z_|]+)', line):
            path, flags = match[1], match[2]
            if not path.startswith("/"):
                continue  # below a folder that was opened by one of the other lines
            assert f"{path}/".startswith((*system, *code)), line
            if "O_WRONLY" in flags or "O_RDWR" in flags:
                written = ("clear_refs", "/dev/null", "/dev/nvidia", "/dev/shm", "/mem", "reclaim")
                assert any(word in path for word in written) or "ENOENT" in line, line
        elif match := re.search(r"(?:t?g?kill|rt_sigqueueinfo)\((\d+)", line):
            assert match[1] in children, line
            assert not re.search("SIG(STOP|CONT)", line), "by pidfd only"
        assert not re.search(r"\b(creat|unlink|rename|mkdir)\(", line), line
