"""An arm64 machine in software: Debian's own arm64 kernel and Python, unpacked and never installed, on QEMU.

Everything lies in the cache directory of the lab; apt works on lists of its own, so this machine's stay as they are.
Needs apt-get, dpkg, mke2fs, cpio and qemu-system-aarch64 (Debian: qemu-system-arm cpio e2fsprogs), and a package index.
"""

from __future__ import annotations

import compileall
import lzma
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from tests.lab.debian_kernel import NoKernel

_TOOLS = ("apt-get", "apt-cache", "dpkg", "mke2fs", "cpio", "qemu-system-aarch64")
_SYSTEM = ("python3", "bash", "coreutils", "mount", "util-linux", "kmod", "grep", "sed", "libgomp1", "libstdc++6")
_WHEELS = ("numpy", "psutil", "hypothesis")  # what is compiled
_PURE = (
    *("pytest", "pluggy", "iniconfig", "packaging", "pygments", "sortedcontainers", "pytest-asyncio", "rich"),
    *("textual", "markdown-it-py", "mdurl", "platformdirs", "typing-extensions"),
    *("linkify-it-py", "mdit-py-plugins"),
)
_MODULES = (
    *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk"),
    *("crc16", "crc32c_generic", "libcrc32c", "mbcache", "jbd2", "ext4"),
)
_INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc none /proc; $b mount -t sysfs none /sys; $b mount -t devtmpfs none /dev
for m in $($b cat /m/order); do $b insmod /m/$m.ko; done
i=0; while [ ! -e /dev/vdb ] && [ $i -lt 100 ]; do $b sleep 0.1; i=$((i+1)); done
$b mount -t ext4 -o ro /dev/vda /new && $b mount -t ext4 -o ro /dev/vdb /new/mnt
for d in proc sys dev; do $b mount -o move /$d /new/$d; done
$b mount -t tmpfs none /new/tmp; $b mount -t tmpfs none /new/run
exec $b switch_root /new /bin/bash /mnt/guest.sh
"""
_BEGIN = """
export PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/tmp TMPDIR=/tmp PYTHONPATH=/mnt:/opt/site
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
cd /mnt
bad=0
"""
_END = """
echo guest-status=$bad
echo o > /proc/sysrq-trigger
sleep 60
"""


@dataclass(frozen=True)
class Arm64:
    """A kernel with its first file system, and the system that it starts. Nothing of it is ever written."""

    kernel: Path
    initrd: Path
    system: Path

    def run(self, script: str, files: dict[str, Path], folder: Path, *, processor: str, seconds: float) -> str:
        """Boot, run the script as root in a folder with these files, and return what came out on the console."""
        tree, image, console = folder / "tree", folder / "tree.image", folder / "console"
        tree.mkdir()
        for name, path in files.items():
            if path.is_dir():
                shutil.copytree(path, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(path, tree / name)
        _compile(tree)
        (tree / "guest.sh").write_text(f"{_BEGIN}{script}\n{_END}")
        _run("mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(image), "128M")
        disks = []
        for name, disk in (("a", self.system), ("b", image)):
            disks += ["-drive", f"if=none,file={disk},id={name},format=raw,readonly=on"]
            disks += ["-device", f"virtio-blk-pci,drive={name}"]
        machine = ["-M", "virt,gic-version=3", "-cpu", processor, "-smp", "2", "-m", "2G", "-nographic", "-no-reboot"]
        machine += ["-kernel", str(self.kernel), "-initrd", str(self.initrd)]
        print(f"{self.kernel} on {processor}: tail -f {console}", flush=True)
        with console.open("wb") as output:
            subprocess.run(
                ["qemu-system-aarch64", *machine, *disks, "-append", "console=ttyAMA0 loglevel=4 panic=-1"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=seconds, check=False,
            )  # fmt: skip
        said = console.read_text(errors="replace")
        assert "guest-status=0" in said, said[-12000:]
        return said


def fetch(cache: Path, package: str) -> Arm64:
    """Debian's kernel of that name (a meta package) and a small system, downloaded once. Raises NoKernel."""
    if missing := [tool for tool in _TOOLS if not shutil.which(tool)]:
        raise NoKernel(f"{', '.join(missing)} is missing (Debian: qemu-system-arm cpio e2fsprogs)")
    home = cache / "arm64"
    home.mkdir(parents=True, exist_ok=True)
    try:
        apt = _apt(home)
        kernel = _kernel(home, apt, package)
        system = home / "system.image"
        if not system.exists():
            _make_system(home, apt, system)
    except subprocess.CalledProcessError as error:
        raise NoKernel(f"{' '.join(map(str, error.cmd[:3]))} ...: {(error.stderr or '').strip()[-400:]}") from error
    return Arm64(next((kernel / "boot").glob("vmlinuz-*")), kernel / "initrd", system)


def _apt(home: Path) -> dict[str, str]:
    """An environment in which apt knows arm64 alone, and nothing as installed."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home / "status").touch()
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    site, release = "http://deb.debian.org", "bookworm"
    (home / "sources.list").write_text(
        f"deb {key} {site}/debian {release} main\ndeb {key} {site}/debian-security {release}-security main\n"
    )
    (home / "apt.conf").write_text(
        'APT::Architecture "arm64"; APT::Architectures { "arm64"; }; APT::Sandbox::User "root";\n'
        f'Dir::State "{home}/state"; Dir::State::status "{home}/status"; Dir::Cache "{home}/cache";\n'
        f'Dir::Etc::sourceparts "/dev/null"; Dir::Etc::sourcelist "{home}/sources.list";\n'
    )
    environment = os.environ | {"APT_CONFIG": str(home / "apt.conf"), "DEBIAN_FRONTEND": "noninteractive"}
    if not any((home / "state" / "lists").glob("*Packages*")):
        _run("apt-get", "update", "-qq", env=environment)
    return environment


def _kernel(home: Path, apt: dict[str, str], package: str) -> Path:
    """A folder with boot/, lib/modules/ and initrd."""
    described = _run("apt-cache", "depends", package, env=apt)
    image = next((line.split()[-1] for line in described.splitlines() if "Depends: linux-image-" in line), "")
    if not image:
        raise NoKernel(f"no package is known by the name of {package}")
    target = home / image
    if not target.exists():
        with TemporaryDirectory(dir=home) as folder:
            _run("apt-get", "download", "-qq", f"{image}-unsigned", cwd=folder, env=apt)
            (archive,) = Path(folder).glob("*.deb")
            unpacked = Path(folder, "unpacked")
            _run("dpkg", "-x", str(archive), str(unpacked))
            _make_initrd(home, apt, unpacked, Path(folder))
            unpacked.rename(target)
    return target


def _make_initrd(home: Path, apt: dict[str, str], kernel: Path, folder: Path) -> None:
    """The first file system: busybox and the modules of the disks, in the order in which they need each other."""
    tree = folder / "initrd"
    for name in ("bin", "m", "proc", "sys", "dev", "new"):
        (tree / name).mkdir(parents=True)
    _run("apt-get", "download", "-qq", "busybox-static", cwd=folder, env=apt)
    _run("dpkg", "-x", str(next(folder.glob("busybox*.deb"))), str(folder / "busybox"))
    shutil.copy(next((folder / "busybox").rglob("bin/busybox")), tree / "bin" / "busybox")
    order = []
    for name in _MODULES:
        for found in kernel.rglob(f"{name}.ko*"):
            data = found.read_bytes()
            (tree / "m" / f"{name}.ko").write_bytes(lzma.decompress(data) if found.suffix == ".xz" else data)
            order.append(name)
    (tree / "m" / "order").write_text("\n".join(order))
    (tree / "init").write_text(_INIT)
    (tree / "init").chmod(0o755)
    _run("sh", "-c", f"find . | cpio -o -H newc 2>/dev/null > '{kernel}/initrd'", cwd=tree)


def _make_system(home: Path, apt: dict[str, str], image: Path) -> None:
    """Python and what the tests import, as an ext4 image."""
    with TemporaryDirectory(dir=home) as folder:
        tree = Path(folder, "tree")
        site = tree / "opt" / "site"
        site.mkdir(parents=True)
        _run("apt-get", "install", "-y", "-qq", "--download-only", "--no-install-recommends", *_SYSTEM, env=apt)
        for archive in (home / "cache" / "archives").glob("*.deb"):
            _run("dpkg", "-x", str(archive), str(tree))
        for name in ("proc", "sys", "dev", "tmp", "mnt", "run"):
            (tree / name).mkdir(exist_ok=True)
        if not (tree / "bin" / "sh").exists():
            (tree / "bin" / "sh").symlink_to("bash")
        tags = [
            word for tag in ("2014", "_2_17", "_2_27", "_2_28") for word in ("--platform", f"manylinux{tag}_aarch64")
        ]
        version = ["--python-version", "3.11", "--implementation", "cp", "--only-binary=:all:"]
        _run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", *tags, *version, "-d", folder, *_WHEELS)
        for wheel in Path(folder).glob("*.whl"):
            ZipFile(wheel).extractall(site)
        for name in _PURE:
            _copy(name, site)
        _compile(site)
        _compile(tree / "usr" / "lib" / "python3.11")
        _run("mke2fs", "-q", "-t", "ext4", "-d", str(tree), f"{folder}/image", "1200M")
        Path(folder, "image").rename(image)


def _compile(code: Path) -> None:
    """Compiled modules know no processor; but those of another version of Python are of no use there."""
    if sys.version_info[:2] == (3, 11):
        compileall.compile_dir(code, quiet=2)


def _copy(name: str, site: Path) -> None:
    """A package without compiled parts, from this interpreter's."""
    found = distribution(name)
    for file in found.files or ():
        source, inside = Path(str(found.locate_file(file))), Path(str(file))
        if (
            ".." not in inside.parts
            and "__pycache__" not in inside.parts
            and source.suffix != ".so"
            and source.exists()
        ):
            (site / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, site / inside)


def _run(*command: str, cwd: Path | str | None = None, env: dict[str, str] | None = None) -> str:
    return subprocess.run(command, cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout
