"""Name and password for a Redfish service: from the environment, or from ``~/.netrc``. Nothing here is ever printed."""

from __future__ import annotations

import base64
import netrc
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

USER, PASSWORD = "MEMTUI_REDFISH_USER", "MEMTUI_REDFISH_PASSWORD"
_MOST_BYTES = 1 << 20


def without_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that asks no Redfish service."""
    return {name: value for name, value in environment.items() if name not in (USER, PASSWORD)}


class NoCredentials(Exception):
    """There are some, and they cannot be used; the text says why, without a word of them."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A name and a password, which ``repr`` leaves out."""

    user: str = field(repr=False)
    password: str = field(repr=False)

    @property
    def header(self) -> str:
        """The value of ``Authorization``."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def credentials_for(host: str, environment: Mapping[str, str], home: Path) -> Credentials | None:
    """Return what the user has for this host: of the environment, else of ``~/.netrc``; None: nothing.

    Raises:
        NoCredentials: half of it is missing, or the file is not the user's alone.
    """
    user, password = environment.get(USER, ""), environment.get(PASSWORD, "")
    if bool(user) != bool(password):
        raise NoCredentials(f"{PASSWORD if user else USER} is not set, and {USER if user else PASSWORD} is")
    if ":" in user:
        raise NoCredentials(f"{USER} has a colon in it, which no name can have here")
    if user:
        return Credentials(user, password)
    return _of_netrc(home / ".netrc", host)


def _of_netrc(path: Path, host: str) -> Credentials | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoCredentials(f"~/.netrc cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            raise NoCredentials("~/.netrc is not a file of passwords")
        if status.st_uid != os.geteuid():
            raise NoCredentials("~/.netrc belongs to another user")
        if status.st_mode & 0o077:
            raise NoCredentials("~/.netrc is open to others: chmod 600 ~/.netrc")
        try:
            # The file that was checked, whatever has that name now. An entry "default" is for no host in particular,
            # and so not for this one.
            entries = netrc.netrc(f"/proc/self/fd/{fd}").hosts.items()
            entry = next((entry for name, entry in entries if name.lower() == host.lower()), None)
        except netrc.NetrcParseError as error:  # its own words may have a part of a password
            raise NoCredentials(f"~/.netrc cannot be understood, at line {error.lineno}") from None
        except (OSError, UnicodeError):
            raise NoCredentials("~/.netrc cannot be read") from None
    finally:
        os.close(fd)
    if entry is None:
        return None
    if not entry[0] or not entry[2]:
        raise NoCredentials(f"~/.netrc has no login or no password for {host}")
    return Credentials(entry[0], entry[2])
