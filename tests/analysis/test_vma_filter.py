"""The filter language."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.vma_filter import parse_filter
from memtui.core.samples import Vma

PAGE = 4096
CODE = Vma(0, 100 * PAGE, "r-xp", "/usr/lib/libtorch_cpu.so")
ANON = Vma(0, 100 * PAGE, "rw-p")
NAMED = Vma(0, 100 * PAGE, "rw-p", "[anon:tcmalloc]")
GUARD = Vma(0, 100 * PAGE, "---p")
SMALL = Vma(500 * PAGE, 503 * PAGE, "rw-p")
HEAP = Vma(0, 100 * PAGE, "rw-p", "[heap]")
STACK = Vma(0, 100 * PAGE, "rw-p", "[stack]")
SHARED = Vma(0, 100 * PAGE, "rw-s", "/dev/shm/torch_1 (deleted)")
ALL = [CODE, ANON, NAMED, GUARD, SMALL, HEAP, STACK, SHARED]

OUT = {
    "exec": [CODE],
    "noaccess": [GUARD],
    "pages<4": [SMALL],
    "pages<3": [],
    "pages<101": ALL,
    "anon": [ANON, NAMED, GUARD, SMALL],
    "file": [CODE, SHARED],
    "heap": [HEAP],
    "stack": [STACK],
    "name=libtorch*": [CODE],
    "name=/dev/shm/*": [SHARED],
    "name=[[]heap]": [HEAP],
    "name=LIBTORCH*": [],
    "default": [CODE, GUARD, SMALL],
    "none": [],
    "!anon": [CODE, HEAP, STACK, SHARED],
    "! anon": [CODE, HEAP, STACK, SHARED],
    "heap,stack": [HEAP, STACK],
    " heap , stack ": [HEAP, STACK],
    "default,heap": [CODE, GUARD, SMALL, HEAP],
    "pages < 4": [SMALL],
    "!name=lib*,heap": [v for v in ALL if v is not CODE],
}


@pytest.mark.parametrize("text", OUT)
def test_what_is_left_out(text):
    f = parse_filter(text)
    assert [v for v in ALL if f.leaves_out(v) is not None] == OUT[text]


def test_the_matching_term_is_named():
    f = parse_filter("default,!anon")
    assert [f.leaves_out(v) for v in (CODE, GUARD, SMALL, HEAP, ANON)] == ["exec", "noaccess", "pages<4", "!anon", None]


def test_default_is_written_out_and_none_is_false():
    assert str(parse_filter("default")) == "exec,noaccess,pages<4"
    assert str(parse_filter("none")) == "none"
    assert not parse_filter("none")
    assert parse_filter("heap")


@settings(deadline=None)
@given(st.lists(st.sampled_from([t for t in OUT if t != "none"]), min_size=1, max_size=4))
def test_text_reads_back_and_terms_are_or(texts):
    f = parse_filter(",".join(texts))
    assert parse_filter(str(f)) == f
    for vma in ALL:
        assert (f.leaves_out(vma) is not None) == any(vma in OUT[t] for t in texts)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty filter term"),
        ("exec,", "empty filter term"),
        ("exe", "unknown filter term 'exe'"),
        ("none,exec", "cannot be joined"),
        ("!none", "cannot be inverted"),
        ("!default", "cannot be inverted"),
        ("!!exec", "unknown filter term"),
        ("pages<", "whole number"),
        ("pages<0", "whole number"),
        ("pages<-1", "whole number"),
        ("pages>4", "whole number"),
        ("pages<4k", "whole number"),
        ("name=", "lacks its pattern"),
    ],
)
def test_bad_filters_are_told_in_one_line(text, says):
    with pytest.raises(ValueError, match=says) as caught:
        parse_filter(text)
    assert "\n" not in str(caught.value)
