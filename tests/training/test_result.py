"""The result of a training comes out of its file as it went in."""

from __future__ import annotations

import json

import pytest

from memtui.core.errors import UserError
from memtui.training.result import PeakMemory, TrainingResult, read_result

PEAK = PeakMemory(4096, 1024, {"activations": 512}, 512, ["conv1", "relu1"], 256, "aten::add")


@pytest.mark.parametrize(
    "result",
    [
        TrainingResult(4, 576, 93.06, 0.25, None, ["plots/a.svg"], "", PEAK),
        TrainingResult(1, 10, None, float("inf"), "expected 30", [], "too short", PeakMemory(peak_reason="no step")),
    ],
)
def test_it_comes_back(result, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result.to_dict()))
    assert read_result(path) == result
    assert result.to_dict()["peak_bytes"] == result.peak.peak_bytes, "the peak has no object of its own"


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"epochs": 1}'])
def test_what_is_not_a_result_is_refused(text, tmp_path):
    path = tmp_path / "result.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match="the training left no result"):
        read_result(path)
