"""The position of the screen in time: live, paused, stepping, playing. Depends on times only, not on a file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memtui.session.packed_column import Column
from memtui.widgets.views.memory import State, TimeAxis

Moments = Column[np.int64] | NDArray[np.int64]  # rising

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
SPANS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
DEFAULT_SPAN_S = 60.0
_NS = 1_000_000_000
_SHORTEST_NS = 1_000_000  # of an axis
_FIT_SHARE = 4  # a span shorter than one in this number of parts of the picture is zoomed in
_MARGIN = 20  # at each side, one in this number of parts of the picture


@dataclass
class Playhead:
    """The cursor on the time axis and the window shown around it.

    ``follow``: stay at the newest sample. That is "live"; in a session that ended it is the end.
    """

    recording: bool = True
    follow: bool = True
    playing: bool = False
    speed: float = 1.0
    span_ns: int | None = int(DEFAULT_SPAN_S * _NS)  # None: the whole session
    cursor_ns: int = 0
    origin_ns: int = 0
    ends: Moments = field(default_factory=lambda: np.empty(0, np.int64))
    _window_end: int = 0

    @property
    def latest_ns(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else self.origin_ns

    @property
    def state(self) -> State:
        if self.follow:
            return State.LIVE if self.recording else State.ENDED
        return State.PLAYING if self.playing else State.PAUSED

    @property
    def index(self) -> int:
        """Return the number of the sample under the cursor, -1 before the first."""
        return int(np.searchsorted(self.ends, self.cursor_ns, side="right")) - 1

    def grow(self, origin_ns: int, ends: Moments, *, recording: bool) -> None:
        """Set the samples known now."""
        self.origin_ns, self.ends, self.recording = origin_ns, ends, recording
        if self.follow or not self.cursor_ns:
            self.cursor_ns = self.latest_ns

    # Actions of keys

    def toggle_pause(self) -> None:
        """Pause a live session here; play a paused one from the cursor.

        A session that is over plays from its start where the cursor is at its end.
        """
        if self.state is State.LIVE:
            self.follow = False
        elif self.playing:
            self.playing = False
        else:
            if self.cursor_ns >= self.latest_ns and not self.recording and len(self.ends):
                self.cursor_ns = int(self.ends[0])
            self.follow, self.playing = False, True

    def step(self, by: int) -> None:
        """Pause at the sample ``by`` further."""
        if len(self.ends):
            self._stop_on(int(self.ends[min(len(self.ends) - 1, max(0, self.index + by))]))

    def seek(self, t_ns: float) -> None:
        """Pause at the window of a moment, or at the next one."""
        if len(self.ends):
            index = min(len(self.ends) - 1, int(np.searchsorted(self.ends, t_ns, side="left")))
            self._stop_on(int(self.ends[index]))

    def pan(self, by: float) -> None:
        """Move cursor and picture by a share of the time in sight."""
        axis = self.axis()
        end = self._window_end + int(by * axis.span_ns)
        self.seek(self.cursor_ns + by * axis.span_ns)
        if self.span_ns is not None:
            self._window_end = end

    def zoom(self) -> None:
        """Show less time, with the cursor in the middle."""
        self.widen(-1)
        if not self._is_live:
            self._window_end = self.cursor_ns + (self.span_ns or 0) // 2

    def home(self) -> None:
        """Pause at the first sample."""
        if len(self.ends):
            self._stop_on(int(self.ends[0]))

    def to_end(self) -> None:
        """Go back to live, or to the end of a session that is over."""
        self.follow, self.playing = True, False
        self.cursor_ns = self.latest_ns

    def faster(self, by: int) -> None:
        """Play at the next or the previous speed."""
        index = SPEEDS.index(self.speed) + by
        self.speed = SPEEDS[min(len(SPEEDS) - 1, max(0, index))]

    def widen(self, by: int) -> None:
        """Show more (1) or less (-1) time; beyond the longest span lies the whole session."""
        whole = (self.latest_ns - self.origin_ns) / _NS
        spans = [s for s in SPANS_S if s < whole] or [SPANS_S[0]]
        now = whole if self.span_ns is None else self.span_ns / _NS
        if by < 0:
            smaller = [s for s in spans if s < now - 1e-6]
            self.span_ns = int((smaller[-1] if smaller else spans[0]) * _NS)
        else:
            larger = [s for s in spans if s > now + 1e-6]
            self.span_ns = int(larger[0] * _NS) if larger and self.span_ns is not None else None

    def fit(self, start_ns: int, end_ns: int) -> bool:
        """Show a part of the session, where the picture shows much more. Returns whether it was changed.

        The cursor moves to the end of that part.
        """
        length = max(end_ns - start_ns, _SHORTEST_NS)
        if length * _FIT_SHARE > self.axis().span_ns or not len(self.ends):
            return False
        margin = length // _MARGIN
        self.seek(end_ns)
        self._window_end = max(self.cursor_ns, min(end_ns + margin, self.latest_ns))
        self.span_ns = self._window_end - start_ns + margin
        return True

    def jump(self, text: str) -> str:
        """Go to a typed time. Returns what is wrong with the time; empty if nothing is."""
        whole = (self.latest_ns - self.origin_ns) / _NS
        try:
            time_s = parse_time(text, (self.cursor_ns - self.origin_ns) / _NS, whole)
        except ValueError as error:
            return str(error)
        if time_s > whole:
            return f"the session is {whole:.1f} s long"
        self.seek(self.origin_ns + int(max(0.0, time_s) * _NS))
        return ""

    def tick(self, seconds: float) -> None:
        """Let real time pass."""
        if not self.playing:
            return
        self.cursor_ns += int(seconds * self.speed * _NS)
        if self.cursor_ns >= self.latest_ns:
            self.cursor_ns, self.playing = self.latest_ns, False
            self.follow = self.recording  # at the end of a running recording: live

    def _stop_on(self, t_ns: int) -> None:
        self.cursor_ns, self.follow, self.playing = t_ns, False, False

    # The window

    def axis(self) -> TimeAxis:
        """Return the visible window, which stays while the cursor moves inside it."""
        whole = max(self.latest_ns - self.origin_ns, _SHORTEST_NS)
        if self.span_ns is None:
            self._window_end = self.latest_ns
            whole = _seldom(whole) if self.recording else whole
            return TimeAxis(self.origin_ns, self.latest_ns - whole, self.latest_ns, self.cursor_ns, self._is_live)
        span = self.span_ns
        if self.follow or self.cursor_ns > self._window_end:
            self._window_end = self.cursor_ns
        elif self.cursor_ns <= self._window_end - span:
            self._window_end = self.cursor_ns + span // 2
        # Neither beyond the end nor, where the session is long enough, before the beginning.
        self._window_end = min(max(self._window_end, min(self.origin_ns + span, self.latest_ns)), self.latest_ns)
        return TimeAxis(self.origin_ns, self._window_end - span, self._window_end, self.cursor_ns, self._is_live)

    @property
    def _is_live(self) -> bool:
        return self.follow and self.recording


def _seldom(whole_ns: int) -> int:
    """Return a growing length in steps of a 32nd or less: each new length changes the bins of the whole heat map."""
    step = max(1, (1 << whole_ns.bit_length() - 1) >> 5)
    return -(-whole_ns // step) * step


_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
_CLOCK = re.compile(rf"(?:(\d+):)?(\d+):({_NUMBER})")
_UNITS = re.compile(rf"(?:(\d+)\s*h)?\s*(?:(\d+)\s*m(?:in)?)?\s*(?:({_NUMBER})\s*s?)?")


def parse_time(text: str, now_s: float, whole_s: float) -> float:
    """Return seconds from the start for ``7:12``, ``1:02:03.5``, ``432``, ``5m``, ``50%``, ``+30``, ``-1:30``.

    Raises:
        ValueError: with examples of valid times.
    """
    bare = text.strip().lower()
    sign = bare[:1] if bare[:1] in "+-" else ""
    body = bare[len(sign) :].strip()
    if not body:
        raise ValueError("type a time: 7:12, 90, 5m, 50%, +30, -1:30")
    if body.endswith("%") and re.fullmatch(_NUMBER, body[:-1].strip()):
        value = float(body[:-1]) / 100 * whole_s
    elif match := _CLOCK.fullmatch(body):
        value = int(match[1] or 0) * 3600 + int(match[2]) * 60 + float(match[3])
    elif (match := _UNITS.fullmatch(body)) and any(match.groups()):
        value = int(match[1] or 0) * 3600 + int(match[2] or 0) * 60 + float(match[3] or 0)
    else:
        raise ValueError(f"{text.strip()!r} is not a time: 7:12, 90, 5m, 50%, +30, -1:30")
    if sign:
        return now_s + value if sign == "+" else max(0.0, now_s - value)
    return value
