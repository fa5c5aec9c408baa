"""The reuse distances of a session: exact ones by sample and process, and their histogram up to a sample."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap

from memtui.analysis.reuse_burst import PartReuse
from memtui.analysis.reuse_distance import ReuseSample
from memtui.analysis.reuse_histogram import ReuseHistogram
from memtui.session.blobs import decode_burst, decode_reuse
from memtui.session.connection import SessionFile
from memtui.session.file_format import row_ids, split_row_id
from memtui.session.sample_reader import SampleReader
from memtui.session.tables.reuse import ReuseBurstRecord, ReuseCheckpointRecord, ReuseRecord

MOST_PARTS = 1 << 10  # of a burst
_BATCH_ROWS = 256  # windows whose distances are in memory together


class ReuseReader:
    """Reads reuse distances. The methods raise SessionError."""

    def __init__(self, file: SessionFile, samples: SampleReader) -> None:
        self._file, self._samples = file, samples

    def between(self, first_sample: int, last_sample: int) -> list[tuple[int, int, ReuseSample]]:
        """Return the distances of an inclusive range of samples: (sample, process, distances)."""
        return list(self.iterate(first_sample, last_sample))

    def iterate(self, first_sample: int, last_sample: int) -> Iterator[tuple[int, int, ReuseSample]]:
        """Yield what ``between`` returns for any number of samples: a part of them is in memory at a time."""
        rest = f"WHERE id >= ? AND id < ? ORDER BY id LIMIT {_BATCH_ROWS}"
        low, high = row_ids(first_sample, last_sample)
        while rows := self._file.rows(ReuseRecord, rest, low, high):
            for row, data in rows:
                sample, process = split_row_id(row)
                try:
                    # A window has one distance for every earlier window and page size, and no more.
                    reuse = decode_reuse(data, 3 * (self._samples.table.newest + 1))
                except ValueError as error:
                    raise self._file.damaged(f"reuse distances of sample {sample}: {error}") from None
                yield sample, process, reuse
            low = self._file.key_after(rows, low)

    def bursts(self, first_sample: int, last_sample: int) -> Iterator[tuple[int, int, tuple[PartReuse, ...]]]:
        """Yield the parts of windows that were cut, in an inclusive range of samples: (sample, process, parts).

        There is a burst in few samples, and a session of an older format has none.
        """
        if not self._file.has(ReuseBurstRecord):
            return
        rest = f"WHERE id >= ? AND id < ? ORDER BY id LIMIT {_BATCH_ROWS}"
        low, high = row_ids(first_sample, last_sample)
        while rows := self._file.rows(ReuseBurstRecord, rest, low, high):
            for record in starmap(ReuseBurstRecord, rows):
                sample, process = split_row_id(record.id)
                try:
                    if not 0 < record.parts < MOST_PARTS:
                        raise ValueError("numbers out of range")
                    parts = decode_burst(record.data, record.parts)
                    if record.probe_ns != parts[-1].length_ns:
                        raise ValueError("a probe has two lengths")
                except ValueError as error:
                    raise self._file.damaged(f"reuse distances of the burst in sample {sample}: {error}") from None
                yield sample, process, parts
            low = self._file.key_after(rows, low)

    def until(self, sample: int) -> ReuseHistogram:
        """Return the histogram of all windows up to and including ``sample``: the checkpoint before it and the rest."""
        rows = self._file.rows(ReuseCheckpointRecord, "WHERE sample <= ? ORDER BY sample DESC LIMIT 1", sample)
        try:
            histogram = ReuseHistogram.from_bytes(rows[0][1]) if rows else ReuseHistogram()
        except ValueError as error:
            raise self._file.damaged(str(error)) from None
        for _, _, reuse in self.iterate(rows[0][0] + 1 if rows else 0, sample):
            histogram.add(reuse)
        return histogram
