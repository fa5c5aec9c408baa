"""What ``doctor`` has to say on a machine, judged by the configuration of its kernel."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any


def kernel_config(text: str) -> set[str]:
    """Options that are built in, without CONFIG_."""
    lines = (line.partition("=") for line in text.splitlines() if line.startswith("CONFIG_"))
    return {name.removeprefix("CONFIG_") for name, _, value in lines if value == "y"}


def config_of_this_machine() -> set[str] | None:
    """Of the running kernel; None where it is not to be found."""
    try:
        return kernel_config(gzip.decompress(Path("/proc/config.gz").read_bytes()).decode())
    except OSError:
        return None


def assert_true(findings: dict[str, Any], text: str, options: set[str], *, root: bool) -> None:
    """The findings, and the same as a page of text, of x86-64 and Linux 6.1 or newer with /proc/PID/clear_refs."""
    trackers = {found["name"]: found for found in findings["trackers"]}
    flushes = {found["name"]: found for found in findings["flushes"]}
    auto = findings["auto"]
    assert findings["auto_tracker"] == auto["tracker"]
    assert findings["root"] is findings["rights"]["ok"] is root

    # The choice, and why.
    if not root:
        assert (auto["tracker"], auto["flush"], auto["rearm"]) == ("referenced", "soft-dirty", "full")
        assert "pagetable is out: it needs root" in auto["reason"]
        assert "sudo" in findings["rights"]["remedy"]
        assert trackers["pagetable"]["reason"].startswith("it needs root")
        assert trackers["pagetable"]["remedy"] == "run with sudo"
        assert not flushes["cold"]["ok"]
        assert flushes["cold"]["reason"].startswith("it needs root")
    elif "DEBUG_INFO_BTF" in options:
        first = next(name for name, found in flushes.items() if found["ok"])
        assert (auto["tracker"], auto["flush"], auto["rearm"]) == ("pagetable", first, "working-set")
        assert auto["reason"] == "the most exact one, and it proved itself here"
        assert trackers["pagetable"] == {"name": "pagetable", "ok": True, "reason": "", "remedy": ""}
    else:
        assert auto["tracker"] == ("idle" if "IDLE_PAGE_TRACKING" in options else "referenced")
        assert "pagetable is out" in auto["reason"]
        assert trackers["pagetable"]["remedy"] == "a kernel with CONFIG_DEBUG_INFO_BTF"

    # What is missing is named as the option that would bring it.
    idle = trackers["idle"]
    assert idle["ok"] is (root and "IDLE_PAGE_TRACKING" in options)
    if "IDLE_PAGE_TRACKING" not in options:
        assert idle["reason"] == "/sys/kernel/mm/page_idle/bitmap is missing: this kernel has no idle page tracking"
        assert idle["remedy"] == "a kernel with CONFIG_IDLE_PAGE_TRACKING"
    elif not root:
        assert idle["reason"].startswith("it needs root")
        assert idle["remedy"] == "run with sudo"
    assert trackers["referenced"]["ok"]
    assert trackers["rss"]["ok"]

    # The flush that costs something is told by what it costs, only where it does.
    assert flushes["soft-dirty"]["ok"]
    assert bool(flushes["soft-dirty"]["reason"]) is ("MEM_SOFT_DIRTY" in options)
    if "MEM_SOFT_DIRTY" in options:
        assert "CONFIG_MEM_SOFT_DIRTY: it write-protects" in flushes["soft-dirty"]["reason"]

    # Whatever is missing has a reason.
    groups = ("trackers", "flushes", "power")
    for found in (f for group in groups for f in findings[group] if not f["ok"]):
        assert found["reason"], found
    _assert_text(findings, text)


def _assert_text(findings: dict[str, Any], text: str) -> None:
    """The page says the same as the document."""
    lines, host, auto = text.splitlines(), findings["host"], findings["auto"]
    assert lines[0].startswith(f"memtui {findings['memtui_version']}, ")
    assert f"Linux {host['kernel']} {host['architecture']}, {host['cpu_count']} CPUs" in lines[0]
    assert lines[1] == (
        f"auto: tracker {auto['tracker']}, flush {auto['flush']}, rearm {auto['rearm']}: {auto['reason']}"
    )
    for title, group in (("tracker", "trackers"), ("flush", "flushes"), ("power", "power")):
        for found in findings[group]:
            mark = "yes" if found["ok"] else "no "
            why = f": {found['reason']}" if found["reason"] else ""
            line = f"{title:<8} {mark} {found['name']}{why}"
            assert line in lines
            if found["remedy"] and not found["ok"]:
                assert lines[lines.index(line) + 1].strip() == found["remedy"]
