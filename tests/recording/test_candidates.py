"""Processes that may be worth observing: what they are known by, how little is read of them, and that they end."""

from __future__ import annotations

import os
import subprocess
import sys

from memtui.core.procfs import PROC, read_stat
from memtui.recording import candidates
from memtui.recording.candidates import LARGE_BYTES, Candidates, user_name


def test_one_file_is_read_of_a_process_that_is_known(monkeypatch):
    looks = Candidates()
    read, opened = [], []
    monkeypatch.setattr(candidates, "read_stat", lambda pid, proc=PROC: read.append(pid) or read_stat(pid, proc))
    before = os.open
    monkeypatch.setattr(os, "open", lambda path, *more: opened.append(str(path)) or before(path, *more))
    with subprocess.Popen(["sleep", "60"]) as child:
        looks.scan()
        assert child.pid in read
        read.clear()
        opened.clear()
        looks.scan()
        assert child.pid not in read
        assert [path for path in opened if path.startswith(f"/proc/{child.pid}/")] == [f"/proc/{child.pid}/statm"]
        child.kill()


def test_a_number_that_is_another_process_now_is_looked_at_anew(tmp_path):
    numbers = " ".join(["S", "1", "1", "1", "0", "0", "0", *["0"] * 10, "1", "0", "{start}", "0"])

    def put(name: str, start: int) -> None:
        folder = tmp_path / f"{name}.new"
        folder.mkdir()
        (folder / "stat").write_text(f"{os.getppid()} ({name}) {numbers.format(start=start)}\n")
        (folder / "statm").write_text(f"{1 << 20} {1 << 18} 0 0 0 0 0\n")
        (folder / "maps").write_text("libtorch\n")
        if (tmp_path / str(pid)).exists():
            (tmp_path / str(pid)).rename(tmp_path / "old")
        folder.rename(tmp_path / str(pid))

    with subprocess.Popen(["sleep", "60"]) as child:
        pid = child.pid
        put("first", 100)
        looks = Candidates(tmp_path)
        assert [(c.pid, c.start_ticks) for c in looks.scan()] == [(pid, 100)]
        put("second", 200)
        assert [(c.pid, c.start_ticks) for c in looks.scan()] == [(pid, 200)]
        child.kill()


def test_processes_are_known_by_what_they_have_mapped(tmp_path):
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(bytes(4096))
    code = (
        "import mmap, sys, time\n"
        f"file = open({str(library)!r}, 'rb'); keep = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)\n"
        "big = bytearray(48 << 20); print(flush=True); time.sleep(60)"
    )
    secret = "--api-key=hunter2"
    with subprocess.Popen([sys.executable, "-c", code, secret], stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            listed = {c.pid: c for c in Candidates().scan()}
            mine = listed[child.pid]
            assert mine.kinds == ("torch",)
            assert mine.rss_bytes >= 48 << 20
            assert 0 <= mine.age_s < 60
            assert "hunter2" not in mine.command
            assert os.getpid() not in listed
            assert os.getppid() not in listed, "pausing it would stop memtui"
        finally:
            child.kill()


def test_what_ended_is_forgotten():
    found = Candidates()
    with subprocess.Popen(
        [sys.executable, "-c", "b = bytearray(64 << 20); print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        child.stdout.readline()
        assert child.pid in {c.pid for c in found.scan()}
        child.kill()
    assert child.pid not in {c.pid for c in found.scan()}
    assert child.pid not in found._cached


def entry(pid: int, rss_bytes: int, maps: str = "") -> dict[str, str]:
    numbers = " ".join(["S", "1", "1", "1", "0", "0", "0", *["0"] * 10, "1", "0", "100", "0"])
    pages = rss_bytes // os.sysconf("SC_PAGE_SIZE")
    return {"stat": f"{pid} (x) {numbers}\n", "statm": f"{pages} {pages} 0 0 0 0 0\n", "maps": maps}


def test_those_that_train_come_first_and_small_ones_are_not_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(candidates, "ancestors", lambda pid: set())
    monkeypatch.setattr(candidates, "command_of", lambda pid: "python3 serve.py" if pid == 14 else f"program {pid}")
    shapes = {
        11: entry(11, LARGE_BYTES),
        12: entry(12, 64 << 20, "/x/libtorch.so"),
        13: entry(13, LARGE_BYTES - 4096),  # large for nothing that is known
        14: entry(14, LARGE_BYTES * 2),
        15: entry(15, 8 << 20, "/x/libtorch.so"),
    }
    for pid in shapes:
        (tmp_path / str(pid)).mkdir()
        for name, text in shapes[pid].items():
            (tmp_path / str(pid) / name).write_text(text)
    listed = Candidates(tmp_path).scan()
    assert [(c.pid, c.kinds) for c in listed] == [(12, ("torch",)), (14, ("python",)), (11, ())]


def test_one_that_was_large_stays_in_the_list_until_it_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(candidates, "ancestors", lambda pid: set())
    monkeypatch.setattr(candidates, "command_of", lambda pid: "program")
    folder = tmp_path / "11"
    folder.mkdir()
    for name, text in entry(11, LARGE_BYTES).items():
        (folder / name).write_text(text)
    found = Candidates(tmp_path)
    assert [c.pid for c in found.scan()] == [11]
    (folder / "statm").write_text("9 9 0 0 0 0 0\n")
    assert [c.pid for c in found.scan()] == [11]
    (folder / "statm").write_text("0 0 0 0 0 0 0\n")
    assert found.scan() == []


def test_a_user_without_a_name_is_a_number():
    assert user_name(0) == "root"
    assert user_name(4_000_000_001) == "4000000001"
