"""Records that are with their agents: what everyone knows of them, and how the process of an agent reads its own.

A driver has an `AgentShards` and its manifest, and calls `public`. The process that holds an agent calls `read`, which
opens one file, and refuses one that is not what the manifest says before anything is released.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, TextArray
from decentral_dp.data.libsvm import is_libsvm
from decentral_dp.data.loaders import load
from decentral_dp.data.partition import check_parts
from decentral_dp.data.scaling import Normalisation, Normalised, ScaleSpec, declared_ranges, scale, scale_labels
from decentral_dp.data.shard_manifest import Held, Manifest
from decentral_dp.data.shards import Shards, bounded
from decentral_dp.errors import InputError
from decentral_dp.files.archives import names_in, read_arrays
from decentral_dp.files.regular import regular

AGENT = "{agent}"
# The array of an NPZ shard that nobody but its agent knows.
SECRET = "secret"
_ROLES = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class AgentShards:
    """Where the records of every agent are, and by which public rules they are read.

    Args:
        place: path of a file, with {agent} for the agent's number, as the machine of the agent knows it.
        manifest: what everyone may know of the records.
        label: label column of CSV and Parquet files, or None.
        split: column of the kinds of records; None for "split" where a file has it.
        ranges: feature → its public range, by which it is scaled; None leaves features as they are.
        normalisation: as of `make_shards`.
        label_range: as of `make_shards`.
        levels: 2 where every agent has train and validation records, 1 where it has train records alone.
    """

    place: str
    manifest: Manifest
    label: str | None = None
    split: str | None = None
    ranges: Mapping[str, Any] | None = None
    normalisation: Normalisation = "none"
    label_range: tuple[float, float] | None = None
    levels: int = 2

    def path(self, agent: int) -> Path:
        """The file of one agent."""
        return Path(self.place.replace(AGENT, str(agent))).expanduser()

    def public(self) -> Shards:
        """What everyone knows of all records; opens no file.

        Raises:
            InputError: an agent has no train or no validation records.
        """
        told, taken = self.manifest, 0
        parts: list[list[IntArray]] = [[], []]
        for i, held in enumerate(told.agents):
            for part, count in zip(parts, (held.train, held.validation), strict=True):
                part.append(np.arange(taken, taken + count))
                taken += count
            check_parts(i, parts[0][i], parts[1][i], self.levels)
        labels = np.zeros(1) if not told.classes else np.zeros(1, dtype=np.int64)
        sized = self._sized(self._told(Dataset(np.zeros((1, len(told.names))), labels, told.classes, told.names, "")))[
            1
        ]
        # Whatever reads them by mistake gets no number.
        features = np.broadcast_to(np.nan, (taken, len(told.names)))
        missing = np.broadcast_to(np.int64(-1) if told.classes else np.nan, (taken,))
        return Shards(
            features,
            missing,
            told.classes,
            told.names,
            told.source,
            tuple(parts[0]),
            tuple(parts[1]),
            np.zeros(0, dtype=np.int64),
            sized.l1,
            sized.l2,
            told.image,
            told.notes,
            why_not="The records are with their agents.",
            digest=told.digest,
            label_range=self.label_range,
            elsewhere=True,
        )

    def read(self, agent: int) -> Shards:
        """The records of one agent, scaled, as shards of a single agent. To be called where the agent is.

        Raises:
            InputError: the file cannot be read, or is not what the manifest says.
        """
        path, told = self.path(agent), self.manifest
        found = load(
            str(path.absolute()),
            n_agents=len(told.agents),
            seed=0,
            label=self.label,
            classes=told.classes,
            split=self.split,
            features=len(told.names) if is_libsvm(path) else None,
        )
        words = _kinds(found, told.agents[agent])
        self._check(agent, path, found, words)
        labels, final = self._sized(self._told(found))
        train, validation, test = (np.flatnonzero(words == role) for role in _ROLES)
        return Shards(
            final.features,
            labels,
            told.classes,
            told.names,
            told.source,
            (train,),
            (validation,),
            test,
            final.l1,
            final.l2,
            told.image,
            label_range=self.label_range,
        )

    def secret(self, agent: int) -> bytes:
        """What nobody but this agent knows: of an NPZ file that has it, else nothing. Call it after `read`."""
        path = self.path(agent)
        where = f"problem.data: {str(path)!r}"
        if path.suffix.lower() != ".npz" or SECRET not in names_in(path, where):
            return b""
        return read_arrays(path, where, [SECRET])[SECRET].tobytes()

    def _told(self, dataset: Dataset) -> Dataset:
        """With the manifest's names and ranges; what lies outside a declared range is cut."""
        told = self.manifest
        features = dataset.features if told.bounds is None else np.clip(dataset.features, *told.bounds)
        return replace(
            dataset,
            features=features,
            feature_names=told.names,
            image=told.image,
            bounds=told.bounds,
            source=told.source,
        )

    def _sized(self, dataset: Dataset) -> tuple[FloatArray | IntArray, Normalised]:
        """Labels and features by the public rules, each record by itself, in the order of `make_shards`."""
        if self.label_range is not None:
            dataset = scale_labels(dataset, self.label_range)
        scaled = dataset if self.ranges is None else scale(dataset, self.ranges)
        return dataset.labels, bounded(scaled, self.normalisation)

    def _check(self, agent: int, path: Path, found: Dataset, words: TextArray) -> None:
        """Refuse a file that is not what the manifest says. Counts are public; nothing else of it is told."""
        told, where = self.manifest, f"problem.data: agent {agent}: {str(path)!r}"
        mend = "Give the file that the manifest was written for, or write the manifest anew."
        if found.trajectory is not None:
            raise InputError(f"{where} holds trajectories, and only records can be with their agents. {mend}")
        if found.features.shape[1] != len(told.names):
            raise InputError(
                f"{where} has {found.features.shape[1]} features, and the manifest says {len(told.names)}. {mend}"
            )
        named = path.suffix.lower() in (".csv", ".parquet") and told.names != tuple(
            f"x{k}" for k in range(len(told.names))
        )
        if named and found.feature_names != told.names:
            raise InputError(f"{where} has features of other names, or in another order, than the manifest. {mend}")
        for role in _ROLES:
            there, wanted = int((words == role).sum()), getattr(told.agents[agent], role)
            if there != wanted:
                raise InputError(f"{where} has {there} {role} records, and the manifest says {wanted}. {mend}")
        if digest_of_shard(path) != told.agents[agent].sha256:
            raise InputError(f"{where} has the right counts, but another SHA-256 than the manifest says. {mend}")


def digest_of_shard(path: Path) -> str:
    """SHA-256 of a file, as manifests have it."""
    with regular(path, "problem.data").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def public_ranges(manifest: Manifest, spec: ScaleSpec, root: Path) -> Mapping[str, Any] | None:
    """Feature → its range, of a scale specification that a driver reads. None where features stay as they are.

    Raises:
        InputError: ranges that are fitted on records, or none.
    """
    if spec == "none":
        return None
    if spec == "standard":
        raise InputError(
            'problem.scale: "standard" is fitted on the records, which are with their agents. Declare ranges: a table, '
            "or a CSV file."
        )
    shape = Dataset(
        np.zeros((1, len(manifest.names))), np.zeros(1), (), manifest.names, manifest.source, bounds=manifest.bounds
    )
    limits = declared_ranges(shape, spec, root=root)
    rows = zip(manifest.names, limits.low.tolist(), limits.high.tolist(), limits.log.tolist(), strict=True)
    return {name: {"low": low, "high": high, "log": log} for name, low, high, log in rows}


def _kinds(found: Dataset, held: Held) -> TextArray:
    """What each record is for: as the file says, else by its place, train records first."""
    if found.split is not None:
        return found.split
    counts = [held.train, held.validation, held.test]
    # Of a file of another length the last kind has the difference, and its count is refused.
    words = np.repeat(np.array(_ROLES), counts)[: found.n]
    return np.concatenate([words, np.full(found.n - words.size, _ROLES[0])])
