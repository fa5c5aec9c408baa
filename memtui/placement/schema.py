"""Declares the tables of a placement profile: each once, as a record whose fields are its columns.

``schema.sql`` says what the columns mean. Samples have an ``id`` as well, which the file assigns.
"""

from __future__ import annotations

from dataclasses import dataclass

from memtui.session.schema import MetaRecord


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """Times of an op in a configuration, of one round; the blobs are arrays of 8-byte numbers."""

    op: str
    configuration: str
    mode: str
    time_ns: bytes
    run: bytes


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The newest plan of its kind, as JSON."""

    formulation: str
    slow: str
    mode: str
    limit_bytes: int
    t_wall_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class CurveRecord:
    """The newest curve of its kind, as JSON."""

    formulation: str
    slow: str
    mode: str
    t_wall_ns: int
    text: str


TABLES: dict[type, str] = {MetaRecord: "meta", SampleRecord: "sample", PlanRecord: "plan", CurveRecord: "curve"}
"""The name of the table of each record."""
