"""``python -m tests.second_try STATUS``: what the gate does after the tests, which exited with this status.

What failed of the tests marked ``real_clock`` is run again, one after another. Then one line about this gate is
printed, also where no test failed, and added to ``build/reruns.jsonl``; ``docs/internals/reruns.md`` counts them. Exits
with 1 if a test fails again, if one failed that is not marked and so is not run again, or if failed tests left no
record.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

FAILED = Path(".pytest_cache", "v", "cache", "lastfailed")
RERUNS = Path("build", "reruns.jsonl")


def main(argv: list[str] | None = None) -> int:
    (status,) = sys.argv[1:] if argv is None else argv
    failed = sorted(_last_failed()) if status != "0" else []
    again: set[str] = set()
    if failed:
        print("gate: some tests failed; those marked real_clock once more, one after another", flush=True)
        subprocess.run([sys.executable, "-m", "pytest", "--last-failed", "-m", "real_clock"], check=False)
        again = _last_failed()
    elif status != "0":
        print("second try: the run before says of no test that it failed", file=sys.stderr)
    passed = not again and (status == "0" or bool(failed))
    _record(passed, [{"test": test, "passed": test not in again} for test in failed])
    return 0 if passed else 1


def _record(passed: bool, second_tries: list[dict[str, object]]) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    gate = {"date": f"{date.today()}", "commit": commit.strip(), "passed": passed, "second_tries": second_tries}
    RERUNS.parent.mkdir(exist_ok=True)
    with RERUNS.open("a") as record:
        print(json.dumps(gate), file=record)
    print(f"second tries: {json.dumps(gate)}", flush=True)


def _last_failed() -> set[str]:
    """Return the tests that failed when they ran last, whenever that was."""
    return set(json.loads(FAILED.read_text())) if FAILED.exists() else set()


if __name__ == "__main__":
    sys.exit(main())
