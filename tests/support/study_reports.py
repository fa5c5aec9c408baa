"""Made-up runs of studies, and what a page must not do."""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ET
from dataclasses import asdict

from memtui.analysis.slowdown import Block
from memtui.core.json_fields import from_json
from memtui.study.plan import ALTERNATE, BLOCKS, Run
from memtui.study.runs.messages import RunResult
from tests.support.pages import URLS, Page
from tests.support.sessions import MS

MACHINE = {
    "hostname": "lab-host",
    "kernel": "6.18.0-mine",
    "cpu": "CPU",
    "cpus": 2,
    "memory": "23 GiB",
    "python": "3.11",
    "numpy": "2",
    "torch": "2",
    "memtui": "0.1.0",
    "container": "own PID namespaces",
}


SAMPLES = 60


def result_of(run: Run) -> RunResult:
    return from_json(RunResult, _result(run))


def _result(run: Run) -> dict:
    interval_ns = round(run.interval_s * 1e9) + 3 * MS
    steps = [interval_ns * index for index in range(2, SAMPLES, 8)]
    result = {
        "seconds": 12.0,
        "took_s": 14.0,
        "windows": SAMPLES,
        "steps": 7.0,
        "first_step_ns": steps[0],
        "last_step_ns": steps[-1],
        "step_times_ns": steps,
        "steps_per_s": 1.0 + 0.5 * run.cpus,
        "tracker": "pagetable",
        "others_cpus": 0.0,
    }
    if run.memory_share is not None:
        result["memory"] = under_a_limit(run.memory_share)
    if run.kind == BLOCKS:
        result["blocks"] = [
            asdict(Block(pair, on, 0.0, 1.0, 10.0 - on, 1.0, 20, 5 * on)) for pair in range(6) for on in (True, False)
        ]
    if run.kind == ALTERNATE:
        half_s = SAMPLES * interval_ns / 2e9
        result["blocks"] = [
            asdict(Block(0, fine, half_s * (not fine), half_s * (2 - fine), 9.0, 1.0, 9)) for fine in (True, False)
        ]
    return result


def under_a_limit(share: float) -> dict:
    """What a worker tells of a limit: twelve steps, each with as many faults."""
    samples = [
        {
            "at_ns": 1000 * MS + index * 200 * MS,
            "steps": float(index),
            "major_faults": 100 * index if share else 0,
            "faults": 900 * index,
            "swapped_in": 700 * index if share else 0,
            "process_major_faults": 100 * index if share else 0,
            "used_bytes": 40 << 20,
            "pages_bytes": 36 << 20,
            "other_bytes": 4 << 20,
            "swap_bytes": 20 << 20,
        }
        for index in range(13)
    ]
    return {
        "version": 2,
        "limit_bytes": round(share * (64 << 20)) or None,
        "swap": "a file on ext4, on a loop device, past the page cache" if share else "",
        "swap_bytes": 200 << 20 if share else 0,
        "reached_ns": 1000 * MS,
        "swapped_in_is_its_own": True,
        "page_cluster": 3,
        "kills": 0,
        "marks": samples,
    }


def inline_figures(page: Page) -> list[ET.Element]:
    figures = []
    for image in page.named("img"):
        head, _, data = (image["src"] or "").partition(",")
        assert head == "data:image/svg+xml;base64"
        figures.append(ET.fromstring(base64.b64decode(data)))
    return figures


def assert_harmless(page: Page) -> None:
    """Nothing is fetched, one script, and no attribute that acts."""
    assert len(page.named("script")) == 1
    assert len(page.named("style")) == 1
    for tag, attributes in page.elements:
        assert tag not in ("iframe", "object", "embed", "link", "base", "form")
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in URLS or (value or "").startswith(("data:image/", "#"))
    for figure in inline_figures(page):
        for element in figure.iter():
            assert element.tag.rpartition("}")[2] not in ("script", "foreignObject", "a")
            for name, value in element.attrib.items():
                if name.rpartition("}")[2] == "href":
                    assert value.startswith(("#", "data:image/png")), value
