"""The tables of a study file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, PrivateAttr, ValidationError

from decentral_dp.config.loading import assign, explain, find, parsed, read_toml
from decentral_dp.errors import InputError
from decentral_dp.files.durable import portable_path
from decentral_dp.files.package import versions
from decentral_dp.files.tables import Count, Finite, Line, Positive, Seed, Share, Table, optional
from decentral_dp.reporting.plots.style import Format

Where = dict[str, Any]
PictureName = Annotated[
    str, Field(pattern=r"^[\w-]+$", description="Name of the picture's file: letters, digits, _ and -.")
]


class Variant(Table):
    """A named bundle of changes: another base, keys taken out, keys set."""

    name: str = Field(description="What tables, plots and claims call it.")
    scenario: str | None = optional("Another base scenario, by name or path; the study's if left out.")
    unset: list[str] = Field(
        default=[], description='Keys that are taken out of the scenario, such as "privacy" or "algorithm.z".'
    )
    set: dict[str, Any] = Field(default={}, description="Key of the scenario → value, in every run of this variant.")


class Plot(Table):
    """One picture."""

    name: PictureName
    title: Line = Field(default="", description="Heading of the picture.")
    x: str = Field(
        default="round", description='What is on the horizontal axis: an axis of the grid, "round", or a measured name.'
    )
    y: str | list[str] = Field(description="Measured name on the vertical axis, or several.")
    lines: str | None = optional(
        "Axis whose values are lines of their own. Where x is measured, what else varies at one x has own markers."
    )
    panels: str | None = optional("Axis whose values are panels of their own.")
    points: str | None = optional("Axis whose values are points along a line.")
    log: Literal["", "x", "y", "xy"] = Field(
        default="", description='Which axes are logarithmic: "x", "y", "xy", or "" for none.'
    )
    where: Where = Field(default={}, description="Axis → value, or values, that are drawn; all if left out.")
    x_label: str = Field(default="", description="Words on the horizontal axis; its name if left out.")
    y_label: str = Field(default="", description="Words on the vertical axis; the measured name if left out.")

    @property
    def measures(self) -> list[str]:
        return [self.y] if isinstance(self.y, str) else self.y


class Side(Table):
    """The mean of a measured name over the seeds of the cells where axes have these values."""

    measure: str = Field(description="Measured name whose mean over seeds is taken.")
    where: Where = Field(default={}, description="Axis → value of the runs that count.")
    best: str | None = optional(
        "Axis of whose values the one with the highest mean is taken, as who tunes by these numbers would."
    )
    round: Annotated[int, Field(ge=0)] | None = optional("Round at which it is measured; the last if left out.")


class Claim(Table):
    """A comparison of two means, with a verdict."""

    statement: str = Field(description="The claim in words.")
    left: Side = Field(description="What is compared.")
    compare: Annotated[Literal["less", "greater", "within"], Field(alias="is")] = Field(
        description=(
            '"less": left < factor · right; "greater": left > factor · right; "within": right/factor ≤ left ≤'
            " factor · right."
        )
    )
    right: Side | Finite = Field(description="What it is compared with: another mean, or a number.")
    factor: Positive = Field(default=1.0, description="The factor of the comparison, above 0.")


class Pair(Table):
    """Two variants that are compared seed by seed."""

    name: str = Field(description="What tables and pictures call the comparison.")
    of: str = Field(description="The variant whose gain is asked for.")
    over: str = Field(description="The variant that it is a gain over.")


class Gain(Table):
    """Paired differences between variants, level by level, as a table and a phase diagram."""

    name: PictureName
    title: Line = Field(default="", description="Heading of the picture.")
    measure: str = Field(description="Measured name whose differences are taken.")
    better: Literal["higher", "lower"] = Field(
        default="higher", description='Whether "higher" or "lower" values are a gain.'
    )
    between: Literal["programs", "networks"] = Field(
        default="programs",
        description='What the sides differ in: "programs", on one network, or "networks", of one program.',
    )
    x: str = Field(description="Axis of the grid, of numbers, on the horizontal axis.")
    y: str | None = optional("Axis of the grid, of numbers, on the vertical axis; left out: the gain itself, as lines.")
    pairs: Annotated[list[Pair], Field(min_length=1)] = Field(description="What is compared: one panel, or line, each.")


class Layout(Table):
    """How `table.md` and `table.tex` are laid out; the page has every column."""

    columns: list[str] = Field(
        default=[], description="Measured names that are columns, of those that are measured; all of them if left out."
    )
    pivot: str | None = optional(
        "Axis whose values stand side by side, once for each measured name, instead of below each other."
    )


class Study(Table):
    """A study, complete; see the package's description."""

    title: Line = Field(default="", description="One line, for tables and pictures.")
    description: str = Field(default="", description="What is asked, and how it was set up.")
    scenario: str = Field(description="The base scenario: a shipped name, or a path from the study's folder.")
    kind: Literal["run", "plan"] = Field(
        default="run", description='"run": every scenario is run; "plan": it is only priced.'
    )
    seeds: Count | list[Seed] = Field(default=1, description="Number of seeds (1, 2, …), or their list.")
    confidence: Share = Field(default=0.95, description="Level of the confidence intervals over seeds.")
    rounds: Literal["last", "all"] | list[Count] = Field(
        default="last",
        description=(
            'Rounds whose values are kept, and at which plans are priced, for plots with x = "round" and claims at a '
            'round. "last": the end alone; "all": of runs every round that is evaluated, of plans 1, 2, 5, 10, …; or '
            "a list, of which runs keep those that are evaluated."
        ),
    )
    measure: list[str] = Field(
        default=[],
        description="Measured names that tables show, of `show measures`; those of plots and claims are measured, too.",
    )
    unset: list[str] = Field(default=[], description="Keys that are taken out of every scenario.")
    set: dict[str, Any] = Field(default={}, description="Key of the scenario → value, in every run.")
    grid: dict[str, Any] = Field(
        default={}, description="Axes: key of the scenario → list of values; every combination is run."
    )
    variants: list[Variant] = Field(default=[], description="Named bundles of changes, as one more axis.")
    plots: list[Plot] = Field(default=[], description="Pictures to draw.")
    formats: Annotated[list[Format], Field(min_length=1)] = Field(
        default=["png"], description='Formats of the pictures: "png", "svg" and "pdf"; the page shows "png".'
    )
    width: Annotated[float, Field(ge=2.0, le=20.0)] | None = optional(
        "Width of the pictures in inches, with letters of 8 points, as for a column of a paper (3.3); as a page needs "
        "it if left out."
    )
    height: Annotated[float, Field(ge=0.5, le=20.0)] | None = optional(
        "Height of each panel of the pictures in inches, between its axes; as its width asks for if left out."
    )
    foot: bool = Field(
        default=True,
        description="Whether pictures say at their foot what their points and intervals are; a paper has its caption.",
    )
    interactive: bool = Field(
        default=False,
        description="Whether the page has its pictures to zoom into as well, which adds 5 MB; needs plotly.",
    )
    table: Layout = Field(default_factory=Layout, description="How the tables for a README and a paper are laid out.")
    gains: list[Gain] = Field(default=[], description="Paired differences between variants, with phase diagrams.")
    claims: list[Claim] = Field(default=[], description="Claims to check, each with a verdict.")
    versions: dict[str, str] = Field(
        default={}, description="Versions of the software that wrote a results folder; not read."
    )

    # Where the names of scenario files start: the folder of the study file. What --set changed in the scenarios.
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def seed_list(self) -> list[int]:
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else self.seeds


def load_study(study: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Study:
    """Read and validate a study.

    Args:
        study: a path, a shipped name, or a dict of the same shape.
        overrides: "key=value"; a key of the study ("seeds=2"), or else one of the scenario, set in every cell.

    Raises:
        InputError: one sentence for whatever is wrong.

    Example:
        >>> study = load_study({"scenario": "quadratic", "seeds": 1}, ["seeds=3", "algorithm.rounds=7"])
        >>> study.seed_list, study.set
        ([1, 2, 3], {'algorithm': {'rounds': 7}})
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


def resolved(study: Study, out: Path | None = None) -> str:
    """Print the study as TOML with every default filled in and the versions.

    Args:
        study: as loaded.
        out: the folder that the text is for, from which it names scenario files; without one it names them from the
            study's folder where they lie in it.

    Returns:
        The text.
    """
    content = study.model_dump(exclude_none=True, by_alias=True)
    content["versions"] = versions()
    for table in (content, *content["variants"]):
        candidate = study.folder / Path(table.get("scenario", "")).expanduser()
        if candidate.is_file():
            full, home = candidate.resolve(), study.folder.resolve()
            if out is not None:
                table["scenario"] = portable_path(full, out.resolve())
            elif full.is_relative_to(home):
                table["scenario"] = full.relative_to(home).as_posix()
    return tomli_w.dumps(content)
