"""What a sampler does that somebody starts as root without a password (``--own``), whatever the order asks for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from memtui.core.options import MAX_PAUSE_NS
from memtui.core.samples import Event, Hello
from tests.support.live import needs_root
from tests.support.streams import finish, order_for

pytestmark = pytest.mark.real_clock

# Each window takes 40 ms of the target's time. 30,000 mappings are read in 0.12 s, as far as known before the first.
SLOW = """
import sys, time
from memtui.recording.sampler import __main__, sampler, tracked_tree  # first: numpy starts no threads then
from memtui.probes import window_reader
from memtui.probes.pages.rss import RssTracker
class Slow(RssTracker):
    pauses = True
    def count_mappings(self, pid):
        return 30_000
    def window(self, *words, **options):
        time.sleep(0.04)
        return super().window(*words, **options)
sampler.choose = lambda *_, **__: (Slow(), ())
for module in (sampler, tracked_tree, window_reader):  # the target is root's, as the test is
    module.check_owner = lambda *_, **__: None
window_reader.looks_own = lambda *_: True
sys.exit(__main__.main())
"""


@needs_root
def test_whoever_may_start_it_so_pauses_for_a_tenth_of_a_second_and_a_quarter_of_the_time():
    with subprocess.Popen(["sleep", "100"]) as target:
        try:
            order = order_for(target.pid, max_pause_ns=MAX_PAUSE_NS[1], max_overhead_ppm=None, duration_ns=2 * 10**9)
            child = subprocess.Popen(
                [sys.executable, "-c", SLOW, "--own"], env=os.environ | {"SUDO_UID": str(os.getuid())},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            assert child.stdin is not None
            child.stdin.write(order.to_line())
            child.stdin.flush()
            stream = finish(child)
        finally:
            target.kill()
    assert stream.returncode == 0, stream.errors
    assert [event.text for event in stream.of(Event) if "where that would take longer than 100 ms" in event.text]
    assert stream.of(Hello)[0].options.max_overhead_ppm == 250_000
    paused_ns = [window.paused_ns for window in stream.of_pid(target.pid)]
    assert sorted(paused_ns)[len(paused_ns) // 2] >= 40 * 10**6
    # The last one is not followed by the time that pays for it, nor is the first.
    observed_ns = stream.windows[-1].end_ns - stream.windows[0].start_ns
    assert sum(paused_ns[1:-1]) <= observed_ns / 4
