"""``memtui doctor``: what this machine can measure; ``doctor_findings`` tests it."""

from __future__ import annotations

import argparse

from memtui.core.argtypes import add_json
from memtui.core.command import Command
from memtui.core.console import Console


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.cli.doctor_findings import examine, format_findings

    with console.progress("trying what this machine can measure"):
        findings = examine()
    if args.json:
        console.print_json(findings.to_dict())
    else:
        print(format_findings(findings))
    return 0


DOCTOR = Command("doctor", "what this machine can measure, what it cannot, and what would change that", add_json, _run)
