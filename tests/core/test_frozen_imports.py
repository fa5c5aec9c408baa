"""Imports that are left out of garbage collection."""

from __future__ import annotations

import gc

import pytest

from memtui.core.frozen_imports import frozen_imports


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_and_what_was_made_is_frozen(enabled: bool) -> None:
    frozen = gc.get_freeze_count()
    try:
        (gc.enable if enabled else gc.disable)()
        with frozen_imports():
            assert not gc.isenabled()
            made = [[number] for number in range(1000)]
        assert gc.isenabled() == enabled
        assert gc.get_freeze_count() >= frozen + len(made)
    finally:
        gc.enable()
