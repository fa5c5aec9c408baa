"""Files of networks as users have them: functions of layers, and the three files of ZPP-MEM."""

from __future__ import annotations

from pathlib import Path

DEFINITIONS = """
def small(output_size):
    block = Block(FullyConnected(15), [LeakyReLu()])
    return [FullyConnected(20, flatten=True), Tanh(), block, FullyConnected(output_size)]

def pictures(output_size):
    return [ConvolutionalLayer(filter_dim=(3, 3), num_of_filters=4, strides=[1, 1], padding="SAME"), ReLu(),
            MaxPool([2, 2], [2, 2]), BatchNormalization(momentum=0.9), AveragePool(), FullyConnected(output_size, True)]

def wrong(output_size):
    return [FullyConected(3)]
"""

# The three files of ZPP-MEM, in its form: tables, sequences that are imported from beside them, layers of its package.
ZPP_NETWORKS = """
from numpy.random import randint

default_network = {
    "type": "DFA", "dataset_name": "digits", "sequence": "wide", "cost_function": "softmax_cross_entropy",
    "learning_rate": 0.01, "momentum": 0.9, "gather_stats": False, "save_graph": False, "memory_only": False,
    "restore_model": False, "save_model": False, "restore_model_path": None, "save_model_path": None,
    "minimum_accuracy": [(1, 1)], "batch_size": 100, "epochs": 4, "eval_period": 1000, "stat_period": 100,
    "minimize_manually": False, "seed": randint(1, 100000000),
}
liao_network = dict(default_network)
liao_network.update({"sequence": "narrow", "minimum_accuracy": [(10, 30)], "epochs": 1, "seed": 1, "save_model": True})
unrelated = {"a": 1}
"""
ZPP_SEQUENCES = """
from definition.resnet import *
from layer import *


def wide(output_size):
    return [FullyConnected(100, flatten=True), ReLu(), FullyConnected(30), ReLu(), FullyConnected(output_size)]


def narrow(output_size):
    return build(output_size)
"""
ZPP_BESIDE = """
from layer.weight_layer import *


def build(output_size):
    return [FullyConnected(20, flatten=True), FullyConnected(output_size)]
"""


def write_zpp_files(folder: Path) -> Path:
    """Write the files of ZPP-MEM into ``definition``; return the one with the tables."""
    definition = folder / "definition"
    definition.mkdir()
    (definition / "network_definitions.py").write_text(ZPP_NETWORKS)
    (definition / "sequence_definitions.py").write_text(ZPP_SEQUENCES)
    (definition / "resnet.py").write_text(ZPP_BESIDE)
    return definition / "network_definitions.py"
