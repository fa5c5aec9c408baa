"""The memory screen. ``keys`` names its keys, ``screen`` has what each of them does.

``panels`` has its widgets and their sizes; ``recording_requests`` is what it asks of a recording that still runs.
"""

from memtui.tui.screens.memory.screen import MemoryScreen

__all__ = ["MemoryScreen"]
