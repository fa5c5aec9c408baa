"""A column of whole numbers by sample that grows with a recording, in a fraction of the memory of an array.

The numbers of neighbouring samples differ little: sizes are multiples of pages, times rise by about an interval. A
block of them is stored as offsets from the least one, or from the least step between two, in as few bytes as the
largest offset needs, and deflated where that halves it. What is read is exactly what was added; reading a part unpacks
the blocks of that part only.
"""

from __future__ import annotations

import mmap
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

Scalar = TypeVar("Scalar", np.int64, np.float64)

BLOCK = 1024  # numbers in a block; fewer at the end are not packed
_SLAB_BYTES = 1 << 18
_EXACT = 1 << 53  # above this not every whole number has a float


class Slabs:
    """Memory that is kept to the end, in pieces of its own.

    Numbers that stay, allocated between those that are gone at once, would keep the C library from using that again.
    """

    def __init__(self) -> None:
        self._slab, self._used = memoryview(b""), 0

    def keep(self, content: bytes) -> memoryview:
        """Return a copy of ``content`` that lies in a slab."""
        if self._used + len(content) > len(self._slab):
            self._slab, self._used = memoryview(mmap.mmap(-1, max(len(content), _SLAB_BYTES))), 0
        first, self._used = self._used, self._used + len(content)
        self._slab[first : self._used] = content
        return self._slab[first : self._used].toreadonly()


class _Stored(NamedTuple):
    """Numbers of one width, deflated where that halves them (zlib)."""

    content: memoryview
    dtype: np.dtype[Any]
    deflated: bool

    @classmethod
    def of(cls, numbers: NDArray[Any], slabs: Slabs) -> _Stored:
        content = numbers.tobytes()
        deflated = zlib.compress(content, 6)
        smaller = len(deflated) <= len(content) // 2
        return cls(slabs.keep(deflated if smaller else content), numbers.dtype, smaller)

    def numbers(self) -> NDArray[Any]:
        return np.frombuffer(zlib.decompress(self.content) if self.deflated else self.content, self.dtype)


class _Offsets(NamedTuple):
    """Numbers as offsets from the least of them, in units of a power of two."""

    least: int
    shift: int
    offsets: NDArray[Any] | None  # unsigned, of as few bytes as they need; None: all of them are 0

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> _Offsets:
        least = numbers.min()
        offsets = (numbers - least).view(np.uint64)  # modulo 2**64, as the sum in ``numbers`` is
        used = int(np.bitwise_or.reduce(offsets))
        if not used:
            return cls(int(least), 0, None)
        shift = (used & -used).bit_length() - 1
        offsets = offsets >> np.uint64(shift)
        return cls(int(least), shift, offsets.astype(np.min_scalar_type(int(offsets.max()))))

    @property
    def width(self) -> int:
        return 0 if self.offsets is None else self.offsets.itemsize


class _Block(NamedTuple):
    """Packed numbers, or the steps from one to the next after ``first``; ``unknown``: bits of those that are nan."""

    first: int
    steps: bool
    least: int
    shift: int
    offsets: _Stored | None  # None: all of them are 0
    unknown: _Stored | None
    length: int

    @classmethod
    def of(cls, values: NDArray[Any], slabs: Slabs) -> _Block | NDArray[Any]:
        """Pack a block; the values themselves where they are not whole numbers."""
        unknown, length = None, len(values)
        if values.dtype.kind == "f":
            missing = np.isnan(values)
            if missing.any():
                values = np.where(missing, 0 if missing.all() else values[~missing][0], values)
                if not _whole(values):
                    return np.where(missing, np.nan, values)
                unknown = _Stored.of(np.packbits(missing), slabs)
            elif not _whole(values):
                return values
        numbers = values.astype(np.int64)
        absolute, steps = _Offsets.of(numbers), _Offsets.of(numbers[1:] - numbers[:-1])
        rising = steps.width < absolute.width
        least, shift, offsets = steps if rising else absolute
        stored = None if offsets is None else _Stored.of(offsets, slabs)
        return cls(int(numbers[0]), rising, least, shift, stored, unknown, length)

    def values(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        if self.offsets is None:
            numbers = np.full(self.length - self.steps, self.least)
        else:
            shifted = self.offsets.numbers().astype(np.uint64) << np.uint64(self.shift)
            numbers = shifted.view(np.int64) + np.int64(self.least)
        if self.steps:
            numbers = np.cumsum(np.concatenate(([self.first], numbers)))
        values = numbers.astype(dtype)
        if self.unknown is not None:
            values[np.unpackbits(self.unknown.numbers()).astype(bool)] = np.nan
        return values

    @property
    def nbytes(self) -> int:
        return sum(len(part.content) for part in (self.offsets, self.unknown) if part is not None)


def _whole(values: NDArray[np.float64]) -> bool:
    return bool((np.abs(values) <= _EXACT).all() and (values == np.floor(values)).all())


class _Store:
    """What all columns of different length share."""

    def __init__(self, dtype: DTypeLike, slabs: Slabs) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.slabs = slabs
        self.blocks: list[_Block | NDArray[Any]] = []
        self.firsts: list[Any] = []  # the first number of each block, and of the rest
        self.rest = np.empty(BLOCK, self.dtype)  # what is not a block yet
        self.count = self.first_known = 0  # the count of values, and that of nan before the first number
        self._unpacked: tuple[int, NDArray[Any]] = -1, self.rest

    def extend(self, values: NDArray[Any]) -> None:
        if self.first_known == self.count:
            finite = ~np.isnan(values)
            self.first_known += int(finite.argmax()) if finite.any() else len(values)
        while len(values):
            used = self.count % BLOCK
            if not used:
                self.firsts.append(values[0].item())
            new = values[: BLOCK - used]
            self.rest[used : used + len(new)] = new
            self.count += len(new)
            values = values[len(new) :]
            if not self.count % BLOCK:
                self.blocks.append(_Block.of(self.rest, self.slabs))
                self.rest = np.empty(BLOCK, self.dtype)  # the old one may still be looked at

    def block(self, number: int) -> NDArray[Any]:
        """Return a block, unpacked: the last one that was asked for is likely to be asked for again."""
        if number == len(self.blocks):
            return self.rest.copy()  # of a view, somebody could change what is stored
        if self._unpacked[0] != number:
            block = self.blocks[number]
            values = block.values(self.dtype) if isinstance(block, _Block) else block
            values.flags.writeable = False
            self._unpacked = number, values
        return self._unpacked[1]


class Column(NDArrayOperatorsMixin, Generic[Scalar]):
    """Numbers in the order of samples; nan where one could not be measured. Used as an array that cannot be changed."""

    __slots__ = ("_length", "_store")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, store: _Store, length: int) -> None:
        self._store, self._length = store, length

    @classmethod
    def of(cls, values: NDArray[Scalar]) -> Column[Scalar]:
        """Return a column of all these numbers."""
        store = _Store(values.dtype, Slabs())
        store.extend(values)
        return cls(store, len(values))

    @classmethod
    def empty(cls, dtype: type[Scalar], slabs: Slabs | None = None) -> Column[Scalar]:
        """Return a column without numbers. What is added is kept in these slabs, which several columns may share."""
        return cls(_Store(dtype, slabs or Slabs()), 0)

    def extended(self, values: NDArray[Scalar]) -> Column[Scalar]:
        """Return a column with more numbers; this one stays as it is. Only the longest column can be extended."""
        if self._length != self._store.count:
            raise ValueError("there is a longer column already")
        self._store.extend(values)
        return Column(self._store, self._store.count)

    @property
    def dtype(self) -> np.dtype[Scalar]:
        """The type of the numbers."""
        return self._store.dtype

    @property
    def nbytes(self) -> int:
        """Bytes that the numbers take."""
        return sum(block.nbytes for block in self._store.blocks) + self._store.rest.nbytes

    @property
    def any_known(self) -> bool:
        """Whether any number is not nan."""
        return self._store.first_known < self._length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Scalar]:
        return iter(self[:])

    @overload
    def __getitem__(self, index: slice | NDArray[Any] | list[int]) -> NDArray[Scalar]: ...
    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Scalar: ...
    def __getitem__(self, index: int | np.integer[Any] | slice | NDArray[Any] | list[int]) -> Any:
        if isinstance(index, int | np.integer):
            if not -self._length <= index < self._length:
                raise IndexError(f"{index} of {self._length} samples")
            block, offset = divmod(int(index) % self._length, BLOCK)
            return self._store.block(block)[offset]
        if isinstance(index, slice) and index.step in (None, 1):
            first, last, _ = index.indices(self._length)
            return self._between(first, max(first, last))
        return self._between(0, self._length)[np.asarray(index) if isinstance(index, Column) else index]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(item[:] if isinstance(item, Column) else item for item in inputs), **options)

    def searchsorted(self, values: Any, side: Any = "left", sorter: None = None) -> Any:
        """Return where numbers belong in a column that rises, as numpy's function does. Unpacks the blocks there."""
        firsts = self._store.firsts[: -(-self._length // BLOCK)]  # this column may be shorter than what is stored
        if np.ndim(values) == 0:
            before = bisect_left(firsts, values) if side == "left" else bisect_right(firsts, values)
            return np.intp(self._search(max(0, before - 1), values, side))
        wanted = np.asarray(values)
        blocks = np.maximum(np.searchsorted(np.array(firsts, self.dtype), wanted, side=side) - 1, 0)
        places = np.empty(len(wanted), np.intp)
        for block in set(blocks.tolist()):
            inside = blocks == block
            places[inside] = self._search(block, wanted[inside], side)
        return places

    def tolist(self) -> list[Any]:
        """Return all numbers."""
        return self[:].tolist()

    def astype(self, dtype: DTypeLike) -> NDArray[Any]:
        """Return all numbers as another type."""
        return self[:].astype(dtype)

    def min(self) -> Scalar:
        """Return the least number."""
        return self[:].min()

    def max(self) -> Scalar:
        """Return the largest number."""
        return self[:].max()

    def sum(self) -> Any:
        """Return the sum of all numbers."""
        return self[:].sum()

    def _between(self, first: int, last: int) -> NDArray[Scalar]:
        if first == last:
            return np.empty(0, self.dtype)
        blocks = range(first // BLOCK, (last - 1) // BLOCK + 1)
        parts = [
            self._store.block(block)[max(first - block * BLOCK, 0) : min(last - block * BLOCK, BLOCK)]
            for block in blocks
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _search(self, block: int, values: Any, side: Any) -> Any:
        start = block * BLOCK
        inside = self[start : start + BLOCK]
        return start + np.searchsorted(inside, values, side=side)
