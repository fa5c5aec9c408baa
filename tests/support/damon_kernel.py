"""A kernel's DAMON as a folder."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from memtui.probes.pages.damon.sysfs import Interface

ADMIN = Path("/sys/kernel/mm/damon/admin/kdamonds")


class Kernel(Interface):
    """Interface on a folder that behaves as the kernel's does (mm/damon/sysfs.c)."""

    operations, old = "vaddr fvaddr paddr", False

    def __init__(self, root: Path) -> None:
        super().__init__(root / "sys", root / "proc")
        (root / "proc").mkdir(exist_ok=True)
        if not self._admin.exists():
            self._admin.mkdir(parents=True)
            self.put("nr_kdamonds", 0)

    def put(self, name: str, value: object) -> None:
        path = self._admin / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def _store(self, name: str, value: str) -> None:
        if name == "nr_kdamonds" and any(f.read_text() == "on\n" for f in self._admin.glob("*/state")):
            raise OSError(errno.EBUSY, "busy")
        assert (self._admin / name).exists(), f"there is no {name}"
        if name.endswith("/state"):
            self.command(name, value)
            return
        self.put(name, value)
        folder, _, last = name.rpartition("/")
        if last.startswith("nr_"):
            for old in (self._admin / folder).iterdir():
                if old.name.isdigit():
                    shutil.rmtree(old)
            for number in range(int(value)):
                self.made(last, f"{folder}/{number}" if folder else str(number))

    def command(self, name: str, value: str) -> None:
        state = (self._admin / name).read_text().strip()
        if value == "off" and state == "off":
            raise OSError(errno.EPERM, "it does not run")
        if value in ("on", "off"):
            self.put(name, value)
        elif state == "off":
            raise OSError(errno.EINVAL, "it ended")

    def made(self, what: str, at: str) -> None:
        """The files of a new folder."""
        files = {
            "nr_kdamonds": {"state": "off", "pid": -1, "contexts/nr_contexts": 0},
            "nr_contexts": {
                "operations": "vaddr", "avail_operations": "\n".join(self.operations.split()),
                "monitoring_attrs/intervals/sample_us": 5000, "monitoring_attrs/intervals/aggr_us": 100_000,
                "monitoring_attrs/intervals/update_us": 60_000_000, "monitoring_attrs/nr_regions/min": 10,
                "monitoring_attrs/nr_regions/max": 1000, "targets/nr_targets": 0, "schemes/nr_schemes": 0,
            },
            "nr_targets": {"pid_target": 0, "regions/nr_regions": 0},
            "nr_regions": {"start": 0, "end": 0},
            "nr_schemes": {
                "action": "stat", "access_pattern/sz/min": 0, "access_pattern/sz/max": 0,
                "access_pattern/nr_accesses/min": 0, "access_pattern/nr_accesses/max": 0,
                "access_pattern/age/min": 0, "access_pattern/age/max": 0, "filters/nr_filters": 0,
                "tried_regions/total_bytes": 0,
            } | ({} if self.old else {"apply_interval_us": 0}),
            "nr_filters": {"type": "anon", "matching": "N", "damon_target_idx": 0},
        }[what]  # fmt: skip
        for name, value in files.items():
            self.put(f"{at}/{name}", value)
            if name in ("avail_operations", "pid", "tried_regions/total_bytes"):
                (self._admin / at / name).chmod(0o400)


def state() -> str:
    try:
        return (ADMIN / "0/state").read_text().strip()
    except OSError:  # not there; the kernel is at a command
        return ""
