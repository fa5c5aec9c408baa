"""``python -m tests.lanes``: all tests, in two lanes beside each other, which takes two thirds of the time.

One writes as it goes, what the other said follows. ``--again``: only what failed, one lane after the other, for
machines on which something else runs, too. All other words are those of pytest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

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
    first, second = commands
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(second, stdout=said, stderr=subprocess.STDOUT) as beside:
            try:
                code = subprocess.run(first).returncode
                codes = _code(code), _code(beside.wait())
            finally:
                beside.terminate()
        said.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(said.read())
    return max(codes)


def _code(code: int) -> int:
    return 0 if code == NOTHING_TO_DO else abs(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
