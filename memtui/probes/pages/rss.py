"""The tracker of last resort: it knows which memory is resident, and not which is accessed."""

from __future__ import annotations

from memtui.core.samples import Capability, Status, Vma
from memtui.probes.pages.tracker import PageWindow

REASON = "the rss tracker sees what is resident, not what is touched"


class RssTracker:
    """Works everywhere, stops nothing, and knows no accesses (``UsageProbe`` reads the RSS itself)."""

    name = "rss"
    flush = rearm = "off"
    resume_by_ns: int | None = None
    pauses = clears = reads_running = counts_users = False
    page_ns = 0

    def __init__(self, remedy: str = "") -> None:
        self.running: set[int] = set()
        self.wss = Capability("wss", False, REASON, remedy)
        self.pages = Capability("pages", False, REASON, remedy)

    def notice(self) -> str:
        """Return an empty text: there is nothing to report."""
        return ""

    def set_interval(self, interval_ns: int | None) -> None:
        """Do nothing: windows may be of any length."""

    def prepare(self, pid: int) -> int:
        """Return 0: nothing can be done before the first pause."""
        return 0

    def is_prepared(self, pid: int) -> bool:
        """Return True: there is nothing to prepare."""
        return True

    def start(self, pid: int, vmas: tuple[Vma, ...]) -> None:
        """Do nothing: there is nothing to clear."""

    def count_mappings(self, pid: int) -> int | None:
        """Return None: mappings are not counted before they are read."""

    def start_round(self, processes: int) -> None:
        """Do nothing: there is nothing to prepare."""

    def window(self, pid: int, vmas: tuple[Vma, ...], *, want_resident: bool) -> PageWindow:
        """Return a window without pages, with the reason."""
        return PageWindow(None, status=Status.UNSUPPORTED, reason=REASON)

    def forget(self, pid: int) -> None:
        """Do nothing: nothing is kept."""

    def close(self) -> None:
        """Do nothing: nothing is kept."""
