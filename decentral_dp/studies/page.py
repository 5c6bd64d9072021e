"""A finished study, its page, and its view in a notebook.

The page is one file with the study's tables, which can be sorted, its pictures, and the verdicts on its claims. The
pictures are drawn once more as narrow as the screen of a telephone.
A notebook shows how many cells failed, the claims, the means and two pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from decentral_dp.reporting.markup import Html, document, figure, picture, tag, unbroken
from decentral_dp.reporting.plots.style import picture_of
from decentral_dp.reporting.tables import html
from decentral_dp.studies.gains import gain_figures, gain_words
from decentral_dp.studies.measures import GUARANTEES, LINEAR
from decentral_dp.studies.plots import (
    study_figures,
)
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import Axis, Study, to_toml
from decentral_dp.studies.tables import (
    FAILED,
    THREAT_MODEL,
    Measured,
    different_threat_models,
    failures,
    failures_text,
    study_table,
)
from decentral_dp.studies.verdicts import HOLDS, REFUTED, Verdict


@dataclass(frozen=True, repr=False)
class Findings:
    """A finished study.

    Args:
        study: as it was conducted.
        axes: what varied.
        results: cell, seed, one column per axis, round, last, name, value.
        summary: n, mean, low, high per combination.
        cells: guarantee, δ, status and reason of each.
        verdicts: one for each claim.
        computed: how many cells were not there before.
        warnings: what of the study came to nothing, one sentence each.
        folder: where tables and pictures are, None where nothing was kept.
        gains: paired differences of variants, a row for every pair and level, with a verdict.

    Example:
        >>> import decentral_dp
        >>> grid = {"algorithm.rounds": [1, 2]}
        >>> grid = {"scenario": "quadratic", "kind": "plan", "measure": ["rounds"], "grid": grid}
        >>> decentral_dp.study(grid, workers=1)
        <Findings '': 2 of 2 cells ended ok>
    """

    study: Study
    axes: Sequence[Axis]
    results: pd.DataFrame
    summary: pd.DataFrame
    cells: pd.DataFrame
    verdicts: Sequence[Verdict]
    computed: int
    warnings: Sequence[str]
    folder: Path | None
    gains: pd.DataFrame

    @property
    def measurements(self) -> Measured:
        """What tables and pictures are of."""
        return Measured(self.study, self.axes, self.summary, self.cells)

    @property
    def gain_sentences(self) -> list[tuple[str, list[str]]]:
        """Of every gain its title, and for each of its pairs where it begins to pay, or that it does nowhere here."""
        return [(gain.title or gain.name, gain_words(gain, self.gains)) for gain in self.study.gains]

    @property
    def failed(self) -> pd.DataFrame:
        """The cells that were refused, that diverged, or that broke down, each with its sentence."""
        return self.cells[~self.cells["status"].isin(GOOD)]

    def __repr__(self) -> str:
        ended = len(self.cells) - len(self.failed)
        return f"<Findings {self.study.title!r}: {ended} of {len(self.cells)} cells ended ok>"

    def _repr_html_(self) -> str:
        return study_view(self)


# What a cell without a mean looks like.
_MARKS = {FAILED: "bad"}
# A picture so much wider than high has panels side by side, and the whole width of the page.
_WIDE_RATIO = 1.6


def study_page(
    findings: Findings,
    plots: Path,
    notes: Sequence[str],
    captions: Mapping[str, str],
    narrow: Mapping[str, bytes],
) -> str:
    """Write the page of a study; it loads nothing from anywhere.

    Args:
        findings: the finished study.
        plots: folder of its pictures.
        notes: what is taken on the author's word, cell after cell.
        captions: name of a picture → what has to be said of it.
        narrow: name of a picture → the same for a narrow screen.
    """
    study, cells, table = findings.study, findings.cells, study_table(findings.measurements)
    named = [(gain.name, gain.title) for gain in study.gains] + [(plot.name, plot.title) for plot in study.plots]
    pictures = [
        _picture(path.read_bytes(), title or name, captions.get(name, ""), narrow.get(name))
        for name, title in named
        if (path := plots / f"{name}.png").exists()
    ]
    sections = [
        tag("header", tag("h1", study.title or "Study"), tag("p", study.description.strip(), class_="lead")),
        *failures_note(cells),
        *(tag("p", warning, class_="note warn") for warning in findings.warnings),
        tag("dl", *_tiles(study, cells), class_="tiles"),
        *_guarantee(study, cells, notes),
        *_gains(findings.gain_sentences),
        *claims_section(findings.verdicts),
        *([tag("h2", "Pictures"), tag("div", *pictures, class_="figures")] if pictures else []),
        tag("h2", "Means at the end"),
        tag("div", html(table, "sortable", _MARKS), class_="wide"),
        tag("p", table.note, class_="small"),
        tag("h2", "Study"),
        tag("details", tag("summary", "The study, fully resolved"), tag("pre", to_toml(study))),
        tag("p", "Beside this page: every value and mean, as Parquet and CSV."),
    ]
    return document(study.title or "Study", sections, sortable=True)


def _picture(png: bytes, title: str, caption: str, narrow: bytes | None) -> Html:
    """A picture, on a narrow screen the one that was drawn for it."""
    wide, high = (int.from_bytes(png[k : k + 4]) for k in (16, 20))  # as a PNG begins
    look = "fitted across" if wide > _WIDE_RATIO * high else "fitted"
    return tag("figure", picture(png, title, narrow), *([tag("figcaption", caption)] if caption else []), class_=look)


def _tiles(study: Study, cells: pd.DataFrame) -> list[Html]:
    ok = int(cells["status"].isin(GOOD).sum())
    named = [("Cells", len(cells)), ("Ended ok", ok), ("Failed", len(cells) - ok), ("Seeds", len(study.seed_list))]
    return [tag("div", tag("dt", name), tag("dd", value), class_="tile") for name, value in named]


def _guarantee(study: Study, cells: pd.DataFrame, notes: Sequence[str]) -> list[Html]:
    """What every ε of the study is, that runs with seeds are simulations, and what rests on an author's word."""
    counts = [(words, int((cells["guarantee"] == name).sum())) for name, words in GUARANTEES.items()]
    kinds = "; ".join(f"{words}: {n} {'cell' if n == 1 else 'cells'}" for words, n in counts if n)
    linear = any(measure.startswith(LINEAR) for measure in study.measure)
    unsound = " Not so the linear columns: they are no bound for training." if linear else ""
    blocks = [tag("h2", "Guarantee"), tag("p", f"{kinds[:1].upper()}{kinds[1:]}.{unsound}")] if kinds else []
    for column, texts in different_threat_models(cells).items():
        each = "; ".join(f"{text}: {int((cells[column] == text).sum())} cells" for text in texts)
        blocks.append(tag("p", tag("strong", f"Different {THREAT_MODEL[column]}: do not compare ε. "), f"{each}."))
    if study.kind == "run" and cells["guarantee"].isin(["certified", "as_printed"]).any():
        words = (
            "every cell has a recorded seed. Whoever knows it can subtract the noise, so these outputs protect nobody. "
            "Every certified ε here is what the same run costs when its noise is secret, which it is when the scenario "
            "states no seed."
        )
        blocks.append(tag("p", tag("strong", "These are simulations: "), words, class_="note warn"))
    # As the study names its files, and not where its author keeps them.
    distinct = dict.fromkeys(note.replace(f"{study.folder}/", "") for note in notes)
    return [*blocks, *([tag("ul", *(tag("li", note) for note in distinct))] if distinct else [])]


def failures_note(cells: pd.DataFrame) -> list[Html]:
    """A note with every reason for which cells failed."""
    kinds = failures(cells)
    if not kinds:
        return []
    reasons = [
        tag("li", f"{kind.cells} × {kind.sentence}{'' if kind.is_uniform else ' (for example)'}") for kind in kinds
    ]
    return [tag("div", tag("strong", failures_text(cells)), tag("ul", *reasons), class_="note bad")]


def _gains(gains: Sequence[tuple[str, Sequence[str]]]) -> list[Html]:
    """Where each pair begins to pay."""
    blocks = [
        tag("div", tag("p", tag("strong", title)), tag("ul", *(tag("li", one) for one in sentences)))
        for title, sentences in gains
    ]
    return [tag("h2", "Gains"), *blocks] if blocks else []


def claims_section(verdicts: Sequence[Verdict]) -> list[Html]:
    """A table of claims with their verdicts; nothing without claims."""
    if not verdicts:
        return []
    # What is undecided is neither good nor bad.
    marks = {HOLDS: "good", REFUTED: "bad"}
    rows = [
        tag(
            "tr",
            tag("td", v.statement),
            tag("td", v.description, class_=marks.get(v.outcome, "")),
            tag("td", unbroken(v.numbers)),
        )
        for v in verdicts
    ]
    heads = [tag("th", head) for head in ("Claim", "Verdict", "Least certain comparison")]
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="words claims")
    return [tag("h2", "Claims"), tag("div", table, class_="wide")]


# More pictures are on the page of the study's folder.
_MOST_PICTURES = 2


def study_view(findings: Findings) -> str:
    """Markup of a finished study."""
    study, cells, table = findings.study, findings.cells, study_table(findings.measurements)
    ok = int(cells["status"].isin(GOOD).sum())
    parts = [
        tag("h4", study.title or "Study"),
        tag("p", f"{ok} of {len(cells)} cells ended ok; seeds: {len(study.seed_list)}."),
        *failures_note(cells),
        *(tag("p", warning) for warning in findings.warnings),
        *claims_section(findings.verdicts),
        html(table, "sortable", _MARKS),
        tag("p", tag("small", table.note)),
    ]
    few = study.model_copy(update={"plots": study.plots[:_MOST_PICTURES]})
    titles = {plot.name: plot.title or plot.name for plot in few.plots}
    drawn = _pictures(findings.measurements._replace(study=few))
    pictures = [figure(png, titles[name], captioned=False) for name, png in drawn.items()]
    return tag("div", *parts, *pictures).markup


# Inches: on a screen of 390 points letters then have their own size.
_WIDTH = 3.7
# A study whose pictures are no wider has them already.
_NARROW_ENOUGH = 4.2


def narrow_pictures(measured: Measured, gains: pd.DataFrame) -> dict[str, bytes]:
    """Draw the pictures of a study with their panels below each other.

    Args:
        measured: of a study with its plots and gains.
        gains: of `gain_table`.

    Returns:
        Name of a picture → PNG; nothing where the pictures are narrow themselves.
    """
    width = measured.study.width
    if width is not None and width <= _NARROW_ENOUGH:
        return {}
    narrow = measured.study.model_copy(update={"width": _WIDTH})
    return _pictures(measured._replace(study=narrow), gains)


def _pictures(measured: Measured, gains: pd.DataFrame | None = None) -> dict[str, bytes]:
    """Name → PNG of every picture that has numbers, those of gains where these are given."""
    images = {name: picture_of(figure) for name, figure in study_figures(measured)}
    if gains is not None:
        images |= {name: picture_of(figure) for name, figure in gain_figures(measured.study, gains, measured.cells)}
    return images
