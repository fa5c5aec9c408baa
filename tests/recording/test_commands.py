"""What a sampler believes: every field of an order is checked, and nothing of a bad one is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core import options
from memtui.core.samples import Options
from memtui.recording.sampler import commands
from memtui.recording.sampler.commands import SamplerConfig, SamplerState, read_order


def start_sampler(order: bytes, *before: str) -> subprocess.CompletedProcess[bytes]:
    argv = [*before, sys.executable, "-P", "-m", "memtui.recording.sampler"]
    return subprocess.run(argv, input=order, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"hello\n",
        b"{}\n",
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
        b'{"pid": 1}\n',
        b"x" * (commands.LINE_BYTES + 10),
    ],
    ids=["empty", "words", "no fields", "deep", "no text", "half", "endless"],
)
def test_a_sampler_refuses_a_bad_order_in_one_line(line):
    done = start_sampler(line)
    assert done.returncode == 2, done.stderr
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"not an order: ")


GOOD = SamplerConfig(4242, 777, Options(200_000_000), "python train.py")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("interval_ns", 0),
        ("interval_ns", 999_999),
        ("interval_ns", 3_601 * 10**9),
        ("interval_ns", 2e8),
        ("interval_ns", True),
        ("interval_ns", None),
        ("interval_ns", "200000000"),
        ("duration_ns", -1),
        ("duration_ns", 10**30),
        ("max_overhead_ppm", 0),
        ("max_overhead_ppm", 10**6 + 1),
        ("max_overhead_ppm", 0.01),
        ("trace_every", 0),
        ("trace_every", "20"),
        ("pause", 1),
        ("pause", "yes"),
        ("children", None),
        ("tracker", "../../x"),
        ("flush", ""),
        ("rearm", "half"),
        ("filter", "x" * 5000),
        ("output", "/etc/passwd"),
    ],
)
def test_every_option_of_an_order_is_checked(field, value):
    values = asdict(GOOD)
    values["options"][field] = value
    with pytest.raises(ValueError, match="not an order"):
        SamplerConfig.from_line(json.dumps(values).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            ("hold_filtered", 1),
            ("pid", 0),
            ("pid", -1),
            ("pid", 1 << 23),
            ("pid", 7.0),
            ("pid", "7"),
            ("start_ticks", -1),
            ("command", 5),
        ),
        *(("options", None), ("options", []), ("command", "x" * 20_000), ("path", "/x")),
    ],
)
def test_every_field_of_an_order_is_checked(field, value):
    with pytest.raises(ValueError, match="not an order"):
        SamplerConfig.from_line(json.dumps(asdict(GOOD) | {field: value}).encode())


def test_orders_survive_the_way():
    long = replace(GOOD, command="x\udcff\n\x1b" * 100_000)
    for order in (GOOD, replace(GOOD, options=replace(GOOD.options, duration_ns=10**9, pause=False)), long):
        read = SamplerConfig.from_line(order.to_line())
        assert read == replace(order, command=order.command[: options.COMMAND_CHARACTERS])


@given(st.binary(max_size=300))
def test_no_line_does_more_than_fail(line):
    with pytest.raises(ValueError, match="not an order"):
        SamplerConfig.from_line(line)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(sorted(asdict(GOOD))), st.sampled_from(sorted(asdict(GOOD.options))), _JSON, st.booleans())
def test_whatever_stands_in_an_order_is_checked(field, option, value, inside):
    values = asdict(GOOD)
    if inside:
        values["options"][option] = value
    else:
        values[field] = value
    try:
        order = SamplerConfig.from_line(json.dumps(values).encode())
    except ValueError:
        return
    low, high = options.INTERVAL_NS
    assert type(order.options.interval_ns) is int
    assert low <= order.options.interval_ns <= high
    assert type(order.options.pause) is bool
    assert order.options.duration_ns is None or type(order.options.duration_ns) is int


@pytest.mark.parametrize(
    ("words", "interval_ns", "paused", "stop"),
    [
        (b"interval 1000000\n", 10**6, False, False),
        (b"interval 3600000000000\npause\n", 3600 * 10**9, True, False),
        (b"pause\nresume\n", GOOD.options.interval_ns, False, False),
        (b"resume\n", GOOD.options.interval_ns, False, False),
        (b"recorder 0\n", GOOD.options.interval_ns, False, False),
        (b"recorder 123456789\npause\n", GOOD.options.interval_ns, True, False),
        (b"recorder -1\n", GOOD.options.interval_ns, False, True),
        (b"recorder 007\n", GOOD.options.interval_ns, False, True),
        (b"recorder 1e9\n", GOOD.options.interval_ns, False, True),
        (b"recorder 9999999999999999999\n", GOOD.options.interval_ns, False, True),
        (b"pau", GOOD.options.interval_ns, False, False),
        (b"stop\n", GOOD.options.interval_ns, False, True),
        # What is not a word ends it, and changes nothing else.
        (b"interval 999999\n", GOOD.options.interval_ns, False, True),
        (b"interval 3600000000001\n", GOOD.options.interval_ns, False, True),
        (b"interval -5\n", GOOD.options.interval_ns, False, True),
        (b"interval 2e8\n", GOOD.options.interval_ns, False, True),
        (b"interval \xd9\xa1000000\n", GOOD.options.interval_ns, False, True),
        (b"interval 1000000 \n", GOOD.options.interval_ns, False, True),
        (b"Pause\n", GOOD.options.interval_ns, False, True),
        (b"\n", GOOD.options.interval_ns, False, True),
        (b"x" * 100, GOOD.options.interval_ns, False, True),
        (b"\x0f", GOOD.options.interval_ns, False, False),
        (b"", GOOD.options.interval_ns, False, True),
    ],
)
def test_words_after_the_order(words, interval_ns, paused, stop):
    whole, by_byte = SamplerState(GOOD.options.interval_ns), SamplerState(GOOD.options.interval_ns)
    whole.receive(words)
    for index in range(len(words) or 1):
        by_byte.receive(words[index : index + 1])
    for wishes in (whole, by_byte):
        assert (wishes.interval_ns, wishes.paused, wishes.stop) == (interval_ns, paused, stop)


def test_the_recorders_cpu_time_is_heard():
    wishes = SamplerState(GOOD.options.interval_ns)
    wishes.receive(commands.recorder_command(5) + commands.recorder_command(123_456_789)[:-1])
    assert wishes.recorder_cpu_ns == 5
    wishes.receive(b"\n")
    assert wishes.recorder_cpu_ns == 123_456_789


def test_another_budget_is_heard():
    wishes = SamplerState(GOOD.options.interval_ns, 10_000)
    wishes.receive(commands.budget_command(50_000))
    assert wishes.max_overhead_ppm == 50_000
    wishes.receive(commands.budget_command(None))
    assert wishes.max_overhead_ppm is None
    wishes.receive(b"budget 1000001\n")
    assert (wishes.max_overhead_ppm, wishes.stop) == (None, True)


@given(st.binary(min_size=1, max_size=80))
def test_whatever_is_heard_keeps_the_interval_in_range(words):
    wishes = SamplerState(GOOD.options.interval_ns)
    wishes.receive(words + b"\n")
    assert wishes.stop
    assert wishes.interval_ns == GOOD.options.interval_ns


def test_an_order_is_read_to_its_end_and_no_further():
    read, write = os.pipe()
    os.write(write, GOOD.to_line() + commands.STOP)
    assert read_order(read) == GOOD
    assert os.read(read, 100) == commands.STOP
    os.close(write)
    assert read_order(read) is None
    os.close(read)
