"""The settings of one training, parsed and validated from names, TOML tables and ``key=value``."""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from memtui.core.errors import UserError
from memtui.core.files import read_toml
from memtui.core.options import BUNDLED_NETWORKS, LEARNING_RULES, MOST_SEED
from memtui.core.text import nearest

DATASETS = ("digits", "clusters", "mnist", "cifar10", "cifar100")
FROM_FOLDER = ("mnist", "cifar10", "cifar100")  # need ``data``: their files are not shipped
COSTS = ("mean_squared_error", "sigmoid_cross_entropy", "softmax_cross_entropy")
_CHOICES = {"type": LEARNING_RULES, "dataset_name": DATASETS, "cost_function": COSTS}
_LEAST = {"batch_size": 1, "epochs": 1, "eval_period": 1, "stat_period": 1, "seed": 0}
_MOST = dict.fromkeys(("batch_size", "epochs", "eval_period", "stat_period"), 10**9) | {"seed": MOST_SEED}

Layer = Mapping[str, Any]  # {"layer": name, ...}: a layer of a sequence that is written out


@dataclass(frozen=True, slots=True)
class Settings:
    """One training. The names are those of ZPP-MEM.

    Attributes:
        type: the learning rule, of ``options.LEARNING_RULES``.
        dataset_name: of ``DATASETS``.
        data: folder with the files of a data set that is not shipped.
        sequence: the network: a name, or its layers.
        cost_function: of ``COSTS``.
        momentum: of the stochastic gradient descent; 0: without momentum.
        gather_stats: write mean and spread of weights, activations and errors every ``stat_period`` iterations.
        save_graph: write operators and edges of one iteration.
        memory_only: stop after the fifth iteration, whose allocations are written.
        restore_model_path: file of the initial weights, with ``restore_model``.
        save_model_path: file for the trained weights, with ``save_model``.
        minimum_accuracy: (epoch, percent): the accuracy required from the end of that epoch on, or training stops.
        eval_period: iterations between two measurements of the accuracy.
        seed: of weights, feedback, data order.
    """

    type: str = "BP"
    dataset_name: str = "digits"
    data: str | None = None
    sequence: str | tuple[Layer, ...] = "fcReLu"
    cost_function: str = "softmax_cross_entropy"
    learning_rate: float = 0.01
    momentum: float = 0.9
    gather_stats: bool = False
    save_graph: bool = False
    memory_only: bool = False
    restore_model: bool = False
    save_model: bool = False
    restore_model_path: str | None = None
    save_model_path: str | None = None
    minimum_accuracy: tuple[tuple[int, float], ...] = ((1, 1.0),)
    batch_size: int = 10
    epochs: int = 4
    eval_period: int = 1000
    stat_period: int = 100
    seed: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready object."""
        return asdict(self)

    def changes(self) -> dict[str, Any]:
        """Return a JSON-ready object of the settings that differ from the defaults; ``settings_from`` inverts it."""
        defaults = asdict(Settings())
        return {key: value for key, value in asdict(self).items() if value != defaults[key]}


def settings_from(changes: Mapping[str, Any]) -> Settings:
    """Invert ``Settings.changes``, also after a round trip through JSON."""
    values = {key: value for key, value in changes.items() if key in KEYS}
    for key in ("minimum_accuracy", "sequence"):
        if isinstance(values.get(key), list):
            values[key] = tuple(tuple(pair) if key == "minimum_accuracy" else pair for pair in values[key])
    return Settings(**values)


MODEL_FILE = "model.pt"  # weights, where no path is given
KEYS = tuple(field.name for field in fields(Settings))
_OF_IMAGES = ("liao_cifar", "vgg", "resnet")
_IMAGES: dict[str, Any] = {"dataset_name": "clusters", "batch_size": 100, "eval_period": 50, "learning_rate": 1e-4}
# The bundled networks, each with its settings that differ from the defaults.
NETWORKS: dict[str, dict[str, Any]] = {
    name: {"sequence": name} | (_IMAGES if name.startswith(_OF_IMAGES) else {}) for name in BUNDLED_NETWORKS
}


def settings_of(name: str, changes: Mapping[str, Any], more: Mapping[str, Mapping[str, Any]] | None = None) -> Settings:
    """Return the settings of a network by name.

    Args:
        name: a key of ``NETWORKS`` or ``more``.
        changes: key -> value, which may be text, as on the command line.
        more: the user's own networks; ``extends`` names the network that a table builds on.

    Raises:
        UserError: an unknown name or key (with the nearest known one), or an invalid value.
    """
    return _checked({**_resolved(name, more or {}), **changes})


def networks_from_file(path: Path) -> dict[str, dict[str, Any]]:
    """Return the networks of a TOML file, one for each table. Raises UserError, with the line of a syntax error."""
    networks = read_toml(path)
    check_networks(networks, str(path))
    return networks


def check_networks(networks: Mapping[str, Any], where: str) -> None:
    """Raise UserError for a network that is not a table of settings; the message begins with ``where``."""
    for name, table in networks.items():
        if not isinstance(table, dict):
            raise UserError(f"{where}: {name} is not a table: a network is written [name], its settings below it")
        check_keys(table, f"{where}: [{name}]", ("extends",))
        if not isinstance(table.get("extends", ""), str):
            raise UserError(f"{where}: [{name}]: extends is the name of a network")


def check_keys(given: Iterable[str], where: str, more: tuple[str, ...] = ()) -> None:
    """Raise UserError for the first key that no network has."""
    for key in given:
        if key not in KEYS and key not in more:
            raise UserError(f"{where} has no setting {key}; {nearest(key, KEYS)}")


def parse_changes(texts: Iterable[str]) -> dict[str, str]:
    """Parse ``key=value`` of the command line. Raises UserError."""
    changes: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UserError(f"{text!r} is not of the form key=value")
        changes[key.strip()] = value.strip()
    check_keys(changes, "a training")
    return changes


def _resolved(name: str, more: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a network's settings on top of those it extends; a user's table may extend ours of the same name."""
    unused, chain = dict(more), []
    wanted: str | None = name
    while wanted is not None:
        table = unused.pop(wanted, NETWORKS.get(wanted))
        if table is None and wanted in more:
            raise UserError(f"network {name} extends itself")
        if table is None:
            raise UserError(f"there is no network {wanted}; {nearest(wanted, {**NETWORKS, **more})}")
        chain.append({key: value for key, value in table.items() if key != "extends"})
        wanted = table.get("extends")
    return {key: value for table in reversed(chain) for key, value in table.items()}


def _checked(given: Mapping[str, Any]) -> Settings:
    check_keys(given, "a training")
    kinds = _kinds()
    settings = replace(Settings(), **{key: _value(key, kinds[key], value) for key, value in given.items()})
    if settings.save_model and settings.save_model_path is None:
        settings = replace(settings, save_model_path=MODEL_FILE)
    if settings.restore_model and settings.restore_model_path is None:
        settings = replace(settings, restore_model_path=MODEL_FILE)
    _check_bounds(settings)
    _check_needed(settings)
    return settings


def _check_bounds(settings: Settings) -> None:
    """Raise UserError for the first setting that is out of its choices or bounds."""
    for key, choices in _CHOICES.items():
        if getattr(settings, key) not in choices:
            raise UserError(f"{key} is one of {', '.join(choices)}, not {getattr(settings, key)}")
    for key, least in _LEAST.items():
        if getattr(settings, key) < least:
            raise UserError(f"{key} is at least {least}, not {getattr(settings, key)}")
    for key, most in _MOST.items():
        if getattr(settings, key) > most:
            raise UserError(f"{key} is at most {most}, not {getattr(settings, key)}")
    if not (math.isfinite(settings.learning_rate) and settings.learning_rate > 0):
        raise UserError(f"learning_rate is more than 0, not {settings.learning_rate}")
    if not 0 <= settings.momentum < 1:
        raise UserError(f"momentum is at least 0 and below 1, not {settings.momentum}")


def _check_needed(settings: Settings) -> None:
    """Raise UserError for a setting that another one needs and that is missing."""
    if settings.dataset_name in FROM_FOLDER and settings.data is None:
        raise UserError(f"{settings.dataset_name} is read from a folder: data=DIR says which")


@cache
def _kinds() -> dict[str, Any]:
    """Return the type of each key; cached, since evaluating the hints takes longer than to check a training."""
    return get_type_hints(Settings)


def _value(key: str, kind: Any, value: Any) -> Any:
    """Convert a value, or its text, to the type of a key. Raises UserError."""
    try:
        if key == "minimum_accuracy":
            return _minimum(value)
        if key == "sequence" and isinstance(value, list | tuple):
            if not all(isinstance(layer, Mapping) and isinstance(layer.get("layer"), str) for layer in value):
                raise ValueError
            return tuple(dict(layer) for layer in value)
        if isinstance(kind, types.UnionType):
            if value is None or value == "none":
                return None
            kind = get_args(kind)[0]
        if kind is bool:
            return {"true": True, "false": False, True: True, False: False}[value]
        if isinstance(value, bool) or (kind is int and isinstance(value, float)):
            raise ValueError
        if kind is str and (not isinstance(value, str) or not value):
            raise ValueError
        return kind(value)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise UserError(f"{key} cannot be {value!r}: {_EXPECTED.get(key) or _expected(kind)}") from None


_EXPECTED = {
    "minimum_accuracy": "it is written 10:30,20:50 (from epoch 10 on 30 percent, from 20 on 50)",
    "sequence": "it is a name, or a list of tables that have a layer each",
}


def _expected(kind: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return f"{names.get(kind, 'another kind of value')} was expected"


def _minimum(value: Any) -> tuple[tuple[int, float], ...]:
    pairs = [text.split(":") for text in value.split(",") if text.strip()] if isinstance(value, str) else value
    minimum = tuple((int(epoch), float(percent)) for epoch, percent in pairs)
    if not all(epoch >= 1 and 0 <= percent <= 100 for epoch, percent in minimum):
        raise ValueError
    return minimum
