"""Dataclasses as JSON data, and back: the one place where fields become keys.

A class whose keys are not its fields, or that checks more than types, has a ``to_dict`` and a ``from_dict`` of its own:
they are used wherever the class occurs. What tells the classes of a union apart is a field that no constructor takes,
``kind: str = field(default="x", init=False)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_Read = Callable[[Any], Any]
_SCALARS: dict[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int,), float: (float, int)}


def to_json(value: Any) -> Any:
    """Return a value with dicts and lists in place of dataclasses and tuples."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return fields_to_json(value)
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def fields_to_json(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by their names: ``to_json`` for a ``to_dict``."""
    return {field.name: to_json(getattr(record, field.name)) for field in fields(record)}


def from_json(kind: type[T], data: Any) -> T:
    """Undo ``to_json``, by the type hints of a dataclass; a field that is missing has its default.

    Raises:
        ValueError: the data does not fit; the message names the field.
    """
    value: T = _reader(kind)(data)
    return value


def from_json_union(kinds: Iterable[type[T]], data: Any) -> T:
    """Return the first of some dataclasses that the data fits. Raises ValueError."""
    value: T = _read_union(tuple(map(_reader, kinds)), data)
    return value


def fields_from_json(kind: type[T], data: Any) -> T:
    """Undo ``fields_to_json``: ``from_json`` for a ``from_dict``. Raises ValueError."""
    rest = dict(_checked(data, dict))
    values = {}
    for field, read in _field_readers(kind):
        name = field.name
        if not field.init:
            if rest.pop(name, None) != field.default:
                raise _Misfit(f"is not {field.default}", f".{name}", of_another=True)
        elif name in rest:
            values[name] = _read_at(f".{name}", read, rest.pop(name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _Misfit("is missing", f".{name}")
    if rest:
        raise _Misfit("is not known", f".{min(rest)}")
    return kind(**values)


class _Misfit(ValueError):
    """A value does not fit its type.

    Args:
        text: what is wrong, after the name of the field.
        path: where the value stands.
        of_another: the value is of another member of a union.
    """

    def __init__(self, text: str, path: str = "", *, of_another: bool = False) -> None:
        super().__init__(f"{path.lstrip('.') or 'the data'} {text}")
        self.text, self.path, self.of_another = text, path, of_another


def _field_readers_of(kind: Any) -> tuple[tuple[Field[Any], _Read], ...]:
    hints = get_type_hints(kind)
    return tuple((field, _reader(hints[field.name])) for field in fields(kind))


def _reader_of(hint: Any) -> _Read:
    """Return the function that reads values of a type. Raises TypeError for a type that no JSON data has."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _read_anything
    if hint is NoneType:
        return _read_none
    if hint in _SCALARS:
        return lambda data: _checked(data, *_SCALARS[hint])
    if origin in (Union, UnionType):
        return partial(_read_union, tuple(map(_reader, arguments)))
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return partial(_read_list, origin, _reader(arguments[0]))
    if origin is tuple:
        return partial(_read_tuple, tuple(map(_reader, arguments)))
    if origin in (dict, Mapping) and arguments[0] is str:
        return partial(_read_dict, _reader(arguments[1]))
    if hasattr(hint, "from_dict"):
        return lambda data: hint.from_dict(data)
    if is_dataclass(hint) and isinstance(hint, type):
        return partial(fields_from_json, hint)
    raise TypeError(f"no JSON data has the type {hint}")


_field_readers: Callable[[Any], tuple[tuple[Field[Any], _Read], ...]] = cache(_field_readers_of)
_reader: Callable[[Any], _Read] = cache(_reader_of)


def _read_anything(value: Any) -> Any:
    return value


def _read_none(value: Any) -> None:
    if value is not None:
        raise _Misfit("is not null", of_another=True)


def _checked(value: Any, *types: type) -> Any:
    """Return a value of exactly one of some types: a truth value is not a number."""
    if type(value) not in types:
        kind = "null" if value is None else type(value).__name__
        raise _Misfit(f"is {kind}, not {types[0].__name__}")
    return value


def _read_union(readers: tuple[_Read, ...], value: Any) -> Any:
    misfits = []
    for read in readers:
        try:
            return read(value)
        except _Misfit as misfit:
            misfits.append(misfit)
    its = [misfit for misfit in misfits if not misfit.of_another]
    if len(its) == 1:
        raise its[0]
    raise _Misfit("fits no type: " + "; ".join(dict.fromkeys(map(str, its or misfits))))


def _read_list(kind: type, read: _Read, value: Any) -> Any:
    return kind(_read_at(f"[{index}]", read, item) for index, item in enumerate(_checked(value, list)))


def _read_tuple(readers: tuple[_Read, ...], value: Any) -> tuple[Any, ...]:
    if len(_checked(value, list)) != len(readers):
        raise _Misfit(f"has {len(value)} items, not {len(readers)}")
    return tuple(_read_at(f"[{index}]", readers[index], item) for index, item in enumerate(value))


def _read_dict(read: _Read, value: Any) -> dict[str, Any]:
    return {key: _read_at(f".{key}", read, item) for key, item in _checked(value, dict).items()}


def _read_at(step: str, read: _Read, value: Any) -> Any:
    """Read what stands under a key or an index, and name that where it does not fit."""
    try:
        return read(value)
    except _Misfit as misfit:
        raise _Misfit(misfit.text, step + misfit.path) from None
