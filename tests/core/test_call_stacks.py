"""Call stacks: each has one number, and a table from anybody is checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core import call_stacks
from memtui.core.call_stacks import MOST_FUNCTION, CallStacks, Frame

MAIN, STEP, LOSS = Frame("main", "/me/train.py", 9), Frame("step", "/me/train.py", 4), Frame("loss", "/me/loss.py", 1)
FRAMES = st.builds(Frame, st.text(max_size=3), st.sampled_from(("", "/a.py", "/b.py")), st.integers(0, 3))


def test_equal_stacks_have_one_number_and_share_their_callers():
    stacks = CallStacks()
    first, other = stacks.add([STEP, MAIN]), stacks.add([LOSS, STEP, MAIN])
    assert stacks.add([STEP, MAIN]) == first == stacks.parent[other]
    assert (len(stacks), stacks.frames) == (3, [STEP, MAIN, LOSS])
    assert stacks.stack(other) == (LOSS, STEP, MAIN)
    assert (stacks.add([]), stacks.stack(-1)) == (-1, ())


@given(st.lists(st.lists(FRAMES, max_size=5)))
def test_every_stack_comes_back_also_from_a_stored_table(added):
    stacks = CallStacks()
    numbers = [stacks.add(frames) for frames in added]
    stored = CallStacks(stacks.frames, stacks.parent, stacks.frame)
    for frames, number in zip(added, numbers, strict=True):
        assert stacks.stack(number) == stored.stack(number) == tuple(frames)
        assert stored.add(frames) == number
    assert (len(stored), stored.frames) == (len(stacks), stacks.frames)


@given(st.lists(st.lists(FRAMES, max_size=5)))
def test_files_of_stacks(added):
    stacks = CallStacks()
    numbers = [stacks.add(frames) for frames in added]
    of_stack, sets = stacks.file_sets()
    assert len(of_stack) == len(stacks)
    assert sets[0] == ()
    for frames, number in zip(added, numbers, strict=True):
        files = sets[of_stack[number]] if number >= 0 else ()
        assert len(files) == len(set(files))
        assert set(files) == {frame.file for frame in frames} - {""}


def test_a_new_stack_follows_a_stored_table_that_has_one_twice(monkeypatch):
    stacks = CallStacks([MAIN, STEP], [-1, -1], [0, 0])
    number = stacks.add([STEP])
    assert (number, stacks.stack(number)) == (2, (STEP,))
    monkeypatch.setattr(call_stacks, "MOST_STACKS", 3)
    assert stacks.add([STEP, STEP]) == -1


def test_what_does_not_fit_is_counted(monkeypatch):
    monkeypatch.setattr(call_stacks, "MOST_STACKS", 3)
    stacks = CallStacks()
    known = stacks.add([LOSS, STEP, MAIN])
    assert stacks.add([MAIN, LOSS]) == -1
    assert stacks.add([Frame("new", "", 0)]) == -1
    assert stacks.dropped == 2
    assert stacks.add([LOSS, STEP, MAIN]) == known


def test_a_stack_that_is_too_deep_is_left_out_and_counted(monkeypatch):
    monkeypatch.setattr(call_stacks, "MOST_CALLS", 3)
    stacks = CallStacks([MAIN], [-1, 0], [0, 0])
    assert stacks.add([STEP, MAIN, MAIN]) == 2
    assert stacks.add([STEP, STEP, MAIN, MAIN]) == -1
    assert (list(stacks.depth), stacks.dropped) == ([1, 2, 3], 1)
    assert stacks.warnings() == ("it has more or deeper call stacks than fit into a session; left out: 1",)


def test_the_first_calls_of_a_stack():
    stacks = CallStacks()
    number = stacks.add([LOSS, STEP, MAIN])
    assert stacks.stack(number, 2) == (LOSS, STEP)


def test_long_texts_are_cut_and_all_texts_together_have_a_limit(monkeypatch):
    monkeypatch.setattr(call_stacks, "_MOST_TEXT", 2 * (MOST_FUNCTION + 64))
    stacks = CallStacks()
    long = "f" * 9000
    assert [stacks.add([Frame(long + end, "", line)]) for end, line in (("a", 1), ("b", 1), ("", 2), ("", 3))] == [
        0,
        0,
        1,
        -1,
    ]
    assert stacks.stack(0) == (Frame("f" * MOST_FUNCTION, "", 1),)


@pytest.mark.parametrize(
    ("parent", "frame", "why"),
    [
        ([-1], [], "lacks its frame"),
        ([0], [0], "comes later"),
        ([-1, 1], [0, 0], "comes later"),
        ([-2], [0], "comes later"),
        ([-1], [1], "not there"),
        ([-1], [-1], "not there"),
    ],
)
def test_a_damaged_table_is_refused(parent, frame, why):
    with pytest.raises(ValueError, match=why):
        CallStacks([MAIN], parent, frame)
