"""The message queue never waits, drops page sets before windows, and reports what it dropped."""

from __future__ import annotations

import os
import signal

import pytest

from memtui.core.page_set import PageSet
from memtui.core.readings import Power
from memtui.core.samples import End, Event, Process, ProcessWindow, Status, Vma, VmaTable, Window
from memtui.recording.sampler import message_queue as outbox_module
from memtui.recording.sampler.message_queue import MessageQueue, RecorderGone
from memtui.recording.wire import Decoder


def window(sample: int) -> Window:
    pages = PageSet.from_pages(range(0, 512 * 400, 7))
    return Window(sample, sample, sample + 1, 1, 0, (ProcessWindow(1, sample, sample + 1, pages=pages),))


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            pass


def everything(read: int, box: MessageQueue) -> list:
    """Drain both ends in turn."""
    decoder, got = Decoder(), []
    os.set_blocking(read, False)
    while True:
        box.pump()
        try:
            got += decoder.feed(os.read(read, 1 << 20))
        except BlockingIOError:
            if not box.waiting_bytes:
                return got


def test_order_and_content_survive_a_slow_reader(pipe):
    read, write = pipe
    box = MessageQueue(write)
    for sample in range(50):
        box.put(window(sample))
    assert box.waiting_bytes > 0, "the pipe must be full for this test to mean anything"
    box.put(End(0, "stopped"))
    got = everything(read, box)
    assert [m.sample for m in got[:-1]] == list(range(50))
    assert isinstance(got[-1], End)


def test_thins_then_drops_then_tells(pipe, monkeypatch):
    monkeypatch.setattr(outbox_module, "DROP_PAGES_BYTES", 500_000)
    monkeypatch.setattr(outbox_module, "DROP_WINDOWS_BYTES", 540_000)
    read, write = pipe
    box = MessageQueue(write)
    for sample in range(100):
        box.put(window(sample))
    got = everything(read, box)
    box.put(window(100))
    got += everything(read, box)
    windows = [m for m in got if isinstance(m, Window)]
    downsampled = [w for w in windows if w.processes[0].pages is None]
    assert downsampled
    assert all(w.processes[0].status == Status.DROPPED and w.processes[0].reason for w in downsampled)
    (gap,) = [m for m in got if isinstance(m, Event)]
    lost = 101 - len(windows)
    assert lost > 0
    assert gap.text.startswith(f"{lost} samples lost")


def test_a_gone_reader_is_noticed(pipe):
    read, write = pipe
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
    os.close(read)
    with pytest.raises(RecorderGone):
        MessageQueue(write).put(End(0, "stopped"))


def test_drain_gives_up(pipe):
    _, write = pipe
    box = MessageQueue(write)
    for sample in range(50):
        box.put(window(sample))
    box.drain(0.05)
    assert box.waiting_bytes > 0


@pytest.fixture
def full(pipe, monkeypatch):
    """A message queue without a reader, above every limit."""
    monkeypatch.setattr(outbox_module, "DROP_PAGES_BYTES", 200_000)
    monkeypatch.setattr(outbox_module, "DROP_WINDOWS_BYTES", 300_000)
    read, write = pipe
    box = MessageQueue(write)
    sample = 0
    while box.waiting_bytes <= 300_000:
        box.put(window(sample))
        sample += 1
    return read, box, sample


def test_what_was_dropped_is_reported_at_the_end_too(full):
    read, box, sample = full
    for number in range(5):
        box.put(window(sample + number))
    box.put(End(9, "stopped"))
    got = everything(read, box)
    assert isinstance(got[-1], End)
    assert got[-2] == Event(9, "gap", "5 samples lost: the recorder was too slow")


def test_a_slow_reader_does_not_make_it_grow(full):
    """Events, power and tables are bounded as well; processes are few, small, and what all else hangs on."""
    read, box, sample = full
    before = box.waiting_bytes
    table = tuple(Vma(i << 12, (i + 1) << 12, "rw-p") for i in range(500))
    for number in range(1000):
        box.put(Event(number, "warning", "x" * 1000))
        box.put(Power(()))
        box.put(VmaTable(1, sample + number, table))
        box.put(window(sample + number))
    box.put(Process(2, 7, 1, 1, 0, "sleep"))
    assert box.waiting_bytes < before + 2_000
    got = everything(read, box)
    box.put(window(sample + 1000))
    got += everything(read, box)
    *_, last_table, gap, last = got
    assert isinstance(last, Window)
    assert last_table == VmaTable(1, sample + 999, table), "the newest table goes before the window that needs it"
    assert gap.text == "1000 samples and 2000 events and power readings lost: the recorder was too slow"
    assert any(isinstance(m, Process) for m in got)


def test_births_of_dropped_windows_are_not_forgotten(full):
    from dataclasses import replace

    read, box, sample = full
    box.put(replace(window(sample), gaps=3))
    box.put(replace(window(sample + 1), gaps=1))
    everything(read, box)
    box.put(replace(window(sample + 2), gaps=2))
    last = everything(read, box)[-1]
    assert (last.sample, last.gaps) == (sample + 2, 6)
