"""The language of VMA filters: which address ranges are left out.

    exec         executable
    noaccess     neither readable nor writable nor executable
    pages<N      shorter than N pages of 4 KiB
    anon         no file and no kernel name such as [heap] (memory named with prctl, "[anon:...]", included)
    file         mapped from a path (memfd, shared memory and devices included)
    heap, stack  named so by the kernel
    name=GLOB    shell pattern on the whole name or on its last path component; cannot contain a comma

Terms are joined with commas: a range is left out when any term matches. ``!`` inverts one term. ``default`` stands
for ``exec,noaccess,pages<4`` and may be one of the terms; ``none`` alone leaves nothing out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Protocol

from memtui.core.page_sizes import PAGE_SHIFT

DEFAULT_FILTER = "exec,noaccess,pages<4"
_HELP = (
    "use exec, noaccess, pages<N, anon, file, heap, stack, name=GLOB joined with commas "
    "(! before one inverts it), or default, or none"
)


class AddressRange(Protocol):
    """The range that a filter tests: ``samples.Vma`` and ``vma_merger.RangeOverTime`` satisfy it."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def perms(self) -> str: ...
    @property
    def name(self) -> str: ...


Test = Callable[[AddressRange], bool]


@dataclass(frozen=True, slots=True)
class Term:
    """One term: its text as shown to the user (with ``!`` where inverted) and its test."""

    text: str
    test: Test = field(compare=False)  # follows from the text


@dataclass(frozen=True, slots=True)
class Filter:
    """Terms that leave address ranges out; see the module's text. False when it leaves nothing out."""

    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __str__(self) -> str:
        """Return the text that ``parse_filter`` reads back to an equal filter."""
        return ",".join(term.text for term in self.terms) or "none"

    def leaves_out(self, vma: AddressRange) -> str | None:
        """Return the first term that matches, as text ("exec", "!anon"), or None when the range stays."""
        for term in self.terms:
            if term.test(vma):
                return term.text
        return None


def parse_filter(text: str) -> Filter:
    """Read a filter.

    Raises:
        ValueError: with one line that says what is wrong and what can be written.
    """
    tokens = [token.strip() for token in text.split(",")]
    if tokens == ["none"]:
        return Filter()
    terms: dict[str, Term] = {}
    for token in tokens:
        if token == "none":
            raise ValueError("filter 'none' leaves nothing out and cannot be joined with other terms")
        for part in DEFAULT_FILTER.split(",") if token == "default" else [token]:
            term = _term(part)
            terms.setdefault(term.text, term)
    return Filter(tuple(terms.values()))


def _term(text: str) -> Term:
    bare = text.removeprefix("!").strip()
    name, test = _test(bare)
    if bare == text:
        return Term(name, test)
    return Term("!" + name, lambda vma: not test(vma))


def _test(word: str) -> tuple[str, Test]:
    """Return the normal form and the test of a term without its ``!``."""
    if word in _SIMPLE:
        return word, _SIMPLE[word]
    if word.startswith("name="):
        glob = word.removeprefix("name=").strip()
        if not glob:
            raise ValueError("filter 'name=' lacks its pattern: write for example name=libtorch*")
        match = re.compile(translate(glob)).match
        return f"name={glob}", lambda vma: bool(match(vma.name) or match(vma.name.rpartition("/")[2]))
    if word.startswith("pages"):
        number = re.fullmatch(r"pages\s*<\s*([0-9]{1,18})", word)
        if number is None or int(number[1]) == 0:
            raise ValueError(f"filter {word!r} is not pages<N with N a whole number above 0: write for example pages<4")
        limit = int(number[1])
        return f"pages<{limit}", lambda vma: (vma.end - vma.start) >> PAGE_SHIFT < limit
    if word == "none":
        raise ValueError("filter 'none' cannot be inverted")
    if word == "default":
        raise ValueError("filter 'default' is several terms and cannot be inverted: invert its terms one by one")
    if not word:
        raise ValueError(f"empty filter term: {_HELP}")
    raise ValueError(f"unknown filter term {word!r}: {_HELP}")


def is_anonymous(name: str) -> bool:
    """Whether a VMA name says anonymous memory: empty, or given with prctl ("[anon:...]", "[anon_shmem:...]")."""
    return not name or name.startswith("[anon")


# A mapping that is both shared and anonymous is one of a file that nobody can open: mm/shmem.c, shmem_zero_setup().
SHARED_ANONYMOUS = "/dev/zero (deleted)"
SHARED_MEMORY = ("/dev/zero", "/memfd:", "/dev/shm/", "/SYSV")
"""How names of mappings of shared memory begin: files in memory (mm/shmem.c), which only swap can make room of."""


_SIMPLE: dict[str, Test] = {
    "exec": lambda vma: "x" in vma.perms,
    "noaccess": lambda vma: vma.perms.startswith("---"),
    "anon": lambda vma: is_anonymous(vma.name),
    "file": lambda vma: bool(vma.name) and not vma.name.startswith("["),
    "heap": lambda vma: vma.name == "[heap]",
    "stack": lambda vma: vma.name.startswith("[stack"),
}
