"""Sums by function and by file, against a walk along every stack."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.stack_groups import NO_FILE, Groups, function_names
from memtui.core.call_stacks import CallStacks, Frame
from tests.support.stack_captures import MAIN, MAKE, STEP, stacks_of

FRAMES = st.builds(Frame, st.sampled_from("fgh"), st.sampled_from(("", "/a/x.py", "/b/x.py")), st.integers(0, 2))


def sums(stacks, values, by):
    groups = Groups(stacks, by)
    return dict(zip(groups.names, groups.sums(np.array(values, float)).tolist(), strict=True))


def test_a_sum_counts_a_recursion_once():
    stacks = stacks_of([MAIN, STEP, MAKE, STEP])
    assert sums(stacks, [1, 2, 4, 8, 16], "function") == {
        "main (train.py)": 15,
        "step (train.py)": 14,
        "make (model.py)": 12,
    }
    assert sums(stacks, [1, 2, 4, 8, 16], "file") == {"/x/train.py": 15, "/x/model.py": 12}


def test_functions_of_different_files_with_one_name_are_two():
    one, two = (Frame("<module>", f"/lib/{name}/__init__.py", 1) for name in "ab")
    assert sums(stacks_of([one], [two], [MAIN]), [1, 2, 4, 8], "function") == {
        "<module> (a/__init__.py)": 1,
        "<module> (b/__init__.py)": 2,
        "main (train.py)": 4,
    }


def test_functions_that_are_alike_have_as_much_of_their_paths_as_it_takes():
    files = ("/p/a/x.py", "/q/a/x.py", "/p/b/x.py", "a/x.py", "x.py", "", "/y.py")
    assert function_names([Frame("f", file, 0) for file in files]) == [
        "f (p/a/x.py)",
        "f (q/a/x.py)",
        "f (b/x.py)",
        "f (a/x.py)",
        "f (x.py)",
        "f",
        "f (y.py)",
    ]
    deep = [f"/{name}{'/d' * 20}/x.py" for name in "ab"]
    assert function_names([Frame("f", file, 0) for file in deep]) == [f"f ({file})" for file in deep]
    eighth, ninth = ([f"/r/{name}{'/d' * count}/x.py" for name in "ab"] for count in (6, 7))
    assert function_names([Frame("f", file, 0) for file in eighth]) == [f"f ({file[3:]})" for file in eighth]
    assert function_names([Frame("f", file, 0) for file in ninth]) == [f"f ({file})" for file in ninth]


def test_calls_without_a_file_are_one_file_with_a_name():
    stacks = stacks_of([MAIN, Frame("malloc", "", 0)])
    assert sums(stacks, [1, 2, 4], "file") == {"/x/train.py": 3, NO_FILE: 2}
    assert sums(stacks, [1, 2, 4], "function") == {"main (train.py)": 3, "malloc": 2}


def test_a_table_without_stacks_has_no_groups():
    groups = Groups(stacks_of(), "function")
    assert (groups.names, groups.sums(np.array([7.0])).tolist()) == ([], [])
    assert groups.columns([None, np.zeros(1)])[0] is None


def test_a_frame_that_no_stack_has_has_nothing():
    groups = Groups(CallStacks([MAIN, STEP, MAKE], [-1], [0]), "function")
    absent, used = groups.columns([None, np.array([3.0, 4.0])])
    assert (groups.names[0], absent, used.tolist()) == ("main (train.py)", None, [3, 0, 0])


def test_a_deep_stack_takes_memory_of_its_calls_not_of_their_square():
    frames = [Frame(f"f{number}", "/x/a.py", 1) for number in range(4000)]
    stacks = stacks_of(frames)
    tracemalloc.start()
    try:
        groups = Groups(stacks, "function")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert groups.sums(np.ones(4001)).tolist() == list(range(1, 4001))
    assert peak_bytes < 8 << 20


@given(st.lists(st.lists(FRAMES, min_size=1, max_size=6), max_size=8))
def test_sums_are_those_of_a_walk_along_every_stack(added):
    stacks = stacks_of(*added)
    values = np.arange(1.0, len(stacks) + 2)
    for by in ("function", "file"):
        expected = dict.fromkeys((_key(frame, by) for frame in stacks.frames), 0.0)
        for number in range(len(stacks)):
            for key in {_key(frame, by) for frame in stacks.stack(number)}:
                expected[key] += values[number]
        groups = Groups(stacks, by)
        assert groups.sums(values).tolist() == list(expected.values())
        assert len(set(groups.names)) == len(expected)


def _key(frame, by):
    return frame.file if by == "file" else (frame.function, frame.file)
