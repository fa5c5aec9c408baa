"""Other kernels than this machine's, booted in a virtual machine: which ones, and what a script says there.

Set ``MEMTUI_LAB_KERNEL`` to images of kernels with BTF, separated by commas; ``debian`` is the stock kernel of this
Debian, which is fetched, and ``lab`` the one that ``make lab-kernel`` builds. Both lie in a cache directory
(``MEMTUI_LAB_CACHE``, by default ``~/.cache/memtui/kernels``). virtme-ng (PyPI) boots them on QEMU in software on this
machine's files, which the guest may read. It may write to one scratch directory; what it writes elsewhere is gone
with it.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.guest import boot, cannot_boot
from tests.lab.debian_kernel import NoKernel, fetch

VARIABLE, CACHE_VARIABLE = "MEMTUI_LAB_KERNEL", "MEMTUI_LAB_CACHE"
ROOT = Path(__file__).parents[2]
KERNELS = [kernel for kernel in os.environ.get(VARIABLE, "").split(",") if kernel]

each_kernel = pytest.mark.parametrize("kernel", KERNELS or [None])


def cache() -> Path:
    """Where kernels are kept between test runs and checkouts."""
    asked = os.environ.get(CACHE_VARIABLE)
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(asked) if asked else Path(user) / "memtui" / "kernels"


def lab_image() -> Path:
    """Where ``make lab-kernel`` leaves the kernel that it builds."""
    return cache() / "lab" / "bzImage"


@dataclass(frozen=True)
class Machine:
    """One kernel, ready to boot."""

    kernel: str
    folder: Path  # of the test, for the script and the console

    def run(
        self, script: str, *, seconds: float, memory: str = "2G", words: str = "", nodes: tuple[str, ...] = ()
    ) -> str:
        """Boot, run the script as root and return what came out on the console, once it has run to its end.

        ``$SCRATCH`` is the one directory whose files come back; it is ``folder / "scratch"`` here. ``words`` are added
        to the kernel's command line; ``nodes``: as in ``boot``.
        """
        scratch, console = self.folder / "scratch", self.folder / "console"
        scratch.mkdir()
        # The exit status of the machine is not that of the script, hence the line at its end.
        script = f"export SCRATCH={shlex.quote(str(scratch))}\nbad=0\n{script}\necho guest-status=$bad\n"
        print(f"{self.kernel}: tail -f {console}", flush=True)
        said = boot(
            self.kernel, script, console, memory=memory, seconds=seconds, scratch=scratch, words=words, nodes=nodes
        )
        assert "guest-status=0" in said, said[-12000:]
        return said


def machine(kernel: str | None, folder: Path) -> Machine:
    """A machine with this kernel. Skips, with the reason, where there is none."""
    if not kernel:
        pytest.skip(f"set {VARIABLE} to kernel images, or to debian or lab, to test on other kernels")
    if why := cannot_boot():
        pytest.skip(why)
    if kernel == "debian":
        try:
            kernel = str(fetch(cache()))
        except NoKernel as error:
            pytest.skip(f"the stock kernel of Debian cannot be had: {error}")
    elif kernel == "lab":
        kernel = str(lab_image())
        if not Path(kernel).exists():
            pytest.skip(f"{kernel} is missing: make lab-kernel builds it")
    elif not Path(kernel).exists():
        pytest.fail(f"{VARIABLE} names {kernel}, which is not there")
    return Machine(kernel, folder)
