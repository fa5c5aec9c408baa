"""Names are the field's: the private words of the dictionary in CONTRIBUTING.md do not come back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.repository import ROOT

WORDS = {
    *("found", "one", "made", "held", "kept", "known", "place", "words", "told", "tell", "say", "said", "hear", "ask"),
    *("asked", "beside", "keeper", "hands", "worth", "begin", "look", "plain"),
}
EXPECTED = {
    ("core/options.py", "PLACE"): "the command memtui place",
    ("placement/arguments.py", "PLACE"): "the command memtui place",
    ("placement/command.py", "place"): "the command memtui place",
    ("probes/pages/damon/messages.py", "found"): "a key of its messages",
    ("probes/pages/idle/bitmap.py", "words"): "of 64 bits",
    ("recording/control.py", "asked"): "a key of the answer of a control socket, which another version may read",
    ("recording/registry.py", "told"): "a key of the file of a recording that runs, which another version may read",
    ("study/host_info.py", "place"): "of a run of a study",
    ("study/plan.py", "place"): "a key of the state of a study, of which finished runs are found again",
}


def new_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case (
                ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name


def private_words(root: Path) -> set[tuple[str, str]]:
    return {
        (str(path.relative_to(root)), name)
        for path in root.rglob("*.py")
        for name in new_names(ast.parse(path.read_text()))
        if name.strip("_").lower() in WORDS
    }


def test_no_private_word_is_a_name():
    assert private_words(ROOT / "memtui") == EXPECTED.keys()


def test_a_private_word_is_noticed(tmp_path):
    (tmp_path / "a.py").write_text("def f(found): self._kept = worth = 1\n")
    assert private_words(tmp_path) == {("a.py", "found"), ("a.py", "_kept"), ("a.py", "worth")}
