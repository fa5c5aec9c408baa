"""A profile that is being measured, on the screen of profiles: the measuring runs in a process of its own beside it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from memtui.beside import Beside
from memtui.errors import UserError
from memtui.foreign import visible
from memtui.placement.store import ProfileFile, is_profile

_LOOK_S = 0.1


def watched(args: argparse.Namespace, output: Path, work: Callable[[], list[str]], say: Callable[[str], None]) -> int:
    """Measure and show; leaving the screen breaks it off. The exit code.

    Args:
        args: how the screen is to look.
        output: the profile, which grows.
        work: measures, and returns what is to be said at the end; runs in a child, and no thread may run yet.
        say: takes a line for the user.

    Raises UserError.
    """
    from memtui.app import run_placement
    from memtui.terminal import prepare

    prepare(color=args.color, ascii_only=args.ascii, mouse=not args.no_mouse, theme=args.theme)
    if args.force and is_profile(output):
        output.unlink()
    process = Beside(lambda _: work())
    code = 0
    try:
        print("starting PyTorch and recording a step ...", end="", file=sys.stderr, flush=True)
        while not process.over and process.error is None and not is_profile(output):
            process.hear(_LOOK_S)
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if not process.over and process.error is None:
            code = run_placement(ProfileFile(output))
            process.hear(_LOOK_S)
    finally:
        broken_off = not process.over and not process.conclusion and process.error is None
        process.end()
    if process.error is not None:
        raise process.error
    for line in process.conclusion:
        print(visible(line))
    if broken_off:
        say("broken off; the same command goes on from there")
    elif not process.conclusion:
        raise UserError("measuring ended without a word", 1)
    return code
