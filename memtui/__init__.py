"""memtui: a terminal monitor for the memory, time and energy of machine-learning training."""

__version__ = "0.1.0"
