"""Settings of a training: defaults, what they may be, and what a user reads who got one wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.errors import UserError
from memtui.training.settings import KEYS, NETWORKS, Settings, networks_from_file, parse_changes, settings_of


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "networks.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", NETWORKS)
def test_each_named_network_is_whole(name: str) -> None:
    assert settings_of(name, {}).sequence == name


def test_text_is_read_as_the_type_of_its_key() -> None:
    settings = settings_of(
        "liao_cifar",
        {"type": "DFAMEM", "batch_size": "50", "learning_rate": "1e-3", "memory_only": "true", "data": "none"}
        | {"minimum_accuracy": "10:30, 20:50.5"},
    )
    assert (settings.type, settings.batch_size, settings.learning_rate, settings.memory_only) == (
        "DFAMEM",
        50,
        0.001,
        True,
    )
    assert settings.data is None
    assert settings.minimum_accuracy == ((10, 30.0), (20, 50.5))


def test_a_network_extends_another_and_ours_of_its_own_name(tmp_path: Path) -> None:
    more = networks_from_file(
        _file(
            tmp_path,
            """
            [liao_cifar]
            extends = "liao_cifar"
            seed = 7
            [mine]
            extends = "liao_cifar"
            batch_size = 20
            minimum_accuracy = [[10, 30]]
            [small]
            sequence = [{layer = "FullyConnected", units = 30}, {layer = "Sigmoid"}]
            """,
        )
    )
    settings = settings_of("mine", {}, more)
    assert (settings.seed, settings.batch_size, settings.sequence) == (7, 20, "liao_cifar")
    assert settings.minimum_accuracy == ((10, 30.0),)
    assert settings_of("small", {}, more).sequence == ({"layer": "FullyConnected", "units": 30}, {"layer": "Sigmoid"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_reate": "1"}, "did you mean learning_rate"),
        ({"type": "DFM"}, "type is one of BP, FA, DFA, DFAMEM, not DFM"),
        ({"batch_size": "0"}, "at least 1"),
        ({"batch_size": "many"}, "a whole number was expected"),
        ({"batch_size": 1.5}, "a whole number was expected"),
        ({"epochs": True}, "a whole number was expected"),
        ({"learning_rate": "nan"}, "more than 0"),
        ({"momentum": "1"}, "below 1"),
        ({"memory_only": "perhaps"}, "true or false was expected"),
        ({"minimum_accuracy": "10"}, "10:30"),
        ({"minimum_accuracy": "0:30"}, "10:30"),
        ({"dataset_name": "cifar10"}, "data=DIR"),
        ({"sequence": [{"units": 3}]}, "a list of tables that have a layer each"),
    ],
)
def test_a_wrong_setting_is_one_line_that_helps(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        settings_of("fcReLu", changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a", "is not TOML"),
        ("seed = 1", "seed is not a table"),
        ("[a]\nbatch = 1", "did you mean batch_size"),
        ("[a]\nextends = 3", "extends is the name of a network"),
        ('[a]\nextends = "b"\n[b]\nextends = "a"', "extends itself"),
        ('[a]\nextends = "vgg16"', "did you mean vgg_16"),
    ],
)
def test_a_wrong_file_is_one_line_that_helps(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=r"^[^\n]*$") as caught:
        settings_of("a", {}, networks_from_file(_file(tmp_path, text)))
    assert message in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        networks_from_file(tmp_path / "none.toml")
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is not text"):
        networks_from_file(tmp_path / "b")


def test_changes_are_key_and_value() -> None:
    assert parse_changes(["type=BP", "save_model_path=a=b"]) == {"type": "BP", "save_model_path": "a=b"}
    with pytest.raises(UserError, match="not of the form key=value"):
        parse_changes(["type"])


@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=20) | st.integers() | st.floats() | st.none()))
def test_nothing_but_the_one_error_comes_out(changes: dict[str, Any]) -> None:
    try:
        settings = settings_of("fcReLu", changes)
    except UserError:
        return
    assert isinstance(settings, Settings)
    assert settings_of("fcReLu", settings.to_dict()) == settings


def test_a_network_that_says_nothing_is_the_usual_one() -> None:
    assert settings_of("mine", {}, {"mine": {}}) == Settings()


def test_weights_have_a_place_where_none_is_given() -> None:
    settings = settings_of("fcReLu", {"save_model": "true", "restore_model": "true", "restore_model_path": "w.pt"})
    assert (settings.save_model_path, settings.restore_model_path) == ("model.pt", "w.pt")
    assert settings_of("fcReLu", {}).save_model_path is None
