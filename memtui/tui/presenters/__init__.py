"""From a session to the view models of the screen. Knows a reader and no widget; runs in a worker thread."""

from memtui.tui.presenters.presenter import Presenter, Room
from memtui.tui.presenters.reuse import reuse_view

__all__ = ["Presenter", "Room", "reuse_view"]
