"""Names that are cut stay different, columns share their room by need, tables of text keep to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.shorten import CUT, share_room, shorten, text_table, width

LAYERS = [
    *(f"transformer.h.{block}.{part}" for block in range(12) for part in ("attn.c_attn", "mlp.c_fc", "mlp.c_proj")),
    "transformer.wte",
    "lm_head",
]
CONVOLUTIONS = [
    f"conv2d n=8 cin={cin} cout={cout} h={h} k={k} s=1 groups=1"
    for cin in (64, 256)
    for cout in (64, 128)
    for h in (28, 56)
    for k in (1, 3)
]
WORDS = st.text("ab1./_ =é漢", max_size=30)


@given(st.lists(WORDS, max_size=12), st.integers(-1, 40))
def test_no_name_is_wider_than_its_room_and_those_that_fit_stay(names, cells):
    short = shorten(names, cells)
    assert len(short) == len(names)
    for name, form in zip(names, short, strict=True):
        assert width(form) <= max(cells, 0)
        assert form == name or width(name) > cells
        assert cells <= 0 or CUT in form or form == name


@given(st.lists(WORDS, min_size=2, max_size=2, unique=True), st.integers(4, 40))
def test_any_two_names_stay_different(names, cells):
    """Four cells hold an ellipsis on each side of a wide character."""
    assert len(set(shorten(names, cells))) == 2


@given(
    begin=WORDS,
    middles=st.lists(st.text("xyz0189.漢", max_size=8), min_size=2, max_size=12, unique=True),
    end=WORDS,
    spare=st.integers(0, 12),
)
def test_names_stay_different_where_what_differs_has_room(begin, middles, end, spare):
    names = [begin + middle + end for middle in middles]
    short = shorten(names, max(map(width, middles)) + 2 + spare)
    assert len(set(short)) == len(names)


@given(st.lists(WORDS, min_size=1, max_size=8), st.integers(1, 30), st.randoms(use_true_random=False))
def test_what_becomes_of_a_name_is_no_matter_of_the_order(names, cells, random):
    mixed = list(names)
    random.shuffle(mixed)
    assert dict(zip(names, shorten(names, cells), strict=True)) == dict(zip(mixed, shorten(mixed, cells), strict=True))


@pytest.mark.parametrize("cells", [24, 20, 16, 12])
def test_layers_keep_the_number_of_their_block(cells):
    short = dict(zip(LAYERS, shorten(LAYERS, cells), strict=True))
    assert len(set(short.values())) == len(LAYERS)
    for block in range(12):
        assert f"{block}.mlp" in short[f"transformer.h.{block}.mlp.c_proj"]


@pytest.mark.parametrize("cells", [46, 40, 30])
def test_convolutions_keep_all_that_differs(cells):
    for name, short in zip(CONVOLUTIONS, shorten(CONVOLUTIONS, cells), strict=True):
        assert width(name) <= cells or " ".join(name.split()[2:6]) in short


def test_where_not_even_what_differs_fits_what_most_share_goes_first():
    assert len(set(shorten(CONVOLUTIONS, 18))) == len(CONVOLUTIONS)


def test_hundreds_of_names_are_cut_alike():
    """All at one place: the rows of a column stand under each other."""
    names = [f"/srv/data/imagenet/shard-{n:05}.tar" for n in range(300)]
    short = shorten(names, 20)
    assert len(set(short)) == 300
    assert {form.index(CUT) for form in short} == {short[0].index(CUT)}


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(0, 200))
def test_columns_share_the_room_by_need(needs, room):
    shares = share_room(needs, room)
    assert all(min(need, 8) <= share <= need for need, share in zip(needs, shares, strict=True))
    if sum(needs) <= room:
        assert shares == needs
    elif sum(min(need, 8) for need in needs) <= room:
        assert room - len(needs) < sum(shares) <= room
    # Who gets less than he needs gets no less than anybody else, but for the rest of a division.
    most = max(shares)
    assert all(share >= most - 1 for need, share in zip(needs, shares, strict=True) if share < need)


def test_a_table_of_text_keeps_to_its_room_and_its_figures():
    rows = [("ID", "samples", "command", "session")]
    rows += [
        (str(n), "1234", f"python train.py --lr 0.{n} --epochs 90", f"/root/sessions/2026-01-0{n}.memtui")
        for n in range(3)
    ]
    wide, narrow = text_table(rows, 200, right=(0, 1)), text_table(rows, 60, right=(0, 1))
    sessions = text_table(rows, 60, right=(0, 1), whole=(3,))
    assert wide[1] == " 0     1234  python train.py --lr 0.0 --epochs 90  /root/sessions/2026-01-00.memtui"
    assert max(map(len, narrow)) <= 60
    assert all("1234" in line and f"lr 0.{n}" in line and f"-0{n}.memtui" in line for n, line in enumerate(narrow[1:]))
    assert all(f"/root/sessions/2026-01-0{n}.memtui" in line for n, line in enumerate(sessions[1:]))


def test_a_table_that_has_no_rows_is_empty():
    assert text_table([], 80) == []
