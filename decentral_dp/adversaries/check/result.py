"""The result of a check: a row for each thing that was tried, the label, and the pair that shows a failure.

A label says what was tried and what was not, so that it can be quoted of a file for as long as the file stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from decentral_dp.errors import InputError
from decentral_dp.simulation.probing.pairs import Replacement
from decentral_dp.simulation.probing.probe import Comparison
from decentral_dp.simulation.result import plain

Verdict = Literal["checked", "failed", "not tried"]
# Components that run in rounds, and those that have a row of their own; of all others nothing is tried.
_IN_ROUNDS, _BY_ROW = ("algorithm", "problem"), ("mechanism", "partition")
# Rows that a label names where they were not tried.
_NAMED_ROWS = ("two worlds", "search")
# Fields of a result that are written as they are.
_FACTS = ("subject", "pairs", "rounds", "of_rounds", "seed", "version", "date", "how")


@dataclass(frozen=True)
class CheckRow:
    """One check. tried: what; pairs: of data sets; ratio: the worst of moved / sensitivity; why: of a failure."""

    name: str
    tried: str
    pairs: int
    verdict: Verdict
    ratio: float | None = None
    why: str = ""


@dataclass(frozen=True, eq=False)
class CheckResult:
    """What was tried on a component, and what was found.

    Args:
        subject: what was checked, and `title` of the scenario that it ran in.
        rows: one for each check. pairs: of neighbouring data sets, in all. seed: of their search.
        version: of decentral_dp. date: of the check, as 2026-01-31.
        rounds: how many were run, from the first on. of_rounds: how many there are.
        case: the first pair that shows a failure, where a pair does. how: to see it again, in words, or None.
        outside: components that are not of the package.
        files: file of Python code → the components that it defines.

    Example:
        >>> import decentral_dp
        >>> decentral_dp.check("ldp_dsbo", pairs=4, rounds=2).subject
        'ldp_dsbo'
    """

    subject: str
    rows: tuple[CheckRow, ...]
    pairs: int
    seed: int
    version: str
    date: str
    rounds: int = 0
    of_rounds: int = 0
    case: Comparison | None = field(default=None, repr=False)
    how: str | None = None
    outside: tuple[str, ...] = ()
    files: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<CheckResult {self.subject!r}: {self.label}>"

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(row.verdict != "failed" for row in self.rows)

    @property
    def label(self) -> str:
        """What may be said afterwards of all that was asked for: what was tried, and what was not."""
        said = "checked" if self.passed else "failed"
        return f"{said} ({self.date}, decentral_dp {self.version}: {self._words((*_IN_ROUNDS, *self.outside))})"

    def label_of(self, components: Sequence[str]) -> str | None:
        """The same of some components, as a file defines them; None where nothing of them was tried and passed."""
        if not self.passed or not any(self._was_tried(one) for one in components):
            return None
        return f"checked ({self.date}, decentral_dp {self.version}: {self._words(components)})"

    def _was_tried(self, component: str) -> bool:
        if component in _IN_ROUNDS:
            return self.rounds > 0 and self.pairs > 0
        return component in _BY_ROW and self._verdict(component) == "checked"

    def _verdict(self, name: str) -> Verdict | None:
        return next((row.verdict for row in self.rows if row.name == name), None)

    def _words(self, components: Sequence[str]) -> str:
        said, rehearsed = [], any(one in _IN_ROUNDS for one in components)
        if rehearsed:
            said.append(f"first {self.rounds} of {self.of_rounds} rounds, {self.pairs} pairs")
        said += [one for one in _BY_ROW if one in components and self._was_tried(one)]
        missed = [one for one in dict.fromkeys(components) if not self._was_tried(one)]
        missed = [one for one in missed if self._verdict(one) != "failed" and (self.rounds or one not in _IN_ROUNDS)]
        missed += [row for row in _NAMED_ROWS if rehearsed and self._verdict(row) == "not tried"]
        return "; ".join([*said, *([f"not: {', '.join(missed)}"] if missed else [])])

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values, but for the pair of a failure and for files; an infinite ratio is the text "inf"."""
        return {
            **{name: plain(getattr(self, name)) for name in (*_FACTS, "outside")},
            "passed": self.passed,
            "label": self.label,
            "rows": [plain(asdict(row)) for row in self.rows],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> CheckResult:
        """What `to_dict` gave. Raises InputError where it is none of a check."""
        try:
            rows = TypeAdapter(tuple[CheckRow, ...]).validate_python(content["rows"])
            return cls(rows=rows, outside=tuple(content["outside"]), **{name: content[name] for name in _FACTS})
        except (KeyError, TypeError, ValidationError) as error:
            why = " ".join(str(error).split())
            raise InputError(f"check: this is no result of a check ({why}); give one that was written.") from None


def save_case(result: CheckResult, path: Path) -> None:
    """Write the pair that shows a failure: plain arrays, and sentences; nothing of it is pickled.

    Raises InputError where no pair shows one.
    """
    case = result.case
    if case is None:
        raise InputError("--out: no pair of data sets shows a failure, so there is none to keep; leave --out out.")
    pair, change = case.pair, case.worst
    agent, split = pair.replacement or Replacement(-1, "train")
    facts = {
        "subject": result.subject,
        "how": result.how,
        "key": pair.key,
        "agent": agent,
        "split": split if pair.replacement is not None else "all records",
        "record": pair.record,
        "channel": "" if change is None else change.channel,
        "round": -1 if change is None else change.round,
        "moved": 0.0 if change is None else change.distance,
        "sensitivity": 0.0 if change is None else change.sensitivity,
        "ratio": 0.0 if change is None else change.ratio,
        "rounds": result.rounds,
        "version": result.version,
    }
    arrays: dict[str, Any] = {key: np.asarray(value) for key, value in facts.items()}
    for world, shards in (("here", pair.here), ("there", pair.there)):
        arrays[f"features_{world}"], arrays[f"labels_{world}"] = shards.features, shards.labels
    for k in range(pair.here.n_agents):
        arrays[f"train/{k}"], arrays[f"validation/{k}"] = pair.here.train[k], pair.here.validation[k]
    arrays |= {f"release/{key}": value for key, value in case.releases.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
