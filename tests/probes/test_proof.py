"""Where the page-table tracker does not work, its proof says what is missing."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.probes.pages.pagetable import proof
from memtui.probes.pages.pagetable.bpf_loader import Skeleton
from memtui.probes.pages.pagetable.proof import prove


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.setattr(os, "geteuid", lambda: 1000), "root"),
        (lambda m: m.setattr(proof, "_BTF", Path("/nowhere/btf")), "types"),
        (lambda m: m.setattr(proof.platform, "machine", lambda: "riscv64"), "riscv64"),
        (
            lambda m: m.setattr(mmap, "PAGESIZE", 65536),
            "it counts in pages of 4 KiB; those of this kernel are of 64 KiB",
        ),
    ],
)
def test_the_proof_says_what_is_missing(monkeypatch, change, words):
    change(monkeypatch)
    capability = prove()
    assert not capability.ok
    assert words in capability.reason


def test_the_proof_never_raises(monkeypatch):
    monkeypatch.setattr(proof, "_obstacle", lambda: ("", ""))
    capability = prove(Skeleton(("state",), ("walk",), b"\0" * 64, b"\0" * 8))
    assert not capability.ok
    assert capability.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="drops rights that only root has")
def test_the_proof_without_rights_names_the_remedy():
    code = (
        "import ctypes; ctypes.CDLL(None).prctl(24, 38, 0, 0, 0); ctypes.CDLL(None).prctl(24, 39, 0, 0, 0); "
        "ctypes.CDLL(None).prctl(24, 21, 0, 0, 0); import os; os.execv(__import__('sys').executable, ["
        "__import__('sys').executable, '-c', "
        "'from memtui.probes.pages.pagetable.proof import prove; print(prove())'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ok=False" in done.stdout, done
    assert "not permitted" in done.stdout
    assert "EPERM" in done.stdout
