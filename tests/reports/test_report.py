"""The document of ``report --json`` and the page of text, stored as they are to stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.core.console import as_json
from memtui.core.json_fields import to_json
from memtui.core.readings import PowerReading
from memtui.core.samples import Event, Status
from memtui.core.tracer_messages import TensorRanges
from memtui.formats.command import import_all
from memtui.reports.counter_summary import counter_line, counter_summaries
from memtui.reports.power_summary import power_summaries
from memtui.reports.redact import open_source
from memtui.reports.report import Report, own_lengths_ns, report_of
from memtui.reports.size_summary import size_clause, size_summary
from memtui.reports.text import format_report
from tests.support import goldens, sessions
from tests.support.learning_screen import all_told
from tests.support.memory_logs import mxnet_log
from tests.support.told_steps import step

MS = sessions.MS


def traced(path: Path) -> Path:
    """A training whose tensors are known: a heap of weights, and inputs and unknown tensors in what it reads."""
    ranges = [
        (sessions.HEAP, 3 << 20, "weights"),
        (sessions.DATA, 48 << 20, "inputs"),
        (sessions.DATA + (48 << 20), 16 << 20, "unknown"),
    ]
    columns = np.array([(start, size, CATEGORIES.index(name)) for start, size, name in ranges], np.int64).T
    tensors = TensorRanges(4242, 2 * 203 * MS, columns, ("features.0", "", ""), ("weight", "images", "int64[9]"))
    stream = list(sessions.messages(40))
    events = [Event(n * 203 * MS + 1, kind, f"{kind} {n}") for n, kind in enumerate(("mark", "gap", "warning"), 3)]
    stream[9:9] = [*all_told(), replace(step(20), lost=2), tensors, *events]
    return sessions.write_session(path, stream)


def untracked(path: Path) -> Path:
    return sessions.write_session(path, sessions.messages(60, tracked=False))


def imported(path: Path) -> Path:
    log = path.with_name("mx.log")
    log.write_bytes(mxnet_log())
    import_all([log], path, lambda line: None)
    return path


SESSIONS = {"traced": traced, "untracked": untracked, "imported": imported}


def report(name: str, folder: Path, *, redact: bool = False) -> Report:
    """The report of a session, with fixed figures in place of those of memtui and the machine that wrote the file."""
    path = SESSIONS[name](folder / "s.memtui")
    with closing(open_source(path, redact=redact)) as source:
        built = report_of(source, "s.memtui")
    overhead = built.overhead
    if overhead.self_cpu_fraction is not None:
        assert 0 < overhead.self_cpu_fraction < 1
        overhead = replace(overhead, self_cpu_fraction=0.0123)
    return replace(built, memtui_version="0.1.0", overhead=overhead)


@pytest.mark.parametrize("redact", [False, True], ids=["plain", "redacted"])
@pytest.mark.parametrize("name", SESSIONS)
def test_the_document_and_the_page_of_text(name, redact, tmp_path):
    built = report(name, tmp_path, redact=redact)
    suffix = f"{name}-redacted" if redact else name
    goldens.compare(f"report-{suffix}-json", as_json(built.to_dict()))
    goldens.compare(f"report-{suffix}", format_report(built))


def parts(value: Any) -> Iterator[Any]:
    """All dataclasses in a report."""
    if is_dataclass(value):
        yield value
        value = [getattr(value, field.name) for field in fields(value)]
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from parts(item)


@pytest.mark.parametrize("name", SESSIONS)
def test_every_field_is_a_key(name, tmp_path):
    """So that a number which a part gets more of is in the document without another line."""
    built = report(name, tmp_path)
    assert list(built.to_dict()) == [field.name for field in fields(Report)]
    assert json.loads(json.dumps(built.to_dict())) == built.to_dict(), "dicts, lists and scalars only"
    for part in parts(built):
        document = to_json(part)
        missing = {field.name for field in fields(part)} - set(document)
        assert missing <= {"moment", "t_s", "line", "row", "most"}, type(part)


def test_nothing_is_known_of_no_value():
    absent = size_summary(np.array([np.nan, np.nan]), "nobody looked")
    assert to_json(absent) == {
        "mean": None, "median": None, "max": None, "status": "unsupported", "reason": "nobody looked"
    }  # fmt: skip
    assert size_clause(absent) == "n/a: nobody looked"
    assert size_clause(size_summary(np.array([1024.0, np.nan, 3072.0]), "")) == (
        "mean 2.00 KiB, median 2.00 KiB, max 3.00 KiB"
    )


def test_a_counter_that_fell_was_reset():
    readings = [
        PowerReading(n, "CPU", "package", "rapl", 2.0 + n, joules) for n, joules in enumerate((5.0, 9.0, 1.0, 4.0))
    ]
    (summary,) = power_summaries(
        [*readings, PowerReading(9, "CPU", "package", "rapl", status=Status.FAILED, reason="gone")]
    )
    assert (summary.mean_w, summary.energy_j) == (3.5, 4.0 + 3.0)
    assert (summary.status, summary.reason) == ("ok", "gone")


def test_counters_of_a_gpu_are_means_of_their_readings():
    """The first reading has none yet; a device that has no counters, as a CPU, and an old session have no line."""
    busy = {
        "sm_active": 0.95, "sm_occupancy": 0.14, "tensor_active": 0.92, "dram_active": 0.15,
        "pcie_tx_bytes_per_s": 1 << 20, "pcie_rx_bytes_per_s": 2.5 * (1 << 20),
        "nvlink_tx_bytes_per_s": 0.0, "nvlink_rx_bytes_per_s": 0.0,
    }  # fmt: skip
    gpu = PowerReading(0, "GPU 0", "board", "nvml", 700.0)
    readings = [
        replace(gpu, counters_reason="first reading"),
        replace(gpu, t_ns=1, **busy),
        replace(gpu, t_ns=2, **busy | {"sm_active": 0.85}),
    ]
    (summary,) = counter_summaries([*readings, PowerReading(0, "CPU", "package", "rapl", 90.0)])
    assert (summary.device, summary.sm_active, summary.pcie_rx_bytes_per_s) == (
        "GPU 0",
        pytest.approx(0.9),
        2.5 * 2**20,
    )
    assert counter_line(summary) == (
        "counters     GPU 0 board: SM 90.0 %, occupancy 14.0 %, tensor cores 92.0 %, memory 15.0 %, "
        "PCIe 2.50 MiB/s in 1.00 MiB/s out, NVLink 0 B/s"
    )
    (denied,) = counter_summaries([replace(gpu, counters_reason="the driver refuses it to this user")])
    assert (denied.sm_active, counter_line(denied)) == (
        None, "counters     GPU 0 board: n/a: the driver refuses it to this user"
    )  # fmt: skip
    (part,) = counter_summaries([replace(gpu, sm_active=0.5, counters_reason="sm occupancy: not supported")])
    assert counter_line(part) == (
        "counters     GPU 0 board: SM 50.0 %, occupancy n/a, tensor cores n/a, memory n/a, PCIe n/a, NVLink n/a "
        "(sm occupancy: not supported)"
    )
    assert counter_summaries([gpu]) == ()


def test_windows_that_were_lost_count_their_time_once():
    """They go back to the start of the one before them, which nobody could read either."""
    samples = SimpleNamespace(start_ns=np.array([0, 3, 3, 3, 20]), end_ns=np.array([2, 8, 13, 20, 24]))
    lengths = own_lengths_ns(samples, np.array([True, False, False, True, False]))
    assert lengths.tolist() == [2, 5, 5, 17, 4], "one that was measured has all of its time"
