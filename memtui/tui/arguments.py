"""Options of commands that draw a screen."""

from __future__ import annotations

import argparse

from memtui.core.argtypes import Parser, group_of
from memtui.core.options import COLORS, THEMES


def add_screen(parser: Parser) -> None:
    """Add how the screen is drawn."""
    group = group_of(parser, "screen")
    group.add_argument("--color", choices=COLORS, default="auto", help="colours (auto)")
    group.add_argument("--theme", choices=THEMES, default="dark", help="its colours (dark)")
    group.add_argument("--ascii", action="store_true", help="no characters outside ASCII")
    group.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")


def prepare_screen(args: argparse.Namespace) -> None:
    """Prepare the terminal for a screen. Raises UserError without a terminal."""
    from memtui.tui.terminal import prepare, require_terminal

    require_terminal()
    prepare(color=args.color, ascii_only=args.ascii, mouse=not args.no_mouse, theme=args.theme)
