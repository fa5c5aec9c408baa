"""What the keys do and what the words mean, the panel that is chosen first."""

from __future__ import annotations

import re
import textwrap
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.scrollbar import ScrollBarRender
from textual.widgets import Static

from memtui.tui.screens.help_texts import ALONE

_MARGIN, _COLUMN = " " * 2, 16  # of a sentence, and where the words for a key begin
_HEADING = re.compile(r"(\S+(?: \S+)*) {2,}(\S.*)")  # a heading and the text beside it
ABOUT = {
    "heat": """\
Where and when                          addresses down, time across, warmer where more of the memory was touched
  A row of cells is a part of a range, its share of rows grows with what was touched of it and how long its process ran.
  Memory that was never touched is left out, and processes that did not run in the time in sight, or for a small part of
  it; "not mapped" rows, or ┄┄ behind a name, stand for holes between ranges. Of ranges with the same name … begins what
  differs of their addresses, without 000 at the end. ▸ is the cursor, and the lower edge says what is under it: first
  address, range, time, and how many of the cell's pages were touched in that window.
""",
    "training": """\
Tensors over time                       of a traced training (memtui trace): kinds of tensors, as it happens
  The cheap view sees the tensors of as many steps as a tenth of the time allows, without what operators need inside. Of
  memtui train there are loss, accuracy (percent) and, dashed, the accuracy it must reach, on the same axis.
  a             show them, and back; the keys of the time axis are those of the other screens
  enter         every allocation of the recorded step nearest to the cursor
  P  n  N       the peak in sight; the next, the previous process that trains
  d             the memory of the next device, where a GPU is used
""",
    "allocations": """\
Allocations                             of training steps (memtui trace) or of another tool's file (memtui import)
  a  enter      tensors over time, and from there the recorded step nearest to the cursor
  left  right   the cursor; home: as the step began; end; P: the peak; n N: the next, the previous recorded step
  1 2 3 4  Tab  what is listed: tensors alive at the cursor, all events, the tree of layers, what it is made of
  5  Enter      the call stack of the chosen tensor or event, where the file has them (a snapshot of CUDA memory)
  g             what is alive by call stack, by function and by file, where the file has them; Enter: a stack's calls
  C             memory by call stack, by function and by file, of a capture of memray
  up  down      a row of the list; pageup and pagedown by the screenful. The cursor is on the chosen event.
  /             only what has these words in operator, layer, kind or phase; also op=GLOB, layer=, kind=, phase=, and
                >1MiB or <4KiB for the size of the change; ! before one inverts it
  f             events that come to nothing, hidden or not: memory that the very next one frees, but for the peak
  Enter         on a layer: tensors and events of it and of what is below it; Esc: of all again
  space  +  -   fold or unfold the chosen layer, unfold all, fold all
  b             what it is made of: by kind of tensor, type of layer, or MXNet's rules (memtui breakdown)
""",
    "stacks": """\
Memory by call stack                    of a session that knows a capture of memray (memtui import --join)
  touched       in the window at the cursor: of blocks that were there all the time, and where blocks of this stack
                alone came or went; resident, there: of those that were there all the time; at peak: when most was
  g             by stack (the innermost call first), by function, by file: each with all that it calls
  s  S          sort by the next column; turn the order round
  left  right   the window before, the next one; home and end: the first, the last; n N: another captured process
  All rows by stack add up to the stored pages of the window; blocks count their own bytes of a page that they share.
""",
    "reuse": """\
Reuse distance, miss ratio              of all touches from the start of the session to the cursor
  Bars: how many touches came back after so much other memory. Curve (m): which share of touches a memory of that size
  would miss; bright for sure, dark between the two bounds. The sentence speaks of the size under the line: , and .
  move it, a click or a typed size (b) puts it. A touch is one page in one window, so the figures belong to this
  interval. How much longer it would take is an estimate, where memtui doctor --measure was run on that machine.
""",
    "table": """\
Address ranges                          what is mapped, and how much of it was touched in the window at the cursor
  WSS: touched in that window; RSS: resident, touched or not; of WSS: share of all that was touched; trend: the last
  windows, each range by its own largest. A chosen range has its own line in the graph. What is split, grows or gets
  other rights stays one row, with its widest addresses and the rights of its largest part.
""",
    "processes": """\
Processes                               of the tree, in the window at the cursor, by rank and then by pid
  rank and local are what torchrun set when the process began; WSS, RSS and CPU are those of the window; shared is
  what another process touched, too. The row of all counts that once in WSS, and for each in RSS. n/a says that a
  figure is not known, and why.
""",
    "tensors": """\
Working set by tensor                   of a traced training (memtui trace): which tensors were touched in the window
  touched: its bytes that lie in touched pages; recent and trend: share of it that was touched in the last 48
  windows; touched last: in which of them. Grey rows are what is not a tensor, as far as its mapping tells; all
  rows add up to the working set of the process. Gradients that are made anew in every step are seen in part.
""",
    "output": """\
Output of the program                   what it printed, of a program that memtui started (run, demo)
  The end of the .log beside the session, as it would stand on a terminal: a progress bar is one line, colours are left
  out, other controls are spelled out. Only the end is kept here; all of it is in the file. Nothing can be typed into
  the program.
""",
    "power": """\
Power                                   what the devices draw, from their own sensors
  avg, peak and energy are counted from the start of the session to the cursor. The bar goes to the limit of the device.
  A board that other programs use as well says so: its power is theirs, too. The sum at the top leaves out what lies in
  another figure (core, uncore, psys). memtui report has the energy by part of the machine, and a total where it can.
""",
}
SECTIONS = {
    "time": """\
Time                                    the same live, on a growing and on a finished session
  space         stop here; again: play on from here
  t  T          next, previous sample (also right and left; with shift ten at a time)
  [  ]          play slower, faster: 0.25x to 64x
  home          first sample
  end  l        back to live, or to the end of a session that is over
  j             jump to a typed time: 7:12  90  5m  50%  +30  -1:30
  n  N          next, previous mark, gap, disturbed or not paused window: the ticks of the timeline and of the graph
  +  -          show less time, more time, all of it
""",
    "heat": """\
Cursor                                  one moment and one address for all panels; a click puts it there
  shift+up      up in the heat map (up alone where the heat map is chosen)
  shift+down    down in it
  z  Z          zoom in on the cursor: the range, then a quarter of it at a time, and less time; back
  H  L          half a picture back, half a picture on in time
  K  J          half a picture up, half a picture down in memory
""",
    "table": """\
Ranges
  up  down      choose a range and look at it in all panels; pageup and pagedown by the screenful
  Esc           look at all ranges again; once more: forget the typed filter and the cursor of the heat map
  /             show only ranges whose name, address or perms contain what you type
  s  S          sort by the next column; turn the order round (or click a column)
  f             filters on or off: executable, without access, shorter than 4 pages
""",
    "processes": """\
Processes
  p             processes in place of the ranges, and back; rank and local rank are those of torchrun
  up  down      choose one: all panels are about it alone; Esc: about all of them again
""",
    "tensors": """\
Tensors
  w             the working set by tensor in place of the ranges, and back
  g             added up by kind, by layer, by layer and kind, or each tensor by itself
  s  S  /       sort by the next column, turn the order round, show only layers and kinds that contain what you type
  up  down      choose a row: the cursor of the heat map is on (the largest of) it
  k             rows of the heat map in the colour and with the letter of the kind that holds most of them, where
                tensors hold a quarter: W weights, O optimiser state, G gradients, I inputs, B buffers
""",
    "output": """\
Output
  o             what the program printed in place of the panels, and back (Esc, too)
  up  down      a row; pageup and pagedown by the screenful; home: the oldest that is kept; end: follow what comes
""",
    "reuse": """\
Pictures
  m             miss ratio of a smaller memory instead of reuse distances
                (of a chosen range: its own touches, across all pages of its process; since 00:12:41: as if begun then)
  ,  .          what less, what more memory would miss (up and down where that panel is chosen)
  b             type a memory size: what it would miss, and how much longer the program would take
  1-4  Tab      choose where and when, reuse, ranges, power; a small screen shows the one that is chosen
""",
}
REST = """\
Recording                               of the recording itself, while it runs, whoever else looks at it
  M             put a mark on the time axis, with a text
  i             another interval from the next window on: 0.5, 50ms; or another budget: 5%, none
  x             leave the target alone: nothing is sampled until x is pressed again
  v             verdict: what was found about memory, what to do, the figures behind it, and what was looked at
  h             how it is measured and what that costs, below the first line, and away again

Screen
  c             other colours: dark, light, high contrast
  :  Ctrl+p     find an action by its name
  ?             this help
  q             quit (Ctrl+C too); where this screen began the recording, that ends with it; one that you came back to
                goes on, and memtui stop ends it
  d             detach: leave the screen, the recording goes on; memtui attach PID comes back

Words
  working set   memory touched within one window (the interval), in the pages the hardware maps
  resident      memory the kernel keeps for the target (RSS), touched or not; ≥5 MiB: at least so much
  reuse         distance: how much other memory was touched since a page was touched last; between two bounds,
                because the order inside a window is not known: a shorter interval brings them closer;
                about: an estimate between them, right where that order is random; the report has it exactly, the
                screen up to 9 % higher
  of touches in windows of 10 ms: the same of short windows; within a budget one window is cut into ever shorter ones
                now and then
  miss ratio    share of touches that a memory of that size, keeping what was used last, would miss
  untouched     perhaps: a part of the working set whose marks could not be cleared before
  first mapped  part of it that came in with a new mapping: with neighbours of touched pages
  births, ends  of processes inside the window, so a part of it is missing; "gap" on the time axis
  max in sight  the largest working set on the graph, in a window of whatever length;
                the lines above have median and maximum of the windows of one length, up to the cursor
  ≈             the axis is broken: RSS above it has a scale of its own, or is above the scale
  in words      what the lines below the first one say is of all windows from the start to the cursor
  interval      asked for, what a budget makes of it (--max-overhead), and the true one: what reading takes comes on top
  slows it by   what the target loses, an estimate: it is held, sets accessed bits again, and shares its CPUs
  self          CPU time of the recording (sampler and recorder), and of this screen while it follows a live one
  budget        bounds that share, and a third of the share of a CPU that the recording takes (i: 5% or none);
                next window in: when it allows another one
  given back    pages that were touched and given back within the window are not in its working set: at most so much
  rearm         how the marks of touched pages are cleared for the next window
  flush         how stale translations are removed, without which touches would be missed (docs/reference/accuracy.md)
  stopped       how long the target stood still for one window, of several processes the sum

A saved session opens at its end, paused, with all of it in sight: space plays it from the beginning.
"""


def help_for(panel: str) -> str:
    """Return all of the help, beginning with the chosen panel and its keys.

    The help of a screen with its own keys is a text of its own.
    """
    if panel in ALONE:
        return ALONE[panel]
    sections = dict(SECTIONS)
    first = [ABOUT[panel]]
    if own := sections.pop(panel, ""):
        heading, _, keys = own.partition("\n")
        # The heading of the panel stands above already; a heading with more than a name stays.
        first.append(own if _HEADING.match(heading) else keys)
    return "\n".join([*first, *sections.values(), REST])


def wrapped(lines: list[str], width: int) -> list[str]:
    """Return the help in lines that fit: sentences are filled, and the text of a key continues under its start."""
    hanging = " " * (_COLUMN if width > 2 * _COLUMN else 4)
    out: list[str] = []
    for lead, body in _blocks(lines):
        if lead.strip():
            out += _filled(body, width, lead, hanging)
        elif lead or not (match := _HEADING.match(body)) or len(body) <= width:
            out += _filled(body, width, lead, lead)
        else:  # the text has no room beside its heading
            out += [*_filled(match[1], width, "", ""), *_filled(match[2], width, _MARGIN, _MARGIN)]
    return out


def _blocks(lines: list[str]) -> list[tuple[str, str]]:
    """Return the blocks that are wrapped together: (key with the blanks after it or margin, text).

    Lines of a paragraph are joined.
    """
    blocks: list[tuple[str, str]] = []
    for line in lines:
        lead, body = line[:_COLUMN], line[_COLUMN:]
        goes_on = not lead.strip() and bool(body)
        if not goes_on and not (lead.startswith(_MARGIN) and lead.endswith("  ") and body[:1].strip()):
            lead, body = (_MARGIN, line.strip()) if line.startswith(_MARGIN) else ("", line)
            goes_on = bool(lead and blocks) and blocks[-1][0] == _MARGIN
        if goes_on:
            blocks[-1] = blocks[-1][0], f"{blocks[-1][1]} {body.strip()}"
        else:
            blocks.append((lead, body))
    return blocks


def _filled(body: str, width: int, lead: str, hanging: str) -> list[str]:
    return textwrap.wrap(
        body, max(20, width), initial_indent=lead, subsequent_indent=hanging, break_on_hyphens=False
    ) or [""]


class PlainBar(ScrollBarRender):
    """A scroll bar of whole cells, without partial blocks at its ends."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8


class HelpScreen(ModalScreen[None]):
    """Any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter,space", "dismiss", "close"),
    ]

    def __init__(self, panel: str = "table") -> None:
        super().__init__()
        self._panel = panel

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static("", markup=False, id="help-text")

    def on_resize(self, event: events.Resize) -> None:
        draw_style = getattr(self.app, "draw_style", None)
        help_text = "\n".join(wrapped(help_for(self._panel).splitlines(), min(110, event.size.width - 8)))
        self.query_one("#help-text", Static).update(
            draw_style.displayable(help_text) if draw_style is not None else help_text
        )

    def on_mount(self) -> None:
        draw_style = getattr(self.app, "draw_style", None)
        if draw_style is not None and draw_style.ascii_only:
            self.query_one(VerticalScroll).vertical_scrollbar.renderer = PlainBar  # type: ignore[misc]
