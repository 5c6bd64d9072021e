"""Result of a run: the numbers of `result.json`, and functions that read them from a run folder."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import SkipValidation, TypeAdapter

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError, converting, quoted_path
from decentral_dp.files.durable import OWNERS
from decentral_dp.files.regular import names_in, own, read_arrays
from decentral_dp.problems import PROBLEMS, TYPES, ProblemType
from decentral_dp.simulation.events import CallbackFailure
from decentral_dp.simulation.folder.journal_lines import JOURNAL, first_digest
from decentral_dp.simulation.metrics import JUDGES, EvaluatedOn
from decentral_dp.simulation.sites import SiteScore
from decentral_dp.simulation.statement import MOST_ENTRIES, Number, PrivacyStatement
from decentral_dp.user_code import USER_ERRORS, reason

# Subfolder of a run folder while its run is not complete.
IN_PROGRESS = "in_progress"
RESULT = "result.json"
# Format of result.json; other formats are refused.
FORMAT = 1
# Keys of result.json: SHA-256 of each other file by its name, and of its text without this key.
FILES, DIGEST = "files", "digest"
# Key of result.json: digest of the first line of the run's journal.
RUN = "run"
# Subfolder of a run folder with those of its baselines.
BASELINES_FOLDER = "baselines"
# Subfolder with the same run and baselines of each further seed.
SEEDS_FOLDER = "seeds"
# Subfolder of a run folder with the models that an adversary of published models receives, and its files.
PUBLISHED, MODEL, METADATA, STATEMENT = "published", "model.npz", "metadata.json", "statement.json"
INCOMPLETE = ("running", "interrupted", "failed")


@dataclass(frozen=True, kw_only=True)
class Communication:
    """Messages of a run.

    Args:
        messages: number of messages from one agent to another.
        numbers: number of floats in all messages.
        bits: number of bits, 64 per float or fewer with compression.
        by_agent: number of messages of each agent, (m,).
    """

    messages: int
    numbers: int
    bits: int
    by_agent: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class WeakScore:
    """Held-out score that does not exceed the score of a constant prediction.

    Args:
        name: score "test_auc", "test_accuracy" or "test_r2".
        value: value of the score.
        baseline: score of a random ranking, the majority class or the mean label.
        margin: smallest excess over the baseline that counts as an improvement.
        interval: 95 % interval of an accuracy.
    """

    name: str
    value: float
    baseline: float
    margin: float = 0.0
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class LossTrend:
    """Loss that increased, or was still decreasing at the end.

    Args:
        name: name of the loss.
        first: loss at the start.
        last: mean loss over the last fifth of the rounds.
    """

    name: str
    first: float
    last: float


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Value by which a run diverged.

    Args:
        name: channel of a released value, or name of a loss.
        is_released: whether the value was released in the last round, rather than a loss at the end.
        is_finite: whether the value is finite.
        first: loss at the start; None if it is not used.
        last: loss at the end.
    """

    name: str
    is_released: bool = False
    is_finite: bool = False
    first: Number = None
    last: Number = None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RunResult(Mapping[str, Any]):
    """Result of a run.

    Args:
        content: content of `result.json` by key; its keys are also the keys of this mapping.
        privacy: privacy statement.
        title: title of the scenario.
        status: status "ok" or "diverged"; "running", "interrupted" or "failed" if the run is not complete.
        reason: error that ended an interrupted or failed run, or None.
        divergence: value by which the run diverged, or None.
        method: name of the algorithm with every enabled part.
        engine: engine "local" or "ray".
        rounds: number of completed rounds.
        rounds_planned: number of rounds of the scenario.
        seconds: running time.
        metrics: name → mean over agents at the last evaluation.
        evaluated_on: name of the evaluated values.
        averaged: number of last released values whose mean is evaluated.
        baselines: metric → value for the majority class or the mean label.
        tunes_x: whether x is tuned; False if only the lower level is solved.
        absent_measures: names in `run.measures` that were not measured in the run.
        label_skew: mean total variation distance between an agent's labels and all labels, not covered by ε; None for
            numbers.
        labels_cut: share of the labels outside problem.label_range, which were clipped.
        features_cut: feature → share of its values outside problem.scale, if any.
        clipped: channel → clipped fraction of per-example gradients at the last values.
        failed_callbacks: callbacks that failed.
        weak_score: held-out score, if it is close to the score of a constant prediction.
        loss_trend: loss that increased or was still decreasing, or None.
        algorithm: hyper-parameters of a coordinator's program, or empty.
        audit: findings of an audit of the run, or None.
        topology: graph and its numbers.
        problem: problem, its size and its record counts.
        versions: library → version.
        communication: messages of the run; None with a trusted coordinator.
        sites: scores of each agent's own held-out records, not covered by ε; empty if they are not scored.
        personal: whether `sites` has scores of each agent's own model instead of the common model.
        seeds: number of seeds in `sites`.

    Example:
        >>> import decentral_dp
        >>> result = decentral_dp.run("quadratic", set={"algorithm.rounds": 2}).result
        >>> result.status, result.rounds, result.privacy.epsilon_max
        ('ok', 2, inf)
        >>> result["privacy"]["epsilon_max"]
        inf
    """

    content: SkipValidation[Mapping[str, Any]]
    privacy: PrivacyStatement
    title: str
    status: str
    reason: str | None
    divergence: Divergence | None = None
    method: str = ""
    engine: str
    rounds: int
    rounds_planned: int
    seconds: Number = None
    metrics: Mapping[str, Number]
    evaluated_on: EvaluatedOn = "released_values"
    averaged: int = 1
    baselines: Mapping[str, float] = field(default_factory=dict)
    tunes_x: bool = True
    absent_measures: tuple[str, ...] = ()
    label_skew: float | None = None
    labels_cut: float = 0.0
    features_cut: Mapping[str, float] = field(default_factory=dict)
    clipped: Mapping[str, float] = field(default_factory=dict)
    failed_callbacks: tuple[CallbackFailure, ...] = ()
    weak_score: WeakScore | None = None
    loss_trend: LossTrend | None = None
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    audit: Mapping[str, Any] | None = None
    topology: Mapping[str, Any]
    problem: Mapping[str, Any]
    versions: Mapping[str, str]
    communication: Communication | None = None
    sites: tuple[SiteScore, ...] = ()
    personal: bool = False
    seeds: int = 1

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)

    def __repr__(self) -> str:
        return f"<RunResult: {self.status}, {self.rounds} rounds, {self.privacy!r}>"

    def to_json(self) -> str:
        """Return the text of `result.json`; infinities are "inf" and "-inf", NaN is null."""
        return text_of(seal(self.content))

    @classmethod
    def from_json(cls, text: str) -> RunResult:
        """Parse the text of `to_json`."""
        return cls.from_content(json.loads(text))

    @classmethod
    def from_content(cls, content: Mapping[str, Any], privacy: PrivacyStatement | None = None) -> RunResult:
        """Create a result.

        Args:
            content: keys and values of `result.json`.
            privacy: privacy statement, default parsed from the content.
        """
        statement = privacy or PrivacyStatement.from_dict(content["privacy"])
        fields = {**content.get("diagnostics", {}), **content, "content": content, "privacy": statement}
        result: RunResult = result_adapter().validate_python(fields)
        return result

    @property
    def is_one_level(self) -> bool:
        """Whether only weights are trained, so that x has no coordinates or is the centre of the features."""
        kind = PROBLEMS.get(str(self.problem.get("kind")))
        return self.problem.get("p") == 0 or (kind is not None and kind.one_level)

    def table(self, key: str) -> Mapping[str, Any]:
        """Return a table of `result.json`, which is empty if it does not exist."""
        value = self.content.get(key)
        return value if isinstance(value, Mapping) else {}

    def score(self, name: str) -> float | None:
        """Return a metric of the published values or, if there is none, of the exact lower solution for them."""
        return self.metrics.get(f"{name}_unreleased" if self.solves_lower else name)

    @property
    def judge(self) -> str | None:
        """Name of the main held-out score, the first of `JUDGES` that was measured."""
        return next((name for name in JUDGES if self.score(name) is not None), None)

    @property
    def scores_average(self) -> bool:
        """Whether the scores refer to the average of the final models."""
        return self.evaluated_on == "final_average"

    @property
    def has_model(self) -> bool:
        """Whether training at one level published a model for new records."""
        kind = PROBLEMS.get(str(self.problem.get("kind")))
        return kind is not None and kind.one_level and not self.has_diverged and bool(self.problem.get("features"))

    @property
    def has_diverged(self) -> bool:
        return self.status == "diverged"

    @property
    def problem_type(self) -> ProblemType:
        """Type of the problem. Training at one level has the default type."""
        return TYPES.get(str(self.problem.get("solves")), TYPES["bilevel"])

    @property
    def solves_lower(self) -> bool:
        """Whether only x was published, so that scores refer to an exact lower solution."""
        return self.evaluated_on == "lower_solution"


@cache
def result_adapter() -> TypeAdapter[RunResult]:
    """Build the validator of results only once, because this takes memory and time."""
    return TypeAdapter(RunResult)


def is_complete(folder: Path) -> bool:
    """Return whether a run is complete, even if it was killed while removing its journal."""
    place = folder / IN_PROGRESS
    try:
        content = json.loads(own(folder / RESULT, folder, str(folder)).read_text(encoding="utf-8"))
        status = content["status"]
        begun = first_digest(own(place / JOURNAL, folder, str(folder)))
    except (OSError, ValueError, KeyError, TypeError):
        return not place.is_dir()
    # The journal of a complete run is removed: the result of another run must not end this one.
    return status not in INCOMPLETE and begun in (None, content.get(RUN))


def further_seeds(folder: Path) -> list[Path]:
    """List the folders of complete runs with further seeds, in the order of the seeds."""
    paths = [path for path in (folder / SEEDS_FOLDER).glob("*") if is_complete(own(path, folder, str(folder)))]
    return sorted(paths, key=lambda path: (len(path.name), path.name))


def is_published(folder: Path) -> bool:
    """Return whether a folder contains published models rather than a run."""
    return (folder / STATEMENT).is_file() and not (folder / RESULT).exists()


def require_run_folder(folder: Path, command: str, file_names: Sequence[str], more: Sequence[str] = ()) -> None:
    """Require the folder of a complete run.

    Args:
        folder: run folder.
        command: first word of the error.
        file_names: files that must exist.
        more: further files that are read if they exist.

    Raises:
        InputError: the run is not complete, or a file is missing or changed.
    """
    for name in (*file_names, *more):
        own(folder / name, folder, command)
    require_own_files(folder, read_result(folder), command, file_names, more)


def require_own_files(
    folder: Path, result: RunResult, command: str, file_names: Sequence[str] = (), more: Sequence[str] = ()
) -> None:
    """Require the files of a run folder to be unchanged since the run.

    Digests detect damage and mistakes, not forgery.

    Args:
        folder: folder of a complete run.
        result: result of the run.
        command: first word of the error.
        file_names: files that must exist, in addition to those with digests.
        more: further files that are read if they exist.

    Raises:
        InputError: a file is missing, or has no digest or a different one.
    """
    digests = result.table(FILES)
    for name in sorted({*file_names, *more, *digests} - {RESULT}):
        path = own(folder / name, folder, command)
        missing = (name in file_names or name in digests) and not path.is_file()
        if missing or (path.is_file() and sha256_of_file(path) != digests.get(name)):
            problem = "is missing" if missing else "was changed after the run wrote it"
            raise InputError(f"{command}: {quoted_path(path)} {problem}. Fix: restore it, or run the scenario again.")


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of result.json with the digest of its text as the last key."""
    bare = {key: value for key, value in content.items() if key != DIGEST}
    return {**bare, DIGEST: sha256(text_of(bare).encode()).hexdigest()}


def is_private(folder: Path) -> bool:
    """Return whether only the owner may read the result of a run folder, because its noise is secret."""
    return not (folder / RESULT).stat().st_mode & 0o077


def mode_of(folder: Path) -> int:
    """Return the mode of new files in a run folder."""
    return OWNERS if is_private(folder) else 0o666


def sha256_of_file(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, sha256).hexdigest()


def published_values(
    folder: Path, command: str, variables: Collection[str] | None = None, start: str = "published_"
) -> dict[str, Array]:
    """Read the published values of a run folder, variable → (m, d).

    Args:
        folder: folder of a complete run.
        command: first word of the error.
        variables: variables to read if they exist, default all.
        start: prefix "published_", or "released_" for the last released values.

    Raises:
        InputError: the file cannot be read.
    """
    path = own(folder / "state.npz", folder, command)
    with refuse_damaged(folder, command):
        names = {name.removeprefix(start): name for name in names_in(path, command) if name.startswith(start)}
        arrays = read_arrays(path, command, [name for v, name in names.items() if variables is None or v in variables])
        return {name.removeprefix(start): np.asarray(value, dtype=np.float64) for name, value in arrays.items()}


def refuse_damaged(folder: Path, command: str) -> AbstractContextManager[None]:
    """Convert the errors that occur when a run folder is read to InputError.

    Args:
        folder: run folder, with files that may have been changed.
        command: name of the command that reads the folder.

    Raises:
        InputError: a file cannot be read, or contradicts others.
    """
    problem = f"{command}: {folder} is not a complete run folder"
    return converting(USER_ERRORS, lambda error: f"{problem} ({reason(error)}). Fix: run its scenario again.")


def read_result(folder: Path) -> RunResult:
    """Read the result of a complete run folder.

    Raises:
        InputError: the result cannot be read or was changed, or the run is not complete.
    """
    if not is_complete(folder):
        raise InputError(
            f'{folder}: this run is not complete. Fix: wait until it ends, or resume it with "decentral-dp '
            f'resume {folder}".'
        )
    return read_any_result(folder)


def read_any_result(folder: Path) -> RunResult:
    """Read the result of a run folder, complete or not. See `read_result`."""
    path = own(folder / RESULT, folder, str(folder))
    # A text of another version has no valid digest.
    with suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
        if is_sealed(text := path.read_text(encoding="utf-8")):
            return RunResult.from_json(text)
    problem = "was not written by this version" if path.is_file() else "does not exist"
    raise InputError(f"{path}: the file {problem}. Fix: use the folder of a run, or run the scenario again.")


def is_sealed(text: str) -> bool:
    """Return whether a text is an unchanged result.json of this format, whose last key is the digest of the others."""
    try:
        content = json.loads(text)
        return content.get("format") == FORMAT and text_of(seal(content)) == text
    except (ValueError, AttributeError, RecursionError):
        return False


def text_of(content: Mapping[str, Any]) -> str:
    """Return the text of `result.json` with these keys and values, indented unless there are many agents."""
    agents = (content.get("topology") or {}).get("agents") or 0
    # Indented text is written by Python instead of C, which is slow for many agents.
    return json.dumps(plain(content), indent=2 if agents <= MOST_ENTRIES else None, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Return a JSON value, with NumPy numbers as Python numbers, infinities as "inf" or "-inf", and NaN as None."""
    # Most values are of these types, and large runs have millions.
    kind = type(value)
    if kind is str or kind is int or value is None or (kind is float and math.isfinite(value)):
        return value
    if kind is dict or isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value
