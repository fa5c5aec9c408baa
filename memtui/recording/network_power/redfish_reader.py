"""Reads the power of the machine from a Redfish service in a thread, which may hang, and says what is known."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable

from memtui.core.readings import CHASSIS, PowerReading
from memtui.core.samples import Status
from memtui.recording.network_power.cadence import Cadence
from memtui.recording.network_power.connection import Connection, NoAnswer, Unreachable
from memtui.recording.network_power.redfish_resource import PowerResource, find

SOURCE = "redfish"
EVERY_S = 2.0  # from one request to the next, but never before the controller has rested for as long as it took
PATIENCE_S = 8.0  # after a request, until the value before does not hold any more
FIND_S = 60.0  # for finding the resource, which takes a request or more for each chassis
LONGEST_PAUSE_S = 60.0  # between attempts that fail
# A controller may answer a wrong password too late, and count it all the same: after so many attempts in a row that
# sent one and got no answer, the next ones are far apart.
MOST_UNANSWERED = 3
UNANSWERED_PAUSE_S = 300.0
_NO_ANSWER = "the Redfish service does not answer"


class RedfishReader:
    """One question at a time, in a thread; ``ready_fd`` is readable when there is an outcome."""

    def __init__(self, connect: Callable[[], Connection], chassis: str = "", *, patience_s: float = PATIENCE_S) -> None:
        """Ask nothing yet.

        Args:
            connect: makes a connection.
            chassis: the path of the chassis to read; empty: find it.
            patience_s: how long a request may take.
        """
        self._connect, self._chassis, self._patience_s = connect, chassis, patience_s
        self._connection: Connection | None = None
        self._thread: threading.Thread | None = None
        self._resource: PowerResource | None = None
        self._outcomes: queue.SimpleQueue[tuple[int, float | NoAnswer]] = queue.SimpleQueue()
        self.ready_fd, self._ready = os.pipe()
        self._begun_s: float | None = None  # of the question under way
        self._allowed_s = patience_s  # for the question under way
        self._given_up = False  # on that question
        self._due_s = time.monotonic()
        self._failures = 0
        self._unanswered = 0  # attempts in a row that sent a password for nothing
        self._answered_wall_s: float | None = None
        self._cadence = Cadence()
        self.ended = False  # nothing will be asked any more

    @property
    def wait_s(self) -> float | None:
        """For how long nothing is to do, unless there is an outcome; None: nothing ever."""
        if self.ended:
            return None
        now_s = time.monotonic()
        if self._begun_s is None:
            return max(self._due_s - now_s, 0.0)
        return None if self._given_up else max(self._begun_s + self._allowed_s - now_s, 0.0)

    @property
    def source(self) -> str:
        """``redfish``, with the seconds between new values once they are known, and never below those of asking."""
        seconds = self._cadence.seconds
        return SOURCE if seconds is None else f"{SOURCE} every {max(seconds, EVERY_S):.0f} s"

    def step(self) -> PowerReading | None:
        """Do what is due, without waiting; return a reading where there is something new to say."""
        if not self._outcomes.empty():
            os.read(self.ready_fd, 1)
            return self._conclude(*self._outcomes.get())
        now_s = time.monotonic()
        if self.ended:
            return None
        if self._begun_s is None:
            if now_s >= self._due_s:
                self._start(now_s)
            return None
        if self._given_up or now_s < self._begun_s + self._allowed_s:
            return None
        self._given_up = True
        if self._connection is not None:
            self._connection.abort()
        return self._nothing(Status.FAILED, _NO_ANSWER)

    def _start(self, now_s: float) -> None:
        self._begun_s, self._given_up = now_s, False
        self._allowed_s = self._patience_s if self._resource is not None else max(self._patience_s, FIND_S)
        if self._connection is None:
            self._connection = self._connect()
        self._thread = threading.Thread(target=self._request, args=(self._connection, self._resource), daemon=True)
        self._thread.start()

    def _request(self, connection: Connection, resource: PowerResource | None) -> None:
        """Ask for the power, in the thread."""
        outcome: float | NoAnswer
        try:
            if resource is None:
                self._resource, outcome = find(connection.get, self._chassis)
            else:
                outcome = resource.watts(connection.get(resource.path))
        except NoAnswer as error:
            outcome = error
        except Exception as error:  # whatever it is, without its words, which may have anything in them
            outcome = NoAnswer(Status.FAILED, f"reading Redfish failed ({type(error).__name__})")
        self._outcomes.put((time.monotonic_ns(), outcome))
        os.write(self._ready, b"\0")

    def _conclude(self, t_ns: int, outcome: float | NoAnswer) -> PowerReading | None:
        assert self._begun_s is not None
        t_s = t_ns / 1e9
        took_s, given_up = t_s - self._begun_s, self._given_up
        self._due_s = max(self._begun_s + EVERY_S, t_s + took_s)
        self._begun_s, self._given_up = None, False
        if isinstance(outcome, Unreachable):
            self._unanswered += outcome.password_sent
        else:
            self._unanswered = 0
        if isinstance(outcome, float) and not given_up:
            self._failures, self._answered_wall_s = 0, time.time()
            self._cadence.add(t_s, outcome)
            return self._reading(t_ns, power_w=outcome)
        self._failures += 1
        waits = self._unanswered >= MOST_UNANSWERED
        self._due_s = t_s + (UNANSWERED_PAUSE_S if waits else min(EVERY_S * 2**self._failures, LONGEST_PAUSE_S))
        self._resource = None  # a controller that restarted may have another one
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if isinstance(outcome, float):
            return None  # too late, as was said already
        self.ended = outcome.status == Status.DENIED  # also where it came too late
        if given_up and not (self.ended or waits):
            return None
        reason = _NO_ANSWER if given_up and waits else outcome.reason
        if waits:
            reason += (
                f"; asked every {UNANSWERED_PAUSE_S / 60:.0f} minutes only, after {self._unanswered} passwords without "
                "an answer: wrong ones lock an account"
            )
        return self._nothing(outcome.status, reason)

    def _nothing(self, status: Status, reason: str) -> PowerReading:
        self._cadence.add(0.0, None)
        if self._answered_wall_s is not None:
            since = time.strftime("%H:%M:%S", time.localtime(self._answered_wall_s))
            reason = f"stale since {since}: {reason}"
        return self._reading(time.monotonic_ns(), status=status, reason=reason)

    def _reading(
        self, t_ns: int, *, power_w: float | None = None, status: Status = Status.OK, reason: str = ""
    ) -> PowerReading:
        return PowerReading(t_ns, "machine", CHASSIS, self.source, power_w=power_w, status=status, reason=reason)
