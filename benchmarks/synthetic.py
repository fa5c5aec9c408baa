"""A long session in the shape of a training, made by the real recorder from invented windows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from memtui._version import __version__
from memtui.core.page_set import PageSet
from memtui.core.readings import Power, PowerReading
from memtui.core.samples import (
    Capability,
    Clock,
    End,
    Hello,
    Host,
    Options,
    Process,
    ProcessWindow,
    Target,
    Vma,
    VmaTable,
    Window,
)
from memtui.recording.recorder.__main__ import COMMIT_SECONDS
from memtui.recording.recorder.session_builder import SessionBuilder
from memtui.recording.wire import Message
from memtui.session.writer import SessionWriter

INTERVAL_NS, PAUSED_NS = 200_000_000, 10_000_000
WEIGHTS, IMAGES, LIBRARIES = 0x5550_0000_0000, 0x7F00_0000_0000, 0x7F80_0000_0000
WEIGHT_PAGES, IMAGE_PAGES, LIBRARY_COUNT, LIBRARY_PAGES = 32_768, 150_000, 280, 96
TOUCHED = 25_000


def vmas() -> tuple[Vma, ...]:
    """Weights and activations, the data set, and the many small mappings of shared libraries."""
    found = [
        Vma(WEIGHTS, WEIGHTS + (WEIGHT_PAGES << 12), "rw-p", "[heap]"),
        Vma(IMAGES, IMAGES + (IMAGE_PAGES << 12), "rw-p", ""),
    ]
    for number in range(LIBRARY_COUNT):
        start = LIBRARIES + (number << 21)
        perms = ("r--p", "r-xp", "rw-p")[number % 3]
        found.append(Vma(start, start + (LIBRARY_PAGES << 12), perms, f"/usr/lib/lib{number // 3}.so"))
    return tuple(found)


class Touches:
    """Which pages are touched: stretches of weights that come and go, a few random pictures, some libraries."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        stretches = self._random.integers(200, 4000, 40)
        places = self._random.integers(0, WEIGHT_PAGES - 4000, 40)
        self._stretches = [np.arange(p, p + n) for p, n in zip(places, stretches, strict=True)]

    def window(self) -> PageSet:
        """About ``TOUCHED`` pages."""
        chosen = self._random.permutation(40)
        sizes = np.cumsum([len(self._stretches[i]) for i in chosen])
        used = chosen[: int(np.searchsorted(sizes, TOUCHED)) + 1]
        weights = np.concatenate([self._stretches[i] for i in used])
        pictures = self._random.integers(0, IMAGE_PAGES - 4, 256)
        images = (pictures[:, None] + np.arange(4)).ravel()
        spread = self._random.integers(0, LIBRARY_COUNT, 60)
        libraries = (((spread << 9)[:, None]) + np.arange(12)).ravel()
        parts = ((WEIGHTS >> 12) + weights, (IMAGES >> 12) + images, (LIBRARIES >> 12) + libraries)
        return PageSet.from_pages(np.concatenate(parts))

    @staticmethod
    def resident() -> PageSet:
        """Everything is."""
        return PageSet.from_pages(np.concatenate([np.arange(v.start >> 12, v.end >> 12) for v in vmas()]))


def messages(samples: int) -> Iterator[Message]:
    """A whole stream."""
    yield Hello(
        __version__,
        Clock(0, 1_790_000_000_000_000_000, 0, "another boot"),
        Host("lab", "6.1", "x86_64", 8, 32 << 30),
        Target(4242, 777, "python train.py", "alice"),
        Options(INTERVAL_NS),
        "pagetable",
        "cold",
        "full",
        wss=Capability("wss", True),
    )
    yield Process(1, 4242, 1, 777, 0, "python train.py", "target")
    table = vmas()
    yield VmaTable(1, 0, table)
    touches, resident = Touches(), Touches.resident()
    for sample in range(samples):
        start_ns = sample * (INTERVAL_NS + PAUSED_NS)
        end_ns = start_ns + INTERVAL_NS
        process = ProcessWindow(
            1,
            start_ns,
            end_ns,
            paused_ns=PAUSED_NS,
            walk_ns=PAUSED_NS // 10,
            rearm_ns=PAUSED_NS // 2,
            flush="cold",
            pages=touches.window(),
            resident=resident if sample % 5 == 0 else None,
            rss_bytes=resident.size_bytes,
            cpu_ns=sample * INTERVAL_NS,
            threads=2,
            minor_faults=sample,
            major_faults=0,
        )
        yield Window(sample, start_ns, end_ns, INTERVAL_NS, sample * 15_000_000, (process,))
        if sample % 3 == 0:
            watts = 300.0 + 100.0 * (sample % 20 > 9)
            yield Power((PowerReading(end_ns, "GPU 0", "board", "nvml", watts, 120.0 * sample, 700.0, name="H100"),))
    yield End(samples * (INTERVAL_NS + PAUSED_NS), "target exited")


def write_session(path: Path, samples: int) -> None:
    """Record it; committed as often as in real time."""
    each = int(COMMIT_SECONDS * 1e9 / INTERVAL_NS)
    writer = SessionWriter(path, overwrite=True)
    recorder = SessionBuilder(writer)
    for message in messages(samples):
        recorder.add(message)
        if isinstance(message, Window) and message.sample % each == 0:
            writer.commit()
    if not writer.close():
        raise RuntimeError(f"{path}: was not closed")
