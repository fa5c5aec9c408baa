"""Sessions in forms that other programs, and papers, take: tables, figures, one page."""

from memtui.export.forms import export

__all__ = ["export"]
