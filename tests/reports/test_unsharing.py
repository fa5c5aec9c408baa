"""Workers that copy what they shared, and growth that is something else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_pages import TensorMap
from memtui.core.samples import Process
from memtui.reports.redact import open_source
from memtui.reports.source import Source
from memtui.reports.verdict import out_of_memory, unsharing
from memtui.reports.verdict.recent import NO_FILE, Recent
from memtui.reports.verdict.verdict import last_verdict
from memtui.session.vma_row import VmaRow
from tests.support.growing_sessions import GIB, MIB, START_S, S, session_of, steady, tree_of
from tests.support.verdicts import checks_of, rules_found


def test_copies_of_which_nothing_is_known_lately_are_not_called_growth_of_others(tmp_path):
    """PSS is read for half a minute; later it seems not to grow."""
    path = tree_of(tmp_path / "s.memtui", lambda n: 4 * n, use_every=2, read_every=6, last_read=36)
    forecast = SimpleNamespace(growth_bytes_per_s=20 * MIB)
    with closing(Source(path)) as source:
        recent = Recent(source, len(source.samples) - 1)
        assert recent.pss_age_s == 53.5
        assert out_of_memory._what_grows(recent, forecast) == "what grows"
    finding = checks_of(path)["unsharing"].finding
    assert finding.sentence == "Its processes copied memory that they shared: 324 MiB in 36 s, as read last 54 s ago."
    assert finding.short == "Its processes copied memory that they shared."


@pytest.mark.parametrize("ended", [True, False])
def test_a_program_that_ends_its_workers_first_has_what_they_did(ended, tmp_path):
    """Its last windows are of the parent alone; of a program that goes on, they are of what is left."""
    path = tree_of(
        tmp_path / "s.memtui",
        lambda n: 4 * n,
        workers=lambda n: 3 if n < 86 else 0,
        use_every=1,
        ended=ended,
    )
    check = checks_of(path)["unsharing"]
    assert (check.finding is not None, check.measured) == (ended, ended)


def test_workers_that_copy_what_they_shared_are_found(tmp_path):
    path = tree_of(tmp_path / "s.memtui", lambda n: 4 * n)
    assert rules_found(path) == ["unsharing"]
    finding = checks_of(path)["unsharing"].finding
    assert finding.short == "Its processes copy memory that they share: 9.00 MiB/s."
    assert finding.sentence.endswith("9.00 MiB/s, 765 MiB in the last 85 s.")
    assert "numpy array" in finding.action
    assert finding.evidence[:2] == (  # by mapping it is read less often
        "pid 4243: 20.0 MiB to 360 MiB of its own (at least 300 MiB in [heap])",
        "pid 4244: 20.0 MiB to 360 MiB of its own (at least 300 MiB in [heap])",
    )
    with closing(open_source(path, redact=True)) as source:
        assert last_verdict(source).findings[0].short == finding.short


def test_what_is_left_to_a_parent_is_not_a_copy_of_its_own(tmp_path):
    path = tree_of(tmp_path / "s.memtui", lambda n: 4 * n, workers=lambda n: 2, left=lambda n: 5 * n)
    evidence = checks_of(path)["unsharing"].finding.evidence
    assert [line.partition(":")[0] for line in evidence] == ["pid 4243", "pid 4244", "pid 4242", "PSS"]
    assert evidence[2].startswith("pid 4242: 20.0 MiB to 445 MiB of its own")
    assert evidence[2].endswith("left to it where the others copied")


def test_workers_whose_memory_was_read_later_than_that_of_all_are_named_too(tmp_path):
    path = tree_of(tmp_path / "s.memtui", lambda n: 4 * n)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE process_sample SET private_bytes = NULL WHERE pss_ns < ?", ((START_S + 12) * S,))
    finding = checks_of(path)["unsharing"].finding
    assert finding.sentence.endswith("765 MiB in the last 85 s.")
    assert finding.evidence[0] == "pid 4243: 80.0 MiB to 360 MiB of its own (at least 240 MiB in [heap])"


@pytest.mark.parametrize(("left", "rate"), [(lambda n: 0, "9.00"), (lambda n: 4 * n, "12.0")])
def test_workers_of_a_data_loader_are_named_as_such(left, rate, tmp_path):
    """Also where their parent gets memory for itself: what all of them copied is left to it alone."""
    path = tree_of(tmp_path / "s.memtui", lambda n: 4 * n, role="loader RANK=0", left=left)
    finding = checks_of(path)["unsharing"].finding
    assert finding.short == f"Its DataLoader workers copy memory that they share: {rate} MiB/s."
    assert finding.evidence[0].startswith("pid 4243 (DataLoader worker): 20.0 MiB to 360 MiB of its own")
    with closing(open_source(path, redact=True)) as source:
        assert last_verdict(source).findings[0].short == finding.short


@pytest.mark.parametrize(
    ("private", "how", "why"),
    [
        (lambda n: 0, {}, "0 B less than 85 s before"),
        (lambda n: min(n, 15) * 7, {}, "less than 85 s before"),  # a start
        (lambda n: n // 4, {}, "less than 85 s before"),  # little
        (lambda n: 0, {"own": lambda n: 20 + 2 * n}, "0 B less than 85 s before"),  # new memory
    ],
)
def test_what_is_not_unsharing(tmp_path, private, how, why):
    path = tree_of(tmp_path / "s.memtui", private, **how)
    check = checks_of(path)["unsharing"]
    assert (check.finding, check.measured) == (None, True)
    assert why in check.looked_at


def test_much_that_was_copied_counts_though_it_has_ended(tmp_path):
    finding = checks_of(tree_of(tmp_path / "s.memtui", lambda n: min(n, 15) * 10))["unsharing"].finding
    assert finding.sentence == "Its processes copied memory that they shared: 338 MiB in the last 85 s."
    assert finding.short == "Its processes copied memory that they shared."
    large = tree_of(tmp_path / "t.memtui", lambda n: min(n, 15) * 10, own=lambda n: 800)
    assert checks_of(large)["unsharing"].finding is None, "less than a quarter of its memory"


@pytest.mark.parametrize(("slower", "still"), [(2, True), (1, False)])
def test_copies_that_become_slower_are_still_copies(slower, still, tmp_path):
    """Of three workers: 18 MiB/s for half a minute, and then 4.5 or 2.25 MiB/s."""
    path = tree_of(tmp_path / "s.memtui", lambda n: 8 * min(n, 30) + slower * max(n - 30, 0))
    finding = checks_of(path)["unsharing"].finding
    assert ("that they share: " in finding.sentence) is still, finding.sentence


def test_copies_of_workers_that_are_renewed_add_up(tmp_path):
    """Each generation copies 4 MiB/s for 30 s: PSS falls by what the last one had, which was copied all the same."""
    check = checks_of(tree_of(tmp_path / "s.memtui", lambda n: n % 30 * 4, windows=90))["unsharing"]
    assert check.finding.sentence == "Its processes copy memory that they share: 9.00 MiB/s, 675 MiB in the last 85 s."
    assert check.looked_at.endswith("675 MiB copied in 85 s")


@pytest.mark.parametrize(
    ("private", "rule", "looked_at"),
    [
        (lambda n: n % 10 * 30, "unsharing", "Its DataLoader workers copy memory that they share"),
        (lambda n: n % 10 * 9, None, "they are started anew too often"),
    ],
)
def test_workers_that_live_for_seconds_are_read_one_after_another(private, rule, looked_at, tmp_path):
    """The parent is alone for a moment between two epochs: in most windows, and in each reading, it is not."""
    path = tree_of(
        tmp_path / "s.memtui",
        private,
        workers=lambda n: 0 if n % 10 == 9 else 2,
        use_every=1,
        read_every=4,
        role="loader RANK=0",
    )
    check = checks_of(path)["unsharing"]
    assert (check.finding is not None, check.measured, check.applies) == (rule is not None, rule is not None, True)
    assert looked_at in check.looked_at
    if check.finding is not None:
        assert check.finding.sentence == (
            "Its DataLoader workers are started anew again and again, and each time copy memory that they share: up to "
            "320 MiB."
        )


def test_a_leak_of_a_tree_is_not_unsharing(tmp_path):
    checks = checks_of(tree_of(tmp_path / "s.memtui", lambda n: 0, own=lambda n: 200 + 2 * n))
    assert checks["unsharing"].finding is None
    assert "as processes copy memory that they share" not in checks["leak"].looked_at
    copies = checks_of(tree_of(tmp_path / "t.memtui", lambda n: 4 * n))
    assert copies["leak"].finding is None
    assert "as processes copy memory that they share" in copies["leak"].looked_at


def test_readings_between_windows_are_enough(tmp_path):
    path = tree_of(tmp_path / "s.memtui", lambda n: 4 * n, use_every=2, read_every=6, window_every=20, windows=61)
    assert rules_found(path) == ["unsharing"]
    finding = checks_of(path)["unsharing"].finding
    assert finding.short == "Its processes copy memory that they share: 9.00 MiB/s."
    assert finding.evidence[0] == "pid 4243: 20.0 MiB to 260 MiB of its own (at least 240 MiB in [heap])"
    fewer = tree_of(
        tmp_path / "t.memtui",
        lambda n: 0,
        own=lambda n: 200 + 2 * n,
        use_every=2,
        read_every=2,
        window_every=20,
        windows=61,
    )
    assert rules_found(fewer) == ["leak"]
    assert checks_of(fewer)["leak"].finding.sentence.startswith("Memory grows by 8.00 MiB/s")


def test_what_was_copied_has_the_name_of_its_use():
    """Two ranges of Python's arenas count together; memory that became less does not."""
    arenas = [(2 << 40) + n * (64 << 20) + (1 << 20) for n in (0, 1)]
    vmas = [
        *((start, start + 3 * MIB, "rw-p", "") for start in arenas),
        (1 << 40, (1 << 40) + GIB, "rw-p", "[heap]"),
        (3 << 40, (3 << 40) + MIB, "r-xp", "/usr/lib/libpython3.11.so.1.0"),
    ]
    rows = [VmaRow(number, 1, 7, *vma, 0, 9, "") for number, vma in enumerate(vmas)]
    by_row = {2: {0: 1, 2: 50}, 5: {0: 2, 1: 1, 2: 40}, 8: {0: 3, 1: 3}}
    readings = [(sample, 1, {row: mib * MIB for row, mib in of.items()}) for sample, of in by_row.items()]
    recent = recent_with(rows, readings, {})
    process = Process(1, 4243, 4242, 7, 0, "python")
    assert unsharing._Places(recent, {1: 2}).grown(process) == [("Python objects (probably)", 5 * MIB)]
    assert unsharing._Places(recent, {1: 5}).grown(process) == [("Python objects (probably)", 3 * MIB)]
    assert unsharing._Places(recent, {1: 5, 2: 5}).grown(replace(process, key=2)) == []


@pytest.mark.parametrize(
    ("tensor_mib", "grown_mib", "names", "where"),
    [
        (200, 150, ("Rows.data", ""), "Rows.data"),
        (200, 150, ("", ""), "weights"),
        (60, 150, ("Rows.data", ""), NO_FILE),  # most of what grew is something else
        (4, 6, ("Rows.data", ""), NO_FILE),  # too small to be told apart from what lies beside it
    ],
)
def test_what_was_copied_has_the_name_of_a_tensor_of_the_parent(tensor_mib, grown_mib, names, where):
    start = 1 << 40
    rows = [VmaRow(0, 1, 7, start, start + 300 * MIB, "rw-p", "", 0, 9, "")]
    readings = [(2, 1, {0: 10 * MIB}), (8, 1, {0: (10 + grown_mib) * MIB})]
    columns = np.array([[start + 4096], [tensor_mib * MIB], [CATEGORIES.index("weights")]])
    tensors = TensorMap.of(columns, names[:1], names[1:])
    recent = recent_with(rows, readings, {4242: tensors})
    grown = unsharing._Places(recent, {1: 2}).grown(Process(1, 4243, 4242, 7, 0, "python"))
    assert grown == [(where, grown_mib * MIB)]
    assert unsharing._Places(recent, {1: 2}).grown(Process(1, 4243, 1, 7, 0, "python")) == [(NO_FILE, grown_mib * MIB)]


def recent_with(rows, readings, tensors):
    """Ten windows with these rows of one process, its private bytes, and tensors by pid."""
    source = SimpleNamespace(
        samples=SimpleNamespace(sample=np.arange(10)),
        drawn_rows=lambda _: rows,
        vma_private=lambda *_: readings,
        latest_tensors=lambda pid, _: tensors.get(pid),
    )
    return SimpleNamespace(source=source, windows=slice(0, 10), sample=9, end_ns=0)


def test_unsharing_is_of_the_same_processes(tmp_path):
    more = tree_of(tmp_path / "s.memtui", lambda n: 4 * n, workers=lambda n: 3 + (n > 80))
    check = checks_of(more)["unsharing"]
    assert (check.finding, check.measured) == (None, False)
    assert check.looked_at == (
        "memory that processes share: 1 reading in 0 s of the PSS: from 3 in 20 s on, while none begins or ends"
    )
    alone = checks_of(session_of(tmp_path / "t.memtui", steady))["unsharing"]
    assert (alone.measured, alone.looked_at) == (False, "memory that processes share: there is one process")


@pytest.mark.parametrize(
    ("helpers", "over"),
    [
        (lambda n: n % 20 in (7, 8), "90 s"),  # now and then
        (lambda n: n >= 88, "87 s"),  # at the end
        (lambda n: 20 <= n < 40, "48 s"),  # not for a moment: workers like the others
        (lambda n: -(n == 40), "48 s"),  # one of them ended
    ],
)
def test_a_helper_of_a_moment_does_not_change_who_shares(tmp_path, helpers, over):
    path = tree_of(
        tmp_path / "s.memtui", lambda n: 8 * n, workers=lambda n: 3 + helpers(n), use_every=1, read_every=3, windows=91
    )
    finding = checks_of(path)["unsharing"].finding
    assert finding.sentence.endswith(f"in the last {over}."), finding.sentence


def test_what_is_copied_as_a_program_starts_is_not_how_it_goes_on():
    """In its first moments it sets up what it has. With few readings after that, all count."""
    t_s = np.arange(-60.0, 1, 5)
    readings = unsharing._Readings(
        list(range(13)), t_s, np.full(13, 348.0), np.array([137.0, *(220 + 7 * np.arange(12))])
    )
    later = readings.since(-58)
    assert later.samples == list(range(1, 13))
    assert later.copied_bytes[-1] == 77
    assert later.rss_bytes.tolist() == [348.0] * 12
    assert readings.since(-60).copied_bytes[-1] == readings.copied_bytes[-1] == 160
    assert readings.since(-19) is readings, "they would be 15 s apart"
    assert readings.since(-6) is readings, "they would be two"
