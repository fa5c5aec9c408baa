"""Text from elsewhere made safe to show, and the closest known name for an unknown one.

Commands, names of files, VMAs and tensors, reasons and paths are what others chose. A session keeps them as they are.
On their way out they pass ``visible``, the one function between them and a terminal, and ``csv_cell`` where a
spreadsheet may read them.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and symbols that draw nothing
_LINE_CHARACTERS, _WORD_CHARACTERS = 2000, 300  # of a message
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def program_first(command: str) -> str:
    """Return a command line without the folder of its program, which says least and comes first."""
    program, blank, rest = command.partition(" ")
    return program.rpartition("/")[2] + blank + rest


def short_command(command: str, characters: int) -> str:
    """Return what a terminal shows of a command line where there is little room, with an ellipsis for what is left out.

    Folders go first, those of the program always and of other words where room is short; then its end.
    """
    text = visible(program_first(command))
    if len(text) > characters:
        text = " ".join(map(_without_folder, text.split(" ")))
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _without_folder(word: str) -> str:
    """Return ``…/train.py`` of a path; other words as they are."""
    folder, _, name = word.rpartition("/")
    return f"…/{name}" if len(folder) > 1 and name and "=" not in folder and "://" not in word else word


def visible(text: str) -> str:
    r"""Return one line that a terminal can only draw: what it would act on, or not show, is spelled out.

    Controls become ``\x1b`` and ``\n``, bytes that are no UTF-8 (surrogate escapes) ``\xff``, and bidi marks, line
    separators, blanks other than the space, combining and unassigned characters ``<U+202E>``. Markup stays as it is:
    whoever draws it draws text. The same text passed twice stays the same.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_show, text))


def one_line(text: str) -> str:
    """``visible`` for a message that may quote anything: long words, then the whole of it, are cut in the middle."""
    text = visible(text)
    if len(text) > _LINE_CHARACTERS:
        text = " ".join(_cut(word, _WORD_CHARACTERS) for word in text.split(" "))
    return _cut(text, _LINE_CHARACTERS)


def _cut(text: str, characters: int) -> str:
    half = characters // 2
    return text if len(text) <= characters else f"{text[: half - 1]}…{text[-half:]}"


def _show(char: str) -> str:
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return _SHORT.get(char) or f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:  # PEP 383: a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    # Combining marks are printable, but a row of them climbs over the lines above.
    if char.isprintable() and char not in _BLANK and unicodedata.category(char) not in ("Mn", "Me"):
        return char
    return f"<U+{code:04X}>"


def storable(text: str) -> str:
    r"""Text that UTF-8 can hold: bytes that were none (surrogate escapes) as ``\xff``, everything else as it is."""
    if text.isascii():
        return text
    raw = text.encode("utf-8", "surrogatepass")
    try:
        raw.decode()
    except UnicodeDecodeError:
        return "".join(_show(char) if 0xD800 <= ord(char) <= 0xDFFF else char for char in text)
    return text


def csv_cell(text: str) -> str:
    """Return a cell of text that a spreadsheet shows and does not compute: ``visible``, with ``'`` before a formula."""
    return ("'" if text.startswith(_FORMULA) else "") + visible(text)


def nearest(word: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the names that were perhaps meant; where none is near, ``otherwise``, or all names."""
    names = tuple(names)
    near = difflib.get_close_matches(word, names, 3, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else otherwise or f"there are {', '.join(names)}"
