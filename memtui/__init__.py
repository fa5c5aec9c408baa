"""memtui: a terminal monitor for the memory, time and energy of machine-learning training."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from memtui._version import __version__ as __version__

if TYPE_CHECKING:
    import os

    from memtui import bench as bench
    from memtui import placement as placement
    from memtui.api.recording import Recording
    from memtui.api.results import Profile
    from memtui.api.sessions import Tables
    from memtui.api.table import Table
    from memtui.core.errors import UserError as UserError

_MODULES = ("bench", "placement")  # memtui.bench.run() and memtui.placement.solve()


def __getattr__(name: str) -> Any:
    """Load what programs use seldom when they first do, as the import of memtui has to be short."""
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"memtui.{name}")
    if name == "UserError":
        from memtui.core.errors import UserError

        return UserError
    raise AttributeError(f"module 'memtui' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what programs use."""
    functions = (open, open_bench, open_tune, open_profile, record, trace, backward, mark)
    return sorted([*_MODULES, "UserError", "__version__", *(function.__name__ for function in functions)])


def open(path: str | os.PathLike[str], *, redact: bool = False) -> Tables:  # noqa: A001 (``memtui.open``)
    """Open a session, or all sessions of a folder, as tables for pandas, Arrow and numpy.

    >>> with memtui.open("run.memtui") as session:
    ...     windows = session.windows.to_pandas()
    >>> windows[["wss_bytes", "rss_bytes", "status"]].head(2)
       wss_bytes  rss_bytes status
    0     557056   10485760     ok
    1     548864   10485760     ok

    A table is read when it is asked for. Of a session that still grows it has the windows until it was opened, or its
    ``refresh()`` was called. What data frames need comes with ``pip install 'memtui[notebook]'``.

    Args:
        path: the session file, or a folder with files ``*.memtui``.
        redact: without host, user, paths, command lines and addresses, as ``memtui export --redact``.

    Raises:
        memtui.UserError: there is no such session, or it is damaged or of a newer version; the text is
            the line that the command line prints.
    """
    from memtui.api.sessions import open_tables

    return open_tables(path, redact=redact)


def open_bench(path: str | os.PathLike[str]) -> Table:
    """Open a bench database (``memtui bench``) as a table: a row for each measurement, ``p_`` before its parameters.

    ``call_ns`` and ``energy_j`` are of one call, with bounds beside them; ``status`` and ``energy_status`` say whether
    they could be measured.

    >>> memtui.open_bench("bench.db").to_pandas()[["op", "p_m", "call_ns", "energy_j"]]
           op  p_m    call_ns  energy_j
    0  linear    1  1000000.0      0.25
    1  linear    2  1000000.0      <NA>

    Raises:
        memtui.UserError: the file is not such a database, or it is damaged.
    """
    from memtui.api.results import bench_table

    return bench_table(path)


def open_tune(folder: str | os.PathLike[str]) -> Table:
    """Open the results of ``memtui tune`` as a table: a row for each training that ended.

    >>> memtui.open_tune("results").to_pandas()[["batch_size", "accuracy", "error"]]
       batch_size  accuracy          error
    0          10      91.5           <NA>
    1         100      <NA>  it went wrong

    Raises:
        memtui.UserError: the folder is not one of memtui tune, or its table was changed.
    """
    from memtui.api.results import tune_table

    return tune_table(folder)


def open_profile(path: str | os.PathLike[str]) -> Profile:
    """Open a placement profile (``memtui place profile``) as tables: ``.kernels .configurations .samples .tensors``.

    >>> memtui.open_profile("profile.memtui").kernels.to_pandas()[["op", "configurations"]]
      op  configurations
    0  a               2
    1  b               2

    Raises:
        memtui.UserError: the file is not such a profile, or it is damaged.
    """
    from pathlib import Path

    from memtui.api.results import Profile

    return Profile(Path(path))


def record(
    pid: int | None = None, *, interval: float | None = None, output: str | os.PathLike[str] | None = None
) -> Recording:
    """Record this process and its children, or another one, while ``with memtui.record() as recording:`` lasts.

    ``recording.latest`` is the last window, ``recording.tables()`` what there is until now, and ``recording.path`` the
    session. It starts ``memtui record`` in the background, which takes about a second. As on the command line, pages
    need root: it is asked for by sudo where that needs no password, and without it there is what works without root.
    Nothing of memtui runs in the recorded process.

    >>> with memtui.record(interval=0.1, output="new.memtui") as recording:
    ...     numbers = list(range(1000))
    >>> with memtui.open(recording.path) as session:
    ...     len(session.windows) > 0
    True

    Args:
        pid: the process; this one unless given.
        interval: seconds between windows, if the budget of 1 % allows it.
        output: the session file; it must not exist. By default a name in your state directory.

    Raises:
        ValueError: the interval is not above 0.
        memtui.UserError: it does not begin; the text is the line that the command line prints.
    """
    from memtui.api.recording import record as start

    return start(pid, interval, output)


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%memtui`` to an IPython shell or notebook: ``%load_ext memtui``."""
    from memtui.api.cell_magic import load

    load(shell)


def trace(
    model: Any = None, optimizer: Any = None, *, every: int = 20, output: str | os.PathLike[str] | None = None
) -> AbstractContextManager[None]:
    """Record the tensors of a PyTorch training from inside, for as long as ``with memtui.trace(...):`` lasts.

    All steps are timed, between them a cheap look says what tensors hold, and of one step in ``every`` each allocation
    is recorded. It goes to the recording that observes this process (``memtui attach``, ``memtui record PID``); where
    there is none, or with ``output``, one of its own begins, which takes about a second and ends with the block.

    A step ends with a step of ``optimizer``; without one, of the first optimiser that steps twice. ``model`` gives
    layers their names; without one it is found by its parameters. A program that ``memtui trace`` started is traced
    already: nothing is added. Where nothing can be recorded, a line on
    standard error says why, and the training goes on.

    >>> with memtui.trace(model, optimizer, every=5, output="traced.memtui"):
    ...     for batch in data:
    ...         loss = model(batch).square().mean()
    ...         optimizer.zero_grad()
    ...         loss.backward()
    ...         optimizer.step()

    Args:
        model: a ``torch.nn.Module``, or several.
        optimizer: a ``torch.optim.Optimizer``.
        every: steps from one that is recorded whole to the next.
        output: the session file; it must not exist. By default a name in your state directory.

    Raises:
        ValueError: ``every`` is not a whole number from 1 on.
        TypeError: ``model`` or ``optimizer`` is something else.
    """
    from memtui.recording.tracer.context import tracing

    return tracing(model, optimizer, every, output)


def backward(module: Any) -> AbstractContextManager[None]:
    """Say where a program computes the gradients of a ``torch.nn.Module`` itself, without autograd.

    What is allocated ``with memtui.backward(layer):`` is of the backward pass of that layer, and what lies in the
    ``grad`` of its parameters afterwards are gradients. Without a recording it does nothing.

    >>> with memtui.backward(layer):
    ...     layer.weight.grad = torch.ones_like(layer.weight)
    """
    from memtui.recording.tracer.manual_backward import Backward

    return Backward(module)


def mark(text: str) -> None:
    """Put a mark (an epoch, a phase) on the time axis of a recording.

    >>> memtui.mark("epoch 1")

    It goes to the recording that observes this process or what started it; where none does, to the only recording of
    yours that runs on this machine. It does nothing where none runs, or several of which none observes this process.
    It never raises and never waits; a mark costs a fraction of a millisecond (the first one some tens, for imports),
    and of more than 50 a second the rest is left out. At most 500 characters are kept.
    """
    try:
        from memtui.recording.client import put

        put(text)
    except Exception:
        pass  # the program that marks matters more than its marks
