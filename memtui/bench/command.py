"""``memtui bench``: parse a request, measure, and print rows as they finish."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from memtui.bench import compare, jobs, network_vs_operators, submitit_engine, window_length
from memtui.bench import (
    request as requested,
)
from memtui.bench import (
    text as table,
)
from memtui.bench.configuration import CONDITIONS, Configuration, Titles, arguments_of
from memtui.bench.cpu_speed import NAME as REFERENCES
from memtui.bench.cpu_speed import References
from memtui.bench.figures.output import COSTS, NETWORK, FigureOptions
from memtui.bench.jobs import from_environment, part
from memtui.bench.operators import CATALOGUE
from memtui.bench.plan import SETTLING_NS
from memtui.bench.printer import Printer
from memtui.bench.result import BenchRow
from memtui.bench.spaces import SPACES
from memtui.bench.store import Database
from memtui.bench.sweep import OnProgress, Request, Sweep, find_source
from memtui.bench.sweep_task import SweepProcess
from memtui.core.console import Console, output_columns
from memtui.core.errors import FAILURE, INTERRUPTED, UserError, complain
from memtui.core.files import ANOTHER_FILE, check_place, write_safely
from memtui.core.json_fields import to_json
from memtui.core.privilege import Invoker, become, invoker, state_directory
from memtui.core.text import nearest
from memtui.probes.power.energy_source import EnergySource, NoSource

QUICK_NETWORK_S = 60.0  # a round of a quick measurement of the network
QUICK_WARM_UP_S, QUICK_SETTLING_NS = 1.0, 100_000_000


def bench(args: argparse.Namespace, console: Console) -> int:
    """Run the command and return the exit code. Raises UserError."""
    _check_parts(args)
    figures = FigureOptions.of(args)
    if args.what == "list":
        return _list(args, console)
    user = invoker()
    if args.what in ("db", "compare", "predict"):
        become(user)
        return {"db": _db, "compare": _compare, "predict": _predict}[args.what](args, figures, console)
    if args.what != "resolution":
        if not _is_network(args):
            requested.operator(args.what)
        if args.rest:
            raise UserError(f"unexpected argument {args.rest[0]!r}")
    source = None if args.print_sbatch or args.engine or args.device != "cpu" else find_source("cpu", "")
    become(user)  # the counters of a CPU are root's to read, and stay open; nothing else is read as root
    context = _Context(user, source, console, figures)
    if args.what == "resolution":
        return _resolution(args, context)
    if _is_network(args):
        return _network(args, context)
    configurations = _measurable(args)
    if args.print_sbatch:
        print(jobs.script(args, configurations), end="")  # byte by byte: sbatch reads it
        return 0
    if args.engine:
        return submitit_engine.measure(args, configurations, console)
    return _operator(args, configurations, context)


def _is_network(args: argparse.Namespace) -> bool:
    """Whether a network is held against its operators. The bundled one with a grid is an operator where parts are."""
    in_parts = args.grid and (args.engine or args.print_sbatch)
    return requested.is_network(args, args.what) and not (in_parts and args.what == requested.BUNDLED)


def _operator(args: argparse.Namespace, configurations: list[Configuration], context: _Context) -> int:
    """Run ``bench OP``: this machine's part of the configurations, one row after another."""
    shard = args.shard or from_environment(os.environ)
    mine = part(configurations, shard)
    if not mine:
        assert shard is not None  # or it would be all of them, and there is one at least
        raise UserError(f"shard {shard[0]}/{shard[1]} has none of {len(configurations)} configurations")
    request = Request(mine, requested.plan(args), args.device, args.threads, args.assume_watts, args.again)

    def conclude(rows: list[BenchRow]) -> list[str]:
        lines = _foot(rows)
        if context.figures is not None:
            lines += context.figures.write_costs(requested.database_path(args, shard), wanted=mine)
        return lines

    if context.figures is not None:
        context.figures.check(COSTS)
    if context.console.wants_screen(args):
        return _screen(args, request, context, shard, conclude)
    rows, skipped, path = _measure(args, request, context, shard)
    if args.json:
        document = {"database": str(path), "skipped": skipped, "rows": [table.to_dict(row) for row in rows]}
        context.console.print_json(document)
        return 0
    for text in conclude(rows):
        context.console.print_line(text)
    if skipped:
        context.console.print_line(
            f"{skipped} configurations were measured before (--again measures them anew): {path}"
        )
    return 0


@dataclass(frozen=True, slots=True)
class _Context:
    """The user who measures, the source of energy (None: it is opened later), the console, and what to draw."""

    user: Invoker
    source: EnergySource | NoSource | None
    console: Console
    figures: FigureOptions | None


def _foot(rows: list[BenchRow]) -> list[str]:
    return table.foot(table.BenchLine.of(row) for row in rows)


def _check_parts(args: argparse.Namespace) -> None:
    """Raise UserError for options about parts that do not apply."""
    whole = args.what == "resolution" or _is_network(args)
    # An engine may come from a config file, where it applies to all measurements.
    if (args.engine and whole) or (args.print_sbatch and (whole or args.what in requested.VERBS)):
        raise UserError("--print-sbatch and --engine are for configurations of an operator, which come in parts")
    if args.print_sbatch and (args.json or args.engine):
        raise UserError("--print-sbatch prints a script: no JSON, and nothing is run, so no --engine")


def _resolution(args: argparse.Namespace, context: _Context) -> int:
    """Run ``bench resolution OP``: find how long a window has to be."""
    if len(args.rest) != 1:
        raise UserError("name an operator: memtui bench resolution conv2d")
    args.what = requested.operator(args.rest[0])
    if args.seconds is not None:
        raise UserError("the study tries windows of many lengths; --seconds has no meaning in it")
    configurations = _measurable(args)
    if len(configurations) != 1:
        raise UserError(f"the study is of one configuration, not of {len(configurations)}")
    lengths_s = window_length.QUICK_LENGTHS_S if args.quick else window_length.LENGTHS_S
    plan = replace(requested.plan(args), windows=args.windows or (5 if args.quick else 10), patience=1, visits=1)
    if plan.windows < 2:
        raise UserError("the study needs two windows of each length at least")
    request = Request(
        configurations, plan, args.device, args.threads, args.assume_watts, again=True, lengths_s=lengths_s
    )
    if context.console.wants_screen(args):
        return _screen(args, request, context, None, lambda rows: window_length.lines(window_length.study(rows)))
    rows, _, path = _measure(args, request, context, None)
    points = window_length.study(rows)
    if args.json:
        document = {"database": str(path), "op": args.what, "parameters": dict(configurations[0].parameters)}
        context.console.print_json(document | window_length.to_dict(points))
    else:
        context.console.print("")
        for text in window_length.lines(points):
            context.console.print_line(text)
    return 0 if points else FAILURE


def _network(args: argparse.Namespace, context: _Context) -> int:
    """Run ``bench resnet50``, ``bench FILE.py:function``: compare a network with the sum of its operators."""
    if context.figures is not None:
        context.figures.check(NETWORK)
    parts = requested.network_parts(args, args.what)
    network, counts, decomposition = parts.network, parts.counts, parts.decomposition
    plan = replace(
        requested.plan(args),
        windows=1,
        patience=1,
        visits=1,
        warm_up_s=args.warm_up or (QUICK_WARM_UP_S if args.quick else 4.0),
        seconds=args.seconds or (0.3 if args.quick else 1.0),
        settling_ns=QUICK_SETTLING_NS if args.quick else SETTLING_NS,
    )
    rounds = args.windows or (1 if args.quick else 3)
    request = Request(
        [network, *network_vs_operators.by_weight(counts)],
        plan,
        args.device,
        args.threads,
        args.assume_watts,
        again=True,
        rounds=rounds,
        budget_s=QUICK_NETWORK_S * rounds if args.quick else None,
    )
    compose = partial(network_vs_operators.compose, network, counts, partial=args.quick, decomposition=decomposition)

    def conclude(composition: network_vs_operators.Composition) -> list[str]:
        lines = network_vs_operators.lines(composition)
        if context.figures is not None:
            lines += context.figures.write_network(requested.database_path(args), composition)
        return lines

    if context.console.wants_screen(args):
        return _screen(args, request, context, None, lambda rows: conclude(compose(rows)))
    rows, _, path = _measure(args, request, context, None)
    composition = compose(rows)
    if args.json:
        context.console.print_json({"database": str(path), **network_vs_operators.to_dict(composition)})
    else:
        context.console.print("")
        for text in conclude(composition):
            context.console.print_line(text)
    return FAILURE if composition.reason else 0


def _measurable(args: argparse.Namespace) -> list[Configuration]:
    """Return what is to be measured. Raises UserError."""
    configurations = requested.configurations(args, args.what)
    requested.check_dtype(args.device, [c.dtype for c in configurations])
    return configurations


def _measure(
    args: argparse.Namespace, request: Request, context: _Context, shard: tuple[int, int] | None
) -> tuple[list[BenchRow], int, Path]:
    """Return the rows, the number of configurations measured before, and the path of the database."""
    path = requested.database_path(args, shard)
    with (
        Printer(request.configurations, context.console, rows=not args.json) as shown,
        closing(Database(path)) as database,
        Sweep(request, database, shown.report, context.source, _references(context.user)) as sweep,
    ):
        return sweep.run(), shown.skipped, path


def _references(user: Invoker) -> References:
    return References(state_directory(user) / REFERENCES)


def _screen(
    args: argparse.Namespace,
    request: Request,
    context: _Context,
    shard: tuple[int, int] | None,
    conclude: Callable[[list[BenchRow]], list[str]],
) -> int:
    """Measure with a screen and return the exit code.

    The sweep runs in a process of its own. ``conclude``: returns the summary of the rows.
    """
    from memtui.tui.app import run_app
    from memtui.tui.arguments import prepare_screen

    prepare_screen(args)
    path = requested.database_path(args, shard)
    Database(path).close()  # errors of the database are printed before the screen starts

    def work(report: OnProgress) -> list[str]:
        references = _references(context.user)
        with closing(Database(path)) as database, Sweep(request, database, report, context.source, references) as sweep:
            rows = sweep.run()
        return conclude(rows)

    titles = Titles(request.configurations)
    process = SweepProcess(work, titles)
    code = 0
    try:
        with context.console.progress("starting the process that measures"):
            begun = process.wait_for_start()
        if begun:
            heading = table.heading(titles.common)
            title = f"{args.what} on {args.device}"

            def load() -> Callable[..., Any]:
                from memtui.bench.screen import BenchApp

                return partial(BenchApp, title, process.receive, table.COLUMNS, heading)

            code = run_app(load)
    finally:
        process.end()
    # The rows on the screen stay in the terminal, however the screen was left.
    rows, foot = process.measured, table.foot(process.lines)
    if process.lines:
        for text in [*table.lines(process.lines, titles, output_columns()), *foot]:
            context.console.print_line(text)
    if process.error is not None:
        raise process.error
    for text in process.conclusion:
        if text not in foot:
            context.console.print_line(text)
    early = "" if process.finished else "left before its end: "
    context.console.print_line(f"{early}{table.rows_measured(len(rows))}, {process.skipped} before: {path}")
    return code if process.finished else code or INTERRUPTED


def _list(args: argparse.Namespace, console: Console) -> int:
    """Print the operators, their parameters and spaces."""
    listed = []
    for name, operator in CATALOGUE.items():
        spaces = {space: len(some) for space in SPACES if (some := SPACES[space](name, {}))}
        if args.json:
            about = {"name": name, "summary": operator.summary, "parameters": dict(operator.defaults), "spaces": spaces}
            listed.append(about)
        else:
            counts = ", ".join(f"{space} {count}" for space, count in spaces.items())
            lines = operator.summary, arguments_of(operator.defaults), f"spaces: {counts}"
            console.print("\n".join(f"{head:16} {line}" for head, line in zip((name, "", ""), lines, strict=True)))
    if args.json:
        console.print_json({"operators": listed, "conditions": dict(CONDITIONS)})
    else:
        console.print(f"every operator: {arguments_of(CONDITIONS)}")
    return 0


def _compare(args: argparse.Namespace, _: FigureOptions | None, console: Console) -> int:
    if len(args.rest) != 2:
        raise UserError("name two databases: memtui bench compare A.db B.db")
    first, second = map(Path, args.rest)
    with (
        closing(Database(first, writable=False)) as a,
        closing(Database(second, writable=False)) as b,
        console.progress(f"comparing {first} and {second}"),
    ):
        comparisons, unknown = compare.compare(a, b)
    others = f"{unknown} are left out, which another version of memtui wrote" if unknown else ""
    if not comparisons:
        raise UserError(f"{first} and {second} have no configuration in common{': ' * bool(others)}{others}")
    if others:
        complain(others)
    if args.json:
        console.print_json({"a": str(first), "b": str(second), "rows": to_json(comparisons)})
        return 0
    for text in compare.table(comparisons, output_columns()):
        console.print_line(text)
    if pairs := {comparison.devices for comparison in comparisons if comparison.devices[0] != comparison.devices[1]}:
        console.print_line("; ".join(f"A on {a}, B on {b}" for a, b in sorted(pairs)))
    return 0


def _predict(args: argparse.Namespace, figures: FigureOptions | None, console: Console) -> int:
    from memtui.bench.predict.command import predict  # needs scikit-learn, as nothing else does

    return predict(args, figures, console)


def _db(args: argparse.Namespace, figures: FigureOptions | None, console: Console) -> int:
    """Run ``bench db info``, ``merge FILE...``, ``export FILE.csv`` and, with ``--to``, ``export [OP...]``."""
    path = requested.database_path(args)
    verb, names = (args.rest or [""])[0], args.rest[1:]
    if verb == "info" and not names:
        _show_info(path, console, as_document=args.json)
    elif verb == "merge" and names:
        _merge(path, names, console)
    elif verb == "export" and figures is not None:
        for name in names:
            requested.operator(name)
        figures.check(COSTS)
        for text in figures.write_costs(path, ops=names):
            console.print_line(text)
    elif verb == "export" and len(names) == 1:
        check_place(Path(names[0]), force=args.force)
        with closing(Database(path, writable=False)) as database, console.progress(f"writing {names[0]}"):
            count = _export(database, Path(names[0]))
        console.print_line(f"{names[0]}: {count} rows")
    else:
        usage = (
            "bench db info, bench db merge FILE..., bench db export FILE.csv, or "
            "bench db export [OP...] --to svg -o DIR; --db names the database"
        )
        verbs = ("info", "merge", "export")
        if not verb:
            raise UserError(f"what about the database? say {usage}")
        raise UserError(usage if verb in verbs else f"bench db has no {verb!r}; {nearest(verb, verbs, usage)}")
    return 0


def _show_info(path: Path, console: Console, *, as_document: bool) -> None:
    """Print the content of a database: rows by table, measurements by operator. Raises UserError."""
    with closing(Database(path, writable=False)) as database:
        counts = database.counts()
        operators = Counter(row["op"] for row in database.rows())
    if as_document:
        console.print_json({"database": str(path), "rows": counts, "measurements": dict(operators)})
        return
    rows = ", ".join(f"{count} {name}" for name, count in counts.items())
    measured = ", ".join(f"{op} {count}" for op, count in operators.items()) or "nothing yet"
    for text in (str(path), f"rows: {rows}", f"measured: {measured}"):
        console.print_line(text)


def _merge(path: Path, names: Sequence[str], console: Console) -> None:
    """Merge the rows of other databases into one. Raises UserError."""
    for name in names:  # all of them, before a database is created or changed
        if _same_file(Path(name), path):
            raise UserError(f"{name}: is the database that others are merged into; name other files")
        Database(Path(name), writable=False).close()
    with closing(Database(path)) as database, console.progress(f"merging into {path}") as shown:
        for number, name in enumerate(names, 1):
            shown.update(f"{number} of {len(names)}, {name}")
            new = database.merge(Path(name))
            console.print_line(f"{name}: {new} new rows in {path}")


def _same_file(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except OSError:
        return False  # the error is reported where the file is opened


def _export(database: Database, path: Path) -> int:
    """Write all measurements as CSV, a column for each parameter. Raises UserError."""
    rows = []
    for row in database.rows(references=True):
        configuration = json.loads(row.pop("text"))
        rows.append(
            {**row, **configuration["conditions"], **{f"p_{k}": v for k, v in configuration["parameters"].items()}}
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_safely(path, text.getvalue(), ANOTHER_FILE)
    return len(rows)
