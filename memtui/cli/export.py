"""``memtui export``: a session in a form that other programs read."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress

from memtui.core import argtypes
from memtui.core.argtypes import Parser
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.invoking_user import drop_root
from memtui.recording.arguments import add_metrics, metrics_of
from memtui.reports.arguments import add_redact

FORMATS = (
    *("csv", "parquet", "json", "svg", "html", "zpp", "analysis", "mxnet", "chrome", "perfetto"),
    *("folded", "speedscope", "openmetrics"),
)
SLOW_S = 1.0  # an export that takes longer reports what it wrote


def _add_arguments(parser: Parser) -> None:
    add_redact(parser)
    parser.add_argument("file", metavar="FILE", type=argtypes.path, help="session, or placement profile")
    parser.add_argument("--to", choices=FORMATS, required=True, help="form")
    parser.add_argument("-o", "--output", metavar="DIR", type=argtypes.path, help="folder to write into")
    add_metrics(parser)
    parser.add_argument("--gzip", action="store_true", help="pack each file: its name ends in .gz")
    parser.add_argument("--force", action="store_true", help="overwrite files that are there")


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.core.units import duration, size
    from memtui.placement.file_header import is_profile

    drop_root()
    if args.metrics is not None or args.output is None:
        return _serve(args, console)
    if is_profile(args.file):
        from memtui.placement.export import export
    else:
        from memtui.reports.export import export
    start_s = time.monotonic()
    # Pages of a long session are many rows: the user should see that it still works, and how much it writes.
    with console.progress(f"writing {args.to} into {args.output}"):
        written = export(args.file, args.to, args.output, force=args.force, redact=args.redact, packed=args.gzip)
    for path in written:
        console.print(str(path))
    took_s = time.monotonic() - start_s
    if took_s > SLOW_S:
        files = written[0].name if len(written) == 1 else f"{len(written)} files"
        total = size(sum(path.stat().st_size for path in written))
        console.notify(f"wrote {files}, {total}, in {duration(took_s)}")
    return 0


def _serve(args: argparse.Namespace, console: Console) -> int:
    """Serve a session until ^C."""
    from memtui.core.metrics_listener import url_of
    from memtui.reports.metrics_server import serve

    metrics = metrics_of(args)
    if metrics is None or args.output is not None or args.to != "openmetrics":
        raise UserError("name a folder, -o DIR, or with --to openmetrics where to serve it, --metrics [ADDR:]PORT")
    listener, token = metrics.listen()
    console.notify(f"metrics at {url_of(listener)}, until ^C")
    with suppress(KeyboardInterrupt):
        serve(args.file, listener, token)
    return 0


EXPORT = Command(
    "export", "write a session, or a placement profile, in a form that other programs read", _add_arguments, _run
)
