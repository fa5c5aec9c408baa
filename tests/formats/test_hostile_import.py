"""A damaged session of imported files: one line or a result, whatever is asked of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memtui.core.errors import UserError
from memtui.formats.catalogue import import_bytes
from memtui.formats.session_writer import write
from memtui.reports.breakdown.inputs import read
from memtui.reports.export import export
from memtui.reports.report import build_report
from memtui.reports.text import format_report
from tests.conftest import LONG
from tests.mutations import mutate
from tests.support import stacked_snapshot
from tests.support.hostile_sessions import MIB, little_memory
from tests.support.memory_logs import mxnet_log, zpp_text

MUTATIONS = int(os.environ.get("MEMTUI_MUTATIONS", "300" if LONG else "100"))
FORMS = ("zpp", "analysis", "mxnet", "chrome", "perfetto", "csv")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(mxnet_log(in_mb=(("mask_workspace", 3),)), id="mxnet", marks=pytest.mark.slow),
        pytest.param(zpp_text(200).encode(), id="zpp"),
        pytest.param(stacked_snapshot.snapshot(), id="call stacks"),
    ],
)
def test_mutated_sessions_give_one_line_or_a_result(data, tmp_path):
    path = tmp_path / "good.memtui"
    write(import_bytes(data), path)
    used = refused = 0
    with little_memory(300 * MIB):
        for seed in range(MUTATIONS):
            bad = tmp_path / "s.memtui"
            for beside in tmp_path.glob("s.memtui*"):
                beside.unlink()
            kind = mutate(path, bad, seed)
            try:
                use(bad, tmp_path / "out", FORMS[seed % len(FORMS)])
                used += 1
            except UserError as error:
                refused += "\n" not in str(error)
            except BaseException as error:
                raise AssertionError(f"seed {seed} ({kind}): {type(error).__name__}: {error}") from error
    assert used + refused == MUTATIONS
    assert min(used, refused) > MUTATIONS // 10, (used, refused)


def use(path: Path, folder: Path, form: str) -> None:
    format_report(build_report(path))
    format_report(build_report(path, redact=True))
    read(path)
    export(path, form, folder, force=True)
    export(path, form, folder, force=True, redact=True)
