"""Starts the sampler, the only part of memtui that is ever root: ``python -m memtui.recording.sampler``.

Its configuration comes on standard input (see ``memtui.recording.sampler.commands``), messages go to standard output.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

from memtui.core import capabilities, single_threaded  # noqa: F401 (for its effect, before numpy comes)

# isort: split
from memtui.core.text import printable
from memtui.probes.oom_kills import KernelLog
from memtui.probes.pages.select_tracker import NoTracker
from memtui.probes.process_owner import NotOwn
from memtui.recording.sampler.commands import OWN, READY, REPORT_READY, SamplerConfig, read_order
from memtui.recording.sampler.message_queue import MessageQueue, RecorderGone
from memtui.recording.sampler.sampler import Sampler
from memtui.recording.sampler.target_lock import CLAIMED, TargetLocked

DRAIN_SECONDS = 2.0
HIGHEST_PRIORITY = -20  # a sampler that waits for a CPU during a pause makes the target wait with it


def main() -> int:
    """Exit 0 after an orderly end; 2, or 3 for a locked target, with one line on stderr when nothing was observed."""
    sys.stdout.flush()  # what a sitecustomize printed comes before the first message, and not after the last one
    stop_fd = _stop_on_signals()
    owner = None
    try:
        if OWN in sys.argv[1:]:
            owner = int(os.environ["SUDO_UID"])  # by sudo, and nobody else
    except (KeyError, ValueError):
        print(f"{OWN} is for sudo, which says whose processes are watched (SUDO_UID)", file=sys.stderr)
        return 2
    if REPORT_READY in sys.argv[1:]:
        _leave_sudos_terminal()
    log = KernelLog()
    try:
        if os.geteuid() == 0:
            capabilities.keep(capabilities.sampler_needs())
        order = read_order(0)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if order is None:
        return 0
    _raise_limits()
    return _sample(order, stop_fd, owner, log)


def _stop_on_signals() -> int:
    """Return a descriptor that becomes readable when this process is to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what ^C means
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the byte in the wake-up pipe ends the wait
    return wake_read


def _leave_sudos_terminal() -> None:
    """Leave the terminal on which sudo asked, clear the user's variables, and report the pid.

    ^Z in that terminal would stop this process, perhaps during a pause of the target; and sudo, which stays there,
    passes on its hang-up, which is the screen's and not the recording's. The end of the input is the signal to stop.
    """
    try:
        os.setsid()
    except PermissionError:
        pass  # sudo gave it a session of its own already (use_pty)
    for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.write(1, READY % os.getpid())


def _raise_limits() -> None:
    """Raise the limit of open files to its maximum, and the priority to the highest where that is allowed."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a few files are open for every process of the tree
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)
    except PermissionError:
        pass  # only root may: pauses are then longer on a busy machine


def _sample(order: SamplerConfig, stop_fd: int, owner: int | None, log: KernelLog) -> int:
    """Observe, and return the exit status."""
    outbox = MessageQueue(1)
    try:
        Sampler(order, outbox, 0, stop_fd, owner, log).run()
        outbox.drain(DRAIN_SECONDS)
    except ProcessLookupError:
        print(f"process {order.pid} ended before it could be observed", file=sys.stderr)
        return 2
    except (NoTracker, TargetLocked, NotOwn, PermissionError) as error:
        print(printable(str(error)), file=sys.stderr)
        return CLAIMED if isinstance(error, TargetLocked) else 2
    except RecorderGone:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
