"""``memtui report`` of a placement profile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memtui.cli.main import main
from memtui.placement.profile import Profile
from memtui.placement.redact import redacted
from memtui.placement.store import ProfileFile
from tests.support.placement_cases import PAGE, STATIC_CASE, in_pages
from tests.support.placement_profiles import written
from tests.support.placements import SLOW

Capture = pytest.CaptureFixture[str]


def output(capsys: Capture, *argv: object) -> str:
    assert main([*map(str, argv), "--no-config"]) == 0
    out, error = capsys.readouterr()
    assert not error
    return out


@pytest.fixture
def file(tmp_path: Path) -> Path:
    about: dict[str, str | int | float] = {"torch": "2.13.0", "threads": 1, "cpu": "a CPU", "batch": 4}
    return written(tmp_path / "p.memtui", replace(in_pages(STATIC_CASE), about=about)).path


def test_the_document_has_every_kernel_in_every_configuration_and_the_plans(file: Path, capsys: Capture) -> None:
    output(capsys, "place", "solve", file, "--limit", 6 * PAGE)
    document = json.loads(output(capsys, "report", file, "--json"))
    assert (document["kind"], document["ops"], document["batch"]) == ("placement profile", 4, 4)
    assert document["environment"] == {"torch": "2.13.0", "threads": 1, "cpu": "a CPU", "capability": None}
    assert document["configurations"] == len(document["kernels"]) == 16
    assert document["measured"] == {"isolated": 0, "single": 16, "simultaneous": 16}
    first = document["kernels"][0]
    assert (first["op"], first["configuration"]) == ("n1", [["dram"], ["dram"]])
    assert first["times"]["simultaneous"]["median_ns"] == 1.5 * first["times"]["single"]["median_ns"]
    every = [k for k in document["kernels"] if {*k["configuration"][0], *k["configuration"][1]} == {"dram"}]
    assert sum(kind["all_fast_ns"] for kind in document["kinds"]) == sum(
        k["times"]["single"]["median_ns"] for k in every
    )
    (plan,) = document["plans"]
    solved = ProfileFile(file).plans()[0]
    assert (plan["limit_bytes"], plan["predicted_ns"], plan["slow"]) == (6 * PAGE, solved.predicted_ns, SLOW)


def test_as_text(file: Path, capsys: Capture) -> None:
    output(capsys, "place", "solve", file, "--limit", 6 * PAGE)
    text = output(capsys, "report", file)
    assert "PyTorch 2.13.0, a CPU, 1 thread\n" in text
    assert "16 configurations: single 16, simultaneous 16\n" in text
    assert "simultaneous against single: 16 of 16 pairs judged" in text
    assert text.splitlines()[-1].split() == ["static", "24.0", "KiB", *text.splitlines()[-1].split()[3:]]


def test_a_profile_without_times_is_reported(tmp_path: Path, capsys: Capture) -> None:
    path = written(tmp_path / "p.memtui", replace(in_pages(STATIC_CASE), samples=())).path
    assert "16 configurations: none measured\n" in output(capsys, "report", path)
    document = json.loads(output(capsys, "report", path, "--json"))
    assert {kind["all_fast_ns"] for kind in document["kinds"]} == {None}
    assert document["comparisons"] == document["plans"] == []


@pytest.mark.parametrize("option", [("--html",), ("--gco2-per-kwh", "300")])
def test_what_is_for_sessions_is_refused(option: tuple[str, ...], file: Path, capsys: Capture) -> None:
    assert main(["report", str(file), *option, "--no-config"]) == 2
    out, error = capsys.readouterr()
    assert not out
    assert f"is a placement profile, and {option[0]} is for sessions" in error


def test_redacted_it_has_neither_the_path_of_the_model_nor_of_a_pool(tmp_path: Path, capsys: Capture) -> None:
    path = written(tmp_path / "p.memtui", secret(in_pages(STATIC_CASE))).path
    assert "secret" in output(capsys, "report", path, "--json")
    output(capsys, "place", "solve", path, "--limit", 6 * PAGE)
    document = output(capsys, "report", path, "--json", "--redact")
    assert "secret" not in document
    assert [pool["name"] for pool in json.loads(document)["pools"]] == ["dram", "file:1"]
    assert json.loads(document)["pools"][1]["bandwidth_bytes_per_s"]["read"] == 5.0
    assert "secret" not in output(capsys, "report", path, "--redact")
    output(capsys, "export", path, "--to", "csv", "-o", tmp_path / "out", "--redact")
    assert not [file for file in (tmp_path / "out").iterdir() if "secret" in file.read_text()]


def test_redacted_the_note_of_a_pool_stays() -> None:
    note = "page cache of fuse.sshfs: main memory, no slow memory"
    profile = redacted(secret(in_pages(STATIC_CASE), ".", note))
    assert (profile.pools[1].name, profile.pools[1].note) == ("file:1", note)


def secret(profile: Profile, folder: str = "/home/secret/slow", note: str = "") -> Profile:
    """Return the profile with a slow pool in a folder, of a model in a file."""
    pool = f"file:{folder}"
    moved = json.loads(json.dumps(_plain(profile)).replace(f'"{SLOW}"', f'"{pool}"'))
    moved["pools"][1]["note"] = note
    moved["graph"]["name"] = "/home/secret/net.py:make"
    moved["about"] = {"model": "/home/secret/net.py:make", f"{pool} read": 5.0, "host": "secret"}
    return Profile.from_dict(moved)


def _plain(profile: Profile) -> object:
    from memtui.core.json_fields import to_json

    return to_json(profile)
