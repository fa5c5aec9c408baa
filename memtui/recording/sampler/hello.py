"""The first message of a recording: who is observed, on which machine, and by which means."""

from __future__ import annotations

import pwd
from pathlib import Path

from memtui._version import __version__
from memtui.core.samples import Capability, Hello, Options, Target
from memtui.probes.host import read_clock, read_host
from memtui.probes.pages.select_tracker import page_views
from memtui.probes.pages.tracker import PageTracker
from memtui.probes.process_tree import ProcessTree
from memtui.recording.sampler.commands import SamplerConfig


def hello(order: SamplerConfig, options: Options, tracker: PageTracker, rejected: tuple[Capability, ...]) -> Hello:
    """Describe a recording. Raises ProcessLookupError: the target ended."""
    return Hello(
        __version__,
        read_clock(),
        read_host(),
        _target(order),
        options,
        tracker.name,
        tracker.flush,
        tracker.rearm,
        rejected,
        _wss(tracker, rejected),
        page_views(tracker, rejected),
    )


def _target(order: SamplerConfig) -> Target:
    pid = order.pid
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except FileNotFoundError as error:
        raise ProcessLookupError(f"process {pid} ended") from error
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    tree = ProcessTree(pid, children=order.options.children, command=order.command)
    tree.refresh()
    return Target(pid, order.start_ticks, order.command or tree.processes[0].command, user)


def _wss(tracker: PageTracker, rejected: tuple[Capability, ...]) -> Capability:
    """Return whether there will be a working set; if not, the reason is why the better trackers are out."""
    if tracker.wss.ok or not rejected:
        return tracker.wss
    return Capability("wss", False, rejected[0].reason, rejected[0].remedy)
