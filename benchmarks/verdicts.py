"""Records healthy programs, and programs with a planted fault, and checks what the verdict says of each.

Run as ``python -m benchmarks.verdicts [WORD ...]`` (root): all programs, or those with one of the words in their name,
two at a time, each for 80 s with the default options and under load of nothing else. Of a healthy program no window may
have a finding. Of one with a fault the right finding is to be the first one 60 s after its start. Exits with 1 where
that is not so. A program whose library is not installed is left out, and said.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import psutil

from benchmarks.run import memtui, say
from benchmarks.strangers import FOR_EVER, command_of
from memtui.core.units import size, span
from memtui.reports.source import Source
from memtui.reports.verdict.verdict import verdict_at
from memtui.study.runs.cgroup_limit import LimitGroup

AT_ONCE, RECORDED_S, WITHIN_S = 2, 80.0, 60.0
MIB, GIB = 1 << 20, 1 << 30
ONE_LIMIT = Lock()  # a process has one limited cgroup at a time

# The start of the programs in numpy: 10 MiB that stay in use, and a tenth of a second of rest between two rounds.
_PROGRAM = """
import mmap, os, random, sys, time
import numpy as np
work = np.ones(10 << 17)
kept = []
def rest(seconds=0.1):
    work.__iadd__(1)
    time.sleep(seconds)
"""
_TORCH = """
import time, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
kept = []
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters())
def step():
    loss = nn.functional.cross_entropy(model(torch.randn(64, 256)), torch.randint(10, (64,)))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    time.sleep(0.02)
    return loss
"""


class Program(NamedTuple):
    """A program.

    Attributes:
        name: what it does.
        rule: the one whose finding is to be the first; empty: it is healthy.
        code: in Python, after ``begin``; empty: ``stranger`` names a program of tests/end_to_end/strangers.
        needs: a library.
        limit_bytes: of the cgroup that it runs in; 0: none of its own.
    """

    name: str
    rule: str = ""
    code: str = ""
    begin: str = _PROGRAM
    stranger: str = ""
    needs: str = "numpy"
    limit_bytes: int = 0


HEALTHY = (
    Program("the convolutional network of memtui demo", code="", stranger="demo", needs="torch"),
    Program("a language model (torch)", stranger="torch_language_model.py", needs="torch"),
    Program("a residual network (torch)", stranger="torch_resnet18.py", needs="torch"),
    Program("two ranks (torchrun)", stranger="torch_ranks.py", needs="torch"),
    Program("a DataLoader with two workers", stranger="torch_workers.py", needs="torch"),
    Program("boosting (scikit-learn)", stranger="sklearn_boosting.py", needs="sklearn"),
    Program("trees (xgboost)", stranger="xgboost_trees.py", needs="xgboost"),
    Program("a mapped file read at random", stranger="numpy_memmap.py"),
    Program("powers of a matrix (numpy)", stranger="numpy_power.py"),
    Program("random writes (C)", stranger="random_writes.c"),
    Program(
        "a GPT-2 from its configuration (transformers)",
        needs="transformers",
        begin="",
        code="""
import os, torch
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from transformers import GPT2Config, GPT2LMHeadModel
torch.set_num_threads(1)
model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=5000, n_positions=128))
optimizer = torch.optim.AdamW(model.parameters())
while True:
    tokens = torch.randint(5000, (4, 128))
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
    ),
    Program(
        "an HTTP server",
        code="""
import http.server, threading, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(bytes(100_000))
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
while True:
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}").read()
    time.sleep(0.01)
""",
    ),
    Program(
        "what loads 1 GB and computes on it",
        code="data = np.random.random(125_000_000)\nwhile True: data *= 1.0001; rest()",
    ),
    Program(
        "what fills and empties 300 MiB",
        code="while True:\n    block = bytearray(b'x') * (300 << 20)\n    rest(1.5)\n    del block\n    rest(1.5)",
    ),
)
FAULTY = (
    Program("bytes that are kept, 1 MiB/s", "leak", "while True: kept.append(bytearray(b'x') * (100 << 10)); rest()"),
    Program("numpy results that are kept, 1.6 MiB/s", "leak", "while True: kept.append(np.ones(20 << 10)); rest()"),
    Program(
        "shared memory that is kept, 2 MiB/s",
        "leak",
        "while True:\n    m = mmap.mmap(-1, 200 << 10)\n    m[:] = bytes(200 << 10)\n    kept.append(m)\n    rest()",
    ),
    Program(
        "a sum of losses that keeps every graph",
        "leak",
        "total = 0\nwhile True: total = total + step()",
        _TORCH,
        needs="torch",
    ),
    Program(
        "losses that are kept with 64 KiB each",
        "leak",
        "while True: kept.append((step().item(), bytes(1 << 16)))",
        _TORCH,
        needs="torch",
    ),
    Program("900 MiB that nobody touches again", "untouched", "pool = np.ones(900 << 17)\nwhile True: rest()"),
    Program(
        "an embedding of 700 MiB that training no longer uses",
        "untouched",
        "embedding = nn.Embedding(180_000, 1024)\nwhile True: step()",
        _TORCH,
        needs="torch",
    ),
    Program(
        "a mapped file of 700 MiB in a cgroup of 400",
        "thrashing",
        """
path = f"/var/tmp/memtui-verdicts-{os.getpid()}"
with open(path, "wb") as file:
    for _ in range(700): file.write(os.urandom(1 << 20))
data = np.memmap(path, np.uint8, "r")
os.unlink(path)
chance = np.random.default_rng(0)
while True: data[chance.integers(0, len(data), 200)].sum()
""",
        limit_bytes=400 * MIB,
    ),
    Program(
        "3.4 MiB/s, all of it used, in a cgroup of 600 MiB",
        "oom",
        "while True:\n    kept.append(np.ones(43 << 10))\n    [block.__iadd__(1) for block in kept]\n    rest()",
        limit_bytes=600 * MIB,
    ),
    Program(
        "5 MiB/s in a cgroup of 1 GiB", "oom", "while True: kept.append(np.ones(64 << 10)); rest()", limit_bytes=GIB
    ),
    Program(
        "three forked workers that walk through Python objects",
        "unsharing",
        """
index = [[number] for number in range(3_000_000)]
for _ in range(3):
    if os.fork() == 0:
        for number in range(0, len(index), 1000):
            for entry in index[number : number + 1000]: entry[0]
            time.sleep(0.02)
        time.sleep(600)
while True: rest()
""",
    ),
    Program(
        "two DataLoader workers over a list",
        "unsharing",
        """
from torch.utils.data import DataLoader, Dataset
class Listed(Dataset):
    def __init__(self): self.index = [(number, [number]) for number in range(2_500_000)]
    def __len__(self): return len(self.index)
    def __getitem__(self, at): return self.index[at][1][0]
while True:
    for batch in DataLoader(Listed(), 512, shuffle=True, num_workers=2): time.sleep(0.005)
""",
        _TORCH,
        needs="torch",
    ),
)


class Outcome(NamedTuple):
    """What was said of a program: whether that is right, and what was said when."""

    right: bool
    text: str


def main() -> int:
    words = sys.argv[1:]
    chosen = [p for p in (*HEALTHY, *FAULTY) if not words or any(word in p.name for word in words)]
    there = [p for p in chosen if importlib.util.find_spec(p.needs) is not None]
    for program in chosen:
        if program not in there:
            say(f"left out: {program.name}: {program.needs} is not installed")
    outcomes = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for program, outcome in zip(there, pool.map(watch, there), strict=True):
            outcomes.append((program, outcome))
            say(f"{'right' if outcome.right else 'WRONG'}  {program.name}: {outcome.text}")
    for name, of in (("healthy", False), ("faulty", True)):
        right = [outcome.right for program, outcome in outcomes if bool(program.rule) == of]
        print(f"{name}: {sum(right)} of {len(right)} right")
    return 0 if all(outcome.right for _, outcome in outcomes) else 1


def watch(program: Program) -> Outcome:
    """Start a program, record it with the default options, and return what was said of it."""
    with tempfile.TemporaryDirectory() as name, ONE_LIMIT if program.limit_bytes else nullcontext():
        folder = Path(name)
        path = folder / "s.memtui"
        group = LimitGroup.make() if program.limit_bytes else None
        try:
            words = [str(word) for word in command(program, folder)]
            if group is not None:
                group.limit(program.limit_bytes, 0, 10.0)
                words = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group.folder), *words]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            target = subprocess.Popen(words, start_new_session=True, cwd=folder, **quiet)
            began_ns = time.monotonic_ns()
            time.sleep(0.5)  # as a user attaches: the program has begun
            subprocess.run(memtui("record", target.pid, "-o", path, "--duration", RECORDED_S), **quiet, check=False)
            for process in _tree_of(target.pid):  # ranks of torchrun have sessions of their own
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            target.wait(20)
        finally:
            if group is not None:
                group.remove()
        return _judged(program, path, began_ns)


def _tree_of(pid: int) -> list[psutil.Process]:
    """Return a process and all below it; none where it has ended."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def command(program: Program, folder: Path) -> list[object]:
    """Return the command line of a program."""
    if program.stranger == "demo":
        return [sys.executable, "-m", "memtui.study.workloads.demo"]
    if program.stranger:
        return list(command_of(program.stranger, FOR_EVER, folder=folder))
    return [sys.executable, "-c", program.begin + program.code]


def _judged(program: Program, path: Path, began_ns: int) -> Outcome:
    """Return whether the right thing was said of a program in each of its windows, or of a fault in time."""
    first: dict[str, float] = {}  # by rule of the first finding, seconds after the start
    in_time = ""
    with closing(Source(path)) as source:
        for index in range(len(source.samples)):
            after_s = (int(source.samples.end_ns[index]) - began_ns) / 1e9
            checks = [check for check in verdict_at(source, index).checks if check.finding is not None]
            rule = checks[0].rule if checks else ""
            if rule:
                first.setdefault(rule, after_s)
            if after_s <= WITHIN_S:
                in_time = rule
        windows = len(source.samples)
    said = ", ".join(f"{rule} from {span(seconds)} on" for rule, seconds in first.items()) or "nothing"
    limit = f" (limit {size(program.limit_bytes)})" * bool(program.limit_bytes)
    return Outcome(not first if not program.rule else in_time == program.rule, f"{said}; {windows} windows{limit}")


if __name__ == "__main__":
    sys.exit(main())
