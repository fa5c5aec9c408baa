"""``memtui import`` and ``memtui export --to zpp|analysis|mxnet|chrome``, as a user types them."""

from __future__ import annotations

import io
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.trace_segments import joined, stretches, within
from memtui.formats.catalogue import import_bytes
from memtui.formats.input_file import Input
from memtui.formats.safe_pickle import load_pickle
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from tests.support.allocation_screen import step
from tests.support.in_process import run
from tests.support.memory_logs import A1, A1_ANALYSIS, ZPP, mxnet_log, zpp_text
from tests.support.repository import ROOT
from tests.support.sessions import messages, write_session


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def imported(capsys, name: str, data: bytes | str, *argv: str) -> Path:
    Path(name).write_bytes(data.encode() if isinstance(data, str) else data)
    code, out, err = run(capsys, "import", name, "-o", "s.memtui", *argv)
    assert (code, err) == (0, ""), err
    assert out.startswith("s.memtui: ")
    return Path("s.memtui")


def exported(capsys, form: str, *argv: str) -> Path:
    code, out, err = run(capsys, "export", "s.memtui", "--to", form, "-o", form, *argv)
    assert (code, err) == (0, ""), err
    (path,) = out.split()
    return Path(path)


# To the byte


def test_an_analysis_is_that_of_the_original(capsys):
    imported(capsys, "x.log", mxnet_log())
    path = exported(capsys, "analysis")
    assert path.name == "s_ANALYSIS"
    assert path.read_text() == json.dumps(A1_ANALYSIS, indent=2)


def test_an_analysis_comes_back(capsys):
    text = json.dumps(A1_ANALYSIS, indent=2)
    imported(capsys, "x_ANALYSIS", text)
    assert exported(capsys, "analysis").read_text() == text
    code, _, err = run(capsys, "export", "s.memtui", "--to", "mxnet", "-o", "mxnet")
    assert code == 2
    assert "knows no single allocation; take --to analysis" in err
    assert not Path("mxnet").exists()


@pytest.mark.parametrize("text", [ZPP, zpp_text(5700)])
def test_zpp_comes_back(text, capsys):
    imported(capsys, "x.txt", text)
    assert exported(capsys, "zpp").read_text() == text


def test_a_log_comes_back_as_its_allocations(capsys):
    imported(capsys, "x.log", mxnet_log(in_mb=(("mask_workspace", 3),)))
    again = exported(capsys, "mxnet").read_bytes()
    lines = [line for line in mxnet_log(in_mb=(("mask_workspace", 3),)).split(b"\n") if b"Allocate" in line]
    assert [line for line in again.split(b"\n") if b"Allocate" in line] == lines
    first, second = (import_bytes(data) for data in (mxnet_log(), again))
    assert [one[1:] for one in first.driver] == [one[1:] for one in second.driver]
    assert [mark.text for mark in first.events] == [mark.text for mark in second.events]


def test_a_chrome_trace_has_the_same_bytes_again(capsys):
    imported(capsys, "x.txt", zpp_text(300))
    (one,) = import_bytes(exported(capsys, "chrome").read_bytes()).parts
    (before,) = import_bytes(zpp_text(300).encode()).parts
    rows = before.trace.delta_bytes != 0
    assert one.trace.delta_bytes.tolist() == before.trace.delta_bytes[rows].tolist()
    assert one.trace.t_ns.tolist() == before.trace.t_ns[rows].tolist()


def test_what_memtui_traced_goes_out_step_by_step(capsys):
    stream = list(messages(6))
    stream[9:9] = [step(20), step(40, extra=3)]
    write_session(Path("s.memtui"), stream)
    for form, names in (
        ("zpp", {"s-step-20_meta.txt", "s-step-40_meta.txt"}),
        ("mxnet", {"s-step-20.log", "s-step-40.log"}),
        ("analysis", {"s-step-20_ANALYSIS", "s-step-40_ANALYSIS"}),
        ("chrome", {"s.trace.json", "s-step-20.trace.json", "s-step-40.trace.json"}),
    ):
        code, out, err = run(capsys, "export", "s.memtui", "--to", form, "-o", form)
        assert (code, err) == (0, "")
        assert {Path(line).name for line in out.split()} == names
    reader = Session(Path("s.memtui"))
    trace = reader.allocations.trace(reader.allocations.steps()[0])
    clock = reader.hello.clock
    reader.close()
    (part,) = import_bytes(Path("zpp/s-step-20_meta.txt").read_bytes()).parts
    assert part.trace.start_bytes == trace.start_bytes
    assert part.trace.peak_bytes == trace.peak_bytes
    assert part.trace.usage_bytes.tolist()[part.trace.existing :] == trace.usage_bytes.tolist()[trace.existing :]
    since_epoch_ns = int(trace.t_ns[trace.existing]) - clock.monotonic_ns + clock.wall_ns
    assert int(part.trace.t_ns[part.trace.existing]) == since_epoch_ns // 1000 * 1000
    log = import_bytes(Path("mxnet/s-step-20.log").read_bytes())
    allocated_bytes = int(trace.delta_bytes[trace.delta_bytes > 0].sum())
    assert int(log.parts[0].trace.delta_bytes.sum()) == allocated_bytes


def test_a_session_without_steps_has_nothing_to_give(capsys):
    write_session(Path("s.memtui"), messages(3))
    code, _, err = run(capsys, "export", "s.memtui", "--to", "zpp", "-o", "out")
    assert code == 2
    assert "has no recorded step" in err


def test_redacted_exports_name_nothing(capsys):
    imported(capsys, "secret-project.log", mxnet_log())
    text = exported(capsys, "analysis", "--redact").read_text()
    assert "source_embed" not in text
    assert json.loads(text)["in_arg"][0] == 1048608.0
    for argv in (("report", "s.memtui", "--redact"), ("report", "s.memtui", "--redact", "--json")):
        _, out, _ = run(capsys, *argv)
        assert "secret-project" not in out
        assert "InitGraph" not in out
    imported(capsys, "secret-project.json", json.dumps(A1_ANALYSIS), "--force")
    assert "source_embed" not in exported(capsys, "analysis", "--redact", "--force").read_text()


# The session


def test_the_report_says_where_it_is_from_and_what_is_not_known(capsys):
    imported(capsys, "x.log", mxnet_log())
    _, out, _ = run(capsys, "report", "s.memtui")
    assert "imported     x.log (MXNet log), sizes are what was allocated from the driver" in out
    assert "not known    times: the log has none" in out
    assert "mark         at line 2: In InitGraph." in out
    assert "working set" not in out
    _, out, _ = run(capsys, "report", "s.memtui", "--json")
    result = json.loads(out)["imported"]
    assert result["driver_memory"][0] == {"line": 4, "free_bytes": 12194 << 20, "total_bytes": 12196 << 20}
    assert len(result["driver_memory"]) == len(A1)
    assert result["clock"] == "lines"


def test_tables_have_the_rows(capsys):
    imported(capsys, "x.txt", ZPP)
    code, _, _ = run(capsys, "export", "s.memtui", "--to", "csv", "-o", "csv")
    assert code == 0
    rows = Path("csv/allocations.csv").read_text().splitlines()
    assert rows[3].split(",")[2:5] == ["1560104632231086000", "20224", "235520"]


def test_a_hostile_description_is_told_in_a_line(capsys):
    path = imported(capsys, "x.txt", ZPP)
    for value in ('{"format": 3}', "[]", '{"format": "x", "file": 1}'):
        connection = sqlite3.connect(path)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'imported'", (value,))
        connection.commit()
        connection.close()
        reader = Session(path)
        with pytest.raises(SessionError, match=r"s\.memtui: is damaged: "):
            reader.imported()
        reader.close()
        assert run(capsys, "report", "s.memtui")[0] == 2


def test_a_range_is_chosen_before_it_is_stored(capsys):
    text = zpp_text(3000)
    lines = [line for line in text.splitlines() if 20_000 <= int(line.split()[0]) - int(text.split()[0]) < 30_000]
    imported(capsys, "x.txt", text, "--from", "0.02", "--until", "0.03")
    assert exported(capsys, "zpp").read_text().splitlines() == lines
    code, _, err = run(capsys, "import", "x.txt", "-o", "t.memtui", "--from", "100")
    assert code == 2
    assert "x.txt: has nothing in that range: it is 0.0" in err
    assert not Path("t.memtui").exists()


def test_a_long_trace_is_several_steps_of_a_session(capsys, monkeypatch):
    monkeypatch.setattr("memtui.analysis.trace_segments.stretches.__defaults__", ((), 400))
    text = zpp_text(2000)
    imported(capsys, "x.txt", text)
    reader = Session(Path("s.memtui"))
    steps = reader.allocations.steps()
    assert len(steps) >= 4
    assert max(one.rows for one in steps) < 1000
    reader.close()
    assert exported(capsys, "zpp").read_text() == text


# Several files


def test_a_folder_of_logs_is_a_session_each_and_a_bad_one_a_line(capsys):
    Path("logs/deeper").mkdir(parents=True)
    Path("logs/a.log").write_bytes(mxnet_log())
    Path("logs/b.txt").write_text(ZPP.replace("235520 20224", "235521 20224"))
    Path("logs/c").write_bytes(b"\0\xff")
    code, out, err = run(capsys, "import", "logs", "-o", "out")
    assert code == 2
    assert out.splitlines() == ["out/a.log.memtui: MXNet log, 10 rows (cuda)", "out/b.txt.memtui: ZPP-MEM text, 3 rows"]
    first, second = err.splitlines()
    assert first.startswith("memtui import: logs/b.txt: line 2 says 235521 bytes are in use")
    assert second.startswith("memtui import: logs/c: is binary and of no format that is known")
    assert sorted(path.name for path in Path("out").iterdir()) == ["a.log.memtui", "b.txt.memtui"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in Path("out").iterdir())
    code, out, err = run(capsys, "import", "logs", "-o", "out", "--json", "--force")
    document = json.loads(out)
    assert [one["format"] for one in document["sessions"]] == ["MXNet log", "ZPP-MEM text"]
    assert [one["file"] for one in document["failed"]] == ["logs/c"]


@pytest.mark.parametrize(
    ("log", "form"),
    [
        (mxnet_log([(f"in_arg:{n}_{'w' * 900}_{n}", 64) for n in range(200)]), "MXNet log"),
        ("".join(f"{n} {n} 1 gradients/{n}_{'w' * 900}_{n}\n" for n in range(1, 201)), "ZPP-MEM text"),
        ("".join(f"{n} {n} 1 gradients/{n}_{chr(233) * 900}_{n}\n" for n in range(1, 40)), "ZPP-MEM text"),
    ],
)
def test_names_that_are_too_long_for_a_session_are_cut_with_a_word(log, form, capsys, monkeypatch):
    """They were written, and no reader took them."""
    monkeypatch.setattr("memtui.session.tables.allocations.MAX_NAMES_BYTES", 1 << 17)
    Path("x.log").write_bytes(log.encode() if isinstance(log, str) else log)
    code, out, err = run(capsys, "import", "x.log", "-o", "s.memtui")
    assert (code, out.partition(", ")[0]) == (0, f"s.memtui: {form}")
    why = "its names of operations and layers take more room than a session has; they are cut to 512 characters"
    assert err == f"memtui import: x.log: {why}\n"
    with closing(Session(Path("s.memtui"))) as session:
        (step,) = session.allocations.steps()
        names = session.allocations.trace(step).names
        assert session.imported().warnings == (why,)
    assert len(set(names)) == len(names) >= 39
    assert {len(name) for name in names} == {512}
    assert all(name.endswith(f"_{number}") for number, name in enumerate(names, names[0].endswith("_1")))
    code, out, err = run(capsys, "report", "s.memtui")
    assert (code, err) == (0, "")


def test_more_names_than_a_session_may_have_are_refused(capsys, monkeypatch):
    monkeypatch.setattr("memtui.session.tables.allocations.MAX_NAMES_BYTES", 1 << 12)
    Path("x.log").write_text("".join(f"{n} {n} 1 forward/{n}_{'w' * 40}\n" for n in range(1, 201)))
    code, _, err = run(capsys, "import", "x.log", "-o", "s.memtui")
    assert (code, err.count("\n")) == (2, 1)
    assert "x.log: has more names of operations and layers than fit into 4.00 KiB" in err
    assert not Path("s.memtui").exists()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.mkdir(), "is a folder without files; expected is an MXNet log"),
        (lambda path: (path.mkdir(), (path / "x").write_text("hello")), "x: is text, but of no format"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"\0\1\2"), "is binary and of no format that is known: it begins neither"),
        (lambda path: path.write_text(ZPP[:-20]), ""),
        (lambda path: path.write_text(ZPP + "12 3"), "line 4 is not four words: time, usage, change, operation (the"),
        (lambda path: path.write_text("[trace] In InitGraph.\n[mem] Release GPU memory.\n"), "of no format"),
        (lambda path: path.write_bytes(pickle.dumps(print)), "is a pickle of more than data"),
        (lambda path: os.mkfifo(path), "is not a file"),
        (lambda path: path.symlink_to("/nowhere"), "no such file"),
        (lambda path: None, "no such file"),
    ],
)
def test_bad_input_is_a_line_and_leaves_nothing(make, why, capsys, folder):
    make(Path("given"))
    before = sorted(folder.rglob("*"))
    code, out, err = run(capsys, "import", "given", "-o", "s.memtui")
    if not why:  # cut within the last name: still a whole line
        assert code == 0
        return
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("memtui import: given")
    assert why in err
    assert sorted(folder.rglob("*")) == before


def test_what_is_there_stays_without_force(capsys):
    imported(capsys, "x.txt", ZPP)
    before = Path("s.memtui").read_bytes()
    assert run(capsys, "import", "x.txt", "-o", "s.memtui") == (
        *(2, ""),
        "memtui import: s.memtui: exists already; choose another name or add --force\n",
    )
    assert Path("s.memtui").read_bytes() == before
    Path("mine.txt").write_text("precious")
    code, _, err = run(capsys, "import", "x.txt", "-o", "mine.txt", "--force")
    assert code == 2
    assert "is not a memtui session" in err
    assert Path("mine.txt").read_text() == "precious"
    assert run(capsys, "import", "x.txt", "x.txt", "-o", "mine.txt")[0] == 2
    assert run(capsys, "import", "x.txt", "-o", "s.memtui", "--force")[0] == 0


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (sqlite3.OperationalError("database or disk is full"), "database or disk is full"),
        (MemoryError(), "Cannot allocate memory; end something, or ask for less"),
    ],
)
def test_a_write_that_fails_leaves_no_half_a_session(error, says, capsys, monkeypatch):
    def full(*args):
        raise error

    monkeypatch.setattr("memtui.session.writer.SessionWriter.insert", full)
    Path("x.txt").write_text(ZPP)
    code, _, err = run(capsys, "import", "x.txt", "-o", "s.memtui")
    assert (code, err) == (2, f"memtui import: s.memtui: cannot be written: {says}\n")
    assert [path.name for path in Path().iterdir()] == ["x.txt"]


@pytest.mark.real_clock(alone=False)
def test_a_kill_leaves_no_half_a_session_under_its_name(capsys, tmp_path):
    """A session is there whole or not at all, and what is left of a killed one is in nobody's way."""
    Path("x.txt").write_text(zpp_text(60_000))
    argv = [sys.executable, "-m", "memtui", "import", "x.txt", "-o", "s.memtui"]
    drafts = 0
    for _ in range(6):
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}) as child:
            while child.poll() is None and not Path(".s.memtui.part").exists():
                time.sleep(0.001)
            child.kill()
        drafts += Path(".s.memtui.part").exists()
        assert not Path("s.memtui").exists() or len(Session(Path("s.memtui")).allocations.steps()) == 1
        Path("s.memtui").unlink(missing_ok=True)
    assert drafts, "none was killed while it wrote"
    assert run(capsys, "import", "x.txt", "-o", "s.memtui")[0] == 0
    assert sorted(path.name for path in Path().iterdir()) == ["s.memtui", "x.txt"]


# Parts of it alone


@st.composite
def traces(draw) -> StepTrace:
    rows, alive, blocks, t = [], [], 0, 100
    for _ in range(draw(st.integers(0, 4))):
        rows.append((t, draw(st.integers(1, 9)), blocks, 0, 3, -1, -1))
        alive.append(blocks)
        blocks += 1
    existing = len(rows)
    size = {row[2]: row[1] for row in rows}
    for _ in range(draw(st.integers(0, 30))):
        t += draw(st.integers(0, 3))
        if alive and draw(st.booleans()):
            block = alive.pop(draw(st.integers(0, len(alive) - 1)))
            rows.append((t, -size[block], block, block % 8 if block >= existing else 0, 1, -1, 0))
        else:
            size[blocks] = draw(st.integers(0, 9))
            rows.append((t, size[blocks], blocks, blocks % 8, 0, draw(st.integers(0, 1)), 1))
            if size[blocks]:
                alive.append(blocks)
            blocks += 1
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    return StepTrace.from_columns(columns, step=7, start_ns=100, end_ns=t, existing=existing, names=("op", "layer"))


def plain(trace: StepTrace):
    """What does not depend on how blocks and names are numbered."""
    order = {block: n for n, block in enumerate(dict.fromkeys(trace.block.tolist()))}
    names = [[trace.name(int(one)) for one in column] for column in (trace.op, trace.layer)]
    columns = [trace.t_ns, trace.delta_bytes, trace.category, trace.phase]
    return [c.tolist() for c in columns], names, [order[b] for b in trace.block.tolist()], trace.existing


@given(traces(), st.integers(1, 12), st.lists(st.tuples(st.integers(90, 140), st.integers(0, 99)), max_size=3))
def test_stretches_are_sound_and_come_together_again(trace, longest, begins):
    result = list(stretches(trace, sorted(begins), longest))
    for one in result:
        assert one.check() == []
    assert plain(joined(result)) == plain(trace)
    assert max(one.peak_bytes for one in result) == trace.peak_bytes
    assert sum(map(len, result)) <= 20 * len(trace)


@given(traces(), st.integers(90, 140), st.integers(0, 40))
def test_a_range_has_the_rows_of_that_time(trace, first, length):
    part = within(trace, first, first + length)
    assert part.check() == []
    rows = (trace.t_ns >= first) & (trace.t_ns < first + length)
    rows[: trace.existing] = False
    assert part.delta_bytes[part.existing :].tolist() == trace.delta_bytes[rows].tolist()
    assert part.usage_bytes[part.existing :].tolist() == trace.usage_bytes[rows].tolist()


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 100), 1 << 100) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner, inner, inner),
)


@given(values, st.integers(2, 5))
def test_a_pickle_of_data_is_read_as_python_reads_it(value, protocol):
    if "float" not in str(type(value)):
        shared = [value, value]
        assert load_pickle(Input(io.BytesIO(pickle.dumps(shared, protocol)))) == shared
