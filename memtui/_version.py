"""The version of this program, apart from everything else, so that asking for it imports nothing."""

__version__ = "0.1.0"
