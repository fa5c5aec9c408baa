"""``memtui train``: the request on the command line, checked before anything starts, and its result. Without torch."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.privilege import as_invoker, borrows_root, invoker
from memtui.training.datasets import CLASSES
from memtui.training.network_specs import SEQUENCES
from memtui.training.preflight import check, check_event_files, check_torch
from memtui.training.result import TrainingResult, read_result
from memtui.training.settings import (
    FROM_FOLDER,
    NETWORKS,
    Settings,
    networks_from_file,
    parse_changes,
    settings_from,
    settings_of,
)
from memtui.training.user_networks import Definitions, definitions_in, sequence_in

MEMORY_ONLY_EVERY = 2  # steps between recorded ones, so that the fifth and last iteration is recorded
_SHORT = ("type", "learning_rate", "batch_size", "epochs", "cost_function", "dataset_name", "sequence", "seed", "data")
_FLAGS = ("memory_only", "save_graph", "gather_stats")


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """A validated training that can start.

    Attributes:
        notes: on what of its file is ignored.
        tensorboard: folder for event files; None: none are written.
    """

    network: str
    settings: Settings
    notes: tuple[str, ...] = ()
    tensorboard: Path | None = None

    def argv(self, *more: str) -> tuple[str, ...]:
        """Return the command line of the process that trains."""
        changes = json.dumps(self.settings.changes())
        command = (sys.executable, "-P", "-m", "memtui.training.torch.worker", self.network, changes)
        events = () if self.tensorboard is None else ("--tensorboard", str(self.tensorboard))
        return (*command, *events, *more)


def request_of(args: argparse.Namespace) -> TrainRequest:
    """Return the request of the command line. Files that it names are read with the rights of the user who typed it.

    Raises:
        UserError: an unknown network, layer, rule or key, shapes that do not fit, files that are missing.
    """

    def checked() -> tuple[dict[str, Any], tuple[str, ...]]:
        settings, notes = _settings(args)
        if args.tensorboard is not None:
            check_event_files(args.tensorboard)
        return settings.changes(), notes

    changes, notes = as_invoker(checked)
    return TrainRequest(args.network, settings_from(changes), notes, args.tensorboard)


def _settings(args: argparse.Namespace) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings, and notes on what of the file of definitions is ignored."""
    more = networks_from_file(args.config) if args.config is not None else {}
    defined = definitions_in(args.definitions) if args.definitions is not None else Definitions({}, {}, {})
    functions = defined.functions
    for name, table in (*defined.networks.items(), *((name, {"sequence": name}) for name in functions)):
        more.setdefault(name, table)
    changes: dict[str, Any] = dict(parse_changes(args.set))
    changes |= {key: value for key in _SHORT if (value := getattr(args, key)) is not None}
    changes |= {key: True for key in _FLAGS if getattr(args, key)}
    settings = settings_of(args.network, changes, more)
    if args.data is not None and settings.dataset_name not in FROM_FOLDER:
        raise UserError(
            f"--data {args.data}: {settings.dataset_name} is not read from a folder; "
            f"--dataset-name chooses one that is: {', '.join(FROM_FOLDER)}"
        )
    if isinstance(settings.sequence, str) and settings.sequence in functions:
        layers = sequence_in(functions[settings.sequence], settings.sequence, CLASSES[settings.dataset_name])
        if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
            raise UserError(f"{args.definitions}: {settings.sequence} returns no list of layers")
        settings = replace(settings, sequence=tuple(layers))
    elif isinstance(settings.sequence, str) and settings.sequence not in SEQUENCES and functions:
        sequence_in(args.definitions, settings.sequence, CLASSES[settings.dataset_name])
    check(settings)
    check_torch()
    ignored = defined.ignored.get(args.network, [])
    return settings, tuple(f"{args.definitions}: {args.network}: no setting {key} here; ignored" for key in ignored)


@contextmanager
def result_file() -> Iterator[Path]:
    """Yield a file for the result of the process that trains; the process may run as another user than this one."""
    with tempfile.TemporaryDirectory(prefix="memtui-train-") as folder:
        path = Path(folder) / "result.json"
        if borrows_root():
            os.chown(folder, invoker().uid, invoker().gid)
        yield path


def run_unrecorded(what: TrainRequest, console: Console, *, as_json: bool) -> int:
    """Train without a recording, in a child; return the exit code of the child."""
    with result_file() as path:
        more = ["--result", str(path), "--progress-line", "--exit-with-parent", str(os.getpid())]
        more += ["--progress-to", "stderr"] if as_json else []
        with subprocess.Popen(what.argv(*more), stdin=subprocess.DEVNULL) as child:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                code = child.wait()  # the child received ^C, too
        if as_json and code == 0:
            print_document(what, path, None, console)
    return code if code >= 0 else 128 - code


def print_document(what: TrainRequest, path: Path, session: Path | None, console: Console) -> None:
    """Print the JSON document of an ended training. Raises UserError where it left no result."""
    console.print_json(document(what, read_result(path), session))


def document(what: TrainRequest, result: TrainingResult, session: Path | None) -> dict[str, Any]:
    """Return the document that ``--json`` prints. Accuracy is in percent; missing values are None, with a reason."""
    return {
        "network": what.network,
        "type": what.settings.type,
        "settings": what.settings.to_dict(),
        "seed": what.settings.seed,
        **result.to_dict(),
        "loss": result.loss if result.loss is not None and math.isfinite(result.loss) else None,
        "session": str(session) if session is not None else None,
    }


def print_networks(print_line: Callable[[str], object]) -> None:
    """Print the bundled networks, each with its settings that differ from the defaults."""
    for name, table in NETWORKS.items():
        rest = ", ".join(f"{key} {value}" for key, value in table.items() if key != "sequence")
        print_line(f"{name:<14} {len(SEQUENCES[name][0])} layers" + (f", {rest}" if rest else ""))
