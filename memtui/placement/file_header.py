"""What a profile's file begins with: enough to tell it from a session without loading what reads it."""

from __future__ import annotations

from pathlib import Path

from memtui.core.errors import UserError
from memtui.session.file_format import PLACEMENT_ID, SessionError, application_id, sqlite_header

APPLICATION_ID = PLACEMENT_ID  # in the SQLite header
_KIND = "placement profile"


def check_header(path: Path) -> None:
    """Raise UserError unless the file begins as a profile does."""
    head, _ = sqlite_header(path, _KIND)
    if application_id(head) != APPLICATION_ID:
        raise UserError(f"{path}: is an SQLite file, but not a {_KIND} of memtui")


def is_profile(path: Path) -> bool:
    """Return whether a file says of itself that it is a profile."""
    try:
        head, _ = sqlite_header(path, _KIND)
    except SessionError:
        return False
    return application_id(head) == APPLICATION_ID
