"""``memtui compare``: several trainings over each other, on screen or as text."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def compare(args: argparse.Namespace, prepare: Callable[[], object]) -> int:
    raise NotImplementedError
