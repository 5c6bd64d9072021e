"""Pages from jinja2 templates: every value is escaped, and no page loads anything.

A template receives the fields of a `Report` and has all texts. Names from files are untrusted: control characters are
written as escape sequences, then the text is escaped. Every ε is rounded up.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from decentral_dp import formatting
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.bounded import SPLITS
from decentral_dp.errors import Stopped, converting, printable
from decentral_dp.files.durable import write_whole
from decentral_dp.files.regular import own
from decentral_dp.reporting import privacy
from decentral_dp.reporting.report import Report, read_report, reason_text
from decentral_dp.simulation.metrics import metric_words
from decentral_dp.simulation.result import mode_of

# A number and its name, or an option: "δ = 1e-5", "0.590 ± 0.02", "--seeds 3".
_UNBROKEN = re.compile(r"((?:\S+ = )?[-−]?\d[\d.]*(?:e[-+]?\d+)?(?: ± [\d.]+)?|--[a-z][-a-z]*(?: \d+)?)")
_NUMERALS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"]
# Largest number of coordinates of x that are listed; more are drawn.
_LISTED_COORDINATES = 4


def draw_run(folder: Path, report: Report | None = None) -> None:
    """Write the figures and the page of a complete run.

    Args:
        folder: folder of the run.
        report: report of the run; by default it is read from the folder.

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
    """Write `folder/report.html` with the figures `plots/*.svg` in it, and return its path.

    Args:
        folder: folder of the run.
        report: report of the run; by default it is read from the folder.

    Raises:
        InputError: `folder` has no readable result.json.
    """
    report = report or read_report(folder)
    result, scenario, x = report.result, report.scenario, report.x
    algorithm = ALGORITHMS.get(str(scenario.get("algorithm", {}).get("kind")))
    # A coordinator's program records its hyper-parameters in the result.
    ran = result.algorithm or scenario.get("algorithm", {})
    settled = ran.get("settled", ran)
    steps = {k: v for k, v in settled.items() if isinstance(v, Mapping) and "scale" in v}
    # A rate of 1 means that no sample is drawn.
    plain = {k: v for k, v in settled.items() if k not in steps and (k, v) != ("rate", 1.0)}
    if "settled" not in ran:
        plain = {k: v for k, v in plain.items() if type(v) in (int, float) and k != "rounds"}
    scales = {k: v for k, v in scenario.get("privacy", {}).items() if isinstance(v, Mapping) and "scale" in v}
    clip = result.privacy.clip
    plots = sorted(own(folder / "plots", folder, "report").glob("*.svg"))
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
        notes=privacy.notes(result.privacy, result.rounds_planned),
        price_kinds=[k for k in SPLITS if any(k in price.price for price in result.privacy.prices)],
        pictures={path.stem: own(path, folder, "report").read_bytes() for path in plots},
        files=sorted(path.name for path in folder.iterdir()),
        algorithm=algorithm,
        kind=str(ran.get("kind") or ""),
        citations=() if algorithm is None else algorithm.citations,
    )
    path = folder / "report.html"
    write_whole(path, markup.encode(), mode_of(folder))
    return path


def run_view(report: Report, figures: Mapping[str, bytes]) -> str:
    """Return the markup of a run for a notebook.

    Args:
        report: report of the run.
        figures: name of a figure → SVG file.
    """
    return render("run_view", **vars(report), figures=figures)


def render(template: str, **values: Any) -> str:
    """Render a template of this package.

    Args:
        template: name of the template without its ending.
        values: values of its variables.
    """
    return _environment().get_template(f"{template}.html.j2").render(values).strip() + "\n"


def unbroken(text: str) -> Markup:
    """Keep every number and every option of a text on one line, even in a narrow column.

    Example:
        >>> print(unbroken("Fix: --seeds 3."))
        Fix: <span class="unbroken">--seeds 3</span>.
    """
    return Markup("").join(
        Markup('<span class="unbroken">{}</span>').format(part) if k % 2 and len(part) > 1 else escape(part)
        for k, part in enumerate(_UNBROKEN.split(printable(text)))
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


_SHAPES = frozenset(("svg", "g", "defs", "clipPath", "path", "rect", "use", "text", "tspan", "image"))
_DRAWING = frozenset(("viewBox", "d", "x", "y", "width", "height", "transform", "style", "clip-path", "id", "href"))
_CALLS = re.compile(r"(?:rotate|scale|translate|matrix)\(|url\(#")
_IMAGE = re.compile(r"#[\w-]+|data:image/png;base64,[\w+/=\s]*")
# The layout is computed with a font of almost the same widths as Verdana.
_FONTS = "'DejaVu Sans', Verdana, sans-serif"


def inline_svg(content: bytes, name: str, label: str) -> Markup:
    """Return an SVG file of matplotlib as an element of a page.

    The file may come from someone else, so only shapes and text are kept, without scripts and addresses.

    Args:
        content: content of the file.
        name: prefix of its identifiers, unique on the page.
        label: text for screen readers.

    Raises:
        InputError: the file is not an SVG file.
    """
    unreadable = f"{name}.svg: cannot be read"
    with converting(ElementTree.ParseError, lambda error: f"{unreadable} ({error}). Fix: draw the figures again."):
        root = ElementTree.fromstring(content)
    prefix = re.sub(r"\W", "_", name)

    def attributes(node: ElementTree.Element, tag: str) -> Iterator[Markup]:
        for key, value in node.items():
            key = key.rpartition("}")[2]
            if key not in _DRAWING or (tag, key) in (("g", "id"), ("svg", "height")):
                continue
            if not _IMAGE.fullmatch(value) if key == "href" else re.search(r"[(\\]", _CALLS.sub("", value)):
                continue
            # The parts of every figure have the same identifiers.
            value = f"{prefix}-{value}" if key == "id" else re.sub(r"(^|\()#", rf"\1#{prefix}-", value)
            yield Markup(' {}="{}"').format(key, " ".join(value.replace("'DejaVu Sans'", _FONTS).split()))

    def element(node: ElementTree.Element) -> Markup:
        tag = node.tag.rpartition("}")[2]
        if tag not in _SHAPES:
            return Markup()
        words = printable(node.text or "") if tag in ("text", "tspan") else ""
        role = Markup(' role="img" aria-label="{}" stroke-linejoin="round"').format(printable(label))
        head = Markup("").join(attributes(node, tag)) + (role if node is root else "")
        # No tag of another kind is in the list, and only text is escaped.
        body = escape(words) + Markup("").join(map(element, node))
        return Markup(f"<{tag}{head}>{body}</{tag}>")

    return element(root)


# Values that differ by a larger factor are drawn on a logarithmic axis, from half of the smallest.
_LINEAR_RANGE = 30.0


def axis_places(values: Sequence[float]) -> list[float]:
    """Return the positions of nonnegative values on an axis, in percent of its length. Infinite values are at its end.

    Example:
        >>> axis_places([0.0, 2.0, math.inf])
        [0.0, 90.0, 100.0]
    """
    positive = [value for value in values if 0.0 < value < math.inf]
    low, high = min(positive, default=1.0), max(positive, default=1.0)
    if high <= _LINEAR_RANGE * low:
        parts = [value / high for value in values]
    else:
        start, end = math.log(low) - math.log(2.0), math.log(high)
        parts = [(math.log(value) - start) / (end - start) if value > 0.0 else 0.0 for value in values]
    return [100.0 if math.isinf(part) else 90.0 * part for part in parts]


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        lstrip_blocks=True,
        # A page is rendered once, and folding constants takes longer than it saves.
        optimized=False,
        # Only markup of templates and of this module is not text.
        finalize=lambda value: printable(value) if isinstance(value, str) and type(value) is not Markup else value,
    )
    functions = vars(formatting) | vars(privacy)
    texts = {name.removesuffix("_text"): f for name, f in functions.items() if name.endswith("_text")}
    made.filters |= texts | {
        "article": formatting.article,
        "anchor": lambda text: text.lower().replace(" ", "-"),
        "axis_places": axis_places,
        "capitalise": formatting.capitalise,
        "graph_noun": formatting.graph_noun,
        "topology_name": formatting.topology_name,
        # At the start of a sentence.
        "agents": lambda n: f"{_NUMERALS[n] if n < len(_NUMERALS) else n} agent{'s' * (n != 1)}",
        "breakable": breakable,
        "formula": formula,
        "inline_svg": inline_svg,
        "reason": reason_text,
        "threat_model": privacy.threat_model,
        "unverified": privacy.unverified_texts,
        "epsilons": privacy.stated_epsilons,
        "metric_words": metric_words,
        "minus": lambda text: str(text).replace("-", "−"),
        "number": lambda value: None if value is None else float(value),
        "unbroken": unbroken,
        "with_formulas": with_formulas,
    }
    return made
