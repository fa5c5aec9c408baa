"""Types of options: the first and the last value that each takes, what it makes of it, and what it refuses."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from memtui.core import argtypes
from memtui.core.argtypes import Parser, group_of, leaves_of, parsers_of

TAKEN = [
    ("interval", "0.001", 0.001),
    ("interval", "3600", 3600),
    ("max_pause", "0.005", 0.005),
    ("max_pause", "5", 5),
    ("interval", "200ms", 0.2),
    ("interval", "3.2s", 3.2),
    ("duration", "60s", 60),
    ("duration", "10min", 600),
    ("duration", "2m", 120),
    ("duration", "1.5h", 5400),
    ("duration", "0.001", 0.001),
    ("duration", "316224000", 316_224_000),  # 3660 days
    ("moment", "0.000000001", 1e-9),
    ("moment", "316224000", 316_224_000),
    ("window_seconds", "0.01", 0.01),
    ("window_seconds", "3600", 3600),
    ("path", "a b", Path("a b")),
    ("percent", "0", 0),
    ("percent", " 100% ", 100),
    ("overhead", "none", None),
    ("overhead", "0.01", 100),
    ("overhead", "100%", 10**6),
    ("blocks", "1", 1),
    ("blocks", "1000", 1000),
    ("rank", "0", 0),
    ("rank", "999999", 999_999),
    ("max_size", "none", None),
    ("max_size", "16MiB", 16 << 20),
    ("size", "1", 1),
    ("size", "2GiB", 2 << 30),
    ("timings", "single, isolated", ("isolated", "single")),
    ("batch", "1", 1),
    ("batch", "1048576", 1 << 20),
    ("device", "cpu", "cpu"),
    ("device", "cuda", "cuda:0"),
    ("device", "cuda:999", "cuda:999"),
    ("threads", "1", 1),
    ("threads", "4096", 4096),
    ("windows", "1", 1),
    ("windows", "1000", 1000),
    ("watts", "0.001", 0.001),
    ("watts", "1e6", 1e6),
    ("grams_a_kwh", "0", 0),
    ("grams_a_kwh", "10000", 10_000),
    ("seed", "0", 0),
    ("seed", "9223372036854775807", 9_223_372_036_854_775_807),
    ("jobs", "1000", 1000),
    ("steps", "1000000", 1_000_000),
]
REFUSED = [
    ("interval", "0.0009", "must be from 0.001 to 3600 seconds, not 0.0009"),
    ("interval", "3600.1", "must be from 0.001 to 3600 seconds"),
    ("interval", "0", "must be above 0 seconds, not 0"),
    ("interval", "inf", "must be above 0 seconds"),
    ("interval", "nan", "must be above 0 seconds"),
    ("interval", "x", "must be a number of seconds, not 'x'"),
    ("interval", "s", "must be a number of seconds, not 's'"),
    ("duration", "60 days", "must be a number of seconds, not '60 days'"),
    ("max_pause", "0.0049", "must be from 0.005 to 5 seconds"),
    ("max_pause", "5.1", "must be from 0.005 to 5 seconds"),
    ("duration", "0.0009", "must be from 1 ms to ten years"),
    ("duration", "316224001", "must be from 1 ms to ten years"),
    ("moment", "316224001", "must be at most ten years"),
    ("window_seconds", "0.009", "must be from 0.01 to 3600 seconds"),
    ("window_seconds", "3601", "must be from 0.01 to 3600 seconds"),
    ("path", "", "must be a name, not nothing"),
    ("path", "a\0b", "none has a NUL character"),
    ("percent", "-0.1", "must be from 0 to 100 per cent"),
    ("percent", "100.1", "must be from 0 to 100 per cent"),
    ("percent", "nan", "must be from 0 to 100 per cent"),
    ("percent", "x", "must be a number of per cent"),
    ("overhead", "0.009", "must be"),
    ("overhead", "101", "must be"),
    ("rank", "1000000", "must be a whole number from 0"),
    ("rank", "-1", "must be a whole number from 0"),
    ("rank", "½", "must be a whole number from 0"),
    ("max_size", "15MiB", "must be at least 16MiB, not 15MiB"),
    ("max_size", "x", "; none lets it grow"),
    ("size", "0", "must be above 0 bytes"),
    ("timings", "isolated,x", "there is no way of timing 'x': name some of isolated, single, simultaneous"),
    ("device", "cuda:", "must be cpu or cuda:N"),
    ("device", "cuda:1000", "must be cpu or cuda:N"),
    ("device", "cuda:²", "must be cpu or cuda:N"),
    ("device", "gpu:1", "must be cpu or cuda:N"),
    ("watts", "0", "must be above 0 watts"),
    ("watts", "1000001", "must be above 0 watts"),
    ("watts", "x", "must be a number of watts"),
    ("grams_a_kwh", "-1", "must be from 0 to 10000 grams"),
    ("grams_a_kwh", "10001", "must be from 0 to 10000 grams"),
    ("grams_a_kwh", "inf", "must be from 0 to 10000 grams"),
    ("grams_a_kwh", "x", "must be a number of grams"),
    ("seed", "9223372036854775808", "must be a whole number from 0 to 9223372036854775807"),
    ("seed", "-1", "must be a whole number from 0"),
    *((name, "0", "must be a whole number from 1 to") for name in ("blocks", "batch", "threads", "windows", "jobs")),
    ("blocks", "1001", "from 1 to 1000"),
    ("batch", "1048577", "from 1 to 1048576"),
    ("threads", "4097", "from 1 to 4096"),
    ("windows", "1001", "from 1 to 1000"),
    ("jobs", "1001", "from 1 to 1000"),
    ("steps", "1000001", "from 1 to 1000000"),
    ("steps", "0", "from 1 to 1000000"),
    ("steps", "1.0", "from 1 to 1000000"),
]


@pytest.mark.parametrize(("name", "text", "value"), TAKEN)
def test_what_is_taken(name, text, value):
    assert getattr(argtypes, name)(text) == value


@pytest.mark.parametrize(("name", "text", "trouble"), REFUSED)
def test_what_is_refused(name, text, trouble):
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        getattr(argtypes, name)(text)
    assert trouble in str(caught.value)


@pytest.fixture
def parser():
    made = Parser(prog="memtui")
    table = made.add_subparsers(dest="verb")
    for name in ("attach", "report"):
        command = table.add_parser(name)
        command.add_argument("--color", choices=["auto", "none"])
        command.elsewhere = {"--trace": "memtui run"} if name == "attach" else {}
    nested = table.add_parser("place").add_subparsers(dest="what")
    nested.add_parser("solve")
    run = table.add_parser("run")
    run.add_argument("--interval")
    return made


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["reprot"], "there is no command 'reprot'; did you mean report?"),
        (["42"], "there is no command '42'; did you mean memtui attach 42?"),
        (["zzz"], "there is no command 'zzz'; there are attach, report, place, run; see memtui --help"),
        (["report", "--color", "nnone"], "invalid choice: 'nnone'; did you mean none? see memtui report --help"),
        (["report", "--color", "zz"], "invalid choice: 'zz'; there are auto, none; see memtui report --help"),
        (["report", "--colour=none"], "there is no --colour; did you mean --color?"),
        (["report", "--xyz"], "unrecognized arguments: --xyz; see memtui report --help"),
        (["attach", "--trace"], "--trace is an option of memtui run"),
        (["run", "python"], "a program comes after --, as in memtui run -- python"),
        (["report", "word"], "unrecognized arguments: word"),
    ],
)
def test_a_wrong_line_is_answered_with_what_was_meant(parser, capsys, words, said):
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(words)
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert caught.value.code == 2


def test_the_parsers_of_commands_and_of_what_has_no_commands(parser):
    assert list(parsers_of(parser)) == ["attach", "report", "place", "run"]
    assert [leaf.prog for leaf in leaves_of(parser)] == [
        "memtui attach",
        "memtui report",
        "memtui place solve",
        "memtui run",
    ]


def test_a_group_is_made_once(parser):
    group = group_of(parser, "tracing")
    assert group_of(parser, "tracing") is group
    assert group_of(parser, "other") is not group
