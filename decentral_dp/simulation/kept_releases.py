"""The released values of a run, written as it goes: `releases.parquet`, one row for each agent, channel and release.

agent     its number; empty where a trusted coordinator released one value for all
channel   its name
round     by whose end the release is out
release   its index, as in the ledger; 0 is the data-independent start
values    the coordinates that were released

Rows are in the order of the releases. While the run is under way they lie in parts, `in_progress/releases-A-B.parquet`,
which hold the indices from A up to, but below, B. The end joins them, in row groups that do not depend on the parts. So
a run that was cut off and went on leaves the same file as one that was not.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from decentral_dp.engines.protocol import ReleasedValues
from decentral_dp.simulation.in_progress_files import OWNERS, write_synced
from decentral_dp.simulation.jobs import GossipJob, Job
from decentral_dp.simulation.result import IN_PROGRESS

if TYPE_CHECKING:
    import pyarrow as pa

    from decentral_dp.simulation.interrupted_run import Found

NAME = "releases.parquet"
# Bytes that are held before they are written, those of a row beside its values, and numbers of a row group at most.
_HELD, _ROW, _GROUP = 2**24, 64, 2**20
# Rows of a row group at most.
_ROWS = 2**17
_PART = re.compile(r"releases-(\d+)-(\d+)\.parquet")


class KeptReleases:
    """Writes what is released into the folder of a run.

    Args:
        place: the folder `in_progress`.
        job: what is run.
        after: the round that the run goes on from; 0 where it starts.
    """

    def __init__(self, place: Path, job: Job, after: int) -> None:
        self._place, self._per_round = place, job.ledger.releases_per_round
        self._is_shared = not isinstance(job, GossipJob)
        self._next = _first_index(job, after)
        for first, end, path in _parts(place):
            if end > self._next or first >= self._next:
                path.unlink()
        agents = 1 if self._is_shared else job.n_agents
        size = sum(8 * c.dimension + _ROW for c in job.ledger.channels) * agents * self._per_round
        self._stride = max(1, _HELD // max(1, size))
        self._collected = after

    def due(self, t: int) -> bool:
        """Whether as much is held by now as should be."""
        return t - self._collected >= self._stride

    def collect(self, t: int, values: Sequence[ReleasedValues]) -> None:
        """Write what was released since the last time. t: rounds that are done."""
        self._collected = t
        # Where a lost actor was started again, it releases once more what is written already, with the same draws.
        fresh = [v for v in values if v.at >= self._next]
        if not fresh:
            return
        first, end = fresh[0].at, fresh[-1].at + 1
        content = io.BytesIO()
        self._table(fresh, content)
        write_synced(self._place / f"releases-{first}-{end}.parquet", content.getvalue(), OWNERS)
        self._next = end

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
                agents += [None] if self._is_shared else range(len(rows))
                channels += [channel] * len(rows)
                index += [released.at] * len(rows)
                widths += [rows.shape[1]] * len(rows)
                parts.append(rows.reshape(-1))
        offsets = np.concatenate([[0], np.cumsum(widths)])
        at = np.asarray(index, dtype=np.int64)
        columns = {
            "agent": pa.array(agents, pa.int64()),
            "channel": pa.array(channels, pa.string()),
            "round": pa.array(-(-at // self._per_round), pa.int64()),
            "release": pa.array(at, pa.int64()),
            "values": pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(np.concatenate(parts))),
        }
        pq.write_table(pa.table(columns), content, compression="zstd")


def intact(found: Found, job: Job, folder: Path) -> Found:
    """What a folder says of a run, from its start where values that it has released are missing on disk.

    From there the same draws give the same values.
    """
    if not job.scenario.run.keep_releases or found.saved is None:
        return found
    end = _first_index(job, 0)
    for first, after, path in _parts(folder / IN_PROGRESS):
        if first != end or not _is_whole(path):
            break
        end = after
    whole = end >= _first_index(job, found.saved[0])
    return found if whole else replace(found, saved=None, kept=0, rows=[])


def join(place: Path, path: Path) -> None:
    """Put the parts together, without ever holding more than a row group.

    Args:
        place: the folder `in_progress`.
        path: of the file to write.
    """
    import pyarrow.parquet as pq

    parts = [part for _, _, part in _parts(place)]
    widest = 1
    for batch in _batches(parts, ["values"]):
        widest = max(widest, int(batch.column("values").value_lengths().to_numpy().max(initial=1)))
    rows = max(1, min(_ROWS, _GROUP // widest))
    schema = pq.read_schema(parts[0])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in _regrouped(_batches(parts, None), rows):
            writer.write_table(table, row_group_size=rows)


def _batches(parts: Sequence[Path], columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    for part in parts:
        with pq.ParquetFile(part) as file:
            yield from file.iter_batches(batch_size=2**14, columns=columns)


def _regrouped(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Tables of exactly so many rows, the last of the rest."""
    import pyarrow as pa

    held: list[Any] = []
    count = 0
    for whole in batches:
        batch = whole
        while count + batch.num_rows >= rows:
            held.append(batch.slice(0, rows - count))
            yield pa.Table.from_batches(held).combine_chunks()
            batch, held, count = batch.slice(rows - count), [], 0
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def _first_index(job: Job, after: int) -> int:
    """The first release of a run that goes on after a round: agents send once more what that round ended with."""
    return after * job.ledger.releases_per_round + (0 if isinstance(job, GossipJob) else 1)


def _parts(place: Path) -> list[tuple[int, int, Path]]:
    """First index, end, and path of each part, in their order."""
    found = [(match, path) for path in place.glob("releases-*.parquet") if (match := _PART.fullmatch(path.name))]
    return sorted((int(match[1]), int(match[2]), path) for match, path in found)


def _is_whole(path: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid):
        return False
    return True
