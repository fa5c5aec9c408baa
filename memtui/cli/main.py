"""The command line: one thin command each. It parses, calls and prints; what a command needs it imports itself."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.cli.parser import TAKE_PROGRAMS, build_parser, misplaced_option, observation_given
from memtui.core.argtypes import Parser
from memtui.core.errors import (
    BAD_INPUT,
    FAILURE,
    INTERRUPTED,
    UserError,
    complain,
    open_standard_streams,
    output_failed,
    silence,
)
from memtui.core.progress_line import ProgressLine, above_line
from memtui.core.text import one_line, visible

if TYPE_CHECKING:
    from memtui.cli.attach import Asked
    from memtui.core.samples import Options
    from memtui.recording.registry import Running
    from memtui.recording.supervisor.launch import Launch, Observation

STANDARD_OUTPUT = Path("-")
SLOW_S = 1.0  # what takes longer says that it works, and what it made


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for bad input, 1 for a failure."""
    open_standard_streams()
    try:
        return _run_command(arguments) or _flushed()
    except SystemExit:  # --help, --version, or words that cannot be parsed
        if code := _flushed():
            return code
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        _silenced_full()


def _flushed() -> int:
    """0, or the exit code where standard output does not take what was printed."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return output_failed(error)
    return 0


def _run_command(arguments: list[str] | None) -> int:
    parser = build_parser(COMMANDS)
    words = list(sys.argv[1:] if arguments is None else arguments)
    own, command = words, []
    if "--" in words and words[0] in ("--", *TAKE_PROGRAMS):  # of all others it is as argparse has it
        own, command = words[: words.index("--")], words[words.index("--") + 1 :]
    options = parser.parse_args(own)
    if options.run is None:
        if command:
            parser.error("a program needs a command before it, as in memtui run -- python train.py")
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            parser.print_help()
            return 0
        options.run = _home
    try:
        options = _with_config(parser, own, options)
        options.command, options.words = command, own
        _say(options, misplaced_option(parser, options.verb, command))
        code = options.run(options)
        sys.stdout.flush()
        return code
    except UserError as error:
        if options.debug:
            raise
        return _refuse(options, error)
    except BrokenPipeError:
        silence(sys.stdout)  # `memtui report FILE | head`: the reader has enough
        return 0
    except OSError as error:
        if options.debug:
            raise
        from memtui.core.os_errors import unhandled

        if error.filename is None and _silenced_full():
            error.filename = "standard output"
        return _refuse(options, unhandled(error, _words_of(options)))
    except Exception as error:
        if options.debug:
            raise
        return _refuse(options, UserError(f"{type(error).__name__}: {error} (--debug shows where)", FAILURE))


def _refuse(options: argparse.Namespace, error: UserError) -> int:
    complain(one_line(f"memtui {options.verb}: {error}"))
    return error.code


def _silenced_full() -> bool:
    """Whether it is standard output that takes no more (a full disk); Python would complain again at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        silence(sys.stdout)
        return True
    return False


def _words_of(options: argparse.Namespace) -> list[str]:
    """What of the command line may name a file."""
    found = []
    for value in vars(options).values():
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str | Path):
                found.append(str(each))
    return found


def _with_config(parser: Parser, words: list[str], options: argparse.Namespace) -> argparse.Namespace:
    """The options once more, with the defaults of the user's config file."""
    if options.no_config or options.verb == "completion":
        return options
    from memtui.cli.config import apply, parsers_of

    apply(parsers_of(parser), options.verb)
    return parser.parse_args(words)


def _options(args: argparse.Namespace) -> Options:
    from memtui.core.samples import Options

    return Options(
        interval_ns=round(args.interval * 1e9),
        tracker=args.tracker,
        pause=args.pause is not False,
        together=args.together,
        flush=args.flush,
        rearm=args.rearm,
        filter=args.filter,
        pages=args.pages,
        children=args.children,
        duration_ns=round(args.duration * 1e9) if args.duration else None,
        keep_command=args.keep_command,
        max_overhead_ppm=args.max_overhead,
    )


def _observation(args: argparse.Namespace, what: int | Launch) -> Observation:
    from memtui.recording.supervisor.launch import Observation

    return Observation(
        what,
        _options(args),
        args.output,
        force=args.force,
        verb=args.verb,
        sudo=args.sudo,
        max_bytes=args.max_size,
        stop_when=getattr(args, "stop_when", None),
        hold_filtered=args.pause is True,
        max_pause_ns=round(args.max_pause * 1e9),
    )


def _say(args: argparse.Namespace, notice: str) -> None:
    """One line to the user that is no result, if there is anything to say."""
    if notice:
        with above_line():
            complain(visible(f"memtui {args.verb}: {notice}"))


def _pid(args: argparse.Namespace) -> int:
    from memtui.recording.targets import check_target, find

    pid, notice = find(args.pid, args.rank)
    check_target(pid)
    _say(args, notice)
    return pid


def _home(args: argparse.Namespace) -> int:
    """What there is to look at; then whatever was chosen, as if it had been typed."""
    from memtui.cli.home import choose_from_home

    code, chosen = choose_from_home()
    return main(list(chosen)) if chosen is not None else code


def _demo(args: argparse.Namespace) -> int:
    from memtui.recording.supervisor.launch import Launch

    words = (sys.executable, "-P", "-m", "memtui.study.workloads.demo", "--network", args.network)
    return _watch(args, Launch(words, name="demo", log=True, dies_with_memtui=True))


def _attach(args: argparse.Namespace) -> int:
    if args.pid is None and args.rank is None:
        raise UserError("name a process by PID, name or rank: memtui attach 4242, attach train.py, attach --rank 3")
    return _watch(args, _pid(args))


def _run(args: argparse.Namespace) -> int:
    from memtui.recording.supervisor.launch import Launch

    if not args.command:
        raise UserError("no program named; say: memtui run -- python train.py")
    return _watch(args, Launch(tuple(args.command), log=True, trace_every=args.every if args.trace else None))


def _trace(args: argparse.Namespace) -> int:
    from memtui.recording.supervisor.launch import Launch

    if not args.command:
        raise UserError("no program named; say: memtui trace -- python train.py")
    return _watch(args, Launch(tuple(args.command), log=True, trace_every=args.every))


def _watch(args: argparse.Namespace, what: int | Launch, first: str = "") -> int:
    """Record and view; the session stays. ``first``: the screen that lies on top."""
    from memtui.cli.attach import watch

    _require_terminal()
    return watch(
        lambda: _observation(args, what),
        lambda: _prepare_screen(args),
        lambda line: _say(args, line),
        lambda: _asked(args),
        program=not isinstance(what, int),
        first=first,
    )


def _asked(args: argparse.Namespace) -> Asked:
    """What the command line asks of a recording that runs already."""
    from memtui.cli.attach import Asked

    given = observation_given(build_parser(COMMANDS), args.words, args.verb)
    others = tuple(sorted(flag for argument, flag in given.items() if argument != "interval"))
    return Asked(round(args.interval * 1e9) if "interval" in given else None, others)


def _replay(args: argparse.Namespace) -> int:
    from memtui.placement.file_header import is_profile
    from memtui.session.file_format import check_file

    _drop_root()
    if is_profile(args.file):
        from memtui.placement.command import show
        from memtui.placement.store import ProfileFile

        return show(args, ProfileFile(args.file))
    check_file(args.file)
    _require_terminal("use `memtui report`, which prints its numbers, or `memtui record` to measure without a screen")
    _prepare_screen(args)
    return _view(args.file, live=False)


def _view(path: Path, *, live: bool) -> int:
    from memtui.tui.app import run_viewer

    return run_viewer(path, live=live)


def _require_terminal(instead: str = "") -> None:
    from memtui.tui.terminal import RECORD, require_terminal

    require_terminal(instead=instead or RECORD)


def _prepare_screen(args: argparse.Namespace) -> None:
    from memtui.tui.terminal import prepare

    _require_terminal()
    prepare(color=args.color, ascii_only=args.ascii, mouse=not args.no_mouse, theme=args.theme)


def _record(args: argparse.Namespace) -> int:
    from memtui.cli.record import record
    from memtui.recording.supervisor.launch import Launch

    if (args.pid is not None or args.rank is not None) == bool(args.command):
        raise UserError("name either a PID or a program: memtui record 4242, memtui record -- python train.py")
    if args.trace and not args.command:
        raise UserError(
            "a process that runs already cannot be traced from inside; memtui record --trace -- CMD starts one"
        )
    what = Launch(tuple(args.command), trace_every=args.every if args.trace else None) if args.command else _pid(args)

    def tell(path: Path, shown: bool) -> None:
        if args.json:
            _print_report(args, path, as_json=True)
        elif not shown or not args.output:
            print(visible(str(path)))
        if args.max_overhead is not None:
            from memtui.reports.report import budget_line

            _say(args, budget_line(path))
        if args.trace:
            from memtui.reports.report import untraced

            _say(args, untraced(path))

    return record(
        lambda: _observation(args, what),
        lambda line: _say(args, line),
        tell,
        program=bool(args.command),
        verb=args.verb,
    )


def _calibrate(args: argparse.Namespace) -> int:
    import json

    from memtui.study.calibration import Plan, calibrate, format_result

    if args.pid is None and args.rank is None:
        raise UserError("name a running process by PID, name or rank: memtui calibrate 4242")
    counter, path = args.counter
    held = args.pause is True, round(args.max_pause * 1e9)
    plan = Plan(_pid(args), _options(args), counter, path, args.blocks, args.seconds, args.sudo, *held)
    result = calibrate(plan, lambda line: _say(args, line))
    print(json.dumps(result, indent=2) if args.json else format_result(result))
    return 0


def _list(args: argparse.Namespace) -> int:
    import json
    import shutil

    from memtui.cli.recordings import NO_LIMIT, describe, format_table

    with _progress(args, "asking what runs"):
        found = describe(_recordings())
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else NO_LIMIT
    print(json.dumps(found, indent=2) if args.json else format_table(found, room))
    return 0


def _stop(args: argparse.Namespace) -> int:
    from memtui.recording.client import choose, stop

    found = _recordings()
    chosen = found if args.name == "all" else choose(found, args.name)
    if not chosen:
        print("none of your recordings runs")
    failures = []
    for running in chosen:
        try:
            with _progress(args, f"ending {running.id}"):
                ended = stop(running)
            if "error" in ended:
                raise UserError(f"recording {running.id}: {ended['error']}", FAILURE)
            print(visible(f"stopped {running.id}: {running.path}"), flush=True)
        except UserError as error:
            failures.append(error)
    for failure in failures[1:]:
        complain(visible(f"memtui stop: {failure}"))
    if failures:
        raise failures[0]
    return 0


def _mark(args: argparse.Namespace) -> int:
    import time

    from memtui.core.options import MARK_CHARACTERS
    from memtui.core.text import storable
    from memtui.recording.client import ask, choices, choose, observer_of, only_one

    t_ns = time.monotonic_ns()
    text = storable(args.text)
    if not 0 < len(text) <= MARK_CHARACTERS:
        raise UserError(f"a mark has 1 to {MARK_CHARACTERS} characters, not {len(text)}")
    found, said = _recordings(), ""
    if args.session is not None:
        (running,) = choose(found, args.session)
    elif (observer := observer_of(os.getpid())) is not None:
        running = observer
    elif (only := only_one(found)) is not None:
        running = only
        said = f"marked in {only.path}, the recording of PID {only.pid}"
    else:
        what = "name one with --session" if found else "there is nothing to mark"
        raise UserError(f"{what}; {choices(found)}")
    ask(running, "mark", text=text, t_ns=t_ns)
    _say(args, said)
    return 0


def _recordings() -> list[Running]:
    """What runs now of the user who typed the command, also where sudo is before it."""
    from memtui.core.privilege import become, invoker, state_directory
    from memtui.recording.registry import find_all

    user = invoker()
    become(user)
    return find_all(state_directory(user))


def _drop_root() -> None:
    """Under sudo, become the invoking user: a session may be a stranger's, and what is written is the user's."""
    if "SUDO_UID" in os.environ and os.geteuid() == 0:
        from memtui.core.privilege import become, invoker

        become(invoker())


def _report(args: argparse.Namespace) -> int:
    _drop_root()
    if args.file is None and args.html not in (None, STANDARD_OUTPUT):  # report --html FILE: that is the session
        args.file, args.html = args.html, STANDARD_OUTPUT
    if args.file is None:
        raise UserError("name a session: memtui report FILE")
    if args.html is not None:
        from contextlib import closing

        from memtui.core.files import ANOTHER_FILE, check_place, write_safely
        from memtui.reports.export.page import page
        from memtui.reports.redact import open_source

        if args.html != STANDARD_OUTPUT:
            check_place(args.html, force=args.force)
        with _progress(args, f"drawing {args.file}"), closing(open_source(args.file, redact=args.redact)) as source:
            text = page(source)
        if args.html == STANDARD_OUTPUT:
            print(text, end="")
        else:
            write_safely(args.html, text, ANOTHER_FILE)
            print(visible(str(args.html)))
        return 0
    _print_report(args, args.file, as_json=args.json, redact=args.redact)
    return 0


def _progress(args: argparse.Namespace, doing: str) -> ProgressLine:
    """What a command says of work that takes long."""
    return ProgressLine(args.verb, doing)


def _print_report(args: argparse.Namespace, path: Path, *, as_json: bool, redact: bool = False) -> None:
    import json

    from memtui.reports.report import build_report, format_report

    with _progress(args, f"adding up {path}"):
        report = build_report(path, redact=redact)
    print(json.dumps(report, indent=2) if as_json else format_report(report))


def _import(args: argparse.Namespace) -> int:
    import json

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # it multiplies no matrices; numpy would start threads for it
    from memtui.formats.command import import_all, plain, words

    _drop_root()
    wanted = args.first, args.last
    with _progress(args, "reading"):
        found = import_all(args.logs, args.output, lambda line: _say(args, line), wanted=wanted, force=args.force)
    if args.json:
        print(json.dumps(plain(found), indent=2))
    else:
        for outcome in found:
            if outcome.session is not None:
                print(visible(words(outcome)))
    return 0 if all(outcome.session is not None for outcome in found) else BAD_INPUT


def _breakdown(args: argparse.Namespace) -> int:
    from memtui.reports.breakdown.command import Asked, breakdown

    _drop_root()
    asked = Asked(
        args.rules,
        args.fraction,
        args.title,
        args.all,
        args.subtract_padding,
        args.to or "",
        args.output,
        args.force,
        args.json,
    )
    # What it shows is made visible line by line: it may have many.
    with _progress(args, "reading"):
        return 0 if breakdown(args.files, asked, lambda line: _say(args, line), _print_above) else BAD_INPUT


def _print_above(text: str) -> None:
    """A result, while a line about the work may stand on the terminal."""
    with above_line():
        print(text, flush=True)


def _export(args: argparse.Namespace) -> int:
    import time

    from memtui.core.units import duration, size
    from memtui.reports.export import export

    _drop_root()
    begin_s = time.monotonic()
    # Pages of a long session are many rows: nobody should wonder whether it still works, or fill a disk unawares.
    with _progress(args, f"writing {args.to} into {args.output}"):
        written = export(args.file, args.to, args.output, force=args.force, redact=args.redact)
    for path in written:
        print(visible(str(path)))
    took_s = time.monotonic() - begin_s
    if took_s > SLOW_S:
        sys.stdout.flush()
        files = written[0].name if len(written) == 1 else f"{len(written)} files"
        _say(args, f"wrote {files}, {size(sum(path.stat().st_size for path in written))}, in {duration(took_s)}")
    return 0


def _doctor(args: argparse.Namespace) -> int:
    import json

    from memtui.cli.doctor import examine, format_findings

    with _progress(args, "trying what this machine can measure"):
        findings = examine()
    print(json.dumps(findings, indent=2) if args.json else format_findings(findings))
    return 0


def _tune(args: argparse.Namespace) -> int:
    from memtui.training.tune.command import tune

    _drop_root()
    return tune(args, lambda line: _say(args, line))


def _bench(args: argparse.Namespace) -> int:
    from memtui.bench.command import bench

    return bench(args, lambda line: _say(args, line))


def _study(args: argparse.Namespace) -> int:
    from memtui.study.command import study

    return study(args, lambda line: _say(args, line))


def _train(args: argparse.Namespace) -> int:
    """On a terminal with the screen on it; else without, and recorded only where a session is asked for."""
    from memtui.recording.supervisor.launch import Launch
    from memtui.training.command import MEMORY_ONLY_EVERY, asked, listed, print_document, result_file, run_plainly

    if args.network == "list":
        listed(print)
        return 0
    what = asked(args)
    shows = args.tui and not args.json and sys.stdin.isatty() and sys.stdout.isatty()
    if not shows and args.output is None:
        _drop_root()
        return run_plainly(what, as_json=args.json)
    every = MEMORY_ONLY_EVERY if what.settings.memory_only else args.every
    if shows:
        name = f"{args.network}-{what.settings.type}"
        launch = Launch(what.words(), name=name, log=True, dies_with_memtui=True, trace_every=every)
        return _watch(args, launch, first="training")
    from memtui.cli.record import record

    with result_file() as result:
        words = what.words("--result", str(result), *(("--progress-to", "stderr") if args.json else ()))

        def tell(path: Path, shown: bool) -> None:
            if args.json and result.exists():
                print_document(what, result, path)

        launch = Launch(words, trace_every=every)
        return record(
            lambda: _observation(args, launch), lambda line: _say(args, line), tell, program=True, verb=args.verb
        )


def _compare(args: argparse.Namespace) -> int:
    from memtui.cli.compare import compare

    _drop_root()
    return compare(args, lambda: _prepare_screen(args))


def _place(args: argparse.Namespace) -> int:
    from memtui.placement.command import place

    _drop_root()
    return place(args, lambda line: _say(args, line))


def _completion(args: argparse.Namespace) -> int:
    from memtui.cli.completion import script

    print(script(build_parser(COMMANDS), args.shell), end="")
    return 0


COMMANDS = {
    "demo": _demo,
    "attach": _attach,
    "run": _run,
    "trace": _trace,
    "record": _record,
    "calibrate": _calibrate,
    "replay": _replay,
    "list": _list,
    "stop": _stop,
    "mark": _mark,
    "report": _report,
    "export": _export,
    "import": _import,
    "breakdown": _breakdown,
    "tune": _tune,
    "bench": _bench,
    "study": _study,
    "train": _train,
    "compare": _compare,
    "place": _place,
    "doctor": _doctor,
    "completion": _completion,
}


if __name__ == "__main__":
    sys.exit(main())
