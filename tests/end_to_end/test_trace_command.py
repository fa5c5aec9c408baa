"""``--trace`` on programs that know nothing of it: scripts as a user writes them, started as the README says."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from contextlib import closing
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.cli import main
from memtui.recording.supervisor.program import Launch
from memtui.reports.export import export
from memtui.reports.source import Source
from memtui.reports.traced_windows import TracedWindows, tensor_histories
from memtui.session.session import Session
from tests.support import live
from tests.support.in_process import run
from tests.support.traced_programs import script, traced

pytestmark = pytest.mark.real_clock(alone=False)

torch = pytest.importorskip("torch", reason="torch is not installed")

TRAINING = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 30), nn.ReLU(), nn.Linear(30, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(int(sys.argv[1])):
    x, y = torch.randn(10, 784), torch.randint(0, 10, (10,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 3))
sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
"""
TRANSLATOR = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(500, 32), nn.Embedding(400, 32)
        self.reader, self.writer = nn.GRU(32, 64, batch_first=True), nn.GRU(32, 64, batch_first=True)
        self.words = nn.Linear(64, 400)

    def forward(self, text, translation):
        _, state = self.reader(self.source(text))
        states, _ = self.writer(self.target(translation), state)
        return self.words(states)


model = Translator()
optimizer = torch.optim.Adam(model.parameters())
for step in range(23):
    text, translation = torch.randint(0, 500, (8, 12)), torch.randint(0, 400, (8, 10))
    optimizer.zero_grad()
    scores = model(text, translation)
    nn.functional.cross_entropy(scores.flatten(0, 1), translation.flatten()).backward()
    optimizer.step()
"""
PARAMETERS_BYTES = 4 * (784 * 100 + 100 + 100 * 30 + 30 + 30 * 10 + 10)


def words(done) -> list[str]:
    """What was said on standard error, but for what memtui says of root."""
    return [line for line in done.stderr.splitlines() if not line.startswith("memtui record: ")]


@pytest.fixture(scope="module")
def training(tmp_path_factory) -> tuple[subprocess.CompletedProcess[str], dict, Path]:
    """A recording of 23 steps, its report and its session."""
    folder = tmp_path_factory.mktemp("training")
    done, report = traced(folder, sys.executable, script(folder, TRAINING), "23", "3")
    return done, report, folder / "s.memtui"


def test_an_unmodified_training(training):
    done, report, session = training
    assert done.returncode == 3, "the exit status is the program's"
    assert done.stdout.startswith("loss ")
    assert not words(done), "nothing is added to what it prints"
    found = report["allocations"]
    assert found["steps"] == 5  # 2, 7, 12, 17, 22
    assert found["lost_steps"] == 0
    held = found["at_peak"]["bytes"]
    assert held["weights"] == held["optimiser state"] == PARAMETERS_BYTES
    # All gradients, and the last error on its way back: B2 of the research, 331,368 above the start.
    assert found["peak_bytes"]["max"] == pytest.approx(3 * PARAMETERS_BYTES + 31_440 + 4_008, rel=0.02)
    largest = found["at_peak"]["largest"][0]
    assert (largest["category"], largest["size_bytes"], largest["layer"]) == ("gradients", 4 * 78_400, "0")
    assert largest["op"].endswith("aten::mm")
    assert found["recording_ns"] > 0
    text = subprocess.run(
        [sys.executable, "-m", "memtui", "report", str(session)], capture_output=True, text=True
    ).stdout
    assert "allocations  5 training steps recorded: peak " in text
    assert "at the peak  " in text
    assert "weights 320 KiB" in text


def test_its_allocations_as_a_table(training, tmp_path):
    *_, session = training
    subprocess.run(
        [sys.executable, "-m", "memtui", "export", str(session), "--to", "csv", "-o", str(tmp_path / "o")],
        check=True,
        capture_output=True,
    )
    rows = list(csv.DictReader((tmp_path / "o" / "allocations.csv").read_text().splitlines()))
    steps = [list(of_it) for _, of_it in groupby(rows, key=lambda row: row["step"])]
    assert [of_it[0]["step"] for of_it in steps] == ["2", "7", "12", "17", "22"]
    for of_it in steps:
        held = 0
        for row in of_it:
            held += int(row["delta_bytes"])
            assert held == int(row["usage_bytes"]) >= 0
    forward = {row["layer"] for row in rows if row["phase"] == "forward" and "addmm" in row["op"]}
    assert forward == {"0", "2", "4"}
    assert {"forward", "backward", "between"} <= {row["phase"] for row in rows}
    gradients = {row["layer"] for row in rows if row["category"] == "gradients"}
    assert gradients >= {"0", "2", "4"}


@pytest.fixture(scope="module")
def translator(tmp_path_factory) -> tuple[Path, dict]:
    """The recording of a GRU seq2seq, none of whose layers is called what it is, and its report."""
    folder = tmp_path_factory.mktemp("translator")
    done, report = traced(folder, sys.executable, script(folder, TRANSLATOR))
    assert done.returncode == 0, done.stderr
    return folder / "s.memtui", report


def test_layers_are_told_by_their_class(translator, capsys):
    path, _ = translator
    with closing(Session(path)) as session:
        (pid,) = {step.pid for step in session.allocations.steps()}
        assert session.allocations.layer_types(pid) == {
            "Translator": "Translator", "source": "Embedding", "target": "Embedding", "reader": "GRU", "writer": "GRU",
            "words": "Linear",
        }  # fmt: skip
    bars, dropped, allocations = {}, {}, {}
    for rules in ("layers", "compat"):
        code, out, _ = run(capsys, "breakdown", str(path), "--rules", rules, "--json")
        (file,) = json.loads(out)["files"]
        assert code == 0
        bars[rules] = {bar["key"]: bar["bytes"] for bar in file["categories"]}
        dropped[rules] = sum(item["allocations"] for item in file["dropped"])
        allocations[rules] = file["totals"]["allocations"]
    parameters = {"Embedding": 900 * 32, "RNN": 2 * 3 * 64 * (32 + 64 + 2), "Linear": 65 * 400}
    for layer, count in parameters.items():
        assert bars["layers"][layer] >= 3 * 4 * count, "weights, and two moments of Adam"
    assert bars["compat"]["rnn"] > 0
    assert dropped["layers"] == 0
    assert dropped["compat"] < 0.05 * allocations["compat"]


def test_its_timeline_has_the_steps_and_windows_of_the_report(tmp_path, translator):
    path, report = translator
    chrome, *steps = export(path, "chrome", tmp_path / "out")
    events = json.loads(chrome.read_text())["traceEvents"]
    (training,) = report["training"]
    assert len([event for event in events if event.get("cat") == "training steps"]) == training["steps"] == 22
    recorded = [event for event in events if event.get("cat") == "recorded steps"]
    assert [event["name"] for event in recorded] == [f"step {number}" for number in (2, 7, 12, 17, 22)]
    assert len(steps) == len(recorded)
    assert max(event["args"]["peak_bytes"] for event in recorded) == report["allocations"]["peak_bytes"]["max"]
    assert {event["name"] for event in events if event.get("cat") == "phases"} >= {"forward", "backward"}
    (pid,) = {event["pid"] for event in recorded}
    windows = [event for event in events if event.get("cat") == "windows"]
    resident = [event for event in events if event["ph"] == "C" and event["name"] == "RSS"]
    with closing(Session(path)) as session:
        rows = session.processes.samples(0, session.samples.newest)
    assert len(windows) == len(rows) >= report["samples"]
    # The last window may be of a process that is ending: it has no memory any more, which is not 0 bytes.
    assert len(resident) == sum(row["rss_bytes"] is not None for row in rows) > len(rows) / 2
    assert pid in {event["pid"] for event in windows}


@pytest.mark.slow
def test_a_launcher_may_start_it_and_a_start_up_hook_of_the_user_runs_too(tmp_path):
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    seen = tmp_path / "seen"
    (hooks / "sitecustomize.py").write_text(
        f"import sys\nif 'train' in ' '.join(sys.orig_argv[-2:]):\n"
        f"    open({str(seen)!r}, 'a').write(f'mine {{\"tracer/start\" in str(sys.path)}}\\n')\n"
    )
    command = f"{sys.executable} {script(tmp_path, TRAINING)} 4; {sys.executable} {script(tmp_path, TRAINING)} 4"
    done, report = traced(tmp_path, "sh", "-c", command, PYTHONPATH=str(hooks))
    assert done.stdout.count("loss ") == 2
    assert report["allocations"]["steps"] == 2
    assert len(report["allocations"]["pids"]) == 2
    assert seen.read_text().splitlines()[-2:] == ["mine False"] * 2, "it sees a module path without ours"


def test_children_that_are_forked_do_no_harm(tmp_path):
    text = TRAINING.replace(
        "for step", "import os\nif not os.fork():\n    sys.argv[1] = '9'\n    sys.argv[2:] = ['0']\nfor step"
    )
    done, report = traced(tmp_path, sys.executable, script(tmp_path, text), "4", "5")
    assert done.returncode == 5
    assert done.stdout.count("loss ") == 2
    (line,) = words(done)
    assert line.endswith(": forked from a traced one, its steps are not seen")
    assert len(report["allocations"]["pids"]) == 1


@pytest.mark.slow
def test_an_error_of_the_program_is_its_own(tmp_path):
    text = TRAINING.replace("    loss.backward()", "    assert step < 6, 'it went wrong'\n    loss.backward()")
    done, report = traced(tmp_path, sys.executable, script(tmp_path, text), "20", every=2)
    assert done.returncode == 1
    assert "AssertionError: it went wrong" in done.stderr
    assert "memtui/recording/tracer" not in done.stderr
    assert report["allocations"]["steps"] == 2, "the step in which it ended is not a whole one"


def test_a_training_that_is_killed(tmp_path):
    text = TRAINING.replace("optimizer.step()", "optimizer.step()\n    step == 30 and os.kill(os.getpid(), 9)")
    text = "import os\n" + text
    done, report = traced(tmp_path, sys.executable, script(tmp_path, text), "100", every=10)
    assert done.returncode == 128 + 9
    assert report["allocations"]["steps"] >= 2


@pytest.mark.parametrize("command", [("sleep", "0.3"), (sys.executable, "-c", "print(1)"), ("sh", "-c", "exit 4")])
def test_what_is_no_training_says_so(tmp_path, command):
    done, report = traced(tmp_path, *command)
    assert done.returncode == (4 if command[-1] == "exit 4" else 0)
    assert report["allocations"] is None
    (said,) = (line for line in done.stderr.splitlines() if "no training step" in line)
    assert said.startswith("memtui record: no training step was recorded: ")


def test_a_process_that_runs_already_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "record", "--trace", "1234"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "cannot be traced from inside" in line


@pytest.mark.parametrize("words", [("trace",), ("run", "--trace"), ("run",)])
def test_run_can_trace_as_trace_does(monkeypatch, words):
    asked = []
    monkeypatch.setattr("memtui.tui.watch.watch", lambda args, console, what: asked.append(what) or 0)
    assert main.main([*words, "--every", "7", "--", "python", "train.py"]) == 0
    assert asked == [Launch(("python", "train.py"), log=True, trace_every=None if words == ("run",) else 7)]


@pytest.mark.parametrize("every", ["0", "-3", "x", "1.5"])
def test_steps_apart_that_are_no_number(every):
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "trace", "--every", every, "--", "python"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


EXPERIMENT = """
import ctypes
import torch
from torch import nn

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: pages of 4 KiB
torch.manual_seed(0)
torch.set_num_threads(1)
convolution = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Flatten())
model = nn.Sequential(convolution, nn.Linear(3600, 1024), nn.ReLU(), nn.Linear(1024, 10))
images, labels = torch.randn(15000, 3, 32, 32), torch.randint(0, 10, (15000,))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(130):
    at = step * 16 % 14000
    loss = nn.functional.cross_entropy(model(images[at : at + 16]), labels[at : at + 16])
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
"""


@live.needs_tracker
def test_what_the_working_set_is_made_of(tmp_path):
    """Every step touches all weights, gradients and moments, and 16 of 15,000 images."""
    done, report = traced(
        tmp_path, sys.executable, script(tmp_path, EXPERIMENT), every=10, tracker="pagetable", interval="0.5"
    )
    assert done.returncode == 0, done.stderr
    found = report["by_category"]
    assert not found["reason"]
    parts = {part["category"]: part for part in found["parts"]}
    weights = 4 * (3 * 16 * 9 + 16 + 3600 * 1024 + 1024 + 1024 * 10 + 10)
    touched = touched_in_most_windows(tmp_path / "s.memtui")
    for category, size_bytes in (("weights", weights), ("gradients", weights), ("optimiser state", 2 * weights)):
        assert parts[category]["exists_bytes"] == pytest.approx(size_bytes, rel=0.01)
        assert touched[category] == pytest.approx(parts[category]["exists_bytes"], rel=0.02), category
    data = parts["inputs"]
    assert data["exists_bytes"] == pytest.approx(15000 * 3 * 32 * 32 * 4, rel=0.3)  # known from the second record on
    assert data["touched_bytes"] < 0.1 * data["exists_bytes"], "one in 900 in each step, of which a second has many"
    assert found["rest_bytes"] > 0
    assert sum(part["touched_bytes"] for part in found["rest"]) == pytest.approx(found["rest_bytes"])
    assert {part["part"]: part["touched_bytes"] for part in found["rest"]}["stack"] > 0
    assert found["layers"][0]["layer"] == "1", "the largest of them"
    assert {part["category"] for part in found["hottest"][:4]} >= {"weights", "gradients", "optimiser state"}
    assert found["coldest"][0]["category"] == "inputs"
    assert found["coldest"][0]["touched_share"] > 0.5, "some of it in most windows"


def touched_in_most_windows(path: Path) -> dict[str, float]:
    """Bytes by category, medians: on a busy machine a window may hold no whole step. All parts are all pages."""
    reader = Source(path)
    (told,) = tensor_histories(reader)
    counted = TracedWindows(reader, told)
    keys = [process.key for process in reader.processes() if process.pid == told.pid]
    found: dict[str, list[float]] = {category: [] for category in CATEGORIES}
    for window in counted.count(counted.inside):
        (pages,) = filter(None, (reader.page_set(window.sample, key) for key in keys))
        assert window.touched_bytes.sum() + window.rest_bytes.sum() == pages.size_bytes
        category = np.array([counted.numbers.identities[n][0] for n in window.number])
        for number, name in enumerate(CATEGORIES):
            found[name].append(float(window.touched_bytes[category == number].sum()))
    reader.close()
    return {category: float(np.median(values)) for category, values in found.items()}


def test_what_goes_wrong_inside_does_not_reach_the_program(tmp_path):
    """Inputs whose memory nobody may ask for: the tracer says so once and is gone, the training trains on."""
    text = TRAINING.replace(
        "model = nn.Sequential(",
        "class Odd(torch.Tensor):\n"
        "    def untyped_storage(self):\n        raise ZeroDivisionError('no storage')\n"
        "    def data_ptr(self):\n        raise ZeroDivisionError('no address')\n\n"
        "model = nn.Sequential(",
    ).replace("model(x)", "model(x.as_subclass(Odd)).as_subclass(torch.Tensor)")
    done, report = traced(tmp_path, sys.executable, script(tmp_path, text), "12", "6", every=2)
    assert done.returncode == 6
    assert done.stdout.startswith("loss ")
    assert len(words(done)) <= 1
    assert report["samples"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["torch.compile(model, backend='aot_eager')", "nn.DataParallel(model)"])
def test_models_in_wrappers(tmp_path, how):
    text = TRAINING.replace("optimizer = torch", f"wrapped = {how}\noptimizer = torch").replace(
        "model(x)", "wrapped(x)"
    )
    done, report = traced(tmp_path, sys.executable, script(tmp_path, text), "14", every=4)
    assert done.returncode == 0, done.stderr
    assert "hook" not in done.stderr, "the compiler did not see any"
    assert report["allocations"]["steps"] == 3
    assert report["allocations"]["at_peak"]["bytes"]["weights"] == PARAMETERS_BYTES


@pytest.mark.slow
def test_a_model_that_is_compiled_while_a_step_is_recorded(tmp_path):
    text = TRAINING.replace(
        "    loss = nn",
        "    if step == 6:\n        model = torch.compile(model, backend='aot_eager')\n    loss = nn",
    ).replace("lr=0.1", "lr=0.1, foreach=True")
    done, report = traced(tmp_path, sys.executable, script(tmp_path, text), "14", "4", every=4)
    assert done.returncode == 4, done.stderr
    assert report["allocations"]["steps"] >= 2


@pytest.mark.slow
def test_an_optimiser_that_is_compiled(tmp_path):
    text = TRAINING.replace("for step", "compiled = torch.compile(optimizer.step, backend='eager')\nfor step")
    text = text.replace("    optimizer.step()", "    compiled()")
    done, report = traced(tmp_path, sys.executable, script(tmp_path, text), "14", "2", every=4)
    assert done.returncode == 2, done.stderr
    assert "memtui" not in "".join(words(done))
    assert report["allocations"]["steps"] == 3


@pytest.mark.slow
def test_weights_that_belong_to_no_module(tmp_path):
    text = TRAINING.replace(
        "optimizer = torch.optim.SGD(model.parameters(),",
        "loose = torch.zeros(1000, requires_grad=True)\noptimizer = torch.optim.SGD([*model.parameters(), loose],",
    ).replace("    loss.backward()", "    loss = loss + loose.square().sum()\n    loss.backward()")
    _, report = traced(tmp_path, sys.executable, script(tmp_path, text), "6", every=2)
    assert report["allocations"]["at_peak"]["bytes"]["weights"] == PARAMETERS_BYTES + 4000


def test_workers_that_load_data(tmp_path):
    text = TRAINING.replace(
        "for step in range(int(sys.argv[1])):\n    x, y = torch.randn(10, 784), torch.randint(0, 10, (10,))",
        "data = torch.utils.data.TensorDataset(torch.randn(200, 784), torch.randint(0, 10, (200,)))\n"
        "for x, y in torch.utils.data.DataLoader(data, batch_size=10, num_workers=2):",
    )
    done, report = traced(tmp_path, sys.executable, script(tmp_path, text), "0", every=5)
    assert done.returncode == 0, done.stderr
    assert not words(done)
    assert report["allocations"]["steps"] == 4  # 2, 7, 12, 17
    assert len(report["allocations"]["pids"]) == 1
