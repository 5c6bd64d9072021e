"""What a check of a component found, and the pair of data sets that shows a failure, kept in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from decentral_dp.adversaries.extreme_pairs import Pair, Tried
from decentral_dp.errors import InputError
from decentral_dp.simulation.probing.rehearsal import Replaced

Verdict = Literal["checked", "failed", "not tried"]
# Components that run in rounds, and those that have a row of their own; of all others nothing is tried.
_IN_ROUNDS, _BY_ROW = ("algorithm", "problem"), ("mechanism", "partition")
# Rows that a label names where they were not tried.
_NAMED_ROWS = ("two worlds", "search")


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
class Case:
    """A pair of data sets that shows a failure, and what it shows. moved: None where something left without noise."""

    pair: Pair
    shown: Tried
    how: str


@dataclass(frozen=True, eq=False)
class CheckResult:
    """What was tried on a component, and what was found.

    Args:
        subject: what was checked, and `title` of the scenario that it ran in.
        rows: one for each check. pairs: of neighbouring data sets, in all. seed: of their search.
        version: of decentral_dp. date: of the check, as 2026-01-31.
        rounds: how many were run, from the first on. of_rounds: how many there are.
        case: the first pair that shows a failure, where a pair does.
        outside: components that are not of the package.
        files: file of Python code → the components that it defines.
    """

    subject: str
    rows: tuple[CheckRow, ...]
    pairs: int
    seed: int
    version: str
    date: str
    rounds: int = 0
    of_rounds: int = 0
    case: Case | None = field(default=None, repr=False)
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
        """The same as JSON values; a ratio that is infinite is the text "inf"."""
        rows = [
            {
                "name": row.name,
                "tried": row.tried,
                "pairs": row.pairs,
                "verdict": row.verdict,
                "ratio": row.ratio if row.ratio is None or np.isfinite(row.ratio) else "inf",
                "why": row.why,
            }
            for row in self.rows
        ]
        return {
            "subject": self.subject,
            "passed": self.passed,
            "label": self.label,
            "pairs": self.pairs,
            "rounds": self.rounds,
            "of_rounds": self.of_rounds,
            "seed": self.seed,
            "version": self.version,
            "date": self.date,
            "how": None if self.case is None else self.case.how,
            "rows": rows,
        }


def save_case(found: CheckResult, path: Path) -> None:
    """Write the pair that shows a failure: plain arrays, and sentences; nothing of it is pickled.

    Raises InputError where no pair shows one.
    """
    if found.case is None:
        raise InputError("--out: no pair of data sets shows a failure, so there is none to keep; leave --out out.")
    pair, shown = found.case.pair, found.case.shown
    moved = shown.worst
    replaced = pair.replaced if pair.replaced is not None else Replaced(-1, "train")
    facts = {
        "subject": found.subject,
        "how": found.case.how,
        "key": pair.key,
        "agent": replaced.agent,
        "split": replaced.split if pair.replaced is not None else "all records",
        "record": pair.record,
        "channel": "" if moved is None else moved.channel,
        "round": -1 if moved is None else moved.round,
        "moved": 0.0 if moved is None else moved.moved,
        "sensitivity": 0.0 if moved is None else moved.stated,
        "ratio": 0.0 if moved is None else moved.ratio,
        "rounds": found.rounds,
        "version": found.version,
    }
    arrays: dict[str, Any] = {key: np.asarray(value) for key, value in facts.items()}
    for world, shards in (("here", pair.here), ("there", pair.there)):
        arrays[f"features_{world}"], arrays[f"labels_{world}"] = shards.features, shards.labels
    for agent in range(pair.here.n_agents):
        arrays[f"train/{agent}"], arrays[f"validation/{agent}"] = pair.here.train[agent], pair.here.validation[agent]
    arrays |= {f"release/{key}": value for key, value in shown.releases.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
