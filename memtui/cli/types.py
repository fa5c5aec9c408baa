"""The types of options that a feature knows: a counter, a condition, a filter, a part of a sweep."""

from __future__ import annotations

import argparse


def counter(text: str) -> tuple[str, str]:
    """``--counter``: kind and file."""
    from memtui.study.progress_counters import parse_counter

    try:
        return parse_counter(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def condition(text: str) -> str:
    """``--stop-when``, as it was typed."""
    from memtui.recording.recorder.stop_condition import Condition

    try:
        Condition.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def expression(text: str) -> str:
    """``--filter``, as it was typed."""
    from memtui.analysis.vma_filter import parse_filter

    try:
        parse_filter(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def shard(text: str) -> tuple[int, int]:
    """``--shard``."""
    from memtui.bench.jobs import parse

    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
