"""Reads a pickle that is data and nothing else: dict, list, tuple, str, int, float, bool, None.

Python's own unpickler is a machine that may import and call anything. This one knows the instructions that make data,
and no other: what names a class, builds an object or asks for help from outside is a number without a meaning to it.
(The hook ``find_class`` would keep classes out, too, but the unpickler in C also makes room for any number of kept
values that a file names, and the one in Python takes three times as long.)
"""

from __future__ import annotations

import pickle
import struct
from typing import Any

from memtui.formats.imported import NotImportable

_MOST_INTEGER_BYTES = 16
_FLOAT = struct.Struct(">d")
# Compared again and again, so numbers by names of the module and not of another one.
_BINGET, _LONG_BINGET, _BINPUT, _LONG_BINPUT = b"hjqr"
_MARK, _SETITEMS, _SETITEM, _APPENDS, _APPEND, _STOP = b"(usea."
_DICT, _LIST, _TUPLE, _TUPLE_OF_MARK, _BINFLOAT = b"}])tG"
(_MEMOIZE,), (_LONG1,) = pickle.MEMOIZE, pickle.LONG1
_CONSTANTS = {pickle.NONE[0]: None, pickle.NEWTRUE[0]: True, pickle.NEWFALSE[0]: False}
_TEXT_LENGTHS = {pickle.SHORT_BINUNICODE[0]: 1, pickle.BINUNICODE[0]: 4, pickle.BINUNICODE8[0]: 8}  # bytes of them
_INTEGERS = {pickle.BININT1[0]: (1, False), pickle.BININT2[0]: (2, False), pickle.BININT[0]: (4, True)}  # bytes, signed
_LENGTHS = {pickle.TUPLE1[0]: 1, pickle.TUPLE2[0]: 2, pickle.TUPLE3[0]: 3}
_SKIPPED = {pickle.FRAME[0]: 8, pickle.PROTO[0]: 1}  # bytes that mean nothing here


def load_plain(data: bytes) -> Any:
    """Return what is in the pickle. Raises NotImportable: it is damaged, or wants more than to be data."""
    try:
        return _run(data)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise NotImportable(f"is a damaged pickle: {type(error).__name__}") from None
    except MemoryError:
        raise NotImportable("is a pickle of more data than there is memory for") from None


def _run(data: bytes) -> Any:
    """Instructions are asked for in the order of how often they come."""
    stack: list[Any] = []
    below: list[list[Any]] = []  # stacks under a mark
    kept: dict[int, Any] = {}
    at = 0
    while True:
        code = data[at]
        at += 1
        if code == _BINGET:
            stack.append(kept[data[at]])
            at += 1
        elif code in _INTEGERS:
            size, signed = _INTEGERS[code]
            stack.append(int.from_bytes(data[at : at + size], "little", signed=signed))
            at += size
        elif code == _MEMOIZE:
            kept[len(kept)] = stack[-1]
        elif code == _MARK:
            below.append(stack)
            stack = []
        elif code == _SETITEMS:
            values, stack = stack, below.pop()
            _mapping(stack[-1]).update(zip(values[::2], values[1::2], strict=True))
        elif code == _LONG_BINGET:
            stack.append(kept[int.from_bytes(data[at : at + 4], "little")])
            at += 4
        elif code == _LONG1:
            size = data[at]
            if size > _MOST_INTEGER_BYTES:
                raise ValueError("an integer is too large")
            stack.append(int.from_bytes(data[at + 1 : at + 1 + size], "little", signed=True))
            at += 1 + size
        elif code == _DICT:
            stack.append({})
        elif code == _LIST:
            stack.append([])
        elif code == _APPENDS:
            values, stack = stack, below.pop()
            _sequence(stack[-1]).extend(values)
        elif code in _TEXT_LENGTHS:
            at += _TEXT_LENGTHS[code]
            size = int.from_bytes(data[at - _TEXT_LENGTHS[code] : at], "little")
            raw = data[at : at + size]
            if len(raw) < size:
                raise IndexError
            stack.append(raw.decode("utf-8", "surrogatepass"))
            at += size
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code == _BINFLOAT:
            stack.append(_FLOAT.unpack_from(data, at)[0])
            at += _FLOAT.size
        elif code in _SKIPPED:
            at += _SKIPPED[code]
        elif code == _SETITEM:
            value, key = stack.pop(), stack.pop()
            _mapping(stack[-1])[key] = value
        elif code == _APPEND:
            value = stack.pop()
            _sequence(stack[-1]).append(value)
        elif code == _TUPLE:
            stack.append(())
        elif code in _LENGTHS:
            values = [stack.pop() for _ in range(_LENGTHS[code])]
            stack.append(tuple(reversed(values)))
        elif code == _TUPLE_OF_MARK:
            values, stack = stack, below.pop()
            stack.append(tuple(values))
        elif code == _BINPUT:
            kept[data[at]] = stack[-1]
            at += 1
        elif code == _LONG_BINPUT:
            kept[int.from_bytes(data[at : at + 4], "little")] = stack[-1]
            at += 4
        elif code == _STOP:
            return stack.pop()
        else:
            raise NotImportable("is a pickle of more than data, such as a class or an object: nothing of it was run")


def _mapping(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise TypeError
    return value


def _sequence(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError
    return value
