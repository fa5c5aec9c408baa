"""``memtui train`` as a user runs it: the real command in a process of its own."""

from __future__ import annotations

import csv
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.in_process import memtui_here
from tests.support.network_files import DEFINITIONS, write_zpp_files
from tests.support.repository import ROOT
from tests.support.schemas import check

torch = pytest.importorskip("torch")

from memtui.session.session import Session  # noqa: E402


def memtui(folder: Path, *argv: str, seconds: float = 240) -> subprocess.CompletedProcess[str]:
    """With a state directory of its own; ^C and terminals are not in the way."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "memtui", *argv],
        cwd=folder,
        env=environment,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=seconds,
    )


def document(folder: Path, *argv: str) -> dict:
    done = memtui(folder, "train", *argv, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    check("train", document)
    return document


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_lines_are_those_of_the_seed(tmp_path):
    done = memtui(tmp_path, "train", "fcReLu", "--epochs", "2", "--set", "eval_period=100")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("fcReLu by BP: 9,840 parameters in 3 segments, digits 1x8x8, batch 10")
    assert lines[1].startswith("iteration: 100, accuracy: ")
    assert "%, loss: " in lines[1]
    assert [line for line in lines if line.startswith("finished")] == ["finished epoch 1", "finished epoch 2"]
    assert lines[-1].startswith("total accuracy: ")
    assert lines[-1].endswith("acc iterations: 298")
    assert not list(tmp_path.glob("*.memtui"))


def test_the_document_and_that_it_can_be_had_again(tmp_path):
    argv = (
        "fcReLu",
        "--type",
        "DFAMEM",
        "--epochs",
        "2",
        "--batch-size",
        "20",
        "--seed",
        "7",
        "--set",
        "momentum=0.8",
    )
    one, again = document(tmp_path, *argv), document(tmp_path, *argv)
    assert one == again
    assert (one["network"], one["type"], one["seed"], one["epochs"], one["iterations"]) == (
        "fcReLu",
        "DFAMEM",
        7,
        2,
        148,
    )
    assert one["settings"]["momentum"] == 0.8
    assert 50 < one["accuracy"] <= 100
    assert one["loss"] > 0
    assert one["stopped"] is None
    assert one["session"] is None
    assert one["peak_segment"][0].startswith("FullyConnected_")
    assert sum(one["peak_by_category"].values()) == one["peak_bytes"]
    assert one["peak_by_category"]["inputs"] == 20 * 64 * 4
    dfa = document(tmp_path, *argv[:2], "DFA", *argv[3:])
    assert (dfa["accuracy"], dfa["loss"]) == (one["accuracy"], one["loss"])


@pytest.mark.slow
def test_clusters_are_learned_by_all_rules(tmp_path):
    """64-100-30-10 with a step of 0.1 for ten epochs."""
    argv = ("--dataset-name", "clusters", "--learning-rate", "0.1", "--batch-size", "100", "--set", "momentum=0")
    rules = ("BP", "DFA", "DFAMEM")
    result = {rule: document(tmp_path, "fcReLu", "--type", rule, "--epochs", "10", *argv) for rule in rules}
    assert result["BP"]["accuracy"] >= 93
    assert result["DFA"]["accuracy"] >= 88
    assert result["DFA"]["accuracy"] == result["DFAMEM"]["accuracy"]


@pytest.mark.parametrize("batch", [(), ("--batch-size", "1498", "--epochs", "1")], ids=["", "one batch an epoch"])
def test_memory_only_writes_the_fifth_iteration_and_stops(batch, tmp_path):
    """Also where the epochs that were asked for have fewer."""
    result = document(tmp_path, "fcReLu", "--type", "DFA", "--memory-only", *batch)
    assert result["iterations"] == 5
    assert result["accuracy"] is None
    assert result["reason"] == "memory_only stops before the accuracy is measured"
    text, picture = (tmp_path / name for name in result["files"])
    assert text.parent == tmp_path / "plots"
    assert text.name.startswith("fcReLu_DFA_")
    assert text.name.endswith("_train_5_meta.txt")
    rows = [line.split(" ") for line in text.read_text().splitlines()]
    assert all(len(row) == 4 for row in rows)
    assert {row[3].partition("/")[0] for row in rows} >= {"forward", "gradients"}
    usage, change = [int(row[1]) for row in rows], [int(row[2]) for row in rows]
    assert all(after - before == delta for before, after, delta in zip(usage, usage[1:], change[1:], strict=False))
    assert max(usage) == result["peak_bytes"]
    svg = picture.read_text()
    assert svg.startswith("<?xml")
    assert "above the start of the iteration" in svg


def test_the_graph_has_the_names_of_the_recorded_rows(tmp_path):
    result = document(tmp_path, "fcReLu", "--type", "DFAMEM", "--memory-only", "--save-graph", "--gather-stats")
    text, _, graph, dot, statistics = (tmp_path / name for name in result["files"])
    assert [statistics] == [*(tmp_path / "stats").iterdir()]
    lines = [line.split(" ") for line in graph.read_text().splitlines()]
    nodes = {line[1] for line in lines if line[0] == "op"}
    rows = {line.rstrip().split(" ")[3] for line in text.read_text().splitlines()}
    assert {row for row in rows if "aten::" in row} <= nodes
    edges = {(line[1], line[2]) for line in lines if line[0] == "edge"}
    assert ("gradients/ReLu_3/aten::threshold_backward", "gradients/FullyConnected_2/aten::mm") in edges
    assert all(before in nodes and after in nodes for before, after in edges)
    assert dot.read_text().startswith("digraph iteration {")


@pytest.mark.slow
@pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="which kernels allocate what is that of torch 2.13"
)
def test_a_grid_has_the_peaks_of_its_trainings(tmp_path):
    """The network is most of the peak, and hides in it what a rule of learning needs: 20.3 MB against 2.6 MB."""
    run = ("long_fc2", "--set", "batch_size=200", "--set", "memory_only=true")
    done = memtui(tmp_path, "tune", *run, "--grid", "type=BP,DFAMEM", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["peak_above_start_bytes"] for row in rows] == [20_258_048, 2_610_000]
    assert [row["peak_bytes"] for row in rows] == [59_173_320, 41_925_272]
    for row in rows:
        text = (tmp_path / row["output"]).read_text()
        of_train = json.loads(text[text.index("{\n") :])
        assert of_train["peak_above_start_bytes"] == row["peak_above_start_bytes"]
    shown = memtui(tmp_path, "tune", json.loads(done.stdout)["folder"]).stdout.splitlines()
    assert shown[0].split() == ["accuracy", "loss", "peak", "above", "time", "run"]
    assert shown[1].split()[2:6] == ["56.4", "MiB", "19.3", "MiB"]
    assert shown[2].split()[2:6] == ["40.0", "MiB", "2.49", "MiB"]


def test_training_stops_below_the_minimum_accuracy(tmp_path):
    done = memtui(tmp_path, "train", "fcReLu", "--set", "minimum_accuracy=1:99.9", "--json")
    assert json.loads(done.stdout)["stopped"].startswith("expected 99.9 after 1 epoch, got ")
    assert json.loads(done.stdout)["epochs"] == 1
    assert "stopped: expected 99.9" in done.stderr


def test_a_loss_that_explodes_stops_it(tmp_path):
    result = document(tmp_path, "fcReLu", "--learning-rate", "1e30")
    assert "a smaller learning_rate may help" in result["stopped"]
    assert result["accuracy"] is None


@pytest.mark.slow
def test_weights_are_saved_and_restored(tmp_path):
    save = ("--set", "save_model=true", "--set", "save_model_path=w.pt")
    first = document(tmp_path, "fcReLu", "--epochs", "2", *save)
    data = torch.load(tmp_path / "w.pt", weights_only=True)
    assert {name.partition(".")[0] for name in data} == {"FullyConnected_0", "FullyConnected_2", "FullyConnected_4"}
    restore = ("--set", "restore_model=true", "--set", "restore_model_path=w.pt")
    second = document(tmp_path, "fcReLu", "--epochs", "1", "--learning-rate", "1e-9", *restore)
    assert second["accuracy"] == first["accuracy"]
    other = memtui(tmp_path, "train", "fcSigmoid", *restore)
    assert other.returncode == 2
    assert other.stderr.count("\n") == 1
    assert "is of another network" in other.stderr


class Hostile:
    def __reduce__(self):
        return os.system, ("touch was-here",)


def test_a_hostile_file_of_weights_is_a_line(tmp_path):
    (tmp_path / "w.pt").write_bytes(pickle.dumps(Hostile()))
    restore = ("--set", "restore_model=true", "--set", "restore_model_path=w.pt")
    done = memtui(tmp_path, "train", "fcReLu", *restore)
    assert done.returncode == 2
    assert done.stderr.startswith("memtui train: w.pt: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "was-here").exists()


def test_statistics_are_gathered(tmp_path):
    done = memtui(tmp_path, "train", "fcReLu", "--epochs", "1", "--gather-stats", "--set", "stat_period=50")
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "stats").iterdir()
    rows = rows_of(path)
    assert {row["iteration"] for row in rows} == {"50", "100"}
    assert {row["what"] for row in rows} == {"weights", "activations", "errors"}
    assert {row["layer"] for row in rows if row["what"] == "activations"} >= {"FullyConnected_0", "ReLu_1"}
    assert {row["layer"] for row in rows if row["what"] == "errors"} == {f"FullyConnected_{n}" for n in (0, 2, 4)}


@pytest.mark.slow
def test_networks_of_the_users_own(tmp_path):
    (tmp_path / "mine.py").write_text(DEFINITIONS)
    (tmp_path / "mine.toml").write_text(
        '[wide]\nextends = "fcReLu"\nepochs = 1\n\n[own]\nepochs = 1\ntype = "FA"\n'
        'sequence = [{layer = "FullyConnected", units = 40, flatten = true}, {layer = "Sigmoid"}, '
        '{layer = "FullyConnected", units = "outputs"}]\n'
    )
    small = document(tmp_path, "small", "--definitions", "mine.py", "--epochs", "1")
    assert small["iterations"] == 149
    assert (
        document(tmp_path, "pictures", "--definitions", "mine.py", "--memory-only", "--type", "DFAMEM")["iterations"]
        == 5
    )
    own = document(tmp_path, "own", "--config", "mine.toml")
    assert (own["type"], own["epochs"]) == ("FA", 1)
    assert own["settings"]["sequence"][1] == {"layer": "Sigmoid"}
    assert document(tmp_path, "wide", "--config", "mine.toml", "--sequence", "fcSigmoid")["epochs"] == 1


def test_the_files_of_zpp_mem_are_taken_as_they_are(tmp_path):
    file = str(write_zpp_files(tmp_path).relative_to(tmp_path))
    done = memtui(tmp_path, "train", "--name", "default_network", "--memory-only", "--definitions", file, "--json")
    assert done.returncode == 0, done.stderr
    note = f"memtui train: {file}: default_network: no setting minimize_manually here; ignored"
    assert note in done.stderr.splitlines()
    settings = json.loads(done.stdout)["settings"]
    assert (settings["type"], settings["batch_size"]) == ("DFA", 100)
    assert settings["sequence"][0] == {"layer": "FullyConnected", "units": 100, "flatten": True}
    assert 1 <= settings["seed"] < 100_000_000
    liao = document(tmp_path, "liao_network", "--definitions", file)
    assert (liao["epochs"], liao["seed"], len(liao["settings"]["sequence"])) == (1, 1, 2)
    assert (tmp_path / "model.pt").exists(), "the weights, where the file says no path"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "name one network: memtui train NETWORK, or --name NETWORK"),
        (("fcReLu", "--name", "fcReLu"), "name one network"),
        (("fcRelu",), "there is no network fcRelu; did you mean fcReLu"),
        (("fcReLu", "--type", "DFAMME"), "type is one of BP, FA, DFA, DFAMEM, not DFAMME"),
        (("fcReLu", "--set", "learning_reate=1"), "did you mean learning_rate"),
        (("fcReLu", "--set", "momentum"), "is not of the form key=value"),
        (("fcReLu", "--sequence", "fcsigmoid"), "there is no sequence fcsigmoid; did you mean fcSigmoid"),
        (("fcReLu", "--dataset-name", "mnist"), "mnist is read from a folder: data=DIR says which"),
        (("fcReLu", "--dataset-name", "mnist", "--data", "."), "MNIST is train-images-idx3-ubyte"),
        (("fcReLu", "--batch-size", "2000"), "batch_size is at most the number of examples, 1498, not 2000"),
        (("vgg_16", "--config", "none.toml"), "none.toml: cannot be read: No such file"),
        (("small", "--definitions", "none.py"), "none.py: cannot be read: No such file"),
        (("wrong", "--definitions", "mine.py"), "mine.py: NameError"),
        (("smal", "--definitions", "mine.py"), "there is no network smal; did you mean small"),
        (("fcReLu", "--learning_rate", "1"), "there is no --learning_rate; did you mean --learning-rate"),
    ],
)
def test_what_cannot_be_is_one_line(argv, says, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(DEFINITIONS)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = memtui_here("train", *argv, "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.slow
def test_a_session_holds_the_curves_and_what_is_laid_over_one_another(tmp_path):
    """BP and MEM-DFA recorded, reported, exported and compared."""
    (tmp_path / "deep.toml").write_text(
        "[deep]\nbatch_size = 200\nepochs = 2\nlearning_rate = 0.002\nsequence = [\n"
        + '{layer = "FullyConnected", units = 300, flatten = true}, {layer = "ReLu"},\n' * 8
        + '{layer = "FullyConnected", units = "outputs"}]\n'
    )
    for rule in ("BP", "DFAMEM"):
        argv = ("deep", "--config", "deep.toml", "--type", rule, "-o", f"{rule}.memtui", "--every", "3")
        done = memtui(tmp_path, "train", *argv, "--tracker", "rss", "--no-sudo", "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["session"] == f"{rule}.memtui"
        assert result["iterations"] == 14
    reader = Session(tmp_path / "DFAMEM.memtui")
    (about,) = reader.training.networks()
    assert (about.network, about.rule, about.direct, len(about.segments)) == ("deep", "DFAMEM", True, 9)
    points = reader.training.learning()
    assert points[-1].iteration == 14
    assert [point.epoch for point in points if point.accuracy is not None] == [1, 2]
    assert reader.allocations.steps()
    reader.close()
    report = memtui(tmp_path, "report", "DFAMEM.memtui").stdout
    assert "learning     deep by DFAMEM: epoch 2, iteration 14, loss " in report
    assert "alone sets the peak, " in report
    memtui(tmp_path, "export", "DFAMEM.memtui", "--to", "csv", "-o", "out")
    rows = rows_of(tmp_path / "out" / "learning.csv")
    assert [int(row["iteration"]) for row in rows][-1] == 14
    text = memtui(tmp_path, "compare", "BP.memtui", "DFAMEM.memtui").stdout.splitlines()
    assert text[0].startswith("A  BP: ")
    assert text[4].startswith("A  deep by BP")
    assert "alone" in text[5]
    data = json.loads(memtui(tmp_path, "compare", "BP.memtui", "DFAMEM.memtui", "--json").stdout)
    bp, mem = (one["training"]["peak_above_start_bytes"] for one in data["sessions"])
    assert mem < 0.6 * bp
    assert max(data["sessions"][0]["training"]["curves"]["step"][1]) == bp
    none = memtui(tmp_path, "compare", "BP.memtui", "none.memtui")
    assert (none.returncode, none.stderr.count("\n")) == (2, 1)
