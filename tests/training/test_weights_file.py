"""Weights in a file: nothing but tensors is read, and no more of them than the network can have."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from memtui.core.errors import BAD_INPUT, UserError  # noqa: E402
from memtui.training.network_specs import data_shape, layers_of  # noqa: E402
from memtui.training.torch.network import Network  # noqa: E402
from memtui.training.torch.rules import BY_NAME as RULES  # noqa: E402
from memtui.training.torch.weights_file import restore, save  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread_of_torch")


class Hostile:
    def __reduce__(self):
        return os.system, ("touch was-here",)


@pytest.mark.parametrize("content", [pickle.dumps(Hostile()), b"", b"PK\x03\x04 no", pickle.dumps({"a": 1})])
def test_a_file_that_holds_no_weights_is_refused(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("w.pt").write_bytes(content)
    with pytest.raises(UserError) as told:
        restore(torch.nn.Linear(2, 2), Path("w.pt"))
    assert str(told.value).startswith("w.pt: ")
    assert (told.value.code, "\n" in str(told.value)) == (BAD_INPUT, False)
    assert not Path("was-here").exists()


def sparse(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04")
    os.truncate(path, 10 << 30)


def deflated(path: Path) -> None:
    torch.save({"weight": torch.zeros(4096, 4096)}, path)
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    assert path.stat().st_size < 1 << 17


def deflated_behind_another(path: Path) -> None:
    """Torch goes by how a file begins, and an archive is described at its end."""
    deflated(path)
    path.write_bytes(pickle.dumps({"weight": 1}) + path.read_bytes())


@pytest.mark.parametrize(
    ("make", "says"),
    [(sparse, "have at most 1.0"), (deflated, "have at most 1.0"), (deflated_behind_another, "read safely")],
)
def test_what_is_larger_than_the_weights_can_be_is_not_read(make, says, tmp_path, monkeypatch):
    """Of deflated tensors torch makes a thousand times their size."""
    make(tmp_path / "w.pt")
    reads = []
    monkeypatch.setattr(torch, "load", lambda *_, **__: reads.append(1))
    with pytest.raises(UserError, match=says):
        restore(torch.nn.Linear(2, 2), tmp_path / "w.pt")
    assert reads == []


@pytest.mark.parametrize("sequence", ["fcReLu", "liao_mnist", "resnet_18"])
def test_weights_with_the_feedback_of_any_rule_are_read(sequence, tmp_path):
    layers, shape = layers_of(sequence, 100), data_shape(sequence)
    for rule in RULES.values():
        save(Network(layers, shape, 100, rule(), 1), tmp_path / "w.pt")
        restored = Network(layers, shape, 100, RULES["BP"](), 2)
        restore(restored, tmp_path / "w.pt")
        assert torch.equal(next(restored.parameters()), next(Network(layers, shape, 100, rule(), 1).parameters()))
