"""Files are opened in few places: databases by one opener, and what a user names by readers that know a limit.

A new place is either one of these readers' callers, which need no entry here, or has to say why it may read by itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.support.repository import ROOT

MEMTUI = ROOT / "memtui"
Site = tuple[str, str]  # (file, functions and classes around the call)

DATABASES = {
    ("session/file_format.py", "_open"),  # the one for files of others
    ("session/file_format.py", "tables_of"),  # in memory
    ("bench/database_file.py", "_columns"),  # in memory
    ("session/writer.py", "SessionWriter.__init__"),  # of a file that it has just created
    ("placement/store.py", "ProfileFile.create"),  # of a file that it has just created
}

# What reads a file without core.small_file, formats.input_file or session.file_format, by the reason.
READERS = {  # open regular files only, within a limit of size
    ("core/small_file.py", "open_regular"),
    ("core/program_log.py", "open_log"),
    ("recording/network_power/credentials.py", "_of_netrc"),
    ("recording/registry.py", "_read"),
    ("session/file_format.py", "sqlite_header"),
    ("session/file_format.py", "_tail"),
    ("training/torch/weights_file.py", "_load"),
}
CHECKED = {  # is regular and of a size that was checked before, by the function named here
    ("bench/database_file.py", "check_place"),  # check_regular; nothing is read
    ("core/user_function.py", "load_function"),  # check_readable, by check_model and network_name
    ("placement/profiling/cache.py", "Cache.__init__"),  # check_regular; nothing is read
    ("study/workloads/cifar.py", "read_images"),  # check_folder
    ("training/user_networks.py", "_main"),  # check_readable, by _run
}
OWN = {  # memtui wrote it, or has nothing but its lock
    ("core/file_lock.py", "exclusively"),
    ("core/file_lock.py", "holder_of"),
    ("study/runs/runner.py", "_last_line"),
    ("training/result.py", "read_result"),
}
KERNELS = {  # below /proc, /sys or /dev, where the call itself does not say so
    ("bench/cpu_speed.py", "Yardstick.__init__"),
    ("bench/torch/worker.py", "last_level_cache_bytes"),
    ("core/capabilities.py", "_status"),
    ("core/file_lock.py", "lock_holder"),
    ("core/numa.py", "read_nodes_with_memory"),
    ("core/procfs.py", "_is_killed"),
    ("core/procfs.py", "children_of"),
    ("core/procfs.py", "is_exiting"),
    ("core/procfs.py", "ranks_of"),
    ("core/procfs.py", "read_stat"),
    ("core/procfs.py", "read_status_file"),
    ("core/procfs.py", "rss_bytes_of"),
    ("recording/candidates.py", "Candidates._kinds"),
    ("recording/candidates.py", "Candidates._rss_bytes"),
    ("recording/target_search.py", "processes"),
    ("recording/targets.py", "_process_of"),
    ("recording/targets.py", "pids_inside"),
    ("study/progress_counters.py", "Bytes.read"),
    ("study/runs/cgroup_limit.py", "counts_of"),
    ("study/runs/swap_file.py", "_attach"),
    ("study/runs/swap_file.py", "_lines"),
    ("study/runs/swap_file.py", "_owner"),
}
NOT_READ = {  # is a new file, a folder, or a standard stream
    ("core/errors.py", "open_standard_streams"),
    ("core/file_set.py", "_private"),
    ("core/files.py", "write_atomically"),
    ("core/program_log.py", "create_log"),
    ("recording/control.py", "_ShortPath.__init__"),
}
NOT_FILES = r"self(\.prompt|\.widget)?|Handle|ProcessFiles|tarfile"  # have an ``open`` of another kind

_METHODS = frozenset(("open", "read_text", "read_bytes"))
_ENDS = _METHODS | {"fromfile", "memmap", "load", "loadtxt", "genfromtxt", "run_path", "spec_from_file_location"}
_ENDS |= {"ZipFile", "read_table", "read_csv"}
_FUNCTIONS = re.compile(
    r"open|io\.open|os\.open|(np|numpy)\.(fromfile|memmap|load|loadtxt|genfromtxt)|torch\.load|runpy\.run_path"
    r"|(importlib\.util\.)?spec_from_file_location|(gzip|bz2|lzma)\.open|(zipfile\.)?ZipFile|(\w+\.)?(read_table|read_csv)"
)
_KERNEL = re.compile(
    r"['\"]/(proc|sys|dev)\b|\bos\.devnull\b|\bfiles\(|^Path\(__file__\)"
)  # and what comes with memtui
_WRITES = re.compile(r"(^|mode=)'[wxa]|O_WRONLY|O_EXCL|O_TRUNC|O_TMPFILE|'xb'|'x'|'w'")


def sites(source: str, wanted: Callable[[ast.AST], bool]) -> Iterator[tuple[str, str]]:
    """What is wanted of a module: the classes and functions around it, and its text."""

    def walk(node: ast.AST, around: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            around = (*around, node.name)
        if wanted(node):
            yield ".".join(around) or "module", ast.unparse(node)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, around)

    yield from walk(ast.parse(source), ())


def sites_in_memtui(wanted: Callable[[ast.AST], bool]) -> dict[Site, str]:
    return {
        (str(path.relative_to(MEMTUI)), around): text
        for path in sorted(MEMTUI.rglob("*.py"))
        for around, text in sites(path.read_text(), wanted)
    }


def connects(node: ast.AST) -> bool:
    """Whether a database is opened; also where ``sqlite3`` gets a name that this would not know."""
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == "sqlite3"
    if isinstance(node, ast.Import):
        return any(name.name.startswith("sqlite3") and (name.asname or name.name != "sqlite3") for name in node.names)
    called, node = isinstance(node, ast.Call), getattr(node, "func", node)
    if not isinstance(node, ast.Attribute) or getattr(node.value, "id", "") != "sqlite3":
        return False
    return node.attr == ("Connection" if called else "connect")


def reads(node: ast.AST) -> bool:
    """Whether a file is opened by name to be read, and the call does not say that it is one of the kernel's."""
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", getattr(node.func, "id", "")) not in _ENDS:
        return False
    if not _FUNCTIONS.fullmatch(ast.unparse(node.func)):
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in _METHODS:
            return False
        if node.func.attr == "open" and re.fullmatch(NOT_FILES, ast.unparse(node.func.value)):
            return False
    arguments = ", ".join(map(ast.unparse, [*node.args, *node.keywords]))
    return not (_KERNEL.search(ast.unparse(node)) or _WRITES.search(arguments))


def test_databases_are_opened_by_the_hardened_opener():
    assert set(sites_in_memtui(connects)) == DATABASES


def test_files_that_a_user_names_are_read_within_a_limit():
    """The probes read files of the kernel, and are given no names of files."""
    permitted = READERS | CHECKED | OWN | KERNELS | NOT_READ
    raw = {site: text for site, text in sites_in_memtui(reads).items() if not site[0].startswith("probes/")}
    assert {site: text for site, text in raw.items() if site not in permitted} == {}
    assert permitted - raw.keys() == set(), "these read nothing any more"


@pytest.mark.parametrize(
    "line",
    [
        "sqlite3.connect(path)",
        "closing(sqlite3.connect(path))",
        "connect = sqlite3.connect",
        "sqlite3.Connection(path)",
        "from sqlite3 import connect",
        "from sqlite3.dbapi2 import connect",
        "import sqlite3 as sql",
        "import sqlite3.dbapi2",
    ],
)
def test_a_new_opener_of_databases_is_noticed(line):
    assert [around for around, _ in sites(f"class A:\n def f(self):\n  {line}", connects)] == ["A.f"]


@pytest.mark.parametrize(
    "call",
    [
        "open(path)",
        "open(path, 'rb')",
        "path.open()",
        "self._path.open('rb')",
        "Path(given).read_text()",
        "(folder / 'x').read_bytes()",
        "os.open(path, os.O_RDONLY)",
        "os.open(path, os.O_RDWR | os.O_CREAT)",
        "np.fromfile(path, np.uint8)",
        "np.load(path)",
        "numpy.memmap(path)",
        "torch.load(path, weights_only=True)",
        "zipfile.ZipFile(path)",
        "gzip.open(path)",
        "parquet.read_table(path)",
        "runpy.run_path(path)",
    ],
)
def test_a_new_reader_is_noticed(call):
    assert [around for around, _ in sites(f"class A:\n def f(self):\n  return {call}", reads)] == ["A.f"]


@pytest.mark.parametrize(
    "call",
    [
        "open(path, 'w')",
        "path.open('xb')",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "open('/proc/self/maps')",
        "Path(f'/proc/{pid}/stat').read_bytes()",
        "os.open(os.devnull, os.O_RDWR)",
        "files('memtui.session').joinpath('schema.sql').read_text()",
        "self.prompt.open('filter')",
        "Handle.open(pid)",
        "json.load(file)",
    ],
)
def test_what_reads_nothing_that_a_user_names_needs_no_entry(call):
    assert list(sites(f"def f():\n  return {call}", reads)) == []
