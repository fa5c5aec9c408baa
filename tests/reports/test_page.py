"""The page of ``--to html``: whole without JavaScript and network, and nothing in a session's names can act in it."""

from __future__ import annotations

import base64
import hashlib
import re
import stat
from pathlib import Path

import pytest

from memtui.formats.command import import_all
from memtui.reports.export import export
from tests.support import sessions
from tests.support.allocation_screen import step
from tests.support.cli import memtui, refused
from tests.support.in_process import memtui_here
from tests.support.memory_logs import mxnet_log
from tests.support.pages import EVIL, URLS, Page, evil_stream
from tests.support.sessions import messages, write_session


def page_of(session: Path, folder: Path) -> tuple[Page, str]:
    (path,) = export(session, "html", folder)
    text = path.read_text("utf-8")
    return Page(text), text


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    return page_of(write_session(folder / "train.memtui", messages(30)), folder / "out")


def test_the_numbers_are_those_of_the_report(parsed):
    page, _ = parsed
    text = " ".join(page.words)
    for fact in ("python train.py --lr 0.1", "13.2 MiB", "30 windows", "epoch 1", "no RAPL zone", "2026-"):
        assert fact in text, fact
    cells = page.inside["td"]
    assert "libtorch_cpu.so" in " ".join(cells)  # the table has what the figures leave out
    assert len(page.named("figure")) == len(page.named("svg")) == 3


def test_every_colour_of_a_figure_follows_the_page(parsed):
    """In the dark, a line whose class the page does not know stays as dark as on white."""
    page, text = parsed
    roles = {name for _, attributes in page.elements for name in (attributes.get("class") or "").split()}
    used = {name for name in roles if name.startswith(("stroke-", "fill-"))}
    assert {"stroke-estimate", "stroke-bound", "fill-bound-area"} <= used
    assert {name for name in used if f".{name} {{" not in text} == set()


def test_nothing_is_fetched(parsed):
    page, text = parsed
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form"), tag
        for name in URLS & set(attributes):
            assert attributes[name].startswith("data:image/png;base64,"), (tag, attributes)
    assert not re.search(r"url\(|@import", text)


def test_the_policy_names_the_one_script_and_the_one_style(parsed):
    page, text = parsed
    policy = next(m["content"] for m in page.named("meta") if m.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (content,) = page.inside[tag]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
        assert len(page.named(tag)) == 1
    assert text.index("Content-Security-Policy") < text.index("<style>")
    for tag, attributes in page.elements:  # the policy would refuse them
        assert not [name for name in attributes if name == "style" or name.startswith("on")], (tag, attributes)


def test_names_that_are_markup_are_text(tmp_path, parsed):
    page, text = page_of(write_session(tmp_path / "s.memtui", evil_stream()), tmp_path / "out")
    assert len(page.named("script")) == 1
    assert text.count("<script") == 1
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in parsed[0].elements} | {"p", "h2"}
    assert page.inside["title"][0].startswith(EVIL)
    assert sum(EVIL in part for part in page.words) > 20
    attributes = {name for _, names in page.elements for name in names}
    assert attributes <= {name for _, names in parsed[0].elements for name in names}


def test_a_session_without_anything_gives_a_page(tmp_path):
    page, _ = page_of(write_session(tmp_path / "s.memtui", [sessions.hello()]), tmp_path / "out")
    assert "n/a" in " ".join(page.words)
    assert not page.named("figure")


def test_the_tables_are_sorted_without_a_script(parsed):
    _, text = parsed
    rows = text[text.index("Address ranges") :]
    values = [int(v) for v in re.findall(r'<tr><td class="n" data-value="(\d+)">', rows)]
    assert values == sorted(values, reverse=True)
    assert len(values) == 4


def test_a_traced_training_has_its_figures_and_numbers(tmp_path):
    stream = list(messages(40))
    from tests.support.learning_screen import all_told

    stream[9:9] = [*all_told("BP"), step(20)]
    page, text = page_of(write_session(tmp_path / "s.memtui", stream), tmp_path / "out")
    titles = [title for title in page.inside["title"] if title != "python train.py --lr 0.1: memtui"]
    assert titles[-3:] == ["Loss and accuracy over time", "Memory of tensors over time", "Allocations of step 20"]
    shown = " ".join(page.words)
    for fact in ("fcReLu by BP went through 200 iterations in 4 epochs and is right 90.0 % of the time", "loss 0.082"):
        assert fact in shown, fact
    assert "Tensors held 26.0 MiB at their peak" in shown
    assert "PyTorch told of" in shown
    assert len(text) < 1 << 20


def test_the_file_of_another_tool_has_no_figures_of_pages(tmp_path):
    (tmp_path / "mx.log").write_bytes(mxnet_log())
    (done,) = import_all([tmp_path / "mx.log"], tmp_path / "s.memtui", lambda line: None)
    assert done.session is not None
    page, _ = page_of(tmp_path / "s.memtui", tmp_path / "out")
    text = " ".join(page.words)
    assert "not known: addresses: the log has none" in text
    assert "Tensors held 9.00 MiB at their peak" in text
    assert "Address ranges" not in text
    assert "working set" not in text.lower()
    assert len(page.named("figure")) == 1


def test_the_words_are_those_of_the_numbers(parsed):
    text = " ".join(parsed[0].words)
    assert "In a window of 200 ms the program touches 13.2 MiB in the median (16.5 % of the resident" in text
    assert "An LRU memory of 68.0 MiB would hold 95 %" in text
    assert "after Denning" in text


def test_a_page_goes_to_a_file_or_to_standard_output(tmp_path):
    session = write_session(tmp_path / "s.memtui", messages(5))
    target = tmp_path / "page.html"
    done = memtui("report", session, "--html", target)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{target}\n", "")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    for arguments in (("report", session, "--html"), ("report", "--html", session)):
        assert memtui(*arguments).stdout == target.read_text("utf-8")
    refused(memtui_here("report", session, "--html", target), "exists already; choose another file or add --force")
    refused(memtui_here("report", "--html", session, session), "exists already")  # a session is not written over
    assert memtui("report", session, "--html", target, "--force", "--redact").returncode == 0
    assert "train.py" not in target.read_text("utf-8")
    refused(memtui_here("report"), "name a session: memtui report FILE")
    refused(memtui_here("report", session, "--html", tmp_path / "no" / "x.html"), "there is no folder")
