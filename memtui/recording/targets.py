"""The process that is to be observed: found by name or rank, checked, or proposed.

A name finds one process, as pgrep would, but only one. Whether that process may and can be observed is checked before
anything is started. Candidates are processes that train, and those that are large.
"""

from __future__ import annotations

import math
import os
import pwd
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from memtui.core import procfs
from memtui.core.errors import UserError
from memtui.core.procfs import PROC, Stat, command_of, ranks_of, read_stat
from memtui.core.secrets import mask_secrets
from memtui.core.text import short_command

_MOST_CANDIDATES = 8


def sudo_line(*arguments: str) -> str:
    """Return the exact command that runs memtui as root: sudo's secure_path does not find a virtual environment."""
    program = Path(sys.argv[0]).absolute()
    installed = program.name == "memtui" and program.is_file() and os.access(program, os.X_OK)
    return shlex.join(["sudo", *([str(program)] if installed else [sys.executable, "-m", "memtui"]), *arguments])


def parse_pid(text: str) -> int:
    """Return a process id from the command line. Raises UserError."""
    try:
        pid = int(text)
    except ValueError:
        raise UserError(f"PID must be a number, not {text!r}") from None
    if pid <= 0:
        raise UserError(f"PID must be above 0, not {pid}")
    return pid


def find_target(pid: int) -> tuple[int, str]:
    """Return the process that a number names: (pid here, one line when it is not the number that was given).

    Of a thread, as top and htop show them, that is its process. Where nothing here has that number, a process that has
    it inside a container is meant, if there is only one. Raises UserError.
    """
    if (PROC / str(pid)).exists():
        process = _process_of(pid)
        if process == pid:
            return pid, ""
        return process, f"{pid} is a thread of process {process} ({_short_command(process)})"
    pids = pids_inside(pid)
    if not pids:
        raise UserError(f"no process has PID {pid}, here or in a container; `ps aux` shows what runs")
    if len(pids) > 1:
        some = ", ".join(f"{outer} ({_short_command(outer)})" for outer in pids[:_MOST_CANDIDATES])
        more = f" and {len(pids) - _MOST_CANDIDATES} more" if len(pids) > _MOST_CANDIDATES else ""
        raise UserError(f"PID {pid} exists in {len(pids)} containers only; name one by its PID here: {some}{more}")
    return pids[0], f"PID {pid} exists in a container only; out here it is {pids[0]} ({_short_command(pids[0])})"


def _process_of(thread: int) -> int:
    """Return the process that a thread belongs to, by their numbers; of a process that is itself."""
    try:
        status = (PROC / str(thread) / "status").read_text(errors="replace")
    except OSError:
        return thread  # it ended, which is reported later
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("Tgid:")), thread)


def pids_inside(pid: int, proc: Path = PROC) -> list[int]:
    """Return the processes that have this number in a PID namespace below this one, by their number here."""
    pids = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "status").read_text(errors="replace")
        except OSError:
            continue
        # NSpid: the number here, then in each namespace further inside. The name of the process cannot forge this
        # line, because the kernel writes line breaks in names as \n.
        numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        if str(pid) in numbers[1:]:
            pids.append(int(entry.name))
    return sorted(pids)


def _short_command(pid: int) -> str:
    """Return enough of a command line to recognise it by, and nothing that a terminal would act on."""
    try:
        command = command_of(pid)
    except ProcessLookupError:
        return "ended"
    return short_command(command, 40)


def check_target(pid: int) -> int:
    """Return the start time (ticks) of a process that can be observed; otherwise raise UserError."""
    if pid == 1 and procfs.in_initial_pid_namespace():  # in a container it may well be the training
        raise UserError("PID 1 is init: memtui does not observe it; name the training process")
    try:
        stat = read_stat(pid)
    except ProcessLookupError:
        raise UserError(f"no process has PID {pid}; `memtui doctor` and `ps aux` show what runs") from None
    if pid == os.getpid():
        raise UserError(f"PID {pid} is memtui itself; name another process")
    if pid in ancestors(os.getpid()):
        raise UserError(f"PID {pid} started this memtui (shell or terminal): pausing it would stop memtui too")
    if stat.kernel_thread:
        raise UserError(f"PID {pid} is a kernel thread: it has no memory of its own to observe")
    if stat.ended:
        raise UserError(f"PID {pid} has ended already and waits for its parent (zombie)")
    return stat.start_ticks


def belongs_to_another(pid: int) -> bool:
    """Whether only root may observe it: another user's, or one that gave up being traced (set-user-ID programs)."""
    try:
        return os.geteuid() not in (0, Path(f"/proc/{pid}").stat().st_uid)
    except FileNotFoundError:
        return False


def others(proc: Path = PROC) -> Iterator[tuple[int, Stat]]:
    """Return every process that runs and is neither this one, nor what it was started from, nor the kernel's."""
    hidden = ancestors(os.getpid()) | {os.getpid()}
    for folder in proc.iterdir():
        if folder.name.isdigit() and (pid := int(folder.name)) not in hidden:
            try:
                stat = read_stat(pid, proc)
            except OSError:
                continue
            if not (stat.kernel_thread or stat.ended):
                yield pid, stat


def ancestors(pid: int) -> set[int]:
    """Return the parent of a process, its parent, and so on up to 1."""
    pids: set[int] = set()
    while pid > 1:
        pid = read_stat(pid).parent_pid
        pids.add(pid)
    return pids


_MOST_NAMED = 6
_INTERPRETER = re.compile(r"(?:python|pypy|bash|sh|perl|ruby|node|julia)[\d.]*")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # options of Python whose value is an argument of its own


@dataclass(frozen=True, slots=True)
class _NamedProcess:
    pid: int
    names: frozenset[str]
    command: str


def find(text: str | None, rank: int | None) -> tuple[int, str]:
    """Return (the process that is meant, one line when that is not what was typed).

    Args:
        text: a PID, here or inside a container, or a name: of the program, of the script it runs (``train.py``) or the
            module (``-m``), or else any part of the command line.
        rank: its place in a training that was started as several processes; with a PID: at or below that process.

    Raises:
        UserError: no process matches, or several do, which the text names.
    """
    if text is not None and re.fullmatch(r"[-+]?\d+", text):
        pid, notice = find_target(parse_pid(text))
        if rank is None:
            return pid, notice
        inside = _below(pid, processes())
        where = f"PID {pid} and the processes below it"
    else:
        if text == "":
            raise UserError("an empty name is not a process; name a PID or a program")
        inside = processes() if text is None else _named(text, processes())
        where = f"those called {text!r}" if text else "all of them"
    if rank is not None:
        inside = [p for p in inside if ranks_of(p.pid).get("RANK") == rank]
    matches = _outermost(inside)
    if not matches:
        raise UserError(_nothing(text, rank, where))
    if len(matches) > 1:
        some = ", ".join(f"{p.pid} ({_short(p, 50)})" for p in matches[:_MOST_NAMED])
        more = f" and {len(matches) - _MOST_NAMED} more" if len(matches) > _MOST_NAMED else ""
        what = " ".join([*([repr(text)] if text else []), *([f"rank {rank}"] if rank is not None else [])])
        raise UserError(f"{what} is {len(matches)} processes; name one by its PID: {some}{more}")
    return matches[0].pid, f"process {matches[0].pid} ({_short(matches[0], 160)})"


def processes(proc: Path = PROC) -> list[_NamedProcess]:
    """Return what runs and is neither memtui, nor what memtui was started from, nor the kernel's."""
    result = []
    for pid, _ in others(proc):
        folder = proc / str(pid)
        try:
            argv = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            title = (folder / "comm").read_text(errors="replace").rstrip("\n")
            command = command_of(pid)
        except OSError:
            continue
        if not is_own(command):
            result.append(_NamedProcess(pid, names_of(title, argv), command))
    return sorted(result, key=lambda p: p.pid)


def names_of(title: str, argv: list[str]) -> frozenset[str]:
    """Return what a process is called: its title, its program, what its interpreter runs, with and without ``.py``."""
    program = argv[0].rpartition("/")[2] if argv else ""
    names = {title, program}
    if _INTERPRETER.fullmatch(program):
        rest = iter(argv[1:])
        for word in rest:
            if word == "-m":
                names.add(next(rest, ""))
            elif word == "-c":
                pass  # what follows is a program text
            elif word in _WITH_VALUE:
                next(rest, None)
                continue
            elif word.startswith("-"):
                continue
            else:
                script = word.rpartition("/")[2]
                names |= {script, script.removesuffix(".py")}
            break
    return frozenset(names - {""})


def _named(text: str, candidates: list[_NamedProcess]) -> list[_NamedProcess]:
    """Return the processes of that name; without any, those with the text anywhere in the command line."""
    return [p for p in candidates if text in p.names] or [p for p in candidates if text.lower() in p.command.lower()]


def _below(root: int, candidates: list[_NamedProcess]) -> list[_NamedProcess]:
    """Return a process and its descendants."""
    return [p for p in candidates if p.pid == root or root in _ancestors(p.pid)]


def _outermost(matches: Iterable[_NamedProcess]) -> list[_NamedProcess]:
    """Return the processes without descendants of another one: workers have the name of their parent."""
    matches = list(matches)
    pids = {p.pid for p in matches}
    return [p for p in matches if not pids & _ancestors(p.pid)]


def _ancestors(pid: int) -> set[int]:
    try:
        return ancestors(pid)
    except ProcessLookupError:
        return set()


def _short(process: _NamedProcess, characters: int) -> str:
    return short_command(mask_secrets(process.command), characters)


def _nothing(text: str | None, rank: int | None, where: str) -> str:
    if rank is None:
        return f"no process is called {text!r}, nor has it in its command line; `ps aux` shows what runs"
    return f"no process says RANK={rank} in its environment, which only its user and root may read; looked at {where}"


LARGE_BYTES = 256 << 20  # of resident memory: worth a line whatever it is
_LOOKED_INTO_BYTES = 32 << 20  # a process with less resident memory than this is not a training
_YOUNG_S = 60.0  # until then a program may still load its libraries
_OLDER = 1.5  # a young process is inspected again at this multiple of its age at the last inspection
_KINDS = ((b"libtorch", "torch"), (b"tensorflow", "tensorflow"), (b"jaxlib", "jax"), (b"/dev/nvidia", "GPU"))
_PYTHON = re.compile(r"^(?:.*/)?python[\d.]*(?:\s|$)")
_OWN = re.compile(
    r"\s-m memtui\b(?!\.(?:study\.)?workloads)|(?:^|/)memtui(?:\s|$)|\bmemtui\.(?:recording|sampler|recorder|gate)\b"
)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


def is_own(command: str) -> bool:
    """Whether a command line is memtui's."""
    return bool(_OWN.search(command))


def user_name(uid: int) -> str:
    """Return the name of a user, or the number of a user without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that runs now. ``age_s``: since its start."""

    pid: int
    start_ticks: int
    user: str
    kinds: tuple[str, ...]
    rss_bytes: int
    age_s: float
    command: str
    parent_pid: int


@dataclass(frozen=True, slots=True)
class _CachedDetails:
    """Details of a process that seldom change."""

    start_ticks: int
    user: str
    command: str
    kinds: tuple[str, ...]
    age_s: float  # of the process when the details were read


class Candidates:
    """Scans /proc; details of a process are cached until it ends.

    A scan reads one small file of each process, because the start page scans every two seconds and machines have
    hundreds of processes. Their identity is read once, for as long as the kernel shows the same inode under their PID.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._met: dict[int, tuple[int, Stat | None]] = {}  # inode of its folder; None: of the kernel
        self._cached: dict[int, _CachedDetails] = {}
        self._listed: set[tuple[int, int]] = set()  # PID and start: a process that was large is listed until it ends

    def scan(self) -> list[Candidate]:
        """Return candidates, those that train first, then by size. Never raises."""
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        hidden = ancestors(os.getpid()) | {os.getpid()}
        candidates, met, large = [], {}, set()
        with os.scandir(self._proc) as entries:
            numbered = [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdecimal()]
        for pid, inode in numbered:
            try:
                stat = self._stat(pid, inode)
                met[pid] = inode, stat
                if stat is None or pid in hidden:
                    continue
                rss_bytes = self._rss_bytes(pid)  # of one that has ended 0
                listed = (pid, stat.start_ticks) in self._listed
                if rss_bytes < _LOOKED_INTO_BYTES and not (listed and rss_bytes):
                    continue
                large.add(pid)
                age_s = now_s - stat.start_ticks / _TICKS
                details = self._find_out(pid, stat, age_s)
            except OSError:
                continue
            if (details.kinds or rss_bytes >= LARGE_BYTES or listed) and not is_own(details.command):
                named = details.user, details.kinds, rss_bytes, age_s, details.command
                candidates.append(Candidate(pid, stat.start_ticks, *named, stat.parent_pid))
        self._met = met
        self._listed = {(c.pid, c.start_ticks) for c in candidates}
        self._cached = {pid: details for pid, details in self._cached.items() if pid in large}
        return sorted(candidates, key=lambda c: (set(c.kinds) <= {"python"}, not c.kinds, -c.rss_bytes))

    def _stat(self, pid: int, inode: int) -> Stat | None:
        """Return the process that has this PID now; None for a kernel thread. Raises OSError."""
        before = self._met.get(pid)
        if before is not None and before[0] == inode:
            return before[1]
        stat = read_stat(pid, self._proc)
        return None if stat.kernel_thread else stat

    def _rss_bytes(self, pid: int) -> int:
        fd = os.open(f"{self._proc}/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(fd, 256).split()[1]) * _PAGE_BYTES
        finally:
            os.close(fd)

    def _find_out(self, pid: int, stat: Stat, age_s: float) -> _CachedDetails:
        cached = self._cached.get(pid)
        if cached is not None and cached.start_ticks == stat.start_ticks:
            again_s = min(_OLDER * cached.age_s, _YOUNG_S) if cached.age_s <= _YOUNG_S else math.inf
            if age_s <= again_s:
                return cached
        uid = (self._proc / str(pid)).stat().st_uid
        user = user_name(uid)
        command = mask_secrets(command_of(pid))
        kinds = self._kinds(pid)
        if not kinds and _PYTHON.match(command):
            kinds = ("python",)
        details = _CachedDetails(stat.start_ticks, user, command, kinds, age_s)
        self._cached[pid] = details
        return details

    def _kinds(self, pid: int) -> tuple[str, ...]:
        """Return the kinds of a process by the files it has mapped; another user's process only shows them to root."""
        try:
            text = (self._proc / str(pid) / "maps").read_bytes()
        except OSError:
            return ()
        return tuple(kind for word, kind in _KINDS if word in text)
