"""The command line: one thin command each. It parses, calls and prints; what a command needs it imports itself."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from memtui import values
from memtui.choices import (
    COLORS,
    DEFAULT_MAX_BYTES,
    FLUSHES,
    REARMS,
    THEMES,
    TRACKERS,
)
from memtui.errors import BAD_INPUT, FAILURE, UserError, silence
from memtui.foreign import visible

if TYPE_CHECKING:
    from memtui.observe import Launch, Observation
    from memtui.running import Running
    from memtui.samples import Options

FORMATS = ("csv", "parquet", "json", "svg", "html")
SHELLS = ("bash", "zsh", "fish")
NETWORKS = ("auto", "torch", "numpy")


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        print(visible(f"{self.prog}: {message}; see {self.prog} --help"), file=sys.stderr)
        sys.exit(BAD_INPUT)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As always, but an option that is nearly one of ours is told from a word too many."""
        options, unknown = super().parse_known_args(args, namespace)
        for word in (word.partition("=")[0] for word in unknown if word.startswith("--")):
            from difflib import get_close_matches

            if near := get_close_matches(word, self._option_string_actions, 1, 0.75):
                self.error(f"there is no {word}; did you mean {near[0]}?")
        return options, unknown


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for bad input, 1 for a failure."""
    try:
        return _run_command(arguments)
    except KeyboardInterrupt:
        return 130


def _run_command(arguments: list[str] | None) -> int:
    parser = _build_parser()
    words = list(sys.argv[1:] if arguments is None else arguments)
    own, command = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    options = parser.parse_args(own)
    if options.run is None:
        if command or not (sys.stdin.isatty() and sys.stdout.isatty()):
            parser.print_help()
            return 0
        options.run = _home
    try:
        options = _with_config(parser, own, options)
        options.command = command
        code = options.run(options)
        sys.stdout.flush()
        return code
    except UserError as error:
        if options.debug:
            raise
        print(visible(f"memtui {options.verb}: {error}"), file=sys.stderr)
        return error.code
    except BrokenPipeError:
        silence(sys.stdout)  # `memtui report FILE | head`: the reader has enough
        return 0
    except Exception as error:
        if options.debug:
            raise
        line = f"memtui {options.verb}: {type(error).__name__}: {error} (--debug shows where)"
        print(visible(line), file=sys.stderr)
        return FAILURE


def _with_config(parser: _Parser, words: list[str], options: argparse.Namespace) -> argparse.Namespace:
    """The options once more, with the defaults of the user's config file."""
    if options.no_config or options.verb == "completion":
        return options
    from memtui.config import apply, parsers_of

    apply(parsers_of(parser), options.verb)
    return parser.parse_args(words)


def _build_parser() -> _Parser:
    from memtui import __version__

    parser = _Parser(
        prog="memtui",
        description="Watch the memory, time and energy of machine-learning training, page by page. "
        "Without a command: what runs, and your sessions, to choose from.",
    )
    parser.add_argument("--version", action="version", version=f"memtui {__version__}")
    parser.set_defaults(run=None, debug=False, verb="", no_config=True)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, *parents: _Parser) -> _Parser:
        made = commands.add_parser(name, help=text, description=text, parents=[common, *parents])
        made.set_defaults(run=run, verb=name)
        return made

    common = _Parser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show where an error came from")
    common.add_argument("--no-config", action="store_true", help="do not read your config file")
    redact = _Parser(add_help=False)
    redact.add_argument(
        "--redact",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="take out host, user, paths, command lines and addresses",
    )
    target = _Parser(add_help=False)
    target.add_argument("pid", metavar="PID|NAME", nargs="?", help="a process: its number, or what it is called")
    target.add_argument(
        "--rank", type=values.rank, metavar="N", help="the one with this RANK in its environment (torchrun, MPI)"
    )
    watching, screen = _observation_options(), _screen_options()
    how = _Parser(add_help=False, parents=[watching, _keeping_options()])

    made = command("demo", _demo, "start a small training (bundled) and watch it: the first thing to try", how, screen)
    made.add_argument("--network", choices=NETWORKS, default="auto", help="what trains: torch where it is installed")
    command("attach", _attach, "watch a running process and its children", target, how, screen)
    command(
        "run",
        _run,
        "start a program and watch it from its first instruction: run -- CMD... (o shows its output)",
        how,
        screen,
    )
    made = command(
        "record", _record, "the same without a screen: record PID | record -- CMD... (exits as CMD does)", target, how
    )
    made.add_argument("--json", action="store_true", help="print the report at the end")
    made.add_argument(
        "--stop-when",
        type=values.condition,
        metavar="COND",
        help="end, with exit code 3, when a window says so: wss>8GiB, rss<500MB, wss>8GiB for 5s",
    )
    made = command(
        "calibrate", _calibrate, "measure how much slower a process runs while it is watched", target, watching
    )
    made.add_argument(
        "--counter",
        type=values.counter,
        default=("auto", ""),
        metavar="WHAT",
        help="what counts its steps: steps=FILE (numbers after step or iter in a log), lines=FILE, file=FILE (the last "
        "number in it), marks (memtui.mark), rchar or wchar (bytes read, written); default: steps in its output file",
    )
    made.add_argument(
        "--blocks", type=values.blocks, default=10, metavar="N", help="blocks with, and as many without (10)"
    )
    made.add_argument("--seconds", type=values.duration, default=10.0, metavar="S", help="of each block (10)")
    made.add_argument("--json", action="store_true", help="as one JSON document, with every block")
    made.set_defaults(duration=None, keep_command=False)
    made = command("replay", _replay, "watch a saved session, or one that is still recorded", screen)
    made.add_argument("file", metavar="FILE", type=Path)
    made = command("list", _list, "recordings of yours that run now")
    made.add_argument("--json", action="store_true", help="as one JSON document")
    made = command("stop", _stop, "end a recording in order, whoever looks at it")
    made.add_argument("name", metavar="ID|PID|all", help="its ID (memtui list), the PID of its target, or all of them")
    made = command("mark", _mark, "put a mark on the time axis of a recording that runs")
    made.add_argument("text", metavar="TEXT")
    made.add_argument(
        "--session",
        metavar="ID",
        help="of which recording (default: the one that observes the caller, or the only one that runs)",
    )
    made = command("report", _report, "the numbers of a session", redact)
    made.add_argument("file", metavar="FILE", type=Path)
    made.add_argument("--json", action="store_true", help="as one JSON document")
    made = command("export", _export, "write a session in a form that other programs read", redact)
    made.add_argument("file", metavar="FILE", type=Path)
    made.add_argument("--to", choices=FORMATS, required=True, help="form")
    made.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="folder to write into")
    made.add_argument("--force", action="store_true", help="overwrite files that are there")
    made = command("doctor", _doctor, "what this machine can measure, what it cannot, and what would change that")
    made.add_argument("--json", action="store_true", help="as one JSON document")
    made = command("completion", _completion, "a script that lets your shell complete memtui's words")
    made.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    return parser


def _observation_options() -> _Parser:
    parser = _Parser(add_help=False)
    group = parser.add_argument_group("observation")
    group.add_argument(
        "--interval", type=values.interval, default=0.2, metavar="S", help="seconds a window lasts (0.2)"
    )
    group.add_argument(
        "--max-overhead",
        type=values.overhead,
        metavar="PCT",
        help="stretch the interval until paused time + CPU of sampler and recorder stay below a share of the time: 1%%",
    )
    group.add_argument(
        "--tracker",
        choices=TRACKERS,
        default="auto",
        metavar="T",
        help="how touches are seen: auto takes the first that works; pagetable and idle see pages, referenced "
        "ranges (no root), rss none; damon, never taken by auto, estimates ranges without holding the target",
    )
    group.add_argument(
        "--pause", action=argparse.BooleanOptionalAction, default=True, help="hold the target while its pages are read"
    )
    group.add_argument(
        "--together",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="hold all processes of the tree at once, not one after the other",
    )
    group.add_argument(
        "--flush",
        choices=FLUSHES,
        default="auto",
        metavar="F",
        help="how stale TLB entries are flushed: auto, cold, soft-dirty (costs a fault a page where tracked), off",
    )
    group.add_argument(
        "--rearm",
        choices=REARMS,
        default="auto",
        metavar="R",
        help="how marks are cleared: auto, working-set (around touched pages only), full (every page)",
    )
    group.add_argument(
        "--filter",
        type=values.expression,
        default="default",
        metavar="EXPR",
        help="pages left out of the session: default, none, or terms such as exec,pages<4,name=GLOB; ! inverts one",
    )
    group.add_argument("--children", action=argparse.BooleanOptionalAction, default=True, help="watch its children too")
    group.add_argument(
        "--sudo",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="start the sampler, and nothing else, through sudo (default: where root is of use and sudo grants it)",
    )
    return parser


def _keeping_options() -> _Parser:
    parser = _Parser(add_help=False)
    group = parser.add_argument_group("observation")
    group.add_argument("--duration", type=values.duration, metavar="S", help="end after so many seconds")
    group.add_argument(
        "--max-size",
        type=values.max_size,
        default=DEFAULT_MAX_BYTES,
        metavar="SIZE",
        help="thin the oldest page sets when the file reaches this (2GiB); none: let it grow",
    )
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="session file (default: a named one under your state directory)",
    )
    group.add_argument("--force", action="store_true", help="overwrite an existing session file")
    group.add_argument(
        "--keep-command", action="store_true", help="record command lines as they are, passwords and keys included"
    )
    return parser


def _screen_options() -> _Parser:
    parser = _Parser(add_help=False)
    group = parser.add_argument_group("screen")
    group.add_argument("--color", choices=COLORS, default="auto", help="colours (auto)")
    group.add_argument("--theme", choices=THEMES, default="dark", help="(dark)")
    group.add_argument("--ascii", action="store_true", help="no characters outside ASCII")
    group.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    return parser


def _options(args: argparse.Namespace) -> Options:
    from memtui.samples import Options

    return Options(
        interval_ns=round(args.interval * 1e9),
        tracker=args.tracker,
        pause=args.pause,
        together=args.together,
        flush=args.flush,
        rearm=args.rearm,
        filter=args.filter,
        children=args.children,
        duration_ns=round(args.duration * 1e9) if args.duration else None,
        keep_command=args.keep_command,
        max_overhead_ppm=args.max_overhead,
    )


def _observation(args: argparse.Namespace, what: int | Launch) -> Observation:
    from memtui.observe import Observation

    return Observation(
        what,
        _options(args),
        args.output,
        force=args.force,
        verb=args.verb,
        sudo=args.sudo,
        max_bytes=args.max_size,
        stop_when=getattr(args, "stop_when", None),
    )


def _say(args: argparse.Namespace, notice: str) -> None:
    """One line to the user that is no result, if there is anything to say."""
    if notice:
        print(f"memtui {args.verb}: {notice}", file=sys.stderr)


def _pid(args: argparse.Namespace) -> int:
    from memtui.search import find
    from memtui.target import check_target

    pid, notice = find(args.pid, args.rank)
    check_target(pid)
    _say(args, notice)
    return pid


def _home(args: argparse.Namespace) -> int:
    """What there is to look at; then whatever was chosen, as if it had been typed."""
    from memtui.choose import choose_from_home

    code, chosen = choose_from_home()
    return main(list(chosen)) if chosen is not None else code


def _demo(args: argparse.Namespace) -> int:
    from memtui.observe import Launch

    words = (sys.executable, "-P", "-m", "memtui.workloads.demo", "--network", args.network)
    return _watch(args, Launch(words, name="demo", log=True, dies_with_memtui=True))


def _attach(args: argparse.Namespace) -> int:
    if args.pid is None and args.rank is None:
        raise UserError("name a process by PID, name or rank: memtui attach 4242, attach train.py, attach --rank 3")
    return _watch(args, _pid(args))


def _run(args: argparse.Namespace) -> int:
    from memtui.observe import Launch

    if not args.command:
        raise UserError("no program named; say: memtui run -- python train.py")
    return _watch(args, Launch(tuple(args.command), log=True))


def _watch(args: argparse.Namespace, what: int | Launch) -> int:
    """Record and view; the session stays."""
    from memtui.attach import watch

    _require_terminal()
    return watch(
        lambda: _observation(args, what),
        lambda: _prepare_screen(args),
        lambda line: _say(args, line),
        program=not isinstance(what, int),
    )


def _replay(args: argparse.Namespace) -> int:
    from memtui.session.store import check_file

    _drop_root()
    check_file(args.file)
    _prepare_screen(args)
    return _view(args.file, live=False)


def _view(path: Path, *, live: bool) -> int:
    from memtui.app import run_viewer

    return run_viewer(path, live=live)


def _require_terminal() -> None:
    from memtui.terminal import require_terminal

    require_terminal()


def _prepare_screen(args: argparse.Namespace) -> None:
    from memtui.terminal import prepare

    _require_terminal()
    prepare(color=args.color, ascii_only=args.ascii, mouse=not args.no_mouse, theme=args.theme)


def _record(args: argparse.Namespace) -> int:
    from memtui.observe import Launch
    from memtui.record import record

    if (args.pid is not None or args.rank is not None) == bool(args.command):
        raise UserError("name either a PID or a program: memtui record 4242, memtui record -- python train.py")
    what = Launch(tuple(args.command)) if args.command else _pid(args)

    def tell(path: Path, shown: bool) -> None:
        if args.json:
            _print_report(path, as_json=True)
        elif not shown or not args.output:
            print(visible(str(path)))
        if args.max_overhead is not None:
            from memtui.report import budget_line

            _say(args, budget_line(path))

    return record(lambda: _observation(args, what), lambda line: _say(args, line), tell, program=bool(args.command))


def _calibrate(args: argparse.Namespace) -> int:
    import json

    from memtui.calibrate import Plan, calibrate, format_result

    if args.pid is None and args.rank is None:
        raise UserError("name a running process by PID, name or rank: memtui calibrate 4242")
    counter, path = args.counter
    plan = Plan(_pid(args), _options(args), counter, path, args.blocks, args.seconds, args.sudo)
    result = calibrate(plan, lambda line: _say(args, line))
    print(json.dumps(result, indent=2) if args.json else format_result(result))
    return 0


def _list(args: argparse.Namespace) -> int:
    import json

    from memtui.recordings import describe, format_table

    found = describe(_recordings())
    print(json.dumps(found, indent=2) if args.json else format_table(found))
    return 0


def _stop(args: argparse.Namespace) -> int:
    from memtui.remote import choose, stop

    found = _recordings()
    chosen = found if args.name == "all" else choose(found, args.name)
    if not chosen:
        print("none of your recordings runs")
    failures = []
    for running in chosen:
        try:
            ended = stop(running)
            if "error" in ended:
                raise UserError(f"recording {running.id}: {ended['error']}", FAILURE)
            print(visible(f"stopped {running.id}: {running.path}"), flush=True)
        except UserError as error:
            failures.append(error)
    for failure in failures[1:]:
        print(visible(f"memtui stop: {failure}"), file=sys.stderr)
    if failures:
        raise failures[0]
    return 0


def _mark(args: argparse.Namespace) -> int:
    import time

    from memtui.choices import MARK_CHARACTERS
    from memtui.foreign import storable
    from memtui.marks import observer_of
    from memtui.remote import ask, choices, choose

    t_ns = time.monotonic_ns()
    text = storable(args.text)
    if not 0 < len(text) <= MARK_CHARACTERS:
        raise UserError(f"a mark has 1 to {MARK_CHARACTERS} characters, not {len(text)}")
    found = _recordings()
    if args.session is not None:
        (running,) = choose(found, args.session)
    elif (observer := observer_of(os.getpid())) is not None:
        running = observer
    elif len(found) == 1:
        running = found[0]
    else:
        what = "name one with --session" if found else "there is nothing to mark"
        raise UserError(f"{what}; {choices(found)}")
    ask(running, "mark", text=text, t_ns=t_ns)
    return 0


def _recordings() -> list[Running]:
    """What runs now of the user who typed the command, also where sudo is before it."""
    from memtui.privilege import become, invoker, state_directory
    from memtui.running import find_all

    user = invoker()
    become(user)
    return find_all(state_directory(user))


def _drop_root() -> None:
    """Under sudo, become the invoking user: a session may be a stranger's, and what is written is the user's."""
    if "SUDO_UID" in os.environ and os.geteuid() == 0:
        from memtui.privilege import become, invoker

        become(invoker())


def _report(args: argparse.Namespace) -> int:
    _drop_root()
    _print_report(args.file, as_json=args.json, redact=args.redact)
    return 0


def _print_report(path: Path, *, as_json: bool, redact: bool = False) -> None:
    import json

    from memtui.report import build_report, format_report

    report = build_report(path, redact=redact)
    print(json.dumps(report, indent=2) if as_json else format_report(report))


def _export(args: argparse.Namespace) -> int:
    from memtui.export import export

    _drop_root()
    for path in export(args.file, args.to, args.output, force=args.force, redact=args.redact):
        print(visible(str(path)))
    return 0


def _doctor(args: argparse.Namespace) -> int:
    import json

    from memtui.doctor import examine, format_findings

    findings = examine()
    print(json.dumps(findings, indent=2) if args.json else format_findings(findings))
    return 0


def _completion(args: argparse.Namespace) -> int:
    from memtui.completion import script

    print(script(_build_parser(), args.shell), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
