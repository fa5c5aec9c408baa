r"""The output of ``memory_analysis.py`` of tbd-tools for an MXNet log (``*_ANALYSIS``).

JSON: ``{"in_arg": [1048608.0, ["(in_arg:source_embed_weight).\n"]], ...}``, total bytes and tags of each category.
"""

from __future__ import annotations

from typing import Any

from memtui.core.text import utf8_safe
from memtui.formats.allocation_ledger import Ledger
from memtui.formats.certainty import share_of
from memtui.formats.imported import Imported, NotImportable, Part
from memtui.formats.mxnet_tags import kind_of_key
from memtui.session.tables.imported import NO_CLOCK, ImportedFrom, checked_sums

FORMAT = "MXNet analysis"
_ABSENT = (
    "single allocations: only their sum by category is in the file, so a row is a category",
    "times, frees and addresses: the file has none",
)


def certainty(document: Any) -> float:
    """Return the share of categories that are of the form of such an analysis; 0 for another document."""
    return share_of(document.values(), _is_sum) if isinstance(document, dict) else 0.0


def _is_sum(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[1], list)


def parse(document: Any) -> Imported:
    """Return the content of an analysis. Raises NotImportable."""
    try:
        raw_sums = checked_sums(document)
    except ValueError as error:
        raise NotImportable(str(error)) from None
    sums = {utf8_safe(key): (total, tuple(map(utf8_safe, tags))) for key, (total, tags) in raw_sums.items()}
    ledger = Ledger()
    for row, (key, (total, _)) in enumerate(sums.items()):
        ledger.allocate(row, int(total), key, category=kind_of_key(key))
    about = ImportedFrom(FORMAT, clock=NO_CLOCK, driver=True, absent=_ABSENT, sums=sums)
    return Imported((Part(ledger.trace(0, len(sums)), "cuda"),), about)
