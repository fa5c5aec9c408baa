"""Shortens names and columns to little room so that the differences between rows stay visible. For screens and text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

CUT = "…"
LEAST = 8  # cells of a column of text: fewer show nothing useful
_GAP = 2  # between the columns of a table of text
_TOKEN = re.compile(r"[^\W_]+|[\W_]")  # words and numbers; each other character is a token of its own

_Seen = tuple[str, str, bool]  # two words next to each other, and whether the second one is the token


def width(text: str) -> int:
    """Return the count of terminal cells of a text."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def shorten(names: Sequence[str], cells: int) -> list[str]:
    """Return the names of a column, none wider than ``cells``; those that fit stay as they are.

    The others are cut in the middle of their common part, and where that is not enough, the tokens that most of them
    share go first. So different names stay different where the room allows it: any two do from three cells on, and any
    number of names where their differences fit with an ellipsis on each side.
    """
    return list(_shorten(tuple(names), cells))


def share_room(needs: Sequence[int], room: int, least: int = LEAST) -> list[int]:
    """Return the cells of columns that need ``needs`` cells and have ``room`` together.

    Each column gets what it needs where all fit. Otherwise columns with small needs get all they need, and the others
    get equal parts of the rest, but at least ``least`` (or what they need, where that is less).
    """
    shares = list(needs)
    left, open_columns = room, sorted(range(len(needs)), key=lambda column: needs[column])
    for number, column in enumerate(open_columns):
        part = max(left, 0) // (len(open_columns) - number)
        shares[column] = min(needs[column], max(part, min(least, needs[column])))
        left -= shares[column]
    return shares


def text_table(
    rows: Sequence[Sequence[str]], room: int, *, right: Collection[int] = (), whole: Collection[int] = ()
) -> list[str]:
    """Return the lines of a table of text with two blanks between columns; the first row is the head.

    ``right``: columns of figures; they and those in ``whole`` are never cut. The others share the rest of the room, and
    get at least ``LEAST`` cells each even where that exceeds ``room``.
    """
    columns = [list(column) for column in zip(*rows, strict=True)]
    needs = [max(map(width, column), default=0) for column in columns]
    shared = [index for index in range(len(columns)) if index not in right and index not in whole]
    left = room - _GAP * max(len(columns) - 1, 0) - sum(need for index, need in enumerate(needs) if index not in shared)
    for index, cells in zip(shared, share_room([needs[index] for index in shared], left), strict=True):
        columns[index], needs[index] = shorten(columns[index], cells), cells
    return [
        (" " * _GAP).join(_padded(cell, needs[index], right=index in right) for index, cell in enumerate(row)).rstrip()
        for row in zip(*columns, strict=True)
    ]


def _padded(text: str, cells: int, *, right: bool) -> str:
    blanks = " " * max(cells - width(text), 0)
    return blanks + text if right else text + blanks


@lru_cache(64)
def _shorten(names: tuple[str, ...], cells: int) -> tuple[str, ...]:
    if cells <= 0:
        return ("",) * len(names)
    long = sorted({name for name in names if width(name) > cells})
    if not long:
        return names
    taken = {name for name in names if width(name) <= cells}
    forms = _distinct(long, cells, taken)
    return tuple(forms.get(name, name) for name in names)


def _distinct(long: list[str], cells: int, taken: set[str]) -> dict[str, str]:
    """Return a short form of each of some long names, with as few equal forms as possible."""
    ways: tuple[Callable[[list[str], int], dict[str, str] | None], ...] = (_in_common, _by_rarity)
    forms: dict[str, str] = {}
    for way in ways:
        if (tried := way(long, cells)) is None:
            continue
        if not forms or _alike(tried, taken) < _alike(forms, taken):
            forms = tried
        if not _alike(forms, taken):
            return forms
    for group in _clashes(forms, taken):  # the names of a group have more in common than all names
        others = taken | {form for name, form in forms.items() if name not in group}
        forms |= _apart(group, cells, others, forms)
    return forms


def _apart(group: list[str], cells: int, others: set[str], now: dict[str, str]) -> dict[str, str]:
    """Return forms of names with equal forms so far, different ones where there are any."""
    best = {name: now[name] for name in group}
    ways: tuple[Callable[[list[str], int], dict[str, str] | None], ...] = (_in_common, _by_rarity, _from_difference)
    for way in ways:
        tried = way(group, cells)
        if tried is not None and _alike(tried, others) < _alike(best, others):
            best = tried
    for smaller in _clashes(best, others):
        if len(smaller) < len(group):
            rest = others | {form for name, form in best.items() if name not in smaller}
            best |= _apart(smaller, cells, rest, best)
    return best


def _clashes(forms: dict[str, str], taken: set[str]) -> list[list[str]]:
    """Return the groups of names with one form."""
    by_form = defaultdict(list)
    for name, form in forms.items():
        by_form[form].append(name)
    return [group for form, group in by_form.items() if len(group) > 1 or form in taken]


def _alike(forms: dict[str, str], taken: set[str]) -> int:
    """Return how many names have a form that another name has, too."""
    return sum(map(len, _clashes(forms, taken)))


def _in_common(names: list[str], cells: int) -> dict[str, str] | None:
    """Cut the common prefix or suffix of all names in its middle; None where that does not save enough.

    All names are cut at the same place, by as much as the widest of them needs: in the longer part where that suffices;
    otherwise the whole suffix is cut, and the rest of the excess from the prefix.
    """
    prefix = _common_prefix(names)
    shortest = min(map(len, names)) - len(prefix)
    suffix = _common_prefix([name[::-1] for name in names])[: max(shortest, 0)][::-1] if len(names) > 1 else ""
    excess = max(map(width, names)) - cells
    head, tail = prefix, suffix
    if width(prefix) > max(width(suffix), excess):
        head = _cut(prefix, excess, near_end=True)
    elif width(suffix) > excess:
        tail = _cut(suffix, excess, near_end=False)
    else:
        if width(suffix) > 1:
            tail, excess = CUT, excess - width(suffix) + 1
        if width(prefix) <= excess:
            return None
        head = _cut(prefix, excess, near_end=True) if excess > 0 else prefix
    return {name: head + name[len(prefix) : len(name) - len(suffix)] + tail for name in names}


def _common_prefix(names: Collection[str]) -> str:
    first, last = min(names), max(names)  # in sorted order, all texts between two have their common prefix
    length = next(
        (length for length, (left, right) in enumerate(zip(first, last, strict=False)) if left != right), None
    )
    return first if length is None else first[:length]


def _cut(text: str, excess: int, *, near_end: bool) -> str:
    """Return a text that is shorter by ``excess`` cells; two thirds of the rest are next to the difference."""
    left = max(width(text) - excess - 1, 0)
    near = left - left // 3
    head = _taken(text, left - near if near_end else near)
    tail = _taken(text[::-1], left - width(head))[::-1]
    return head + CUT + tail


def _taken(chars: Iterable[str], cells: int) -> str:
    """Return the first characters that fit."""
    out, left = [], cells
    for char in chars:
        left -= width(char)
        if left < 0:
            break
        out.append(char)
    return "".join(out)


def _by_rarity(names: list[str], cells: int) -> dict[str, str]:
    """Leave out of each name the words that most names have next to the same neighbour."""
    counts: Counter[_Seen] = Counter()
    split = {name: _TOKEN.findall(name) for name in names}
    for tokens in split.values():
        counts.update({seen for neighbours in _seen(tokens) for seen in neighbours})
    return {name: _without_common(tokens, counts, cells) for name, tokens in split.items()}


def _seen(tokens: list[str]) -> list[tuple[_Seen, ...]]:
    """Return each token with the word before it, with the word after it, and words of letters also alone.

    A number means nothing without its neighbour: ``h=3 k=1`` and ``h=1 k=3`` share none.
    """
    before, last = [], ""
    for token in tokens:
        before.append((last, token, True))
        last = token if token.isalnum() else last
    after, following = [], ""
    for token in reversed(tokens):
        after.append((token, following, False))
        following = token if token.isalnum() else following
    alone = (
        (token, "", True) if token.isalpha() else after_it for token, after_it in zip(tokens, after[::-1], strict=True)
    )
    return list(zip(before, after[::-1], alone, strict=True))


def _without_common(tokens: list[str], counts: Counter[_Seen], cells: int) -> str:
    """Leave out one token after the other, the most common and the innermost first, until the rest fits."""
    middle = (len(tokens) - 1) / 2
    common = [max(counts[seen] for seen in neighbours) for neighbours in _seen(tokens)]
    order = sorted(range(len(tokens)), key=lambda index: (-common[index], abs(index - middle)))
    keep = [True] * len(tokens)
    for index in order:
        keep[index] = False
        if width(_joined(tokens, keep)) <= cells:
            break
    return _refilled(tokens, keep, cells)


def _joined(tokens: Sequence[str], keep: Sequence[bool]) -> str:
    """Return the tokens to keep, with an ellipsis for each run of the others."""
    out: list[str] = []
    for token, stays in zip(tokens, keep, strict=True):
        if stays:
            out.append(token)
        elif not out or out[-1] is not CUT:
            out.append(CUT)
    return "".join(out)


def _refilled(tokens: list[str], keep: list[bool], cells: int) -> str:
    """Fill the remaining room with characters from the ends of the parts that were left out, starts of words first."""
    chars = "".join(tokens)
    stays = [stay for token, stay in zip(tokens, keep, strict=True) for _ in token]
    for places in (range(len(chars)), range(len(chars) - 1, -1, -1)):
        step = places.step
        for index in places:
            if stays[index] or (0 <= index - step < len(chars) and not stays[index - step]):
                continue
            stays[index] = True
            if width(_joined(chars, stays)) > cells:
                stays[index] = False
                break
    return _joined(chars, stays)


def _from_difference(names: list[str], cells: int) -> dict[str, str] | None:
    """Show each name from the first character on in which the names differ."""
    start = len(_common_prefix(names))
    if cells < 3:
        return None
    forms = {}
    for name in names:
        part = _taken(name[start:], cells - 1)
        if start + len(part) < len(name):
            part = _taken(part, cells - 2) + CUT
        forms[name] = CUT + part
    return forms
