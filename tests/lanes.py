"""``python -m tests.lanes``: all tests, in lanes beside each other, which takes half of the time.

One writes as it goes, what the others said follows. ``--again``: only what failed, one lane after the other, for
machines on which something else runs, too. All other words are those of pytest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import IO

from tests.conftest import LANES

NOTHING_TO_DO = 5  # pytest's exit code where no test was selected


def main(words: list[str]) -> int:
    again = "--again" in words
    commands = [
        [sys.executable, "-m", "pytest", "--lane", lane, "-o", f"cache_dir=.pytest_cache/{lane}"]
        + (["--last-failed", "--last-failed-no-failures", "none"] if again else [])
        + [word for word in words if word != "--again"]
        for lane in LANES
    ]
    if again:
        return max(_code(subprocess.run(command).returncode) for command in commands)
    first, *others = commands
    with ExitStack() as stack:
        beside = [_beside(command, stack) for command in others]
        codes = [_code(subprocess.run(first).returncode)]
        for child, said in beside:
            codes.append(_code(child.wait()))
            said.seek(0)
            sys.stdout.flush()
            sys.stdout.buffer.write(said.read())
    return max(codes)


def _beside(command: list[str], stack: ExitStack) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """A lane that runs, and what it has said; it ends with the stack."""
    said = stack.enter_context(tempfile.TemporaryFile())
    child = stack.enter_context(subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT))
    stack.callback(child.terminate)
    return child, said


def _code(code: int) -> int:
    return 0 if code == NOTHING_TO_DO else abs(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
