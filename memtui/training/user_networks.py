"""Networks in a Python file, as in ZPP-MEM: functions ``name(output_size) -> [layers]``, and tables of settings.

The file is the user's program, so it runs in a process of its own, which has this one's rights (the user's, also under
sudo): ``python -m memtui.training.user_networks FILE OUTPUTS NAME`` prints its layers as JSON. The names of layers
(``FullyConnected(100, flatten=True)``) are predefined in the file; ``from layer import *`` of ZPP-MEM gives the same
ones, and ``from definition.resnet import *`` the files beside it. A table may name functions of
``sequence_definitions.py`` beside its file.
"""

from __future__ import annotations

import inspect
import json
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from memtui.core.errors import UserError
from memtui.core.small_file import MOST_PROGRAM_BYTES, check_readable
from memtui.core.text import nearest
from memtui.training.network_specs import ALSO_CALLED, LAYERS, SEQUENCES, LayerSpec
from memtui.training.settings import KEYS

SEQUENCES_FILE = "sequence_definitions.py"
# Of ZPP-MEM's own classes, which a file imports from ``layer``: defaults, and names of parameters, that differ.
_ORIGINAL_DEFAULTS: dict[str, LayerSpec] = {
    "BatchNormalization": {"momentum": 0.99},
    "MaxPool": {"padding": "VALID"},
    "AveragePool": {"padding": "VALID"},
}
_ORIGINAL_NAMES = {"output_dim": "units", "alpha": "slope"}
_CHANNELS = -1  # the one axis of BatchNormalization that there is
_MOST_S = 30.0


@dataclass(frozen=True, slots=True)
class Definitions:
    """What a file defines.

    Attributes:
        functions: those that could be networks, with the file of each.
        networks: tables of settings, by name, with the keys that a training has.
        ignored: by table the other keys.
    """

    functions: dict[str, Path]
    networks: dict[str, dict[str, Any]]
    ignored: dict[str, list[str]]


def definitions_in(path: Path) -> Definitions:
    """Return what a file defines, and what it needs of the file of sequences beside it.

    Raises UserError: a file cannot be run.
    """
    answer = _run(path)
    functions = dict.fromkeys(answer.names, path)
    sequences = path.with_name(SEQUENCES_FILE)
    wanted = {table.get("sequence") for table in answer.networks.values()}
    if wanted - {*functions, *SEQUENCES, None} and sequences.exists() and not sequences.samefile(path):
        functions = dict.fromkeys(_run(sequences).names, sequences) | functions
    networks = {
        name: {key: value for key, value in table.items() if key in KEYS} for name, table in answer.networks.items()
    }
    ignored = {name: [key for key in table if key not in KEYS] for name, table in answer.networks.items()}
    return Definitions(functions, networks, ignored)


def sequence_in(path: Path, name: str, outputs: int) -> Any:
    """Return the result of a function of a file for ``outputs`` classes. Raises UserError: it is missing, or fails."""
    answer = _run(path, str(outputs), name)
    if name not in answer.names:
        raise UserError(f"{path} has no function {name}; {nearest(name, answer.names or ('none',))}")
    return answer.layers


@dataclass(frozen=True, slots=True)
class _Answer:
    """Output of the process that runs a file.

    Attributes:
        names: functions that could be networks.
        networks: tables of settings, not validated.
        layers: result of the function of the given name, not validated; None without a name.
        error: why the file could not be run; "" where it ran.
    """

    names: list[str] = field(default_factory=list)
    networks: dict[str, dict[str, Any]] = field(default_factory=dict)
    layers: Any = None
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"names": self.names, "networks": self.networks, "layers": self.layers, "error": self.error}


def _run(path: Path, *arguments: str) -> _Answer:
    """Run a file in a process of its own. Raises UserError."""
    check_readable(path, MOST_PROGRAM_BYTES)
    command = [sys.executable, "-P", "-m", "memtui.training.user_networks", str(path), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_MOST_S)
    except subprocess.TimeoutExpired:
        raise UserError(f"{path}: did not end within {_MOST_S:.0f} s") from None
    lines = done.stdout.decode(errors="replace").splitlines()
    try:
        answer = _Answer(**json.loads(lines[-1]))
    except (IndexError, ValueError, TypeError):
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(f"{path}: {errors[-1] if errors else 'ended without a word'}") from None
    if answer.error:
        raise UserError(f"{path}: {answer.error}")
    return answer


def _constructor(name: str) -> Callable[..., LayerSpec]:
    parameters = list(LAYERS[name])

    def layer(*values: Any, **named: Any) -> LayerSpec:
        if len(values) > len(parameters):
            raise TypeError(f"{name} takes at most {len(parameters)} values: {', '.join(parameters) or 'none'}")
        return {"layer": name, **dict(zip(parameters, values, strict=False)), **named}

    return layer


def _original(name: str, layer: Callable[..., LayerSpec]) -> Callable[..., LayerSpec]:
    """Return what takes the parameters of ZPP-MEM's class of this name, and has its defaults."""

    def original(*values: Any, **named: Any) -> LayerSpec:
        named = {_ORIGINAL_NAMES.get(key, key): value for key, value in named.items() if key != "scope"}
        if name == "BatchNormalization":
            axis, values = (values[0], values[1:]) if values else (named.pop("axis", _CHANNELS), values)
            if axis != _CHANNELS:
                raise ValueError(f"BatchNormalization is over channels, axis={_CHANNELS}, and not axis={axis}")
        if name == "Block" and len(values) == 1 and isinstance(values[0], (list, tuple)) and values[0]:
            values = (values[0][0], values[0][1:])
        return {**_ORIGINAL_DEFAULTS.get(name, {}), **layer(*values, **named)}

    return original


def _main(path: str, outputs: str = "", name: str = "") -> _Answer:
    """Run a file in this process, and its function of the given name, if a name is given."""
    layers = {name: _constructor(name) for name in LAYERS}
    layers |= {also: layers[name] for also, name in ALSO_CALLED.items()}
    _make_importable({key: _original(ALSO_CALLED.get(key, key), layer) for key, layer in layers.items()})
    folder = Path(path).resolve().parent
    sys.path[:0] = [str(folder), str(folder.parent)]  # "from definition.resnet import *", from within definition/
    try:
        variables = runpy.run_path(path, init_globals=dict(layers))
        own = {key: value for key, value in variables.items() if inspect.isfunction(value) and key not in layers}
        names = [key for key, value in own.items() if not key.startswith("_") and value.__module__ == "<run_path>"]
        returned = own[name](int(outputs)) if name in names else None
        networks = {key: json.loads(json.dumps(v, default=_literal)) for key, v in variables.items() if _is_network(v)}
        json.dumps(returned)
    except Exception as error:
        return _Answer(error=f"{type(error).__name__}: {error}")
    return _Answer(names, networks, returned)


def _make_importable(layers: Mapping[str, Callable[..., LayerSpec]]) -> None:
    """Put the names of layers where ZPP-MEM has its classes: ``layer`` and its parts, which need TensorFlow."""
    for name in ("layer", "layer.activation", "layer.util_layer", "layer.weight_layer"):
        module = ModuleType(name)
        module.__dict__.update(layers)
        sys.modules[name] = module


def _is_network(value: Any) -> bool:
    """Whether a variable is a table of settings: every one of ZPP-MEM names its sequence of layers."""
    return isinstance(value, dict) and "sequence" in value and all(isinstance(key, str) for key in value)


def _literal(value: Any) -> Any:
    """Return a number of numpy as one of Python: a seed is one."""
    return value.item()


if __name__ == "__main__":
    print("\n" + json.dumps(_main(*sys.argv[1:]).to_dict()))
