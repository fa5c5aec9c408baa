"""Dataclasses as the dicts of ``--json``: the one place where fields become keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def fields_as_dict(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by their names, each as a JSON value."""
    return {field.name: json_value(getattr(record, field.name)) for field in fields(record)}


def json_value(value: Any) -> Any:
    """Return a value with dicts and lists in place of dataclasses and tuples.

    A class whose keys are not its fields has a ``to_dict()`` of its own.
    """
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return fields_as_dict(value)
    if isinstance(value, Mapping):
        return {key: json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return value
