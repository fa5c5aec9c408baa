"""The inputs of a breakdown: a session, or directly any file that can be imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.trace_index import StepIndex
from memtui.core.call_stacks import CallStacks
from memtui.core.errors import UserError
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.formats.catalogue import import_file
from memtui.formats.imported import NotImportable
from memtui.formats.input_file import name_of
from memtui.reports.breakdown.rules import Item, Layers, items_of, items_of_sums
from memtui.session.file_format import SessionError, check_header
from memtui.session.session import Session
from memtui.session.tables.allocations import RecordedStep
from memtui.session.tables.imported import ImportedFrom

DRIVER, PEAK = "allocated from the driver", "held at the peak"


@dataclass(frozen=True, slots=True)
class DeviceAllocations:
    """The allocations of one device in one file.

    Attributes:
        path: the file.
        format: format of the file.
        what: name of these allocations: all of a log, or those alive at the peak.
        device: device of the memory.
        items: the allocations.
        padded: whether sizes include the padding of MXNet's pool.
        coarse: tags with a size in whole MB only.
    """

    path: Path
    format: str
    what: str
    device: str
    items: list[Item]
    padded: bool = False
    coarse: tuple[str, ...] = ()


def read(path: Path, form: str = "") -> list[DeviceAllocations]:
    """Return the allocations of each device in a file. ``form``: of a file of another tool, if the user says it.

    Raises UserError and SessionError.
    """
    if not form and _is_session(path):
        return list(_of_session(path))
    try:
        imported = import_file(path, form)
    except NotImportable as error:
        raise UserError(f"{name_of(path)}: {error}") from None
    path = Path(name_of(path))
    about, stacks = imported.about, imported.stacks
    return [_allocations(path, part.trace, part.device, about, "", stacks=stacks) for part in imported.parts]


def _is_session(path: Path) -> bool:
    try:
        check_header(path)
    except SessionError:
        return False
    return True


def _of_session(path: Path) -> Iterator[DeviceAllocations]:
    session = Session(path)
    try:
        fullest: dict[str, RecordedStep] = {}
        for step in session.allocations.steps():
            if step.device not in fullest or step.peak_bytes > fullest[step.device].peak_bytes:
                fullest[step.device] = step
        if not fullest:
            raise UserError(f"{path}: has no recorded step; memtui trace and memtui import record some")
        about = session.imported()
        for device, step in fullest.items():
            of_step = "" if about is not None else f" of step {step.step}"
            types, stacks = session.allocations.layer_types(step.pid), session.allocations.call_stacks()
            yield _allocations(path, session.allocations.trace(step), device, about, of_step, types, stacks)
    finally:
        session.close()


def _allocations(
    path: Path,
    trace: StepTrace,
    device: str,
    about: ImportedFrom | None,
    of_step: str,
    types: Mapping[str, str] | None = None,
    stacks: CallStacks | None = None,
) -> DeviceAllocations:
    device = "" if device == MAIN_MEMORY else device
    if about is not None and about.sums is not None:
        return DeviceAllocations(path, about.format, DRIVER, device, items_of_sums(about.sums), padded=True)
    driver = about is not None and about.driver
    index = StepIndex(trace)
    rows = index.born[index.alive(index.peak_row)]
    items = items_of(trace, rows, None if driver else Layers.of(trace, types or {}, stacks))
    if about is None or not about.driver:
        return DeviceAllocations(path, about.format if about else "traced training", f"{PEAK}{of_step}", device, items)
    return DeviceAllocations(path, about.format, DRIVER, device, items, padded=True, coarse=about.coarse)
