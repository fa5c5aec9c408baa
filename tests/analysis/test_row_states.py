"""Rights, names and filters of rows in each window, beside tables that are kept whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.row_states import MOST_NAMES, RowState, RowStates, state_at

PAGE = 4096
ROWS = 3
PARTS = st.lists(
    st.tuples(
        st.integers(0, ROWS - 1),
        st.integers(1, 3).map(lambda pages: pages * PAGE),
        st.sampled_from(("rw-p", "r--p", "r-xp", "rwxp")),
        st.sampled_from((None, "exec", "pages<4", "name=/a")),
        st.sampled_from(("", "/a", "/a (deleted)", "/b")),
    ),
    max_size=5,
)
TABLES = st.lists(PARTS, max_size=8)


def state_of(table, row: int, sample: int) -> RowState | None:
    """Return the state of a row in a table: rights and name of its largest VMA, the terms if all have one."""
    own = [part for part in table if part[0] == row]
    if not own:
        return None
    _, _, perms, _, name = max(own, key=lambda part: part[1])  # the first of the largest ones
    terms = [part[3] for part in own]
    return RowState(sample, perms, "" if None in terms else ",".join(sorted(set(terms))), name)


def essence(state: RowState | None) -> tuple[str, bool, str] | None:
    return None if state is None else (state.left_out, "x" in state.perms, state.name.removesuffix(" (deleted)"))


def runs(states) -> list[RowState]:
    """Return the first state of each run of those that say the same; windows without the row are in no run."""
    result: list[RowState] = []
    for state in states:
        if state is not None and not (result and essence(result[-1]) == essence(state)):
            result.append(state)
    return result


def followed(tables, samples=None) -> RowStates:
    states = RowStates()
    for sample, table in zip(samples or range(len(tables)), tables, strict=True):
        states.update(sample, table, {})
    return states


@given(TABLES)
def test_the_history_is_that_of_the_tables(tables):
    states, before = RowStates(), [None] * ROWS
    for sample, table in enumerate(tables):
        changed = states.update(sample, table, {})
        for row in range(ROWS):
            now = state_of(table, row, sample)
            assert (row in changed) == (now is not None and essence(now) != essence(before[row]))
            before[row] = now or before[row]
    for row in range(ROWS):
        own = [state_of(table, row, sample) for sample, table in enumerate(tables)]
        assert states.history(row) == runs(own)
        mapped = [state for state in own if state is not None]
        always = mapped and all(state.left_out for state in mapped)
        assert states.left_out(row) == (mapped[-1].left_out if always else "")
        for sample, state in enumerate(own):
            if state is not None:
                assert essence(state_at(states.history(row), sample)) == essence(state)
    assert (states.left_out(ROWS), states.history(ROWS)) == ("", [])


@given(st.lists(st.tuples(PARTS, st.booleans()), min_size=1, max_size=8))
def test_of_tables_of_one_window_the_last_one_counts(drawn):
    samples = [sum(later for _, later in drawn[: n + 1]) for n in range(len(drawn))]
    states = followed([table for table, _ in drawn], samples)
    last = dict(zip(samples, (table for table, _ in drawn), strict=True))
    for row in range(ROWS):
        expected = runs(state_of(table, row, sample) for sample, table in last.items())
        assert [(s.sample, essence(s)) for s in states.history(row)] == [(s.sample, essence(s)) for s in expected]


@given(TABLES, PARTS)
def test_a_row_that_two_became_has_the_windows_of_both(tables, after):
    """The first of both whose pages were stored says the rights and the name, and the one that was merged is first."""
    after = [part for part in after if part[0] != 1]
    states = followed(tables)
    changed = states.update(len(tables), after, {1: 0})
    assert 0 in changed
    expected = []
    for sample, table in enumerate(tables):
        pair = [state for row in (1, 0) if (state := state_of(table, row, sample)) is not None]
        stored = [state for state in pair if not state.left_out]
        terms = sorted({term for state in pair for term in state.left_out.split(",")})
        chosen = (stored or pair or [None])[0]
        expected.append(chosen and RowState(sample, chosen.perms, "" if stored else ",".join(terms), chosen.name))
    expected.append(state_of(after, 0, len(tables)))
    for sample, state in enumerate(expected):
        if state is not None:
            assert essence(state_at(states.history(0), sample)) == essence(state)
    mapped = [state for state in expected if state is not None]
    assert [essence(state) for state in states.history(0)] == [essence(state) for state in runs(mapped)]
    always = mapped and all(state.left_out for state in mapped)
    assert states.left_out(0) == (mapped[-1].left_out if always else "")
    assert (states.history(1), states.left_out(1)) == ([], "")
    # What followed a row follows it after the merge: it ends with the table that lacks it, and no row comes back.
    states.update(len(tables) + 1, [], {})
    assert states.update(len(tables) + 2, [(0, PAGE, "rw-p", "new", "/new")], {}) == {0}
    assert [(s.sample, s.name) for s in states.history(0)][-1] == (len(tables) + 2, "/new")
    assert states.history(1) == []


def test_rows_that_were_merged_are_those_that_changed():
    states = followed([[(0, PAGE, "rw-p", None, ""), (1, PAGE, "rw-p", None, "/a"), (2, PAGE, "rw-p", None, "/b")]])
    assert states.update(1, [(0, PAGE, "rw-p", None, ""), (2, PAGE, "rw-p", None, "/b")], {1: 0}) == {0}
    assert states.update(2, [(2, PAGE, "rw-p", None, "/b")], {0: 2}) == {2}


def test_before_the_first_window_there_is_no_state():
    first, second = RowState(3, "rw-p", "", ""), RowState(5, "r--p", "", "")
    at = [state_at([first, second], sample) for sample in range(7)]
    assert at == [None] * 3 + [first] * 2 + [second] * 2
    assert state_at([], 3) is None


@pytest.mark.parametrize("gap", [False, True], ids=["always mapped", "unmapped between"])
def test_a_row_of_many_names_says_no_more_of_them_but_what_hides_it(gap):
    """Where it is unmapped between two names, the gaps take as much room as the names."""
    states, sample, changes = RowStates(), 0, []
    for number in range(2 * MOST_NAMES):
        changes.append(bool(states.update(sample, [(0, PAGE, "rw-p", None, f"/{number}")], {})))
        if gap:
            assert states.update(sample + 1, [], {}) == set()
        sample += 2
    names = MOST_NAMES // 2 if gap else MOST_NAMES
    assert changes == [True] * names + [False] * (2 * MOST_NAMES - names)
    assert [state.name for state in states.history(0)][:names] == [f"/{number}" for number in range(names)]
    assert states.update(sample, [(0, PAGE, "r-xp", None, "/x")], {}) == {0}
    assert states.update(sample + 2, [(0, PAGE, "r-xp", "exec", "/x")], {}) == {0}
    assert state_at(states.history(0), sample + 2) == RowState(sample + 2, "r-xp", "exec", "/x")
    assert state_at(states.history(0), sample + 1) == RowState(sample, "r-xp", "", "/x")
