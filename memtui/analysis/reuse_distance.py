"""Reuse distance, all of it: the tracker of one process, and the two ways to add up what it finds."""

from memtui.analysis.reuse_histogram import BIN_EDGES, ExactReuse, ReuseHistogram
from memtui.analysis.reuse_tracker import ReuseSample, ReuseTracker

__all__ = ["BIN_EDGES", "ExactReuse", "ReuseHistogram", "ReuseSample", "ReuseTracker"]
