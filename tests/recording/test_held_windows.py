"""When windows leave the sampler: in the next pause where that is soon, and their reader takes no time from anybody."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

import pytest

from memtui.core.procfs import read_stat
from memtui.core.readings import Power
from memtui.core.samples import End, Event, Options, Process, Status, Window
from memtui.probes.pss import CHANGED, Rollup
from memtui.probes.usage import Usage
from memtui.probes.window_reader import Lost
from memtui.recording.sampler.commands import SamplerConfig
from memtui.recording.sampler.message_queue import MessageQueue
from memtui.recording.sampler.tracked_process import TrackedProcess
from memtui.recording.wire import Decoder
from tests.support.live import needs_tracker, pattern

pytestmark = pytest.mark.real_clock


def test_a_queue_that_holds_sends_windows_when_pumped_and_all_else_at_once():
    read, write = os.pipe()
    box, decoder = MessageQueue(write), Decoder()
    os.set_blocking(read, False)

    def got() -> list[type]:
        try:
            return [type(message) for message in decoder.feed(os.read(read, 1 << 16))]
        except BlockingIOError:
            return []

    box.holds = True
    box.put(Window(0, 0, 1, 1, 0, ()))
    box.put(Power((), ()))
    assert got() == []
    box.pump()
    assert got() == [Window, Power]
    box.put(Window(1, 0, 1, 1, 0, ()))
    box.put(Event(0, "mark", "x"))
    assert got() == [Window, Event], "in their order"
    box.put(Window(2, 0, 1, 1, 0, ()))
    box.put(End(0, "stopped"))
    assert got() == [Window, End]
    os.close(read)
    os.close(write)


def test_how_many_cpus_a_process_keeps_busy():
    watched = TrackedProcess(*[None] * 8)
    watched.update_cpu(10**9)
    assert watched.busy_cpus == 0, "what it used before it was watched says nothing"
    then_ns = watched.cpu_read[0]
    time.sleep(0.05)
    watched.update_cpu(10**9 + 10**8)
    assert watched.busy_cpus == pytest.approx(10**8 / (watched.cpu_read[0] - then_ns))


def test_what_was_read_of_the_address_space_before_is_not_of_this_one():
    process = TrackedProcess(Process(1, 42, 1, 7, 0, "x"), -1, b"", (), 0, 0, since_ns=100)
    rest = (Usage(5, 0, 1, 0, 0), 0, 1, (Status.FAILED, "why"), None)
    windows = [
        process.window(Lost(OSError()), *rest, Rollup(4, t_ns, private_bytes=3, swap_bytes=2)) for t_ns in (100, 99)
    ]
    assert [(w.pss_bytes, w.pss_ns, w.pss_reason, w.private_bytes, w.swap_bytes) for w in windows] == [
        (4, 100, "", 3, 2),
        (None, None, CHANGED, None, None),
    ]


def test_private_bytes_by_mapping_are_sent_once():
    process = TrackedProcess(Process(1, 42, 1, 7, 0, "x"), -1, b"", (), 0, 0, since_ns=0)
    rest = (Usage(5, 0, 1, 0, 0), 0, 1, (Status.FAILED, "why"), None)
    early, late = ((4096, 8192),), ((4096, 16384),)
    readings = [Rollup(None), Rollup(4, 1, private_by_vma=early), Rollup(5, 2, private_by_vma=early), Rollup(None)]
    readings += [Rollup(6, 3, private_by_vma=early), Rollup(7, 4, private_by_vma=late)]
    sent = [process.window(Lost(OSError()), *rest, rollup).vma_private_bytes for rollup in readings]
    assert sent == [None, early, None, None, None, late]


WITH_SPARE = (
    "import sys; from memtui.recording.sampler import __main__, sampler; "
    "sampler.SPARE_CPUS = {}; sys.exit(__main__.main())"
)


@needs_tracker
@pytest.mark.parametrize(("interval_s", "spare_cpus", "held"), [(0.1, 1e6, True), (0.1, 0, False), (0.4, 1e6, False)])
def test_windows_close_together_wait_for_the_next_pause_where_no_cpu_is_free(interval_s, spare_cpus, held):
    """How many CPUs a target leaves free depends on who else runs here, so it is what is enough that differs."""
    delays_s = []
    with pattern("random", "--pages", 512, "--touched", 64, rest_s=0) as truth:
        options = Options(int(interval_s * 1e9), "pagetable", duration_ns=int(8 * interval_s * 1e9))
        sampler = subprocess.Popen(
            [sys.executable, "-c", WITH_SPARE.format(spare_cpus)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            sampler.stdin.write(SamplerConfig(truth["pid"], read_stat(truth["pid"]).start_ticks, options).to_line())
            sampler.stdin.flush()
            decoder, ended = Decoder(), False
            while not ended:
                assert select.select([sampler.stdout], [], [], 20)[0]
                chunk, now_ns = os.read(sampler.stdout.fileno(), 1 << 18), time.monotonic_ns()
                assert chunk
                for message in decoder.feed(chunk):
                    ended = ended or isinstance(message, End)
                    if isinstance(message, Window):
                        delays_s.append((now_ns - message.end_ns) / 1e9)
            assert sampler.wait(20) == 0
        finally:
            sampler.kill()
            sampler.communicate()
    assert len(delays_s) >= 3
    before_last = sorted(delays_s[:-2])
    if held and len(os.sched_getaffinity(0)) > 1:  # on one CPU the recorder would work in the pause's time
        assert before_last[0] > interval_s / 2
    else:
        assert before_last[0] < interval_s / 2
