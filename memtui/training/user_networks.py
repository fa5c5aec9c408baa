"""Networks as functions in a Python file, as ZPP-MEM has them: ``name(output_size) -> [layers]``.

The file is the user's program, so it runs in a process of its own, which has this one's rights (the user's, also under
sudo): ``python -m memtui.training.user_networks FILE OUTPUTS NAME`` prints its layers as JSON. In it the names of
layers (``FullyConnected(100, flatten=True)``) are there already.
"""

from __future__ import annotations

import inspect
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memtui.core.errors import UserError
from memtui.core.small_file import MOST_PROGRAM_BYTES, check_readable
from memtui.core.text import nearest
from memtui.training.network_specs import ALSO_CALLED, LAYERS

_MOST_S = 30.0


def names_in(path: Path) -> list[str]:
    """Return the functions of a file that could be networks. Raises UserError: it cannot be run."""
    return _asked(path)["names"]


def sequence_in(path: Path, name: str, outputs: int) -> list[dict[str, Any]]:
    """Return what such a function returns, for so many classes. Raises UserError: there is none, or it fails."""
    found = _asked(path, str(outputs), name)
    if name not in found["names"]:
        raise UserError(f"{path} has no function {name}; {nearest(name, found['names'] or ('none',))}")
    return found["layers"]


def _asked(path: Path, *words: str) -> dict[str, Any]:
    check_readable(path, MOST_PROGRAM_BYTES)
    command = [sys.executable, "-P", "-m", "memtui.training.user_networks", str(path), *words]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_MOST_S)
    except subprocess.TimeoutExpired:
        raise UserError(f"{path}: did not end within {_MOST_S:.0f} s") from None
    lines = done.stdout.decode(errors="replace").splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(f"{path}: {said[-1] if said else 'ended without a word'}") from None
    if "error" in found:
        raise UserError(f"{path}: {found['error']}")
    return dict(found)


def _constructor(name: str) -> Callable[..., dict[str, Any]]:
    parameters = list(LAYERS[name])

    def made(*values: Any, **named: Any) -> dict[str, Any]:
        if len(values) > len(parameters):
            raise TypeError(f"{name} takes at most {len(parameters)} values: {', '.join(parameters) or 'none'}")
        return {"layer": name, **dict(zip(parameters, values, strict=False)), **named}

    return made


def _main(path: str, outputs: str = "", name: str = "") -> dict[str, Any]:
    layers = {known: _constructor(known) for known in LAYERS}
    layers |= {also: layers[known] for also, known in ALSO_CALLED.items()}
    try:
        found = runpy.run_path(path, init_globals=dict(layers))
        own = {key: value for key, value in found.items() if inspect.isfunction(value) and key not in layers}
        names = [key for key, value in own.items() if not key.startswith("_") and value.__module__ == "<run_path>"]
        made = own[name](int(outputs)) if name in names else None
        json.dumps(made)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"names": names, "layers": made}


if __name__ == "__main__":
    print("\n" + json.dumps(_main(*sys.argv[1:])))
