"""``memtui study``: checks the arguments, performs the runs that are still missing, and writes the reports."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from memtui.core import progress_line
from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.json_fields import from_json, to_json
from memtui.core.privilege import Invoker, groups_of, invoker, run_as, state_directory, users_environment
from memtui.core.secrets import mask_secrets
from memtui.core.units import size, span
from memtui.reports.charts import matplotlib_svg
from memtui.reports.charts.model import Findings
from memtui.study import host_info, report
from memtui.study.plan import Run, TimeLeft, interleaved
from memtui.study.runs import container, memory_limit, runner
from memtui.study.runs.messages import MemoryOrder, RunProgress, RunResult
from memtui.study.state import State
from memtui.study.studies.base import FinishedRun, Setting, Study
from memtui.study.studies.catalogue import STUDIES
from memtui.study.studies.fast_memory.study import FastMemory, sizes

ALL, LIST = "all", "list"


def study(args: argparse.Namespace, console: Console) -> int:
    """Run studies and return the exit status. Raises UserError."""
    chosen = _chosen(args.what)
    cpus = _cpus(args.cpus)
    if args.what == LIST:
        return _list(args, cpus, console)
    user = invoker()
    with console.progress("looking at this machine") as line, _files_of(user):
        folder = args.output or state_directory(user) / "studies"
        setting = _setting(args, cpus)
        matplotlib_svg.check()
        means = container.means()
        machine = host_info.describe() | {"container": means.what, "container_why": means.why}
        setting = replace(setting, container=not means.reason)
        swap_folders = [str(_existing_folder(folder)), "/var/tmp", "/tmp"]
        if FastMemory.name in chosen:
            setting = replace(setting, no_limit=memory_limit.why_not(swap_folders))
        plans, left_out = _plans(chosen, setting, console, alone=args.what != ALL)
        if means.reason:
            console.notify(f"nothing is run in a container: {means.reason}")
        documents = []
        with closing(State(folder)) as state:
            matplotlib_svg.load()
            wanted = [
                [(run, run.key(host_info.surroundings(machine, run.place))) for run in plan.runs] for plan in plans
            ]
            left = [run for of_plan in wanted for run, key in of_plan if state.row(key) is None]
            _announce(plans, left, folder, console, setting)
            times = TimeLeft([run.expected_s for run in left])
            study_runner = _StudyRunner(user, state, means, times, console, len(left), swap_folders)
            for plan, of_plan in zip(plans, wanted, strict=True):
                observed: list[FinishedRun] = []
                for run, key in of_plan:
                    observed.append(study_runner.finished_run(plan.study.name, run, key, observed))
                line.update("", f"{plan.study.name}: reading the sessions and drawing")
                documents.append(_report(user, plan.study, setting, observed, machine, folder, args.redact))
                if not args.json:
                    _print(documents[-1], folder, console)
            for skipped, why in left_out:
                documents.append(_report_none(user, skipped, why, setting, machine, folder, args.redact))
    if args.json:
        console.print_json({"studies": documents} if args.what == ALL else documents[0])
    return 0


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A study and its runs, in order."""

    study: Study
    runs: list[Run]


def _chosen(name: str) -> list[str]:
    if name in (ALL, LIST):
        return list(STUDIES)
    if name not in STUDIES:
        near = get_close_matches(name, STUDIES, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"there is no study {name!r}; {hint}there are {', '.join(STUDIES)}, all, and list")
    return [name]


def _cpus(requested: int | None) -> int:
    there = len(os.sched_getaffinity(0))
    if requested is not None and requested > there:
        raise UserError(
            f"--cpus {requested}: memtui may use {there} CPU{'s' * (there != 1)} here; ask for that many at most"
        )
    return requested or there


def _setting(args: argparse.Namespace, cpus: int) -> Setting:
    """Return the setting of the studies, from the arguments. Raises UserError."""
    command = tuple(args.command)
    if command and shutil.which(command[0]) is None:
        raise UserError(f"{command[0]}: no such program (or not executable)")
    if args.seconds is not None and not command:
        raise UserError("--seconds is for a program of yours, after --; the bundled network knows when to end")
    if args.data is not None:
        if command:
            raise UserError("--data is for the bundled network, and your program has its own")
        from memtui.study.workloads.cifar import check_folder

        try:
            check_folder(args.data)
        except ValueError as error:
            raise UserError(str(error)) from None
    seconds = args.seconds
    if seconds is None and command and args.quick:
        seconds = 20.0
    network = "cnn" if importlib.util.find_spec("torch") is not None else "numpy_cnn"
    data = "" if args.data is None else str(args.data.absolute())
    return Setting(args.quick, cpus, command, network, data, args.seed, seconds)


def _existing_folder(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next((path for path in (folder, *folder.absolute().parents) if path.is_dir()), Path("/"))


def _plans(
    names: Sequence[str], setting: Setting, console: Console, *, alone: bool
) -> tuple[list[StudyPlan], list[tuple[Study, str]]]:
    """Return the plans, and the studies of ``all`` that are left out, with the reason. Raises UserError."""
    plans, left_out = [], []
    for name in names:
        try:
            by_repeat = STUDIES[name].runs(setting)
        except UserError as error:
            if alone:
                raise
            console.notify(f"{name} is left out: {error}")
            left_out.append((STUDIES[name], str(error)))
            continue
        plans.append(StudyPlan(STUDIES[name], interleaved(by_repeat, setting.seed)))
    if not plans:
        raise UserError("none of the studies can be done so")
    return plans, left_out


def _list(args: argparse.Namespace, cpus: int, console: Console) -> int:
    rows: list[dict[str, Any]] = []
    for name, entry in STUDIES.items():
        times: dict[str, Any] = {}
        for quick in (True, False):
            try:
                runs = [run for repeat in entry.runs(Setting(quick, cpus)) for run in repeat]
            except UserError as error:
                times["reason"] = str(error)
                continue
            times["quick_s" if quick else "full_s"] = sum(run.expected_s for run in runs)
        rows.append({"study": name, "title": entry.title} | times)
    if args.json:
        console.print_json({"studies": rows})
        return 0
    for row in rows:
        how = row.get("reason") or f"about {span(row['quick_s'])} with --quick, {span(row['full_s'])} at full length"
        console.print(f"{row['study']:<12} {row['title']} ({how})")
    return 0


def _announce(
    plans: Sequence[StudyPlan], left: Sequence[Run], folder: Path, console: Console, setting: Setting
) -> None:
    """Print the number of runs, their time and their folder before the first of them."""
    total = sum(len(plan.runs) for plan in plans)
    done = f"; {total - len(left)} were done before" if len(left) < total else ""
    length = span(sum(run.expected_s for run in left))
    console.notify(f"{len(left)} runs, about {length} (corrected as they finish){done}; into {folder}")
    if setting.quick and not setting.command:
        whole = [
            run.expected_s for plan in plans for runs in plan.study.runs(replace(setting, quick=False)) for run in runs
        ]
        console.notify(f"at full length, without --quick, it would be {len(whole)} runs, about {span(sum(whole))}")


class _StudyRunner:
    """Performs the runs that the state does not have yet, and shows their progress."""

    def __init__(
        self,
        user: Invoker,
        state: State,
        means: container.Means,
        times: TimeLeft,
        console: Console,
        count: int,
        swap_folders: Sequence[str],
    ) -> None:
        self._user, self._state, self._means, self._times, self._console = user, state, means, times, console
        self._count, self._number = count, 0
        self._swap_folders = tuple(swap_folders)
        self._cpus = sorted(os.sched_getaffinity(0))

    def finished_run(self, name: str, run: Run, key: str, before: Sequence[FinishedRun]) -> FinishedRun:
        """Return a finished run, from the state or by performing it now.

        ``before``: finished runs of its study. Raises UserError.
        """
        row = self._state.row(key)
        if row is None:
            row = self._do(name, run, key, before)
        try:
            result = from_json(RunResult, row)
        except ValueError as error:
            why = f"is not a state of a study (the result of a run: {error})"
            raise UserError(f"{self._state.path}: {why}; name another folder with -o") from None
        return FinishedRun(run, result, self._state.folder / row["files"][0])

    def _memory(self, run: Run, before: Sequence[FinishedRun]) -> MemoryOrder | None:
        """Return limit and swap of a run, from the recording that they are shares of. Raises UserError."""
        if run.memory_share is None:
            return None
        recorded = next(item for item in before if item.run.group == run.memory_of)
        measured = _as_user(self._user, lambda: sizes(recorded))
        return MemoryOrder(
            round(run.memory_share * measured["working_set_bytes"]) or None,
            measured["swap_bytes"] if run.memory_share else 0,
            self._swap_folders,
        )

    def _do(self, name: str, run: Run, key: str, before: Sequence[FinishedRun]) -> dict[str, Any]:
        memory = self._memory(run, before)
        self._number += 1
        head = f"{name} {self._number}/{self._count}: {run.group}, repeat {run.repeat + 1}"
        self._console.notify(f"{head}; {span(self._times.seconds)} left")
        progress_line.update("it begins", head)
        stem = self._state.folder / f"{name}-{key}"
        cpus = self._cpus[: run.cpus]
        start_s = time.monotonic()
        result = runner.perform(run, stem, cpus, self._means, lambda progress: self._show(head, progress), memory)
        result = replace(result, tracker=_tracker(stem))
        row = to_json(result) | {"files": [f"{stem.name}.memtui"], "run": _without_secrets(run)}
        self._state.add(key, row)
        self._times.done(run.expected_s, time.monotonic() - start_s)
        return row

    @staticmethod
    def _show(head: str, progress: RunProgress) -> None:
        progress_line.update(
            f"{progress.elapsed_s:.0f} s, {progress.steps:.0f} steps, WSS {size(progress.wss_bytes)}", head
        )


def _without_secrets(run: Run) -> dict[str, Any]:
    return to_json(run) | {"program": mask_secrets(shlex.join(run.program))}


def _tracker(stem: Path) -> str:
    from memtui.session.session import Session

    with closing(Session(Path(f"{stem}.memtui"))) as reader:
        return reader.hello.tracker


def _report(
    user: Invoker,
    study: Study,
    setting: Setting,
    observed: Sequence[FinishedRun],
    machine: dict[str, Any],
    folder: Path,
    redact: bool,
) -> dict[str, Any]:
    """Read the sessions and write the files."""
    document: dict[str, Any] = _as_user(
        user, lambda: report.write(study, setting, observed, machine, folder, redact=redact)
    )
    return document


def _report_none(
    user: Invoker, study: Study, why: str, setting: Setting, machine: dict[str, Any], folder: Path, redact: bool
) -> dict[str, Any]:
    """Report why a study was left out. An older report of the study stays."""
    findings = Findings({"left_out": why}, [f"Not done here: {why}."], [])
    document: dict[str, Any] = _as_user(
        user, lambda: report.write_findings(study, setting, findings, [], machine, folder, redact=redact, replace=False)
    )
    return document


def _as_user(user: Invoker, work: Callable[[], Any]) -> Any:
    """Call ``work`` in a child that gave up being root for good, and return its result. Raises UserError."""
    effective = os.geteuid()
    if effective != os.getuid():
        os.seteuid(os.getuid())
    try:
        return run_as(user, work)
    finally:
        if effective != os.geteuid():
            os.seteuid(effective)


def _print(document: dict[str, Any], folder: Path, console: Console) -> None:
    console.print_line(document["title"])
    for text in document["conclusion"]:
        console.print_line(f"  {text}")
    for text in document["doubts"]:
        console.print_line(f"  doubt: {text}")
    console.print_line(f"  {folder / document['study']}.html")


@contextmanager
def _files_of(user: Invoker) -> Iterator[None]:
    """Create files as the user under sudo; this process can still become root, to start a sampler."""
    if os.geteuid() != 0 or user.uid == 0:
        yield
        return
    # The parent of a worker is not sudo, so the worker cannot find out itself.
    os.environ.update(users_environment(user))
    groups = os.getgroups()
    os.setgroups(groups_of(user))
    os.setegid(user.gid)
    os.seteuid(user.uid)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        os.setegid(os.getgid())
        os.setgroups(groups)
