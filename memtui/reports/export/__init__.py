"""Sessions in forms for other programs and for papers: tables, figures, one page."""

from memtui.reports.export.writers import export

__all__ = ["export"]
