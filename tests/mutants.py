"""``python -m tests.mutants [MODULE...]``: which changes of the core do its tests notice?

mutmut makes a copy of a module with one small change (a mutant) after another, and runs the tests that reach what
changed; a mutant that all of them pass has survived. Which tests belong to which module, and which mutants are equal to
the original, is in ``mutants.toml``. What a run finds is kept below ``build/mutants``, so the next one goes on from
there, unless a source, a test or the entry of the module has changed. Exit status 1: in some module, none was
run, or fewer than 95 % of those that are not equal were killed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = ROOT / "build" / "mutants"
NEEDED = 0.95  # of the mutants that are not equal
_COPIED = ("memtui", "tests", "benchmarks", "docs", "README.md", "Makefile", "constraints.txt", "LICENSE", "LICENSES")
_KILLED = ("killed", "caught by type check", "timeout", "segfault")
_CHANGE = re.compile(r"^([-+])(?![-+]{2} )(.*)$", re.M)  # of a diff
# Within the stage: what mutmut knows of a module, with the changed lines of each mutant that nothing killed.
_ASK = """
import json, sys
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
data = SourceFileMutationData(path=sys.argv[1])
data.load()
found = {}
for name, code in data.exit_code_by_key.items():
    status = status_by_exit_code[code]
    shown = status in ("survived", "no tests", "suspicious")
    found[name] = status, get_diff_for_mutant(name, path=sys.argv[1]) if shown else ""
print(json.dumps(found))
"""
_MAKE = "from mutmut.__main__ import *; copy_src_dir(); copy_also_copy_files(); create_mutants(1)"


@dataclass
class Found:
    """What is known of the mutants of a module.

    Attributes:
        module: path from the root of the project.
        statuses: of all mutants, by mutmut's words; ``equal`` for survivors that are listed, ``wording`` for those that
            write a message of several words in capitals or between XX, which is not what its tests are about.
        survivors: the diff of every other one.
    """

    module: str
    statuses: Counter[str] = field(default_factory=Counter)
    survivors: dict[str, str] = field(default_factory=dict)

    @property
    def killed(self) -> int:
        return sum(self.statuses[status] for status in _KILLED)

    @property
    def judged(self) -> int:
        """Mutants that ran and are not equal."""
        return self.killed + len(self.survivors)

    def line(self) -> str:
        share = f"{100 * self.killed / self.judged:5.1f} %" if self.judged else "      -"
        return (
            f"{self.module:41} {share} {self.killed:6} {self.statuses['caught by type check']:8} "
            f"{self.statuses['timeout']:8} {len(self.survivors):8} {self.statuses['equal']:5} "
            f"{self.statuses['wording']:7} {self.statuses['not checked']:7}"
        )


HEAD = f"{'module':41}  killed killed by types timeouts survived equal wording not run"


def main(words: list[str]) -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0])
    asked.add_argument("modules", nargs="*", metavar="MODULE", help="part of a path; all modules without one")
    asked.add_argument("--limit-s", type=float, default=600, help="seconds for each module (%(default)s)")
    asked.add_argument("--sample", type=int, metavar="N", help="N mutants of each module, always the same ones")
    asked.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at once (%(default)s)")
    asked.add_argument("--show", action="store_true", help="what is known; run nothing")
    wanted = asked.parse_args(words)
    RESULTS.mkdir(parents=True, exist_ok=True)
    listed = tomllib.loads((HERE / "mutants.toml").read_text())
    modules = [
        module for module in listed["tests"] if not wanted.modules or any(part in module for part in wanted.modules)
    ]
    if not modules:
        print(f"no module of tests/mutants.toml has {' or '.join(wanted.modules)} in its path", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and take along what runs
    results = []
    print(HEAD, flush=True)
    for module in modules:
        stage = RESULTS / module.removesuffix(".py").replace("/", ".")
        if not wanted.show:
            _prepare(stage, module, listed["tests"][module])
            _run(stage, module, wanted.limit_s, wanted.jobs, wanted.sample)
        if (found := _found(stage, module, listed.get("equal", []))) is not None:
            results.append(found)
            print(found.line(), flush=True)
            text = "".join(f"# {name}\n{diff.strip()}\n\n" for name, diff in found.survivors.items())
            (stage / "survivors.txt").write_text(text)
    (RESULTS / "summary.txt").write_text("\n".join((HEAD, *(found.line() for found in results))) + "\n")
    print(f"survivors are in {RESULTS.relative_to(ROOT)}/*/survivors.txt")
    enough = [found for found in results if found.judged and found.killed >= NEEDED * found.judged]
    return int(len(enough) < len(modules))


def _prepare(stage: Path, module: str, tests: list[str]) -> None:
    """A folder in which mutmut mutates this module alone, kept for as long as nothing changes."""
    files = [*(ROOT / "memtui").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    chosen = [one for one in files if not one.name.startswith("test_") or str(one.relative_to(ROOT)) in " ".join(tests)]
    digest = hashlib.sha256(repr(tests).encode())
    for one in sorted(chosen):
        if one.name != Path(__file__).name:
            digest.update(one.read_bytes())
    state = stage / "state"
    if state.exists() and state.read_text() == digest.hexdigest():
        return
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    for name in _COPIED:  # not linked: who builds a wheel follows links, and takes each folder once
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, stage / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, stage / name)
    names, words = [one for one in tests if one.startswith("tests/")], [one for one in tests if one[:6] != "tests/"]
    cache = RESULTS / "mypy"
    # mutmut marks its own lines as ignored; what a mutant never reaches is for a test to notice.
    types = ["--output=json", f"--cache-dir={cache}", "--no-warn-unused-ignores", "--no-warn-unreachable"]
    settings = {
        "source_paths": ["memtui"],
        "only_mutate": [module],
        "also_copy": [name for name in _COPIED if name not in ("memtui", "tests")],
        "pytest_add_cli_args_test_selection": names,
        "pytest_add_cli_args": [*words, "-p", "no:cacheprovider"],
        "type_check_command": [sys.executable, "-m", "mypy", *types, module],
        "timeout_constant": 5.0,
    }
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    (stage / "pyproject.toml").write_text(f"{(ROOT / 'pyproject.toml').read_text()}\n[tool.mutmut]\n{lines}")
    state.write_text(digest.hexdigest())


def _run(stage: Path, module: str, limit_s: float, jobs: int, sample: int | None) -> None:
    """Run what has not been run yet; what mutmut says goes to ``log`` in the stage."""
    names: list[str] = []
    with (stage / "log").open("a") as log:
        if sample is not None:
            _python(stage, _MAKE, log)
            known = _statuses(stage, module)
            chosen = random.Random(0).sample(sorted(known), min(sample, len(known)))
            names = [name for name in chosen if known[name][0] == "not checked"]
            if not names:
                return
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(jobs), *names]
        child = subprocess.Popen(command, cwd=stage, stdout=log, stderr=log, start_new_session=True)
        try:
            child.wait(limit_s)
        except subprocess.TimeoutExpired:
            print(f"{module}: stopped after {limit_s:.0f} s", file=sys.stderr)
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)  # what the tests of a mutant left behind, too
            except ProcessLookupError:
                pass
        if child.wait() not in (0, -signal.SIGKILL):
            print(f"{module}: mutmut failed, see {stage.relative_to(ROOT)}/log", file=sys.stderr)


def _python(stage: Path, code: str, output: Any, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=stage, stdout=output, stderr=output, check=True)


def _statuses(stage: Path, module: str) -> dict[str, tuple[str, str]]:
    asked = subprocess.run([sys.executable, "-c", _ASK, module], cwd=stage, capture_output=True, text=True, check=True)
    return {name: (status, diff) for name, (status, diff) in json.loads(asked.stdout).items()}


def _found(stage: Path, module: str, equals: list[dict[str, str]]) -> Found | None:
    if not (stage / "mutants" / f"{module}.meta").exists():
        return None
    found = Found(module)
    for name, (status, diff) in _statuses(stage, module).items():
        if diff and any(_is_equal(entry, module, diff) for entry in equals):
            status = "equal"
        elif diff and _is_wording(diff):
            status = "wording"
        elif diff:
            found.survivors[name] = diff
        found.statuses[status] += 1
    return found


def _is_equal(entry: dict[str, str], module: str, diff: str) -> bool:
    """Whether an entry of the list is about this change: by module, and by the lines or by a pattern of them."""
    if entry.get("module", module) != module:
        return False
    lines = dict(_changed(diff))
    if "pattern" in entry:
        return bool(re.fullmatch(entry["pattern"], f"{lines.get('-', '')}\n{lines.get('+', '')}", re.S))
    return lines.get("-") == entry["line"] and lines.get("+") == entry["becomes"]


def _is_wording(diff: str) -> bool:
    lines = dict(_changed(diff))
    old, new = (lines.get(sign, "").replace("XX", "").casefold() for sign in "-+")
    return old == new and bool(re.search(r"""["'][^"']* [^"']*["']""", old))


def _changed(diff: str) -> Iterator[tuple[str, str]]:
    for sign in "-+":
        yield sign, "\n".join(line.strip() for one, line in _CHANGE.findall(diff) if one == sign)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
