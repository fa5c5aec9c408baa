"""Sessions in forms that other programs, and papers, take: tables, figures, one page."""

from memtui.reports.export.writers import export

__all__ = ["export"]
