"""Memory whose page tables come and go: no wrong page, no complaint of the kernel, an unharmed target."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.stress import MODES, stress
from tests.conftest import LONG
from tests.support.pagetable_targets import need_pagetable

pytestmark = pytest.mark.real_clock

SECONDS, PHASE_S = (600, 5) if LONG else (0, 2)  # every mode once


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")
def test_nothing_is_wrong_while_page_tables_come_and_go():
    need_pagetable()
    found = stress(SECONDS, PHASE_S)
    assert found.wrong == []
    assert found.compared > 50
    assert found.exact > 10
    assert {line.split(":")[0] for line in found.windows} == set(MODES)
    assert found.rounds > 1000
