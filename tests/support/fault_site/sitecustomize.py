"""Makes calls of a recorder fail from before its first line on: Python loads a module of this name when it starts.

MEMTUI_FAULTS is JSON: the arguments of ``fault_calls.begin``, and the ``file`` that gets the counts of calls.
"""

import atexit
import json
import os
import sys

if "MEMTUI_FAULTS" in os.environ and "memtui.recording.recorder" in sys.orig_argv:
    import sqlite3  # noqa: F401 (its library has to be there)

    from tests.support import fault_calls

    def _write_counts(descriptor: int) -> None:
        counts = fault_calls.end()
        os.write(descriptor, json.dumps(counts).encode())

    _arguments = json.loads(os.environ["MEMTUI_FAULTS"])
    atexit.register(_write_counts, os.open(_arguments.pop("file"), os.O_CREAT | os.O_WRONLY))
    fault_calls.begin(**_arguments)
