"""Networks as functions in a Python file, as in ZPP-MEM: ``name(output_size) -> [layers]``.

The file is the user's program, so it runs in a process of its own, which has this one's rights (the user's, also under
sudo): ``python -m memtui.training.user_networks FILE OUTPUTS NAME`` prints its layers as JSON. The names of layers
(``FullyConnected(100, flatten=True)``) are predefined in the file.
"""

from __future__ import annotations

import inspect
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memtui.core.errors import UserError
from memtui.core.small_file import MOST_PROGRAM_BYTES, check_readable
from memtui.core.text import nearest
from memtui.training.network_specs import ALSO_CALLED, LAYERS, LayerSpec

_MOST_S = 30.0


def names_in(path: Path) -> list[str]:
    """Return the functions of a file that could be networks. Raises UserError: the file cannot be run."""
    return _run(path).names


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
        layers: result of the function of the given name, not validated; None without a name.
        error: why the file could not be run; "" where it ran.
    """

    names: list[str] = field(default_factory=list)
    layers: Any = None
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"names": self.names, "layers": self.layers, "error": self.error}


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


def _main(path: str, outputs: str = "", name: str = "") -> _Answer:
    """Run a file in this process, and its function of the given name, if a name is given."""
    layers = {name: _constructor(name) for name in LAYERS}
    layers |= {also: layers[name] for also, name in ALSO_CALLED.items()}
    try:
        variables = runpy.run_path(path, init_globals=dict(layers))
        own = {key: value for key, value in variables.items() if inspect.isfunction(value) and key not in layers}
        names = [key for key, value in own.items() if not key.startswith("_") and value.__module__ == "<run_path>"]
        returned = own[name](int(outputs)) if name in names else None
        json.dumps(returned)
    except Exception as error:
        return _Answer(error=f"{type(error).__name__}: {error}")
    return _Answer(names, returned)


if __name__ == "__main__":
    print("\n" + json.dumps(_main(*sys.argv[1:]).to_dict()))
