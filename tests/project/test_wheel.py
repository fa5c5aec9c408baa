"""The wheel: built from this tree, installed alone into a bare environment, and used there."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile

import pytest

from tests.support.repository import ROOT
from tests.support.sessions import messages, write_session


def run(*words: object, **more) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "MEMTUI"))}
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, timeout=600, env=clean, **more
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built in an environment of its own, as pip does it for everybody."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    done = subprocess.run(
        [*pip, "wheel", "--no-deps", "-w", folder, ROOT], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode and ("No matching distribution" in done.stderr or "connection" in done.stderr.lower()):
        pytest.skip("no package index can be reached to build a wheel")
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("memtui-*.whl")
    return found


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """A bare environment with the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=True, symlinks=True)
    run(folder / "bin" / "pip", "--disable-pip-version-check", "install", "--quiet", wheel)
    return folder / "bin"


def test_what_is_no_python_is_inside(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tree = subprocess.run(["git", "ls-files", "memtui"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for suffix in (".tcss", ".sql", ".json", ".css", ".js", ".c", "py.typed"):
        assert [name for name in names if name.endswith(suffix)], suffix
    assert set(tree.split()) - {"memtui/probes/pages/pagetable/bpf.mk"} <= set(names)
    assert [name for name in names if name.endswith("LICENSE")]
    assert not [name for name in names if name.startswith("tests")]


@pytest.mark.slow
def test_it_works_in_a_bare_environment(bare, tmp_path):
    session = write_session(tmp_path / "s.memtui", messages(20))
    memtui = bare / "memtui"
    where = run(bare / "python", "-c", "import memtui; print(memtui.__file__)", cwd=tmp_path).strip()
    assert str(bare.parent) in where  # and not this tree
    assert "export" in run(memtui, "--help", cwd=tmp_path)
    assert "working set  mean 13.2 MiB" in run(memtui, "report", session, cwd=tmp_path)
    for form in ("csv", "json", "svg", "html"):
        assert run(memtui, "export", session, "--to", form, "-o", tmp_path / form, cwd=tmp_path).count("\n") >= 1
    assert "tracker" in run(memtui, "doctor", cwd=tmp_path).lower()  # reads the BPF program's skeleton
    screen = "import memtui.tui.session_app; from memtui.probes.pages.pagetable import bpf_loader; print('ok')"
    assert run(bare / "python", "-c", screen, cwd=tmp_path) == "ok\n"


@pytest.mark.slow
def test_parquet_names_its_extra_there(bare, tmp_path):
    session = write_session(tmp_path / "s.memtui", messages(5))
    done = subprocess.run(
        [bare / "memtui", "export", session, "--to", "parquet", "-o", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "memtui[export]" in done.stderr
