"""``python -m tests.lanes``: all tests, in lanes beside each other, which takes half of the time.

One writes as it goes, what the others said follows. ``--again``: only what failed, one lane after the other, for
machines on which something else runs, too; each test of them is a line of ``build/reruns.jsonl``, which is printed. All
other words are those of pytest.
"""

from __future__ import annotations

import compileall
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import IO

from tests.conftest import LANES

NOTHING_TO_DO = 5  # pytest's exit code where no test was selected
CACHE = Path(".pytest_cache")
FAILED = CACHE / "failed-lanes.json"  # the lanes to which --again returns
RERUNS = Path("build", "reruns.jsonl")


def main(words: list[str]) -> int:
    if "--again" in words:
        words = [word for word in words if word != "--again"]
        # A lane that died before it could say what failed is run whole.
        words += ["--last-failed", "--last-failed-no-failures", "all"]
        return max((_run_again(lane, words) for lane in _failed_before()), default=0)
    for folder in ("memtui", "tests"):  # hundreds of processes start here, also where PYTHONDONTWRITEBYTECODE is set
        compileall.compile_dir(folder, quiet=2)
    for lane in LANES:  # what failed in an earlier run is not what failed in this one
        shutil.rmtree(CACHE / lane, ignore_errors=True)
    codes = dict(zip(LANES, _all_beside([_command(lane, words) for lane in LANES]), strict=True))
    CACHE.mkdir(exist_ok=True)
    FAILED.write_text(json.dumps([lane for lane, code in codes.items() if code]))
    return max(codes.values())


def _run_again(lane: str, words: list[str]) -> int:
    """Run what failed, and leave a record of it: a test that passes only the second time is a defect of its own."""
    failed = _last_failed(lane)
    code = _code(subprocess.run(_command(lane, words)).returncode)
    again = _last_failed(lane)
    RERUNS.parent.mkdir(exist_ok=True)
    with RERUNS.open("a") as record:
        for test in failed or [f"lane {lane}"]:  # which died before it could say
            passed = test not in again if failed else not code
            line = json.dumps({"date": f"{date.today()}", "commit": _commit(), "test": test, "passed": passed})
            print(line, file=record)
            print(f"second try: {line}", flush=True)
    return code


def _last_failed(lane: str) -> list[str]:
    """The tests of a lane that failed when it ran last."""
    path = CACHE / lane / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def _command(lane: str, words: list[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", "--lane", lane, "-o", f"cache_dir={CACHE / lane}", *words]


def _failed_before() -> list[str]:
    return list(json.loads(FAILED.read_text())) if FAILED.exists() else list(LANES)


def _all_beside(commands: list[list[str]]) -> list[int]:
    """Exit codes; the first command writes at once, what the others said follows."""
    first, *others = commands
    with ExitStack() as stack:
        beside = [_beside(command, stack) for command in others]
        codes = [_code(subprocess.run(first).returncode)]
        for child, said in beside:
            codes.append(_code(child.wait()))
            said.seek(0)
            sys.stdout.flush()
            sys.stdout.buffer.write(said.read())
    return codes


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
