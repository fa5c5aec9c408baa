"""Runs when Python starts in a traced program: waits for torch, and hides nothing that would have run instead.

Whatever goes wrong here must not be felt by the program. No module of memtui is imported before torch is.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGES = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4))


def _run_the_hidden_one():
    """Run the ``sitecustomize`` that would have run without this one."""
    import importlib

    kept = sys.path[:]
    sys.path[:] = [entry for entry in kept if os.path.abspath(entry or ".") != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        if error.name != "sitecustomize":
            raise
    finally:
        # As it would be without the hook; what it added stays.
        sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]


class _Waiter:
    """Sits in front of all finders until torch is asked for, and begins to trace when it has been loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        import importlib.util

        sys.meta_path[:] = [one for one in sys.meta_path if one is not self]
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                _begin()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _begin():
    sys.path.append(_PACKAGES)  # behind all of the program's: only to find memtui
    try:
        from memtui.recording.tracer.tracer import begin

        begin()
    except Exception as error:
        print(f"memtui: cannot trace in process {os.getpid()}: {error}", file=sys.stderr)
    finally:
        if _PACKAGES in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(_PACKAGES)]


if os.environ.get("MEMTUI_TRACE_SOCKET"):
    sys.meta_path.insert(0, _Waiter())
_run_the_hidden_one()
