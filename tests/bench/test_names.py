"""Names of networks on the command line."""

from __future__ import annotations

import pytest

from memtui.bench.decomposition import names
from memtui.bench.decomposition.names import NetworkName, is_network, network_name
from memtui.core.errors import UserError


@pytest.fixture
def library(monkeypatch):
    """Have torchvision installed, as far as names go."""
    monkeypatch.setattr(names.importlib.util, "find_spec", lambda name: object() if name == "torchvision" else None)


@pytest.mark.parametrize("word", ["net.py:build", "/a b/net.py:b2", "torchvision:resnet18", "timm:", "timm:x.y"])
def test_they_are_told_from_operators(word):
    assert is_network(word)


@pytest.mark.parametrize("word", ["conv2d", "net.py", "net.py:", "net.py:a b", "torch:resnet18", "", "x:y"])
def test_other_words_are_none(word):
    assert not is_network(word)


def test_a_file_is_named_from_the_root(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert network_name("net.py:build", {}) == NetworkName(f"{tmp_path}/net.py:build")


def test_a_library_takes_images_of_a_number_and_size(library):
    assert network_name("torchvision:resnet18", {}) == NetworkName("torchvision:resnet18", 1, 0)
    assert network_name("torchvision:resnet18", {"n": [4], "size": [64]}) == NetworkName("torchvision:resnet18", 4, 64)


@pytest.mark.parametrize(
    ("word", "grid", "message"),
    [
        ("nowhere.py:build", {}, "nowhere.py: cannot be read: No such file"),
        ("torchvision:", {}, "name a network: torchvision:resnet18"),
        ("timm:resnet18", {}, "timm:resnet18 needs timm, which is not installed: pip install timm"),
        ("torchvision:resnet18", {"h": [3]}, "a network has n and size, not h"),
        ("torchvision:resnet18", {"n": [1, 2]}, "n of a network is one whole number above 0"),
        ("torchvision:resnet18", {"size": [True]}, "size of a network is one whole number"),
        ("torchvision:resnet18", {"n": [0]}, "n of a network is one whole number"),
    ],
)
def test_what_is_wrong_is_said(library, word, grid, message):
    with pytest.raises(UserError, match=message) as caught:
        network_name(word, grid)
    assert caught.value.code == 2


def test_a_file_brings_its_own_input(tmp_path):
    (tmp_path / "net.py").write_text("")
    with pytest.raises(UserError, match="brings its own input"):
        network_name(f"{tmp_path}/net.py:build", {"n": [3]})


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "net.py").mkdir()
    with pytest.raises(UserError, match=r"net\.py: is not a file, but a folder"):
        network_name(f"{tmp_path}/net.py:build", {})
