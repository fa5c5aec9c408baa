"""Arrays of a session as blobs: what goes in comes out, up to the limits and not beyond."""

from __future__ import annotations

import struct
import zlib
from dataclasses import astuple, replace

import numpy as np
import pytest

from memtui.analysis.access_counts import CHUNK_SHIFT, GROUP, TouchSum
from memtui.analysis.reuse_burst import PartReuse
from memtui.analysis.reuse_distance import ReuseSample
from memtui.core.page_set import ADDRESS_BITS
from memtui.core.page_sizes import GIANT_SHIFT
from memtui.session import blobs


def i8(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_names_are_written_as_long_as_they_are_read():
    def unpacked(data: bytes) -> blobs.Packed:
        return blobs.unpack(data, 1, lambda count: count, most_names_bytes=7, most_numbers=2)

    packed = unpacked(blobs.pack((2,), ["abc"], i8(4, 5), most_names_bytes=7))
    assert (packed.counts, packed.names, packed.numbers.tolist()) == ((2,), ["abc"], [4, 5])
    with pytest.raises(ValueError, match="its names have more than 7 B"):
        blobs.pack((2,), ["abcd"], i8(4, 5), most_names_bytes=7)
    with pytest.raises(ValueError, match="unpacks to more than"):
        unpacked(blobs.pack((2,), ["abcd"], i8(4, 5), most_names_bytes=8))


@pytest.mark.parametrize(
    ("ids", "values"),
    [
        ((), ()),
        ((1,), (blobs.UNKNOWN_BYTES,)),
        ((1, 2, 7), (0, 5, (1 << 62) - 1)),
        (((1 << 62) - 1,), (3,)),
    ],
)
def test_pairs_come_back(ids, values):
    decoded = blobs.decode_pairs(blobs.encode_pairs(i8(*ids), i8(*values)))
    assert tuple(side.tolist() for side in decoded) == (list(ids), list(values))


@pytest.mark.parametrize(
    ("ids", "values"),
    [
        ((0,), (1,)), ((-1,), (1,)), ((3, 3), (1, 1)), ((3, 2), (1, 1)), ((1 << 62,), (1,)), ((1,), (-2,)),
        ((1,), (1 << 62,)), ((1, 2), (1, -2)),
    ],
)  # fmt: skip
def test_pairs_out_of_range_are_refused(ids, values):
    with pytest.raises(ValueError, match="holds numbers out of range"):
        blobs.decode_pairs(blobs.encode_pairs(i8(*ids), i8(*values)))


def test_more_pairs_than_a_process_has_mappings_are_not_unpacked(monkeypatch):
    data = blobs.encode_pairs(i8(1, 2), i8(0, 0))
    monkeypatch.setattr(blobs, "MAX_PAIRS", 2)
    assert len(blobs.decode_pairs(data)[0]) == 2
    monkeypatch.setattr(blobs, "MAX_PAIRS", 1)
    with pytest.raises(ValueError, match="unpacks"):
        blobs.decode_pairs(data)


MOST_TOUCHES, MOST_BYTES = (1 << 40) - 1, (1 << 62) - 1


def reuse(first=0, first_bytes=0, upper=(), lower=(), counts=(), parts=()) -> ReuseSample:
    return ReuseSample(first, first_bytes, i8(*upper), i8(*lower), i8(*counts), *(i8(*part) for part in parts))


@pytest.mark.parametrize(
    "made",
    [
        reuse(),
        reuse(3, 4096, (8192, 4096), (0, 4096), (1, 2)),
        reuse(MOST_TOUCHES, MOST_BYTES, (MOST_BYTES,), (MOST_BYTES,), (MOST_TOUCHES,)),
        reuse(3, 4096, (8192, 4096), (0, 4096), (1, 2), ((4096, 0), (4096, 0))),
        reuse(0, 0, (), (), (), ((), ())),
    ],
)
def test_reuse_distances_come_back(made):
    decoded = blobs.decode_reuse(blobs.encode_reuse(made), limit=2)
    assert (decoded.first_touches, decoded.first_touch_bytes) == (made.first_touches, made.first_touch_bytes)
    for name in ("upper_bytes", "lower_bytes", "counts"):
        assert getattr(decoded, name).tolist() == getattr(made, name).tolist()
    for name in ("earlier_bytes", "later_bytes"):
        before, after = getattr(made, name), getattr(decoded, name)
        assert after is before is None or after.tolist() == before.tolist()


@pytest.mark.parametrize(
    "made",
    [
        reuse(0, 0, (9,), (4,), (1,), ((3,), (3,))), reuse(0, 0, (9,), (4,), (1,), ((-1,), (3,))),
        reuse(0, 0, (9,), (4,), (1,), ((0,), (MOST_BYTES + 1,))),
        reuse(-1), reuse(MOST_TOUCHES + 1), reuse(0, -1), reuse(0, MOST_BYTES + 1), reuse(0, 0, (-1,), (-1,), (1,)),
        reuse(0, 0, (5,), (-1,), (1,)), reuse(0, 0, (MOST_BYTES + 1,), (0,), (1,)), reuse(0, 0, (5,), (0,), (-1,)),
        reuse(0, 0, (5,), (0,), (MOST_TOUCHES + 1,)), reuse(0, 0, (5, 5), (5, 6), (1, 1)),
    ],
)  # fmt: skip
def test_reuse_distances_out_of_range_are_refused(made):
    with pytest.raises(ValueError, match="holds numbers out of range"):
        blobs.decode_reuse(blobs.encode_reuse(made))


def test_a_reuse_blob_of_no_whole_row_is_refused():
    for size, message in ((0, "is too short"), (15, "is too short"), (17, "1 bytes are not 3 rows of numbers")):
        with pytest.raises(ValueError, match=message):
            blobs.decode_reuse(zlib.compress(bytes(size)))
    assert blobs.decode_reuse(zlib.compress(bytes(16))).touches == 0


def burst(length_ns=10**7, touched_bytes=8192, seen_bytes=4096, same_order=0.25, reverse_order=0.0, distances=None):
    distances = reuse(1, 4096, (12288,), (4096,), (1,), ((4096,), (0,))) if distances is None else distances
    return PartReuse(length_ns, touched_bytes, seen_bytes, same_order, reverse_order, distances)


def test_the_parts_of_a_burst_come_back():
    parts = (burst(), burst(length_ns=5, same_order=1 / 3, distances=reuse()))
    decoded = blobs.decode_burst(blobs.encode_burst(parts), 3)
    for part, other in zip(decoded, parts, strict=True):
        assert astuple(replace(part, distances=None)) == astuple(replace(other, distances=None))
        assert part.distances.counts.tolist() == other.distances.counts.tolist()
        assert part.distances.touches == other.distances.touches


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (burst(), burst(), burst(), burst()),
        (burst(length_ns=0),),
        (burst(length_ns=1 << 60),),
        (burst(touched_bytes=-1),),
        (burst(seen_bytes=-1),),
        (burst(same_order=1.5),),
        (burst(reverse_order=float("nan")),),
        (burst(distances=reuse(0, 0, (1,) * 13, (1,) * 13, (1,) * 13)),),
    ],
)
def test_bursts_out_of_range_are_refused(parts):
    with pytest.raises(ValueError, match=r"damaged head|out of range|unpacks to|whole"):
        blobs.decode_burst(blobs.encode_burst(parts), 3)


def test_a_burst_of_another_length_is_refused():
    data = blobs.encode_burst((burst(), burst()))
    for damaged in (b"", data[:20], data[:-1], data + b"x", data[:8] + b"\xff" * (len(data) - 8)):
        with pytest.raises(ValueError, match=r"damaged|range|length|too short|unpack"):
            blobs.decode_burst(damaged, 3)


def sums(windows=1, shift=CHUNK_SHIFT, groups=(5,), touches=16) -> TouchSum:
    filled = np.arange(len(groups) * GROUP, dtype=np.int64).reshape(-1, GROUP) % (touches + 1)
    if len(groups):
        filled[-1, -1] = touches
    return TouchSum(windows, shift, np.array(groups, np.uint64), filled)


TOP = (1 << ADDRESS_BITS - CHUNK_SHIFT) // GROUP - 1
GIANT_TOUCHES = (1 << 12) << GIANT_SHIFT - 12  # of a chunk of 1 GiB in every one of the most windows


@pytest.mark.parametrize(
    "made",
    [
        sums(groups=()),
        sums(),
        sums(3, groups=(0, 1, 9, TOP), touches=48),
        sums(4096, GIANT_SHIFT, (0, (1 << ADDRESS_BITS - GIANT_SHIFT) // GROUP - 1), GIANT_TOUCHES),
    ],
)
def test_touch_sums_come_back(made):
    decoded = blobs.decode_touch_sum(blobs.encode_touch_sum(made))
    assert (decoded.windows, decoded.shift, decoded.groups.dtype, decoded.touches.dtype) == (
        made.windows, made.shift, np.uint64, np.int64
    )  # fmt: skip
    assert decoded.groups.tolist() == made.groups.tolist()
    assert decoded.touches.tolist() == made.touches.tolist()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (sums(0, groups=()), "out of range"),
        (sums(4097), "out of range"),
        (sums(shift=CHUNK_SHIFT - 1), "out of range"),
        (sums(shift=GIANT_SHIFT + 1), "out of range"),
        (sums(groups=(TOP + 1,)), "addresses that do not rise"),
        (sums(groups=(5, 5)), "addresses that do not rise"),
        (sums(groups=(5, 4)), "addresses that do not rise"),
        (sums(groups=(3, 9, 8)), "addresses that do not rise"),
        (sums(touches=17), "out of range"),
        (sums(3, touches=49), "out of range"),
    ],
)
def test_touch_sums_that_cannot_be_are_refused(made, words):
    with pytest.raises(ValueError, match=words):
        blobs.decode_touch_sum(blobs.encode_touch_sum(made))


def test_a_touch_sum_of_no_whole_group_is_refused():
    head = struct.pack("<qq", 1, CHUNK_SHIFT)
    for raw in (b"", head[:-1], head + bytes(8 + 4 * GROUP - 1), head + bytes(8 + 4 * GROUP + 1)):
        with pytest.raises(ValueError, match=f"{len(raw)} bytes are not whole groups"):
            blobs.decode_touch_sum(zlib.compress(raw))


def test_more_groups_than_a_sum_has_are_not_unpacked(monkeypatch):
    data = blobs.encode_touch_sum(sums(groups=(1, 2)))
    monkeypatch.setattr(blobs, "MAX_GROUPS", 2)
    assert len(blobs.decode_touch_sum(data).groups) == 2
    monkeypatch.setattr(blobs, "MAX_GROUPS", 1)
    with pytest.raises(ValueError, match="unpacks"):
        blobs.decode_touch_sum(data)
