"""Training steps and learning in a session, by time and by device."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from memtui.core.tracer_messages import LearningProgress
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from tests.support.sessions import messages, write_session
from tests.support.told_steps import step
from tests.support.training_screen import MIB, MS, told

GPU = "cuda:1"


def learning(pid: int, *t_ns: int) -> LearningProgress:
    places = np.array([t_ns, np.arange(len(t_ns)) + 1, np.ones(len(t_ns), int)], np.int64)
    values = np.array([np.arange(len(t_ns)) / 4, np.full(len(t_ns), 50.0), np.full(len(t_ns), np.nan)])
    return LearningProgress(pid, f'{{"network": "net of {pid}", "type": "BP"}}', places, values)


@pytest.fixture
def session(tmp_path):
    """Opens a session of a recording with some messages in it."""
    opened = []

    def of(*what):
        stream = list(messages(5))
        stream[-1:-1] = what
        path = write_session(tmp_path / f"{len(opened)}.memtui", stream)
        opened.append(Session(path))
        return path, opened[-1].training

    yield of
    for reader in opened:
        reader.close()


def test_messages_that_reach_into_a_time(session):
    """Ten steps of 50 ms each: from 0 to 500 ms, and from 500 ms to 1 s."""
    _, reader = session(told(0), told(10))

    def first_steps(*times_ns):
        return [row.first_step for row in reader.progress(*times_ns)]

    assert first_steps() == [0, 10]
    assert first_steps(0, 500 * MS) == [0]
    assert first_steps(0, 500 * MS + 1) == [0, 10]
    assert first_steps(500 * MS) == [0, 10]
    assert first_steps(500 * MS + 1) == [10]
    assert first_steps(1000 * MS + 1) == []
    row = reader.progress()[1]
    assert (row.pid, row.steps, row.start_ns, row.end_ns) == (4242, 10, 500 * MS, 1000 * MS)
    assert (row.peak_bytes, row.view, row.cost_ns, row.device) == ((8 + 19) * MIB, "1 step in 2", 10, "cpu")


def test_what_the_steps_of_a_message_held(session):
    _, reader = session(told(0), told(10))
    details = reader.details(reader.progress()[1])
    assert details.ends_ns.tolist() == [(550 + 50 * n) * MS for n in range(10)]
    assert details.usage.total_bytes.tolist() == [(8 + n) * MIB for n in range(10, 20)]
    assert details.usage.names == ("aten::gelu",)


def test_memory_of_another_device_is_its_own(session):
    _, reader = session(told(0), told(0, device=GPU), told(0, pid=4243), told(0, device="cuda:0"))
    assert reader.devices() == ["cpu", "cuda:0", GPU]
    assert [row.pid for row in reader.progress()] == [4242, 4243]
    assert [(row.pid, row.device) for row in reader.progress(device=GPU)] == [(4242, GPU)]
    assert reader.progress(device="cuda:2") == []


def test_without_another_device_all_is_main_memory(session):
    _, reader = session(told(0))
    assert reader.devices() == ["cpu"]
    assert reader.progress(device=GPU) == []


def test_a_session_without_a_training_has_none(session):
    _, reader = session()
    assert (reader.devices(), reader.progress(), reader.learning(), reader.networks()) == (["cpu"], [], [], [])


def test_points_of_learning_in_a_time_as_they_came(session):
    _, reader = session(learning(8, 100, 200), learning(7, 150, 300))
    assert [(point.pid, point.t_ns) for point in reader.learning()] == [(8, 100), (8, 200), (7, 150), (7, 300)]
    assert [point.t_ns for point in reader.learning(150, 300)] == [200, 150]
    point = reader.learning(200, 201)[0]
    assert (point.iteration, point.epoch, point.loss, point.accuracy, point.minimum) == (2, 1, 0.25, 50, None)
    assert [(about.pid, about.network, about.rule) for about in reader.networks()] == [
        (7, "net of 7", "BP"),
        (8, "net of 8", "BP"),
    ]


@pytest.mark.parametrize(
    ("damage", "trouble"),
    [
        ("UPDATE training_progress SET data = x'00'", "training from step 10"),
        ("DELETE FROM training_progress", "training from step 10"),
        ("UPDATE learning_about SET about = '[]'", "what is trained is not a table"),
    ],
)
def test_damage_is_named(session, damage, trouble):
    path, reader = session(told(10), learning(7, 100))
    row = reader.progress()[0]
    with closing(sqlite3.connect(path)) as file:
        file.execute(damage)
        file.commit()
    with pytest.raises(SessionError, match=trouble):
        assert (reader.details(row), reader.networks()) == ()


def test_what_tracing_took_of_the_time_of_the_process_that_it_slowed_most(session, tmp_path):
    """Of 1 s what a message of its end says, and a recorded step, which is in the session once for each device."""
    _, reader = session(replace(told(0), cost_ns=30 * MS), replace(told(10), cost_ns=80 * MS))
    assert reader.traced_fraction() == pytest.approx(0.08)
    assert reader.traced_fraction(500 * MS) == pytest.approx(0.06)
    recorded = replace(step(3), pid=4242, cost_ns=20 * MS)
    other = replace(told(0), pid=7, cost_ns=60 * MS)
    _, reader = session(told(0), replace(told(10), cost_ns=80 * MS), recorded, replace(recorded, device=GPU), other)
    assert reader.traced_fraction() == pytest.approx(0.12), "of the other process; of this one 0.1"
    for nothing in ((), (replace(told(0), cost_ns=0),)):
        _, reader = session(*nothing)
        assert reader.traced_fraction() is None
