"""Requests of the memory screen to its recording: a mark, another interval or budget, a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from memtui.core.errors import UserError
from memtui.core.options import INTERVAL_NS, MARK_CHARACTERS, MAX_OVERHEAD_PPM
from memtui.core.units import parse_budget_ppm, parse_interval_ns

NOT_RECORDING = "this screen belongs to no recording: memtui attach PID shows one"
Send = Callable[..., Mapping[str, Any]]  # a command of memtui.recording.control and its fields; may raise UserError


@dataclass(frozen=True, slots=True)
class RecordingRequest:
    """A command of ``memtui.recording.control`` with its fields.

    ``done``: shown when the recording accepted the command, whose effect shows in the next window at the earliest.
    """

    command: str
    fields: Mapping[str, str | int] = field(default_factory=dict)
    done: str = field(default="", compare=False)


def mark_request(text: str) -> RecordingRequest:
    """Return the request for a mark with a typed text. Raises ValueError where the text is empty."""
    text = text.strip()[:MARK_CHARACTERS]
    if not text:
        raise ValueError("a mark has a text")
    return RecordingRequest("mark", {"text": text}, f"marked: {text}")


def interval_request(text: str) -> RecordingRequest:
    """Return the request for a typed interval ("50ms") or budget ("5%", "none"). Raises ValueError."""
    if text.strip() == "none" or "%" in text:
        ppm = parse_budget_ppm(text, MAX_OVERHEAD_PPM) or 0
        return RecordingRequest("budget", {"ppm": ppm}, f"budget: {ppm / 1e4:g} %" if ppm else "no budget")
    interval_ns = parse_interval_ns(text, INTERVAL_NS)
    return RecordingRequest("interval", {"interval_ns": interval_ns}, f"interval: {interval_ns / 1e9:g} s")


class RecordingRequests:
    """Sends requests in a thread, because a recording may take seconds to answer.

    Args:
        send: sends a command to the recording and returns its answer; None: the session is not being recorded.
    """

    def __init__(self, send: Send | None) -> None:
        self._send = send

    @property
    def possible(self) -> bool:
        """Return whether the session is being recorded."""
        return self._send is not None

    async def send(self, request: RecordingRequest) -> str:
        """Send a request. Returns why the recording refused it; empty when it did not."""
        _, why = await self._answer(request)
        return why

    async def toggle_pause(self) -> str:
        """Pause or resume sampling. Returns why the recording refused; empty when it did not."""
        status, why = await self._answer(RecordingRequest("status"))
        return why or await self.send(RecordingRequest("resume" if status.get("paused") else "pause"))

    async def _answer(self, request: RecordingRequest) -> tuple[Mapping[str, Any], str]:
        if self._send is None:
            return {}, NOT_RECORDING
        try:
            return await asyncio.to_thread(self._send, request.command, **request.fields), ""
        except UserError as error:
            return {}, str(error)
