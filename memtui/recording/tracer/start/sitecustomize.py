"""Runs when Python starts in a traced program: waits for torch, and runs the ``sitecustomize`` that it hides.

Whatever goes wrong here must not affect the program. No module of memtui is imported before torch is.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGES = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4))


def _run_hidden_sitecustomize():
    """Run the ``sitecustomize`` that would have run without this one."""
    import importlib

    saved_path = sys.path[:]
    sys.path[:] = [entry for entry in saved_path if os.path.abspath(entry or ".") != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        if error.name != "sitecustomize":
            raise
    finally:
        # As without the hook; entries that were added stay.
        sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]


class _TorchFinder:
    """A finder in front of all others until torch is imported; starts tracing when torch has been loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        import importlib.util

        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                _start_tracing()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _start_tracing():
    sys.path.append(_PACKAGES)  # after all of the program's entries: only to find memtui
    try:
        from memtui.recording.tracer.tracer import start_from_environment

        start_from_environment()
    except Exception as error:
        print(f"memtui: cannot trace in process {os.getpid()}: {error}", file=sys.stderr)
    finally:
        if _PACKAGES in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(_PACKAGES)]


if os.environ.get("MEMTUI_TRACE_SOCKET"):
    sys.meta_path.insert(0, _TorchFinder())
_run_hidden_sitecustomize()
