"""Records that stay with their agents: the public manifest, and the reader in each agent's process.

The driver calls `AgentShards.public` and reads the manifest only. The process of an agent calls `read_agent`, which
reads one file. It raises an error before any release if the file differs from the manifest.

The manifest:

    source = "breast_cancer"        # name of the data in results
    features = ["radius", "area"]   # names of the features, or their number
    classes = [0, 1]                # all possible labels; [] for a numeric target
    range = [0.0, 16.0]             # optional, of all features of all possible records; values outside are clipped
    image = [8, 8, 1]               # optional: height, width and channels of images
    notes = ["Partitioned by label."]    # optional: sentences that every report prints

    [[agents]]                      # one table for each agent, in order
    train = 40
    validation = 40
    test = 10                       # optional
    sha256 = "…"                    # SHA-256 of the agent's file

Counts, names, classes and ranges must be public. The digest of a file with guessable content confirms a guess, so a
file should hold a random secret in addition to its records.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from decentral_dp.data.columns import ColumnRules, with_rules
from decentral_dp.data.dataset import SPLITS, Dataset, FloatArray, IntArray, Label, TextArray, label_key
from decentral_dp.data.loaders import load_dataset
from decentral_dp.data.scaling import Normalisation, Normalised, Ranges, ScaleSpec, declared_ranges, scale, scale_labels
from decentral_dp.data.shards import Shards, bound_norms, check_parts
from decentral_dp.data.tables import CsvFormat
from decentral_dp.errors import InputError, printable, quoted_path
from decentral_dp.files.regular import names_in, read_arrays, regular
from decentral_dp.files.tables import Checks, Table, first_complaint

# Largest numbers of features, and of records of all agents.
_MOST_FEATURES, _MOST_RECORDS = 10**6, 10**8


def _name_features(features: Any) -> Any:
    """Return the names of features that are given by their number."""
    is_count = type(features) is int and 0 < features <= _MOST_FEATURES
    return tuple(f"x{k}" for k in range(features)) if is_count else features


_Line = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(lambda text: printable(text, lines=False))]
_Records = Annotated[int, Field(ge=0, le=_MOST_RECORDS)]
_Size = Annotated[int, Field(ge=1)]
# Differences of larger numbers overflow.
_End = Annotated[float, Field(gt=-1e300, lt=1e300)]


class ShardEntry(Table):
    """Public facts about the records of one agent: the counts per split, and the SHA-256 of the file."""

    train: _Records
    validation: _Records
    test: _Records = 0
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$"), AfterValidator(str.lower)]


class Manifest(Table):
    """Public facts about the records of all agents, with the keys of the manifest file.

    `features` names the features, or the columns that public rules convert to features.
    """

    source: _Line = "records with their agents"
    features: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        BeforeValidator(_name_features),
        Field(strict=False, min_length=1, max_length=_MOST_FEATURES),
    ]
    classes: Annotated[tuple[Label, ...], Field(strict=False)]
    range: Annotated[tuple[_End, _End], Field(strict=False)] | None = None
    image: Annotated[tuple[_Size, _Size, _Size], Field(strict=False)] | None = None
    notes: Annotated[tuple[_Line, ...], Field(strict=False, max_length=20)] = ()
    agents: Annotated[tuple[ShardEntry, ...], Field(strict=False, min_length=1)]

    checks: ClassVar[Checks] = {
        "features has a name twice": lambda m: len(set(m.features)) < len(m.features),
        "classes needs at least two different labels, or [] for numbers": lambda m: (
            bool(m.classes) and len({label_key(label) for label in m.classes}) < max(len(m.classes), 2)
        ),
        "range needs low < high": lambda m: m.range is not None and not m.range[0] < m.range[1],
        "image has another number of values than features": lambda m: (
            m.image is not None and math.prod(m.image) != len(m.features)
        ),
        f"agents have more than {_MOST_RECORDS} records": lambda m: (
            sum(a.train + a.validation + a.test for a in m.agents) > _MOST_RECORDS
        ),
    }

    def feature_names(self, rules: ColumnRules | None) -> tuple[str, ...]:
        """Return the names of the features that the public rules derive from the columns."""
        if rules is None:
            return self.features
        rules.require_columns(self.features, (), "the manifest")
        return rules.names(self.features)

    @property
    def digest(self) -> bytes:
        """Digest of the content, which does not depend on formatting and is part of the noise key."""
        content = self.model_dump(mode="json", exclude_none=True, exclude=None if self.notes else {"notes"})
        return blake2b(json.dumps(content, sort_keys=True).encode()).digest()


def read_shard_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Args:
        path: path of a TOML file.

    Raises:
        InputError: the file is unreadable or is not a manifest.
    """
    location = f"problem.manifest: {quoted_path(path)}"
    try:
        return Manifest.model_validate(tomllib.loads(regular(path, "problem.manifest").read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        problem = getattr(error, "strerror", None) or "not valid TOML"
        problem = first_complaint(error) if isinstance(error, ValidationError) else f"cannot be read ({problem})"
    raise InputError(f"{location}: {problem}. Fix: write a manifest as in docs/add_data.md.")


AGENT = "{agent}"
# Secret array of an NPZ shard.
SECRET = "secret"


@dataclass(frozen=True, eq=False)
class AgentShards:
    """Files with the agents' records, and the public rules for reading them.

    Args:
        place: path of the file on each agent's machine, in which {agent} is replaced by the agent's number.
        manifest: public facts of the records.
        label: label column of CSV and Parquet files, or None for other files.
        split: split column. None means the column "split" if it exists.
        ranges: public ranges of the features. None means that features are not scaled.
        normalisation: kind of normalisation, as in `make_shards`.
        label_range: public range (low, high) of numeric labels, as in `make_shards`.
        levels: number of levels, which is 2 if every agent has train and validation records, or 1 for train records
            only.
        rules: rules that convert the columns of the manifest to features, or None.
        csv: format of CSV files, or None.
    """

    place: str
    manifest: Manifest
    label: str | None = None
    split: str | None = None
    ranges: Ranges | None = None
    normalisation: Normalisation = "none"
    label_range: tuple[float, float] | None = None
    levels: int = 2
    rules: ColumnRules | None = None
    csv: CsvFormat | None = None

    def path(self, agent: int) -> Path:
        """Return the path of the file of one agent."""
        return Path(self.place.replace(AGENT, str(agent))).expanduser()

    def public(self) -> Shards:
        """Return the public description of all records without reading any of their files.

        Raises:
            InputError: an agent has no train or no validation records.
        """
        manifest, offset = self.manifest, 0
        parts: list[list[IntArray]] = [[], []]
        for i, entry in enumerate(manifest.agents):
            for part, count in zip(parts, (entry.train, entry.validation), strict=True):
                part.append(np.arange(offset, offset + count))
                offset += count
            check_parts(i, parts[0][i], parts[1][i], self.levels)
        names = manifest.feature_names(self.rules)
        labels = np.zeros(1, dtype=np.int64) if manifest.classes else np.zeros(1)
        none = Dataset(np.zeros((1, len(names))), labels, manifest.classes, names, "")
        scaled_dataset = self._scaled_records(self._with_declared_ranges(with_rules(none, self.rules)))[1]
        # NaN, so that a computation cannot use them by mistake.
        features = np.broadcast_to(np.nan, (offset, len(names)))
        missing = np.broadcast_to(np.int64(-1) if manifest.classes else np.nan, (offset,))
        return Shards(
            features,
            missing,
            manifest.classes,
            names,
            manifest.source,
            tuple(parts[0]),
            tuple(parts[1]),
            np.zeros(0, dtype=np.int64),
            scaled_dataset.l1,
            scaled_dataset.l2,
            manifest.image,
            manifest.notes,
            why_not_exchangeable="The records are with their agents.",
            digest=manifest.digest,
            label_range=self.label_range,
            bounds=manifest.range,
        )

    def read_agent(self, agent: int) -> Shards:
        """Read and scale the records of one agent on its own machine, and return them as shards of a single agent.

        Raises:
            InputError: the file is unreadable, or differs from the manifest.
        """
        path, manifest = self.path(agent), self.manifest
        dataset = load_dataset(
            str(path.absolute()),
            n_agents=len(manifest.agents),
            seed=0,
            label=self.label,
            classes=manifest.classes,
            split=self.split,
            rules=self.rules,
            csv=self.csv,
        )
        entry, words = manifest.agents[agent], dataset.split
        if words is None:
            # By index, train records first. If the file has another length, the counts differ, which `_check` reports.
            words = np.repeat(np.array(SPLITS), [entry.train, entry.validation, entry.test])[: dataset.n]
            words = np.concatenate([words, np.full(dataset.n - words.size, SPLITS[0])])
        self._check(agent, path, dataset, words)
        labels, final = self._scaled_records(self._with_declared_ranges(dataset))
        train, validation, test = (np.flatnonzero(words == role) for role in SPLITS)
        return Shards(
            final.features,
            labels,
            manifest.classes,
            manifest.feature_names(self.rules),
            manifest.source,
            (train,),
            (validation,),
            test,
            final.l1,
            final.l2,
            manifest.image,
            label_range=self.label_range,
        )

    def secret(self, agent: int) -> bytes:
        """Return the secret array of an NPZ file, or empty bytes if it has none. Call `read_agent` first."""
        path = self.path(agent)
        location = f"problem.data: {str(path)!r}"
        if path.suffix.lower() != ".npz" or SECRET not in names_in(path, location):
            return b""
        return read_arrays(path, location, [SECRET])[SECRET].tobytes()

    def _with_declared_ranges(self, dataset: Dataset) -> Dataset:
        """Return the records with the names and ranges of the manifest, clipped to the range."""
        manifest = self.manifest
        features = dataset.features if manifest.range is None else np.clip(dataset.features, *manifest.range)
        return replace(
            dataset,
            features=features,
            feature_names=manifest.feature_names(self.rules),
            image=manifest.image,
            bounds=manifest.range,
            source=manifest.source,
        )

    def _scaled_records(self, dataset: Dataset) -> tuple[FloatArray | IntArray, Normalised]:
        """Return labels and features after the public rules, which convert each record separately."""
        if self.label_range is not None:
            dataset = scale_labels(dataset, self.label_range)
        scaled_records = scale(dataset, self.ranges or "none")
        return dataset.labels, bound_norms(scaled_records.features, scaled_records.bounds, self.normalisation)

    def _check(self, agent: int, path: Path, dataset: Dataset, words: TextArray) -> None:
        """Raise InputError if the file differs from the manifest. The error prints public counts only."""
        manifest, entry = self.manifest, self.manifest.agents[agent]
        location = f"problem.data: agent {agent}: {str(path)!r}"
        fix = "Fix: use the file of the manifest, or write a new manifest."
        names = manifest.feature_names(self.rules)
        counts = [("features", dataset.features.shape[1], len(names))]
        counts += [(f"{role} records", int((words == role).sum()), getattr(entry, role)) for role in SPLITS]
        faults = [
            f"{actual} {noun} (the manifest has {manifest_count})"
            for noun, actual, manifest_count in counts
            if actual != manifest_count
        ]
        has_names = path.suffix.lower() in (".csv", ".parquet") and manifest.features != _name_features(
            len(manifest.features)
        )
        if has_names and dataset.feature_names != names:
            faults.append("features of other names, or in another order, than the manifest")
        if not faults and digest_of_shard(path) != entry.sha256:
            faults.append("another SHA-256 than in the manifest")
        if faults:
            raise InputError(f"{location} has {faults[0]}. {fix}")


def digest_of_shard(path: Path) -> str:
    """Return the SHA-256 of a file in the form that manifests use."""
    with regular(path, "problem.data").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def public_ranges(manifest: Manifest, spec: ScaleSpec, rules: ColumnRules | None = None) -> Ranges | None:
    """Return the ranges of a scale specification, or None if features are not scaled."""
    if spec == "none":
        return None
    names = manifest.feature_names(rules)
    none = Dataset(np.zeros((1, len(names))), np.zeros(1), (), names, manifest.source, bounds=manifest.range)
    return declared_ranges(with_rules(none, rules), spec)
