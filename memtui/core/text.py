"""Makes text from other programs safe to show, and suggests the closest known name for an unknown one.

Commands, reasons, paths, and names of files, VMAs and tensors may contain anything. A session stores them as they are.
All output to a terminal passes ``printable``, and output that a spreadsheet may read passes ``csv_cell``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import TypeVar

T = TypeVar("T")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and symbols without a visible glyph
_LINE_CHARACTERS, _WORD_CHARACTERS = 2000, 300  # of a message
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def program_first(command: str) -> str:
    """Return a command line without the folder of its program, which comes first and matters least."""
    program, blank, rest = command.partition(" ")
    return program.rpartition("/")[2] + blank + rest


def program_name(command: str) -> str:
    """Return the name of a program for display: ``train.py`` for ``/usr/bin/python3 -u /a/train.py --x``."""
    argv = command.split()
    if not argv:
        return "?"
    name = PurePath(argv[0]).name
    if name.startswith("python"):
        for number, argument in enumerate(argv[1:], 1):
            if argument == "-m" and number + 1 < len(argv):
                return argv[number + 1]
            if argument == "-c":
                return f"{name} -c"
            if not argument.startswith("-"):
                return PurePath(argument).name
    return name


def short_command(command: str, characters: int) -> str:
    """Return a command line for a terminal, shortened to a count of characters, with ellipses for what is left out.

    The folder of the program is always left out, the folders of other words where room is short, and then the end.
    """
    text = printable(program_first(command))
    if len(text) > characters:
        text = without_folders(command)
    return text if len(text) <= characters else text[: characters - 1] + "…"


def without_folders(command: str) -> str:
    """Return a command line without the folders of its words: ``python …/train.py --lr 3``."""
    return " ".join(map(_without_folder, printable(program_first(command)).split(" ")))


def _without_folder(word: str) -> str:
    """Return ``…/train.py`` of a path; other words as they are."""
    folder, _, name = word.rpartition("/")
    return f"…/{name}" if len(folder) > 1 and name and "=" not in folder and "://" not in word else word


def printable(text: str) -> str:
    r"""Return one line of printable characters: control characters and invisible ones are escaped.

    Control characters become ``\x1b`` and ``\n``, bytes that are not UTF-8 (surrogate escapes) ``\xff``, and bidi
    marks, line separators, blanks other than the space, combining and unassigned characters ``<U+202E>``. Markup stays
    as it is: the widgets draw plain text. The function is idempotent.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_show, text))


def wrapped(line: str, columns: int, indent: int) -> list[str]:
    """Return a line in parts of at most that many columns; what follows the first is indented.

    Words are not broken: one that is longer than the room stays whole. Blanks inside a part stay.
    """
    if len(line) <= columns or columns <= 2 * indent:
        return [line]
    import textwrap  # this and difflib are rarely needed, and each process would load them

    return textwrap.wrap(
        line,
        columns,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )


def one_line(text: str) -> str:
    """Return ``printable`` of a message that may quote anything; long words, and a long text, are cut in the middle."""
    text = printable(text)
    if len(text) > _LINE_CHARACTERS:
        text = " ".join(cut_middle(word, _WORD_CHARACTERS) for word in text.split(" "))
    return cut_middle(text, _LINE_CHARACTERS)


def cut_middle(text: str, characters: int) -> str:
    """Return a text of at most this even number of characters, with an ellipsis for what is left out."""
    half = characters // 2
    return text if len(text) <= characters else f"{text[: half - 1]}…{text[-half:]}"


def _show(char: str) -> str:
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return _SHORT.get(char) or f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:  # PEP 383: a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    # Combining marks are printable, but many in a row cover the lines above.
    if char.isprintable() and char not in _BLANK and unicodedata.category(char) not in ("Mn", "Me"):
        return char
    return f"<U+{code:04X}>"


def some_of(items: Sequence[T], most: int, describe: Callable[[T], str] = str) -> str:
    """Return the first items with commas between them, and how many more there are; the others are not described."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(describe, items[:most])) + more


def utf8_safe(text: str) -> str:
    r"""Return text that UTF-8 can encode: surrogate escapes become ``\xff``, everything else stays as it is."""
    if text.isascii():
        return text
    raw = text.encode("utf-8", "surrogatepass")
    try:
        raw.decode()
    except UnicodeDecodeError:
        return "".join(_show(char) if 0xD800 <= ord(char) <= 0xDFFF else char for char in text)
    return text


def csv_cell(text: str) -> str:
    """Return a cell that a spreadsheet takes for text: ``printable``, with ``'`` before a formula."""
    return ("'" if text.startswith(_FORMULA) else "") + printable(text)


def nearest(word: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return a hint with the names that are closest to a word; where none is close, ``otherwise`` or all names."""
    import difflib

    names = tuple(names)
    near = difflib.get_close_matches(word, names, 3, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else otherwise or f"there are {', '.join(names)}"
