"""``memtui import``: files and folders in, sessions out; a bad file is a line, the others go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtui.core import progress_line
from memtui.core.errors import UserError
from memtui.core.file_set import make_folder, take_away
from memtui.core.os_errors import CREATE, READ, refused
from memtui.core.samples import MAIN_MEMORY
from memtui.formats.detect import EXPECTED, import_file
from memtui.formats.imported import Imported, NotImportable
from memtui.formats.session_writer import Range, in_range, write

ENDING = ".memtui"
Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file: the session and what is in it, or why there is none."""

    path: Path
    session: Path | None = None
    imported: Imported | None = None
    reason: str = ""


def import_all(
    given: list[Path], output: Path, say: Say, *, wanted: Range = (None, None), force: bool = False
) -> list[Outcome]:
    """Import every file, and the files of every folder, into ``output``: a file where one is given, else a folder.

    ``say`` takes a line for each file that is bad, and for each thing that is wrong with one that is not.

    Raises:
        UserError: nothing could be imported.
    """
    paths = [path for one in given for path in _files(one)]
    several = len(given) > 1 or given[0].is_dir()
    if several and output.exists() and not output.is_dir():
        raise UserError(f"{output}: is a file; several sessions need a folder")
    into_folder = several or output.is_dir()
    found = []
    for number, path in enumerate(paths, start=1):
        progress_line.update(f"{path} ({number} of {len(paths)})" if several else str(path))
        found.append(_one(path, output / f"{path.name}{ENDING}" if into_folder else output, wanted, force))
    bad = [outcome for outcome in found if outcome.session is None]
    if len(bad) == len(found):
        raise UserError(_none(given, bad))
    for outcome in found:
        if outcome.imported is None:
            say(outcome.reason)
        else:
            for warning in outcome.imported.about.warnings:
                say(f"{outcome.path}: {warning}")
    return found


def _files(given: Path) -> list[Path]:
    if not given.is_dir():
        return [given]
    try:
        files = sorted(path for path in given.iterdir() if not path.is_dir())
    except OSError as error:
        raise refused(given, error, READ) from None
    if not files:
        raise UserError(f"{given}: is a folder without files; expected is {EXPECTED}")
    return files


def _one(path: Path, output: Path, wanted: Range, force: bool) -> Outcome:
    made: list[Path] = []
    written = False
    try:
        imported = in_range(import_file(path), wanted)
        made = _made(output.parent)
        write(imported, output, force=force)
        written = True
    except NotImportable as error:
        return Outcome(path, reason=f"{path}: {error}")
    except UserError as error:
        return Outcome(path, reason=str(error))
    finally:
        if not written:
            take_away(made)
    return Outcome(path, output, imported)


def _made(folder: Path) -> list[Path]:
    try:
        return make_folder(folder)
    except OSError as error:
        raise refused(folder, error, CREATE, remedy="choose another place with -o") from None


def _none(given: list[Path], bad: list[Outcome]) -> str:
    if len(bad) == 1:
        return bad[0].reason
    where = str(given[0]) if len(given) == 1 else f"{len(given)} names"
    expected = "" if EXPECTED in bad[0].reason else f"; expected is {EXPECTED}"
    return f"{where}: none of {len(bad)} files can be imported; the first: {bad[0].reason}{expected}"


def describe(outcome: Outcome) -> str:
    """Return one line about a session that was written."""
    assert outcome.imported is not None
    parts = outcome.imported.parts
    rows = sum(len(part.trace) - part.trace.existing for part in parts)
    devices = ", ".join(part.device for part in parts if part.device != MAIN_MEMORY)
    return f"{outcome.session}: {outcome.imported.about.format}, {rows} rows{f' ({devices})' if devices else ''}"


def to_dict(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return what ``--json`` prints, but for its version."""
    return {
        "sessions": [
            {
                "file": str(outcome.path),
                "session": str(outcome.session),
                "format": outcome.imported.about.format,
                "clock": outcome.imported.about.clock,
                "devices": [
                    {
                        "device": part.device,
                        "rows": len(part.trace) - part.trace.existing,
                        "start_bytes": part.trace.start_bytes,
                        "peak_bytes": part.trace.peak_bytes,
                    }
                    for part in outcome.imported.parts
                ],
                "absent": list(outcome.imported.about.absent),
                "warnings": list(outcome.imported.about.warnings),
            }
            for outcome in outcomes
            if outcome.imported is not None
        ],
        "failed": [
            {"file": str(outcome.path), "reason": outcome.reason} for outcome in outcomes if outcome.imported is None
        ],
    }
