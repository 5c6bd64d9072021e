"""The figures of the run folder, inlined with what each shows."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from decentral_dp.reporting.page.markup import Html, tag

CAPTIONS = {
    "losses": "Losses by round, each over the records of all agents. Line: mean over agents; band: lowest to highest.",
    "accuracy": "Accuracy on held-out records by round. Line: mean over agents; band: worst to best agent. Early on, "
    "an average over the last values covers the few there are.",
    "explained": "R² on held-out records by round: 1 is a perfect prediction, 0 (dotted) that of their mean label. "
    "Line: mean over agents; band: worst to best agent.",
    "upper_variable": "What was tuned: the final published x, one place per coordinate. Dot: mean over agents; bar: "
    "lowest to highest agent; dashed, if all places started at one value: where x started. Drawn from released "
    "values alone.",
    "hypergradient": "Norm of the hypergradient at the agents' average x, with the lower level solved there; "
    "zero at a stationary point.",
    "primal": "The value that is minimised, by round.",
    "gradient": "The norm of its gradient, by round.",
    "consensus": "How far the agents lie from their average, per variable. Lower means that they agree.",
    "epsilon": "ε spent up to each round by the agent that spends most, beside target, cap and claim.",
    "noise": "What each release carries: noise scale, and how far one replaced record can move it. "
    "Lines that coincide are drawn as one, with all their names.",
    "topology": "Who talks to whom. Places follow hop counts, or the graph's own coordinates. "
    "Where agents differ in ε or in weight on neighbours, "
    "colour tells.",
}


def figures(folder: Path, *names: str, captions: Mapping[str, str] | None = None) -> list[Html]:
    """Those of the named figures that the folder has, side by side. captions: instead of the usual ones."""
    stated, found = {**CAPTIONS, **(captions or {})}, []
    for name in names:
        path = folder / "plots" / f"{name}.png"
        if path.exists():
            found.append(figure(path.read_bytes(), stated[name]))
    return [tag("div", *found, class_="figures")] if found else []


def figure(png: bytes, caption: str, captioned: bool = True) -> Html:
    """A picture within the page. captioned: whether its caption is printed below it, too."""
    return tag("figure", image(png, alt=caption), *([tag("figcaption", caption)] if captioned else []))


def image(png: bytes, **attributes: str) -> Html:
    """A picture whose bytes stand in the markup. attributes: of `<img>`."""
    data = base64.b64encode(png).decode("ascii")
    return Html(tag("img", src=f"data:image/png;base64,{data}", **attributes).markup.removesuffix("</img>"))
