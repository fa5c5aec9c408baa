"""The header of a profile's file, which tells a profile from a session without loading the modules that read it."""

from __future__ import annotations

from pathlib import Path

from memtui.core.errors import UserError
from memtui.session.file_format import PLACEMENT_ID, SessionError, application_id, sqlite_header

APPLICATION_ID = PLACEMENT_ID  # in the SQLite header
_KIND = "placement profile"


def check_header(path: Path) -> None:
    """Raise UserError unless the file has the header of a profile."""
    head, _ = sqlite_header(path, _KIND)
    if application_id(head) != APPLICATION_ID:
        raise UserError(f"{path}: is an SQLite file, but not a {_KIND} of memtui")


def is_profile(path: Path) -> bool:
    """Return whether the header of a file marks it as a profile."""
    try:
        head, _ = sqlite_header(path, _KIND)
    except SessionError:
        return False
    return application_id(head) == APPLICATION_ID
