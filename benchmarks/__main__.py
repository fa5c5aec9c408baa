"""``python -m benchmarks [NAME ...] [--quick] [-o FILE.md] [--into DOC.md]``: what memtui costs, never a test."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks import documents, machine
from benchmarks.run import Run, say
from benchmarks.table import Row, Skip, markdown

NAMES = (
    "walk",
    "sample",
    "recorder",
    "memory",
    "file",
    "startup",
    "data_frames",
    "seek",
    "viewer",
    "allocations",
    "slowdown",
    "strangers",
    "trackers",
    "known_truth",
    "reuse_truth",
    "operators",
    "cheap_view",
    "imports",
    "large_files",
    "placement",
    "many_mappings",
)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line says. Raises SystemExit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="What memtui costs, against its limits.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all when none is given")
    parser.add_argument("--quick", action="store_true", help="fewer, shorter measurements: to see that it works")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.md", help="write the table there, too")
    parser.add_argument(
        "--into", type=Path, metavar="DOC.md", help="put the table of the one NAME into its place there"
    )
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in NAMES]:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    if given.into and len(given.names) != 1:
        parser.error("--into takes the table of one benchmark: name it")
    if given.into and not documents.has_place(given.into, given.names[0]):
        parser.error(f"{given.into} has no place for {given.names[0]}: {documents.BEGIN.format(given.names[0])}")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 whatever the figures are, 2 for an unknown benchmark, 1 when one of them broke."""
    given = _parsed(arguments)
    # What a shell runs in the background ignores SIGINT, and so does what that starts; recordings are ended by it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    load_before = machine.load()
    if warning := machine.warning(load_before):
        say(warning)
    rows: list[Row] = []
    tables: list[str] = []
    status = _measure(given, rows, tables)
    text = "\n\n".join(
        part
        for part in (
            warning,
            machine.describe(load_before, machine.load()),
            _quick(given.quick),
            markdown(rows),
            *tables,
        )
        if part
    )
    print(text)
    if given.output:
        given.output.write_text(text + "\n")
    if given.into:
        documents.put(given.into, given.names[0], text)
    return status


def _measure(given: argparse.Namespace, rows: list[Row], tables: list[str]) -> int:
    """Run the benchmarks, whose figures go into ``rows``, and further ones as ``tables``; return the exit status."""
    broken = False
    with tempfile.TemporaryDirectory(prefix="memtui-bench-") as folder:
        run = Run(given.quick, Path(folder), tables=tables)
        for name in given.names or NAMES:
            try:
                for row in importlib.import_module(f"benchmarks.{name}").measure(run):
                    say(f"{name}: {row}")
                    rows.append(row)
            except Skip as why:
                rows.append(Row(name, failed=str(why)))
            except KeyboardInterrupt:
                return 130
            except Exception as error:
                traceback.print_exc()
                rows.append(Row(name, failed=f"{type(error).__name__}: {error}".partition("\n")[0]))
                broken = True
    return int(broken)


def _quick(quick: bool) -> str:
    return "A quick run: too few values to judge by." if quick else ""


if __name__ == "__main__":
    sys.exit(main())
