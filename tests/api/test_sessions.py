"""``memtui.open``: the tables of a session and of a folder, in data frames, Arrow and numpy."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import memtui
from memtui.api.sessions import Tables
from memtui.core.errors import UserError
from memtui.reports.export.tables import TABLES
from memtui.reports.reuse_summary import exact_reuse
from memtui.reports.source import Source
from memtui.session.session import Session
from tests.support.hostile_sessions import small_stream
from tests.support.sessions import write_session

pandas = pytest.importorskip("pandas", reason="pandas is not installed")
pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
ATTRIBUTES = (
    *(
        "windows",
        "processes",
        "process_windows",
        "mappings",
        "mapping_windows",
        "pages",
        "reuse",
        "miss_ratio",
        "power",
        "gpu_memory",
    ),
    *("memory_limit", "marks", "steps", "allocations", "tensors", "training", "learning"),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return write_session(tmp_path_factory.mktemp("api") / "s.memtui", small_stream())


def test_windows_are_those_of_the_session(path):
    with memtui.open(path) as session, closing(Session(path)) as truth:
        frame = session.windows.to_pandas()
        samples = truth.samples
        assert frame["sample"].tolist() == samples.sample.tolist()
        assert frame["wss_bytes"].tolist() == samples.wss_bytes.tolist()
        assert frame["status"].tolist() == list(samples.status)
        clock = truth.hello.clock
        wall_ns = samples.end_ns[0] - clock.monotonic_ns + clock.wall_ns
        assert frame["end"][0] == pandas.Timestamp(int(wall_ns), tz="UTC")
        assert frame["paused"][0] == pandas.Timedelta(int(samples.paused_ns[0]))
        assert frame["pss_bytes"].isna().all(), "not read, which is not 0"
        assert frame["pss_time"].isna().all()
        assert len(session.windows) == len(samples)
        assert isinstance(session, Tables)


def test_every_table_has_the_rows_of_its_source(path):
    with memtui.open(path) as session, closing(Source(path)) as source:
        for name in (*ATTRIBUTES, *TABLES):
            table = getattr(session, name) if name in ATTRIBUTES else session.table(name)
            frame, arrow = table.to_pandas(), table.to_arrow()
            assert list(frame.columns) == list(table.columns) == arrow.column_names
            assert len(frame) == len(arrow) == len(table) == len(table.to_numpy())
            if name in TABLES:
                assert len(table) == len(list(TABLES[name][1](source)))


def test_processes_and_their_windows(path):
    with memtui.open(path) as session:
        processes = session.processes.to_pandas()
        assert processes["pid"].tolist() == [4242, 4243]
        each = session.process_windows.to_pandas()
        assert set(each["pid"]) == {4242, 4243}
        assert len(each) == 2 * len(session.windows)
        (mark,) = session.marks
        assert mark == {"t_ns": 3, "text": "epoch 1"}


@pytest.mark.parametrize("redact", [False, True])
def test_mappings_window_by_window_add_up_to_each_process(path, redact):
    with memtui.open(path, redact=redact) as session:
        windows = session.process_windows.to_pandas().set_index(["sample", "pid"])
        each = session.mapping_windows.to_pandas()
        assert (each.groupby(["sample", "pid"]).wss_bytes.sum() == windows.wss_bytes).all()
        assert each.time.isin(windows.end).all()
        mean = session.mappings.to_pandas().set_index(["pid", "start"]).wss_bytes
        grown = each.groupby(["pid", "start"])
        assert (grown.wss_bytes.sum() / grown["sample"].nunique()).round().astype("Int64").equals(mean.sort_index())
        last = each[(each.pid == 4242) & (each["sample"] == 9)]
        assert last.rss_bytes.sum() > 0


def test_a_folder_is_one_table(path, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.memtui").write_bytes(path.read_bytes())
    (tmp_path / "notes.txt").write_text("not a session")
    with memtui.open(tmp_path) as sessions, memtui.open(path) as one:
        assert sessions.names == ["a.memtui", "b.memtui"]
        frame = sessions.windows.to_pandas()
        assert frame.columns[0] == "session"
        assert frame.groupby("session").size().to_dict() == dict.fromkeys(sessions.names, len(one.windows))
        assert frame["session"].dtype == "string"


def test_a_redacted_session_behaves_the_same(path):
    with memtui.open(path) as plain, memtui.open(path, redact=True) as redacted:
        for name in ATTRIBUTES:
            assert getattr(redacted, name).columns == getattr(plain, name).columns
        assert redacted.windows.to_pandas()["wss_bytes"].equals(plain.windows.to_pandas()["wss_bytes"])
        assert "train.py" in str(plain.processes.to_pandas())
        assert "train.py" not in str(redacted.processes.to_pandas())


@pytest.mark.parametrize("what", ["missing.memtui", "text.memtui", "empty"])
def test_what_is_no_session_is_one_line(tmp_path, what):
    (tmp_path / "text.memtui").write_text("not a session")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as caught:
        memtui.open(tmp_path / what)
    assert "\n" not in str(caught.value)
    assert what in str(caught.value)


def test_one_bad_session_of_a_folder_closes_the_others(path, tmp_path):
    (tmp_path / "a.memtui").write_bytes(path.read_bytes())
    (tmp_path / "b.memtui").write_text("not a session")
    with pytest.raises(UserError, match=r"b\.memtui"):
        memtui.open(tmp_path)


def test_a_table_that_is_not_there(path):
    with memtui.open(path) as session, pytest.raises(UserError, match="no table 'colours', but allocations, "):
        session.table("colours")


def test_opening_imports_no_library_of_frames(path):
    program = (
        f"import sys, memtui\nwith memtui.open({str(path)!r}) as session:\n    list(session.windows)\n"
        "print({'pandas', 'pyarrow', 'matplotlib', 'torch', 'textual'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_working_sets_of_longer_windows(path):
    with memtui.open(path) as session, closing(Session(path)) as truth:
        shortest = session.working_set(0.1).to_pandas()
        both = ([truth.pages.page_set(sample, key) for key in (1, 2)] for sample in truth.samples.sample.tolist())
        assert shortest["wss_bytes"].tolist() == [sum(pages.size_bytes for pages in sets) for sets in both]
        assert (shortest["windows"] == 1).all()
        longer = session.working_set(0.5, pid=4242).to_pandas()
        assert set(longer["windows"]) == {3}
        sets = [truth.pages.page_set(sample, 1) for sample in (0, 1, 2)]
        assert longer["wss_bytes"][0] == sets[0].union(sets[1]).union(sets[2]).size_bytes
        assert longer["end"][0] - longer["start"][0] >= pandas.Timedelta(seconds=0.5)
        assert len(session.working_set(1000)) == 0
        with pytest.raises(ValueError, match="more than 0 seconds"):
            session.working_set(0)


def test_reuse_distances_of_a_share_of_the_touches(path):
    with memtui.open(path) as session, closing(Source(path)) as source:
        exact = exact_reuse(source)
        for share in (0.1, 0.5, 1.0):
            distance = session.reuse_distance(share)
            assert (distance.lower, distance.upper) == exact.quantile(share)
        table = session.reuse.to_pandas()
        again = table[(table.pid == 4243) & (table.bound == "upper") & (table.distance_bytes >= 0)]
        counts = again.sort_values("distance_bytes")["count"].cumsum()
        upper = again.distance_bytes[counts >= counts.max() / 2].min()
        assert session.reuse_distance(pid=4243).upper == upper
        assert session.reuse_distance(pid=1) is None
        for wrong in (0, 1.1, float("nan")):
            with pytest.raises(ValueError, match="above 0 and at most 1"):
                session.reuse_distance(wrong)


def test_a_refresh_has_what_came_since(path, tmp_path):
    short = write_session(tmp_path / "a.memtui", list(small_stream())[:-3])
    with memtui.open(tmp_path) as sessions:
        before = len(sessions.windows)
        short.unlink()
        for name in ("a", "b"):
            (tmp_path / f"{name}.memtui").write_bytes(path.read_bytes())
        assert sessions.names == ["a.memtui"]
        sessions.refresh()
        assert sessions.names == ["a.memtui", "b.memtui"]
        assert len(sessions.windows) >= 2 * before
        (tmp_path / "c.memtui").write_text("not a session")
        with pytest.raises(UserError):
            sessions.refresh()
        assert len(sessions.windows) >= 2 * before, "those that were open still are"
