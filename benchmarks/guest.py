"""Boots another kernel in a virtual machine (virtme-ng on QEMU, in software) that shares this machine's files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.run import ROOT
from benchmarks.table import Skip

# QEMU 7.2 (Debian 12) does not emulate AVX2 right: with it, numpy's argsort came out unsorted in nine of ten cases.
_PROCESSOR = "max,avx2=off"


def boot(
    kernel: str,
    script: str,
    console: Path,
    *,
    memory: str = "2G",
    seconds: float = 2400,
    scratch: Path | None = None,
    words: str = "",
    nodes: tuple[str, ...] = (),
) -> str:
    """Run a shell script there, as root; returns what the machine said.

    The exit status of the machine is not that of the script: have it print what matters. /tmp in the guest is memory.

    Args:
        kernel: an image.
        script: for bash, in the folder of this project.
        console: gets everything while it runs; the script is kept beside it.
        memory: of the guest.
        seconds: after so many it is given up.
        scratch: the one directory whose files come back; what is written elsewhere is gone with the guest.
        words: of the kernel's command line, in addition.
        nodes: memory and CPUs of each NUMA node, ``1G,cpus=0``, where there are to be several.

    Raises Skip where that cannot be done, and subprocess.TimeoutExpired.
    """
    if why := cannot_boot():
        raise Skip(why)
    where = console.with_suffix(".sh")
    where.write_text(script)
    machine = ["--disable-kvm", "--force-9p", "--cpus", "2", "--memory", memory, "--verbose", "--cwd", str(ROOT)]
    # Memory that is not used need not be there.
    promised = f" -object memory-backend-ram,id=promised,size={memory},reserve=off -machine memory-backend=promised"
    machine += [f"--qemu-opts=-cpu {_PROCESSOR}{promised * (not nodes)}"]
    machine += [word for node in nodes for word in ("--numa", node)]
    machine += ["--rwdir", str(scratch)] if scratch else []
    machine += ["--append", words] if words else []
    # The guest's console comes out on either stream, depending on whether there is a terminal.
    with console.open("wb") as output:
        subprocess.run(
            [sys.executable, _vng(), "--run", kernel, *machine, "--exec", f"bash {where} 2>&1"],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=os.environ | {"PATH": _search()}, timeout=seconds,
        )  # fmt: skip
    return console.read_text(errors="replace")


def cannot_boot() -> str:
    """Why there can be no virtual machine; empty when there can."""
    if _vng() and shutil.which("qemu-system-x86_64"):
        return ""
    return "booting another kernel needs virtme-ng (pip install virtme-ng) and qemu-system-x86_64"


def _vng() -> str:
    return shutil.which("vng", path=_search()) or ""


def _search() -> str:
    return f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
