"""Repositories of others, beside whose files memtui is held where an environment variable names a checkout.

A git directory without a work tree is enough; what a partial copy lacks is not fetched.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


class Checkout:
    """The newest commit of a repository. ``variable`` names its folder; ``url`` is what is asked for without it."""

    def __init__(self, variable: str, url: str) -> None:
        self._variable, self._url = variable, url

    @property
    def is_named(self) -> bool:
        return self._variable in os.environ

    def blob(self, name: str) -> bytes:
        """Return a file; skip the test where there is no checkout, or the copy lacks the file."""
        if not self.is_named:
            pytest.skip(f"{self._variable} names no checkout of {self._url}")
        shown = self._git("cat-file", "blob", f"HEAD:{name}")
        if shown.returncode:
            pytest.skip(f"the copy lacks it: {shown.stderr.decode().strip()}")
        return shown.stdout

    def names(self, folder: str) -> list[str]:
        """Return the files below a folder."""
        return self._git("ls-tree", "-r", "--name-only", "HEAD", folder).stdout.decode().splitlines()

    def _git(self, *argv: str) -> subprocess.CompletedProcess[bytes]:
        checkout = Path(os.environ[self._variable])
        folder = checkout / ".git" if (checkout / ".git").exists() else checkout
        environment = os.environ | {"GIT_NO_LAZY_FETCH": "1"}
        return subprocess.run(["git", f"--git-dir={folder}", *argv], capture_output=True, env=environment, check=False)
