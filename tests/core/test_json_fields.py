"""Dataclasses become JSON data and come back as they were; what does not fit is named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.json_fields import fields_from_json, fields_to_json, from_json, from_json_union, to_json


@dataclass(frozen=True, slots=True)
class Move:
    """Has a key that is not its field."""

    at_ns: int

    def to_dict(self) -> dict[str, Any]:
        return {"at": self.at_ns}

    @classmethod
    def from_dict(cls, data: Any) -> Move:
        return cls(data["at"])


@dataclass(frozen=True, slots=True)
class Checked:
    """Has its fields as keys, and checks more than types."""

    share: float

    def to_dict(self) -> dict[str, Any]:
        return fields_to_json(self)

    @classmethod
    def from_dict(cls, data: Any) -> Checked:
        checked = fields_from_json(cls, data)
        if checked.share > 1:
            raise ValueError("more than all")
        return checked


@dataclass(frozen=True, slots=True)
class Inner:
    names: tuple[str, ...]
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Start:
    do: str = field(default="start", init=False)
    inner: Inner
    pairs: tuple[tuple[int, str], ...] = ()
    counts: Mapping[str, list[float]] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    share: Checked | None = None
    about: Mapping[str, str | int | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    do: str = field(default="stop", init=False)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    join: int


@dataclass(frozen=True, slots=True)
class Limit:
    limit: int


KINDS: tuple[type[Start | Stop], ...] = (Start, Stop)
numbers = st.floats(allow_nan=False)
inner = st.builds(Inner, st.lists(st.text()).map(tuple), st.none() | numbers)
starts = st.builds(
    Start,
    inner,
    st.lists(st.tuples(st.integers(), st.text())).map(tuple),
    st.dictionaries(st.text(), st.lists(numbers)),
    st.lists(st.builds(Move, st.integers())).map(tuple),
    st.none() | st.builds(Checked, st.floats(0, 1)),
    st.dictionaries(st.text(), st.text() | st.integers() | st.booleans()),
)


def through_json(record: Any) -> Any:
    return json.loads(json.dumps(to_json(record)))


@given(starts)
def test_a_dataclass_comes_back_as_it_was(start: Start) -> None:
    assert from_json(Start, through_json(start)) == start
    assert through_json(from_json(Start, through_json(start))) == through_json(start)


@given(starts | st.builds(Stop, st.text()))
def test_a_tag_tells_the_classes_of_a_union_apart(message: Start | Stop) -> None:
    assert from_json_union(KINDS, through_json(message)) == message


@given(st.builds(Join, st.integers()) | st.builds(Limit, st.integers()))
def test_so_do_keys(message: Join | Limit) -> None:
    kinds: tuple[type[Join | Limit], ...] = (Join, Limit)
    assert from_json_union(kinds, through_json(message)) == message


def test_keys_are_the_fields_in_their_order() -> None:
    start = Start(Inner(("a",)), ((1, "b"),), {"c": [0.5]}, (Move(3),), Checked(0.25))
    assert json.dumps(to_json(start)) == (
        '{"do": "start", "inner": {"names": ["a"], "ratio": null}, "pairs": [[1, "b"]], "counts": {"c": [0.5]}, '
        '"moves": [{"at": 3}], "share": {"share": 0.25}, "about": {}}'
    )


def test_a_missing_field_has_its_default_and_a_number_stays_as_it_is() -> None:
    assert from_json(Inner, {"names": []}) == Inner(())
    assert type(from_json(Inner, {"names": [], "ratio": 1}).ratio) is int


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "the data is list, not dict"),
        ({}, "names is missing"),
        ({"names": ["a"], "size": 1}, "size is not known"),
        ({"names": "ab"}, "names is str, not list"),
        ({"names": None}, "names is null, not list"),
        ({"names": ["a", 1]}, "names[1] is int, not str"),
        ({"names": [], "ratio": True}, "ratio is bool, not float"),
    ],
)
def test_what_does_not_fit_is_named(data: Any, text: str) -> None:
    with pytest.raises(ValueError, match="^" + text.replace("[", r"\[") + "$"):
        from_json(Inner, data)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"do": "begin"}, "do is not start; do is not stop"),
        ({"inner": {"names": [], "ratio": "1"}}, "inner.ratio is str, not float"),
        ({"pairs": [[1, "a"], [1]]}, r"pairs\[1\] has 1 items, not 2"),
        ({"pairs": [["a", "a"]]}, r"pairs\[0\]\[0\] is str, not int"),
        ({"counts": {"x": [None]}}, r"counts.x\[0\] is null, not float"),
        ({"share": {"share": 2.0}}, "more than all"),
        ({"share": {}}, "share.share is missing"),
        ({"about": {"x": []}}, "about.x fits no type"),
    ],
)
def test_so_is_what_does_not_fit_deeper(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        from_json_union(KINDS, through_json(Start(Inner(()))) | change)


def test_a_type_that_no_json_has_is_a_fault_of_the_program() -> None:
    @dataclass
    class Odd:
        values: set

    with pytest.raises(TypeError, match="set"):
        from_json(Odd, {"values": []})
