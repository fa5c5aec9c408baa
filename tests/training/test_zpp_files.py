"""The definitions of ZPP-MEM itself: each is taken, or refused in one line.

``MEMTUI_ZPP`` names a checkout of github.com/chutney42/zpp-mem; a git directory without a work tree is enough.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.core.errors import UserError
from memtui.training.network_specs import check_shapes, data_shape, layers_of
from memtui.training.user_networks import definitions_in, sequence_in
from tests.support.checkouts import Checkout

ZPP = Checkout("MEMTUI_ZPP", "github.com/chutney42/zpp-mem")
FOLDER = "definition"
# Their layers are given parameters that the original's own classes do not have, either.
BROKEN = ("resnet_18", "resnet_34", "resnet_50", "resnet_101", "resnet_152")
CIFAR = (3, 32, 32)


@pytest.fixture(scope="module")
def definitions(tmp_path_factory) -> Path:
    """The folder of definitions, as it is in the checkout."""
    folder = tmp_path_factory.mktemp("zpp") / FOLDER
    folder.mkdir()
    for name in ("network_definitions.py", "sequence_definitions.py", "resnet.py"):
        (folder / name).write_bytes(ZPP.blob(f"{FOLDER}/{name}"))
    return folder


def test_every_table_is_a_network(definitions):
    defined = definitions_in(definitions / "network_definitions.py")
    assert len(defined.networks) >= 10
    assert {table["sequence"] for table in defined.networks.values()} <= defined.functions.keys()


def test_every_sequence_is_one_of_layers(definitions):
    path = definitions / "sequence_definitions.py"
    names = definitions_in(path).functions
    refused = {}
    for name in names:
        try:
            layers = layers_of(sequence_in(path, name, 10), 10)
            shape = CIFAR if len(data_shape(layers)) == 3 else (784,)
            check_shapes(layers, shape, 10)
        except UserError as error:
            refused[name] = str(error)
    assert len(names) >= 15
    assert refused.keys() <= set(BROKEN), refused
    assert all(line.isprintable() for line in refused.values())
