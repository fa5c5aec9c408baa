"""Figures that follow from the fields of a window, and a stream's first message as a dictionary."""

from __future__ import annotations

import json

import pytest

from memtui.core.page_set import PageSet
from memtui.core.samples import Capability, Clock, Hello, Host, Options, ProcessWindow, Target, Vma, tree_paused_ns


def window(**values) -> ProcessWindow:
    return ProcessWindow(1, 0, 100, **values)


@pytest.mark.parametrize(
    ("values", "wss_bytes"),
    [
        ({}, None),
        ({"pages": PageSet.from_pages([1, 2, 9])}, 3 * 4096),
        ({"pages": PageSet.empty()}, 0),
        # Of the VMAs without known pages there are bytes beside them, which are not accessed ones.
        ({"pages": PageSet.from_pages([1]), "vma_wss_bytes": ((0, 8192),)}, 4096),
        ({"vma_wss_bytes": ((0, 8192), (1 << 20, None), (1 << 21, 4096))}, 12288),
        ({"vma_wss_bytes": ()}, 0),
        # Pages of a part of the memory: what they stand for.
        ({"pages": PageSet.from_pages([1]), "wss_estimate_bytes": 81920}, 81920),
        ({"pages": PageSet.from_pages([1]), "wss_estimate_bytes": 0}, 0),
    ],
)
def test_the_working_set_however_it_was_counted(values, wss_bytes):
    assert window(**values).wss_bytes == wss_bytes


@pytest.mark.parametrize(
    ("sizes", "shared_bytes"), [(None, None), ((), 0), (((0, 4096), (1 << 20, None), (1 << 21, 8192)), 12288)]
)
def test_shared_bytes_are_those_of_all_ranges(sizes, shared_bytes):
    assert window(vma_shared_bytes=sizes).shared_bytes == shared_bytes


@pytest.mark.parametrize(
    ("paused", "one_by_one", "together"),
    [([], None, None), ([3, None], None, None), ([0], 0, 0), ([3, 5, 4], 12, 5)],
)
def test_how_long_a_tree_was_paused(paused, one_by_one, together):
    processes = [window(paused_ns=ns) for ns in paused]
    assert tree_paused_ns(iter(processes), together=False) == one_by_one
    assert tree_paused_ns(iter(processes), together=True) == together


def test_a_range_has_the_bytes_between_its_ends():
    assert Vma(0x1000, 0x4000, "rw-p").size_bytes == 0x3000


@pytest.mark.parametrize(("pages", "sampled"), [("exact", False), ("sampled", True)])
def test_pages_of_a_part_of_the_memory(pages, sampled):
    assert Options(10**8, pages=pages).samples_pages is sampled


def test_the_first_message_is_the_same_after_json():
    hello = Hello(
        "1.0",
        Clock(1, 2, 3600, "boot"),
        Host("name", "6.1", "x86_64", 8, 1 << 33),
        Target(7, 1234, "python", "user"),
        Options(10**8, duration_ns=5, max_overhead_ppm=10_000),
        "damon",
        "off",
        "full",
        (Capability("pagetable", False, "no BPF", "run as root"), Capability("idle", False)),
        Capability("wss", True),
        Capability("pages", False, "it counts by region"),
    )
    values = json.loads(json.dumps(hello.to_dict()))
    assert values["options"]["duration_ns"] == 5
    assert Hello.from_dict(values) == hello
    with pytest.raises(TypeError):
        Hello.from_dict({**values, "more": 1})
    with pytest.raises(TypeError):
        Hello.from_dict({**values, "host": {**values["host"], "more": 1}})
    del values["pages"]
    with pytest.raises(KeyError):
        Hello.from_dict(values)
