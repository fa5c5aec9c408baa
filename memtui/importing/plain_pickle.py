"""Reads a pickle that is data and nothing else: dict, list, tuple, str, int, float, bool, None.

Python's own unpickler is a machine that may import and call anything. This one is the same machine without the
instructions for that: what names a class, builds an object or asks for help from outside is unknown to it. (The hook
``find_class`` would keep classes out, too, but the unpickler in C also makes room for any number that a file names.)
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

from memtui.importing.result import NotImportable

_HARMLESS = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP, pickle.POP_MARK),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.LONG4, pickle.BINFLOAT),
    *(pickle.SHORT_BINUNICODE, pickle.BINUNICODE, pickle.BINUNICODE8),
    *(pickle.EMPTY_DICT, pickle.EMPTY_LIST, pickle.EMPTY_TUPLE),
    *(pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.LIST, pickle.DICT),
    *(pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.MEMOIZE, pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET),
)
_MOST_INTEGER_BYTES = 16


class _Machine(pickle._Unpickler):
    """In Python, with fewer instructions."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code[0]: pickle._Unpickler.dispatch[code[0]] for code in _HARMLESS
    }

    def find_class(self, module: str, name: str) -> Any:
        raise NotImportable("is a pickle that names a class")

    def persistent_load(self, pid: Any) -> Any:
        raise NotImportable("is a pickle that asks for something outside of it")


def load_plain(data: bytes) -> Any:
    """What is in the pickle. Raises NotImportable: it is damaged, or wants more than to be data."""
    try:
        return _Machine(io.BytesIO(data)).load()
    except NotImportable:
        raise
    except KeyError as error:  # of the table of instructions, or of what was put aside
        code = error.args[0] if error.args else None
        if isinstance(code, int) and bytes([code & 0xFF]) not in _HARMLESS:
            raise NotImportable(
                "is a pickle of more than data, such as a class or an object: nothing of it was run"
            ) from None
        raise NotImportable("is a damaged pickle") from None
    except (RecursionError, MemoryError):
        raise NotImportable("is a pickle that is nested or large without end") from None
    except Exception as error:
        raise NotImportable(f"is a damaged pickle: {type(error).__name__}") from None
