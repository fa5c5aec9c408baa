"""A module has its test file in its room, or is listed with the place that covers it; no test imports from a test.

A test file counts for the modules that it imports. What it runs in another way, ``tests/covered_elsewhere.toml`` says.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import PurePath
from typing import NamedTuple

import grimp
import pytest

from memtui.cli.parser import GROUPS
from tests.support.repository import ROOT

LINES = 60  # of a module that needs tests of its own
MOST_LINES = 450  # of any module
VERBS = {verb for group in GROUPS.values() for verb in group}


class Coverage(NamedTuple):
    """Where a module is tested; ``through``: what the test calls where it does not import the module."""

    test: str
    through: str = ""

    @classmethod
    def of(cls, entry: str | dict[str, str]) -> Coverage:
        return cls(entry) if isinstance(entry, str) else cls(**entry)


ELSEWHERE = {
    path: Coverage.of(entry)
    for path, entry in tomllib.loads((ROOT / "tests" / "covered_elsewhere.toml").read_text()).items()
}


@cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("memtui", "tests", cache_dir=None)


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def all_modules() -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "memtui").glob("*/**/*.py"))]


def modules() -> list[str]:
    return [path for path in all_modules() if len((ROOT / path).read_text().splitlines()) >= LINES]


def test_no_module_is_too_long():
    lines = {path: len((ROOT / path).read_text().splitlines()) for path in all_modules()}
    assert not {path: count for path, count in lines.items() if count > MOST_LINES}


def room_of(path: str) -> str:
    return PurePath(path).parts[1]


@cache
def namesakes() -> Counter[tuple[str, str]]:
    return Counter((room_of(path), PurePath(path).name) for path in all_modules())


def own_tests(path: str) -> list[str]:
    """Return the test files named after a module.

    Where modules of a room have the same name, that of a sub-package is ``test_<package>_<module>.py``.
    """
    room, name = room_of(path), PurePath(path).name
    package = PurePath(path).parent.name
    names = {name} if package == room or namesakes()[room, name] == 1 else set()
    return [
        str(file.relative_to(ROOT))
        for each in sorted(names | {f"{package}_{name}"})
        for file in (ROOT / "tests" / room).rglob(f"test_{each}")
    ]


def imports_module(test: str, path: str) -> bool:
    """Whether a test imports a module, or a module of a folder."""
    targets = imports().find_modules_directly_imported_by(module_of(test))
    if path.endswith("/"):
        return any(target.startswith(module_of(path)) for target in targets)
    return module_of(path) in targets


def has_its_own(path: str) -> bool:
    return any(imports_module(test, path) for test in own_tests(path))


def entry_of(path: str) -> str | None:
    return next((entry for entry in ELSEWHERE if path == entry or (entry[-1] == "/" and path.startswith(entry))), None)


def helpers_of(test: str) -> set[str]:
    """Return a test module and the modules of ``tests.support`` that it imports, also by way of another."""
    helpers, new = {test}, {test}
    while (
        new := {
            module
            for each in new
            for module in imports().find_modules_directly_imported_by(each)
            if module.startswith("tests.support.")
        }
        - helpers
    ):
        helpers |= new
    return helpers


def what_is_wrong(path: str, coverage: Coverage) -> str:
    """Return what is wrong with an entry of the list; an empty text where nothing is."""
    test, through = coverage
    if not (ROOT / test).is_file():
        return f"{test} is not there"
    if imports_module(test, path):
        return f"{test} imports it: through is not needed" if through else ""
    if not through:
        return f"{test} does not import it: through says what it calls"
    kind, _, name = through.rpartition(" ")
    helpers = helpers_of(module_of(test))
    if not kind and name in imports().modules:  # a module
        called = set().union(*map(imports().find_modules_directly_imported_by, helpers))
        if name not in called:
            return f"{test} does not import {name}"
        chain = imports().find_shortest_chain(name, module_of(path))
        return "" if chain else f"{name} does not import it"
    if kind == "python -m":
        return "" if name == module_of(path) else f"{name} is another module"
    if kind == "memtui":
        texts = [(ROOT / f"{helper.replace('.', '/')}.py").read_text() for helper in helpers]
        if name not in VERBS or not any(re.search(rf'["\s]{name}["\s]', text) for text in texts):
            return f"{test} does not run {through}"
    return "" if kind else f"through = {name!r} is neither a module nor a command"


def test_every_module_has_its_test_file_or_is_listed():
    assert [path for path in modules() if not has_its_own(path) and entry_of(path) is None] == []


def test_what_is_listed_is_there_and_needed():
    needed = {entry_of(path) for path in modules() if not has_its_own(path)}
    assert set(ELSEWHERE) - needed == set()
    assert {path: wrong for path, coverage in ELSEWHERE.items() if (wrong := what_is_wrong(path, coverage))} == {}


def test_a_namesake_does_not_count():
    assert own_tests("memtui/placement/command.py") == ["tests/placement/test_command.py"]
    assert "tests/placement/test_command.py" not in own_tests("memtui/placement/profiling/command.py")


@pytest.mark.parametrize(
    ("test", "through", "wrong"),
    [
        ("tests/bench/test_command.py", "", "does not import it: through says what it calls"),
        ("tests/bench/test_away.py", "", "is not there"),
        ("tests/bench/test_cpu_speed.py", "memtui.bench.command", "imports it: through is not needed"),
        ("tests/bench/test_command.py", "memtui.bench.sweep_task", "does not import memtui.bench.sweep_task"),
        ("tests/bench/test_command.py", "memtui.core.errors", "memtui.core.errors does not import it"),
        (
            "tests/bench/test_command.py",
            "python -m memtui.bench.torch.worker",
            "memtui.bench.torch.worker is another module",
        ),
        ("tests/bench/test_command.py", "memtui study", "does not run memtui study"),
        ("tests/bench/test_command.py", "somehow", "is neither a module nor a command"),
        ("tests/bench/test_command.py", "memtui.bench.command", ""),
        ("tests/bench/test_command.py", "memtui bench", ""),
    ],
)
def test_an_entry_that_is_wrong_is_noticed(test, through, wrong):
    assert what_is_wrong("memtui/bench/text.py", Coverage(test, through)).endswith(wrong)


def test_no_test_imports_from_a_test():
    imports = re.compile(r"^\s*(?:from|import) tests\.(?:\w+\.)*test_", re.MULTILINE)
    paths = [path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert [str(path) for path in paths if imports.search(path.read_text())] == []
