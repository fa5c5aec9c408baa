"""When a sampler takes its last window; what one that is started as root without a password does (``--own``)."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from memtui.core.options import MAX_PAUSE_NS
from memtui.core.samples import Event, Hello
from memtui.recording.sampler import sampler
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


@pytest.mark.parametrize(
    ("asked_s", "stretched_s", "after_s", "taken"),
    [
        (0.2, 0.2, 0.1, True),
        (0.2, 0.2, 0.05, False),
        (0.2, 4, 2, True),
        (0.2, 4, 1, False),
        (0.2, 60, 5, True),  # a budget makes windows long, and they differ
        (0.2, 60, 4, False),
        (60, 60, 29, False),  # windows of a minute were asked for
        (60, 60, 30, True),
        (60, 90, 29, False),
    ],
)
def test_a_last_window_is_taken_unless_it_would_be_a_sliver(monkeypatch, asked_s, stretched_s, after_s, taken):
    now_ns = 10**12
    monkeypatch.setattr(sampler.time, "monotonic_ns", lambda: now_ns)
    self = SimpleNamespace(
        _paused_since_ns=None,
        _windows=SimpleNamespace(sample=3),
        _options=SimpleNamespace(interval_ns=round(asked_s * 1e9)),
        _clock=SimpleNamespace(interval_ns=round(stretched_s * 1e9)),
        _tree=SimpleNamespace(processes={1: SimpleNamespace(start_ns=now_ns - round(after_s * 1e9))}),
    )
    assert sampler.Sampler._should_take_last_window(self) is taken
    self._paused_since_ns = 5
    assert not sampler.Sampler._should_take_last_window(self)
    self._paused_since_ns, self._windows.sample = None, 0
    assert sampler.Sampler._should_take_last_window(self), "it is the first one"
