"""Holds a memory cgroup and swap for one run, and takes both down at its end, however whoever asked for them dies.

Run as ``python -m memtui.study.runs.limit_holder ORDER``; ORDER is JSON with ``swap_bytes``, ``folders``, and ``uid``,
whose processes it takes. It is of a session of its own, so that ^C does not reach it, and lives as long as its input. A
line each of its input is ``{"join": PID}`` or ``{"limit": BYTES}``; a line each of its output is JSON, too: ``ready``,
then answers, then ``gone``, with what is left. ``failed`` says in one line what did not go.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from memtui.core.errors import UserError
from memtui.study.runs import cgroup_limit, swap_file
from memtui.study.runs.cgroup_limit import LimitGroup

LOWER_SECONDS = 60.0  # for a limit to come down


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # what it holds must not outlive it
    order = json.loads(sys.argv[1])
    group: LimitGroup | None = None
    swap, kept = None, None
    try:
        swap_file.sweep()
        cgroup_limit.sweep()
        group = LimitGroup.make()
        free, names = swap_file.free_bytes()
        if order["swap_bytes"]:
            if free >= order["swap_bytes"]:
                swap = swap_file.Swap("", f"what was there: {', '.join(names)}", order["swap_bytes"])
            else:
                swap, kept = swap_file.switch_on(order["swap_bytes"], order["folders"])
        _tell(
            {
                "ready": {
                    "version": group.version,
                    "folder": str(group.folder),
                    "swap": swap.what if swap else "",
                    "swap_bytes": swap.bytes_ if swap else 0,
                }
            }
        )
        while line := sys.stdin.readline():
            _obey(json.loads(line), group, swap.bytes_ if swap else 0, order["uid"])
    except UserError as error:
        _tell({"failed": str(error), "code": error.code})
    finally:
        left = _remove(group, swap.device if swap else "")
        if kept is not None:
            del kept
        _tell({"gone": not left, "left": left})
    return 0


def _obey(word: dict[str, Any], group: LimitGroup, swap_bytes: int, uid: int) -> None:
    if "join" in word:
        try:
            # Under sudo who asks is the user: nobody else's process is to be limited.
            if Path(f"/proc/{int(word['join'])}").stat().st_uid != uid:
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            group.join(word["join"])
        except OSError as error:
            raise UserError(f"the program cannot join {group.folder}: {error.strerror}") from None
        _tell({"joined": word["join"]})
    else:
        group.limit(word["limit"], swap_bytes, LOWER_SECONDS)
        _tell({"limit": word["limit"]})


def _remove(group: LimitGroup | None, device: str) -> str:
    """Take everything down; "" or what is left."""
    left = []
    try:
        if group is not None:
            group.remove()
    except UserError as error:
        left.append(str(error))
    if device and (why := swap_file.switch_off(device)):
        left.append(f"{device}: {why}")
    return "; ".join(left)


def _tell(word: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(word).encode() + b"\n")
    except OSError:
        pass  # nobody listens any more; what has to be done is done all the same


if __name__ == "__main__":
    sys.exit(main())
