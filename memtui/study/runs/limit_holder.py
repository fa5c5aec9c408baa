"""Holds a memory cgroup and swap for one run, and takes both down at its end, however the worker of the run dies.

Run as ``python -m memtui.study.runs.limit_holder ORDER``; ORDER is a ``LimitOrder`` as JSON. The holder has a session
of its own, so that ^C does not reach it, and lives until the end of its input. A line of its input is a request, a line
of its output a reply (``memtui.study.runs.limit_messages``): ``HolderReady`` first, ``HolderGone`` last.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.json_fields import from_json, to_json
from memtui.study.runs import cgroup_limit, swap_file
from memtui.study.runs.cgroup_limit import LimitGroup
from memtui.study.runs.limit_messages import (
    HolderFailed,
    HolderGone,
    HolderReady,
    JoinRequest,
    LimitOrder,
    LimitReached,
    ProcessJoined,
    Reply,
    Request,
    request_of,
)

LOWER_SECONDS = 60.0  # for a limit to come down


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # cgroup and swap must not outlive the holder
    order = from_json(LimitOrder, json.loads(sys.argv[1]))
    group: LimitGroup | None = None
    swap, locked = None, None
    try:
        swap_file.sweep()
        cgroup_limit.sweep()
        group = LimitGroup.make()
        free, names = swap_file.free_bytes()
        if order.swap_bytes:
            if free >= order.swap_bytes:
                swap = swap_file.Swap("", f"what was there: {', '.join(names)}", order.swap_bytes)
            else:
                swap, locked = swap_file.switch_on(order.swap_bytes, order.folders)
        swap_bytes = swap.bytes_ if swap else 0
        _send(HolderReady(group.version, str(group.folder), swap.what if swap else "", swap_bytes))
        while line := sys.stdin.readline():
            _apply(request_of(json.loads(line)), group, swap_bytes, order.uid)
    except UserError as error:
        _send(HolderFailed(str(error), error.code))
    finally:
        left = _remove(group, swap.device if swap else "")
        if locked is not None:
            del locked
        _send(HolderGone(left))
    return 0


def _apply(request: Request, group: LimitGroup, swap_bytes: int, uid: int) -> None:
    if isinstance(request, JoinRequest):
        try:
            # Under sudo the request is the user's: nobody else's process may be limited.
            if Path(f"/proc/{int(request.pid)}").stat().st_uid != uid:
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            group.join(request.pid)
        except OSError as error:
            raise UserError(f"the program cannot join {group.folder}: {error.strerror}") from None
        _send(ProcessJoined(request.pid))
    else:
        group.limit(request.limit_bytes, swap_bytes, LOWER_SECONDS)
        _send(LimitReached(request.limit_bytes))


def _remove(group: LimitGroup | None, device: str) -> str:
    """Take the cgroup and the swap down; return what is left of them, "" for nothing."""
    left = []
    try:
        if group is not None:
            group.remove()
    except UserError as error:
        left.append(str(error))
    if device and (why := swap_file.switch_off(device)):
        left.append(f"{device}: {why}")
    return "; ".join(left)


def _send(reply: Reply) -> None:
    try:
        os.write(1, json.dumps(to_json(reply)).encode() + b"\n")
    except OSError:
        pass  # the worker is gone; the holder takes everything down all the same


if __name__ == "__main__":
    sys.exit(main())
