"""Power of the whole machine, as its management controller says (IPMI, DCMI), through ipmitool. Untried on hardware.

Asked for with ``--chassis-power`` only: root is needed, a program is started every two seconds, and the controller
answers when it likes. Nobody waits for it: an answer is taken when it is there.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path

from memtui.core.readings import CHASSIS, PowerReading
from memtui.core.samples import Capability, Status

EVERY_NS = 2_000_000_000
PATIENCE_NS = 10_000_000_000  # a program that takes longer is ended
SOURCE = "ipmi dcmi"
# This may be root, so no other folder, whatever PATH says.
_PROGRAMS = tuple(Path(folder, "ipmitool") for folder in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"))
_DEVICES = tuple(map(Path, ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")))
_ARGUMENTS = ("-I", "open", "dcmi", "power", "reading")
_WATTS = re.compile(rb"^\s*Instantaneous power reading\s*:\s*(\d{1,6}) Watts\s*$", re.MULTILINE)
_ACTIVE = re.compile(rb"^\s*Power reading state is\s*:\s*activated\s*$", re.MULTILINE)
_MOST_BYTES = 1 << 16
_END_S = 0.2


class ChassisProbe:
    """Asks for the power of the machine, one question at a time."""

    def __init__(
        self, *, programs: tuple[Path, ...] = _PROGRAMS, devices: tuple[Path, ...] = _DEVICES, root: bool | None = None
    ) -> None:
        """Find the program; never raises.

        Args:
            programs: where it may be.
            devices: files of the controller, of which one has to be there.
            root: whether this process is root; None: look.
        """
        self._program = next((path for path in programs if path.is_file()), None)
        self._problem = _problem(self._program, devices, os.geteuid() == 0 if root is None else root)
        self._child: subprocess.Popen[bytes] | None = None
        self._started_ns, self._killed = 0, False
        self._problem_reported = False

    def read(self, t_ns: int) -> tuple[PowerReading, ...]:
        """Return a reading when an answer came since the last call; once, why none will come. Never waits."""
        if self._problem is not None:
            reported, self._problem_reported = self._problem_reported, True
            return () if reported else (_reading(t_ns, None, self._problem.reason, Status.UNSUPPORTED),)
        readings = self._take(t_ns)
        if self._child is None and (not self._started_ns or t_ns - self._started_ns >= EVERY_NS):
            readings += self._start(t_ns)
        return readings

    def _start(self, t_ns: int) -> tuple[PowerReading, ...]:
        self._started_ns = t_ns
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        argv = [str(self._program), *_ARGUMENTS]
        try:
            self._child = subprocess.Popen(argv, stdin=nothing, stdout=pipe, stderr=nothing, env=environment)
        except OSError as error:
            return (_reading(t_ns, None, f"ipmitool cannot be started: {error.strerror}"),)
        return ()

    def _take(self, t_ns: int) -> tuple[PowerReading, ...]:
        child = self._child
        if child is None:
            return ()
        if child.poll() is None:
            if self._killed or t_ns - self._started_ns < PATIENCE_NS:
                return ()
            child.kill()  # in a call of the driver it ends when that is over, and until then nothing else starts
            self._killed = True
            return (_reading(t_ns, None, f"ipmitool did not answer in {PATIENCE_NS / 1e9:.0f} s"),)
        # What it says is short, so that all of it is in the pipe.
        text = os.read(child.stdout.fileno(), _MOST_BYTES) if child.stdout else b""
        killed = self._killed
        self._forget()
        if killed:
            return ()
        if child.returncode:
            reason = f"ipmitool failed (status {child.returncode}): the controller may have no DCMI"
            return (_reading(t_ns, None, reason),)
        return (_reading(t_ns, *watts_of(text)),)

    def capabilities(self) -> list[Capability]:
        """Return one entry, ``ipmi dcmi``; asks nothing."""
        return [self._problem or Capability(SOURCE, True, "read with --chassis-power only")]

    def close(self) -> None:
        """End the question under way."""
        if self._child is not None:
            self._child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_END_S)
            self._forget()

    def _forget(self) -> None:
        if self._child is not None and self._child.stdout is not None:
            self._child.stdout.close()
        self._child, self._killed = None, False


def watts_of(text: bytes) -> tuple[float | None, str]:
    """Return watts from what ``ipmitool dcmi power reading`` prints, or None and why there are none."""
    match = _WATTS.search(text)
    if match is None:
        return None, "ipmitool printed no power reading"
    if not _ACTIVE.search(text):
        return None, "the controller does not measure power at present"
    watts = int(match[1])
    return (float(watts), "") if watts else (None, "the controller reads 0 W, which cannot be")


def _reading(t_ns: int, watts: float | None, reason: str, status: Status = Status.FAILED) -> PowerReading:
    status = Status.OK if watts is not None else status
    return PowerReading(t_ns, "machine", CHASSIS, SOURCE, power_w=watts, status=status, reason=reason)


def _problem(program: Path | None, devices: tuple[Path, ...], root: bool) -> Capability | None:
    """Return why nothing can be asked; None: it can."""
    if not any(path.exists() for path in devices):
        return Capability(
            SOURCE, False, "no management controller (/dev/ipmi0)", "sudo modprobe -a ipmi_si ipmi_devintf"
        )
    if program is None:
        return Capability(SOURCE, False, "ipmitool is not installed", "install ipmitool")
    return None if root else Capability(SOURCE, False, "the management controller answers root only", "run with sudo")
