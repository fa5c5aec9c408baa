"""What the screen asks of a session is what a session has."""

from __future__ import annotations

import inspect

import pytest

from memtui.session.reader import SessionReader
from memtui.tui.presenters import SessionLike

METHODS = [name for name, member in vars(SessionLike).items() if inspect.isfunction(member) and name[0] != "_"]
PROPERTIES = [name for name, member in vars(SessionLike).items() if isinstance(member, property)]


@pytest.mark.parametrize("name", METHODS)
def test_a_session_has_the_method_with_these_parameters(name):
    asked, there = (list(inspect.signature(getattr(kind, name)).parameters) for kind in (SessionLike, SessionReader))
    assert there == asked


def test_a_session_has_the_properties(tmp_path):
    assert len(METHODS) > 20
    assert PROPERTIES == ["samples", "partial", "file_bytes", "alive", "thinned_to_bytes"]
