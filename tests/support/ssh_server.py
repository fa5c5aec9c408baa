"""A real sshd of our own: on loopback, with keys, a port and a configuration that nobody else has."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.repository import ROOT
from tests.support.terminals import Terminal

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
SSH, KEYGEN = shutil.which("ssh"), shutil.which("ssh-keygen")
_CHROOT = Path("/run/sshd")  # where the unprivileged half of a root's sshd lives: compiled in


class Server:
    """``words`` begin a command that runs over a connection, in the root of the project."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        for name in ("host_key", "user_key"):
            subprocess.run([KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        host_key = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host_key}")
        shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
        settings = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": folder / "host_key",
            "AuthorizedKeysFile": folder / "authorized_keys",
            "PidFile": "none",
            "AuthenticationMethods": "publickey",
            "PermitRootLogin": "prohibit-password",
            "StrictModes": "no",  # the folder lies under /tmp, where others may write
            "UsePAM": "no",
            "UseDNS": "no",
            "PrintMotd": "no",
            "PrintLastLog": "no",
        }
        (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self._log = (folder / "sshd.log").open("wb")
        command = [SSHD, "-D", "-e", "-f", folder / "sshd_config"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        alone = ("IdentitiesOnly=yes", "BatchMode=yes", "StrictHostKeyChecking=yes", "LogLevel=ERROR")
        options = (*alone, f"UserKnownHostsFile={folder / 'known_hosts'}", f"IdentityFile={folder / 'user_key'}")
        self._client = [SSH, "-F", "/dev/null", "-p", str(self.port), *(w for o in options for w in ("-o", o))]
        self._client += [f"{getpass.getuser()}@127.0.0.1"]
        there = {"TERM": "xterm-256color", **environment}
        self._command = ["cd", str(ROOT), "&&", "exec", "env", *(f"{name}={value}" for name, value in there.items())]

    def problem(self) -> str:
        """Why nobody can come in; empty when they can."""
        deadline = time.monotonic() + 10
        while self.process.poll() is None:
            done = subprocess.run([*self._client, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode == 0:
                return ""
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        lines = (self._folder / "sshd.log").read_text(errors="replace").splitlines()
        return "; ".join(lines[-2:]) or "no word from sshd"

    def memtui(self, *words: object) -> Terminal:
        """Memtui on a pseudo-terminal at the other end of a connection."""
        client = [self._client[0], "-tt", *self._client[1:]]
        return Terminal(*map(str, words), module="memtui", before=[*client, *self._command])

    def sessions(self) -> list[psutil.Process]:
        """The processes of sshd that serve connections, the first of each before those it started."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in below if process.name().startswith("sshd")]

    def close(self) -> None:
        for process in self.sessions() if self.process.poll() is None else ():
            process.kill()
        self.process.kill()
        self.process.wait()
        self._log.close()


@contextmanager
def private_sshd(folder: Path, **environment: str) -> Iterator[Server]:
    """A server that lets this user in, with a few variables set for what runs there. Skips where there can be none."""
    if not (SSHD and SSH and KEYGEN):
        pytest.skip("no sshd, ssh or ssh-keygen here (apt-get install openssh-server openssh-client)")
    made = os.geteuid() == 0 and not _CHROOT.exists()
    if made:
        _CHROOT.mkdir(mode=0o755)
    server = None
    try:
        server = Server(folder, **environment)
        if problem := server.problem():
            pytest.skip(f"sshd on loopback lets nobody in: {problem}")
        yield server
    finally:
        if server is not None:
            server.close()
        if made:
            _CHROOT.rmdir()
