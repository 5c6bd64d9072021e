"""What was run and what came out, where agents trust a coordinator, who publishes one value for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decentral_dp.bounded import Array
from decentral_dp.reporting.page.markup import Html, Part, formula, join, tag
from decentral_dp.reporting.page.settings import settings_text
from decentral_dp.reporting.page.trusted import topology_text
from decentral_dp.reporting.text import Json, capitalised, power_text
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import PrivacyStatement, number
from decentral_dp.user_code import own_name

# How a mechanism is called in a sentence.
_MECHANISMS = {
    "gaussian": "Gaussian noise",
    "laplace": "Laplace noise",
    "exponential": "a random choice by an exponential mechanism",
    "uncertified": "a random choice of which nothing is proven",
}
# Beyond so many coordinates x is drawn, not listed.
LISTED_COORDINATES = 4


def rows(result: RunResult, scenario: Json, counts: str) -> list[tuple[str, Part]]:
    """The facts of the run as (name, what); counts: of records."""
    problem, privacy, ran = result.problem, result.privacy, result.algorithm
    stated, settled = scenario.get("privacy") or {}, ran.get("settled") or {}
    steps = {k: v for k, v in settled.items() if isinstance(v, Mapping)}
    # A share of 1 is no sample.
    rest = {k: v for k, v in settled.items() if k not in steps and (k, v) != ("rate", 1.0)}
    plain = {k: v if isinstance(v, str) else power_text(v) for k, v in rest.items()}
    noisy = privacy.is_noisy
    return [
        ("Problem", " · ".join(str(v) for v in (problem.get("kind"), problem.get("data")) if v)),
        ("Dimensions", f"x: {problem['p']}, y: {problem['q']}" if "p" in problem and "q" in problem else ""),
        ("Records", counts),
        ("Topology", capitalised(topology_text(result)).rstrip(".")),
        ("Algorithm", " · ".join(str(v) for v in (own_name(str(ran.get("kind") or "")), privacy.protocol) if v)),
        ("Step sizes", join([_step(k, v) for k, v in steps.items()], ", ") if steps else ""),
        ("Settings", settings_text(plain)),
        ("Left out", left_out_text(ran, rest)),
        ("Domain of x", domain_text(ran.get("domain"), int(problem.get("p") or 0))),
        ("Start", start_text(ran.get("start")) if not draws_x(privacy) else ""),
        ("Releases", releases_text(privacy)),
        ("Noise", noise_text(privacy, stated) if noisy else "none"),
        ("Clip per record", settings_text(_short(privacy.clip))),
        ("Constants", constants_text(privacy)),
        ("Evaluated on", result.evaluated_on),
        ("Versions", settings_text(result.versions)),
    ]


def constants_text(privacy: PrivacyStatement) -> str:
    """Where the bounds on one record come from."""
    return {
        "analytic": "analytic: theorems about this problem, for all records of bounded length",
        "declared": "declared: nobody has proven or checked them",
    }.get(str(privacy.constants), "")


def noise_text(privacy: PrivacyStatement, stated: Json) -> str:
    """How noise comes in, and what it was fitted to."""
    names = [_MECHANISMS.get(name, name) for name in privacy.mechanisms]
    asked = number(stated.get("epsilon"))
    if asked is None:
        return capitalised(" and ".join(names))
    fitted = f"as the paper calibrates it for ε = {power_text(asked)}"
    if privacy.guarantee == "certified":
        fitted = f"as much as ε = {power_text(asked)} needs over all planned rounds"
    return capitalised(f"{' and '.join(names)}, {fitted}")


def releases_text(privacy: PrivacyStatement) -> str:
    """ "y: 50 of 30 numbers; gx: 10 of 1 number"."""
    stated = [
        f"{p.channel}: {p.releases} of {p.width} {'number' if p.width == 1 else 'numbers'}" for p in privacy.prices
    ]
    free = list(privacy.free_channels)
    stated += [f"{', '.join(free)}: no record read"] if free else []
    return "; ".join(stated)


def domain_text(domain: object, p: int) -> str:
    if not isinstance(domain, Mapping):
        return ""
    kind = domain.get("kind")
    if kind == "box":
        ends = f"{domain.get('low'):g} to {domain.get('high'):g}".replace("-", "−")
        return f"interval from {ends}" if p == 1 else f"box, every coordinate from {ends}"
    return f"ball of radius {domain.get('radius'):g} around 0" if kind == "ball" else "simplex"


def draws_x(privacy: PrivacyStatement) -> bool:
    """Whether x is itself a release, drawn at random, so that it starts nowhere."""
    return any(p.channel in ("x", "x0") for p in privacy.prices)


def start_text(start: object) -> str:
    """ "x = −2, y = 0"."""
    if not isinstance(start, Mapping):
        return ""
    stated = [
        f"{k} = {v:g}".replace("-", "−") if v is not None else f"{k} as the problem says" for k, v in start.items()
    ]
    return ", ".join(stated)


def _step(variable: str, step: Mapping[str, float]) -> Html:
    fall = f"/(t+1)^{step['decay']:g}" if step.get("decay") else ""
    return join([formula(f"λ_{variable}"), " = ", power_text(step["scale"]), formula(fall)])


def left_out_text(ran: Json, shown: Json) -> str:
    """Which of the settings that are shown the scenario leaves out."""
    settled = ran.get("settled") or {}
    names = [n for n in ran.get("left_out") or [] if n in shown or isinstance(settled.get(n), Mapping)]
    return f"{', '.join(map(str, names))}: by default, or from public facts" if names else ""


def score(result: RunResult, before: str) -> str:
    """The end of the first sentence."""
    ending = "_unreleased" if result.solves_lower else ""
    of = f" of the {result.evaluated_on}" if ending else ""
    accuracy, loss = result.metric(f"test_accuracy{ending}"), result.metric(f"upper_loss{ending}")
    if (auc := result.metric("test_auc")) is not None:
        return f"; held-out AUC {auc:.3f}{before}"
    if accuracy is not None:
        return f"; held-out accuracy {accuracy:.2f}{of}{before}"
    if (explained := result.metric(f"test_r2{ending}")) is not None:
        return f"; held-out R² {explained:.2f}{of}{before}"
    return f"; upper loss {power_text(loss)}{of}{before}" if loss is not None else ""


def score_tile(result: RunResult, diverged: bool) -> list[tuple[str, str, str]]:
    """Held-out AUC, accuracy or R², where there is one."""
    ending = "_unreleased" if result.solves_lower else ""
    note = "at the last evaluation before it diverged" if diverged else f"of the {result.evaluated_on}"
    if (auc := result.metric("test_auc")) is not None:
        return [("Held-out AUC", f"{auc:.3f}", note)]
    for name, words in (("test_accuracy", "Held-out accuracy"), ("test_r2", "Held-out R²")):
        if (value := result.metric(f"{name}{ending}")) is not None:
            return [(words, f"{value:.2f}", note)]
    return []


def published_text(x: Array | None, result: RunResult) -> list[Html]:
    """The published x, where it is short; (1, p)."""
    if x is None or not 0 < x.size <= LISTED_COORDINATES:
        return []
    values = ", ".join(power_text(float(v)).replace("-", "−") for v in x.reshape(-1))
    ran = result.algorithm
    start, where = number((ran.get("start") or {}).get("x")), domain_text(ran.get("domain"), x.size)
    stated = f"x = {values}" if x.size == 1 else f"x = ({values})"
    if start is not None and not draws_x(result.privacy):
        stated += f", from a start at {start:g}".replace("-", "−")
    stated += f", in the {where}" if where else ""
    return [tag("p", tag("strong", "Published: "), f"{stated}.")]


def _short(clip: Any) -> Any:
    """Bounds to four digits: those that follow from constants have seventeen."""
    return {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in clip.items()} if isinstance(clip, dict) else clip
