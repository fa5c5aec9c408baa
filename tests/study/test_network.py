"""The study ``network``: what runs, and what follows from its numbers, either way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtui.analysis.reuse_cdf import Knee
from memtui.core.errors import UserError
from memtui.study.studies.base import Setting
from memtui.study.studies.network import DEEP, OWN, SMALL, NetworkNumbers, Networks, _ratio, conclude
from memtui.study.studies.pass_separation import PartSimilarity

MIB = 1 << 20
STUDY = Networks()


def runs(**changes):
    return [run for repeat in STUDY.runs(Setting(True, 2, **changes)) for run in repeat]


def numbers(small=(50.0,) * 6, deep=(100.0,) * 6, **of_deep) -> dict[str, NetworkNumbers]:
    first = NetworkNumbers(
        [v and v * MIB for v in small], 400.0 * MIB, 0.5, 5, 200.0 * MIB, None, None, PartSimilarity(reason="short")
    )
    second = replace(first, wss_bytes=[v and v * MIB for v in deep], rss_bytes=800.0 * MIB, step_s=4.0, step_bytes=None)
    return {SMALL: first, DEEP: replace(second, **of_deep)}


def text(of: dict[str, NetworkNumbers]) -> str:
    return " ".join(conclude(of, _ratio(of)))


def test_both_learn_from_the_same_images_for_as_long():
    small, deep = runs()
    assert (small.group, deep.group) == (SMALL, DEEP)
    words = [word.replace("workloads.resnet", "workloads.cnn") for word in deep.program]
    assert words == list(small.program)
    assert "memtui.study.workloads.resnet" in deep.program
    assert small.limit_s == deep.limit_s
    assert small.program[small.program.index("--epochs") + 1] == "0", "the time ends it and not its data"


def test_a_program_of_the_users_stands_in_place_of_the_deep_one():
    small, own = runs(command=("python", "train.py"), seconds=30.0)
    assert (small.group, own.group) == (SMALL, OWN)
    assert own.program == ("python", "train.py")
    assert own.limit_s == 30.0
    assert "memtui.study.workloads.cnn" in small.program


def test_without_torch_there_is_no_deep_network():
    with pytest.raises(UserError, match="trains the CNN and ResNet-50, for which PyTorch is needed"):
        runs(network="numpy_cnn")
    with pytest.raises(UserError, match="compares your program with the CNN, for which PyTorch is needed"):
        runs(network="numpy_cnn", command=("python", "train.py"))


def test_the_conclusion_goes_with_the_numbers():
    result = text(numbers())
    assert "ResNet-50 touches 100 MiB and the CNN 50.0 MiB: 200.0 % [200.0, 200.0] of the CNN's" in result
    assert (
        "CNN: a step lasts 500 ms and touches 200 MiB; a window touches 12.5 % of the 400 MiB that are resident."
        in result
    )
    assert "ResNet-50: a step lasts 4.0 s; a window touches" in result
    assert "whether forward and backward passes can be told apart is not known: short" in result.replace("W", "w")
    result = text(numbers(deep=(25.0,) * 6, passes=PartSimilarity(0.8, 0.2, True), knee=Knee(60.0 * MIB, 0.9, 0.6)))
    assert ": 50.0 % [50.0, 50.0] of the CNN's" in result
    assert "ResNet-50: The same eighths of neighbouring steps share 80.0 % of their pages" in result
    assert "forward and backward passes are visible" in result
    assert "has a clear knee: a memory of 60.0 MiB certainly holds 90.0 % of all touches" in result


def test_one_repeat_has_no_interval_and_no_window_no_conclusion():
    assert "no interval: 1 repeat" in text(numbers((50.0,), (60.0,)))
    assert "longer runs help" in text(numbers((50.0,), (None,)))
    assert conclude({SMALL: numbers()[SMALL]}, _ratio({SMALL: numbers()[SMALL]}))[0].endswith("longer runs help.")
