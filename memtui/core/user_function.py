"""Loads a function of a user's Python file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from memtui.core.text import nearest


class NoFunction(Exception):
    """The file has no such function; the message says so in one line."""


def load_function(path: Path, function: str, module_name: str) -> Callable[..., Any]:
    """Run a file as a module, with its folder on the module path, and return a function of it.

    Raises NoFunction, and what the file raises.
    """
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise NoFunction(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    loaded = getattr(module, function, None)
    if not callable(loaded):
        raise NoFunction(f"{path} has no function {function}; {_suggestion(function, module)}")
    return loaded


def _suggestion(function: str, module: ModuleType) -> str:
    """Return a suggestion: the functions of a file with a similar name."""
    own = [name for name, value in vars(module).items() if isinstance(value, FunctionType) and name[:1] != "_"]
    own = [name for name in own if getattr(module, name).__module__ == module.__name__]
    return nearest(function, own) if own else "it has none"
