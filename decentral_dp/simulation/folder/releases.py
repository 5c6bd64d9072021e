"""Released values of a run: `releases.parquet`, one row for each agent, channel and release.

agent     agent number; empty for the releases of a trusted coordinator
channel   channel name
round     the round at whose end the value is released
release   index of the release, as in the ledger; 0 is the data-independent start
values    the released coordinates

Rows are in the order of the releases. During the run the rows are in parts, `in_progress/releases-A-B.parquet`, with
the indices A to B − 1. The journal has a digest of each part. At the end the parts are joined, in row groups that do
not depend on the parts, so that interruptions do not change the file.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from decentral_dp.engines.protocol import ReleasedValues
from decentral_dp.files.durable import OWNERS, digest, write_synced
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.simulation.folder.journal_lines import read_bound
from decentral_dp.simulation.jobs.job import PlannedJob

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "releases.parquet"
# Bytes in memory before a part is written, bytes of a row without its values, and floats and rows of a row group.
_HELD, _ROW, _GROUP, _ROWS = 2**24, 64, 2**20, 2**17


# First index and end of a part → digest of its file.
Digests = Mapping[tuple[int, int], str]


class KeptReleases:
    """Writer of released values.

    Args:
        place: folder `in_progress`.
        job: job of the run.
        after: round from which the run resumes; 0 for a new run.
        digests: digests of the existing parts.
    """

    def __init__(self, place: Path, job: PlannedJob, after: int, digests: Digests) -> None:
        self._place, self._job, self._per_round = place, job, job.ledger.releases_per_round
        self._next = job.first_release(after)
        self.digests = {part: digest for part, digest in digests.items() if part[1] <= self._next}
        paths = {_path(place, *part): digest for part, digest in self.digests.items()}
        for path, expected in paths.items():
            read_bound(path, place.parent, expected)
        for path in place.glob("releases-*.parquet"):
            if path not in paths:
                path.unlink()
        rows = self._per_round * (1 if job.plans_ahead else job.n_agents)
        size = sum(8 * c.dimension + _ROW for c in job.ledger.channels) * rows
        self._stride = max(1, _HELD // max(1, size))
        self._collected = after

    def due(self, t: int) -> bool:
        """Return whether a part is due."""
        return t - self._collected >= self._stride

    def collect(self, t: int, values: Sequence[ReleasedValues]) -> Iterator[tuple[list[int], str]]:
        """Write the values that were released since the last call.

        Args:
            t: number of completed rounds.
            values: released values.

        Returns:
            The first index, the end, and the digest of the file of each written part.
        """
        self._collected = t
        # A run that resumes here repeats the last release, which is therefore a separate part.
        border = self._job.first_release(t)
        # An actor that was started again repeats written releases with the same draws.
        fresh = [v for v in values if v.release_index >= self._next]
        indices = [v.release_index for v in fresh]
        if indices != list(range(self._next, self._next + len(fresh))):
            raise _gap(self._place, self._next)
        for part in ([v for v in fresh if v.release_index < border], [v for v in fresh if v.release_index >= border]):
            if part:
                first, end = part[0].release_index, part[-1].release_index + 1
                content = io.BytesIO()
                self._table(part, content)
                write_synced(_path(self._place, first, end), content.getvalue(), OWNERS)
                self._next, self.digests[first, end] = end, digest(content.getvalue())
                yield [first, end], self.digests[first, end]

    def _table(self, fresh: Sequence[ReleasedValues], content: io.BytesIO) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        agents: list[Any] = []
        channels: list[str] = []
        index: list[int] = []
        parts: list[Any] = []
        widths: list[int] = []
        for released in fresh:
            for channel, value in released.values.items():
                rows = np.asarray(value, dtype=np.float64).reshape(len(value), -1)
                agents += [None] if self._job.plans_ahead else range(len(rows))
                channels += [channel] * len(rows)
                index += [released.release_index] * len(rows)
                widths += [rows.shape[1]] * len(rows)
                parts.append(rows.reshape(-1))
        offsets = np.concatenate([[0], np.cumsum(widths)])
        release = np.asarray(index, dtype=np.int64)
        columns = {
            "agent": pa.array(agents, pa.int64()),
            "channel": pa.array(channels, pa.string()),
            "round": pa.array(-(-release // self._per_round), pa.int64()),
            "release": pa.array(release, pa.int64()),
            "values": pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(np.concatenate(parts))),
        }
        pq.write_table(pa.table(columns), content, compression="zstd")


def join(place: Path, job: PlannedJob, ledger: Ledger, digests: Digests, path: Path) -> None:
    """Join the parts, with one part and one row group in memory at a time.

    Args:
        place: folder `in_progress`.
        job: job of the run.
        ledger: recorded releases.
        digests: digests of the parts.
        path: path of the file to write.

    Raises:
        InputError: a part was changed.
        RuntimeError: a release of the ledger is missing.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    following = job.first_release(0)
    for first, end in sorted(digests):
        if first != following:
            break
        following = end
    if following <= max((int(c.rounds.max(initial=-1)) for c in ledger.channels), default=-1):
        raise _gap(place, following)
    rows = max(1, min(_ROWS, _GROUP // max((c.dimension for c in ledger.channels), default=1)))
    columns = {"agent": pa.int64(), "channel": pa.string(), "round": pa.int64(), "release": pa.int64()}
    # Parquet's name of the items of a list.
    schema = pa.schema([*columns.items(), ("values", pa.large_list(pa.field("element", pa.float64())))])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in _regroup(_batches(place, digests), rows):
            writer.write_table(table, row_group_size=rows)


def _gap(place: Path, release: int) -> RuntimeError:
    return RuntimeError(
        f"{place}: the released values of release {release} are not complete. Fix: "
        f'"decentral-dp resume {place.parent}" repeats them.'
    )


def _batches(place: Path, digests: Digests) -> Iterator[pa.RecordBatch]:
    """Read the rows of all parts in their order."""
    import pyarrow.parquet as pq

    for (first, end), expected in sorted(digests.items()):
        content = read_bound(_path(place, first, end), place.parent, expected)
        with pq.ParquetFile(io.BytesIO(content)) as file:
            yield from file.iter_batches(batch_size=2**14)


def _regroup(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Yield tables of a fixed number of rows; the last table may be shorter."""
    import pyarrow as pa

    buffer: list[Any] = []
    count = 0
    for batch in batches:
        buffer.append(batch)
        count += batch.num_rows
        if count >= rows:
            table, full = pa.Table.from_batches(buffer), count - count % rows
            yield from (table.slice(first, rows).combine_chunks() for first in range(0, full, rows))
            buffer, count = table.slice(full).to_batches(), count - full
    if count:
        yield pa.Table.from_batches(buffer).combine_chunks()


def _path(place: Path, first: int, end: int) -> Path:
    return place / f"releases-{first}-{end}.parquet"
