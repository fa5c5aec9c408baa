"""The files of a finished study: an HTML report, its figures, and JSON with every number."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memtui.analysis.statistics import median
from memtui.core.console import as_json
from memtui.core.files import ensure_folder, write_safely
from memtui.core.secrets import mask_secrets
from memtui.core.text import short_command
from memtui.core.units import span
from memtui.reports.charts.matplotlib_svg import svg
from memtui.reports.charts.model import Findings
from memtui.study.page import page
from memtui.study.plan import CONTAINER
from memtui.study.studies.base import FinishedRun, Setting, Study

MASK = "***"
FIGURES = "figures"
NOTABLE_CPUS = 0.15  # used by other programs
_COMMAND_CHARACTERS = 200


def write(
    study: Study,
    setting: Setting,
    observed: Sequence[FinishedRun],
    machine: dict[str, Any],
    folder: Path,
    *,
    redact: bool,
) -> dict[str, Any]:
    """Write ``NAME.html``, ``NAME.json`` and ``figures/NAME-CHART.svg``; return the JSON document. Raises UserError."""
    findings = study.find(setting, observed)
    findings = dataclasses.replace(findings, doubts=[*findings.doubts, *disturbed(observed, machine["cpus"])])
    return write_findings(study, setting, findings, observed, machine, folder, redact=redact)


def write_findings(
    study: Study,
    setting: Setting,
    findings: Findings,
    observed: Sequence[FinishedRun],
    machine: dict[str, Any],
    folder: Path,
    *,
    redact: bool,
    replace: bool = True,
) -> dict[str, Any]:
    """Write the files of these findings; without ``replace`` only where there is no report yet. Raises UserError."""
    document = to_dict(study, setting, findings, observed, machine, redact=redact)
    if not replace and (folder / f"{study.name}.json").exists():
        return document
    drawn = {chart.name: svg(chart) for chart in findings.charts}
    for name, picture in drawn.items():
        write_safely(ensure_folder(folder / FIGURES) / f"{study.name}-{name}.svg", picture)
    html = page(study, findings, document["about"], lambda chart: drawn[chart.name])
    write_safely(folder / f"{study.name}.html", html)
    write_safely(folder / f"{study.name}.json", as_json(document) + "\n")
    return document


def disturbed(observed: Sequence[FinishedRun], cpus: int) -> list[str]:
    """Return a doubt where other programs used the machine during the runs."""
    others = median([item.result.others_cpus for item in observed])
    if others is None or others < NOTABLE_CPUS:
        return []
    return [
        f"other programs took {others:.1f} of {cpus} CPUs meanwhile (median of the runs): speeds, and what a window "
        "holds, suffer from that; a machine with nothing else to do gives better figures"
    ]


def to_dict(
    study: Study,
    setting: Setting,
    findings: Findings,
    observed: Sequence[FinishedRun],
    machine: dict[str, Any],
    *,
    redact: bool,
) -> dict[str, Any]:
    """Return the JSON document; a redacted document lacks host, user, paths and command lines."""
    return {
        "study": study.name,
        "title": study.title,
        "quick": setting.quick,
        "numbers": findings.numbers,
        "conclusion": findings.conclusion,
        "original": list(study.original),
        "doubts": findings.doubts,
        "machine": _without_names(machine) if redact else machine,
        "about": about(setting, observed, machine, redact=redact),
    }


def about(
    setting: Setting, observed: Sequence[FinishedRun], machine: dict[str, Any], *, redact: bool
) -> dict[str, Any]:
    """Return how the study was done: ``lines`` for the head, ``method`` for the end, ``runs`` in their order."""
    took_s = sum(item.result.took_s for item in observed)
    host = "" if redact else f" on {machine['hostname']}"
    what = "the bundled network" if not setting.command else _command(setting.command, redact)
    lines = [
        f"{what}{host}, Linux {_kernel(machine['kernel'], redact)}, {machine['cpu']}, {machine['cpus']} CPUs "
        f"({setting.cpus} used), {machine['memory']}",
        f"memtui {machine['memtui']}, Python {machine['python']}, numpy {machine['numpy']}, "
        f"PyTorch {machine['torch']}; {len(observed)} runs in {span(took_s)}"
        + (", quick: short runs, few repeats" if setting.quick else ""),
    ]
    method = [
        f"Runs are interleaved: each repeat does all of them once, in an order of its own (seed {setting.seed}). "
        "The repeat's seed is that of data, weights and order of images.",
        "Data: " + (_data(setting, redact) if not setting.command else "the program's own") + ".",
    ]
    if machine.get("container") and any(item.run.place == CONTAINER for item in observed):
        cgroup = " and a memory cgroup" if any(item.result.cgroup for item in observed) else ""
        method.append(f"A container here is: {machine['container']}{cgroup}.")
        if machine.get("container_why") and not redact:  # the message of an engine may name its socket
            method.append(f"Not used for it: {machine['container_why']}.")
    runs = [
        {
            "group": item.run.group,
            "repeat": item.run.repeat,
            "seed": item.run.seed,
            "interval_s": item.run.interval_s,
            "windows": item.result.windows,
            "seconds": item.result.seconds,
            "steps_per_s": item.result.steps_per_s,
            "tracker": item.result.tracker,
            "session": MASK if redact else item.session.name,
            "program": _command(item.run.program, redact),
        }
        for item in observed
    ]
    return {"lines": lines, "method": method, "runs": runs}


def _data(setting: Setting, redact: bool) -> str:
    if not setting.data:
        return "generated images in the shape of CIFAR-10's"
    folder = os.path.normpath(Path(setting.data).absolute())
    return f"CIFAR-10's binary files from {MASK if redact else folder}"


def _command(argv: Sequence[str], redact: bool) -> str:
    return MASK if redact else short_command(mask_secrets(shlex.join(argv)), _COMMAND_CHARACTERS)


def _without_names(machine: dict[str, Any]) -> dict[str, Any]:
    return {name: v for name, v in machine.items() if name not in ("hostname", "container_why")} | {
        "kernel": _kernel(machine["kernel"], True)
    }


def _kernel(release: str, redact: bool) -> str:
    """Return a kernel release; a redacted release lacks its suffix, which may name who built it."""
    return release.partition("-")[0] if redact else release
