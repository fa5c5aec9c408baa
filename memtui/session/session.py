"""A session, opened for reading: whole, growing, or left behind by a recorder that was killed."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

from memtui.core.samples import End, Event, Hello
from memtui.session.allocation_reader import AllocationReader
from memtui.session.capture_reader import CaptureReader
from memtui.session.connection import SessionFile
from memtui.session.device_reader import DeviceReader
from memtui.session.ending import checked_end
from memtui.session.file_format import SessionError, size_on_disk
from memtui.session.page_reader import PageReader
from memtui.session.process_reader import ProcessReader
from memtui.session.reuse_reader import ReuseReader
from memtui.session.sample_arrays import SampleArrays
from memtui.session.sample_reader import SampleReader
from memtui.session.tables.imported import ImportedFrom
from memtui.session.tensor_reader import TensorReader
from memtui.session.training_reader import TrainingReader
from memtui.session.validation import MAX_INTEGER, MAX_PID, check_fields
from memtui.session.vma_reader import VmaReader


class Session:
    """One session. ``refresh`` picks up what was committed since; everything else answers from that state.

    Raises SessionError when the file is missing, foreign, truncated, newer or empty.

    Attributes:
        processes, vmas, pages, reuse, devices, training, allocations, tensors, captures: readers, each of one subject.
        hello: the description of the recording.
        end: how the recording ended; None while it goes on, or when its recorder was killed.
        recorder_pid: of the process that records it.
        downsampled_to_bytes: the size limit for which page sets were downsampled; None: they were not.
    """

    def __init__(self, path: Path, *, glance: bool = False) -> None:
        """Open the session.

        Args:
            path: the file.
            glance: of a long session read only some of the samples, spread over all of it, and the last ones, which is
                faster. ``partial`` is True then; ``refresh`` reads them all.
        """
        self._file = SessionFile(path)
        self._samples = SampleReader(self._file)
        self.processes = ProcessReader(self._file)
        self.pages = PageReader(self._file)
        self.vmas = VmaReader(self._file, self._samples, self.processes, self.pages)
        self.reuse = ReuseReader(self._file, self._samples)
        self.devices = DeviceReader(self._file)
        self.training = TrainingReader(self._file)
        self.allocations = AllocationReader(self._file)
        self.tensors = TensorReader(self._file)
        self.captures = CaptureReader(self._file, self.allocations)
        self.end: End | None = None
        self.recorder_pid = 0
        self.downsampled_to_bytes: int | None = None
        self.hello = self._read_hello()
        if glance and self._samples.glance():
            self._read_recorder()
        else:
            self.refresh()

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def samples(self) -> SampleArrays:
        """The scalars of all samples; of some, where ``partial``."""
        return self._samples.table

    @property
    def partial(self) -> bool:
        """Whether only some of the samples were read."""
        return self._samples.partial

    @property
    def file_bytes(self) -> int:
        """Size on disk, with the log that is not folded in yet."""
        return size_on_disk(self.path)

    @property
    def alive(self) -> bool:
        """True while a recorder still writes it."""
        if self.end is not None or self.hello.clock.boot_id != _boot_id():
            return False
        try:
            command = Path(f"/proc/{self.recorder_pid}/cmdline").read_bytes()
        except OSError:
            return False
        return b"memtui" in command

    def refresh(self) -> bool:
        """Read newly committed samples; return True when there are any, or when the recording ended meanwhile."""
        self.vmas.refresh()
        any_new = self._samples.refresh()
        return self._read_recorder() or any_new

    def events(self, first_ns: int, last_ns: int) -> list[Event]:
        """Return the events of a half-open time range."""
        return self._file.records(Event, "WHERE t_ns >= ? AND t_ns < ? ORDER BY t_ns", first_ns, last_ns)

    def imported(self) -> ImportedFrom | None:
        """Return the file of another tool that the session was imported from; None where memtui recorded it."""
        values = self._file.meta("hello").get("imported")
        try:
            return None if values is None else ImportedFrom.from_dict(values)
        except ValueError as error:
            raise self._file.damaged(str(error)) from None

    def release(self) -> None:
        """Close the file, so that the recorder can fold it; the next query opens it again."""
        self._file.release()

    close = release

    def release_if_ended(self) -> None:
        """Close the file where its recording has ended and is not folded yet: the recorder waits for that.

        Until then the file stays open: opening it takes longer than all queries of a screen in a second.
        """
        if self.end is not None and self._file.has_log:
            self.release()

    def _read_hello(self) -> Hello:
        values = self._file.meta()
        if "hello" not in values:
            self.release()
            raise SessionError(f"{self.path}: holds no recording yet, or its recorder died before the first sample")
        try:
            hello = Hello.from_dict(values["hello"])
            check_fields(hello)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            self.release()
            raise SessionError(f"{self.path}: damaged description: {error}") from None
        return hello

    def _read_recorder(self) -> bool:
        """Read which process records the session, and its end; return True when it ended since the last read."""
        if self.end is not None:
            return False
        values = self._file.meta("hello")
        pid = values.get("recorder_pid", 0)
        if type(pid) is not int or not 0 <= pid <= MAX_PID:
            raise self._file.damaged("the recorder's pid is not a number")
        self.recorder_pid = pid
        self.downsampled_to_bytes = self._checked_max_bytes(values.get("thinned"))
        if "end" not in values:
            return False
        self.end = self._checked_end(values["end"])
        return True

    def _checked_max_bytes(self, values: Any) -> int | None:
        if values is None:
            return None
        size = values.get("max_bytes") if isinstance(values, dict) else None
        if type(size) is not int or not 0 < size < MAX_INTEGER:
            raise self._file.damaged("the size that it was downsampled to is not a number")
        return size

    def _checked_end(self, values: Any) -> End:
        try:
            return checked_end(values)
        except ValueError as error:
            raise self._file.damaged(f"its end: {error}") from None


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()  # not Linux: what is recorded elsewhere is never alive here
