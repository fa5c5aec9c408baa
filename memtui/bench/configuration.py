"""Configurations to measure: an operator, its parameters, and the conditions it runs under."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtui.bench.operators import EVERY
from memtui.bench.operators.base import Operator, Parameters, Value
from memtui.core.errors import UserError
from memtui.core.files import read_toml
from memtui.core.options import CACHE_STATES, DTYPES, MODES, WEIGHT_SETS

ITEM_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
FORWARD, BOTH_WAYS = MODES
# Weights stored without the two zeros of every four: PyTorch's name of what sparse tensor cores multiply.
COMPRESSED = "semi_structured"
# Keys that every operator has besides its own parameters, with their defaults.
CONDITIONS: dict[str, Value] = {
    "dtype": "fp32",
    "mode": FORWARD,
    "cache": "cold",
    "weights": "rotate",
    "input_zeros": 0,
    "weight_zeros": 0,
    "zeros": "random",
}
CHOICES: dict[str, tuple[str, ...]] = {
    "dtype": DTYPES,
    "mode": MODES,
    "cache": CACHE_STATES,
    "weights": WEIGHT_SETS,
    "zeros": ("random", "2:4", COMPRESSED, "channels"),
}
MANY = 100_000  # configurations: a grid with more is a mistake


@dataclass(frozen=True)
class Configuration:
    """One configuration to measure. Created by ``make``, which validates it.

    Attributes:
        op: name of the operator.
        parameters: all parameters, as ``Operator.resolve`` returns them.
        conditions: all of ``CONDITIONS``: type of the numbers, passes, whether inputs come out of the cache (``warm``)
            or not (``cold``), whether several copies of the weights take turns, and how many percent of inputs and
            weights are zeros, in which pattern.
    """

    op: str
    parameters: Mapping[str, Value]
    conditions: Mapping[str, Value]

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def operator(self) -> Operator:
        return EVERY[self.op]

    @property
    def text(self) -> str:
        """Canonical text: the same for the same configuration, whatever the order of its keys."""
        return canonical({**self._as_dict(), "parameters": self.stated})

    @property
    def stated(self) -> dict[str, Value]:
        """The parameters, without those that came later and have their usual value."""
        later, p = self.operator.later, self.parameters
        return {key: value for key, value in p.items() if key not in later or value != self._usual(key)}

    @property
    def key(self) -> str:
        """SHA-256 of ``text``, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def both_ways(self) -> bool:
        """Whether a call is a forward and a backward pass."""
        return self.conditions["mode"] == BOTH_WAYS

    @property
    def dtype(self) -> str:
        return str(self.conditions["dtype"])

    @property
    def item_bytes(self) -> int:
        """Size of a number of this type."""
        return ITEM_BYTES[self.dtype]

    @property
    def flops(self) -> int:
        """Operations of a call, products with zeros included.

        A backward pass counts twice (one for the inputs, one for the weights).
        """
        return self.operator.flops(self.parameters) * (3 if self.both_ways else 1)

    @property
    def moved_bytes(self) -> int | None:
        """The least that a call moves; None with a backward pass, whose saved tensors are not known."""
        if self.both_ways:
            return None
        moved = self.operator.moved_bytes(self.parameters, self.item_bytes)
        if self.compressed:  # half of the weights are stored, with two bits each that say which
            elements = self.operator.weights(self.parameters)[0].elements
            moved -= elements * self.item_bytes // 2 - elements // 8
        return moved

    @property
    def compressed(self) -> bool:
        """Whether the weights are stored without their zeros."""
        return self.conditions["zeros"] == COMPRESSED

    @property
    def title(self) -> str:
        """Operator and ``label``."""
        return f"{self.op} {self.label()}"

    def label(self) -> str:
        """Return a short text for people: numbers, and other values that differ from the usual ones."""
        return arguments_of(self.label_values())

    def label_values(self) -> dict[str, Value]:
        """Return the keys and values of ``label``."""
        p, usual, left_out = self.stated, self.operator.defaults, self.operator.unlabelled
        values = {
            k: v
            for k, v in p.items()
            if k not in left_out and (not isinstance(usual[k], str | bool) or v != self._usual(k))
        }
        return values | {k: v for k, v in self.conditions.items() if v != CONDITIONS[k]}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready object."""
        return {"key": self.key, **self._as_dict()}

    def _as_dict(self) -> dict[str, Any]:
        return {"op": self.op, "parameters": dict(self.parameters), "conditions": dict(self.conditions)}

    def _usual(self, key: str) -> Value:
        """Return the value of a parameter that is not given."""
        default = self.operator.defaults[key]
        return self.operator.derived({**self.parameters, key: default}).get(key, default)


class Titles:
    """Titles of configurations next to each other: values common to all of them are printed once.

    Attributes:
        common: the common values; empty where there are none, or one configuration only.
    """

    def __init__(self, configurations: Sequence[Configuration]) -> None:
        """Find the common values; among different operators only conditions can be common."""
        labels = [c.label_values() for c in configurations]
        alike = len({c.op for c in configurations}) == 1
        first = labels[0] if len(set(configurations)) > 1 else {}
        same = {
            key: value
            for key, value in first.items()
            if (alike or key in CONDITIONS) and all(key in label and label[key] == value for label in labels)
        }
        self._left_out = frozenset(same)
        self._titles = {c: self._title(c) for c in configurations}
        self.common = arguments_of(same)

    def of(self, configuration: Configuration) -> str:
        """Return the operator and the values that are not common."""
        return self._titles.get(configuration) or configuration.title

    def all(self) -> list[tuple[Configuration, str]]:
        """Return each configuration with its title."""
        return list(self._titles.items())

    def _title(self, configuration: Configuration) -> str:
        rest = {key: value for key, value in configuration.label_values().items() if key not in self._left_out}
        return f"{configuration.op} {arguments_of(rest)}".rstrip()


def make(op: str, given: Parameters) -> Configuration:
    """Return a configuration; keys that are not given take their defaults.

    Raises:
        ValueError: a key or value that the operator does not have, or values that exclude each other.
    """
    operator = EVERY[op]
    for key in given:
        if key not in operator.defaults and key not in CONDITIONS:
            names = ", ".join((*operator.defaults, *CONDITIONS))
            raise ValueError(f"{op} has no parameter {key}; it has {names}")
    own = operator.resolve({k: v for k, v in given.items() if k in operator.defaults})
    conditions = {key: given.get(key, default) for key, default in CONDITIONS.items()}
    for key, value in conditions.items():
        if key in CHOICES and value not in CHOICES[key]:
            raise ValueError(f"{key} is one of {', '.join(CHOICES[key])}, not {written(value)}")
        if key not in CHOICES and not (type(value) is int and 0 <= value <= 100):
            raise ValueError(f"{key} is a whole number of percent, not {written(value)}")
    _check(operator, own, conditions)
    return Configuration(op, own, conditions)


def from_text(text: str) -> Configuration:
    """Return the configuration that has this ``text``.

    Raises ValueError, as ``make``, also for what another version wrote.
    """
    document = json.loads(text)
    try:
        op, given = document["op"], {**document["parameters"], **document["conditions"]}
        exists = op in EVERY
    except (KeyError, TypeError):
        raise ValueError("is not a configuration") from None
    if not exists:
        raise ValueError(f"there is no operator {op}")
    return make(op, given)


def canonical(value: Any) -> str:
    """Return canonical JSON: the same text for the same content."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _check(operator: Operator, parameters: Parameters, conditions: Mapping[str, Value]) -> None:
    """Raise ValueError for values that exclude each other."""
    shares = {conditions["input_zeros"], conditions["weight_zeros"]}
    if conditions["zeros"] == "2:4" and not shares <= {0, 50}:
        raise ValueError("zeros=2:4 is two of every four: the share is 0 or 50")
    if conditions["zeros"] == COMPRESSED:
        operator.check_compressed(parameters)
        if conditions["weight_zeros"] != 50 or conditions["input_zeros"] or conditions["mode"] == BOTH_WAYS:
            raise ValueError(f"zeros={COMPRESSED} is measured forward only, with weight_zeros=50 and input_zeros=0")
        if conditions["dtype"] not in ("fp16", "bf16"):
            raise ValueError(f"zeros={COMPRESSED} takes dtype=fp16 or bf16")
    if conditions["weight_zeros"] and not operator.weights(parameters):
        raise ValueError(f"{operator.name} has no weights that could be zero")
    if conditions["mode"] == BOTH_WAYS and not operator.trains:
        raise ValueError(f"{operator.name} has no backward pass")
    if conditions["dtype"] == "fp8":
        operator.check_fp8(parameters)
        if conditions["mode"] == BOTH_WAYS or any(shares):
            raise ValueError("fp8 is measured forward only, and without zeros")


def product(op: str, grid: Mapping[str, Sequence[Value]], usual: Parameters | None = None) -> list[Configuration]:
    """Return every combination of the values, each once.

    Args:
        op: the operator.
        grid: values of each key.
        usual: values of keys that are not in the grid.

    Raises:
        ValueError: as ``make``, or too many combinations.
    """
    grid = {**{key: [value] for key, value in (usual or {}).items()}, **grid}
    count = math.prod(map(len, grid.values()))
    if count > MANY:
        raise ValueError(f"{count} configurations are more than {MANY}")
    configurations = []
    for values in itertools.product(*grid.values()):
        given = dict(zip(grid, values, strict=True))
        try:
            configurations.append(make(op, given))
        except ValueError as error:
            if count == 1:
                raise
            raise ValueError(f"{arguments_of(given)}: {error}") from None
    return unique(configurations)


def unique(configurations: Iterable[Configuration]) -> list[Configuration]:
    """Return each configuration once, in the order of their first appearance."""
    return list(dict.fromkeys(configurations))


def parse_grid(texts: Iterable[str]) -> dict[str, list[Value]]:
    """Parse ``k=v,v`` of the command line. Raises ValueError."""
    grid: dict[str, list[Value]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        items = [item.strip() for item in values.split(",")]
        if not equals or not key.strip() or not all(items):
            raise ValueError(f"{text!r} is not of the form key=value,value")
        if key.strip() in grid:
            raise ValueError(f"{key.strip()} stands there twice")
        grid[key.strip()] = [parse_value(item) for item in items]
    return grid


def parse_value(word: str) -> Value:
    """Return a whole number, true or false, or the word itself."""
    if word in ("true", "false"):
        return word == "true"
    try:
        return int(word)
    except ValueError:
        return word


def from_file(path: Path, op: str, usual: Parameters) -> list[Configuration]:
    """Return the configurations of an operator in a TOML file.

    ``[conv2d.grid]`` has lists, all of whose combinations count; each ``[[conv2d.list]]`` is one configuration.

    Args:
        path: the file.
        op: the operator.
        usual: values of keys that are not in the file.

    Raises:
        UserError: with the file, and the line where it is not TOML.
    """
    document = read_toml(path)
    for name, table in document.items():
        if name not in EVERY:
            raise UserError(f"{path}: [{name}] is not an operator; memtui bench list names them")
        unknown = sorted(set(table) - {"grid", "list"}) if isinstance(table, dict) else [str(table)]
        if unknown:
            raise UserError(f"{path}: [{name}] has grid and list, not {', '.join(unknown)}")
    if op not in document:
        raise UserError(f"{path}: there is no [{op}.grid] and no [[{op}.list]]")
    table = document[op]
    try:
        configurations = [make(op, {**usual, **_table(each)}) for each in _tables(table.get("list", []))]
        if "grid" in table:
            lists = {k: v if isinstance(v, list) else [v] for k, v in _table(table["grid"]).items()}
            configurations += product(op, lists, usual)
    except ValueError as error:
        raise UserError(f"{path}: [{op}]: {error}") from None
    return unique(configurations)


def _tables(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("list is written [[...]]")
    return value


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a table of keys and values was expected")
    return value


def arguments_of(values: Parameters) -> str:
    """Return ``k=v k=v``, as on the command line."""
    return " ".join(f"{key}={written(value)}" for key, value in values.items())


def written(value: object) -> str:
    """Return a value as on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
