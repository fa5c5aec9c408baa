"""The kernel's one interface to DAMON, /sys/kernel/mm/damon/admin, which belongs to one program at a time.

A lock protects the interface, and its settings are restored afterwards: a configuration that somebody left there
without running it is written back value by value. A kdamond that runs is left alone. Formats:
Documentation/admin-guide/mm/damon/usage.rst of Linux.

DAMON serves as a sampler: the memory is cut into fixed regions, and DAMON watches one page of each, drawn anew in
every interval, over the whole interval. With one sample per aggregation, a region is reported as accessed with the
probability that a page of it is accessed in a window. So the sizes of the reported regions add up to an unbiased
estimate of the working set, whatever the access pattern. DAMON's usual way takes many short samples of a few regions
that it merges and splits. It finds pages that are accessed all the time, and takes a region with some of them for one
that is hot as a whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from memtui.core.file_lock import lock_holder
from memtui.core.procfs import PROC
from memtui.probes.pages.tracker import TrackerError

SYS = Path("/sys")
_T = TypeVar("_T")
Regions = Sequence[tuple[int, int]]  # start and end in bytes, rising
Tree = dict[str, Any]  # of files (str) and folders (Tree)

OPERATIONS = "fvaddr"  # fixed ranges of virtual addresses
# An upper limit of region sizes that excludes none, by which memtui recognises its own configuration.
MARK = 0x7FFFFFFF_6D747569
_ANY = 2**31  # above every count of accesses, and every age
_NEVER_US = 10**12
_BUSY_S, _PATIENCE_S, _AGAIN_S = 5.0, 1.0, 0.01
_DAMO = (b"damo", b"damo.py")
_NO_VADDR = "a kernel with CONFIG_DAMON_VADDR"
_NO_SYSFS = "a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_VADDR"


class Refused(TrackerError):
    """DAMON cannot be used; with the reason and a remedy."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


class Taken(Refused):
    """Another program has changed the settings of memtui, and owns the interface now."""

    def __init__(self) -> None:
        super().__init__("somebody else has changed the settings of DAMON")


@dataclass(frozen=True, slots=True)
class Target:
    """One process and its regions to watch."""

    pid: int
    regions: Regions


class Interface:
    """DAMON's sysfs files. Every method raises OSError where the kernel refuses."""

    def __init__(self, sys_root: Path = SYS, proc: Path = PROC) -> None:
        """Store the mount points of the file systems."""
        self._modules, self._proc = sys_root / "module", proc
        self._admin = sys_root / "kernel/mm/damon/admin/kdamonds"
        self._lock: int | None = None
        self._original: Tree = {}
        self._configured = False

    # -- taking and releasing

    def take(self) -> Tree:
        """Take the interface until ``release``; return its settings before that. Raises Refused."""
        if why := self.objection():
            raise why
        self._lock = self._locked()
        try:
            self._clear_leftovers()
            if why := self._in_use():
                raise why
            self._original = self.snapshot()
            try:
                self.write("nr_kdamonds", 1)
            except OSError as error:
                if error.errno == errno.EBUSY:  # started since the check
                    raise self._in_use() or Refused("DAMON is in use: somebody is changing its settings") from error
                raise
            try:
                self._examine()
            except BaseException:
                self.release()
                raise
            return self._original
        except BaseException:
            self._unlock()
            raise

    def release(self, original: Tree | None = None) -> None:
        """Restore the original settings, unless another program took the interface meanwhile.

        ``original``: the settings that ``take`` returned to another process of memtui that died. Raises Refused when
        that process is alive.
        """
        if original is not None:
            self._original = original
            self._lock = self._locked()
        try:
            if self._configured or original is not None:
                if not self.is_ours():
                    return
            elif self.read("nr_kdamonds") != "1":
                return
            self.stop()
            self.write("nr_kdamonds", 0)
            self._put_back(self._admin, self._original)
        finally:
            self._configured = False
            self._unlock()

    def _locked(self) -> int:
        """Return the descriptor of the lock, which ends with its process. Only root can open it. Raises Refused."""
        lock = os.open(self._admin / "nr_kdamonds", os.O_RDONLY | os.O_CLOEXEC)
        end = time.monotonic() + _PATIENCE_S  # a holder that is about to end releases it soon
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                if time.monotonic() < end:
                    time.sleep(_AGAIN_S)
                    continue
                holder = lock_holder(lock)
                os.close(lock)
                who = f"another memtui (pid {holder})" if holder else "another memtui"
                raise Refused(f"DAMON is in use by {who}", "end that recording first") from None

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def objection(self) -> Refused | None:
        """Return an obstacle to DAMON on this machine that can be seen without trying; None: there is none."""
        if not self._admin.is_dir():
            return Refused(f"{self._admin.parent} is missing: this kernel has no DAMON, or not its files", _NO_SYSFS)
        if os.geteuid() != 0:
            return Refused(f"it needs root (the files of {self._admin.parent})", "run with sudo")
        for file in self._admin.glob("*/contexts/*/avail_operations"):
            if why := _no_virtual_addresses(file.read_text()):
                return why
        for file in sorted(self._modules.glob("damon_*/parameters/enabled")):
            if file.read_text().strip() in ("Y", "1"):
                name = file.parent.parent.name
                return Refused(f"DAMON is in use by the kernel's {name}", f"echo N > {file}, if it is not needed")
        return None

    def _in_use(self) -> Refused | None:
        for folder in sorted(self._admin.iterdir()):
            if folder.is_dir() and self.read(f"{folder.name}/state") == "on":
                operations = {f.read_text().strip() for f in folder.glob("contexts/*/operations")}
                what = f"kdamond {folder.name} runs ({', '.join(sorted(operations)) or 'no context'})"
                who = self._damo()
                remedy = "end it first" if who else f"echo off > {folder}/state, if it is not needed"
                return Refused(f"DAMON is in use: {what}{who}", remedy)
        return None

    def _damo(self) -> str:
        """Return a text about a running process of DAMON's usual tool, damo; empty without one."""
        for folder in self._proc.iterdir():
            if folder.name.isdigit():
                try:
                    argv = (folder / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if any(argument.rpartition(b"/")[2] in _DAMO for argument in argv[:3]):
                    return f", of damo (pid {folder.name})?"
        return ""

    def _clear_leftovers(self) -> None:
        """Remove the settings of a killed memtui, which no longer holds the lock."""
        if self.is_ours():
            self.stop()
            self.write("nr_kdamonds", 0)

    def is_ours(self) -> bool:
        """Whether the settings are memtui's own."""
        return self.read("nr_kdamonds") == "1" and any(
            file.read_text().strip() == str(MARK)
            for file in self._admin.glob("0/contexts/0/schemes/0/access_pattern/sz/max")
        )

    def _examine(self) -> None:
        """Raise Refused when this DAMON lacks what is needed."""
        self.write("0/contexts/nr_contexts", 1)
        if why := _no_virtual_addresses(self.read("0/contexts/0/avail_operations")):
            raise why
        self.write("0/contexts/0/schemes/nr_schemes", 1)
        scheme = self._admin / "0/contexts/0/schemes/0"
        if not (scheme / "apply_interval_us").exists() or not (scheme / "tried_regions").exists():
            raise Refused("the DAMON of this kernel cannot be asked often enough", "Linux 6.7 or newer")

    # -- watching

    def start(self, targets: Sequence[Target], interval_ns: int) -> None:
        """Start watching these processes. The first target must be one region of this process: see ``read_out``.

        Watching must be stopped before. Raises Taken.
        """
        self._verify()
        self._configured = False
        self.write("0/contexts/nr_contexts", 1)  # this drops all earlier settings
        context = "0/contexts/0"
        self.write(f"{context}/operations", OPERATIONS)
        attributes = f"{context}/monitoring_attrs"
        interval_us = interval_ns // 1000
        for name, value in (("sample", interval_us), ("aggr", interval_us), ("update", _NEVER_US)):
            self.write(f"{attributes}/intervals/{name}_us", value)
        # DAMON splits regions while they are at most half of the maximum, and merges them up to the total size divided
        # by the minimum: with these numbers it does neither.
        count = 2 * sum(len(target.regions) for target in targets) - 1
        self.write(f"{attributes}/nr_regions/max", count)
        self.write(f"{attributes}/nr_regions/min", count)
        self.write(f"{context}/schemes/nr_schemes", len(targets))
        self.write(f"{context}/targets/nr_targets", len(targets))
        for number, target in enumerate(targets):
            self._set_scheme(f"{context}/schemes/{number}", number)
            folder = f"{context}/targets/{number}"
            self.write(f"{folder}/pid_target", target.pid)
            self.write(f"{folder}/regions/nr_regions", len(target.regions))
            for index, (start, end) in enumerate(target.regions):
                self.write(f"{folder}/regions/{index}/start", start)
                self.write(f"{folder}/regions/{index}/end", end)
        self.write("0/state", "on")

    def _set_scheme(self, scheme: str, number: int) -> None:
        """Set a scheme that does nothing but list the accessed regions of one target."""
        self.write(f"{scheme}/access_pattern/sz/max", MARK)
        self._configured = True
        self.write(f"{scheme}/access_pattern/nr_accesses/min", min(number, 1))
        self.write(f"{scheme}/access_pattern/nr_accesses/max", _ANY)
        self.write(f"{scheme}/access_pattern/age/max", _ANY)
        self.write(f"{scheme}/action", "stat")
        self.write(f"{scheme}/apply_interval_us", 1)  # in every interval; the kernel waits no longer for an idle one
        self.write(f"{scheme}/filters/nr_filters", 1)
        self.write(f"{scheme}/filters/0/type", "target")
        self.write(f"{scheme}/filters/0/matching", "N")  # whatever is not this target is filtered out
        self.write(f"{scheme}/filters/0/damon_target_idx", number)

    def read_out(self, count: int) -> list[Regions] | None:
        """Return the accessed regions of each of ``count`` targets in the interval that ends next; blocks until then.

        None when the kernel answered without a check. The first target shows that: its region is always listed.

        Raises:
            Taken: the settings are no longer memtui's.
            OSError: the kdamond ended.
        """
        self._verify()
        self.write("0/state", "update_schemes_tried_regions")
        touched = [self._tried(self._admin / f"0/contexts/0/schemes/{number}/tried_regions") for number in range(count)]
        return touched if touched[0] else None

    def _tried(self, folder: Path) -> Regions:
        regions = [region for region in folder.iterdir() if region.name.isdigit()]
        return sorted((_number(region / "start"), _number(region / "end")) for region in regions)

    def _verify(self) -> None:
        if self._configured and not self.is_ours():
            raise Taken

    def stop(self) -> None:
        """Stop watching; no error when the kdamond has ended. Raises Taken."""
        self._verify()
        try:
            self.write("0/state", "off")
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EINVAL):  # it ended by itself; it never started
                raise

    # -- files

    def read(self, name: str) -> str:
        """Return one value. The kernel returns EBUSY while it executes a command."""
        return _retry_while_busy((self._admin / name).read_text).strip()

    def write(self, name: str, value: int | str) -> None:
        """Set one value."""
        _retry_while_busy(lambda: self._store(name, str(value)))

    def _store(self, name: str, value: str) -> None:
        descriptor = os.open(self._admin / name, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def snapshot(self) -> Tree:
        """Return all writable values as a tree."""
        return _snapshot(self._admin) if self.read("nr_kdamonds") != "0" else {}

    def _put_back(self, folder: Path, tree: Tree) -> None:
        # Counts of folders come first: writing one creates the folders, with values that the kernel chooses.
        for name in sorted(tree, key=lambda name: (not name.startswith("nr_") or isinstance(tree[name], dict), name)):
            value = tree[name]
            if isinstance(value, dict):
                self._put_back(folder / name, value)
            elif (folder / name).read_text() != value:
                self.write(str((folder / name).relative_to(self._admin)), value.strip())


def _snapshot(folder: Path) -> Tree:
    tree: Tree = {}
    for entry in os.scandir(folder):
        if entry.is_dir():
            tree[entry.name] = _snapshot(Path(entry.path))
        elif entry.name != "state" and entry.stat().st_mode & 0o600 == 0o600:
            tree[entry.name] = Path(entry.path).read_text()
    return tree


def _no_virtual_addresses(operations: str) -> Refused | None:
    available = operations.split()
    if OPERATIONS in available:
        return None
    return Refused(f"the DAMON of this kernel watches no virtual addresses (only {', '.join(available)})", _NO_VADDR)


def _retry_while_busy(act: Callable[[], _T]) -> _T:
    end = time.monotonic() + _BUSY_S
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= end:
                raise
        time.sleep(_AGAIN_S)


def _number(file: Path) -> int:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(descriptor, 32))
    finally:
        os.close(descriptor)
