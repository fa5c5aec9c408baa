"""Compile a BPF program and store its light skeleton as JSON, so that loading it needs neither compiler nor libbpf.

A light skeleton is a pair of byte strings made by ``bpftool gen skeleton -L``: a small loader program and its data.
Run by ``make skeleton``; needs clang, bpftool, the libbpf headers and a kernel with BTF. Standard library only.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BTF = Path("/sys/kernel/btf/vmlinux")
FORMAT = 1


def tool(name: str) -> str | None:
    """Return the program's path; bpftool lives in a directory that is not on every user's PATH."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin")


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{Path(command[0]).name} failed:\n{done.stderr.strip()[:4000]}")
    return done.stdout


def byte_string(header: str, field: str) -> bytes:
    r"""Return the C string literal assigned to ``opts.<field>``: ``\x..`` and other escapes, broken over lines."""
    match = re.search(rf'opts\.{field} = \(void \*\)"(.*?)";', header, re.S)
    if not match:
        raise SystemExit(f"bpftool's header has no opts.{field}: a version with another layout")
    return match[1].replace("\\\n", "").encode().decode("unicode_escape").encode("latin-1")


def build(source: Path, clang: str, bpftool: str, arch: str = "x86") -> dict[str, object]:
    """Return the skeleton as the JSON object that ``memtui.probes.pages.pagetable.bpf_loader`` reads."""
    with tempfile.TemporaryDirectory() as folder:
        types, program = Path(folder, "vmlinux.h"), Path(folder, "program.o")
        types.write_text(run(bpftool, "btf", "dump", "file", str(BTF), "format", "c"))
        options = ["-O2", "-g", "-Wall", "-target", "bpf", "-mcpu=v3", f"-D__TARGET_ARCH_{arch}", f"-I{folder}"]
        # Without the build folder's name in the debug data, the same source gives the same bytes.
        options += [f"-fdebug-prefix-map={folder}=.", f"-fdebug-prefix-map={source.parent.resolve()}=."]
        run(clang, *options, "-c", str(source), "-o", str(program))
        header = run(bpftool, "gen", "skeleton", "-L", str(program))
    return {
        "format": FORMAT,
        "source_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "tools": [run(clang, "--version").splitlines()[0], run(bpftool, "version").splitlines()[0]],
        "maps": re.findall(r"struct bpf_map_desc (\w+);", header),
        "programs": re.findall(r"struct bpf_prog_desc (\w+);", header),
        "instructions": base64.b64encode(byte_string(header, "insns")).decode(),
        "data": base64.b64encode(byte_string(header, "data")).decode(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--arch", choices=("x86", "arm64"), default="x86", help="whose page tables it reads")
    args = parser.parse_args()
    clang, bpftool = tool("clang"), tool("bpftool")
    missing = [name for name, path in (("clang", clang), ("bpftool", bpftool)) if not path]
    if not clang or not bpftool:
        raise SystemExit(f"missing: {', '.join(missing)} (Debian: apt-get install clang bpftool libbpf-dev)")
    if not BTF.exists():
        raise SystemExit(f"{BTF} is missing: build on a kernel with CONFIG_DEBUG_INFO_BTF")
    args.output.write_text(json.dumps(build(args.source, clang, bpftool, args.arch), indent=1) + "\n")
    print(f"{args.output}: {args.output.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
