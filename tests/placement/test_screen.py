"""The screen of a placement profile; goldens as in ``test_screen_goldens``."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from memtui.placement.configurations import configurations
from memtui.placement.graph import Graph
from memtui.placement.profile import Pool, Profile, Samples
from memtui.placement.screen import PlacementApp
from memtui.placement.solvers.pareto import curve
from memtui.placement.solvers.solver import PlanRequest, find
from memtui.placement.store import ProfileFile
from memtui.tui.screens.help import HelpScreen
from memtui.widgets.placement_matrix import level, ratio_text
from tests.support.goldens import compare
from tests.support.placements import graph_of
from tests.support.screen_text import screen_lines, screen_text
from tests.support.terminals import terminals

POOLS = (Pool("dram"), Pool("emulated:29,12", True, "", 29e9, 12e9, 2e9, 2.5e9))
MIB = 1 << 20


def step() -> Graph:
    """Five layers forward and backward, each activation read again on the way back."""
    ops: dict[str, tuple[str, str]] = {}
    sizes: dict[str, int] = {}
    before = "x"
    for n in range(5):
        ops[f"linear_{n}"] = f"{before} w{n}", f"h{n}"
        ops[f"relu_{n}"] = f"h{n}", f"a{n}"
        sizes |= {f"h{n}": (5 - n) * MIB, f"a{n}": (5 - n) * MIB}
        before = f"a{n}"
    gradient = before
    for n in reversed(range(5)):
        ops[f"threshold_backward_{n}"] = f"{gradient} a{n}", f"dh{n}"
        ops[f"mm_backward_{n}"] = f"dh{n} {f'a{n - 1}' if n else 'x'} w{n}", f"da{n}" if n else "new_w"
        sizes |= {f"dh{n}": (5 - n) * MIB} | ({f"da{n}": (6 - n) * MIB} if n else {})
        gradient = f"da{n}"
    return graph_of(ops, sizes, "mlp 784-100-30-10")


def profile(modes: tuple[str, ...] = ("single", "simultaneous")) -> Profile:
    """Writes to slow memory cost five times, reads little; one pair in twenty is far off when others are tested too."""
    chance, graph, samples = random.Random(7), step(), []
    for op in graph.ops:
        sizes = {t: graph.tensor[t].size_bytes for t in op.tensors}
        for configuration in configurations(graph, op, [pool.name for pool in POOLS]):
            pairs = list(zip(op.tensors, configuration.pools, strict=True))
            ns = sum(sizes[t] / 20 * (1 if p == "dram" else 1.06 if t in op.inputs else 5.2) for t, p in pairs)
            for mode in modes:
                slower = 1.0 if mode == "single" else chance.lognormvariate(0.1, 0.1) if chance.random() < 0.95 else 4.0
                times = tuple(ns * slower * chance.lognormvariate(0, 0.03) for _ in range(3))
                samples.append(Samples(op.name, configuration, mode, times, (0, 1, 2)))
    return Profile(graph, POOLS, tuple(samples), 100.0)


def written(path: Path, content: Profile | None = None, *, solved: bool = True) -> ProfileFile:
    content = content or profile()
    file = ProfileFile.create(path, content.graph, content.pools, content.resolution_ns)
    file.add(content.samples)
    if solved:
        file.store_plan(find(content, PlanRequest(12 * MIB, "static")))
        file.store_plan(find(content, PlanRequest(12 * MIB, "sync")))
        file.store_curve("static", POOLS[1].name, "single", list(curve(content, PlanRequest(0), 9)))
    return file


@asynccontextmanager
async def opened(
    file: ProfileFile, until: str = "linear_0", size: tuple[int, int] = (120, 36), **how: object
) -> AsyncIterator[Pilot[None]]:
    app = PlacementApp(file, **how)  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        await wait(pilot, lambda: until in screen_text(app))
        yield pilot


async def wait(pilot: Pilot[None], test: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not test():
        assert time.monotonic() < deadline, f"it did not come:\n{screen_text(pilot.app)}"
        await pilot.pause(0.02)


async def shown(pilot: Pilot[None], *keys: str) -> str:
    await pilot.press(*keys)
    await pilot.pause()
    return screen_text(pilot.app)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ProfileFile:
    return written(tmp_path_factory.mktemp("placement") / "p.memtui")


@pytest.mark.parametrize("size", [(120, 36), (80, 24)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("how", [{}, {"ascii_only": True, "color": "none"}], ids=["", "ascii"])
async def test_the_panels_are_the_pictures(file, size, how):
    keys = {
        "matrix": ("1", "down", "down", "right"),
        "timings": ("2", "up", "up", "up"),
        "plan": ("3", "down", *["right"] * 4),
        "curve": ("4", "right", "right"),
    }
    async with opened(file, size=size, **how) as pilot:
        for name, pressed in keys.items():
            text = await shown(pilot, *pressed)
            assert {len(line) for line in screen_lines(pilot.app)} == {size[0]}
            assert not how or text.isascii()
            compare(f"placement-{name}-{size[0]}x{size[1]}{'-ascii' if how else ''}", text)


async def test_the_matrix_says_what_is_under_its_cursor(file):
    async with opened(file) as pilot:
        text = await shown(pilot, "down", "right")
        assert "relu_0  (dram) -- (emulated:29,12): 1.6" in text
        assert "times as long as all in dram" in text
        assert "single 3: " in text
        text = await shown(pilot, "m")
        assert "emulated:29,12 · simultaneous ·" in text
        text = await shown(pilot, "enter")
        assert "relu_0 (dram) -- (emulated:29,12)  6" in text
        assert text.count("simultaneous  ") == 3
        assert "1 matrix" in await shown(pilot, "escape")


async def test_an_emulated_pool_says_so_on_every_panel(file):
    async with opened(file) as pilot:
        for key in "1234":
            assert "emulated:29,12 (EMULATED: checks the solver, no machine)" in await shown(pilot, key)


async def test_the_other_plan(file):
    async with opened(file) as pilot:
        text = await shown(pilot, "3")
        assert "sync, 12.0 MiB in dram" in text
        assert "moves, ops wait" in text
        text = await shown(pilot, "n")
        assert "static, 12.0 MiB in dram" in text
        assert "against all in dram" in text


async def test_what_is_missing_says_what_to_do(tmp_path):
    file = written(tmp_path / "p.memtui", profile(("single",)), solved=False)
    async with opened(file, size=(160, 36)) as pilot:
        assert "only single times are in this profile: profile with another --mode, too" in await shown(pilot, "2")
        assert "no plan is kept in this profile yet: memtui place solve FILE --ratio 1:1" in await shown(pilot, "3")
        assert "memtui place solve FILE --pareto makes one" in await shown(pilot, "4")


async def test_a_profile_that_grows_is_followed(tmp_path):
    whole = profile()
    file = ProfileFile.create(tmp_path / "p.memtui", whole.graph, whole.pools, whole.resolution_ns)
    async with opened(file, until="0 of") as pilot:
        file.add(whole.samples[:10])
        await wait(pilot, lambda: "5 of " in screen_text(pilot.app))
        file.add(whole.samples[10:])
        await wait(pilot, lambda: "measured ·" not in screen_text(pilot.app))


async def test_a_file_that_is_gone_says_so(tmp_path):
    file = written(tmp_path / "p.memtui", solved=False)
    async with opened(file) as pilot:
        file.path.unlink()
        await wait(pilot, lambda: "no such file" in screen_text(pilot.app))


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (210, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_at_any_size_it_is_said_what_is_shown_and_how_to_leave(file, size):
    async with opened(file, size=size) as pilot:
        for key in "1234":
            lines = (await shown(pilot, key)).splitlines()
            assert "mlp 784-100-30-10: 20 ops" in lines[0]
            assert "emulated:29,12 (EMULATED" in lines[0]
            assert "…" not in lines[0]
            assert lines[-1].rstrip().endswith("? help · q leave")
            assert "…" not in lines[-1]
        assert " emulated:29,12 · single" in (await shown(pilot, "1")).splitlines()[2]
        assert " emulated:29,12 · simultaneous" in (await shown(pilot, "m")).splitlines()[2]
        assert "sync, 12.0 MiB in dram, single times" in await shown(pilot, "3")
        assert "static, emulated:29,12, single times" in await shown(pilot, "4")


async def test_a_long_name_and_many_pools_have_room(tmp_path):
    original = profile(("single",))
    graph = replace(original.graph, name=f"/home/somebody/{'a-long-folder/' * 8}my_model.py:make_it")
    pools = (Pool("dram"), *(Pool(f"file:/mnt/a-long-folder-{n}", True) for n in range(4)))
    file = ProfileFile.create(tmp_path / "p.memtui", graph, pools)
    async with opened(file, size=(80, 24)) as pilot:
        lines = (await shown(pilot)).splitlines()
        assert lines[0].rstrip().endswith("my_model.py:make_it: 20 ops   5 pools (EMULATED)")
        assert " · single" in lines[3]
        assert "s pool" in lines[-1]
        assert " · single" in (await shown(pilot, "s")).splitlines()[3]


async def test_keys_that_do_nothing_are_not_named(tmp_path):
    file = written(tmp_path / "p.memtui", profile(("single",)), solved=False)
    async with opened(file) as pilot:
        for key in "1234":
            foot = (await shown(pilot, key)).splitlines()[-1]
            assert not any(hint in foot for hint in (" m ", " s ", " n "))
            assert ("arrows" in foot) == (key == "1")
            assert "← →" not in foot
            assert "↑ ↓" not in foot


async def test_help_is_about_these_keys(file):
    async with opened(file) as pilot:
        await pilot.press("question_mark")
        await wait(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
        text = await shown(pilot)
        assert "Which memory each tensor should live in" in text
        assert "another way of timing, where there are several" in text
        assert "jump to a typed time" not in text
        await pilot.press("escape")
        await wait(pilot, lambda: "linear_0" in screen_text(pilot.app))


async def test_how_far_measuring_is_stands_on_the_screen(file):
    sentences = ["single (1 of 2): 3 of 9 configurations, 5 s left"]

    def poll(seconds):
        time.sleep(min(seconds, 0.01))
        return sentences[-1], "live"

    app = PlacementApp(file, poll)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait(pilot, lambda: sentences[0] in screen_text(app))
        assert {len(line) for line in screen_lines(app)} == {80}
        sentences.append("finished; q leaves")
        await wait(pilot, lambda: sentences[1] in screen_text(app))
        await pilot.press("2")
        assert sentences[1] in await shown(pilot)


async def test_a_profile_that_grows_says_how_far_it_is(tmp_path):
    whole = profile(("isolated", "single"))
    file = ProfileFile.create(tmp_path / "p.memtui", whole.graph, whole.pools, whole.resolution_ns)
    every = len(whole.samples) // 2
    async with opened(file, until=f"unfinished: measured 0 of {every} configurations") as pilot:
        file.add([samples for samples in whole.samples if samples.mode == "isolated"][:7])
        await wait(pilot, lambda: f"unfinished: isolated 7 of {every} configurations" in screen_text(pilot.app))
        measured = {*ProfileFile(file.path).measured()}
        file.add([s for s in whole.samples if (s.op, s.configuration, s.mode) not in measured])
        await wait(pilot, lambda: "unfinished" not in screen_text(pilot.app))


@pytest.mark.parametrize("theme", ["dark", "light", "high-contrast"])
@pytest.mark.parametrize("color", ["256", "16"])
async def test_colours(file, color, theme):
    async with opened(file, color=color, theme_name=theme) as pilot:
        for key in "1234":
            await shown(pilot, key)
        assert "linear_0" in await shown(pilot, "1")


async def test_any_keys_at_any_size(file):
    chance = random.Random(3)
    keys = [
        "1",
        "2",
        "3",
        "4",
        "tab",
        "up",
        "down",
        "left",
        "right",
        "pageup",
        "pagedown",
        "m",
        "n",
        "s",
        "enter",
        "escape",
        "c",
    ]
    async with opened(file) as pilot:
        pilot.app.screen.action_leave = lambda: None
        for size in ((60, 16), (210, 60), (30, 8), (100, 30), (61, 17)):
            await pilot.resize_terminal(*size)
            await pilot.press(*(chance.choice(keys) for _ in range(60)))
            assert {len(line) for line in screen_lines(pilot.app)} == {size[0]}


def test_heat_of_a_ratio():
    assert [level(r) for r in (0.5, 1.0, 1.05, 1.1, 2, 4, 8, 16, 1000)] == [0, 0, 0, 1, 3, 5, 7, 9, 9]
    assert [ratio_text(r) for r in (1.0, 9.94, 9.96, 123.4, 12345)] == ["1.0", "9.9", "10", "123", "999"]


@pytest.mark.parametrize("argv", [("replay",), ("place", "show")])
def test_it_opens_in_a_terminal(file, argv):
    with terminals() as start:
        terminal = start(*argv, file.path)
        terminal.read(30, until="threshold_backward_4")
        terminal.send("q")
        assert terminal.end(20) == 0
        assert terminal.restored()
