"""What the screen asks of the recording that it shows: a mark, another interval, a pause of sampling."""

from __future__ import annotations

import pytest

from memtui.core.options import INTERVAL_NS, MARK_CHARACTERS
from memtui.core.units import parse_interval_ns
from memtui.session.session import Session
from memtui.tui.screens.memory.recording_requests import (
    NOT_RECORDING,
    RecordingRequest,
    RecordingRequests,
    interval_request,
    mark_request,
)
from tests.support.cli import memtui
from tests.support.live import own_state, pattern
from tests.support.screen_driver import running
from tests.support.screen_fakes import FakeRecording
from tests.support.terminals import Terminal


async def test_a_mark_with_a_text():
    recording = FakeRecording()
    async with running(live=True, order=recording) as d:
        await d.press("M")
        await d.until(lambda: "mark this moment" in d.text)
        await d.press(*"epoch", "space", "3", "enter")
        await d.until(lambda: recording.orders == [("mark", {"text": "epoch 3"})])
        await d.until(lambda: "mark this moment" not in d.text)
        await d.until(lambda: " marked: epoch 3" in d.text.splitlines()[-1])
        await d.until(lambda: d.text.splitlines()[-1].startswith(" space "))
        await d.press("M", "x", "enter", "M", "escape", "x")
        await d.until(lambda: recording.paused)


async def test_another_interval_and_one_that_cannot_be():
    recording = FakeRecording()
    async with running(live=True, order=recording) as d:
        await d.press("i", *"fast", "enter")
        await d.until(lambda: "0.001 to 3600 s, such as 0.5 or 50ms" in d.text)
        assert recording.orders == []
        await d.press(*["backspace"] * 4, *"50ms", "enter")
        await d.until(lambda: recording.orders == [("interval", {"interval_ns": 50_000_000})])
        await d.until(lambda: " interval: 0.05 s" in d.text.splitlines()[-1])
        await d.until(lambda: not d.screen.panels.prompt.active)


@pytest.mark.parametrize(("typed", "ppm"), [("5%", 50_000), ("0.5 %", 5_000), ("none", 0)])
async def test_another_budget(typed, ppm):
    recording = FakeRecording()
    async with running(live=True, order=recording) as d:
        await d.press("i", *("space" if c == " " else "percent_sign" if c == "%" else c for c in typed), "enter")
        await d.until(lambda: recording.orders == [("budget", {"ppm": ppm})])
        done = f" budget: {ppm / 1e4:g} %" if ppm else " no budget"
        await d.until(lambda: done in d.text.splitlines()[-1])


async def test_a_budget_that_cannot_be():
    recording = FakeRecording()
    async with running(live=True, order=recording) as d:
        await d.press("i", *"500", "percent_sign", "enter")
        await d.until(lambda: "a budget of 0.01% to 100%, or none" in d.text)
        assert recording.orders == []


async def test_an_empty_mark_is_none():
    recording = FakeRecording()
    async with running(live=True, order=recording) as d:
        await d.press("M", "space", "enter")
        await d.until(lambda: "a mark has a text" in d.text)
        await d.press("escape")
        await d.until(lambda: not d.screen.panels.prompt.active)
        assert recording.orders == []


async def test_the_target_rests_until_the_key_is_pressed_again():
    recording = FakeRecording()
    async with running(live=True, order=recording) as d:
        await d.press("x")
        await d.until(lambda: [word for word, _ in recording.orders] == ["status", "pause"])
        await d.press("x")
        await d.until(lambda: [word for word, _ in recording.orders] == ["status", "pause", "status", "resume"])


@pytest.mark.parametrize("keys", [("x",), ("M", *"now", "enter"), ("i", "1", "enter")], ids=["x", "M", "i"])
async def test_a_recording_that_does_not_answer_is_said_in_place(keys):
    async with running(order=FakeRecording("recording abcd does not answer: it hung up")) as d:
        await d.press(*keys)
        await d.until(lambda: "does not answer" in d.text)


@pytest.mark.parametrize("key", ["x", "M", "i"])
async def test_a_saved_session_takes_none(key):
    async with running() as d:
        await d.press(key)
        await d.until(lambda: "this screen belongs to no recording" in d.text)
        assert not d.screen.panels.prompt.active


@pytest.mark.parametrize(
    ("text", "interval_ns"),
    [("0.2", 200_000_000), (" 2s ", 2_000_000_000), ("50ms", 50_000_000), (".5", 500_000_000), ("3600", 3600 * 10**9)],
)
def test_intervals(text, interval_ns):
    assert parse_interval_ns(text, INTERVAL_NS) == interval_ns


@pytest.mark.parametrize("text", ["", "0", "-1", "1e3", "3601", "0.0001", "nan", "1 m", "½", "٣", "9" * 400])
def test_no_intervals(text):
    with pytest.raises(ValueError, match=r"0\.001 to 3600 s"):
        parse_interval_ns(text, INTERVAL_NS)


@pytest.mark.real_clock(alone=False)
def test_a_real_recording_takes_them(tmp_path, monkeypatch):
    session = tmp_path / "s.memtui"
    with own_state(tmp_path / "state", monkeypatch), pattern("loop", "--pages", 500) as truth:
        terminal = Terminal("attach", truth["pid"], "-o", session, "--tracker", "rss", module="memtui")
        try:
            terminal.read(30, until="LIVE")
            for key, label, typed in (("M", "mark this moment", "half time"), ("i", "interval", "20ms")):
                terminal.send(key)
                terminal.read(10, until=f" {label} ")
                terminal.send(f"{typed}\r")
                terminal.read(10, until="space pause")
            terminal.send("h")
            terminal.read(10, until="asked 0.02 s")
            terminal.send("x")
            terminal.read(10, until="sampling is paused")
            terminal.send("x")
            terminal.read(10, until="asked 0.02 s")
            terminal.send("q")
            assert terminal.process.wait(20) == 0
        finally:
            terminal.process.kill()
            terminal.process.wait()
    reader = Session(session)
    events = [(event.kind, event.text) for event in reader.events(0, 1 << 62)]
    intervals = set(reader.samples.asked_ns.tolist())
    reader.close()
    assert ("mark", "half time") in events
    assert ("interval", "the interval is 0.02 s from here on") in events
    assert intervals == {200_000_000, 20_000_000}
    assert memtui("report", session).returncode == 0


def test_what_is_typed_becomes_a_request():
    assert mark_request(" epoch 3 ") == RecordingRequest("mark", {"text": "epoch 3"})
    assert len(mark_request("x" * 10_000).fields["text"]) == MARK_CHARACTERS
    assert interval_request("50ms") == RecordingRequest("interval", {"interval_ns": 50_000_000})
    assert interval_request("5%") == RecordingRequest("budget", {"ppm": 50_000})
    assert interval_request(" none ") == RecordingRequest("budget", {"ppm": 0})
    with pytest.raises(ValueError, match="a mark has a text"):
        mark_request("  ")
    with pytest.raises(ValueError, match=r"0\.001 to 3600 s"):
        interval_request("fast")


async def test_without_a_recording_every_request_says_so():
    requests = RecordingRequests(None)
    assert not requests.possible
    assert await requests.send(mark_request("here")) == await requests.toggle_pause() == NOT_RECORDING


async def test_a_pause_is_not_asked_for_where_the_recording_does_not_answer():
    recording = FakeRecording("it hung up")
    assert await RecordingRequests(recording).toggle_pause() == "it hung up"
    assert recording.orders == []
