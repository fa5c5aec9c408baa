"""Read a pickle that consists of data only, as a stream: dict, list, tuple, str, int, float, bool, None.

Python's own unpickler is a machine that may import and call anything. This unpickler implements the instructions that
create data, and no other: instructions that name a class, build an object or load external objects are unknown to it.
(The hook ``find_class`` would keep classes out, too, but the unpickler in C also allocates a memo of any size that a
file names, and keeps every object to the end; the unpickler in Python takes three times as long.)

The elements of long lists can be taken away while the pickle is read, so that they are never in memory all at once.
Equal texts are one object, and so are lists that consist of the same references.
"""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from memtui.formats.imported import NotImportable
from memtui.formats.input_file import Input

_MOST_TEXT_BYTES = 64 << 20
_MOST_ON_STACK = 1 << 20  # values; Python puts a thousand at a time into a list
_MOST_IN_MEMO = 1 << 27  # more than 40 million events have
_KEYS = {str, int, float, bool, type(None)}  # to hash a tuple takes a stack of any depth
_MOST_KEY_BITS = 64  # of an integer: any number of longer ones have the same hash
_FLOAT = struct.Struct(">d")
# Compared again and again, so they are numbers in names of this module and not attributes of another one.
_BINGET, _LONG_BINGET, _BINPUT, _LONG_BINPUT = b"hjqr"
_MARK, _SETITEMS, _SETITEM, _APPENDS, _APPEND, _STOP = b"(usea."
_DICT, _LIST, _TUPLE, _TUPLE_OF_MARK, _BINFLOAT = b"}])tG"
(_MEMOIZE,), (_LONG1,) = pickle.MEMOIZE, pickle.LONG1
_CONSTRUCTORS: dict[int, Callable[[], Any]] = {_DICT: dict, _LIST: list, _TUPLE: tuple, pickle.NONE[0]: type(None)}
_CONSTRUCTORS |= {pickle.NEWTRUE[0]: partial(bool, 1), pickle.NEWFALSE[0]: bool}
(_SHORT_TEXT,) = pickle.SHORT_BINUNICODE
_TEXT_LENGTHS = {pickle.SHORT_BINUNICODE[0]: 1, pickle.BINUNICODE[0]: 4, pickle.BINUNICODE8[0]: 8}  # bytes of them
_INTEGERS = {pickle.BININT1[0]: (1, False), pickle.BININT2[0]: (2, False), pickle.BININT[0]: (4, True)}  # bytes, signed
_LENGTHS = {pickle.TUPLE1[0]: 1, pickle.TUPLE2[0]: 2, pickle.TUPLE3[0]: 3}
_SKIPPED = {pickle.FRAME[0]: 8, pickle.PROTO[0]: 1}  # bytes of arguments that are ignored
_INDEX_BYTES = {_BINPUT: 1, _LONG_BINPUT: 4}  # of the index in the memo that stores the top of the stack
# References to what was made before: a large snapshot consists mostly of them, each a frame of a call stack.
_REFERENCES = re.compile(rb"(?:j.{4}|h.){2,999}+", re.DOTALL)
_REFERENCE = re.compile(rb"j(.{4})|h(.)", re.DOTALL)
_MOST_KEPT = 1 << 16  # texts, lists and tuples that are kept to be found again
_MOST_KEPT_BYTES = 200  # of a text that is
_AHEAD = 8192  # bytes at least behind an instruction, unless the pickle ends: the arguments of all but a long text

_Stack = list[Any]


class _Shared(list[Any]):
    """A list that may be in several places, so that nothing can be added to it."""

    __slots__ = ()


class Taker(Protocol):
    """Takes the elements of long lists away while they are read."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the outermost dict; their values are such lists, or lists of such lists."""

    def take(self, owner: list[Any], elements: list[Any]) -> None:
        """Take dicts that would have been appended to a list."""


def load_pickle(source: Input, taker: Taker | None = None) -> Any:
    """Return the object in a pickle. Raises NotImportable: the pickle is damaged, or contains more than data."""
    try:
        return _Machine(source, taker).run()
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise NotImportable(f"is a damaged pickle: {type(error).__name__}") from None
    except MemoryError:
        raise NotImportable("is a pickle of more data than there is memory for") from None


class _Machine:
    """Executes the instructions of a pickle."""

    def __init__(self, source: Input, taker: Taker | None) -> None:
        self._source = source
        self._taker = taker
        self._data, self._position, self._limit = b"", 0, -1  # beyond the limit more is to be read
        self._stack: _Stack = []
        self._below: list[_Stack] = []  # stacks under a mark
        self._memo: list[Any] = []
        self._far: dict[int, Any] = {}  # memoised beyond the end of the memo, which only odd pickles do
        self._forgotten = 0  # elements that were taken are not in the memo any more up to here
        self._texts: dict[bytes, str] = {}
        self._lists: dict[bytes, _Shared] = {}  # by the references they consist of
        self._tuples: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def run(self) -> Any:  # noqa: C901 (a call for each of the frequent instructions would double the time)
        """Return the object."""
        data, position, limit, stack, memo = self._data, self._position, self._limit, self._stack, self._memo
        far, texts, integer = self._far, self._texts, int.from_bytes
        while True:
            if position > limit:
                self._position = position
                self._read_on()
                data, position, limit = self._data, 0, self._limit
            code = data[position]
            position += 1
            if code == _BINGET:
                index = data[position]
                stack.append(memo[index] if index < len(memo) else far[index])
                position += 1
            elif code == _LONG_BINGET:
                index = integer(data[position : position + 4], "little")
                stack.append(memo[index] if index < len(memo) else far[index])
                position += 4
            elif code == _MEMOIZE:
                memo.append(stack[-1])
            elif code in _INTEGERS:
                size, signed = _INTEGERS[code]
                stack.append(integer(data[position : position + size], "little", signed=signed))
                position += size
            elif code == _LONG1:
                start = position + 1
                position = start + data[position]
                stack.append(integer(data[start:position], "little", signed=True))
            elif (
                code == _SHORT_TEXT
                and (text := texts.get(data[position + 1 : position + 1 + data[position]])) is not None
            ):
                stack.append(text)
                position += 1 + data[position]
            elif code == _MARK:
                if (same := _REFERENCES.match(data, position)) and self._refer(same[0], data[same.end()]):
                    position = same.end() + 1
                else:
                    self._below.append(stack)
                    stack = self._stack = []
            elif code in _CONSTRUCTORS:
                stack.append(_CONSTRUCTORS[code]())
            elif code in _OF_MARK:
                values, stack = stack, self._below.pop()
                self._stack = stack
                _OF_MARK[code](self, values)
            elif code == _STOP:
                return stack.pop()
            else:
                self._position = position
                _OTHERS.get(code, _Machine._refuse)(self)
                data, position, limit = self._data, self._position, self._limit

    def _read_on(self, wanted: int = _AHEAD) -> None:
        """Read until some bytes behind the position are there, or all; the position becomes 0."""
        if sum(map(len, (self._below, self._stack, *self._below))) > _MOST_ON_STACK:
            raise ValueError("too many values are unused")
        if len(self._memo) + len(self._far) > _MOST_IN_MEMO:
            raise ValueError("too many values are kept")
        parts, count = [self._data[self._position :]], len(self._data) - self._position
        ended = False
        while count <= wanted and not ended:
            parts.append(self._source.read())
            count += len(parts[-1])
            ended = not parts[-1]
        self._data, self._position = b"".join(parts), 0
        self._limit = count if ended else count - _AHEAD

    def _argument(self, size: int) -> bytes:
        """Return bytes that follow an instruction, and go on behind them."""
        if self._position + size > len(self._data):
            self._read_on(size)
        start, self._position = self._position, self._position + size
        argument = self._data[start : self._position]
        if len(argument) < size:
            raise IndexError
        return argument

    def _refer(self, references: bytes, code: int) -> bool:
        """Make the empty list on top of the stack one of references, if that is what the instructions do."""
        stack, memo = self._stack, self._memo
        if code != _APPENDS or not stack or stack[-1] != [] or type(stack[-1]) is not list:
            return False
        shared = self._lists.get(references)
        if shared is None:
            indices = [int.from_bytes(far or near, "little") for far, near in _REFERENCE.findall(references)]
            shared = _Shared(memo[index] if index < len(memo) else self._far[index] for index in indices)
            _keep(self._lists, references, shared)
        if memo and memo[-1] is stack[-1]:
            memo[-1] = shared
        stack[-1] = shared
        return True

    # Instructions that take all values above the last mark.
    def _set_items(self, values: _Stack) -> None:
        _mapping(self._stack[-1]).update(zip(_keys(values[::2]), values[1::2], strict=True))

    def _extend(self, values: _Stack) -> None:
        target = _sequence(self._stack[-1])
        if self._taker is not None and values and type(values[0]) is dict and self._may_be_taken():
            self._taker.take(target, values)
            self._forget()
        else:
            target.extend(values)

    def _push_tuple(self, values: _Stack) -> None:
        self._stack.append(tuple(values))

    def _may_be_taken(self) -> bool:
        """Whether the list on top of the stack is under one of the keys whose lists are taken."""
        assert self._taker is not None
        keys, stack, below = self._taker.keys, self._stack, self._below
        if len(below) > 2:
            return False
        if (len(stack) >= 2 and stack[-2] in keys) or (len(stack) >= 3 and stack[-3] in keys):
            return True
        return bool(below) and len(below[-1]) >= 2 and below[-1][-2] in keys

    def _forget(self) -> None:
        """Keep no reference to the elements that were taken: nothing refers to an event again."""
        memo = self._memo
        for index in range(self._forgotten, len(memo)):
            if type(memo[index]) is dict and "action" in memo[index]:
                memo[index] = None
        self._forgotten = len(memo)

    # All others.
    def _refuse(self) -> None:
        raise NotImportable("is a pickle of more than data, such as a class or an object: nothing of it was run")

    def _push_float(self) -> None:
        self._stack.append(_FLOAT.unpack(self._argument(_FLOAT.size))[0])

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        _mapping(self._stack[-1]).update(zip(_keys([key]), [value], strict=True))

    def _append(self) -> None:
        value = self._stack.pop()
        _sequence(self._stack[-1]).append(value)

    def _push_text(self, length_bytes: int) -> None:
        size = int.from_bytes(self._argument(length_bytes), "little")
        if size > _MOST_TEXT_BYTES:
            raise ValueError("a text is too long")
        raw = self._argument(size)
        text = self._texts.get(raw)
        if text is None:
            text = raw.decode("utf-8", "surrogatepass")
            if size <= _MOST_KEPT_BYTES:
                _keep(self._texts, raw, text)
        self._stack.append(text)

    def _push_short_tuple(self, length: int) -> None:
        values = tuple(reversed([self._stack.pop() for _ in range(length)]))
        if all(type(value) is int and value.bit_length() <= _MOST_KEY_BITS for value in values):
            shared = self._tuples.get(values)
            if shared is None:
                shared = _keep(self._tuples, values, values)
            values = shared
        self._stack.append(values)

    def _skip(self, size: int) -> None:
        self._argument(size)

    def _memoize_at(self, index_bytes: int) -> None:
        index, memo = int.from_bytes(self._argument(index_bytes), "little"), self._memo
        if index == len(memo):
            memo.append(self._stack[-1])
            return
        self._lists.clear()  # a number may mean another object now
        if index < len(memo):
            memo[index] = self._stack[-1]
        else:
            self._far[index] = self._stack[-1]


def _keep(cache: dict[Any, Any], key: Any, value: Any) -> Any:
    if len(cache) >= _MOST_KEPT:
        cache.clear()
    cache[key] = value
    return value


_OF_MARK: dict[int, Callable[[_Machine, _Stack], None]] = {
    _SETITEMS: _Machine._set_items,
    _APPENDS: _Machine._extend,
    _TUPLE_OF_MARK: _Machine._push_tuple,
}
_OTHERS: dict[int, Callable[[_Machine], None]] = {
    _BINFLOAT: _Machine._push_float,
    _SETITEM: _Machine._set_item,
    _APPEND: _Machine._append,
    **{code: partial(_Machine._push_text, length_bytes=size) for code, size in _TEXT_LENGTHS.items()},
    **{code: partial(_Machine._push_short_tuple, length=length) for code, length in _LENGTHS.items()},
    **{code: partial(_Machine._memoize_at, index_bytes=size) for code, size in _INDEX_BYTES.items()},
    **{code: partial(_Machine._skip, size=size) for code, size in _SKIPPED.items()},
}


def _keys(values: list[Any]) -> list[Any]:
    """Return values if all of them may be keys."""
    kinds = set(map(type, values))
    if not kinds <= _KEYS or (
        int in kinds and any(type(key) is int and key.bit_length() > _MOST_KEY_BITS for key in values)
    ):
        raise TypeError
    return values


def _mapping(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise TypeError
    return value


def _sequence(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError
    return value
