"""A module has its test file in its room, or is listed with the place that covers it; no test imports from a test."""

from __future__ import annotations

import re
import tomllib

from tests.support.repository import ROOT

LINES = 60  # of a module that needs tests of its own
ELSEWHERE = tomllib.loads((ROOT / "tests" / "covered_elsewhere.toml").read_text())


def modules() -> list[str]:
    paths = sorted((ROOT / "memtui").glob("*/**/*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if len(path.read_text().splitlines()) >= LINES]


def has_its_own(path: str) -> bool:
    _, room, *_, name = path.split("/")
    return any((ROOT / "tests" / room).rglob(f"test_{name}"))


def entry_of(path: str) -> str | None:
    return next((entry for entry in ELSEWHERE if path == entry or (entry[-1] == "/" and path.startswith(entry))), None)


def test_every_module_has_its_test_file_or_is_listed():
    assert [path for path in modules() if not has_its_own(path) and entry_of(path) is None] == []


def test_what_is_listed_is_there_and_needed():
    needed = {entry_of(path) for path in modules() if not has_its_own(path)}
    assert set(ELSEWHERE) - needed == set()
    assert [place for place in ELSEWHERE.values() if not (ROOT / place).exists()] == []


def test_no_test_imports_from_a_test():
    imports = re.compile(r"^\s*(?:from|import) tests\.(?:\w+\.)*test_", re.MULTILINE)
    paths = [path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert [str(path) for path in paths if imports.search(path.read_text())] == []
