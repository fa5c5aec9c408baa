"""A grid of trainings: every combination of the values of its axes, the first axis slowest."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from memtui.core.errors import UserError
from memtui.core.files import read_toml
from memtui.training.settings import KEYS, Settings, check_keys, check_networks, settings_of

NAME = "name"  # the axis that chooses the network; every other axis is a setting
MANY = 10_000  # runs: a grid with more runs is a mistake
_HOW = "a grid has lists of values: batch_size = [50, 100]"


@dataclass(frozen=True)
class Grid:
    """The runs of a grid. Values are text, as on the command line of a run.

    Attributes:
        axes: (key, values), the slowest first.
        network: network of all runs; "" where an axis chooses it.
        settings: settings of all runs.
        networks: the user's networks, by name, with ``extends``.
    """

    axes: tuple[tuple[str, tuple[str, ...]], ...]
    network: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def points(self) -> tuple[GridPoint, ...]:
        """All runs of the grid, in order."""
        keys = [key for key, _ in self.axes]
        points = []
        for values in itertools.product(*(values for _, values in self.axes)):
            changes = dict(zip(keys, values, strict=True))
            network = changes.pop(NAME, self.network)
            points.append(GridPoint(network, {**self.settings, **changes}, values))
        return tuple(points)

    def settings_at(self, point: GridPoint) -> Settings:
        """Return the settings of one run. Raises UserError."""
        return settings_of(point.network, point.settings, self.networks)

    def check(self) -> None:
        """Raise UserError for a grid that is not a product, and for the first run with invalid settings."""
        _check_axes(self)
        for point in self.points:
            try:
                self.settings_at(point)
            except UserError as error:
                raise UserError(str(error) if len(self.points) == 1 else f"{self.label(point)}: {error}") from None
        self._check_twice()

    def _check_twice(self) -> None:
        """Raise UserError for two spellings of one value, which would run the same training twice."""
        point = self.points[0]
        for key, values in self.axes:
            seen: dict[str, str] = {}
            for value in values if key != NAME else ():
                settings = settings_of(point.network, {**point.settings, key: value}, self.networks)
                spelled = repr(getattr(settings, key))
                if spelled in seen:
                    raise UserError(f"{key}: {seen[spelled]} and {value} are the same value")
                seen[spelled] = value

    def label(self, point: GridPoint) -> str:
        """Return the values of a run for people: ``fcReLu type=BP batch_size=50``."""
        pairs = zip(self.axes, point.values, strict=True)
        return " ".join(value if key == NAME else f"{key}={value}" for (key, _), value in pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready object."""
        return {
            "axes": [[key, list(values)] for key, values in self.axes],
            "network": self.network,
            "settings": dict(self.settings),
            "networks": {name: dict(table) for name, table in self.networks.items()},
        }

    @property
    def text(self) -> str:
        """Canonical text, equal for equal grids."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class GridPoint:
    """One run: its network, its settings as text, and its value on each axis."""

    network: str
    settings: Mapping[str, str]
    values: tuple[str, ...]


def from_dict(document: Any) -> Grid:
    """Invert ``Grid.to_dict``. Raises UserError for anything else."""
    try:
        axes = tuple((key, tuple(values)) for key, values in document["axes"])
        check_networks(document["networks"], "networks")
        grid = Grid(axes, document["network"], document["settings"], document["networks"])
        texts = [grid.network, *grid.settings, *grid.settings.values(), *(v for key, vs in axes for v in (key, *vs))]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError("is not a grid of memtui tune") from None
    grid.check()
    return grid


def from_options(
    axes: Iterable[str], network: str, settings: Mapping[str, str], networks: Mapping[str, Mapping[str, Any]]
) -> Grid:
    """Parse ``key=value,value`` of the command line. Raises UserError."""
    pairs = []
    for text in axes:
        key, equals, values = text.partition("=")
        items = tuple(item.strip() for item in values.split(","))
        if not equals or not key.strip() or not all(items):
            raise UserError(f"{text!r} is not of the form key=value,value")
        pairs.append((key.strip(), items))
    grid = Grid(tuple(pairs), network, settings, _json_copy(networks, "a network"))
    grid.check()
    return grid


def from_file(path: Path, network: str, settings: Mapping[str, str], networks: Mapping[str, Mapping[str, Any]]) -> Grid:
    """Read a TOML file: ``[grid]`` with a list for each axis, settings of all runs before it, ``[networks.NAME]``.

    Args:
        path: the file.
        network: network of all runs; "" where the file names it.
        settings: settings of the command line, which override those of the file.
        networks: more networks; those of the file override them.

    Raises:
        UserError: with the file, and the line where it is not TOML.
    """
    document = read_toml(path)
    lists, own = document.pop("grid", None), document.pop("networks", {})
    try:
        if not isinstance(lists, dict):
            raise UserError("there is no [grid]; " + _HOW)
        if not isinstance(own, dict):
            raise UserError("a network is written [networks.name], its settings below it")
        check_networks(own, "networks")
        _check_lists(lists)
        if tables := [key for key, value in document.items() if isinstance(value, dict)]:
            raise UserError(f"[{tables[0]}] has no meaning; there are [grid] and [networks.NAME]")
        fixed = {key: _text(key, value) for key, value in document.items()}
        network = network or fixed.pop(NAME, "")
        fixed.pop(NAME, None)
        axes = tuple((key, tuple(_text(key, value) for value in values)) for key, values in lists.items())
        grid = Grid(axes, network, {**fixed, **settings}, _json_copy({**networks, **own}, "a network"))
        grid.check()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return grid


def _check_lists(lists: Mapping[str, Any]) -> None:
    """Raise UserError for an axis that is not a list of single values."""
    for key, values in lists.items():
        if isinstance(values, dict):
            raise UserError(f"[grid] {key} is a table; {_HOW}")
        if not isinstance(values, list):
            raise UserError(f"[grid] {key} is not a list; for one value of all runs write it before [grid]")
        if any(isinstance(value, list | dict) for value in values):
            hint = "; it is written '10:30,20:50'" if key == "minimum_accuracy" else ""
            raise UserError(f"[grid] {key} has a list in its list, which is not a product{hint}")


def _check_axes(grid: Grid) -> None:
    """Raise UserError unless the axes span a valid product."""
    keys = [key for key, _ in grid.axes]
    if not keys:
        raise UserError("the grid has no axis, so no run; " + _HOW)
    check_keys(keys, "a training", (NAME,))
    check_keys(grid.settings, "a training")
    _check_values(grid)
    _check_network(grid)
    count = math.prod(len(values) for _, values in grid.axes)
    if count > MANY:
        raise UserError(f"{count} runs are more than {MANY}")


def _check_values(grid: Grid) -> None:
    """Raise UserError for an axis that is given twice, or values that no run can have."""
    keys = [key for key, _ in grid.axes]
    for key, values in grid.axes:
        if keys.count(key) > 1:
            raise UserError(f"the axis {key} stands there twice")
        if not values:
            raise UserError(f"{key} has no value, so there is no run; {_HOW}")
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise UserError(f"{key} has the value {twice} twice")
        if key in grid.settings:
            raise UserError(f"{key} is an axis, and is set for all runs as well: one of them")
    if any("\0" in text for text in (*grid.settings.values(), *(v for _, values in grid.axes for v in values))):
        raise UserError("a value cannot hold a NUL character")


def _check_network(grid: Grid) -> None:
    """Raise UserError unless either the grid or an axis says which network is trained."""
    if any(key == NAME for key, _ in grid.axes) == bool(grid.network):
        both = f"NETWORK ({grid.network}) and the axis name both say which network: one of them"
        raise UserError(both if grid.network else "which network? name one, or give an axis: name=fcReLu,long_fc")
    networks = [grid.network, *(value for key, values in grid.axes if key == NAME for value in values)]
    if dashed := [name for name in networks if name.startswith("-")]:
        raise UserError(f"{dashed[0]} is an option, and no network")


def _text(key: str, value: Any) -> str:
    """Return a value as text for the command line of a run. Raises UserError."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if key == "minimum_accuracy" and _are_pairs(value):
        return ",".join(f"{epoch}:{percent}" for epoch, percent in value)
    where = "; written out, it belongs into a [networks.NAME]" if key == "sequence" else ""
    hint = "" if key in (*KEYS, NAME) else f": a training has no setting {key}"
    raise UserError(f"{key} cannot be {value!r}{hint}{where}")


def _are_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(pair, Sequence) and len(pair) == 2 for pair in value)


def _json_copy(networks: Mapping[str, Mapping[str, Any]], where: str) -> dict[str, Any]:
    """Return a copy of the networks through JSON. Raises UserError: a date is not a setting, and JSON has no dates."""
    try:
        return dict(json.loads(json.dumps(networks, allow_nan=False)))
    except (TypeError, ValueError):
        raise UserError(f"{where} has a date, or a number that is not finite") from None
