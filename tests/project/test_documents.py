"""The documents: what is made from the program is not stale, and every link leads somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.support.repository import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli.md", "keys.md", "config.md", "session-format.md"])
def test_a_page_that_is_made_from_the_program_is_not_stale(name):
    made = reference().PAGES[name]()
    assert (ROOT / "docs" / "reference" / name).read_text() == made, "python docs/reference.py writes it"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path):
    text = path.read_text()
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    named = re.findall(r"`((?:docs|tests|benchmarks)/[a-z0-9_./-]+\.(?:md|py|toml|svg))`", text)
    lost = [link for link in links if link and "://" not in link and not (path.parent / link).exists()]
    assert lost + [name for name in named if not (ROOT / name).exists()] == []


def test_the_readme_is_read_in_a_minute():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130
