"""What the keys do and what the words mean."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.scrollbar import ScrollBarRender
from textual.widgets import Static

HELP = """\
Time                                    the same live, on a growing and on a finished session
  space        stop here; again: play on from here
  t  T         next, previous sample (also right and left; with shift ten at a time)
  [  ]         play slower, faster: 0.25x to 64x
  home         first sample
  end  l       back to live, or to the end of a session that is over
  j            jump to a typed time: 7:12  90  5m  50%  +30  -1:30
  n  N         next, previous mark, gap, disturbed or not paused window: the ticks of the timeline
  +  -         show less time, more time, all of it

Cursor                                  one moment and one address for all panels; a click puts it there
  shift+up     up and down in the heat map (up and down alone where the heat map is chosen)
  shift+down
  z  Z         zoom in on the cursor: the range, then a quarter of it at a time, and less time; back
  H  L         half a picture back, half a picture on in time
  K  J         half a picture up, half a picture down in memory

Ranges
  up  down     choose a range and look at it in all panels; pageup and pagedown by the screenful
  Esc          look at all ranges again; once more: forget the typed filter
  /            show only ranges whose name, address or perms contain what you type
  s  S         sort by the next column; turn the order round (or click a column)
  f            filters on or off: executable, without access, shorter than 4 pages

Processes
  p            processes in place of the ranges, and back; rank and local rank are those of torchrun
  up  down     choose one: all panels are about it alone; Esc: about all of them again

Pictures
  m            miss ratio of a smaller memory instead of reuse distances
  ,  .         what less, what more memory would miss (up and down where that panel is chosen)
  1-4  Tab     choose where and when, reuse, ranges, power; a small screen shows the one that is chosen

  ?            this help
  q            quit (Ctrl+C too); where this screen began the recording, that ends with it
  d            detach: leave the screen, the recording goes on; memtui attach PID comes back

Words
  working set  memory touched within one window (the interval), in the pages the hardware maps
  resident     memory the kernel keeps for the target (RSS), touched or not
  reuse        how much other memory was touched since a page was touched last; between two bounds,
  distance     because the order inside a window is not known
  miss ratio   share of touches that a memory of that size, keeping what was used last, would miss
  unknown      part of the working set whose marks could not be cleared before: perhaps not touched
  first mapped part of it that came in with a new mapping: up to 15 neighbours of a touched page
  gap          a process began or ended inside the window, so a part of it is missing
  stopped      how long the target stood still for one window
  self         share of one core that watching takes

A saved session opens at its end, paused, with all of it in sight: space plays it from the beginning.
"""


class PlainBar(ScrollBarRender):
    """A scroll bar of whole cells: its ends are drawn with no part of a block."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8


class HelpScreen(ModalScreen[None]):
    """Any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter,space", "dismiss", "close"),
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(HELP, markup=False, id="help-text")

    def on_mount(self) -> None:
        look = getattr(self.app, "look", None)
        if look is not None and look.ascii_only:
            self.query_one(VerticalScroll).vertical_scrollbar.renderer = PlainBar  # type: ignore[misc]
