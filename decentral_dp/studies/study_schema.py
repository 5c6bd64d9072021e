"""The tables of a study file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from decentral_dp.errors import InputError
from decentral_dp.scenario import assign, explain, find, parsed, read_toml
from decentral_dp.schema import Count, Finite, Positive, Seed, Share, Table

Where = dict[str, Any]


class Variant(Table):
    """A named bundle of changes: another base, keys taken out, keys set."""

    name: str
    scenario: str | None = None
    unset: list[str] = []
    set: dict[str, Any] = {}


class Plot(Table):
    """One picture. x: an axis, "round", or a measured name; y: measured names; the rest: axes."""

    name: Annotated[str, Field(pattern=r"^[\w-]+$")]
    title: str = ""
    x: str = "round"
    y: str | list[str]
    lines: str | None = None
    panels: str | None = None
    points: str | None = None
    log: Literal["", "x", "y", "xy"] = ""
    where: Where = {}
    x_label: str = ""
    y_label: str = ""

    @property
    def measures(self) -> list[str]:
        return [self.y] if isinstance(self.y, str) else self.y


class Side(Table):
    """The mean of a measured name over the seeds of the cells where axes have these values.

    best: an axis; of its values that with the highest mean, as who tunes by these very numbers would take it.
    """

    measure: str
    where: Where = {}
    best: str | None = None
    round: Annotated[int, Field(ge=0)] | None = None


class Claim(Table):
    """left < factor · right ("less"), left > factor · right ("greater"), right/factor ≤ left ≤ factor · right."""

    statement: str
    left: Side
    compare: Annotated[Literal["less", "greater", "within"], Field(alias="is")]
    right: Side | Finite
    factor: Positive = 1.0


class Study(Table):
    """A study, complete; see the package's description."""

    title: str = ""
    description: str = ""
    scenario: str
    kind: Literal["run", "plan"] = "run"
    seeds: Count | list[Seed] = 1
    confidence: Share = 0.95
    rounds: Literal["last", "all"] | list[Count] = "last"
    measure: list[str] = []
    unset: list[str] = []
    set: dict[str, Any] = {}
    grid: dict[str, Any] = {}
    variants: list[Variant] = []
    plots: list[Plot] = []
    claims: list[Claim] = []
    versions: dict[str, str] = {}

    # Where the names of scenario files start: the folder of the study file. What --set changed in the scenarios.
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def seed_list(self) -> list[int]:
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else self.seeds


def load_study(study: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Study:
    """Read and validate a study: a path, a shipped name, or a dict of the same shape.

    overrides: "key=value"; a key of the study ("seeds=2"), or else one of the scenario, set in every cell.
    Raises InputError with one sentence for whatever is wrong.
    """
    if isinstance(study, Mapping):
        folder, content = Path.cwd(), dict(study)
    else:
        path = find(str(study), "study")
        folder, content = path.resolve().parent, read_toml(path, "study")
    for override in overrides:
        keys, value = parsed(override)
        own = keys[0] in Study.model_fields
        content = assign(content, keys if own else ["set", *keys], value)
    try:
        loaded = Study.model_validate(content)
    except ValidationError as error:
        raise InputError(explain(error, Study)) from None
    loaded._folder = folder
    return loaded
