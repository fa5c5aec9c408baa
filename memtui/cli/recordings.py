"""Commands about recordings that run: ``list``, ``stop``, ``mark``."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from memtui.core.argtypes import Parser, add_json
from memtui.core.command import Command
from memtui.core.console import Console, output_columns
from memtui.core.errors import FAILURE, UserError

if TYPE_CHECKING:
    from memtui.recording.registry import Running


def _list(args: argparse.Namespace, console: Console) -> int:
    from dataclasses import asdict

    from memtui.recording.status import NO_LIMIT, describe, format_table

    with console.progress("asking what runs"):
        recordings = describe(_recordings())
    if args.json:
        console.print_json({"recordings": [asdict(recording) for recording in recordings]})
    else:
        console.print(format_table(recordings, output_columns() or NO_LIMIT))
    return 0


def _add_stop(parser: Parser) -> None:
    parser.add_argument("name", metavar="ID|PID|all", help="its ID (memtui list), the PID of its target, or all")


def _stop(args: argparse.Namespace, console: Console) -> int:
    from memtui.recording.client import choose, stop

    recordings = _recordings()
    chosen = recordings if args.name == "all" else choose(recordings, args.name)
    if not chosen:
        console.print("none of your recordings runs")
    failures = []
    for running in chosen:
        try:
            with console.progress(f"ending {running.id}"):
                ended = stop(running)
            if ended.error:
                raise UserError(f"recording {running.id}: {ended.error}", FAILURE)
            console.print(f"stopped {running.id}: {running.path}")
        except UserError as error:
            failures.append(error)
    for failure in failures[1:]:
        console.notify(str(failure))
    if failures:
        raise failures[0]
    return 0


def _add_mark(parser: Parser) -> None:
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument(
        "--session",
        metavar="ID",
        help="of which recording (default: the one that observes the caller, or the only one that runs)",
    )


def _mark(args: argparse.Namespace, console: Console) -> int:
    import time

    from memtui.core.options import MARK_CHARACTERS
    from memtui.core.text import utf8_safe
    from memtui.recording.client import choices, choose, observer_of, send_request, sole_recording

    t_ns = time.monotonic_ns()
    text = utf8_safe(args.text)
    if not 0 < len(text) <= MARK_CHARACTERS:
        raise UserError(f"a mark has 1 to {MARK_CHARACTERS} characters, not {len(text)}")
    recordings, notice = _recordings(), ""
    if args.session is not None:
        (running,) = choose(recordings, args.session)
    elif (observer := observer_of(os.getpid())) is not None:
        running = observer
    elif (only := sole_recording(recordings)) is not None:
        running = only
        notice = f"marked in {only.path}, the recording of PID {only.pid}"
    else:
        what = "name one with --session" if recordings else "there is nothing to mark"
        raise UserError(f"{what}; {choices(recordings)}")
    send_request(running, "mark", text=text, t_ns=t_ns)
    console.notify(notice)
    return 0


def _recordings() -> list[Running]:
    """Return the running recordings of the user who typed the command, also under sudo."""
    from memtui.core.privilege import become, invoker, state_directory
    from memtui.recording.registry import find_all

    user = invoker()
    become(user)
    return find_all(state_directory(user))


LIST = Command("list", "list your recordings that run now", add_json, _list)
STOP = Command("stop", "stop a recording cleanly, whoever looks at it", _add_stop, _stop)
MARK = Command("mark", "put a mark on the time axis of a recording that runs", _add_mark, _mark)
