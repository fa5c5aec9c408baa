"""Read a pickle that consists of data only: dict, list, tuple, str, int, float, bool, None.

Python's own unpickler is a machine that may import and call anything. This unpickler implements the instructions that
create data, and no other: instructions that name a class, build an object or load external objects are unknown to it.
(The hook ``find_class`` would keep classes out, too, but the unpickler in C also allocates a memo of any size that a
file names, and the unpickler in Python takes three times as long.)
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

from memtui.formats.imported import NotImportable

_MOST_INTEGER_BYTES = 16
_FLOAT = struct.Struct(">d")
# Compared again and again, so they are numbers in names of this module and not attributes of another one.
_BINGET, _LONG_BINGET, _BINPUT, _LONG_BINPUT = b"hjqr"
_MARK, _SETITEMS, _SETITEM, _APPENDS, _APPEND, _STOP = b"(usea."
_DICT, _LIST, _TUPLE, _TUPLE_OF_MARK, _BINFLOAT = b"}])tG"
(_MEMOIZE,), (_LONG1,) = pickle.MEMOIZE, pickle.LONG1
_CONSTANTS = {pickle.NONE[0]: None, pickle.NEWTRUE[0]: True, pickle.NEWFALSE[0]: False}
_TEXT_LENGTHS = {pickle.SHORT_BINUNICODE[0]: 1, pickle.BINUNICODE[0]: 4, pickle.BINUNICODE8[0]: 8}  # bytes of them
_INTEGERS = {pickle.BININT1[0]: (1, False), pickle.BININT2[0]: (2, False), pickle.BININT[0]: (4, True)}  # bytes, signed
_LENGTHS = {pickle.TUPLE1[0]: 1, pickle.TUPLE2[0]: 2, pickle.TUPLE3[0]: 3}
_SKIPPED = {pickle.FRAME[0]: 8, pickle.PROTO[0]: 1}  # bytes of arguments that are ignored
_INDEX_BYTES = {_BINPUT: 1, _LONG_BINPUT: 4}  # of the index in the memo that stores the top of the stack

_Stack = list[Any]
_Memo = dict[int, Any]
_Handler = Callable[[bytes, int, _Stack, _Memo], int]  # (pickle, position after the opcode, ...) -> next position


def load_pickle(data: bytes) -> Any:
    """Return the object in a pickle. Raises NotImportable: the pickle is damaged, or contains more than data."""
    try:
        return _run(data)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise NotImportable(f"is a damaged pickle: {type(error).__name__}") from None
    except MemoryError:
        raise NotImportable("is a pickle of more data than there is memory for") from None


def _run(data: bytes) -> Any:
    """Execute the instructions. The most frequent ones are inlined here to save a call."""
    stack: _Stack = []
    below: list[_Stack] = []  # stacks under a mark
    memo: _Memo = {}
    position = 0
    while (code := data[position]) != _STOP:
        position += 1
        if code == _BINGET:
            stack.append(memo[data[position]])
            position += 1
        elif code in _INTEGERS:
            size, signed = _INTEGERS[code]
            stack.append(int.from_bytes(data[position : position + size], "little", signed=signed))
            position += size
        elif code == _MEMOIZE:
            memo[len(memo)] = stack[-1]
        elif code == _MARK:
            below.append(stack)
            stack = []
        elif code == _LONG_BINGET:
            stack.append(memo[int.from_bytes(data[position : position + 4], "little")])
            position += 4
        elif code == _DICT:
            stack.append({})
        elif code in _OF_MARK:
            values, stack = stack, below.pop()
            _OF_MARK[code](stack, values)
        else:
            position = _OTHERS.get(code, _refuse)(data, position, stack, memo)
    return stack.pop()


# Instructions that take all values above the last mark: (stack under it, values above it).
def _set_items(stack: _Stack, values: _Stack) -> None:
    _mapping(stack[-1]).update(zip(values[::2], values[1::2], strict=True))


def _extend(stack: _Stack, values: _Stack) -> None:
    _sequence(stack[-1]).extend(values)


def _push_tuple(stack: _Stack, values: _Stack) -> None:
    stack.append(tuple(values))


_OF_MARK = {_SETITEMS: _set_items, _APPENDS: _extend, _TUPLE_OF_MARK: _push_tuple}


def _refuse(data: bytes, position: int, stack: _Stack, memo: _Memo) -> int:
    raise NotImportable("is a pickle of more than data, such as a class or an object: nothing of it was run")


def _push_long(data: bytes, position: int, stack: _Stack, memo: _Memo) -> int:
    size = data[position]
    if size > _MOST_INTEGER_BYTES:
        raise ValueError("an integer is too large")
    stack.append(int.from_bytes(data[position + 1 : position + 1 + size], "little", signed=True))
    return position + 1 + size


def _push_float(data: bytes, position: int, stack: _Stack, memo: _Memo) -> int:
    stack.append(_FLOAT.unpack_from(data, position)[0])
    return position + _FLOAT.size


def _set_item(data: bytes, position: int, stack: _Stack, memo: _Memo) -> int:
    value, key = stack.pop(), stack.pop()
    _mapping(stack[-1])[key] = value
    return position


def _append(data: bytes, position: int, stack: _Stack, memo: _Memo) -> int:
    value = stack.pop()
    _sequence(stack[-1]).append(value)
    return position


def _push_list(data: bytes, position: int, stack: _Stack, memo: _Memo) -> int:
    stack.append([])
    return position


def _text_pusher(length_bytes: int) -> _Handler:
    def push(data: bytes, position: int, stack: _Stack, memo: _Memo) -> int:
        start = position + length_bytes
        size = int.from_bytes(data[position:start], "little")
        raw = data[start : start + size]
        if len(raw) < size:
            raise IndexError
        stack.append(raw.decode("utf-8", "surrogatepass"))
        return start + size

    return push


def _constant_pusher(value: bool | tuple[()] | None) -> _Handler:
    def push(data: bytes, position: int, stack: _Stack, memo: _Memo) -> int:
        stack.append(value)
        return position

    return push


def _tuple_pusher(length: int) -> _Handler:
    def push(data: bytes, position: int, stack: _Stack, memo: _Memo) -> int:
        values = [stack.pop() for _ in range(length)]
        stack.append(tuple(reversed(values)))
        return position

    return push


def _memo_writer(index_bytes: int) -> _Handler:
    def write(data: bytes, position: int, stack: _Stack, memo: _Memo) -> int:
        end = position + index_bytes
        memo[int.from_bytes(data[position:end], "little")] = stack[-1]
        return end

    return write


def _skipper(size: int) -> _Handler:
    return lambda data, position, stack, memo: position + size


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
