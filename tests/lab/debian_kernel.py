"""Fetches the stock kernel of this Debian and unpacks it into a cache directory; nothing is installed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

_PACKAGE = "linux-image-amd64"


class NoKernel(Exception):
    """It cannot be had here; the text says why."""


def fetch(cache: Path) -> Path:
    """The kernel image, downloaded once, with its modules beside it where virtme-ng looks for them. Raises NoKernel."""
    try:
        described = _run("apt-cache", "depends", _PACKAGE)
        found = re.search(r"Depends: (linux-image-(\S+))", described)
        if not found:
            raise NoKernel(f"no package is known by the name of {_PACKAGE} (apt-get update?)")
        package, version = found.groups()
        root = cache / package
        image = root / "boot" / f"vmlinuz-{version}"
        if not image.exists():
            cache.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=cache) as folder:  # what is half unpacked is not there
                _run("apt-get", "download", package, cwd=Path(folder))
                (archive,) = Path(folder).glob("*.deb")
                _run("dpkg", "-x", str(archive), f"{folder}/unpacked")
                Path(folder, "unpacked").rename(root)
        return image
    except FileNotFoundError as error:
        raise NoKernel(f"this is no Debian: {error.filename} is missing") from error
    except subprocess.CalledProcessError as error:
        raise NoKernel(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error


def _run(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout
