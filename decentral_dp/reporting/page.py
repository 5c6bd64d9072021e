"""Pages from jinja2 templates: every value is escaped, and no page loads anything.

A template gets the fields of a `Report` and holds all texts. Names from files are untrusted: control characters are
written out, then the text is escaped. Every ε is rounded up.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from decentral_dp import formatting
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.bounded import SPLITS
from decentral_dp.errors import Stopped, printable
from decentral_dp.files.durable import write_whole
from decentral_dp.files.regular import own
from decentral_dp.reporting.report import Report, read_report
from decentral_dp.simulation.result import mode_of

# A number and its name: "δ = 1e-5", "0.590 ± 0.02".
_NUMBERS = re.compile(r"((?:\S+ = )?[-−]?\d[\d.]*(?:e[-+]?\d+)?(?: ± [\d.]+)?)")
_NUMERALS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"]
# x of more coordinates is drawn, not listed.
_LISTED_COORDINATES = 4


def draw_run(folder: Path, report: Report | None = None) -> None:
    """Write the figures and the page of a complete run.

    Args:
        folder: of the run.
        report: its content; by default it is read.

    Raises:
        Stopped: interrupted.
        OSError: a file cannot be written.
    """
    # matplotlib is slow to import.
    from decentral_dp.reporting.plots import write_plots

    later = f'The run is complete and in {folder}; "decentral-dp report {folder}" draws its plots and its page.'
    try:
        report = report or read_report(folder)
        write_plots(folder, report=report)
        write_report(folder, report)
    except KeyboardInterrupt:
        raise Stopped(f"Interrupted. {later}") from None
    except OSError as error:
        raise OSError(f"{error}. {later}") from error


def write_report(folder: Path, report: Report | None = None) -> Path:
    """Write `folder/report.html` with the figures `plots/*.png` inlined, and return its path.

    Args:
        folder: of the run.
        report: its content; by default it is read.

    Raises:
        InputError: `folder` holds no readable result.json.
    """
    report = report or read_report(folder)
    result, scenario, x = report.result, report.scenario, report.x
    algorithm = ALGORITHMS.get(str(scenario.get("algorithm", {}).get("kind")))
    # A coordinator's program records its hyper-parameters in the result.
    ran = result.algorithm or scenario.get("algorithm", {})
    settled = ran.get("settled", ran)
    steps = {k: v for k, v in settled.items() if isinstance(v, Mapping) and "scale" in v}
    # A rate of 1 is no sample.
    plain = {k: v for k, v in settled.items() if k not in steps and (k, v) != ("rate", 1.0)}
    if "settled" not in ran:
        plain = {k: v for k, v in plain.items() if type(v) in (int, float) and k != "rounds"}
    scales = {k: v for k, v in scenario.get("privacy", {}).items() if isinstance(v, Mapping) and "scale" in v}
    clip, printed = result.privacy.clip, {text for _, text in report.lines}
    plots = sorted(own(folder / "plots", folder, "report").glob("*.png"))
    markup = render(
        "run",
        **vars(report)
        | {"x": x.reshape(-1).tolist() if x is not None and result.algorithm and x.size <= _LISTED_COORDINATES else []},
        title=result.title or scenario.get("title") or "A run without a title",
        ran=ran,
        steps=steps,
        plain=plain,
        # A channel that reads no record gets no noise.
        noises={k: v for k, v in scales.items() if clip is None or k in clip},
        notes=[(head, items) for head, items in result.privacy.grouped_notes if head not in printed],
        price_kinds=[k for k in SPLITS if any(k in price.price for price in result.privacy.prices)],
        pictures={path.stem: own(path, folder, "report").read_bytes() for path in plots},
        algorithm=algorithm,
        kind=str(ran.get("kind") or ""),
        citations=() if algorithm is None else algorithm.citations,
    )
    path = folder / "report.html"
    write_whole(path, markup.encode(), mode_of(folder))
    return path


def run_view(report: Report, pictures: Iterable[bytes] = ()) -> str:
    """Return the markup of a run for a notebook.

    Args:
        report: of the run.
        pictures: PNG files of figures.
    """
    return render("run_view", **vars(report), pictures=pictures)


def render(template: str, **values: Any) -> str:
    """Render a template of this package.

    Args:
        template: its name without the ending.
        values: of its variables.
    """
    return _environment().get_template(f"{template}.html.j2").render(values).strip() + "\n"


def unbroken(text: str) -> Markup:
    """Keep every number of a text on one line, however narrow its column is."""
    return Markup("").join(
        Markup('<span class="unbroken">{}</span>').format(part) if k % 2 and len(part) > 1 else escape(part)
        for k, part in enumerate(_NUMBERS.split(printable(text)))
    )


def breakable(text: str) -> Markup:
    """Allow a break after an underscore, or after a dot between keys, in a narrow column."""
    return Markup("<wbr>").join(unbroken(part) for part in re.split(r"(?<=_)|(?<=\.)(?=[a-z])", text))


def formula(text: str) -> Markup:
    """Write `_i`, `_(t−1)` and `^-0.5` of a plain text as subscripts and superscripts."""
    parts = re.split(r"([_^])(-?\w+(?:\.\w+)?|\([^()]*\))", printable(text))
    marks = [escape(parts[0])]
    for sign, mark, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        element = Markup("<sub>{}</sub>") if sign == "_" else Markup("<sup>{}</sup>")
        marks += [element.format(mark.strip("()").replace("-", "−")), escape(rest)]
    return Markup('<span class="formula">{}</span>').format(Markup("").join(marks))


def with_formulas(sentence: str) -> Markup:
    """Write the words of a sentence that are formulas, such as ∇_y, as `formula` does."""
    words = (formula(word) if re.search("[_^]", word) else escape(printable(word)) for word in sentence.split(" "))
    return Markup(" ").join(words)


def _margin(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{formatting.power_text(abs(value))}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        lstrip_blocks=True,
        # Only markup of templates and of this module is no text.
        finalize=lambda value: printable(value) if isinstance(value, str) and type(value) is not Markup else value,
    )
    texts = {name.removesuffix("_text"): f for name, f in vars(formatting).items() if name.endswith("_text")}
    made.filters |= texts | {
        "article": formatting.article,
        "capitalise": formatting.capitalise,
        "graph_noun": formatting.graph_noun,
        "sentence": formatting.sentence,
        "topology_name": formatting.topology_name,
        # At the start of a sentence.
        "agents": lambda n: f"{_NUMERALS[n] if n < len(_NUMERALS) else n} agent{'s' * (n != 1)}",
        "breakable": breakable,
        "data_uri": lambda png: Markup(f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"),
        "formula": formula,
        "margin": _margin,
        "minus": lambda text: str(text).replace("-", "−"),
        "number": lambda value: None if value is None else float(value),
        "unbroken": unbroken,
        "with_formulas": with_formulas,
    }
    return made
