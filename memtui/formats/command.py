"""``memtui import``: turn files and folders into sessions; a bad file is reported in a line, the others go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtui.core import progress_line
from memtui.core.errors import UserError
from memtui.core.file_set import make_folder, take_away
from memtui.core.os_errors import CREATE, refused
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.formats import reading
from memtui.formats.catalogue import EXPECTED, files_of, import_file
from memtui.formats.imported import Imported, NotImportable
from memtui.formats.input_file import STANDARD_INPUT, name_of
from memtui.formats.join import write_joined
from memtui.formats.session_writer import Range, in_range, with_warnings, write
from memtui.session.file_format import SESSION_SUFFIX
from memtui.session.session import Session

Notify = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one file: the session and its content, or the reason why there is no session.

    Attributes:
        windows: how many windows of the recording that it was joined with have its call stacks.
    """

    path: Path
    session: Path | None = None
    imported: Imported | None = None
    reason: str = ""
    windows: int | None = None


def import_all(
    given: list[Path],
    output: Path,
    notify: Notify,
    *,
    wanted: Range = (None, None),
    form: str = "",
    force: bool = False,
    join: Path | None = None,
) -> list[Outcome]:
    """Import every file, and the files of every folder, into ``output``: a file where one is given, else a folder.

    Args:
        given: files and folders.
        output: a session, or a folder of them.
        notify: receives a line for each bad file, and for each warning about a good one.
        wanted: the range of time to keep.
        form: their format, of ``IMPORT_FORMATS``; empty: their content says which.
        force: overwrite sessions that are there.
        join: a recording that the sessions are copies of.

    Raises:
        UserError: nothing could be imported.
        SessionError: the recording cannot be read, which is known before any file is.
    """
    if join is not None:
        Session(join).close()
    paths = [path for source in given for path in files_of(source)]
    several = len(given) > 1 or given[0].is_dir()
    if several and output.exists() and not output.is_dir():
        raise UserError(f"{output}: is a file; several sessions need a folder")
    outcomes = []
    for number, path in enumerate(paths, start=1):
        which = f"{path} ({number} of {len(paths)})" if several else str(path)
        progress_line.update(which)
        reading.start("reading")
        outcomes.append(_import_path(path, session_path(path, output, several=several), wanted, form, force, join))
    bad = [outcome for outcome in outcomes if outcome.session is None]
    if len(bad) == len(outcomes):
        raise UserError(_all_failed(given, bad))
    for outcome in outcomes:
        if outcome.imported is None:
            notify(outcome.reason)
        else:
            for warning in outcome.imported.about.warnings:
                notify(f"{name_of(outcome.path)}: {warning}")
    return outcomes


def session_path(path: Path, output: Path, *, several: bool = False) -> Path:
    """Return the session of a file: in ``output`` where that is a folder, or several sessions need one."""
    name = "standard-input" if path == STANDARD_INPUT else path.name
    return output / f"{name}{SESSION_SUFFIX}" if several or output.is_dir() else output


def _import_path(path: Path, output: Path, wanted: Range, form: str, force: bool, join: Path | None) -> Outcome:
    created: list[Path] = []
    written, windows = False, None
    try:
        imported = in_range(import_file(path, form), wanted)
        created = _ensure_folder(output.parent)
        reading.start("writing the session")
        if join is None:
            lost = write(imported, output, force=force)
        else:
            windows, lost = write_joined(imported, join, output, force=force)
        imported = with_warnings(imported, lost)
        written = True
    except NotImportable as error:
        return Outcome(path, reason=f"{name_of(path)}: {error}")
    except UserError as error:
        return Outcome(path, reason=str(error))
    finally:
        if not written:
            take_away(created)
    return Outcome(path, output, imported, windows=windows)


def _ensure_folder(folder: Path) -> list[Path]:
    try:
        return make_folder(folder)
    except OSError as error:
        raise refused(folder, error, CREATE, remedy="choose another place with -o") from None


def _all_failed(given: list[Path], bad: list[Outcome]) -> str:
    if len(bad) == 1:
        return bad[0].reason
    where = str(given[0]) if len(given) == 1 else f"{len(given)} names"
    expected = "" if EXPECTED in bad[0].reason else f"; expected is {EXPECTED}"
    return f"{where}: none of {len(bad)} files can be imported; the first: {bad[0].reason}{expected}"


def describe(outcome: Outcome) -> str:
    """Return one line about a written session."""
    assert outcome.imported is not None
    parts = outcome.imported.parts
    rows = sum(len(part.trace) - part.trace.existing for part in parts)
    devices = ", ".join(part.device for part in parts if part.device != MAIN_MEMORY)
    joined = "" if outcome.windows is None else f", joined with {outcome.windows} windows"
    return (
        f"{outcome.session}: {outcome.imported.about.format}, {rows} rows{f' ({devices})' if devices else ''}{joined}"
    )


def to_dict(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the document that ``--json`` prints, without its version."""
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
                **({} if outcome.windows is None else {"joined_windows": outcome.windows}),
            }
            for outcome in outcomes
            if outcome.imported is not None
        ],
        "failed": [
            {"file": str(outcome.path), "reason": outcome.reason} for outcome in outcomes if outcome.imported is None
        ],
    }
