"""``memtui bench predict fit``, ``eval`` and ``run``: parse the request, and print the answer as text or JSON."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from memtui.bench import request
from memtui.bench.figures.output import PREDICT, FigureOptions
from memtui.bench.predict.training import Training, load
from memtui.bench.store import Database
from memtui.core.console import Console, output_columns
from memtui.core.errors import FAILURE, UserError
from memtui.core.json_fields import to_json
from memtui.core.text import nearest, printable

VERBS = ("fit", "eval", "run")
USAGE = "memtui bench predict fit [OP...], predict eval [OP...], or predict run OP|NETWORK"


def predict(args: argparse.Namespace, figures: FigureOptions | None, console: Console) -> int:
    """Run the command and return the exit code. Raises UserError."""
    verb, ops = _checked(args)
    if figures is not None:
        if verb == "fit":
            raise UserError("predict fit has no figures; predict eval and predict run have")
        figures.check(PREDICT)
    network = ops[0] if verb == "run" and request.is_network(args, ops[0]) else ""
    wanted = request.configurations(args, ops[0]) if verb == "run" and not network else []
    if importlib.util.find_spec("sklearn") is None:
        raise UserError("predictions need scikit-learn, which is not installed: pip install 'memtui[predict]'", FAILURE)
    path = request.database_path(args)
    with closing(Database(path, writable=False)) as database:
        # Rows of other operators than the requested one are informative about the device, too.
        operators = () if verb == "run" else ops
        training = load(
            database,
            operators=operators,
            runs=args.from_run or (),
            unflagged=args.unflagged,
            clock_mhz=args.clock if verb == "run" else None,
        )
    parts = request.network_parts(args, network) if network else None
    with console.progress(f"predict {verb}: fitting models to {len(training.rows)} rows"):
        from memtui.bench.predict import report

        answer: report.Report
        if verb == "fit":
            answer = report.fit(training)
        elif verb == "eval":
            answer = report.evaluate(training)
        elif parts is not None:
            answer = report.run_network(training, parts, output_columns())
        else:
            answer = report.run(training, wanted, output_columns())
    if args.json:
        console.print_json({"database": str(path), **_training_dict(training), **answer.document})
    else:
        console.print("\n".join(map(printable, (str(path), *_lines(training), "", *answer.lines))))
        if figures is not None:
            for text in figures.write_predictions(training.measured_on.text, answer.charts):
                console.print_line(text)
    return 0


def _checked(args: argparse.Namespace) -> tuple[str, Sequence[str]]:
    """Return what is to be done and the operators. Raises UserError."""
    verb, ops = args.rest[0] if args.rest else "", args.rest[1:]
    if verb not in VERBS:
        raise UserError(f"bench predict has no {verb!r}; {nearest(verb, VERBS, USAGE)}" if verb else USAGE)
    for op in ops:
        if not (verb == "run" and request.is_network(args, op)):
            request.operator(op)
    if verb == "run" and len(ops) != 1:
        raise UserError("name one operator or network: memtui bench predict run conv2d --space small")
    if verb != "run" and (args.grid or args.config or args.space or request.conditions(args)):
        raise UserError(f"predict {verb} takes what was measured: --grid, --space and the like are for predict run")
    return verb, ops


def _training_dict(training: Training) -> dict[str, Any]:
    """Return the rows that models were fitted to, in numbers, JSON-ready."""
    return {
        "place": to_json(training.measured_on),
        "together": to_json(training.together),
        "others": to_json(training.others),
        "clock_mhz": training.clock_mhz,
        "rows": len(training.rows),
        "flagged": training.flagged,
        "left_out": training.left_out,
    }


def _lines(training: Training) -> Sequence[str]:
    """Return the rows that models were fitted to, in numbers, as lines."""
    measured_on, left_out = training.measured_on, training.left_out
    rows = f"rows: {len(training.rows)}, {training.flagged} of them flagged"
    if left_out:
        rows += "; left out: " + ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    lines = [f"measured on {measured_on.text}, newest run {measured_on.run}", rows]
    lines += [f"fitted together with {p.configurations} of {p.text}" for p in training.together]
    if training.clock_mhz is not None:
        lines.append(f"clock that is predicted for: {training.clock_mhz:.0f} MHz")
    return lines + [
        f"not taken: {p.configurations} of {p.text}; --from-run {p.run} takes them" for p in training.others
    ]
