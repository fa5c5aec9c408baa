"""``memtui breakdown``: the numbers of the original on a log whose answers are known, and our own."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PageObject, PdfReader

from memtui.analysis.allocation_trace import CATEGORIES, StepTrace
from memtui.formats.category_rules import bundled
from memtui.formats.mxnet_tags import PADDING_BYTES, compat_key, compat_keys, kind_of_tag, raw_tag, tag_for
from memtui.reports.breakdown.rules import COMPAT_RULES, Item, Layers, break_down, items_of
from memtui.reports.charts.matplotlib_pdf import PdfDrawing
from memtui.session.session import Session
from tests.support.allocation_screen import step as allocation_step
from tests.support.in_process import run
from tests.support.memory_logs import A1, A1_ANALYSIS, ZPP, mxnet_log
from tests.support.memray_captures import needs_memray
from tests.support.schemas import check
from tests.support.sessions import messages, write_session

MIB = 1 << 20


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("rnn.log").write_bytes(mxnet_log())
    return tmp_path


def breakdown_of(capsys, *arguments: str) -> dict:
    code, out, err = run(capsys, "breakdown", *arguments, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    check("breakdown", document)
    (result,) = document["files"]
    return result


def sizes(result: dict) -> dict[str, int]:
    return {bar["key"]: bar["bytes"] for bar in result["categories"]}


def test_compat_has_the_results_of_the_original(capsys):
    result = breakdown_of(capsys, "rnn.log", "--rules", "compat")
    assert sizes(result) == {key: int(total) for key, (total, _) in A1_ANALYSIS.items()}
    assert result["totals"] == {
        "bytes": 9_438_208,
        "allocations": 9,
        "weights_bytes": 2_097_216,
        "unknown_bytes": 96,
        "forward_bytes": 9_438_208 - 2_097_216 - 96,
    }
    assert result["totals"]["bytes"] / MIB == 9.0009765625
    assert result["totals"]["weights_bytes"] / MIB == 2.00006103515625
    assert sizes(result)["att"] == 64  # flatten0: what the original gets wrong
    assert result["dropped"] == [{"tag": "forward_features:zzz9", "bytes": 64, "allocations": 1}]
    assert result["what"] == "allocated from the driver"


def test_our_rules_drop_nothing(capsys):
    result = breakdown_of(capsys, "rnn.log", "--subtract-padding")
    assert result["totals"] == {"bytes": 9_438_272 - 10 * PADDING_BYTES, "allocations": 10}
    assert sizes(result) == {
        "temporaries": 4_194_304,
        "activations": 2_097_312 - 3 * PADDING_BYTES,
        "weights": MIB,
        "gradients": MIB,
        "optimiser state": MIB,
        "buffers": 512,
        "inputs": 128,
        "unknown": 64,
    }
    assert breakdown_of(capsys, "rnn.log")["totals"] == {"bytes": 9_438_272, "allocations": 10}
    assert result["dropped"] == []


def test_an_allocation_in_mb_counts_and_is_marked(capsys):
    Path("mb.log").write_bytes(mxnet_log(in_mb=(("mask_workspace", 3),)))
    result = breakdown_of(capsys, "mb.log", "--rules", "compat")
    assert sizes(result)["workspace"] == 4_194_336 + 3_145_728
    assert result["mb_precision"] == ["mask_workspace"]
    assert sizes(breakdown_of(capsys, "mb.log", "--subtract-padding"))["temporaries"] == 4_194_304 + 3_145_728
    assert "of MB precision in the log: mask_workspace" in run(capsys, "breakdown", "mb.log")[1]


def test_a_log_without_allocations_is_bad_input(capsys):
    Path("none.log").write_text("[trace] In InitGraph.\n")
    code, out, err = run(capsys, "breakdown", "none.log")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "none.log: is text, but of no format that is known: it has no line `[mem] Allocate BYTES" in err


def test_fraction_hides_what_is_not_more_than_that(capsys):
    result = breakdown_of(capsys, "rnn.log", "--rules", "compat", "--fraction", "12")
    shown = [(bar["name"], round(bar["share"] * 100, 2)) for bar in result["categories"] if bar["shown"]]
    assert shown == [("Workspace", 44.44), ("RNN Layer", 22.22)]
    _, out, _ = run(capsys, "breakdown", "rnn.log", "--rules", "compat", "--fraction", "12%", "--title", "Sockeye")
    assert out.splitlines()[0] == "Sockeye"
    assert [line.split("  ")[1].strip() for line in out.splitlines() if "█" in line] == ["Workspace", "RNN Layer"]
    assert "7 more of 12 % or less each" in out


def test_the_same_from_log_analysis_and_session(capsys):
    run(capsys, "import", "rnn.log", "-o", "s.memtui")
    run(capsys, "export", "s.memtui", "--to", "analysis", "-o", "out")
    first = breakdown_of(capsys, "rnn.log", "--rules", "compat")
    for path in ("s.memtui", "out/s_ANALYSIS"):
        result = breakdown_of(capsys, path, "--rules", "compat")
        assert result["categories"] == first["categories"]
        assert result["totals"] == first["totals"]
    own = breakdown_of(capsys, "out/s_ANALYSIS", "--subtract-padding")
    assert sizes(own)["weights"] == MIB
    assert own["totals"]["allocations"] == 9  # the original dropped one


def test_both_steps_of_the_seed_in_the_order_of_its_readme(capsys):
    """Logs -> analysis -> one graph a file, or all in one."""
    Path("logs").mkdir()
    Path("logs/rnn_1g").write_bytes(mxnet_log())
    Path("logs/conv_1g").write_bytes(mxnet_log(A1[:3]))
    assert run(capsys, "import", "logs", "-o", "memory_analysis")[0] == 0
    for name in ("rnn_1g", "conv_1g"):
        session = f"memory_analysis/{name}.memtui"
        assert run(capsys, "export", session, "--to", "analysis", "-o", "memory_analysis")[0] == 0
    given = ["memory_analysis/rnn_1g_ANALYSIS", "memory_analysis/conv_1g_ANALYSIS"]
    for form in ("svg", "pdf"):
        for options, names in (
            ((), {f"rnn_1g_ANALYSIS.{form}", f"conv_1g_ANALYSIS.{form}"}),
            (("--all", "--title", "Sockeye"), {f"breakdown.{form}"}),
        ):
            out = Path(f"graphs-{form}{len(options)}")
            code, out_text, _ = run(
                capsys, "breakdown", *given, "--rules", "compat", "--to", form, "-o", str(out), *options
            )
            assert code == 0
            assert {Path(line).name for line in out_text.split()} == {path.name for path in out.iterdir()} == names
    texts = svg_texts(Path("graphs-svg3/breakdown.svg"))
    assert "Sockeye" in texts
    assert {"Workspace", "RNN Layer", "Weights"} <= texts
    assert "44.44 %, 4.00 MiB" in texts


def svg_texts(path: Path) -> set[str]:
    return {element.text for element in ET.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")}


def widths(path: Path) -> list[float]:
    rects = ET.parse(path).getroot().iter("{http://www.w3.org/2000/svg}rect")
    return [float(rect.get("width")) for rect in rects if rect.get("class") == "fill-wss"]


def test_all_files_share_one_scale(capsys):
    Path("half.log").write_bytes(mxnet_log([(tag, size // 2) for tag, size in A1]))
    run(capsys, "breakdown", "rnn.log", "half.log", "--all", "--to", "svg", "-o", "one")
    run(capsys, "breakdown", "rnn.log", "half.log", "--to", "svg", "-o", "each")
    together = widths(Path("one/breakdown.svg"))
    assert together[8] == pytest.approx(together[0] / 2, abs=0.02)
    assert widths(Path("each/rnn.log.svg"))[0] == pytest.approx(widths(Path("each/half.log.svg"))[0], abs=0.02)
    _, out, _ = run(capsys, "breakdown", "rnn.log", "half.log", "--all")
    bars = [line.count("█") for line in out.splitlines() if "temporaries" in line]
    assert bars == [32, 16]


def test_what_is_compared_has_its_categories_in_one_order(capsys):
    """The largest category of either log is not that of the other; both have one that the other lacks."""
    common = [("in_arg:weight", MIB), ("source", 512)]
    Path("conv.log").write_bytes(mxnet_log([*common, ("workspace:conv", 3 * MIB), ("untagged", 96)]))
    Path("rnn.log").write_bytes(mxnet_log([*common, ("forward_features:rnn", 3 * MIB), ("workspace:rnn", MIB)]))
    files = ("rnn.log", "conv.log")
    order = ["workspace", "rnn", "in_arg", "(source)", "untagged"]
    _, out, _ = run(capsys, "breakdown", *files, "--rules", "compat", "--json")
    rnn, conv = json.loads(out)["files"]
    assert list(sizes(rnn)) == ["workspace", "rnn", "in_arg", "(source)"]
    assert list(sizes(conv)) == ["workspace", "in_arg", "(source)", "untagged"]
    _, out, _ = run(capsys, "breakdown", *files, "--rules", "compat", "--all", "--json")
    rnn, conv = json.loads(out)["files"]
    assert list(sizes(rnn)) == list(sizes(conv)) == order
    assert (sizes(rnn)["untagged"], sizes(conv)["rnn"]) == (0, 0)
    assert (rnn["totals"]["bytes"], conv["totals"]["bytes"]) == (5 * MIB + 512, 4 * MIB + 608)

    _, out, _ = run(capsys, "breakdown", *files, "--rules", "compat", "--all", "--fraction", "20")
    panels = [[line.split("  ")[1] for line in panel.splitlines()[2:-2]] for panel in out.split("\n\n")]
    assert panels[0] == panels[1] == ["Workspace", "RNN Layer", "Weights"]
    run(capsys, "breakdown", *files, "--rules", "compat", "--all", "--to", "svg", "-o", "one")
    together = widths(Path("one/breakdown.svg"))
    assert len(together) == 2 * len(order)
    assert together[1] == pytest.approx(together[5], abs=0.02)
    assert (together[4], together[6]) == (0, 0)


def pdf_page(data: bytes) -> PageObject:
    (page,) = PdfReader(io.BytesIO(data)).pages
    return page


def test_a_pdf_has_its_title_bars_and_labels(capsys):
    title = "a (b) \\ é $x$ 漢"
    for folder in ("out", "again"):
        assert run(capsys, "breakdown", "rnn.log", "--to", "pdf", "-o", folder, "--title", title)[0] == 0
    data = Path("out/rnn.log.pdf").read_bytes()
    assert data == Path("again/rnn.log.pdf").read_bytes()
    page = pdf_page(data)
    text = page.extract_text()
    assert "a (b) \\ é $x$ ?\n" in text
    run(capsys, "breakdown", "rnn.log", "--to", "svg", "-o", "out")
    figure = Path("out/rnn.log.svg")
    assert [label for label in svg_texts(figure) if label not in text] == []
    filled = re.findall(rb"([\d.]+) [\d.]+ m\n([\d.]+) [\d.]+ l\n[^h]*h\s+f", page.get_contents().get_data())
    bars = [float(end) - float(start) for start, end in filled][1:]  # the first is the page
    assert bars == pytest.approx(widths(figure), abs=0.01)


def test_text_of_a_pdf_ends_where_it_should():
    for anchor, left in (("start", 90), ("middle", 90 - 1.5 * 6.84), ("end", 90 - 3 * 6.84)):  # an A is 0.684 em wide
        drawing = PdfDrawing(100, 50, "t", "d")
        drawing.text(90, 10, "AAA", size=10, anchor=anchor)
        drawn = pdf_page(drawing.pdf()).get_contents().get_data()
        x, y = re.search(rb"([\d.]+) ([\d.]+) cm\nBT", drawn).groups()
        assert (float(x), float(y)) == pytest.approx((left, 40), abs=1)


def test_without_matplotlib_a_pdf_is_refused_before_anything_is_read(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run(capsys, "breakdown", "rnn.log", "--to", "pdf", "-o", "out")
    assert (code, out) == (1, "")
    assert err == "memtui breakdown: figures need matplotlib: pip install 'memtui[study]'\n"
    assert not Path("out").exists()


def test_of_a_traced_training_it_is_what_was_held_at_the_peak(capsys):
    stream = list(messages(6))
    stream[9:9] = [allocation_step(20), allocation_step(40, extra=30)]
    path = write_session(Path("s.memtui"), stream)
    result = breakdown_of(capsys, str(path))
    _, out, _ = run(capsys, "report", str(path), "--json")
    most = json.loads(out)["allocations"]
    assert result["what"] == "held at the peak of step 40"
    assert sizes(result) == most["at_peak"]["bytes"]
    assert result["totals"]["bytes"] == most["peak_bytes"]["max"]
    assert sum(sizes(breakdown_of(capsys, str(path), "--rules", "compat")).values()) <= result["totals"]["bytes"]
    code, _, err = run(capsys, "breakdown", str(path), "--subtract-padding")
    assert code == 0
    assert "have no padding; nothing is subtracted" in err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nope"], "nope: no such file"),
        (["rnn.log", "--to", "svg"], "figures need both a form and a folder"),
        (["rnn.log", "-o", "out"], "figures need both a form and a folder"),
        (["rnn.log", "--to", "svg", "-o", "out", "--json"], "not both"),
        (["rnn.log", "--rules", "mine"], "there are no rules 'mine'"),
        (["rnn.log", "--fraction", "101"], "from 0 to 100 per cent"),
        (["nope", "nope2"], "none of 2 files; the first: nope: no such file"),
        (["rnn.log", "--to", "svg", "-o", "rnn.log"], "rnn.log: cannot be written"),
    ],
)
def test_bad_input_is_one_line(arguments, why, capsys, folder):
    before = sorted(folder.rglob("*"))
    code, out, err = run(capsys, "breakdown", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert why in err
    assert sorted(folder.rglob("*")) == before


def test_a_bad_file_is_a_line_and_the_others_go_on(capsys):
    Path("x.txt").write_text(ZPP)
    code, out, err = run(capsys, "breakdown", "rnn.log", "nope", "x.txt")
    assert code == 2
    assert out.count("rules memtui") == 2
    assert err == "memtui breakdown: nope: no such file\n"
    run(capsys, "breakdown", "rnn.log", "--to", "svg", "-o", "out")
    code, _, err = run(capsys, "breakdown", "x.txt", "rnn.log", "--to", "svg", "-o", "out")
    assert code == 2
    assert "out/rnn.log.svg: exists already" in err
    assert [path.name for path in Path("out").iterdir()] == ["rnn.log.svg"]


def test_a_folder_is_its_files(capsys, folder):
    logs = folder / "logs"
    logs.mkdir()
    (logs / "a.log").write_bytes(mxnet_log())
    (logs / "b.log.xz").write_bytes(lzma.compress(mxnet_log()))
    (logs / "deeper").mkdir()
    code, out, err = run(capsys, "breakdown", "logs")
    assert (code, err) == (0, "")
    assert [line.partition(" (")[0] for line in out.splitlines() if "MXNet log" in line] == ["a.log", "b.log.xz"]
    (folder / "none").mkdir()
    code, _, err = run(capsys, "breakdown", "none")
    assert code == 2
    assert err.startswith("memtui breakdown: none: is a folder without files; expected is an MXNet log")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_packed_logs_and_pipes_are_those_that_were_packed(pack, capsys, monkeypatch):
    plain = breakdown_of(capsys, "rnn.log")
    _, lines, _ = run(capsys, "breakdown", "rnn.log")
    data = pack(mxnet_log())
    Path("packed").write_bytes(data)
    assert breakdown_of(capsys, "packed") == {**plain, "file": "packed"}
    for options in ((), ("--json",)):
        end, start = os.pipe()
        assert os.write(start, data) == len(data)
        os.close(start)
        with os.fdopen(end) as pipe:
            monkeypatch.setattr("sys.stdin", pipe)
            code, out, err = run(capsys, "breakdown", "-", *options)
        assert (code, err) == (0, "")
        if options:
            assert json.loads(out)["files"] == [{**plain, "file": "standard input"}]
        else:
            assert out == lines.replace("rnn.log", "standard input")


def test_a_title_is_nothing_that_a_terminal_would_act_on(capsys):
    title = "\x1b]0;x\x07\x1b[2Jours"
    code, out, err = run(capsys, "breakdown", "rnn.log", "--title", title)
    assert (code, err) == (0, "")
    assert out.startswith("\\x1b]0;x\\x07\\x1b[2Jours\n")
    for form in ("svg", "pdf"):
        assert run(capsys, "breakdown", "rnn.log", "--title", title, "--to", form, "-o", form)[0] == 0
        assert b"\x1b" not in next(Path(form).iterdir()).read_bytes().partition(b"stream")[0]
    assert any("ours" in text for text in svg_texts(next(Path("svg").iterdir())))


@given(st.integers(0, len(CATEGORIES) - 1), st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_tags_that_are_made_are_one_word_of_their_kind(category, layer, op, layer_type):
    tag = tag_for(category, layer, op, layer_type)
    assert f"x {raw_tag(tag)}".split(" ") == ["x", raw_tag(tag)]
    assert len(tag.split()) == 1
    assert CATEGORIES[kind_of_tag(tag)] == CATEGORIES[category]


@given(st.lists(st.tuples(st.text("abcnrt_:()", max_size=9), st.integers(0, 7), st.integers(0, 99))))
def test_nothing_gets_lost(rows):
    items = [Item(tag, kind, size, 1) for tag, kind, size in rows]
    own, compat = (break_down(items, bundled(rules)) for rules in ("memtui", COMPAT_RULES))
    total = sum(item.bytes for item in items)
    assert own.total_bytes == total
    assert own.dropped == ()
    assert compat.total_bytes + sum(item.bytes for item in compat.dropped) == total


def test_the_first_of_the_substrings_counts():
    order = list(compat_keys())
    for key in order:
        assert order.index(compat_key(key)) <= order.index(key)
    assert compat_key("(forward_features:flatten0).\n") == "att"
    assert compat_key("(forward_features:zzz9).\n") is None


def test_rules_of_a_file(capsys, folder):
    (folder / "own.toml").write_text(
        'otherwise = "rest"\n[[rule]]\ncategory = "parameters"\nkind = ["weights", "gradients"]\n'
    )
    result = breakdown_of(capsys, "rnn.log", "--rules", "own.toml")
    plain = sizes(breakdown_of(capsys, "rnn.log"))
    assert sizes(result) == {
        "parameters": plain["weights"] + plain["gradients"],
        "rest": sum(plain.values()) - plain["weights"] - plain["gradients"],
    }
    code, _, err = run(capsys, "breakdown", "rnn.log", "--rules", "none.toml")
    assert (code, err.count("\n")) == (2, 1)
    assert "none.toml" in err


def test_weights_go_with_what_their_layer_calls():
    rows = [(100, 0, "activations", 0), (40, 1, "weights", -1)]
    columns = [(9, size, block, CATEGORIES.index(kind), 0, op, 1) for size, block, kind, op in rows]
    names = ("aten::conv2d/aten::convolution", "body.0")
    trace = StepTrace.from_columns(np.array(columns).T, step=0, start_ns=9, end_ns=9, existing=0, names=names)
    items = items_of(trace, np.arange(2), Layers.of(trace, {}))
    assert {bar.key: bar.bytes for bar in break_down(items, bundled("layers")).bars} == {"Convolution": 140}


def test_scopes_are_what_ran_around_an_operation():
    rows = [(100, 0, 0), (40, 1, 1)]
    columns = [(9, size, block, CATEGORIES.index("activations"), 0, op, -1) for size, block, op in rows]
    names = ("train/decode/aten::linear/aten::addmm", "aten::addmm")
    trace = StepTrace.from_columns(np.array(columns).T, step=0, start_ns=9, end_ns=9, existing=0, names=names)
    scopes = {item.bytes: item.scopes for item in items_of(trace, np.arange(2), Layers.of(trace, {}))}
    assert scopes == {100: ("train", "decode", "aten::linear"), 40: ()}


RECURRENT = """
import memray, torch
from torch import nn
torch.set_num_threads(1)
torch.set_grad_enabled(False)
def work():
    embedding, gru, head = nn.Embedding(50_000, 64), nn.GRU(64, 256), nn.Linear(256, 2000)
    embedded = embedding(torch.randint(0, 50_000, (100, 20)))
    states = gru(embedded)[0]
    return embedding, gru, head, embedded, states, head(states)
with memray.Tracker("capture.bin"):  # without the imports, which allocate a hundred thousand times
    kept = work()
"""


@needs_memray
def test_what_call_stacks_tell_of_layers(capsys, folder):
    """The file of torch.nn in whose call memory was allocated: a Linear is one also where nothing else says so."""
    pytest.importorskip("torch", reason="torch is not installed")
    (folder / "work.py").write_text(RECURRENT)
    subprocess.run([sys.executable, "work.py"], check=True, cwd=folder, timeout=120)
    of_layer = sizes(breakdown_of(capsys, "capture.bin", "--rules", "layers"))
    activations = {"Embedding": 100 * 20 * 64 * 4, "RNN": 100 * 20 * 256 * 4, "Linear": 100 * 20 * 2000 * 4}
    weights = {"Embedding": 50_000 * 64 * 4, "RNN": 3 * 256 * (64 + 256) * 4, "Linear": 256 * 2000 * 4}
    for name, size_bytes in activations.items():
        rest_bytes = 1 << 17 if name == "Embedding" else 3 << 20  # what multiplies matrices has memory of its own
        assert 0 <= of_layer[name] - size_bytes - weights[name] < rest_bytes, name
    (folder / "own.toml").write_text(
        '[[rule]]\ncategory = "recurrent"\nfile = "*/torch/nn/modules/rnn.py"\n'
        '[[rule]]\ncategory = "mine"\nfile = "*/work.py"'
    )
    own = sizes(breakdown_of(capsys, "capture.bin", "--rules", "own.toml"))
    assert own["recurrent"] == of_layer["RNN"]
    assert own["mine"] >= of_layer["Embedding"] + of_layer["Linear"]


@pytest.mark.parametrize(
    ("layer_type", "operator", "key"),
    [("GRU", "aten::addmm", "rnn"), ("BatchNorm2d", "aten::empty", "bn"), ("Embedding", "aten::add", "embed")],
)
def test_the_original_knows_layers_by_their_type(layer_type, operator, key):
    tag = tag_for(CATEGORIES.index("activations"), "encoder", operator, layer_type)
    assert compat_key(raw_tag(tag)) == key
    assert compat_key(raw_tag(tag_for(CATEGORIES.index("activations"), "encoder", operator))) is None


def test_classes_of_layers_are_those_of_the_session(capsys, folder):
    stream = list(messages(6))
    recorded = allocation_step(3)
    types = dict.fromkeys(("blocks.0", "blocks.1", "not there"), "LSTM")
    stream[9:9] = [replace(recorded, layer_types=types), replace(recorded, step=4, layer_types={"blocks.2": "Conv2d"})]
    write_session(folder / "s.memtui", stream)
    result = breakdown_of(capsys, "s.memtui", "--rules", "layers")
    assert sizes(result)["RNN"] == 2 * MIB
    assert sizes(result)["Convolution"] == MIB


def test_classes_of_layers_may_be_anything(folder):
    stream = list(messages(6))
    stream[9:9] = [replace(allocation_step(3), layer_types={"blocks.0": 5})]
    with closing(Session(write_session(folder / "s.memtui", stream))) as session:
        assert session.allocations.steps() == []
        (warning,) = [event.text for event in session.events(0, 1 << 62) if event.kind == "warning"]
    assert "the classes of layers are not texts by name" in warning


def test_rules_of_a_user_that_are_called_compat_are_his(capsys, folder):
    (folder / "compat.toml").write_text('[[rule]]\ncategory = "mine"\nkind = "weights"\n')
    result = breakdown_of(capsys, "rnn.log", "--rules", "compat.toml")
    assert set(sizes(result)) == {"mine"}
    assert set(result["totals"]) == {"bytes", "allocations"}
