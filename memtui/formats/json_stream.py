"""Decode JSON value by value while it is read, so that a long list need not be in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from memtui.formats.input_file import MOST_BYTES, Input, check_size, damaged_json, nested_without_end, no_number

_MOST_VALUE = 256 << 20  # characters
_SPACE = re.compile(r"[ \t\n\r]*")
_CUT = 16  # characters before the end of what was read in which an error may be that of a value cut there
_decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(parse_constant=no_number).scan_once  # type: ignore[attr-defined]


class JsonStream:
    """A text of JSON, decoded from its beginning to its end; every method raises NotImportable for a damaged one.

    Until ``commit`` the bytes are kept, so that ``give_back`` can return them to the file.
    """

    def __init__(self, source: Input) -> None:
        self._source = source
        self._uncommitted: list[bytes] | None = []
        self._kept_bytes = 0
        self._text, self._position = "", 0
        self._before = 0  # characters before those in ``_text``
        self._by_many = True  # whether several values at once were not tried in vain in ``_text``
        self._ended = False
        self._decoder = codecs.getincrementaldecoder(json.detect_encoding(source.head()[:4]))("surrogatepass")

    @property
    def committed(self) -> bool:
        """Whether ``commit`` was called."""
        return self._uncommitted is None

    @property
    def kept_bytes(self) -> int:
        """Bytes that ``give_back`` would return."""
        return self._kept_bytes

    def commit(self) -> None:
        """Keep no bytes any more: the format is certain."""
        self._uncommitted = None

    def give_back(self) -> None:
        """Return all bytes to the file, unless ``commit`` was called."""
        if self._uncommitted is not None:
            self._source.unread(b"".join(self._uncommitted))

    def peek(self) -> str:
        """Return the next character that is not white space; none at the end."""
        while True:
            self._position = _SPACE.match(self._text, self._position).end()  # type: ignore[union-attr]
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._more():
                return ""

    def value(self) -> Any:
        """Return the next value."""
        self.peek()
        while True:
            try:
                value, end = _decode(self._text, self._position)
            except RecursionError:
                raise nested_without_end() from None
            except StopIteration as error:
                self._more_or_fail("Expecting value", error.value)
            except json.JSONDecodeError as error:
                self._more_or_fail(error.msg, error.pos)
            except ValueError as error:
                raise damaged_json(error) from None
            else:
                # A number may go on behind what was read: of "1e+" it is the "1".
                if type(value) not in (int, float) or end < len(self._text) - _CUT or not self._much_more():
                    self._position = end
                    return value

    def items(self) -> Iterator[Any]:
        """Yield the values of the list that comes next."""
        self._take("[")
        if self.peek() == "]":
            self._position += 1
            return
        while True:
            yield from self._many()
            yield self.value()
            if self.peek() == "]":
                self._position += 1
                return
            self._take(",")

    def fields(self) -> Iterator[str]:
        """Yield the keys of the object that comes next; the value of each is to be read before the next one."""
        self._take("{")
        if self.peek() == "}":
            self._position += 1
            return
        while True:
            if self.peek() != '"':
                self._fail("Expecting property name enclosed in double quotes", self._position)
            key = self.value()
            self._take(":")
            yield key
            if self.peek() == "}":
                self._position += 1
                return
            self._take(",")

    def end(self) -> None:
        """Check that nothing follows."""
        if self.peek():
            self._fail("Extra data", self._position)

    def _many(self) -> list[Any]:
        """Return some objects of a list, and be before the next one; none where the text has no end of one to cut at.

        A cut that is not between two of them leaves no valid list, or ends behind this one.
        """
        cut = self._text.rfind("},", self._position) + 1 if self._by_many else 0
        if cut <= self._position:
            return []
        values: list[Any] = []
        text = f"[{self._text[self._position : cut]}]"
        try:
            values, end = _decode(text, 0)
        except (ValueError, StopIteration, RecursionError):
            end = 0
        if end < len(text):  # inside of an object, or behind the end of this list
            self._by_many = False
            return []
        self._position = cut + 1
        return values

    def _take(self, wanted: str) -> None:
        if self.peek() != wanted:
            self._fail(f"Expecting '{wanted}' delimiter", self._position)
        self._position += 1

    def _more_or_fail(self, what: str, position: int) -> None:
        """Read on where an error may be that of a value that is cut."""
        cut = position >= len(self._text) - _CUT or what.startswith("Unterminated string")
        if not cut or not self._much_more():
            self._fail(what, position)

    def _much_more(self) -> bool:
        """Read on, as much again as there is of a value; return False at the end."""
        wanted = 2 * (len(self._text) - self._position)
        if wanted > 2 * _MOST_VALUE:
            self._fail("A value without end", self._position)
        if not self._more():
            return False
        while len(self._text) < wanted and self._more():
            pass
        return True

    def _more(self) -> bool:
        """Read on; return False at the end."""
        if self._ended:
            return False
        raw = self._source.read()
        self._ended = not raw
        if self._uncommitted is not None:
            self._uncommitted.append(raw)
            self._kept_bytes += len(raw)
            check_size(self._kept_bytes, MOST_BYTES)
        try:
            text = self._decoder.decode(raw, self._ended)
        except UnicodeDecodeError as error:
            raise damaged_json(error) from None
        self._before += self._position
        self._text, self._position, self._by_many = self._text[self._position :] + text, 0, True
        return True

    def _fail(self, what: str, position: int) -> NoReturn:
        raise damaged_json(f"{what}: character {self._before + position}")
