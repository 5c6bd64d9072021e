"""The result of a run: what `result.json` holds, with attributes."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import SkipValidation, TypeAdapter

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError, quoted_path
from decentral_dp.files.durable import OWNERS
from decentral_dp.files.regular import names_in, own, read_arrays
from decentral_dp.problems import PROBLEMS
from decentral_dp.simulation.folder.journal_lines import JOURNAL, first_digest
from decentral_dp.simulation.metrics import JUDGES
from decentral_dp.simulation.statement import MOST_ENTRIES, Number, PrivacyStatement
from decentral_dp.user_code import USER_ERRORS, reason

# What a run folder holds while its run is not complete.
IN_PROGRESS = "in_progress"
RESULT = "result.json"
# The format of result.json; another one is refused.
FORMAT = 1
# Keys of result.json: SHA-256 of each file beside it by its name, and of its own text without this key.
FILES, DIGEST = "files", "digest"
# Key of result.json: digest of the first line of the run's journal.
RUN = "run"
# Where the folder of a run has those of the runs that it is judged by.
BASELINES_FOLDER = "baselines"
INCOMPLETE = ("running", "interrupted", "failed")


@dataclass(frozen=True, kw_only=True)
class Communication:
    """What agents send in a run.

    Args:
        messages: one from an agent to one other.
        numbers: in all of these.
        bits: 64 of each number, or what they take compressed.
        by_agent: (m,) messages that each agent sends.
    """

    messages: int
    numbers: int
    bits: int
    by_agent: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RunResult(Mapping[str, Any]):
    """The result of a run, or of a run folder that is read again.

    Args:
        content: all of `result.json` by its keys, which are also the keys of this mapping.
        privacy: the guarantee and its price.
        status: "ok", "diverged" or "budget_reached"; of a run that is not complete "running", "interrupted" or
            "failed". reason: why the run ended early; None where it did not.
        method: the algorithm's name, with every part that is on.
        rounds: that were run. rounds_planned: that were asked for; None where nothing was recorded.
        metrics: name → mean over agents at the last evaluation. evaluated_on: the values that these are of, in words.
        baselines: metric → its value for who always says the commonest class, or the mean label.
        tunes_x: whether x is tuned; False where the lower level alone is solved, at an x that is given.
        unmeasured: which metrics were left out, and why; "" where none was.
        labels_cut: share of the labels that lie outside problem.label_range, and were cut. features_cut: feature →
            share of its values that lie outside problem.scale; those with none are left out.
        clipped: channel → share of the records that its clip cuts at the last values; empty where it was not tried.
        failed_callbacks: a sentence for each callback that failed; empty where none did.
        learning: what says that the run learned little, and what to change; empty where nothing does.
        algorithm: the hyper-parameters as they ran, of a coordinator's program; else empty.
        audit: what an audit of the run has shown; empty where there was none.
        communication: what was sent; None of a trusted coordinator, and of folders of before.

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
    method: str = ""
    engine: str
    rounds: int
    rounds_planned: int
    seconds: Number = None
    metrics: Mapping[str, Number]
    evaluated_on: str = ""
    baselines: Mapping[str, float] = field(default_factory=dict)
    tunes_x: bool = True
    unmeasured: str = ""
    labels_cut: float = 0.0
    features_cut: Mapping[str, float] = field(default_factory=dict)
    clipped: Mapping[str, float] = field(default_factory=dict)
    failed_callbacks: tuple[str, ...] = ()
    learning: tuple[str, ...] = ()
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    audit: Mapping[str, Any] | None = None
    topology: Mapping[str, Any]
    problem: Mapping[str, Any]
    versions: Mapping[str, str]
    communication: Communication | None = None

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)

    def __repr__(self) -> str:
        return f"<RunResult: {self.status}, {self.rounds} rounds, {self.privacy.summary}>"

    def to_json(self) -> str:
        """The text of `result.json`; infinities are "inf" and "-inf", NaN is null."""
        return text_of(seal(self.content))

    @classmethod
    def from_json(cls, text: str) -> RunResult:
        """Read what `to_json` has written.

        Raises:
            ValueError: the text is no result of this format.
        """
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        return cls.from_content(content)

    @classmethod
    def from_content(cls, content: Mapping[str, Any], privacy: PrivacyStatement | None = None) -> RunResult:
        """The result with the keys and values of `result.json`; privacy: its statement, if it is known."""
        statement = privacy or PrivacyStatement.from_dict(content["privacy"])
        known = {**content.get("diagnostics", {}), **content, "content": content, "privacy": statement}
        read: RunResult = result_adapter().validate_python(known)
        return read

    @property
    def is_one_level(self) -> bool:
        """Whether there are weights alone: x has no coordinates, or is the centre of features."""
        kind = PROBLEMS.get(str(self.problem.get("kind")))
        return self.problem.get("p") == 0 or (kind is not None and kind.one_level)

    def table(self, key: str) -> Mapping[str, Any]:
        """A table of `result.json`; empty where there is none."""
        value = self.content.get(key)
        return value if isinstance(value, Mapping) else {}

    def score(self, name: str) -> float | None:
        """One of the metrics, of what was published or else of the exact lower solution there."""
        return self.metrics.get(f"{name}_unreleased" if self.solves_lower else name)

    @property
    def judge(self) -> str | None:
        """The name of the main held-out score, the first of `JUDGES` that was measured."""
        return next((name for name in JUDGES if self.score(name) is not None), None)

    @property
    def has_model(self) -> bool:
        """Whether training at one level published a model for new records."""
        kind = PROBLEMS.get(str(self.problem.get("kind")))
        return kind is not None and kind.one_level and not self.has_diverged and bool(self.problem.get("features"))

    @property
    def has_diverged(self) -> bool:
        return self.status == "diverged"

    @property
    def is_minimax(self) -> bool:
        return bool(self.problem.get("solves") == "minimax")

    @property
    def solves_lower(self) -> bool:
        """Whether x alone was published, so that scores are those of an exact lower solution that nobody sees."""
        metrics = self.metrics
        return "upper_loss" not in metrics and "upper_loss_unreleased" in metrics


@cache
def result_adapter() -> TypeAdapter[RunResult]:
    """Make the validator of results, which takes memory and time once."""
    return TypeAdapter(RunResult)


def is_complete(folder: Path) -> bool:
    """Return whether a run folder has its result. One that was killed while it removed its journal has, too."""
    place = folder / IN_PROGRESS
    try:
        content = json.loads(own(folder / RESULT, folder, str(folder)).read_text(encoding="utf-8"))
        status = content["status"]
        begun = first_digest(own(place / JOURNAL, folder, str(folder)))
    except (OSError, ValueError, KeyError, TypeError):
        return not place.is_dir()
    # The noise key and the journal of a complete run are removed: the result of another run must not end this one.
    return status not in INCOMPLETE and begun in (None, content.get(RUN))


def require_run_folder(folder: Path, what: str, needed: Sequence[str], more: Sequence[str] = ()) -> None:
    """Raise InputError for a folder that is none of a complete run.

    Args:
        folder: to be read.
        what: begins a refusal.
        needed: files that it must have.
        more: files that are read if the run wrote them.
    """
    for name in (*needed, *more):
        own(folder / name, folder, what)
    require_own_files(folder, read_result(folder), what, needed, more)


def require_own_files(
    folder: Path, result: RunResult, what: str, needed: Sequence[str] = (), more: Sequence[str] = ()
) -> None:
    """Refuse a run folder in which a file is missing, or is not the one that the run wrote.

    Digests find damage and mistakes: whoever forges a file can forge its digest.

    Args:
        folder: of a complete run.
        result: that was read from it.
        what: begins a refusal.
        needed: files that must be there, besides those of which the result has digests.
        more: files that are read if they are there.

    Raises:
        InputError: a file that the result lists is missing, or a file has another digest, or none.
    """
    digests = result.table(FILES)
    for name in sorted({*needed, *more, *digests} - {RESULT}):
        path = own(folder / name, folder, what)
        missing = (name in needed or name in digests) and not path.is_file()
        if missing or (path.is_file() and sha256_of_file(path) != digests.get(name)):
            problem = "is missing" if missing else "is not the file that the run wrote"
            raise InputError(f"{what}: {quoted_path(path)} {problem}. Fix: put it back, or run the scenario again.")


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same result.json with the digest of its text, as its last key."""
    bare = {key: value for key, value in content.items() if key != DIGEST}
    return {**bare, DIGEST: sha256(text_of(bare).encode()).hexdigest()}


def is_private(folder: Path) -> bool:
    """Whether only its owner may read the result of a run folder; so it is where the noise is secret."""
    return not (folder / RESULT).stat().st_mode & 0o077


def mode_of(folder: Path) -> int:
    """The mode of files that are written beside the result of a run folder."""
    return OWNERS if is_private(folder) else 0o666


def sha256_of_file(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, sha256).hexdigest()


def published_values(folder: Path, what: str, wanted: Collection[str] | None = None) -> dict[str, Array]:
    """Return what a run folder has of published values: variable → (m, d).

    Args:
        folder: of a complete run.
        what: begins a refusal.
        wanted: the variables that are read, where they are there; default all.

    Raises:
        InputError: its file cannot be read.
    """
    path, start = own(folder / "state.npz", folder, what), "published_"
    with refuse_damaged(folder, what):
        names = {name.removeprefix(start): name for name in names_in(path, what) if name.startswith(start)}
        arrays = read_arrays(path, what, [name for v, name in names.items() if wanted is None or v in wanted])
        return {name.removeprefix(start): np.asarray(value, dtype=np.float64) for name, value in arrays.items()}


@contextmanager
def refuse_damaged(folder: Path, command: str) -> Iterator[None]:
    """Read a run folder inside this: where its files are not what a run writes, one sentence says so.

    Args:
        folder: of a run, which somebody may have changed since.
        command: that reads it.

    Raises:
        InputError: whatever cannot be read, or does not fit together.
    """
    try:
        yield
    except InputError:
        raise
    except USER_ERRORS as error:
        raise InputError(
            f"{command}: {folder} does not hold what a run writes ({reason(error)}). Run its scenario again."
        ) from error


def read_result(folder: Path) -> RunResult:
    """Read the result of a complete run folder.

    Raises:
        InputError: there is none that can be read, it is not what the run wrote, or the run is not complete.
    """
    if not is_complete(folder):
        raise InputError(
            f'{folder}: this run is not complete. Fix: wait for it, or resume it with "decentral-dp resume {folder}".'
        )
    return read_any_result(folder)


def read_any_result(folder: Path) -> RunResult:
    """Read the result of a run folder, complete or not; otherwise as `read_result`."""
    path = own(folder / RESULT, folder, str(folder))
    # No text, and one that no run of this version wrote, are both without a seal.
    with suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
        if is_sealed(text := path.read_text(encoding="utf-8")):
            return RunResult.from_json(text)
    problem = "is not what a run of this version wrote" if path.is_file() else "does not exist"
    raise InputError(
        f"{path}: the file {problem}. Fix: give the folder that a run has written, or run the scenario again."
    )


def is_sealed(text: str) -> bool:
    """Whether a text is that of a result.json, to the letter: its last key is the digest of the others."""
    try:
        return text_of(seal(json.loads(text))) == text
    except (ValueError, AttributeError, RecursionError):
        return False


def text_of(content: Mapping[str, Any]) -> str:
    """The text of `result.json` with these keys and values, indented unless agents are many."""
    agents = (content.get("topology") or {}).get("agents") or 0
    # Indented text is written by Python and not by C: of many agents nobody reads it, and it takes far longer.
    return json.dumps(plain(content), indent=2 if agents <= MOST_ENTRIES else None, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """A JSON value: numpy numbers as Python's, infinities as "inf" or "-inf", NaN as None."""
    # Most values are one of these, and of a hundred thousand agents there are millions.
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
