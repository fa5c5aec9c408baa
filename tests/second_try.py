"""``python -m tests.second_try``: run again what failed of the tests marked ``real_clock``, one after another.

Each test that failed is a line of ``build/reruns.jsonl``, which is printed. Exits with 1 if a test fails again, if one
failed that is not marked and so is not run again, or if the run before left no record of what failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

FAILED = Path(".pytest_cache", "v", "cache", "lastfailed")
RERUNS = Path("build", "reruns.jsonl")


def main() -> int:
    failed = sorted(_last_failed())
    if not failed:
        print("second try: the run before says of no test that it failed", file=sys.stderr)
        return 1
    subprocess.run([sys.executable, "-m", "pytest", "--last-failed", "-m", "real_clock"], check=False)
    again = _last_failed()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    RERUNS.parent.mkdir(exist_ok=True)
    with RERUNS.open("a") as record:
        for test in failed:
            rerun = {"date": f"{date.today()}", "commit": commit.strip(), "test": test, "passed": test not in again}
            print(json.dumps(rerun), file=record)
            print(f"second try: {json.dumps(rerun)}", flush=True)
    return 1 if again else 0


def _last_failed() -> set[str]:
    """Return the tests that failed when they ran last, whenever that was."""
    return set(json.loads(FAILED.read_text())) if FAILED.exists() else set()


if __name__ == "__main__":
    sys.exit(main())
