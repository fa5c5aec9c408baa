"""Recorded steps of a session: their devices, and the classes of layers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from memtui.session.file_format import SessionError
from memtui.session.session import Session
from tests.support.allocation_screen import step
from tests.support.sessions import messages, write_session


def session_with(path, *steps):
    stream = list(messages(6))
    stream[9:9] = steps
    return write_session(path, stream)


def test_classes_of_layers_add_up_over_the_steps_of_a_process(tmp_path):
    first, second = step(3), step(4)
    path = session_with(
        tmp_path / "s.memtui",
        replace(first, layer_types={"blocks.0": "LSTM", "blocks.1": "Linear"}),
        replace(second, layer_types={"blocks.1": "Conv2d", "blocks.2": "Conv2d"}),
        replace(step(5), pid=7, layer_types={"blocks.0": "GRU"}),
    )
    with closing(Session(path)) as session:
        of_first = session.allocations.layer_types(first.pid)
        assert of_first == {"blocks.0": "LSTM", "blocks.1": "Conv2d", "blocks.2": "Conv2d"}
        assert session.allocations.layer_types(7) == {"blocks.0": "GRU"}
        assert session.allocations.layer_types(8) == {}


def test_a_device_and_a_peak_belong_to_their_step(tmp_path):
    on_gpu = replace(step(4), device="cuda:0", allocated_peak_bytes=700, reserved_peak_bytes=900)
    with closing(Session(session_with(tmp_path / "s.memtui", step(3), on_gpu))) as session:
        found = [(s.step, s.device, s.allocated_peak_bytes, s.reserved_peak_bytes) for s in session.allocations.steps()]
        assert found == [(3, "cpu", None, None), (4, "cuda:0", 700, 900)]
        columns = session.allocations.trace(session.allocations.steps()[1]).to_columns()
        assert (columns == on_gpu.columns).all()


@pytest.mark.parametrize("text", ["[1]", '{"a": 1}', "{"])
def test_damaged_classes_of_layers(tmp_path, text):
    path = session_with(tmp_path / "s.memtui", replace(step(3), layer_types={"blocks.0": "LSTM"}))
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE layer_types SET types = ?", (text,))
        file.commit()
    with closing(Session(path)) as session, pytest.raises(SessionError, match="classes of layers of process 4242"):
        session.allocations.layer_types(4242)
