"""``--redact``: a session made of secrets, and none of them in anything that is written of it."""

from __future__ import annotations

import base64
import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memtui.analysis.vma_filter import parse_filter
from memtui.core.page_set import PageSet
from memtui.core.readings import GpuMemory, Power, PowerReading
from memtui.core.samples import Capability, End, Event, Options, Process, ProcessWindow, Vma, VmaTable, Window
from memtui.core.tracer_messages import AllocationStep, TensorRanges, TrainingProgress
from memtui.reports.export import export
from memtui.reports.redact import RedactedSource
from memtui.reports.report import build_report
from memtui.reports.source import Source
from tests.support import sessions
from tests.support.sessions import MS, write_session

HOST, USER, PROJECT = "gpu17.secretcorp.example", "mallory", "project-unannounced"
HOME = f"/home/{USER}/{PROJECT}"
COMMAND = f"{HOME}/bin/python {HOME}/train_llama9.py --data /mnt/patients/scans --run-name 'phase three'"
CHILD = f"{HOME}/bin/python -c import worker_of_mallory"
HEAP, FILE, ANON, BIG = 0x5581_2345_6000, 0x7F3A_1B2C_D000, 0x7F3B_9999_1000, 0x7F40_0000_0000
SECRETS = (HOST, "gpu17", "secretcorp", USER, PROJECT, "train_llama9", "patients", "scans", "phase three", "worker_of")
SECRETS += (
    "llama9_head",
    "mylib",
    "MallorysOptimizer",
    "weights_v12",
    "secretlib",
    "my_arena",
    "deadbeef-boot",
    "aws-secret",
    "launch codes",
    "s3cr3t",
)
FORMS = ("csv", "json", "svg", "html", "parquet", "chrome", "perfetto")


def stream():
    base = sessions.hello()
    text = f"{HOST}: pid 7 ({COMMAND}) of {USER} opened {HOME}/weights_v12.bin at {FILE:#x}, {HEAP:x}-{HEAP + 4096:x}"
    bad = Capability("idle", False, text, f"sudo chown {USER} {HOME}/x")
    yield replace(
        base,
        clock=replace(base.clock, boot_id="deadbeef-boot"),
        host=replace(base.host, hostname=HOST, kernel="6.18.3-aws-secret"),
        target=replace(base.target, command=COMMAND, user=USER),
        options=Options(200 * MS, filter="exec,name=*secretlib*"),
        rejected=(bad,),
    )
    yield Process(1, 4242, 1, 777, 0, COMMAND, "target")
    yield Process(2, 4243, 4242, 778, 0, CHILD, f"child of {USER}")
    vmas = (
        Vma(HEAP, HEAP + (1 << 20), "rw-p", "[heap]"),
        Vma(FILE, FILE + (1 << 20), "rw-s", f"{HOME}/weights_v12.bin"),
        Vma(ANON, ANON + (1 << 20), "rw-p", "[anon:my_arena]"),
        Vma(BIG, BIG + (4 << 20), "rw-p", ""),
        Vma(BIG + (1 << 34), BIG + (1 << 34) + 8192, "r-xp", f"{HOME}/secretlib.so (deleted)"),
    )
    for key in (1, 2):
        yield VmaTable(key, 0, vmas)
    reading = PowerReading(0, "GPU 0", "board", "nvml", status="denied", reason=text, name="H100")
    yield Power((reading,), (GpuMemory(0, 1, 5 << 30), GpuMemory(0, 2, None, "denied", text)))
    for sample in range(6):
        start_ns = sample * 200 * MS
        small = np.concatenate([(start >> 12) + np.arange(n) for start, n in ((HEAP, 9), (FILE, 17), (ANON, 33))])
        pages = PageSet.from_pages(small)
        pages = PageSet.from_blocks(pages.blocks, pages.bits, [BIG >> 21])
        fields = {"pages": pages, "resident": pages, "rss_bytes": 9 << 20, "status": "approximate", "reason": text}
        fields |= {"private_bytes": 7 << 20, "swap_bytes": 3 << 20}
        windows = tuple(ProcessWindow(key, start_ns, start_ns + 200 * MS, **fields) for key in (1, 2))
        yield Window(sample, start_ns, start_ns + 200 * MS, 200 * MS, 0, windows, disturbed=text)
    yield from told()
    yield Event(2, "mark", "launch codes loaded")
    yield Event(2, "interval", "the interval is 0.02 s from here on")
    for kind in ("gap", "exec", "warning", "process", "s3cr3t"):
        yield Event(3, kind, text)
    yield End(6 * 200 * MS, "error", text)


def told():
    """What the program says of its training: layers and operators of its own."""
    rows = [(100, 4096, 0, 0, 3, -1, 2), (110, 64, 1, 6, 0, 0, 2), (120, -64, 1, 6, 0, 1, -1)]
    names = ("aten::linear/mylib::fused", "Optimizer.step#MallorysOptimizer.step/aten::add_", "llama9_head.0")
    yield AllocationStep(4242, 2, 100, 130, 1, names, np.array(rows, np.int64).T)
    yield TensorRanges(4242, 100, np.array([[HEAP], [4096], [0]]), ("llama9_head.0",), ("llama9_gate exp_avg",))
    usage = np.array([[100, 130, 2, 0, *([64] * 8)]]).T
    yield TrainingProgress(4242, 2, 100, np.array([[130]]), usage, ("mylib::fused",), "", f"{HOME}/x is not there")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp(PROJECT)
    return write_session(folder / f"{USER}.memtui", stream())


def spelled(number: int) -> set[str]:
    """What an address looks like in text, with and without the digits inside a page."""
    return {str(number), f"{number:x}", f"{number >> 12:x}", f"{number:012x}"}


ADDRESSES = set().union(*(spelled(a) for a in (HEAP, FILE, ANON, BIG, BIG + (1 << 34), FILE + (17 << 12))))


def secrets_in(text: str, session: Path) -> list[str]:
    secrets = [s for s in (*SECRETS, str(session.parent), session.name) if s.casefold() in text.casefold()]
    return secrets + [a for a in ADDRESSES if re.search(rf"(?<![0-9a-fA-F]){a}(?![0-9a-fA-F])", text)]


def text_of(path: Path) -> str:
    """All text in a file, whatever the form."""
    if path.suffix == ".parquet":
        pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
        table = pyarrow_parquet.read_table(path)
        raw = path.read_bytes().decode("latin-1")
        return f"{raw} {table.schema.to_string()} {table.schema.metadata} {table.to_pylist()}"
    if path.suffix == ".pftrace":
        return path.read_bytes().decode("latin-1")
    return path.read_text("utf-8")


@pytest.mark.parametrize("form", FORMS)
def test_no_secret_is_in_what_is_written(form, session, tmp_path):
    if form == "parquet":
        pytest.importorskip("pyarrow")
    original = export(session, form, tmp_path / "plain")
    assert secrets_in("".join(map(text_of, original)), session)  # what is looked for can be found
    for path in export(session, form, tmp_path / "redacted", redact=True):
        assert secrets_in(f"{path.name} {text_of(path)}", session) == []


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_no_secret_is_in_the_report(arguments, session):
    def report(*more):
        command = [sys.executable, "-m", "memtui", "report", *arguments, *more, str(session)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert len(secrets_in(report(), session)) > 5
    assert secrets_in(report("--redact"), session) == []


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_numbers_stay_and_labels_agree(session, tmp_path):
    export(session, "csv", tmp_path / "plain")
    export(session, "csv", tmp_path / "redacted", redact=True)
    original, redacted = ({n: rows_of(tmp_path / d / f"{n}.csv") for n in ("samples", "pages", "vmas", "reuse")}
                       for d in ("plain", "redacted"))  # fmt: skip
    assert original["reuse"] == redacted["reuse"]
    for was, now in zip(original["samples"], redacted["samples"], strict=True):
        assert {k: v for k, v in was.items() if k not in ("reason", "disturbed")}.items() <= now.items()
    names = [v["name"] for v in redacted["vmas"] if v["pid"] == "4242"]
    assert names == ["[heap]", "file-1", "file-2", "", "file-3"]
    assert [v["name"] for v in redacted["vmas"] if v["pid"] == "4243"] == names

    def places(tables):
        """Every run as (sample, pid, name and size of its VMA, distance to the VMA's begin, length)."""
        runs = []
        for run in tables["pages"]:
            start, end = int(run["start"]), int(run["end"])
            home = [v for v in tables["vmas"] if v["pid"] == run["pid"] and int(v["start"]) <= start < int(v["end"])]
            (vma,) = home
            size = int(vma["end"]) - int(vma["start"])
            runs.append((run["sample"], run["pid"], size, start - int(vma["start"]), end - start, run["page_bytes"]))
        return sorted(runs)

    assert places(original) == places(redacted)
    assert len(original["pages"]) == 6 * 2 * 4


def test_pictures_are_the_same_but_for_their_words(session, tmp_path):
    def map_of(folder, **options):
        export(session, "svg", folder, **options)
        text = next(folder.glob("heat-map-4242*")).read_text()
        return re.search(r'height="(\d{3}|\d\d\d\.\d+)".*?base64,([^"]+)', text)[2], text

    (original, original_text), (redacted, text) = map_of(tmp_path / "a"), map_of(tmp_path / "b", redact=True)
    assert original == redacted
    assert len(base64.b64decode(original)) > 100
    assert "gap of" in original_text
    assert "gap of" not in text  # a distance between ranges tells of their addresses
    assert ">gap<" in text


def test_what_is_left_is_of_use(session):
    source = RedactedSource(session)
    original = Source(session)
    try:
        hello = source.hello
        assert (hello.host.hostname, hello.host.kernel, hello.target.user) == ("host", "6.18.3", "user")
        assert hello.host.cpu_count == 2
        assert hello.target.command == "command-1"
        assert [p.command for p in source.processes()] == ["command-1", "command-2"]
        assert hello.options.filter == "exec,name=***"
        parse_filter(hello.options.filter)
        assert source.samples.reason[0].endswith("of *** opened file-1 at address, address")
        assert next(e.text for e in source.events(0, 2**62) if e.kind == "mark") == "mark-1"
        assert ("interval", "the interval is 0.02 s from here on") in {
            (e.kind, e.text) for e in source.events(0, 2**62)
        }
        assert len(source.events(0, 2**62)) == len(original.events(0, 2**62))
        assert original.hello.target.command == COMMAND
    finally:
        source.close()
        original.close()


def test_the_end_is_no_mark(session):
    """The report has as many marks as without, of the same kinds and at the same times."""
    original, redacted = (build_report(session, redact=redact) for redact in (False, True))
    assert [(m.kind, m.t_s) for m in redacted.marks if m.text != "mark-2"] == [(m.kind, m.t_s) for m in original.marks]
    source = RedactedSource(session)
    events = source.events(0, 2**62)
    source.close()
    assert [e.kind for e in events].count("end") == 1
    assert secrets_in(" ".join(e.text for e in events), session) == []


def test_own_words_are_not_touched(tmp_path):
    """Reasons of memtui itself keep their sense."""
    reason = "reading page tables needs root (95 % of 1.5 GiB, see n/a)"
    hello = sessions.hello(wss=Capability("wss", False, reason, "raise --interval"))
    source = RedactedSource(write_session(tmp_path / "s.memtui", [hello, *list(sessions.messages(3))[1:]]))
    assert source.hello.wss.reason == reason
    assert source.hello.wss.remedy == "raise --interval"
    source.close()


def test_parquet_has_the_tables_of_csv_with_types_and_units(session, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export(session, "csv", tmp_path)
    for path in export(session, "parquet", tmp_path):
        table = parquet.read_table(path)
        original = rows_of(tmp_path / f"{path.stem}.csv")
        assert table.num_rows == len(original)
        if original:
            assert table.column_names == list(original[0])
            for name in table.column_names:
                if table.schema.field(name).type == "int64":
                    values = [None if row[name] == "" else int(row[name]) for row in original]
                    assert table[name].to_pylist() == values
        meta = json.loads(table.schema.metadata[b"memtui"])
        assert meta["clock"]["boot_id"] == "deadbeef-boot"
    schema = parquet.read_schema(tmp_path / "samples.parquet")
    assert schema.field("wss_bytes").metadata == {b"unit": b"bytes"}
    assert schema.field("start_ns").metadata == {b"unit": b"nanoseconds, CLOCK_MONOTONIC"}
    assert parquet.read_schema(tmp_path / "power.parquet").field("watts").metadata == {b"unit": b"watts"}
    assert parquet.read_schema(tmp_path / "power.parquet").field("watts").type == "double"


def test_parquet_without_its_library_names_the_extra(session, tmp_path):
    code = (
        "import sys; sys.modules['pyarrow'] = None\nfrom memtui.cli.main import main\n"
        f"sys.exit(main(['export', {str(session)!r}, '--to', 'parquet', '-o', 'out']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "memtui[export]" in done.stderr
    assert not list((tmp_path / "out").glob("*"))


def test_layers_and_operators_have_labels_that_stay_the_same(session, tmp_path):
    export(session, "csv", tmp_path / "redacted", redact=True)
    rows = rows_of(tmp_path / "redacted" / "allocations.csv")
    assert [(row["op"], row["layer"]) for row in rows] == [
        ("", "layer-1"),
        ("aten::linear/operator-1", "layer-1"),
        ("Optimizer.step/aten::add_", ""),
    ]
    assert rows_of(tmp_path / "redacted" / "tensors.csv")[0]["name"] == "layer-1"
    assert rows_of(tmp_path / "redacted" / "tensor_usage.csv")[0]["op"] == "operator-1"
