"""Reads a pickle that is data and nothing else: dict, list, tuple, str, int, float, bool, None.

Python's own unpickler is a machine that may import and call anything. This one knows the instructions that make data,
and no other: what names a class, builds an object or asks for help from outside is a number without a meaning to it.
(The hook ``find_class`` would keep classes out, too, but the unpickler in C also makes room for any number of kept
values that a file names, and the one in Python takes three times as long.)
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
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
_INDEX_BYTES = {_BINPUT: 1, _LONG_BINPUT: 4}  # of the place in the memo that the top of the stack goes to

_Stack = list[Any]
_Memo = dict[int, Any]
_Handler = Callable[[bytes, int, _Stack, _Memo], int]  # (pickle, where it goes on, ...) -> where it goes on then


def load_plain(data: bytes) -> Any:
    """Return what is in the pickle. Raises NotImportable: it is damaged, or wants more than to be data."""
    try:
        return _run(data)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise NotImportable(f"is a damaged pickle: {type(error).__name__}") from None
    except MemoryError:
        raise NotImportable("is a pickle of more data than there is memory for") from None


def _run(data: bytes) -> Any:
    """Carry out the instructions. Those that come most often are here and need no call."""
    stack: _Stack = []
    below: list[_Stack] = []  # stacks under a mark
    memo: _Memo = {}
    at = 0
    while (code := data[at]) != _STOP:
        at += 1
        if code == _BINGET:
            stack.append(memo[data[at]])
            at += 1
        elif code in _INTEGERS:
            size, signed = _INTEGERS[code]
            stack.append(int.from_bytes(data[at : at + size], "little", signed=signed))
            at += size
        elif code == _MEMOIZE:
            memo[len(memo)] = stack[-1]
        elif code == _MARK:
            below.append(stack)
            stack = []
        elif code == _LONG_BINGET:
            stack.append(memo[int.from_bytes(data[at : at + 4], "little")])
            at += 4
        elif code == _DICT:
            stack.append({})
        elif code in _OF_MARK:
            values, stack = stack, below.pop()
            _OF_MARK[code](stack, values)
        else:
            at = _OTHERS.get(code, _refuse)(data, at, stack, memo)
    return stack.pop()


# Instructions that take all values above the last mark: (stack under it, values above it).
def _set_items(stack: _Stack, values: _Stack) -> None:
    _mapping(stack[-1]).update(zip(values[::2], values[1::2], strict=True))


def _extend(stack: _Stack, values: _Stack) -> None:
    _sequence(stack[-1]).extend(values)


def _push_tuple(stack: _Stack, values: _Stack) -> None:
    stack.append(tuple(values))


_OF_MARK = {_SETITEMS: _set_items, _APPENDS: _extend, _TUPLE_OF_MARK: _push_tuple}


def _refuse(data: bytes, at: int, stack: _Stack, memo: _Memo) -> int:
    raise NotImportable("is a pickle of more than data, such as a class or an object: nothing of it was run")


def _push_long(data: bytes, at: int, stack: _Stack, memo: _Memo) -> int:
    size = data[at]
    if size > _MOST_INTEGER_BYTES:
        raise ValueError("an integer is too large")
    stack.append(int.from_bytes(data[at + 1 : at + 1 + size], "little", signed=True))
    return at + 1 + size


def _push_float(data: bytes, at: int, stack: _Stack, memo: _Memo) -> int:
    stack.append(_FLOAT.unpack_from(data, at)[0])
    return at + _FLOAT.size


def _set_item(data: bytes, at: int, stack: _Stack, memo: _Memo) -> int:
    value, key = stack.pop(), stack.pop()
    _mapping(stack[-1])[key] = value
    return at


def _append(data: bytes, at: int, stack: _Stack, memo: _Memo) -> int:
    value = stack.pop()
    _sequence(stack[-1]).append(value)
    return at


def _push_list(data: bytes, at: int, stack: _Stack, memo: _Memo) -> int:
    stack.append([])
    return at


def _text_pusher(length_bytes: int) -> _Handler:
    def push(data: bytes, at: int, stack: _Stack, memo: _Memo) -> int:
        begin = at + length_bytes
        size = int.from_bytes(data[at:begin], "little")
        raw = data[begin : begin + size]
        if len(raw) < size:
            raise IndexError
        stack.append(raw.decode("utf-8", "surrogatepass"))
        return begin + size

    return push


def _constant_pusher(value: bool | tuple[()] | None) -> _Handler:
    def push(data: bytes, at: int, stack: _Stack, memo: _Memo) -> int:
        stack.append(value)
        return at

    return push


def _tuple_pusher(length: int) -> _Handler:
    def push(data: bytes, at: int, stack: _Stack, memo: _Memo) -> int:
        values = [stack.pop() for _ in range(length)]
        stack.append(tuple(reversed(values)))
        return at

    return push


def _memo_writer(index_bytes: int) -> _Handler:
    def write(data: bytes, at: int, stack: _Stack, memo: _Memo) -> int:
        end = at + index_bytes
        memo[int.from_bytes(data[at:end], "little")] = stack[-1]
        return end

    return write


def _skipper(size: int) -> _Handler:
    return lambda data, at, stack, memo: at + size


_OTHERS: dict[int, _Handler] = {
    _LONG1: _push_long,
    _BINFLOAT: _push_float,
    _SETITEM: _set_item,
    _APPEND: _append,
    _LIST: _push_list,
    _TUPLE: _constant_pusher(()),
    **{code: _text_pusher(length_bytes) for code, length_bytes in _TEXT_LENGTHS.items()},
    **{code: _constant_pusher(value) for code, value in _CONSTANTS.items()},
    **{code: _tuple_pusher(length) for code, length in _LENGTHS.items()},
    **{code: _memo_writer(index_bytes) for code, index_bytes in _INDEX_BYTES.items()},
    **{code: _skipper(size) for code, size in _SKIPPED.items()},
}


def _mapping(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise TypeError
    return value


def _sequence(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError
    return value
