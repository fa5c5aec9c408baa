"""Makes session files for tests by feeding a real recorder: the pages are invented, the path is the product's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from memtui.core.page_set import PageSet
from memtui.core.readings import Power, PowerReading
from memtui.core.samples import (
    Capability,
    Clock,
    End,
    Event,
    Hello,
    Host,
    Options,
    Process,
    ProcessWindow,
    Status,
    Target,
    Vma,
    VmaTable,
    Window,
)
from memtui.recording.recorder.session_builder import SessionBuilder
from memtui.recording.wire import Message
from memtui.session.writer import SessionWriter

MS = 1_000_000
HEAP, DATA, CODE, STACK = 0x5550_0000_0000, 0x7F00_0000_0000, 0x7F10_0000_0000, 0x7FFC_0000_0000
VMAS = (
    Vma(HEAP, HEAP + (8 << 20), "rw-p", "[heap]"),
    Vma(DATA, DATA + (64 << 20), "rw-p", ""),
    Vma(CODE, CODE + (2 << 20), "r-xp", "/usr/lib/libtorch_cpu.so"),
    Vma(STACK, STACK + (128 << 10), "rw-p", "[stack]"),
)


def hello(**changes) -> Hello:
    """A greeting with everything in it."""
    fields = {
        "memtui_version": "0.1.0",
        "clock": Clock(0, 1_790_000_000_000_000_000, 7200, "11111111-2222-3333-4444-555555555555"),
        "host": Host("lab", "6.18.0", "x86_64", 2, 24 << 30),
        "target": Target(4242, 777, "python train.py --lr 0.1", "alice"),
        "options": Options(200 * MS),
        "tracker": "pagetable",
        "flush": "cold",
        "rearm": "full",
    }
    return Hello(**(fields | changes))


def touched(sample: int) -> PageSet:
    """A hot heap, a window that moves through the data, hot code and stack."""
    data = (DATA >> 12) + (np.arange(2048) + 640 * sample) % 16384
    parts = ((HEAP >> 12) + np.arange(0, 1024), data, (CODE >> 12) + np.arange(300), (STACK >> 12) + np.arange(8))
    return PageSet.from_pages(np.concatenate(parts))


def messages(samples: int, *, interval_ns: int = 200 * MS, tracked: bool = True) -> Iterator[Message]:
    """A whole stream. Without ``tracked`` it is one of the rss tracker."""
    remedy = Capability("wss", False, "reading page tables needs root", "sudo memtui attach 4242")
    yield hello() if tracked else hello(tracker="rss", flush="off", wss=remedy)
    yield Process(1, 4242, 1, 777, 0, "python train.py --lr 0.1", "target")
    yield VmaTable(1, 0, VMAS)
    yield Power((PowerReading(0, "CPU", "package", "rapl", status=Status.UNSUPPORTED, reason="no RAPL zone"),))
    for sample in range(samples):
        start_ns = sample * (interval_ns + 3 * MS)
        pages = touched(sample) if tracked else None
        process = ProcessWindow(
            1,
            start_ns,
            start_ns + interval_ns,
            paused_ns=3 * MS,
            walk_ns=MS,
            rearm_ns=MS,
            flush="cold" if tracked else "off",
            status=Status.OK if tracked else Status.UNSUPPORTED,
            reason="" if tracked else remedy.reason,
            pages=pages,
            resident=pages if tracked and sample % 5 == 0 else None,
            rss_bytes=(80 << 20) + sample * 4096,
            cpu_ns=sample * interval_ns,
            threads=2,
            minor_faults=sample,
            major_faults=0,
        )
        yield Window(sample, start_ns, start_ns + interval_ns, interval_ns, sample * MS, (process,))
        if sample % 5 == 0:
            watts, joules = 300.0 + 100.0 * (sample % 10 > 4), 60.0 * sample
            yield Power((PowerReading(start_ns, "GPU 0", "board", "nvml", watts, joules, 700.0, name="H100"),))
        if sample == 7:
            yield Event(start_ns, "mark", "epoch 1")
    yield End(samples * (interval_ns + 3 * MS), "target exited")


def write_session(path: Path, stream: Iterable[Message]) -> Path:
    """Record a stream into a closed session file."""
    writer = SessionWriter(path)
    recorder = SessionBuilder(writer)
    for message in stream:
        recorder.add(message)
    assert writer.close()
    return path
