"""Fetches the stock kernel of this Debian and unpacks it into a cache directory; nothing is installed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_PACKAGE = "linux-image-amd64"


class NoKernel(Exception):
    """It cannot be had here; the text says why."""


def fetch(cache: Path) -> Path:
    """The kernel image, with its modules beside it where virtme-ng looks for them. Raises NoKernel."""
    try:
        described = _run("apt-cache", "depends", _PACKAGE)
        found = re.search(r"Depends: (linux-image-(\S+))", described)
        if not found:
            raise NoKernel(f"no package is known by the name of {_PACKAGE} (apt-get update?)")
        package, version = found.groups()
        root = cache / package
        image = root / "boot" / f"vmlinuz-{version}"
        if not image.exists():
            root.mkdir(parents=True, exist_ok=True)
            _run("apt-get", "download", package, cwd=root)
            for archive in root.glob("*.deb"):
                _run("dpkg", "-x", str(archive), str(root))
                archive.unlink()
        return image
    except FileNotFoundError as error:
        raise NoKernel(f"this is no Debian: {error.filename} is missing") from error
    except subprocess.CalledProcessError as error:
        raise NoKernel(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error


def _run(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout
