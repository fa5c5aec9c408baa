"""memtui: a terminal monitor for the memory, time and energy of machine-learning training."""

__version__ = "0.1.0"


def mark(text: str) -> None:
    """Put a mark (an epoch, a phase) on the time axis of a recording.

    It goes to the recording that observes this process or what started it; where none does, to the only recording of
    yours that runs on this machine. It does nothing where none runs, or several of which none observes this process.
    It never raises and never waits; a mark costs a fraction of a millisecond (the first one some tens, for imports),
    and of more than 50 a second the rest is left out. At most 500 characters are kept.
    """
    try:
        from memtui.marks import put

        put(text)
    except Exception:
        pass  # the program that marks matters more than its marks
