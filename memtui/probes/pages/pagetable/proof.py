"""Proves that the page-table tracker and its flushes work here, or says what is missing and what to do."""

from __future__ import annotations

import os
import platform
import random
from pathlib import Path

from memtui.core.page_sizes import BLOCK_BYTES, PAGE_BYTES
from memtui.core.samples import Capability
from memtui.probes.pages.pagetable.bpf_loader import BpfError, Skeleton
from memtui.probes.pages.pagetable.tracker import NAME
from memtui.probes.pages.pagetable.walk import MANY_TABLES, Walker
from memtui.probes.pages.self_test import misjudged, other_pages, own_pages
from memtui.probes.pages.tlb_flush import FLUSHES, OFF, prove_flushes
from memtui.probes.pages.tracker import TrackerError

_BTF = Path("/sys/kernel/btf/vmlinux")
_OLDEST = (5, 17)  # bpf_loop; some distributions have it in older kernels, so this is only an explanation
_PROOF_PAGES, _PROOF_ATTEMPTS = 64, 3


def prove(skeleton: Skeleton | None = None) -> Capability:
    """Return whether the tracker sees exactly those of 64 pages of this process, a random half, that are accessed.

    Never raises; the capability says what is missing in plain words.
    """
    capability, walker = prove_walker(skeleton)
    if walker is not None:
        walker.close()
    return capability


def prove_walker(skeleton: Skeleton | None = None) -> tuple[Capability, Walker | None]:
    """Return the same as ``prove``, and the proved walker, which is the caller's: another takes 0.1 s to load."""
    walker = None
    try:
        reason, remedy = _obstacle()
        if not reason:
            walker = Walker(skeleton, tables=MANY_TABLES)
            # More than once, because DAMON, where it runs, may clear one of the accessed bits in between. A tracker
            # that sees other pages than the accessed ones fails every time.
            for _ in range(_PROOF_ATTEMPTS):
                if not (reason := _self_test(walker)):
                    break
    except (OSError, TrackerError, ValueError, KeyError) as error:
        reason, remedy = _explain(error)
    if reason and walker is not None:
        walker.close()
    return Capability(NAME, not reason, reason, remedy), None if reason else walker


def flush_capabilities(skeleton: Skeleton | None = None) -> tuple[Capability, ...]:
    """Return which flushes work here (cold, soft-dirty), each proved on a child process. Never raises."""
    reason, remedy = _obstacle()
    if reason:
        return _no_flush(reason, remedy)
    try:
        walker = Walker(skeleton)
        try:
            return prove_flushes(walker)
        finally:
            walker.close()
    except (OSError, TrackerError, ValueError, KeyError) as error:
        return _no_flush(*_explain(error))


def _no_flush(reason: str, remedy: str) -> tuple[Capability, ...]:
    return tuple(Capability(name, False, reason, remedy) for name in FLUSHES if name != OFF)


def _obstacle() -> tuple[str, str]:
    """Return (reason, remedy) for obstacles that can be seen without trying; empty texts when there is none."""
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        return f"it reads x86-64 and arm64 page tables; this is {platform.system()} on {platform.machine()}", ""
    if lacks := other_pages():
        return lacks
    if os.geteuid() != 0:
        return "it needs root (CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE)", "run with sudo"
    if not _BTF.exists():
        return f"the kernel describes its types nowhere ({_BTF} is missing)", "a kernel with CONFIG_DEBUG_INFO_BTF"
    if not Path("/proc/self/clear_refs").exists():
        return "/proc/PID/clear_refs is missing", "a kernel with CONFIG_PROC_PAGE_MONITOR"
    return "", ""


def _explain(error: Exception) -> tuple[str, str]:
    """Return (reason, remedy) for an error while trying."""
    if isinstance(error, KeyError):
        return f"the BPF skeleton does not fit this memtui (it lacks {error})", "reinstall memtui, or make skeleton"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if not isinstance(error, BpfError):
        return reason, ""
    lockdown = _lockdown()
    if isinstance(error, PermissionError) or error.errno in (1, 13):
        if lockdown == "confidentiality":
            return f"{reason}; kernel lockdown forbids reading kernel memory", "boot without lockdown=confidentiality"
        return reason, "run as root of the machine, not of a container (CAP_BPF, CAP_PERFMON)"
    release = platform.release()
    if _version(release) < _OLDEST:
        return f"{reason}; Linux {release} is too old (it needs bpf_loop)", "Linux 5.17 or newer"
    return reason, ""


def _lockdown() -> str:
    try:
        text = Path("/sys/kernel/security/lockdown").read_text()
    except OSError:
        return ""
    return text.partition("[")[2].partition("]")[0]


def _version(release: str) -> tuple[int, int]:
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _self_test(walker: Walker) -> str:
    """Return an empty text when exactly the accessed pages of this process are seen; otherwise what was seen."""
    accessed = sorted(random.sample(range(_PROOF_PAGES), _PROOF_PAGES // 2))
    with own_pages(_PROOF_PAGES) as mine:
        mine.order(b"1", b"4")  # this process's own translations are stale, too
        mine.touch(accessed)
        high = mine.address + _PROOF_PAGES * PAGE_BYTES
        walk = walker.walk(os.getpid(), low=mine.address // BLOCK_BYTES * BLOCK_BYTES, high=high)
    if walk.errors:
        return f"the self-test could not read {walk.errors} page tables"
    own = range(mine.first, mine.first + _PROOF_PAGES)
    seen = [page - mine.first for page in walk.pages.pages().tolist() if page in own]
    return "" if seen == accessed else misjudged(len(accessed), len(seen))
