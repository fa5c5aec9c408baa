"""``memtui tune`` with a program in the place of ``memtui train`` that learns nothing: it says what a training would.

``python tests/support/tune_stub.py tune WORDS`` is memtui; its runs are ``python tests/support/tune_stub.py train
WORDS``, and each adds a line to the file TUNE_RUNS when it begins. A batch size says what becomes of a run.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import signal
import sys
import time
import zlib
from pathlib import Path

FAILS, IS_KILLED, STOPS, SAYS_NOTHING, FAILS_SILENTLY = "13", "17", "19", "23", "29"


def train(words: list[str]) -> int:
    network, *rest = words
    assert rest[-2:] == ["--no-tui", "--json"], rest
    settings = dict(word.partition("=")[::2] for flag, word in itertools.pairwise(rest) if flag == "--set")
    batch = settings.get("batch_size", "10")
    if path := os.environ.get("TUNE_RUNS"):
        with Path(path).open("a") as file:
            file.write(f"{network} {json.dumps(settings)} {os.getpid()}\n")
    if "--tensorboard" in rest:
        (Path(rest[rest.index("--tensorboard") + 1]) / "events").mkdir(parents=True)
    for iteration in range(1, 4):
        print(f"iteration: {iteration}, accuracy: {iteration * 10}%", file=sys.stderr, flush=True)
        time.sleep(float(os.environ.get("TUNE_SLEEP", "0")) / 3)
    if batch == FAILS:
        print("a warning\nmemtui train: the batch is \x1b[31munlucky\n", file=sys.stderr)
        return 1
    if batch == FAILS_SILENTLY:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.truncate(str(Path("/proc/self/fd/1").readlink()).removesuffix(".out") + ".err", 0)
        return 3
    if batch == IS_KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if batch == SAYS_NOTHING:
        print("{ no result")
        return 0
    number = zlib.crc32(json.dumps([network, settings]).encode())
    document = {
        "network": network, "type": settings.get("type", "BP"), "settings": settings, "seed": 1, "epochs": 4,
        "iterations": 576, "accuracy": number % 10_000 / 100, "loss": float("nan") if batch == "31" else 0.5,
        "stopped": "expected 30 after 3 epochs, got 28" if batch == STOPS else None,
        "peak_bytes": number, "peak_above_start_bytes": number // 3, "peak_segment": "a", "session": None,
    }  # fmt: skip
    print(json.dumps(document, indent=2))
    return 0


def main(words: list[str]) -> int:
    """Memtui, whose runs are this file's."""
    from memtui.cli import main as cli
    from memtui.training.tune import runner

    command_of = runner.command_of

    def stand_in(*what) -> list[str]:
        made = command_of(*what)
        return [sys.executable, "-P", str(Path(__file__).absolute()), *made[made.index("train") :]]

    runner.command_of = stand_in
    installed = importlib.util.find_spec  # the runs need neither PyTorch nor TensorBoard
    importlib.util.find_spec = lambda name, *more: name in ("torch", "tensorboard") or installed(name, *more)
    return cli.main(words)


def listen(words: list[str]) -> int:
    """A run, which leaves the file TUNE_RUNS.ended when it is asked to end."""
    try:
        return train(words)
    except KeyboardInterrupt:
        with Path(f"{os.environ['TUNE_RUNS']}.ended").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return 130


if __name__ == "__main__":
    sys.exit(listen(sys.argv[2:]) if sys.argv[1] == "train" else main(sys.argv[1:]))
