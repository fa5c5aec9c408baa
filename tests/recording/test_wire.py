"""Messages: what goes in comes out, whole, in any chunking; anything else is refused."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.samples import Capability, Clock, End, Hello, Host, Options, Target
from memtui.recording.wire import DecodeError, Decoder, encode
from tests.support.strategies import MESSAGES, same_pages

HELLO = Hello(
    "1.0",
    Clock(1, 2, 3600, "boot"),
    Host("h", "6.1", "x86_64", 2, 1 << 30),
    Target(1, 2, "python train.py", "me"),
    Options(200_000_000),
    "pagetable",
    "cold",
    "full",
    (Capability("idle", False, "why", "what to do"),),
)


def same(a, b) -> bool:
    if isinstance(a, PageSet) or isinstance(b, PageSet):
        return same_pages(a, b)
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


@given(st.lists(MESSAGES, max_size=5), st.integers(1, 5000))
def test_round_trip_in_any_chunks(messages, size):
    stream = b"".join(map(encode, messages))
    decoder = Decoder()
    got = [m for i in range(0, len(stream), size) for m in decoder.feed(stream[i : i + size])]
    assert len(got) == len(messages)
    assert all(same(a, b) for a, b in zip(got, messages, strict=True))
    assert decoder.pending_bytes == 0


def test_hello_round_trip():
    (got,) = Decoder().feed(encode(HELLO))
    assert got == HELLO


def test_a_cut_message_waits():
    decoder = Decoder()
    assert list(decoder.feed(encode(HELLO)[:-1])) == []
    assert decoder.pending_bytes > 0


@given(st.binary(max_size=300).filter(lambda b: b"MTUI" not in b and not b.endswith((b"M", b"MT", b"MTU"))))
def test_what_a_start_up_file_says_before_the_first_message_is_skipped(preface):
    stream = preface + encode(HELLO) + encode(End(1, "stopped"))
    decoder = Decoder(preface_bytes=300)
    assert len([m for i in range(0, len(stream), 7) for m in decoder.feed(stream[i : i + 7])]) == 2
    strict = Decoder(preface_bytes=300)
    list(strict.feed(encode(HELLO)))
    with pytest.raises(DecodeError, match="not a memtui stream"):
        list(strict.feed(b"something else, in the middle"))


def test_noise_without_an_end_is_no_preface():
    with pytest.raises(DecodeError, match="not a memtui stream"):
        list(Decoder(preface_bytes=300).feed(b"x" * 400))


@pytest.mark.parametrize(
    ("position", "byte", "says"),
    [(0, b"X", "not a memtui stream"), (4, b"\xff", "protocol"), (6, b"\xff", "damaged"), (17, b"\xff", "damaged")],
)
def test_damage_is_refused(position, byte, says):
    encoded = bytearray(encode(End(1, "stopped")))
    encoded[position : position + 1] = byte
    with pytest.raises(DecodeError, match=says):
        list(Decoder().feed(bytes(encoded)))


@given(st.binary(min_size=16, max_size=200))
def test_noise_never_raises_anything_else(noise):
    try:
        list(Decoder().feed(noise))
    except DecodeError:
        pass
