"""What a report says of each process, against means that are counted by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from memtui.core.readings import GpuMemory, GpuUse
from memtui.core.samples import MORE_TOUCHED, Process, Status
from memtui.reports.process_summary import (
    MOST_PROCESSES,
    NO_READING,
    NO_WINDOW,
    ProcessSummary,
    process_lines,
    process_summaries,
    short_command_line,
)

MIB = 1 << 20


def row(sample: int, process: int = 1, length_ns: int = 100, **sizes) -> dict:
    """A window of 100 ns."""
    unknown = dict.fromkeys(("wss_bytes", "shared_bytes", "rss_bytes", "pss_bytes", "private_bytes", "swap_bytes"))
    end_ns = 100 * sample + 100
    times = {"start_ns": end_ns - length_ns, "end_ns": end_ns}
    return {"sample": sample, "process": process, "reason": "", **times, **unknown, **sizes}


def summaries(rows, alike, *, memory=(), use=(), rss_mean=None) -> dict[int, ProcessSummary]:
    reader = SimpleNamespace(
        gpu_memory=lambda first_ns, last_ns: [one for one in memory if first_ns <= one.t_ns < last_ns],
        gpu_use=lambda first_ns, last_ns: [one for one in use if first_ns <= one.t_ns < last_ns],
        processes=lambda: [Process(key, 40 + key, 1, 0, key, "python") for key in (1, 2, 3)],
    )
    return {found.pid: found for found in process_summaries(reader, rows, alike, rss_mean)}


def test_the_rss_of_a_process_without_others_is_that_of_the_whole():
    rows = [row(0, rss_bytes=100), row(1, rss_bytes=200)]
    assert summaries(rows, {0, 1})[41].rss_bytes == 150
    assert summaries(rows, {0, 1}, rss_mean=180)[41].rss_bytes == 180
    several = summaries([*rows, row(1, 2, rss_bytes=50)], {0, 1}, rss_mean=180)
    assert (several[41].rss_bytes, several[42].rss_bytes) == (150, 50)


def test_working_sets_are_of_windows_that_are_alike_and_resident_memory_of_all_by_their_length():
    rows = [
        row(0, length_ns=300, wss_bytes=9000, rss_bytes=900),
        row(1, wss_bytes=10, rss_bytes=100, shared_bytes=3),
        row(2, wss_bytes=30, rss_bytes=None, shared_bytes=None),
        row(3, wss_bytes=None, rss_bytes=300, pss_bytes=50),
    ]
    found = summaries(rows, {1, 2, 3})
    assert [pid for pid, one in found.items() if one.wss_reason == NO_WINDOW] == [42, 43]
    one = found[41]
    assert (one.wss_bytes, one.shared_bytes, one.rss_bytes, one.pss_bytes) == (20, 3, 620, 50)


def test_what_the_gpu_of_all_others_is_not_known_for_is_said_of_one_that_ended_before_its_reading_too():
    rows = [row(0), row(0, 2)]
    unread = [GpuMemory(0, 1, None, Status.UNSUPPORTED, "no NVIDIA driver")]
    assert [one.gpu_reason for one in summaries(rows, {0}, memory=unread).values()] == ["no NVIDIA driver"] * 3
    reasons = [one.gpus_used_reason for one in summaries(rows, {0}, memory=unread).values()]
    assert reasons == [NO_READING] * 3
    two = [*unread, GpuMemory(0, 2, None, Status.DENIED, "not permitted")]
    assert summaries([*rows, row(0, 3)], {0}, memory=two)[43].gpu_reason == NO_READING
    known = [GpuMemory(0, 1, 7), GpuMemory(150, 1, None, Status.UNSUPPORTED, "stale")]
    assert summaries([*rows, row(1)], {0}, memory=known)[42].gpu_reason == NO_READING


def test_a_process_in_no_window_is_listed_once_and_one_that_was_another_program_then_is_not():
    keys = {1: 41, 2: 41, 3: 42, 4: 42, 5: 43}
    reader = SimpleNamespace(
        gpu_memory=lambda first_ns, last_ns: [],
        gpu_use=lambda first_ns, last_ns: [],
        processes=lambda: [Process(key, pid, 1, 0, key, "python", "child") for key, pid in keys.items()],
    )
    rows = [row(0, 2, wss_bytes=10, rss_bytes=100)]
    target, *others = process_summaries(reader, rows, {0}, None)
    assert (target.pid, target.generation, target.wss_bytes) == (41, 2, 10)
    assert [(other.pid, other.generation, other.rss_bytes) for other in others] == [(42, 4, None), (43, 5, None)]
    lines = process_lines([target, others[0]])
    assert "resident 100 B, GPU" in lines[0], "it is alone in its windows"
    assert lines[1] == f"process      42 child: n/a: {NO_WINDOW}  python"
    assert process_lines([target, *others])[1:] == [
        "process      and more: n/a: they began after the last window, or ran between two (--json)"
    ]


def test_a_process_without_such_a_window_has_resident_memory_of_the_others_and_no_working_set():
    rows = [row(0, 1, wss_bytes=10, rss_bytes=100), row(5, 2, wss_bytes=7, rss_bytes=70, pss_bytes=35)]
    two = summaries(rows, {0})[42]
    assert (two.wss_bytes, two.shared_bytes, two.rss_bytes, two.pss_bytes) == (None, None, 70, 35)
    assert two.wss_reason == "known in windows of other lengths only"
    assert " working set n/a: known in windows of other lengths only, resident 70 B" in process_lines([two])[0]
    assert summaries([row(0, wss_bytes=None)], {0})[41].wss_reason == "known in no window"


def test_the_last_reading_before_the_end_of_a_window_is_its_memory():
    """Windows end at 100, 200 and 300 ns; before the first reading there is none."""
    memory = [
        GpuMemory(101, 1, 10),
        GpuMemory(150, 2, 999),
        GpuMemory(200, 1, 40),
        GpuMemory(201, 1, 70),
    ]
    one = summaries([row(0), row(1), row(2)], {0, 1, 2}, memory=memory)[41]
    assert (one.gpu_bytes, one.gpu_max_bytes, one.gpu_reason) == (55, 70, "")
    assert isinstance(one.gpu_max_bytes, int)
    assert (one.gpus_used, one.gpus_used_reason) == (None, NO_READING)


def test_a_reading_at_the_very_start_counts():
    one = summaries([row(0)], {0}, memory=[GpuMemory(0, 1, 10)], use=[GpuUse(0, 1, 0.5)])[41]
    assert (one.gpu_bytes, one.gpus_used) == (10, 0.5)


def test_a_process_of_which_most_windows_may_lack_pages_has_a_lower_bound():
    doubt = f"about 9 MiB {MORE_TOUCHED}"
    rows = [row(n, wss_bytes=MIB, reason=doubt if n < 2 else "") for n in range(4)]
    assert summaries(rows, {0, 1, 2})[41].wss_lower_bound
    assert not summaries(rows, {0, 1, 2, 3})[41].wss_lower_bound
    (line,) = process_lines([replace(FULL, wss_lower_bound=True)])
    assert "working set at least 2.00 MiB" in line


def test_windows_of_unknown_use_leave_a_reason():
    use = [GpuUse(50, 1, None, Status.DENIED, "not yours"), GpuUse(150, 1, 1.5), GpuUse(250, 1, 0.5)]
    rows = [row(0), row(1), row(2)]
    one = summaries(rows, {0, 1, 2}, use=use)[41]
    assert (one.gpus_used, one.gpus_used_reason) == (1, "not yours")
    one = summaries(rows, {0, 1, 2}, use=use[:1])[41]
    assert (one.gpus_used, one.gpus_used_reason) == (None, "not yours")
    without = summaries(rows, {0}, use=[GpuUse(50, 1, None, Status.GONE)])[41]
    assert without.gpus_used_reason == Status.GONE


FULL = ProcessSummary(
    pid=41, role="target", generation=0, command="python a.py", wss_bytes=2 * MIB, wss_reason="",
    wss_lower_bound=False, shared_bytes=MIB, rss_bytes=8 * MIB,
    pss_bytes=4 * MIB, private_bytes=None, swap_bytes=0, gpu_bytes=16 * MIB,
    gpu_max_bytes=32 * MIB, gpu_reason="", gpus_used=1.9, gpus_used_reason="",
)  # fmt: skip


def test_a_line_of_a_process_alone_and_of_one_among_others():
    alone = (
        "process      41 target: in the mean working set 2.00 MiB, resident 8.00 MiB "
        "(PSS 4.00 MiB where they were read), GPU 16.0 MiB, max 32.0 MiB, used 190.0 %  python a.py"
    )
    assert process_lines([FULL]) == [alone]
    at_ends = alone.replace("8.00 MiB", "8.00 MiB at the ends of its windows")
    both = process_lines([FULL, replace(FULL, pid=42, role="child", shared_bytes=None, pss_bytes=None)])
    assert both == [
        at_ends.replace("2.00 MiB,", "2.00 MiB (1.00 MiB shared),"),
        at_ends.replace("41 target", "42 child").replace(" (PSS 4.00 MiB where they were read)", ""),
    ]
    assert process_lines([replace(FULL, private_bytes=3 * MIB, swap_bytes=5 * MIB)]) == [
        alone.replace(
            "PSS 4.00 MiB where they were read)",
            "PSS 4.00 MiB, USS 3.00 MiB where they were read), swapped out 5.00 MiB",
        )
    ]


def test_what_is_not_known_of_gpus_is_said():
    def gpu(**changes) -> str:
        return (
            process_lines([replace(FULL, **changes)])[0]
            .partition("where they were read), ")[2]
            .removesuffix("  python a.py")
        )

    assert gpu(gpu_bytes=None, gpu_reason="no driver") == "GPU n/a: no driver"
    known = "GPU 16.0 MiB, max 32.0 MiB"
    assert gpu(gpu_reason="lost") == f"{known} (not always known: lost), used 190.0 %"
    assert gpu(gpus_used_reason="lost") == f"{known}, used 190.0 % (not always known: lost)"
    assert gpu(gpus_used=None, gpus_used_reason="lost") == f"{known}, its use n/a: lost"
    assert gpu(gpus_used=None, gpus_used_reason=NO_READING) == known


def test_why_no_process_has_memory_of_a_gpu_is_said_once():
    none = replace(FULL, gpu_bytes=None, gpu_reason="no driver")
    lines = process_lines([none, replace(none, pid=42)])
    assert lines[-1] == "process      GPU memory of all n/a: no driver"
    assert not any("GPU" in line for line in lines[:-1])
    for other in (FULL, replace(none, gpu_reason="lost")):
        assert sum("GPU" in line for line in process_lines([none, other])) == 2


def test_of_many_the_target_and_the_largest_are_listed_in_their_order():
    many = [replace(FULL, pid=number, role="child", rss_bytes=number * MIB) for number in range(1, MOST_PROCESSES + 1)]
    target = replace(FULL, pid=500, rss_bytes=None)
    lines = process_lines([*many, target])
    assert len(lines) == MOST_PROCESSES + 1
    assert [int(line.split()[1]) for line in lines[:-1]] == [*range(2, MOST_PROCESSES + 1), 500]
    assert lines[-1] == "process      and 1 more, all smaller (--json has them)"
    assert len(process_lines(many)) == MOST_PROCESSES


def test_a_long_command_line_is_cut_to_80_characters():
    assert short_command_line("x" * 80) == "x" * 80
    assert short_command_line("x" * 81) == "x" * 79 + "…"
