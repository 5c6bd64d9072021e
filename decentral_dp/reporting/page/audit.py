"""What an audit of the run has shown, beside what is claimed and certified."""

from __future__ import annotations

from decentral_dp.formatting import at_least_text, delta_text, epsilon_text
from decentral_dp.reporting.page.markup import Html, tag
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import number


def audit_section(result: RunResult) -> list[Html]:
    """Nothing where the run was not audited."""
    audit = result.audit
    if not audit:
        return []
    shown, claimed = number(audit.get("shown")) or 0.0, number(audit.get("claimed"))
    confidence = number(audit.get("confidence")) or 0.0
    rows = [
        ("claimed by the paper", "–" if claimed is None else epsilon_text(claimed)),
        ("certified", epsilon_text(number(audit.get("certified")))),
        ("shown by an attack", f"{at_least_text(shown)}, with confidence {100.0 * confidence:g} %"),
    ]
    body = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows]
    delta = delta_text(number(audit.get("delta")) or 0.0)
    sentences = [str(s) for s in audit.get("sentences") or []]
    return [
        tag("h2", "Audit"),
        tag(
            "p",
            f"ε at δ = {delta} of one replaced record, for an observer who sees {_who(str(audit.get('vantage')))}. "
            f"Method: {_how(str(audit.get('method')), audit.get('runs'))}.",
        ),
        tag("div", tag("table", tag("tbody", *body)), class_="wide", tabindex="0"),
        tag("ul", *(tag("li", sentence) for sentence in sentences)),
    ]


def _who(vantage: str) -> str:
    kind, _, agent = vantage.partition(":")
    words = {"everybody": "everything that is sent", "published": "what is published at the end"}
    return words.get(vantage, f"what agent {agent} receives" if kind == "agent" else vantage)


def _how(method: str, runs: object) -> str:
    return "canaries in one run" if method == "one run" else f"{method}, {runs} runs of each of two worlds"
