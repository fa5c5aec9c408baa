"""Pools of memory: their specifications, the nodes of their pages, and the tensors over them."""

from __future__ import annotations

import gc
import mmap
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.errors import UserError
from memtui.placement import memory
from memtui.placement.memory import HUGE_BYTES, NoMemory
from memtui.placement.pool_specs import parse_pool, parse_pools
from memtui.placement.torch.clock import Clock, resolution_ns

torch = pytest.importorskip("torch")
from memtui.placement.torch.pools import Pool  # noqa: E402

speeds = st.floats(0.001, 1000).map(lambda value: f"{value:.3f}")
pool_texts = st.one_of(
    st.sampled_from(["dram", "huge", "file:/tmp", "numa:0", "numa:7"]),
    st.builds(lambda r, w: f"emulated:{r},{w}", speeds, speeds),
)


@given(st.lists(pool_texts, min_size=2, max_size=5, unique=True))
def test_a_list_of_pools_is_read_as_it_was_written(names: list[str]) -> None:
    assert [pool.name for pool in parse_pools(",".join(names))] == names


def test_speeds_are_in_gigabytes_a_second() -> None:
    pool = parse_pool("emulated:29,12.5")
    assert (pool.read_bytes_per_s, pool.write_bytes_per_s, pool.emulated) == (29e9, 12.5e9, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("dram,pmem", "there is no pool 'pmem'"),
        ("dram,numa:x", "there is no pool 'numa:x'"),
        ("dram,emulated:29", "two speeds above 0"),
        ("dram,emulated:0,12", "two speeds above 0"),
        ("dram,emulated:29,12,3", "there is no pool '3'"),
        ("dram,dram", "named twice"),
        ("dram", "two pools or more"),
        ("", "there is no pool ''"),
        ("dram,pinned", "say cuda first"),
        ("cuda,dram", "only pinned and pageable"),
        ("dram,file:", "there is no pool 'file:'"),
    ],
)
def test_what_is_not_a_list_of_pools_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as caught:
        parse_pools(text)
    assert "\n" not in str(caught.value)


def test_pages_bound_to_a_node_are_there_as_the_kernel_says() -> None:
    mapping = memory.on_node(10 * mmap.PAGESIZE, 0)
    assert memory.nodes_of(mapping) == {0: 10}


def test_a_node_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NoMemory, match="no memory on node 99: this machine has some on 0"):
        memory.on_node(mmap.PAGESIZE, 99)


def test_a_page_that_was_never_written_is_on_no_node() -> None:
    mapping = mmap.mmap(-1, 4 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapping[0] = 1
    nodes = memory.nodes_of(mapping)
    assert nodes.pop(0) == 1
    assert all(node < 0 for node in nodes)


def test_huge_pages_start_at_their_size_and_name_their_kind() -> None:
    try:
        mapping, start, how = memory.in_huge_pages(3 * HUGE_BYTES)
    except NoMemory as why:
        pytest.skip(str(why))
    assert how in ("reserved huge pages", "transparent huge pages")
    assert (memory.address(mapping) + start) % HUGE_BYTES == 0
    assert len(mapping) - start >= 3 * HUGE_BYTES


def test_where_no_huge_page_can_be_had_the_error_says_so(monkeypatch) -> None:
    monkeypatch.setattr(memory, "_MAP_HUGETLB", memory._MAP_HUGETLB | 63 << 26)  # pages of 2 ** 63 bytes
    monkeypatch.setattr(memory, "_huge_bytes", lambda first, size: 0)
    with pytest.raises(NoMemory, match="no huge page is reserved, and of 2097152 bytes the kernel put 0"):
        memory.in_huge_pages(HUGE_BYTES)


def test_a_file_in_the_page_cache_is_not_called_slow_memory(tmp_path) -> None:
    dax, note = memory.about_folder(str(tmp_path))
    assert not dax
    assert "no slow memory" in note
    mapping = memory.of_file(5 * mmap.PAGESIZE, str(tmp_path))
    mapping[:4] = b"mem!"
    assert mapping[:4] == b"mem!"
    assert not [*tmp_path.iterdir()]  # it has no name, and goes with the mapping


def test_files_in_memory_are_recognised_by_their_file_system() -> None:
    assert memory.about_folder("/dev/shm") == (False, "tmpfs: main memory, no slow memory")


def test_what_is_no_folder_is_refused(tmp_path) -> None:
    with pytest.raises(NoMemory, match="is not a folder"):
        memory.about_folder(str(tmp_path / "none"))


def test_dax_is_recognised_by_the_file_or_by_mount_options(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(memory, "_is_dax", lambda path: True)
    monkeypatch.setattr(memory, "_file_system", lambda path: ("ext4", ["rw"]))
    assert memory.about_folder(str(tmp_path)) == (True, "ext4 with DAX: the memory itself")
    monkeypatch.setattr(memory, "_is_dax", lambda path: None)
    assert not memory.about_folder(str(tmp_path))[0]
    monkeypatch.setattr(memory, "_file_system", lambda path: ("xfs", ["rw", "dax=always"]))
    assert memory.about_folder(str(tmp_path))[0]


@pytest.mark.parametrize("name", ["dram", "numa:0", "huge", "emulated:29,12", "file:"])
def test_tensors_start_at_pages_and_outlive_their_pool(name: str, tmp_path) -> None:
    try:
        pool = Pool(parse_pool(name + str(tmp_path) if name == "file:" else name))
    except NoMemory as error:
        pytest.skip(str(error))
    taken = [pool.take(size) for size in (1, 5000, 4096, 3 << 20, 0)]
    assert [len(tensor) for tensor in taken] == [1, 5000, 4096, 3 << 20, 0]
    assert all(tensor.data_ptr() % mmap.PAGESIZE == 0 for tensor in taken if len(tensor))
    for number, tensor in enumerate(taken):
        tensor.fill_(number + 1)
    del pool
    gc.collect()
    assert all(bool((tensor == number + 1).all()) for number, tensor in enumerate(taken))


def test_only_emulated_memory_waits() -> None:
    dram, slow = Pool(parse_pool("dram")), Pool(parse_pool("emulated:2,1"))
    assert (dram.read_wait_ns(1 << 20), dram.write_wait_ns(1 << 20)) == (0, 0)
    assert (slow.read_wait_ns(2_000_000), slow.write_wait_ns(2_000_000)) == (1e6, 2e6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["cuda", "pinned", "pageable"])
def test_memory_of_a_gpu_is_refused_where_there_is_none(name: str) -> None:
    with pytest.raises(NoMemory, match=f"{name}: this PyTorch .* finds no CUDA device"):
        Pool(parse_pool(name))


def test_the_clock_tells_its_resolution() -> None:
    assert 0 < resolution_ns(Clock()) < 1e6


def test_bandwidths_have_the_waits_of_emulated_memory_in_them() -> None:
    from memtui.placement.torch.bandwidth import measure

    names = ("dram", "emulated:0.05,0.025")
    dram, slow = measure([Pool(parse_pool(name)) for name in names], Clock(), size=1 << 20, repeats=3)
    assert dram.written > slow.written
    # The wait alone is 1 / 0.05 ns a byte of reading and 1 / 0.025 ns of writing; the copy takes time, too.
    reads, writes = (slow.read, slow.copied_from), (slow.written, slow.copied_to)
    for rate, most in (*((rate, 0.05e9) for rate in reads), *((rate, 0.025e9) for rate in writes)):
        assert most / 20 < rate <= most


class OnGpu:
    """A pool of a GPU, or of the host behind one, that is main memory."""

    def __init__(self, device: str) -> None:
        self.device, self.taken = torch.device(device), []

    def take(self, size_bytes: int):
        self.taken.append(size_bytes)
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def read_wait_ns(self, size_bytes: float) -> float:
        return 0.0

    write_wait_ns = read_wait_ns


class Event:
    """An event of a GPU on which everything between two events takes 2 ms."""

    seen = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at_ms, self.done = -1.0, False

    def record(self) -> None:
        Event.seen += 1
        self.at_ms = 2.0 * Event.seen

    def synchronize(self) -> None:
        self.done = True

    def elapsed_time(self, end: Event) -> float:
        assert end.done, "the times of work that goes on are not known"
        return end.at_ms - self.at_ms


def test_bandwidths_of_a_gpu_are_by_its_clock_and_of_more_than_its_cache(monkeypatch) -> None:
    from memtui.placement.torch.bandwidth import CACHES, IN_A_ROW, measure

    cache = 64 << 10
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=cache))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 2 << 30))
    pools = [OnGpu("cuda"), OnGpu("cpu")]
    fast, host = measure(pools, Clock(), size=4096, repeats=3)
    size = CACHES * cache
    assert (pools[0].taken, pools[1].taken) == ([size, size], [size])
    assert [fast.read, fast.written, fast.copied_from, fast.copied_to] == [size * IN_A_ROW / 2e-3] * 4
    assert [host.copied_from, host.copied_to] == [size / 2e-3] * 2
    assert (host.read, host.written) == (host.copied_from, host.copied_to), "ops get at it by copies only"
    assert host.copied_from_meanwhile is None
    assert host.copied_from_fixed_ns >= 0


@pytest.mark.parametrize(("free_bytes", "size"), [(40_000, 8192), (100, 4096), (1 << 40, 1 << 20)])
def test_what_is_copied_has_room_on_the_gpu(monkeypatch, free_bytes: int, size: int) -> None:
    from memtui.placement.torch import bandwidth

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=4096))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free_bytes, 1 << 40))
    assert bandwidth._size_on_gpu([OnGpu("cuda")], 1 << 20) == size


def test_a_move_of_a_page_takes_what_it_was_measured_to_take() -> None:
    """On a clock that advances by 1000 ns at each reading; a byte of slow memory takes a wait of 2 or 4 ns."""
    from memtui.placement import profile
    from memtui.placement.torch.bandwidth import PAGE, measure

    class Ticking(Clock):
        ns = 0.0

        def now_ns(self) -> int:
            self.ns += 1000
            return int(self.ns)

        def wait(self, ns: float) -> None:
            self.ns += ns

        rest = wait

    threads = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # no CPU is left for moves during ops
    try:
        _, slow = measure([Pool(parse_pool(n)) for n in ("dram", "emulated:0.5,0.25")], Ticking(), 1 << 20, 3)
    finally:
        torch.set_num_threads(threads)
    assert (slow.copied_from_meanwhile, slow.meanwhile_start_ns, slow.copied_to_meanwhile_fixed_ns) == (None,) * 3
    pool = profile.Pool("slow", read_bytes_per_s=slow.copied_from, write_bytes_per_s=slow.copied_to)
    pool = replace(pool, read_fixed_ns=slow.copied_from_fixed_ns, write_fixed_ns=slow.copied_to_fixed_ns)
    assert pool.move_ns(PAGE, into_fast=True) == pytest.approx(1000 + 2 * PAGE)
    assert pool.move_ns(PAGE, into_fast=False) == pytest.approx(1000 + 4 * PAGE)
    assert pool.move_ns(0, into_fast=True) == pytest.approx(1000, abs=20)
    assert pool.move_ns(PAGE, into_fast=True, meanwhile=True) is None
