"""``python -m benchmarks.studies DIR``: what ``memtui study all -o DIR`` found, as a part of docs/guide/study.md."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks import documents
from memtui.study.studies.catalogue import STUDIES

ROOT = Path(__file__).parents[1]
DOCUMENT, PICTURES = ROOT / "docs/guide/study.md", ROOT / "docs/guide/studies"
SHOWN = {  # of each study the figures that say most
    "basic": ("memory", "reuse-zoom", "passes"),
    "sample-time": ("mean-1-thread",),
    "filters": ("reuse-1-thread",),
    "batch-size": ("mean",),
    "network": ("wss", "heat-resnet-50"),
    "cpus": ("mean",),
    "overhead": ("slow-down",),
    "fast-memory": ("misses-zipf", "misses-training"),
}


def main() -> int:
    folder = Path(sys.argv[1])
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir()
    parts = [_part(folder, json.loads((folder / f"{name}.json").read_text())) for name in STUDIES]
    documents.put(DOCUMENT, "studies", "\n\n".join(parts))
    return 0


def _part(folder: Path, found: dict[str, Any]) -> str:
    name = found["study"]
    lines = [f"### {found['title']}", "", f"`{name}`: " + "; ".join(found["about"]["lines"]) + ".", ""]
    for chart in SHOWN[name]:
        file = f"{name}-{chart}.svg"
        shutil.copyfile(folder / "figures" / file, PICTURES / file)
        lines.append(f"![{name}, {chart.replace('-', ' ')}](studies/{file})")
    lines += ["", *(f"* {text}" for text in found["conclusion"])]
    lines += ["", *(f"The original: {text}" for text in found["original"][:1])]
    lines += [f"\nTo be known: {text}." for text in found["doubts"]]
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    sys.exit(main())
