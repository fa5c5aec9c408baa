"""Starts and ends an observation: a sampler that may be root, a recorder that never is, and a pipe between them."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from memtui.core.capabilities import forbid_new_privileges
from memtui.core.errors import BAD_INPUT, FAILURE, UserError
from memtui.core.metrics_listener import MetricsListener, url_of
from memtui.core.options import DEFAULT_MAX_PAUSE_NS
from memtui.core.privilege import Invoker, become, invoker, root_notice, state_directory
from memtui.core.procfs import command_of, read_stat, state_of
from memtui.core.program_log import create_log, log_path
from memtui.core.samples import Options
from memtui.core.secrets import mask_secrets
from memtui.core.text import utf8_safe
from memtui.recording.control import Listener
from memtui.recording.progress import READY, Progress
from memtui.recording.registry import Entry, Running, host_name
from memtui.recording.sampler.commands import (
    PAUSE,
    RESUME,
    STOP,
    SamplerConfig,
    budget_command,
    interval_command,
    recorder_command,
)
from memtui.recording.sampler.target_lock import CLAIMED
from memtui.recording.supervisor.children import (
    STOP_SECONDS,
    close_input,
    end,
    last_line,
    open_metrics,
    start_metrics,
    start_module,
    start_redfish,
    terminate,
)
from memtui.recording.supervisor.default_paths import check_inputs, default_session, open_socket, session_name
from memtui.recording.supervisor.duplicate import refuse_second
from memtui.recording.supervisor.exec_gate import GO
from memtui.recording.supervisor.program import Adopted, Launch, start_apart, start_here
from memtui.recording.supervisor.sudo import start_sampler
from memtui.recording.targets import belongs_to_another, check_target
from memtui.recording.tracer.inject import trace_environment

START_SECONDS = 60.0  # a loaded or emulated machine is slow; a child that ends is noticed at once
PTY_LOGGER_SECONDS = 1.0  # for the last output of a program on its way to the log
ANNOUNCE_SECONDS = 3.0  # from when a sampler has its target until others can find the session
SUDO_SAYS = "sudo: "  # prefix of what sudo prints when its command was stopped and killed
# SIGKILL leaves no message of the sampler's own.
SAMPLER_KILLED = (
    "the sampler was killed: by somebody, for want of memory, or by its own watchdog, because it was stopped, frozen "
    "(SIGSTOP, a cgroup) or without a CPU while it held the target; the target runs on, what was recorded can be read"
)
Waiting = Callable[[str, float], AbstractContextManager[object]]  # for what, and since when nothing was written


class Observation:
    """One running recording.

    After the constructor the first message of the sampler is in the session and the target runs.

    Raises:
        AlreadyRunning: this user records the process already.
        UserError: everything else that can be wrong.
    """

    def __init__(
        self,
        what: int | Launch,
        options: Options,
        output: Path | None,
        *,
        force: bool = False,
        verb: str = "attach",
        sudo: bool | None = None,
        max_bytes: int | None = None,
        stop_when: str | None = None,
        hold_filtered: bool = False,
        max_pause_ns: int = DEFAULT_MAX_PAUSE_NS,
        redfish: str | None = None,
        metrics: MetricsListener | None = None,
        waiting: Waiting = lambda *_: nullcontext(),
    ) -> None:
        user, was_root = invoker(), os.geteuid() == 0
        program = what.command[0] if isinstance(what, Launch) else None
        if not was_root or user.uid == 0:
            check_inputs(program, output, force=force)  # before anything is started or created
        if isinstance(what, Launch):
            options = replace(options, trace_every=what.trace_every)
        pid, start_ticks = (what, check_target(what)) if isinstance(what, int) else (0, 0)
        foreign = pid if pid and belongs_to_another(pid) else 0
        if pid and not was_root:
            refuse_second(user, pid, start_ticks)  # before sudo asks for a password
        self.log: Path | None = None
        self.progress: Progress | None = None
        self.interval_ns, self.max_overhead_ppm, self.paused = options.interval_ns, options.max_overhead_ppm, False
        self._recorder_began_ns: int | None = None  # its CPU time when the first process was observed
        self._target: subprocess.Popen[bytes] | Adopted | None = None
        self._pty_logger: subprocess.Popen[bytes] | None = None  # of the terminal of the target
        self._exec_gate_fd = -1  # the end that is written to
        self._lines, self._dies, self._waiting = b"", False, waiting
        self._sampler_says, self._recorder_says = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._entry: Entry | None = None
        self.listener: Listener | None = None
        self._traced: Listener | None = None  # of tracers, for the recorder
        self._redfish: subprocess.Popen[bytes] | None = None  # asks a service for the power of the machine
        self._metrics: subprocess.Popen[bytes] | None = None  # serves what was measured last
        started = start_sampler(self._sampler_says, sudo=sudo, tracker=options.tracker, foreign=foreign, verb=verb)
        self._sampler, self.notice = started.process, started.notice
        self._sampler_fd = started.pidfd()
        self.owner_notice, self._granted_s = root_notice(), time.monotonic()
        try:
            become(user)  # from here on nothing of this process is root
            if pid and was_root:
                refuse_second(user, pid, start_ticks)
            if was_root and user.uid:
                check_inputs(program, output, force=force)  # with the rights of the user, and not of root
            served = open_metrics(metrics)
            self.path = output or default_session(
                user, session_name(what) if isinstance(what, int) else what.session_name
            )
            self._traced = open_socket(user, f"trace-{os.getpid()}")
            if self._traced is None and isinstance(what, Launch) and what.trace_every is not None:
                raise UserError("no socket can be made in your state directory, over which to be told", FAILURE)
            self._redfish, power_fds = start_redfish(redfish)
            self._start_recorder(started.stream, power_fds, force=force, max_bytes=max_bytes, stop_when=stop_when)
            self._await_recorder("starting the recorder", lambda line: line == READY)
            command = ""
            if isinstance(what, Launch):
                pid, command = self._launch(what, force), shlex.join(what.command)
                start_ticks = read_stat(pid).start_ticks
            if was_root and user.uid:
                forbid_new_privileges()  # not before: a training may need set-user-ID programs
            self._send_command(SamplerConfig(pid, start_ticks, options, command, hold_filtered, max_pause_ns).to_line())
            self._await_first_process(user, pid, start_ticks)
            self.pid = pid
            self.id = self._announce(user, pid, start_ticks, started.pid, command)
            self._serve(served)
            self._release_program()
        except BaseException:
            self._abandon()
            raise

    @property
    def running(self) -> bool:
        """False once the recorder has written the end."""
        return self._recorder.poll() is None

    def check_sampler(self) -> None:
        """End the recording when its sampler was killed under a sudo that is stopped.

        sudo stops itself when its command is stopped, and the stream stays open for as long as sudo has it open.
        """
        if self._sampler_fd < 0 or not select.select([self._sampler_fd], [], [], 0)[0]:
            return
        if state_of(self._sampler.pid) == "T":
            try:
                os.kill(self._sampler.pid, signal.SIGCONT)  # granted within a session, whoever it belongs to
            except OSError:
                self._recorder.terminate()

    @property
    def progress_fd(self) -> int:
        """Readable when ``read_progress`` has something to read."""
        assert self._recorder.stdout is not None
        return self._recorder.stdout.fileno()

    def read_progress(self) -> None:
        """Read the progress that the recorder has printed."""
        self._read_lines(0.05)

    def stop(self) -> None:
        """End the recording in order: the last window is taken, the session is closed."""
        self._send_command(STOP)
        end(self._sampler)
        deadline = time.monotonic() + STOP_SECONDS
        while self.running and (remaining_s := deadline - time.monotonic()) > 0:
            self._read_lines(remaining_s)
        self._read_lines(0)
        end(self._recorder)
        for child in (self._redfish, self._metrics):
            if child is not None:
                end(child)
        if self._traced is not None:
            self._traced.close()
        if self._sampler_fd >= 0:
            os.close(self._sampler_fd)
            self._sampler_fd = -1
        if self._entry is not None:
            self._entry.close()
            self._entry = None
        if self._target is not None and self._dies and self._target.poll() is None:
            terminate(self._target)
            self._target = None  # its exit status comes from this signal, and means nothing
        if self._pty_logger is not None and (self._target is None or self._target.poll() is not None):
            with suppress(subprocess.TimeoutExpired):  # another process may still have the terminal open
                self._pty_logger.wait(PTY_LOGGER_SECONDS)

    @property
    def ending(self) -> tuple[str, str] | None:
        """(kind, text) when the recorder has a reason to end, see ``memtui.recording.recorder.limits``."""
        return self.progress.ending if self.progress is not None else None

    def set_budget(self, ppm: int | None) -> None:
        """Make the sampler keep another budget, in parts per million of the time; None: without one."""
        self.max_overhead_ppm = ppm
        self._send_command(budget_command(ppm))

    def set_interval(self, interval_ns: int) -> None:
        """Make the sampler use another interval from the next window on."""
        self.interval_ns = interval_ns
        self._send_command(interval_command(interval_ns))

    def pause(self, paused: bool) -> None:
        """Pause sampling, or resume it."""
        self.paused = paused
        self._send_command(PAUSE if paused else RESUME)

    def mark(self, t_ns: int, text: str) -> bool:
        """Put a mark on the time axis; False when the recorder takes no more marks now."""
        line = json.dumps([t_ns, utf8_safe(text)], ensure_ascii=False).encode() + b"\n"
        try:
            return os.write(self._mark_fd, line) == len(line)  # lines this short are written whole or not at all
        except OSError:
            return False

    def signal(self, number: int) -> None:
        """Pass a signal on to the program that was started here, unless it has ended.

        With a terminal of its own its process group gets the signal, as from a key. Otherwise that would be the group
        of memtui, and of the script that called it.

        Raises:
            ValueError: the target was not started here, or it may not be signalled.
        """
        target = self._target
        if target is None:
            raise ValueError("only a program that memtui started is signalled")
        if target.poll() is not None:
            return
        try:
            (os.kill if self._pty_logger is None else os.killpg)(target.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise ValueError("the program has another user's rights now, and cannot be signalled") from None

    def finish(self) -> None:
        """Wait for the end and raise UserError with what went wrong, if anything did."""
        cut_short = self._recorder.wait()
        if cut_short and (message := last_line(self._recorder_says)):
            raise UserError(message, FAILURE)
        if cut_short < 0:
            raise UserError("the recorder was killed", FAILURE)
        end(self._sampler)
        if cut_short or self._sampler.returncode:
            message = last_line(self._sampler_says)
            if not message or message.startswith(SUDO_SAYS):
                message = SAMPLER_KILLED
            runs_on = f"; the program that was started runs on as PID {self.pid}" if self.outlived else ""
            raise UserError(message + runs_on, FAILURE)

    @property
    def exit_status(self) -> int:
        """Exit status of the program that was started here, as in a shell; 0 while it runs and for other targets."""
        code = self._target.poll() if self._target is not None else 0
        return 128 - code if code is not None and code < 0 else code or 0

    @property
    def outlived(self) -> bool:
        """Whether the program that was started here still runs."""
        return self._target is not None and self._target.poll() is None

    def _launch(self, launch: Launch, force: bool) -> int:
        exec_gate_fd, self._exec_gate_fd = os.pipe()
        try:
            extra_environment: dict[str, str] = {}
            if self._traced is not None and launch.trace_every is not None:
                extra_environment = trace_environment(self._traced.path, launch.trace_every)
            if not launch.log:
                self._target = start_here(launch.command, exec_gate_fd, extra_environment)
                return self._target.pid
            path = log_path(self.path)
            log = create_log(path, force=force)
            self.log, self._dies = path, launch.dies_with_memtui
            try:
                self._target, self._pty_logger = start_apart(
                    launch.command, exec_gate_fd, log, extra_environment, dies_with_this=self._dies
                )
            finally:
                os.close(log)
            return self._target.pid
        finally:
            os.close(exec_gate_fd)

    def _send_command(self, line: bytes) -> None:
        assert self._sampler.stdin is not None
        try:
            self._sampler.stdin.write(line)
            self._sampler.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # the sampler ended by itself; its exit code and its messages say why

    def _release_program(self) -> None:
        """Let the program that waits at the exec gate run, if one was started."""
        if self._exec_gate_fd >= 0:
            os.write(self._exec_gate_fd, GO)
            os.close(self._exec_gate_fd)

    def _start_recorder(
        self, stream: int, power_fds: tuple[int, ...], *, force: bool, max_bytes: int | None, stop_when: str | None
    ) -> None:
        """Start the recorder as the only reader of the sampler's messages."""
        traced = [self._traced.socket.fileno()] if self._traced is not None else []
        mark_fd, self._mark_fd = os.pipe()
        os.set_blocking(self._mark_fd, False)
        self._recorder = start_module(
            "memtui.recording.recorder",
            *(["--force"] if force else []),
            *("--marks", str(mark_fd)),
            *(argument for fd in traced for argument in ("--traced", str(fd))),
            *(argument for fd in power_fds for argument in ("--machine-power", str(fd))),
            *(["--max-bytes", str(max_bytes)] if max_bytes is not None else []),
            *(["--stop-when", stop_when] if stop_when else []),
            *("--", str(self.path)),
            stdin=stream,
            stdout=subprocess.PIPE,
            stderr=self._recorder_says,
            pass_fds=(mark_fd, *traced, *power_fds),
        )
        if self._traced is not None:
            self._traced.socket.close()  # the recorder has it open
        for fd in (stream, mark_fd, *power_fds):
            os.close(fd)

    def _await_first_process(self, user: Invoker, pid: int, start_ticks: int) -> None:
        """Wait until the target is observed. Raises UserError, and AlreadyRunning where another memtui was first."""
        try:
            self._await_recorder(
                f"starting to watch PID {pid}",
                lambda line: line != READY and self.progress is not None and self.progress.began,
            )
        except UserError:
            if self._sampler.poll() == CLAIMED:
                refuse_second(user, pid, start_ticks, ANNOUNCE_SECONDS)  # both began at once
            raise

    def _await_recorder(self, doing: str, is_it: Callable[[bytes], object]) -> None:
        """Wait for a line of the recorder. Raises UserError, with the child's message, if a child ends before it."""
        deadline = time.monotonic() + START_SECONDS
        with self._waiting(doing, self._granted_s):
            while time.monotonic() < deadline:
                for line in self._read_lines(0.05):
                    if is_it(line):
                        return
                if self._recorder.poll() is not None:
                    raise self._start_failure()
        raise UserError("the recording did not begin in time", FAILURE)

    def _start_failure(self) -> UserError:
        """Return why the recorder ended before anything was recorded: by itself, or because the sampler did."""
        if self._recorder.returncode == BAD_INPUT:
            return UserError(last_line(self._recorder_says))
        end(self._sampler)
        why = last_line(self._sampler_says) or last_line(self._recorder_says) or "sampler and recorder ended at once"
        return UserError(why, BAD_INPUT if self._sampler.returncode in (BAD_INPUT, CLAIMED) else FAILURE)

    def _read_lines(self, seconds: float) -> list[bytes]:
        assert self._recorder.stdout is not None
        fd = self._recorder.stdout.fileno()
        if not select.select([fd], [], [], max(seconds, 0))[0]:
            return []
        chunk = os.read(fd, 65536)
        if not chunk:
            time.sleep(min(max(seconds, 0), 0.05))  # closed: its exit follows
            return []
        *lines, self._lines = (self._lines + chunk).split(b"\n")
        lines = [line for line in lines if line == READY or line.startswith(b'{"')]  # others are not the recorder's
        for line in lines:
            if line != READY:
                self.progress = Progress.from_line(line)
                self._send_recorder_cpu(self.progress)
        return lines

    def _send_recorder_cpu(self, progress: Progress) -> None:
        """Send the sampler the recorder's CPU time: a part of what watching costs, which only the recorder knows."""
        if not progress.began:
            return
        if self._recorder_began_ns is None:
            self._recorder_began_ns = progress.cpu_ns
        self._send_command(recorder_command(progress.cpu_ns - self._recorder_began_ns))

    def _serve(self, served: tuple[socket.socket, str] | None) -> None:
        if served is not None:
            self.notice = "; ".join(filter(None, (self.notice, f"metrics at {url_of(served[0])}")))
            self._metrics = start_metrics(self.path, *served)

    def _abandon(self) -> None:
        """End every child after a failed start, and remove files without contents."""
        for listener in (self.listener, self._traced):
            if listener is not None:
                listener.close()
        if self._entry is not None:
            self._entry.close()
        close_input(self._sampler)  # nothing else ends a sampler under sudo
        for child in (self._target, self._sampler, self._redfish, self._metrics, getattr(self, "_recorder", None)):
            if child is not None:
                terminate(child)
        if self.log is not None:
            self.log.unlink(missing_ok=True)  # as the recorder does with its file, and for the next try

    def _announce(self, user: Invoker, pid: int, start_ticks: int, sampler_pid: int, command: str) -> str:
        """Let other processes of this user find the recording; return its short name."""
        if not command:
            with suppress(ProcessLookupError):  # it has ended meanwhile, which the recording reports
                command = command_of(pid)
        self.listener = open_socket(user, f"{pid}-{start_ticks}")
        entry = Running(
            pid,
            start_ticks,
            os.getpid(),
            sampler_pid,
            str(self.path.absolute()),
            mask_secrets(command),
            time.time(),
            str(self.listener.path) if self.listener else "",
            host_name(),
            str(self._traced.path) if self._traced else "",
        )
        try:
            self._entry = Entry(state_directory(user), entry)
        except OSError:
            pass  # no home, or a full disk: others cannot find this recording, and that is all
        return entry.id
