"""The config file: defaults named as on the command line, checked like it, read by no one but the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.cli import main
from memtui.cli.parser import build_parser
from memtui.core.errors import UserError
from tests.support.in_process import memtui_here
from tests.support.sessions import messages, write_session
from tests.support.users import can_run_as_other, temporary_user, unless_gate

BIG = "x" * 70_000


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return write_session(tmp_path_factory.mktemp("config") / "s.memtui", messages(5))


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A place for the file; commands started by a test find it."""
    path = tmp_path / "config" / "memtui" / "config.toml"
    path.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    return path


def options(*argv: str):
    """What a command is called with."""
    parser = build_parser()
    return main._with_config(parser, list(argv), parser.parse_args(list(argv)))


def memtui(*argv: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memtui", *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)


def test_defaults_come_from_the_file_and_words_go_before_it(config):
    config.write_text(
        'interval = 0.5\ntracker = "referenced"\nascii = true\nchildren = false\nfilter = "exec,pages<9"\n'
        '[record]\ninterval = 2\nsudo = false\n[replay]\ncolor = "16"\n'
    )
    attach = options("attach", "1")
    assert (attach.interval, attach.tracker, attach.ascii, attach.children) == (0.5, "referenced", True, False)
    assert (attach.filter, attach.sudo, attach.color) == ("exec,pages<9", None, "auto")
    record = options("record", "1")
    assert (record.interval, record.sudo, record.tracker) == (2.0, False, "referenced")
    assert options("record", "1", "--interval", "3", "--children", "--tracker", "rss").interval == 3.0
    assert options("record", "1", "--children").children is True
    assert options("replay", "x").color == "16"
    assert options("replay", "x", "--no-config").color == "auto"
    assert not hasattr(options("report", "x"), "interval")


def test_a_command_with_commands_of_its_own_follows_it(config):
    config.write_text('ascii = true\nseconds = 3\n[place]\nseconds = 0.5\nslow = "numa:1"\nmode = "single"\n')
    profile = options("place", "profile", "mlp")
    assert (profile.seconds, profile.ascii, profile.mode) == (0.5, True, ("single",))
    assert options("place", "profile", "mlp", "--seconds", "2").seconds == 2
    solve = options("place", "solve", "p", "--ratio", "1:1")
    assert (solve.slow, solve.mode) == ("numa:1", ("single",))
    assert not hasattr(solve, "seconds")
    assert options("place", "show", "p").ascii is True
    config.write_text("[place]\nlimit = 3\n")
    with pytest.raises(UserError, match=r"\[place\] limit: is not an option that can be set here"):
        options("place", "show", "p")


def test_without_a_file_nothing_changes(config):
    assert options("attach", "1").interval == 0.2


def test_it_is_found_in_the_home_folder(tmp_path, monkeypatch, config):
    for variable in ("", "relative/path"):
        monkeypatch.setenv("XDG_CONFIG_HOME", variable)
        monkeypatch.setenv("HOME", str(tmp_path))
        path = tmp_path / ".config" / "memtui" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("interval = 0.7")
        assert options("attach", "1").interval == 0.7


def test_a_command_follows_it(config, session):
    assert "train.py" in memtui("report", session).stdout
    config.write_text("redact = true")
    assert "command-1" in memtui("report", session).stdout
    assert "train.py" not in memtui("report", session).stdout
    for options in (("--no-config",), ("--no-redact",)):
        assert "train.py" in memtui("report", session, *options).stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("interval = 0", "interval: must be above 0 seconds, not 0"),
        ("interval = 4000", "interval: must be from 0.001 to 3600 seconds"),
        ('interval = "fast"', "interval: must be a number of seconds, not 'fast'"),
        ("interval = true", "interval: must be a number or a text, not true"),
        ("interval = [1]", "interval: must be a number or a text, not [1]"),
        ('tracker = "magic"', 'tracker: must be one of auto, pagetable, idle, damon, referenced, rss, not "magic"'),
        ('ascii = "yes"', 'ascii: must be true or false, not "yes"'),
        ("children = 1", "children: must be true or false, not 1"),
        ('filter = "exe"', "filter: unknown filter term 'exe'"),
        ("intervall = 1", "intervall: is not an option that can be set here; did you mean interval? --no-config"),
        ('colr = "16"', "colr: is not an option that can be set here; did you mean color?"),
        ('max_overhead = "1%"', "max_overhead: is not an option that can be set here; did you mean max-overhead?"),
        ("zzz = 1", "zzz: is not an option that can be set here; allowed: long options of a command"),
        ('grid = "m=1"', "grid: is not an option that can be set here"),
        ("[attach]\nrank = 3", "[attach] rank: is not an option that can be set here"),
        ("force = true", "force: is not an option that can be set here"),
        ('output = "x"', "output: is not an option that can be set here"),
        (
            "[report]\ninterval = 1",
            "[report] interval: is not an option that can be set here; allowed: gco2-per-kwh, redact",
        ),
        ("[recrod]\ninterval = 1", "[recrod]: is not a command; did you mean record?"),
        ("[zzz]\ninterval = 1", "[zzz]: is not a command; allowed: attach, bench"),
        ('[record]\ncolor = "16"', "[record] color: is not an option"),
        ("interval = ", "is not TOML: "),
        ("a = " + "[" * 5000, "is not TOML: "),
        ('"\\u001b[31m" = 1', "\\x1b[31m: is not an option"),
        (f"# {BIG}", "is larger than 64.0 KiB"),
    ],
)
def test_a_mistake_is_one_line(text, says, config, session):
    """Also one that the command at hand would not read: a typing error does not wait for its day."""
    config.write_text(text)
    done = memtui_here("report", session)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert f"memtui report: {config}: " in done.stderr
    assert says in done.stderr
    assert len(done.stderr) < 500  # it names the options that there are
    assert memtui_here("report", session, "--no-config").returncode == 0


def test_what_is_no_file_is_one_line(config, session):
    os.mkfifo(config)
    done = memtui("report", session)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not a file" in done.stderr
    config.unlink()
    config.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in memtui("report", session).stderr
    config.unlink()
    config.mkdir()
    assert memtui("report", session).returncode == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_the_home_of_another_user_is_no_mistake(session, config, tmp_path):
    """After su without a login HOME is still root's."""
    if why := unless_gate(can_run_as_other()):
        pytest.skip(why)
    config.write_text("a mistake")
    tmp_path.chmod(0o700)
    code = "from memtui.cli.config import _read; print(_read()[1])"
    done = subprocess.run(
        [sys.executable, "-c", code], user="nobody", capture_output=True, text=True, cwd="/", check=False
    )
    assert done.stdout == "None\n", done.stderr


def test_help_does_not_pay_for_it(config):
    config.write_text("a mistake")
    for argv in ((), ("--help",), ("--version",), ("attach", "--help"), ("completion", "bash")):
        assert memtui(*argv).returncode == 0
    code = "import sys, memtui.cli.main\ntry: memtui.cli.main.main(['--help'])\nexcept SystemExit: pass\n"
    # What takes long to import is for the commands that need it.
    unneeded = ("tomllib", "memtui.cli.config", "dataclasses", "subprocess", "numpy", "textual", "psutil", "sqlite3")
    code += f"print([name for name in {unneeded} if name in sys.modules], file=sys.stderr)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr == "[]\n"


def test_under_sudo_it_is_the_users_and_root_does_not_read_it(session):
    """As sudo starts it: root, with the user in SUDO_UID."""
    with temporary_user() as user:
        mine = user.home / "s.memtui"
        mine.write_bytes(session.read_bytes())
        path = user.home / ".config" / "memtui" / "config.toml"
        path.parent.mkdir(parents=True)
        environ = {
            "SUDO_UID": str(user.uid),
            "SUDO_GID": str(user.gid),
            "SUDO_USER": user.name,
            "PATH": "/usr/bin:/bin",
        }
        environ |= {"HOME": "/root", "LANG": "C.UTF-8"}

        def report() -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "memtui", "report", str(mine)]
            return subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=60)

        assert "train.py" in report().stdout
        path.write_text("redact = true")
        assert "command-1" in report().stdout
        secret = Path("/root") / f"memtui-secret-{os.getpid()}.toml"
        secret.write_text('password = "hunter2"')
        secret.chmod(0o600)
        try:
            path.unlink()
            path.symlink_to(secret)
            done = report()
        finally:
            secret.unlink()
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "cannot be read: Permission denied" in done.stderr
        assert "password" not in done.stderr
