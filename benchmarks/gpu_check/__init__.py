"""Checks of every GPU path of memtui on a machine with a GPU, each against a second source: ``make gpu-check``."""
