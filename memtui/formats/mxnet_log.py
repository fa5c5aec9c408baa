r"""The log that MXNet 0.12 with the memory patch of tbd-tools writes to standard error.

The log has a line only where the driver was asked for memory, which MXNet's pool does when no free block fits::

    [mem] Allocate 1048608 bytes GPU memory (in_arg:source_embed_weight).
    [mem] 11170 MB GPU global memory free, total 12196 MB.
    [mem] Release GPU memory.
    [trace] In InitGraph.

Some operators write ``Allocate 3 MB GPU memory (mask_workspace).`` The log has no times: times are numbers of lines.
"""

from __future__ import annotations

import re

from memtui.core.samples import Event
from memtui.core.text import utf8_safe
from memtui.formats.allocation_ledger import Ledger
from memtui.formats.certainty import lines_of, share_of
from memtui.formats.imported import Imported, NotImportable, Part, Warnings
from memtui.formats.mxnet_tags import kind_of_tag
from memtui.session.tables.imported import LINES, DriverMemory, ImportedFrom

FORMAT = "MXNet log"
MIB = 1 << 20
MOST_CHARACTERS = 4096  # of a tag or mark
_ALLOCATE = re.compile(rb"\[mem\] Allocate (\d{1,18}) bytes GPU memory \(")  # then the tag
_IN_MB = re.compile(rb"Allocate (\d{1,12}) MB GPU memory \(")
_TAG_END = b")."  # the last one of the line
_FREE = re.compile(rb"\[mem\] (\d{1,12}) MB GPU global memory free, total (\d{1,12}) MB")
_PATCH = re.compile(rb"\[mem\] |\[trace")
_MARK = re.compile(rb"\[trace\] (.*)")
_ABSENT = (
    "times: the log has none, rows are in the order of its lines",
    "frees: a release line names neither size nor address, and what MXNet reuses from its pool is not in the log",
    "addresses: the log has none",
)


def certainty(data: bytes) -> float:
    """Return the share of lines of the patch from its first allocation on, which may be anywhere; 0 without any."""
    starts = [
        allocation[0].start() for beginning in (_ALLOCATE, _IN_MB) if (allocation := _allocation(beginning, data))
    ]
    return share_of(lines_of(data, min(starts)), _is_of_patch) if starts else 0.0


def _is_of_patch(line: bytes) -> bool:
    return _PATCH.search(line) is not None or _allocation(_IN_MB, line) is not None


def _allocation(beginning: re.Pattern[bytes], data: bytes) -> tuple[re.Match[bytes], bytes] | None:
    """Return the first allocation that begins like this, and its tag; None: there is none.

    A regular expression would look for the end of a line anew from each beginning in it.
    """
    at = 0
    while (match := beginning.search(data, at)) is not None:
        line_end = data.find(b"\n", match.end())
        at = line_end if line_end >= 0 else len(data)
        if (tag_end := data.rfind(_TAG_END, match.end(), at)) >= 0:
            return match, data[match.end() : tag_end]
    return None


def parse(data: bytes) -> Imported:
    """Return the content of a log. Raises NotImportable."""
    ledger, wrong = Ledger(), Warnings()
    events: list[Event] = []
    driver: list[DriverMemory] = []
    coarse: list[str] = []
    releases = number = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        if b"[" not in line and b"Allocate" not in line:
            continue
        if allocation := _allocation(_ALLOCATE, line):
            tag = _text(allocation[1])
            ledger.allocate(number, int(allocation[0][1]), tag, category=kind_of_tag(tag))
        elif allocation := _allocation(_IN_MB, line):
            tag = _text(allocation[1])
            ledger.allocate(number, int(allocation[0][1]) * MIB, tag, category=kind_of_tag(tag))
            coarse.append(tag)
        elif match := _FREE.search(line):
            driver.append(DriverMemory(number, int(match[1]) * MIB, int(match[2]) * MIB))
        elif b"[mem] Release GPU memory" in line:
            releases += 1
        elif b"[mem] Allocate" in line:
            wrong.add(f"line {number} is not a whole allocation")
        elif match := _MARK.search(line):
            events.append(Event(number, "mark", _text(match[1].strip())))
    if not len(ledger):
        raise NotImportable("no line of it is an allocation of MXNet's memory patch ([mem] Allocate ... bytes ...)")
    absent = _ABSENT + ((f"what was given back by {releases} release line{'s' * (releases > 1)}",) if releases else ())
    about = ImportedFrom(FORMAT, clock=LINES, driver=True, absent=absent, warnings=wrong.lines(), coarse=tuple(coarse))
    return Imported((Part(ledger.trace(0, number), "cuda"),), about, tuple(events), tuple(driver))


def _text(raw: bytes) -> str:
    return utf8_safe(raw.decode("utf-8", "surrogateescape"))[:MOST_CHARACTERS]
