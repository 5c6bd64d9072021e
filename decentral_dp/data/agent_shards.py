"""Records that are with their agents: what everyone knows of them, and how the process of an agent reads its own.

A driver has an `AgentShards` and its manifest, and calls `public`. The process that holds an agent calls `read_agent`,
which opens one file, and refuses one that is not what the manifest says before anything is released.

The public manifest says all that a driver is told:

    source = "breast_cancer"        # what they are called in results
    features = ["radius", "area"]   # names, or how many
    classes = [0, 1]                # all labels that there may be; [] for numbers to predict
    range = [0.0, 16.0]             # optional: of every feature of every possible record; what lies outside is cut
    image = [8, 8, 1]               # optional: height, width and channels of records that are pictures
    notes = ["Dealt by label."]     # optional: sentences that belong beside every result on these records

    [[agents]]                      # one table for each agent, in order
    train = 40
    validation = 40
    test = 10                       # optional
    sha256 = "…"                    # of the agent's file

TOML, or JSON with the same keys. Counts, names, classes and ranges must be public facts: they are taken as given. The
digest of a file that anybody could guess whole tells whether a guess is right, so that a file should hold a random
secret beside its records; the files that `write_shards` makes do.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from decentral_dp.data.columns import ColumnRules, with_rules
from decentral_dp.data.dataset import SPLITS, Dataset, FloatArray, IntArray, Label, TextArray, label_key, nearest
from decentral_dp.data.loaders import load
from decentral_dp.data.partition import check_parts
from decentral_dp.data.scaling import Normalisation, Normalised, Ranges, ScaleSpec, declared_ranges, scale, scale_labels
from decentral_dp.data.shards import Shards, bound_norms
from decentral_dp.data.tables import CsvFormat
from decentral_dp.errors import InputError, quoted, quoted_path
from decentral_dp.files.regular import names_in, read_arrays, regular

# Features, and records of all agents: more than that no machine here would hold.
_MOST_FEATURES, _MOST_RECORDS = 10**6, 10**8
_KEYS = ("source", "features", "classes", "range", "image", "notes", "agents")
_AGENT_KEYS = ("train", "validation", "test", "sha256")


class ShardEntry(NamedTuple):
    """What everyone may know of one agent's records.

    Args:
        train, validation, test: how many there are of each kind.
        sha256: of their file, 64 hexadecimal digits in lower case.
    """

    train: int
    validation: int
    test: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What everyone may know of the records of all agents.

    Args:
        source: what the records are called.
        names: of the features, or of the columns that a scenario's public rules make features of.
        classes: all labels that there may be; none where labels are numbers to predict.
        agents: one entry for each.
        bounds: (low, high) of every feature, or None.
        image: (height, width, channels), or None.
        notes: sentences that belong beside every result.
    """

    source: str
    names: tuple[str, ...]
    classes: tuple[Label, ...]
    agents: tuple[ShardEntry, ...]
    bounds: tuple[float, float] | None = None
    image: tuple[int, int, int] | None = None
    notes: tuple[str, ...] = ()

    def features(self, rules: ColumnRules | None) -> tuple[str, ...]:
        """The names of the features that public rules make of the columns; the columns where there are no rules."""
        if rules is None:
            return self.names
        rules.require_columns(self.names, (), "the manifest")
        return rules.names(self.names)

    @property
    def digest(self) -> bytes:
        """Of all that it says, however its file is written: it decides which noise is drawn."""
        return blake2b(json.dumps(self._content(), sort_keys=True).encode()).digest()

    def to_toml(self) -> str:
        """The text of a manifest file."""
        return tomli_w.dumps(self._content())

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = {"source": self.source, "features": list(self.names), "classes": list(self.classes)}
        if self.bounds is not None:
            content["range"] = list(self.bounds)
        if self.image is not None:
            content["image"] = list(self.image)
        if self.notes:
            content["notes"] = list(self.notes)
        return content | {"agents": [entry._asdict() for entry in self.agents]}


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; no record.

    Args:
        path: of a .toml or .json file.

    Raises:
        InputError: it cannot be read, or says something else than a manifest does.
    """
    where = f"problem.manifest: {quoted_path(path)}"
    try:
        text = regular(path, "problem.manifest").read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror}; give the path of a manifest.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is no TOML, and no JSON by its name; write it as docs/add_data.md says.") from error
    if not isinstance(content, dict):
        raise InputError(f"{where} is no table of keys; write it as docs/add_data.md says.")
    _refuse_unknown_keys(content, _KEYS, where)
    agents = content.get("agents")
    if not isinstance(agents, list) or not agents:
        raise InputError(f"{where} lists no agents; add a table [[agents]] for each, with train, validation, sha256.")
    entries = tuple(_shard_entry(entry, f"{where}, agent {i}") for i, entry in enumerate(agents))
    if sum(one.train + one.validation + one.test for one in entries) > _MOST_RECORDS:
        raise InputError(f"{where} counts more than {_MOST_RECORDS} records; give fewer.")
    source, notes = content.get("source", "records with their agents"), content.get("notes", [])
    if not _is_line(source, 200):
        raise InputError(f"{where}: source is what results call the records, in at most 200 letters.")
    if not (isinstance(notes, list) and len(notes) <= 20 and all(_is_line(note, 1000) for note in notes)):
        raise InputError(f"{where}: notes is a list of at most 20 sentences; mend it.")
    names, image = _names(content.get("features"), where), _image(content.get("image"), where)
    if image is not None and image[0] * image[1] * image[2] != len(names):
        raise InputError(f"{where}: pictures of {list(image)} do not have {len(names)} numbers; mend one.")
    classes = _classes(content.get("classes"), where)
    return Manifest(source, names, classes, entries, _bounds(content, where), image, tuple(notes))


def _is_line(text: Any, most: int) -> bool:
    return isinstance(text, str) and 0 < len(text) <= most and text.isprintable()


def _refuse_unknown_keys(content: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in content:
        if key not in keys:
            raise InputError(f"{where} has the unknown key {quoted(key)}; {nearest(key, keys)}.")


def _shard_entry(entry: Any, where: str) -> ShardEntry:
    if not isinstance(entry, dict):
        raise InputError(f"{where} is no table; give train, validation and sha256.")
    _refuse_unknown_keys(entry, _AGENT_KEYS, where)
    counts = [entry.get("train"), entry.get("validation"), entry.get("test", 0)]
    for name, count in zip(_AGENT_KEYS, counts, strict=False):
        if type(count) is not int or not 0 <= count <= _MOST_RECORDS:
            raise InputError(f"{where}: {name} is a number of records, from 0 to {_MOST_RECORDS}; mend it.")
    sha256 = entry.get("sha256")
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise InputError(f"{where}: sha256 is 64 hexadecimal digits; sha256sum FILE prints them.")
    return ShardEntry(counts[0], counts[1], counts[2], sha256.lower())


def _names(features: Any, where: str) -> tuple[str, ...]:
    if type(features) is int and 0 < features <= _MOST_FEATURES:
        return tuple(f"x{k}" for k in range(features))
    named = isinstance(features, list) and all(isinstance(name, str) and name for name in features)
    if not named or not 0 < len(features) <= _MOST_FEATURES or len(set(features)) < len(features):
        raise InputError(
            f"{where}: features is how many there are, at most {_MOST_FEATURES}, or a list of different names; mend it."
        )
    return tuple(features)


def _classes(classes: Any, where: str) -> tuple[Label, ...]:
    plain = isinstance(classes, list) and all(type(label) in (int, float, str) for label in classes)
    if not plain or len(classes) == 1 or len({label_key(label) for label in classes}) < len(classes):
        raise InputError(
            f"{where}: classes lists at least two different labels that there may be, or is [] for numbers to predict; "
            "mend it."
        )
    return tuple(classes)


def _bounds(content: Mapping[str, Any], where: str) -> tuple[float, float] | None:
    bounds = content.get("range")
    if bounds is None:
        return None
    numbers = isinstance(bounds, list) and len(bounds) == 2 and all(type(end) in (int, float) for end in bounds)
    # Differences of larger ones would overflow, and NaN is no number.
    if not numbers or not -1e300 < bounds[0] < bounds[1] < 1e300:
        raise InputError(f"{where}: range is [low, high], finite numbers with low < high; mend it.")
    return float(bounds[0]), float(bounds[1])


def _image(sizes: Any, where: str) -> tuple[int, int, int] | None:
    if sizes is None:
        return None
    if not (isinstance(sizes, list) and len(sizes) == 3 and all(type(n) is int and n > 0 for n in sizes)):
        raise InputError(f"{where}: image is [height, width, channels]; mend it.")
    return sizes[0], sizes[1], sizes[2]


AGENT = "{agent}"
# The array of an NPZ shard that nobody but its agent knows.
SECRET = "secret"


@dataclass(frozen=True, eq=False)
class AgentShards:
    """Where the records of every agent are, and by which public rules they are read.

    Args:
        place: path of a file, with {agent} for the agent's number, as the machine of the agent knows it.
        manifest: what everyone may know of the records.
        label: label column of CSV and Parquet files, or None.
        split: column of the kinds of records; None for "split" where a file has it.
        ranges: public ones, by which features are scaled; None leaves features as they are.
        normalisation: as of `make_shards`.
        label_range: as of `make_shards`.
        levels: 2 where every agent has train and validation records, 1 where it has train records alone.
        rules: how the columns that the manifest names become features; None where they are features.
        csv: how CSV files are written; None for commas, decimal points and UTF-8.
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
        """The file of one agent."""
        return Path(self.place.replace(AGENT, str(agent))).expanduser()

    def public(self) -> Shards:
        """What everyone knows of all records; opens no file.

        Raises:
            InputError: an agent has no train or no validation records.
        """
        manifest, taken = self.manifest, 0
        parts: list[list[IntArray]] = [[], []]
        for i, entry in enumerate(manifest.agents):
            for part, count in zip(parts, (entry.train, entry.validation), strict=True):
                part.append(np.arange(taken, taken + count))
                taken += count
            check_parts(i, parts[0][i], parts[1][i], self.levels)
        names = manifest.features(self.rules)
        labels = np.zeros(1, dtype=np.int64) if manifest.classes else np.zeros(1)
        none = Dataset(np.zeros((1, len(names))), labels, manifest.classes, names, "")
        sized = self._scaled_records(self._with_declared_ranges(with_rules(none, self.rules)))[1]
        # Whatever reads them by mistake gets no number.
        features = np.broadcast_to(np.nan, (taken, len(names)))
        missing = np.broadcast_to(np.int64(-1) if manifest.classes else np.nan, (taken,))
        return Shards(
            features,
            missing,
            manifest.classes,
            names,
            manifest.source,
            tuple(parts[0]),
            tuple(parts[1]),
            np.zeros(0, dtype=np.int64),
            sized.l1,
            sized.l2,
            manifest.image,
            manifest.notes,
            why_not_exchangeable="The records are with their agents.",
            digest=manifest.digest,
            label_range=self.label_range,
            is_elsewhere=True,
            bounds=manifest.bounds,
        )

    def read_agent(self, agent: int) -> Shards:
        """The records of one agent, scaled, as shards of a single agent. To be called where the agent is.

        Raises:
            InputError: the file cannot be read, or is not what the manifest says.
        """
        path, manifest = self.path(agent), self.manifest
        dataset = load(
            str(path.absolute()),
            n_agents=len(manifest.agents),
            seed=0,
            label=self.label,
            classes=manifest.classes,
            split=self.split,
            rules=self.rules,
            csv=self.csv,
        )
        words = _kinds(dataset, manifest.agents[agent])
        self._check(agent, path, dataset, words)
        labels, final = self._scaled_records(self._with_declared_ranges(dataset))
        train, validation, test = (np.flatnonzero(words == role) for role in SPLITS)
        return Shards(
            final.features,
            labels,
            manifest.classes,
            manifest.features(self.rules),
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
        """What nobody but this agent knows: of an NPZ file that has it, else nothing. Call it after `read_agent`."""
        path = self.path(agent)
        where = f"problem.data: {str(path)!r}"
        if path.suffix.lower() != ".npz" or SECRET not in names_in(path, where):
            return b""
        return read_arrays(path, where, [SECRET])[SECRET].tobytes()

    def _with_declared_ranges(self, dataset: Dataset) -> Dataset:
        """With the manifest's names and ranges; what lies outside a declared range is cut."""
        manifest = self.manifest
        features = dataset.features if manifest.bounds is None else np.clip(dataset.features, *manifest.bounds)
        return replace(
            dataset,
            features=features,
            feature_names=manifest.features(self.rules),
            image=manifest.image,
            bounds=manifest.bounds,
            source=manifest.source,
        )

    def _scaled_records(self, dataset: Dataset) -> tuple[FloatArray | IntArray, Normalised]:
        """Labels and features by the public rules, each record by itself, in the order of `make_shards`."""
        if self.label_range is not None:
            dataset = scale_labels(dataset, self.label_range)
        return dataset.labels, bound_norms(scale(dataset, self.ranges or "none"), self.normalisation)

    def _check(self, agent: int, path: Path, dataset: Dataset, words: TextArray) -> None:
        """Refuse a file that is not what the manifest says. Counts are public; nothing else of it is told."""
        manifest, where = self.manifest, f"problem.data: agent {agent}: {str(path)!r}"
        mend = "Give the file that the manifest was written for, or write the manifest anew."
        if dataset.trajectory is not None:
            raise InputError(f"{where} holds trajectories, and only records can be with their agents. {mend}")
        names = manifest.features(self.rules)
        if dataset.features.shape[1] != len(names):
            raise InputError(
                f"{where} has {dataset.features.shape[1]} features, and the manifest says {len(names)}. {mend}"
            )
        named = path.suffix.lower() in (".csv", ".parquet") and manifest.names != tuple(
            f"x{k}" for k in range(len(manifest.names))
        )
        if named and dataset.feature_names != names:
            raise InputError(f"{where} has features of other names, or in another order, than the manifest. {mend}")
        for role in SPLITS:
            there, wanted = int((words == role).sum()), getattr(manifest.agents[agent], role)
            if there != wanted:
                raise InputError(f"{where} has {there} {role} records, and the manifest says {wanted}. {mend}")
        if digest_of_shard(path) != manifest.agents[agent].sha256:
            raise InputError(f"{where} has the right counts, but another SHA-256 than the manifest says. {mend}")


def digest_of_shard(path: Path) -> str:
    """SHA-256 of a file, as manifests have it."""
    with regular(path, "problem.data").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def public_ranges(manifest: Manifest, spec: ScaleSpec, root: Path, rules: ColumnRules | None = None) -> Ranges | None:
    """The ranges of a scale specification that a driver reads. None where features stay as they are.

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
    names = manifest.features(rules)
    none = Dataset(np.zeros((1, len(names))), np.zeros(1), (), names, manifest.source, bounds=manifest.bounds)
    return declared_ranges(with_rules(none, rules), spec, root=root)


def _kinds(dataset: Dataset, entry: ShardEntry) -> TextArray:
    """What each record is for: as the file says, else by its place, train records first."""
    if dataset.split is not None:
        return dataset.split
    counts = [entry.train, entry.validation, entry.test]
    # Of a file of another length the last kind has the difference, and its count is refused.
    words = np.repeat(np.array(SPLITS), counts)[: dataset.n]
    return np.concatenate([words, np.full(dataset.n - words.size, SPLITS[0])])
