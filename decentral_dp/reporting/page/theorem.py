"""The convergence theorem's conditions, and which of them hold."""

from __future__ import annotations

from decentral_dp.reporting.page.markup import Html, Part, formula, join, tag
from decentral_dp.reporting.text import Json, power_text
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import number


def theorem_section(result: RunResult) -> list[Html]:
    """Which case of the theorem applies, and every condition once, with its margin and the cases that ask for it."""
    theorem = result.theorem
    cases = theorem.get("cases") or []
    if not cases:
        return []
    verdicts = []
    conditions: dict[str, Json] = {}
    for case in cases:
        listed = case.get("conditions") or []
        conditions |= {str(c.get("condition")): c for c in listed}
        failing = sum(not c.get("holds") for c in listed)
        words: Part = f"{failing} of {len(listed)} conditions fail."
        if case.get("holds"):
            words = join(["applies: ", formula(str(case["rate"]))]) if case.get("rate") else "applies."
        verdicts.append(tag("li", tag("strong", f"{case.get('case')}: "), words))
    rows = []
    for name, condition in conditions.items():
        good = bool(condition.get("holds"))
        asking = [any(str(c.get("condition")) == name for c in case.get("conditions") or []) for case in cases]
        marks = [
            tag("td", ("holds" if good else "fails") if a else "", class_="good" if good else "bad") for a in asking
        ]
        rows.append(tag("tr", tag("th", formula(name), scope="row"), tag("td", _margin(condition)), *marks))
    names = ("Condition", "Left − right (must exceed 0)", *(str(case.get("case")) for case in cases))
    heads = tag("tr", *(tag("th", name, scope="col") for name in names))
    return [
        tag("h2", str(theorem.get("name") or "Theorem 4.1")),
        tag(
            "p",
            "Convergence conditions on the exponents of step sizes (v) and noise (ς). They concern the rate that the "
            "paper proves, not privacy: no budget depends on them.",
        ),
        tag("ul", *verdicts),
        tag("div", tag("table", tag("thead", heads), tag("tbody", *rows)), class_="wide", tabindex="0"),
    ]


def _margin(condition: Json) -> str:
    margin = number(condition.get("margin"))
    if margin is None:
        return "–"
    return f"{'+' if margin > 0 else '−' if margin < 0 else ''}{power_text(abs(margin))}"
