"""The sampler: probes on a clock, frames on standard output. The only part of memtui that is ever root.

It opens no file of the user's, never writes to the pipe while the target is paused, and its death, however it comes,
lets the target go. Run as ``python -m memtui.recording.sampler``; the order comes on standard input (see
``memtui.recording.sampler.commands``).
"""

from __future__ import annotations

import gc
import os
import pwd
import resource
import secrets
import select
import signal
import sys
import time
from dataclasses import replace

from memtui.core import capabilities, single_threaded  # noqa: F401 (for its effect, before numpy comes)

# isort: split
from memtui._version import __version__
from memtui.analysis.overhead_budget import seconds
from memtui.core.block_sample import BlockSample
from memtui.core.options import DEFAULT_MAX_PAUSE_NS
from memtui.core.procfs import read_stat
from memtui.core.samples import (
    Capability,
    End,
    Event,
    GpuMemory,
    Hello,
    Power,
    Process,
    ProcessWindow,
    Status,
    Target,
    Vma,
    VmaTable,
    Window,
    held_ns,
)
from memtui.core.text import visible
from memtui.core.units import duration
from memtui.probes.address_space import Sharers
from memtui.probes.disturbance import DisturbanceProbe
from memtui.probes.gpu.processes import Holders
from memtui.probes.host import read_clock, read_host
from memtui.probes.pages.accessed_bit_cost import measure_set_cost
from memtui.probes.pages.select_tracker import NoTracker, choose, page_views
from memtui.probes.pages.shared_frames import TouchedFrames
from memtui.probes.pages.tracker import PageWindow, TrackerError
from memtui.probes.pause.pauser import PauseError
from memtui.probes.power.probe import PowerProbe
from memtui.probes.proc_maps import TooManyMappings, parse_maps, read_maps
from memtui.probes.process_exit import how_it_ended
from memtui.probes.process_owner import NotOwn, check_owner
from memtui.probes.process_tree import ProcessTree
from memtui.probes.pss import PssProbe
from memtui.probes.usage import UsageProbe
from memtui.probes.window_reader import Outcome, PageReader, Reading, Subject, shared_pages
from memtui.recording.sampler.commands import OWN, READY, TELL, SamplerConfig, SamplerState, read_order
from memtui.recording.sampler.frame_queue import FrameQueue, RecorderGone
from memtui.recording.sampler.scheduler import SampleClock
from memtui.recording.sampler.slowdown_estimate import SPARE_CPUS
from memtui.recording.sampler.target_lock import CLAIMED, TargetLocked, TargetLocks
from memtui.recording.sampler.tracked_process import TrackedProcess, why_lost

SYSCALL_FILTER = (
    "process {pid} runs under a seccomp filter (containers do): after a pause the kernel goes on with a sleep or wait "
    "by restart_syscall, and a filter that forbids this call fails it or kills; "
)
NOT_HELD = "so it is not paused, and its numbers are approximate (--pause holds it all the same)"
HELD_FILTERED = "it is paused all the same (--pause)"
LONG_PAUSE = (
    "process {pid} is not held where that would take longer than {most} (--max-pause): its marks are read or cleared "
    "while it runs then, and those windows are approximate"
)
UNWATCHED = (
    "this sampler is not killed if it is stopped (SIGSTOP) while it holds the target, which then stays held: the "
    "kernel gave it no timer ({why}); --no-pause holds nobody"
)
RESIDENT_EVERY_NS = 1_000_000_000
TREE_EVERY_NS = 250_000_000  # at least; otherwise at every window, as long as looking costs 2 % of a CPU
TREE_REST = 49  # looking at the tree is followed by so many times its duration without
NOTICE_EVERY_NS = 5_000_000_000
DRAIN_SECONDS = 2.0
WORDS_BYTES = 4096  # taken at once of what comes after the order
HOLD_NS = 250_000_000  # windows closer together may be sent in the next pause: the target's CPUs are idle then
MOST_OVERHEAD_OF_OWN_PPM = 250_000  # that a process loses to a sampler which its user may start without a password
HIGHEST_PRIORITY = -20  # a sampler that waits for a CPU during a pause makes the target wait with it


class Sampler:
    """Observes one process tree until it ends, the time is up or somebody says stop.

    ``words_fd`` is where the words after the order come from; anything to read on ``stop_fd`` means stop. ``owner``: a
    user whose processes are watched, and no others; there is a limit to what they lose then. Raises ``NotOwn``.
    """

    def __init__(
        self, order: SamplerConfig, outbox: FrameQueue, words_fd: int, stop_fd: int, owner: int | None = None
    ) -> None:
        if owner is not None:
            check_owner(order.pid, owner)
            order = replace(order, max_pause_ns=min(order.max_pause_ns, DEFAULT_MAX_PAUSE_NS))
        self._wishes = SamplerState(
            order.options.interval_ns,
            order.options.max_overhead_ppm,
            most_overhead_ppm=None if owner is None else MOST_OVERHEAD_OF_OWN_PPM,
        )
        order = replace(order, options=replace(order.options, max_overhead_ppm=self._wishes.max_overhead_ppm))
        self._order, self._options, self._owner = order, order.options, owner
        self._outbox, self._words_fd, self._stop_fd = outbox, words_fd, stop_fd
        self._paused_since_ns: int | None = None
        self._usage = UsageProbe()
        self._pss = PssProbe(order.options.max_overhead_ppm)
        self._disturbance = DisturbanceProbe()
        self._tree = ProcessTree(order.pid, children=order.options.children, command=order.command)
        self._watched: dict[int, TrackedProcess] = {}
        self._new: list[Process] = []  # found by the last look at the tree, not watched yet
        self._gone: list[Process] = []
        self._gaps = 0  # processes that were born or ended since the last window
        self._sample = 0
        self._resident_due_ns = self._power_due_ns = self._tree_due_ns = self._notice_due_ns = 0
        self._target_fd = os.pidfd_open(order.pid)
        if read_stat(order.pid).start_ticks != order.start_ticks:
            raise ProcessLookupError(f"process {order.pid} ended")
        self._filter_seen = self._long_seen = False  # of a process of the tree; told once
        self._claims = TargetLocks()
        self._left_out: set[int] = set()  # pids that another memtui watches, or that are not the user's
        self._sharers = Sharers()
        self._claims.take(order.pid)  # two samplers would clear each other's marks
        self._tracker, self._rejected = choose(
            self._options.tracker,
            self._options.flush,
            self._options.rearm,
            paused=self._options.pause,
            sample=BlockSample(secrets.randbits(63)) if self._options.samples_pages else None,
        )
        if os.geteuid() == 0:
            capabilities.keep(capabilities.sampler_needs(self._tracker.name))
        set_cost = measure_set_cost() if self._tracker.clears else None
        self._pace = SampleClock(order.options, self._wishes, set_cost, clears=self._tracker.clears)
        self._tracker.pace(self._options.interval_ns)
        self._reader = PageReader(
            self._tracker,
            pause=self._options.pause,
            together=self._options.together,
            hold_filtered=order.hold_filtered,
            max_pause_ns=order.max_pause_ns,
            owner=owner,
            while_held=outbox.pump,
        )

    def run(self) -> None:
        """Send Hello, then windows, then End. Raises RecorderGone."""
        power = PowerProbe()  # its counters begin here, so that the first reading has a power
        self._outbox.put(self._hello())
        began_ns = time.monotonic_ns()
        until_ns = began_ns + self._options.duration_ns if self._options.duration_ns else None
        if self._reader.unwatched:
            self._event("warning", UNWATCHED.format(why=self._reader.unwatched))
        try:
            self._look_around()
            self._look_at_tree()
            self._follow_tree()
            self._gaps = 0  # what was there before the first window
            self._disturbance.read(tuple(self._watched))  # counts from here on
            # Nothing below allocates cycles; a collection in the middle of a pause would lengthen it.
            gc.collect()
            gc.freeze()
            self._pace.begin()
            while True:
                now_ns = time.monotonic_ns()
                if now_ns >= self._power_due_ns:
                    readings = power.read(now_ns)
                    self._outbox.put(Power(readings, self._gpu_memory(power.holders)))
                    self._power_due_ns = now_ns + self._pace.power_every_ns
                due_ns = min((w.tried_ns for w in self._watched.values()), default=now_ns) + self._pace.interval_ns
                due_ns = max(due_ns, now_ns) if self._paused_since_ns is None else self._power_due_ns
                ending = until_ns is not None and due_ns >= until_ns
                due_ns = min(due_ns, until_ns) if until_ns else due_ns
                # Within a budget windows may be minutes apart, and power is read between them.
                stopped = self._wait(min(due_ns, self._power_due_ns) if self._pace.has_budget else due_ns)
                if stopped is None and (self._apply_requests() or time.monotonic_ns() < due_ns):
                    continue
                if stopped is None and ending:
                    stopped = End(time.monotonic_ns(), "duration")
                if stopped is not None:
                    if stopped.kind != "target exited" and self._is_worth_a_window():
                        self._take_window()
                    self._outbox.put(stopped)
                    return
                if self._paused_since_ns is not None:
                    continue
                self._take_window()
                self._follow_tree()
                self._look_around()
        except ProcessLookupError as error:
            self._check_began(error)
            self._outbox.put(self._target_ended())
        finally:
            power.close()
            self._reader.close()
            self._disturbance.close()

    def _is_worth_a_window(self) -> bool:
        """Whether what has run since the last window is at least half of one: a sliver would look like a collapse."""
        if self._paused_since_ns is not None:
            return False
        if not self._sample:
            return True
        start_ns = min((w.start_ns for w in self._watched.values()), default=time.monotonic_ns())
        return time.monotonic_ns() - start_ns >= self._pace.interval_ns // 2

    def _apply_requests(self) -> bool:
        """Do what was asked for meanwhile; whether anything was."""
        wishes, now_ns, heeded = self._wishes, time.monotonic_ns(), False
        if wishes.interval_ns != self._options.interval_ns:
            self._options = replace(self._options, interval_ns=wishes.interval_ns)
            if self._paused_since_ns is None:
                self._tracker.pace(wishes.interval_ns)
            text = f"the interval is {wishes.interval_ns / 1e9:g} s from here on"
            if (budgeted_ns := self._pace.budgeted_ns or 0) > wishes.interval_ns:
                text += f"; the budget makes {seconds(budgeted_ns)} of it (i, then 5% or none, for another budget)"
            self._event("interval", text)
            heeded = True
        if wishes.max_overhead_ppm != self._options.max_overhead_ppm:
            self._options = replace(self._options, max_overhead_ppm=wishes.max_overhead_ppm)
            self._pace.set_budget(wishes.max_overhead_ppm)
            share = "none" if wishes.max_overhead_ppm is None else f"{wishes.max_overhead_ppm / 1e4:g} %"
            self._event("interval", f"the budget is {share} from here on")
            heeded = True
        if wishes.paused and self._paused_since_ns is None:
            self._paused_since_ns, heeded = now_ns, True
            self._tracker.pace(None)
            self._event(
                "gap", "sampling is paused (x goes on): the target is left alone, and what it touches is not seen"
            )
        elif not wishes.paused and self._paused_since_ns is not None:
            self._tracker.pace(self._options.interval_ns)
            # The window over the pause is as long as that: it sets the marks back and is no sample.
            self._take_window(keep=False)
            self._event("gap", f"sampling goes on after {(now_ns - self._paused_since_ns) / 1e9:.1f} s")
            self._paused_since_ns, heeded = None, True
            self._follow_tree()
            self._gaps = 0
        return heeded

    def _hello(self) -> Hello:
        pid = self._order.pid
        try:
            uid = os.stat(f"/proc/{pid}").st_uid
        except FileNotFoundError as error:
            raise ProcessLookupError(f"process {pid} ended") from error
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        self._tree.refresh()
        command = self._order.command or self._tree.processes[0].command
        target = Target(pid, self._order.start_ticks, command, user)
        self._tree = ProcessTree(pid, children=self._options.children, command=self._order.command)
        return Hello(
            __version__,
            read_clock(),
            read_host(),
            target,
            self._options,
            self._tracker.name,
            self._tracker.flush,
            self._tracker.rearm,
            self._rejected,
            self._wss(),
            page_views(self._tracker, self._rejected),
        )

    def _wss(self) -> Capability:
        """Whether there will be a working set; if not, the reason that counts is why the better trackers are out."""
        if self._tracker.wss.ok or not self._rejected:
            return self._tracker.wss
        return Capability("wss", False, self._rejected[0].reason, self._rejected[0].remedy)

    def _wait(self, until_ns: int) -> End | None:
        """Sleep until then, sending what waits; an End when there is a reason to stop. A word ends the sleep, too."""
        outbox = self._outbox
        soon = self._paused_since_ns is None and until_ns - time.monotonic_ns() <= HOLD_NS
        cpus = len(os.sched_getaffinity(0))
        outbox.holds = soon and self._reader.pauses and cpus > 1 and cpus - self._busy_cpus < SPARE_CPUS
        while True:
            left_ns = until_ns - time.monotonic_ns()
            writers = [outbox.fd] if outbox.waiting_bytes and not outbox.holds else []
            wanted = [self._words_fd, self._stop_fd, self._target_fd]
            ready, _, _ = select.select(wanted, writers, [], max(left_ns, 0) / 1e9)
            if not outbox.holds:
                outbox.pump()
            heard = self._words_fd in ready
            if heard:
                self._wishes.hear(os.read(self._words_fd, WORDS_BYTES))
            if self._wishes.stop or self._stop_fd in ready:
                return End(time.monotonic_ns(), "stopped")
            if self._target_fd in ready:
                return self._target_ended()
            if left_ns <= 0 or heard:
                return None

    @property
    def _busy_cpus(self) -> float:
        """How many CPUs the tree keeps busy."""
        return sum(watched.busy_cpus for watched in self._watched.values())

    def _target_ended(self) -> End:
        return End(time.monotonic_ns(), "target exited", how_it_ended(self._order.pid, self._target_fd))

    def _look_around(self) -> None:
        """Tell what has changed about the worth of the numbers."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._notice_due_ns:
            self._notice_due_ns = now_ns + NOTICE_EVERY_NS
            if notice := self._tracker.notice():
                self._event("warning", notice)

    def _look_at_tree(self) -> None:
        """Find who was born and who ended. Raises ProcessLookupError when the root is gone."""
        began_ns = time.monotonic_ns()
        if began_ns < self._tree_due_ns:
            return
        new, gone = self._tree.refresh()
        ended_ns = time.monotonic_ns()
        self._tree_due_ns = ended_ns + min(TREE_EVERY_NS, TREE_REST * (ended_ns - began_ns))
        self._new += new
        self._gone += gone
        self._gaps += len(new) + len(gone) + self._tree.unseen

    def _follow_tree(self) -> None:
        """Let go of those that ended and begin with those that were born."""
        for process in self._gone:
            self._forget(process.pid)
        new = {process.pid for process in self._new}
        for process in self._tree.processes:  # also one that was taken for ended and is there all the same
            if process.pid not in self._watched:
                self._begin(process)
            if process.pid in new:
                self._outbox.put(process)  # after its marks were cleared: who waits for this may let it start
        self._new, self._gone = [], []

    def _begin(self, process: Process) -> None:
        pid, held_ns = process.pid, 0
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            self._check_began(error)
            return
        maps = b""
        vmas: tuple[Vma, ...] = ()
        try:
            stat = read_stat(pid)
            if stat.start_ticks != process.start_ticks or stat.ended:
                raise ProcessLookupError(f"process {pid} ended")
            if shares := self._sharers.take(Subject(pid, pidfd, process.start_ticks), self._watched):
                self._tell_sharer(pid, *shares)
                return
            if self._owner is not None:
                check_owner(pid, self._owner)
            self._claims.take(pid)
            self._left_out.discard(pid)
            maps = read_maps(pid)
            vmas = parse_maps(maps)
            held_ns = self._reader.begin(Subject(pid, pidfd, process.start_ticks, vmas))
        except ProcessLookupError as error:
            os.close(pidfd)
            self._check_began(error)
            return
        except TargetLocked as error:
            os.close(pidfd)
            self._leave_out(pid, f"{error}; until then it is left out here")
            return
        except NotOwn as error:
            os.close(pidfd)
            self._leave_out(pid, f"{error}: it is left out (sudo memtui watches it)")
            return
        except (PauseError, TrackerError, TooManyMappings, OSError) as error:
            held_ns = error.held_ns if isinstance(error, PauseError) else 0
            self._event("gap", f"pid {pid}: not cleared before its first window, which says what is resident: {error}")
        self._tell_not_held()
        now_ns = time.monotonic_ns()
        self._watched[pid] = TrackedProcess(process, pidfd, maps, vmas, now_ns, now_ns, now_ns, held_ns)

    def _leave_out(self, pid: int, why: str) -> None:
        """Say it once; it is asked again at every look, as the other memtui may end first."""
        if pid not in self._left_out:
            self._left_out.add(pid)
            self._event("warning", why)

    def _tell_sharer(self, pid: int, owner: int, looks: int) -> None:
        if looks == 2:  # at the first look it may be a child of vfork before its exec
            self._event("warning", f"pid {pid} uses the memory of pid {owner} (CLONE_VM): it is counted there, once")

    def _tell_not_held(self) -> None:
        if self._reader.filtered and not self._filter_seen:
            self._filter_seen = True
            told = HELD_FILTERED if self._order.hold_filtered else NOT_HELD
            self._event("warning", SYSCALL_FILTER.format(pid=self._reader.filtered) + told)
        if self._reader.long and not self._long_seen:
            self._long_seen = True
            most = duration(self._order.max_pause_ns / 1e9)
            self._event("warning", LONG_PAUSE.format(pid=self._reader.long, most=most))

    def _check_began(self, error: OSError) -> None:
        """Raise it where the target ended before anything of it was observed: nothing was recorded then."""
        if not self._watched and not self._sample:
            raise error

    def _gpu_memory(self, holders: Holders | None) -> tuple[GpuMemory, ...]:
        """Return what each process held at that moment.

        A process that was not there yet is left out, whoever had its number.
        """
        if holders is None:
            return ()
        there = [w.process for w in self._watched.values() if w.since_ns <= holders.t_ns]
        found = [(process.key, holders.of(process.pid)) for process in there]
        return tuple(GpuMemory(holders.t_ns, key, h.gpu_bytes, h.status, h.reason) for key, h in found)

    def _forget(self, pid: int) -> None:
        if watched := self._watched.pop(pid, None):
            os.close(watched.pidfd)
        self._sharers.forget(pid)
        self._usage.forget(pid)
        self._reader.forget(pid)
        self._claims.release(pid)

    def _take_window(self, *, keep: bool = True) -> None:
        """Read one window and send it; without ``keep`` it only sets the marks back."""
        want_resident = time.monotonic_ns() >= self._resident_due_ns
        if want_resident:
            self._resident_due_ns = time.monotonic_ns() + RESIDENT_EVERY_NS
        round_ = tuple(self._watched.values())
        subjects = [watched.subject(self._sharers.of(watched.process.pid)) for watched in round_]
        outcomes = self._reader.read(subjects, want_resident=want_resident)
        self._tell_not_held()
        self._outbox.pump()  # what did not fit into the pipe, or if nothing could be held
        if keep:
            self._pss.look([watched.process.pid for watched in round_])
        shared, excess_bytes = shared_pages(outcomes)
        windows = [w for of_one in zip(round_, outcomes, shared, strict=True) if (w := self._window_of(*of_one))]
        budgeted_ns = self._pace.budgeted_ns
        loss = self._pace.note(windows, held_ns(windows, together=self._options.together) or 0, self._busy_cpus)
        if why := self._pace.warning():
            self._event("warning", why)
        if not windows:
            raise ProcessLookupError("every process of the tree ended")
        root_ended: ProcessLookupError | None = None
        try:
            self._look_at_tree()
        except ProcessLookupError as error:
            root_ended = error
        disturbed = self._disturbance.read(tuple(watched.process.pid for watched in round_))
        if keep:
            self._outbox.put(
                Window(
                    self._sample,
                    min(w.start_ns for w in windows),
                    max(w.end_ns for w in windows),
                    self._options.interval_ns,
                    time.process_time_ns(),
                    tuple(windows),
                    self._gaps,
                    disturbed,
                    excess_bytes if len(windows) == sum(one is not None for one in shared) else None,
                    budgeted_ns,
                    self._pace.budgeted_ns,
                    loss.lost_ns,
                    loss.set_again_ns,
                )
            )
            self._sample += 1
        self._gaps = 0
        if root_ended is not None:
            raise root_ended

    def _window_of(
        self, watched: TrackedProcess, outcome: Outcome, shared: TouchedFrames | None
    ) -> ProcessWindow | None:
        """One window of one process; None when it ended."""
        pid, start_ns = watched.process.pid, watched.start_ns
        pages: PageWindow | None = None
        status, reason, end_ns = Status.OK, "", time.monotonic_ns()
        if isinstance(outcome, Reading):
            pages, end_ns = outcome.window, outcome.end_ns
            watched.start_ns = watched.tried_ns = outcome.resumed_ns
            watched.note_maps(outcome.maps)
            if outcome.stopped != watched.stopped:
                watched.stopped = outcome.stopped
                self._event("stopped", f"pid {pid} {'was stopped (SIGSTOP or ^Z)' if outcome.stopped else 'goes on'}")
        else:
            if isinstance(outcome.error, ProcessLookupError):
                self._forget(pid)
                return None
            status, reason = why_lost(outcome)
        if pages is None:
            # The marks were not cleared, so the next window goes back to the same start.
            watched.tried_ns = time.monotonic_ns()
            if reason != watched.trouble:
                self._event("gap", f"pid {pid}: window lost: {reason}")
        elif pages.generation != watched.mapping:
            watched.mapping, watched.since_ns = pages.generation, end_ns
            watched.process = self._tree.new_generation(pid)
            self._outbox.put(watched.process)
            self._event("exec", f"pid {pid} is now {watched.process.command}")
            watched.table_due = True
        watched.trouble = reason
        try:
            usage = self._usage.read(pid)
        except ProcessLookupError:
            self._forget(pid)
            return None
        watched.note_cpu(usage.cpu_ns)
        if watched.table_due:
            self._outbox.put(VmaTable(watched.process.key, self._sample, watched.vmas))
            watched.table_due = False
        return watched.window(outcome, usage, start_ns, end_ns, (status, reason), shared, self._pss.of(pid))

    def _event(self, kind: str, text: str) -> None:
        self._outbox.put(Event(time.monotonic_ns(), kind, text))


def _leave_sudos_terminal() -> None:
    """Let go of the terminal on which sudo asked and of the user's variables, and say so.

    ^Z there would stop this process, perhaps while it holds the target; and sudo, which stays there, passes on its
    hang-up, which is the screen's and not the recording's. The end of the input tells when to stop.
    """
    try:
        os.setsid()
    except PermissionError:
        pass  # sudo gave it a session of its own already (use_pty)
    for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.write(1, READY % os.getpid())


def main() -> int:
    """Exit 0 after an orderly end; 2, or 3 for a claimed target, with one line on stderr when nothing came of it."""
    sys.stdout.flush()  # what a sitecustomize printed comes before the first message, and not after the last one
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what ^C means
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the byte in the wake-up pipe ends the wait
    owner = None
    try:
        if OWN in sys.argv[1:]:
            owner = int(os.environ["SUDO_UID"])  # by sudo, and nobody else
    except (KeyError, ValueError):
        print(f"{OWN} is for sudo, which says whose processes are watched (SUDO_UID)", file=sys.stderr)
        return 2
    if TELL in sys.argv[1:]:
        _leave_sudos_terminal()
    try:
        if os.geteuid() == 0:
            capabilities.keep(capabilities.sampler_needs())
        order = read_order(0)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if order is None:
        return 0
    outbox = FrameQueue(1)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a few files are open for every process of the tree
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)
    except PermissionError:
        pass  # only root may: pauses are then longer on a busy machine
    try:
        Sampler(order, outbox, 0, wake_read, owner).run()
        outbox.drain(DRAIN_SECONDS)
    except ProcessLookupError:
        print(f"process {order.pid} ended before it could be observed", file=sys.stderr)
        return 2
    except (NoTracker, TargetLocked, NotOwn, PermissionError) as error:
        print(visible(str(error)), file=sys.stderr)
        return CLAIMED if isinstance(error, TargetLocked) else 2
    except RecorderGone:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
