"""Number formats of the terminal, pages and figures. Every ε is rounded up, every lower bound on ε is rounded down."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

from decentral_dp.user_code import in_module

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


# Lower bounds from here on have two digits.
_LARGE = 1e4


def agent_names(labels: Sequence[Any] | None) -> tuple[str, ...]:
    """Return the names of the agents, or an empty tuple if the names are their numbers.

    Args:
        labels: names of agents 0, 1, …, from `result.json`.

    Example:
        >>> agent_names(["Bern", "Zug"]), agent_names(["0", "1"]), agent_names(None)
        (('Bern', 'Zug'), (), ())
    """
    names = tuple(map(str, labels or ()))
    return () if all(name in (str(k), f"{k}.0") for k, name in enumerate(names)) else names


def cut_name(name: str) -> str:
    """Shorten a name to 18 characters.

    Example:
        >>> cut_name("Zurich"), cut_name("University Hospital")
        ('Zurich', 'University Hospit…')
    """
    return name if len(name) <= 18 else f"{name[:17]}…"


def epsilon_text(value: float | None) -> str:
    """Write ε rounded up, with two decimals, or with three digits if it is small.

    Args:
        value: value of ε, or None or NaN if there is none.

    Returns:
        The number, "∞", "0", or "–".

    Example:
        >>> epsilon_text(0.1234), epsilon_text(0.9999), epsilon_text(2.0001), epsilon_text(2.2)
        ('0.124', '1.00', '2.01', '2.20')
        >>> epsilon_text(0.000123), epsilon_text(math.inf), epsilon_text(None)
        ('1.23·10⁻⁴', '∞', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if value <= 0:
        return "0"
    exact = Decimal(repr(float(value)))  # The digits of result.json: Decimal(2.2) would become 2.21.
    if value < 1e-3 or value >= 1e5:
        quantized = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 2), rounding=ROUND_CEILING)
        return f"{quantized.scaleb(-quantized.adjusted()):.2f}·10{str(quantized.adjusted()).translate(SUPERSCRIPTS)}"
    digits = 1 if value >= 1000 else 2 if value > 0.999 else 2 - exact.adjusted()
    return str(exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING))


def at_least_text(value: float) -> str:
    """Write a lower bound on ε rounded down, with two decimals, or with two digits if it is large.

    Args:
        value: lower bound on ε.

    Returns:
        The number after "≥", or "∞".

    Example:
        >>> at_least_text(3.9999), at_least_text(0.0), at_least_text(1.09e5), at_least_text(math.inf)
        ('≥ 3.99', '≥ 0', '≥ 1.0e+05', '∞')
    """
    if value == math.inf:
        return "∞"
    if value >= _LARGE:
        size = 10.0 ** (math.floor(math.log10(value)) - 1)
        return f"≥ {math.floor(value / size) * size:.1e}"
    return "≥ 0" if value <= 0.0 else f"≥ {math.floor(value * 100.0) / 100.0:.2f}"


def delta_text(value: float | None) -> str:
    """Write δ, in exponent form without a leading zero (1e-5, not 1e-05) if it is below 0.01; "–" for None.

    Example:
        >>> delta_text(1e-5), delta_text(0.00015), delta_text(0.02)
        ('1e-5', '1.5e-4', '0.02')
    """
    if value is None or not 0.0 < value < 0.01:
        return "–" if value is None else f"{value:g}"
    digits, exponent = f"{value:.5e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


def cost_text(costs: Sequence[float] | None, unit: str) -> str:
    """Write the lowest and highest privacy cost of a release, rounded up.

    Args:
        costs: lowest and highest privacy cost, or None.
        unit: unit of the cost, "ε" or "μ".

    Returns:
        Text such as "μ 0.17" or "ε 0.5 to 1"; "–" for None.

    Example:
        >>> cost_text([0.5, 1.0], "ε"), cost_text([0.2, 0.2], "μ"), cost_text(None, "ε")
        ('ε 0.500 to 1.00', 'μ 0.200', '–')
    """
    if costs is None:
        return "–"
    low, high = map(epsilon_text, costs)
    return high if high == "∞" else f"{unit} {low}" if low == high else f"{unit} {low} to {high}"


def graph_text(graph: Mapping[str, Any]) -> str:
    """Write the number of edges, the range of degrees and the spectral gap of a graph.

    Args:
        graph: entry "topology" of `result.json`.

    Returns:
        A phrase without a full stop.

    Example:
        >>> path = {"agents": 3, "edges": [[0, 1], [1, 2]], "spectral_gap": 1 / 3}
        >>> graph_text(path)
        '2 edges, degree 1 to 2, spectral gap 0.3333'
    """
    edges, directed = graph.get("edges") or [], bool(graph.get("directed"))
    degrees = [0] * int(graph.get("agents") or 0)
    for agent in (agent for edge in edges for agent in edge[: 1 if directed else 2]):
        degrees[agent] += 1
    kind = "directed edge" if directed else "edge"
    parts = [f"{len(edges)} {kind}{'s' * (len(edges) != 1)}"]
    ends = " to ".join(map(str, dict.fromkeys([min(degrees), max(degrees)]))) if degrees else ""
    parts += [f"{'out-' * directed}degree {ends}"] if degrees else []
    gap = graph.get("spectral_gap")
    # A smaller gap would be 0 in four decimals.
    parts += [f"spectral gap {gap:.4f}" if gap >= 1e-3 else f"spectral gap {gap:.2g}"] if gap else []
    return ", ".join(parts)


def over_time_text(graph: Mapping[str, Any]) -> str:
    """Describe the changes of a graph over time; "" for a fixed graph.

    Args:
        graph: entry "topology" of `result.json`.

    Example:
        >>> over_time_text({"over_time": {"kind": "matching", "rate": 0.7183, "period": 32, "drop": 0.1}})
        'By round: matching, 10% of messages lost; 0.718 of the disagreement stays'
    """
    changes = graph.get("over_time") or {}
    parts = [str(changes.get("kind", "fixed")).replace("_", " ").replace("fixed", "")]
    parts += [f"{changes['offline']:.2g} of agents away"] if changes.get("offline") else []
    parts += [f"{changes['drop']:.0%} of messages lost"] if changes.get("drop") else []
    parts += [f"messages {changes['delay']} rounds late"] if changes.get("delay") else []
    text = ", ".join(part for part in parts if part)
    rate = changes.get("rate")
    remainder = "" if rate is None else f"; {rate:.3f} of the disagreement stays"
    return f"By round: {text}{remainder}" if text else ""


def byzantine_text(graph: Mapping[str, Any]) -> str:
    """Write the attack and the robust aggregation of messages; "" if there is neither.

    Args:
        graph: entry "topology" of `result.json`.

    Example:
        >>> print(byzantine_text({"attack": {"agents": [0, 3], "kind": "sign_flip"}, "aggregation": "median"}))
        Byzantine: agents 0, 3 by sign_flip; metrics of the others. Aggregation by median
        >>> print(byzantine_text({"aggregation": "trimmed_mean"}))
        Aggregation by trimmed_mean
    """
    attack, rule = graph.get("attack"), graph.get("aggregation")
    parts = []
    if attack:
        agents = ", ".join(map(str, attack["agents"]))
        parts.append(f"Byzantine: agents {agents} by {attack['kind']}; metrics of the others")
    return ". ".join([*parts, *([f"Aggregation by {rule}"] if rule else [])])


def compression_text(graph: Mapping[str, Any]) -> str:
    """Write the compression of messages; "" without compression.

    Args:
        graph: entry "topology" of `result.json`.

    Example:
        >>> sign = {"kind": "sign", "consensus": 0.5, "share_of_bits": 0.017, "contraction": {"y": 0.637}}
        >>> print(compression_text({"compression": sign}))
        Compressed by sign, with error feedback: 0.017 of the bits, δ 0.637 of y, γ 0.5
    """
    compression = graph.get("compression")
    if not compression:
        return ""
    contraction = ", ".join(f"δ {value:.3g} of {channel}" for channel, value in compression["contraction"].items())
    bits_text = f"{compression['share_of_bits']:.3g} of the bits, {contraction}, γ {compression['consensus']:.3g}"
    return f"Compressed by {compression['kind']}, with error feedback: {bits_text}"


def communication_text(communication: Any) -> str:
    """Write the communication of a run.

    Args:
        communication: a `Communication`.
    """
    floats, messages = (f"{count:,}".replace(",", " ") for count in (communication.numbers, communication.messages))
    least, most = min(communication.by_agent, default=0), max(communication.by_agent, default=0)
    spread = f"; {least} to {most} messages of an agent" if least < most else ""
    size, units = communication.bits / 8.0, ("bytes", "kB", "MB", "GB", "TB")
    power = min(len(units) - 1, max(0, int(math.log10(size) // 3))) if size >= 1.0 else 0
    return f"{messages} messages with {floats} floats, {size / 1000.0**power:.3g} {units[power]}{spread}."


def join_words(words: Sequence[str]) -> str:
    """Join words with commas and "and".

    Example:
        >>> join_words(["a", "b", "c"]), join_words(["a"])
        ('a, b and c', 'a')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def schedule_text(table: Mapping[str, Any]) -> str:
    """Write the factor of a schedule's scale.

    Args:
        table: schedule of a learning rate, of noise or of a clipping norm.

    Example:
        >>> schedule_text({"decay": 0.5}), schedule_text({"decay": 0.0, "points": [[0, 0.1], [50, 1.0]]})
        ('/(t+1)^0.5', ' × (0.1 at round 0, 1 at round 50)')
        >>> schedule_text({"decay": 0.0}), schedule_text({"points": [[0, 0.1], [9, 1.0], [50, 0.5], [99, 0.1]]})
        ('', ' × (0.1 at round 0, …, 0.1 at round 99)')
    """
    decay, points = table.get("decay"), table.get("points") or ()
    fall = f"/(t+1)^{decay:g}" if isinstance(decay, int | float) and decay else ""
    factors = [f"{factor:g} at round {t:g}" for t, factor in points]
    factors[1:-1] = ["…"] if len(factors) > 3 else factors[1:-1]
    return f"{fall} × ({', '.join(factors)})" if factors else fall


def least_text(value: float) -> str:
    """Write a number above 0 with three digits, rounded up.

    Example:
        >>> least_text(0.36123), least_text(8.82), least_text(math.inf)
        ('0.362', '8.82', 'inf')
    """
    if not math.isfinite(value):
        return f"{value:g}"
    exact = Decimal(repr(float(value)))
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 2), rounding=ROUND_CEILING)):g}"


def sentence(text: str | None) -> str:
    """Add a full stop to a text; replace an empty text.

    Example:
        >>> sentence("it ended"), sentence(None)
        ('it ended.', 'No reason was recorded.')
    """
    statement = (text or "").strip() or "No reason was recorded."
    return statement if statement[-1] in ".!?" else f"{statement}."


_GRAPHS = {
    "complete": "complete graph",
    "random_regular": "random regular graph",
    "erdos_renyi": "Erdős–Rényi graph",
    "small_world": "small-world graph",
    "preferential_attachment": "preferential-attachment graph",
    "directed_exponential": "directed exponential graph",
    "isolated": "set without edges",
    # File in a run folder whose graph was a Python object.
    "topology": "network",
}


def power_text(value: float, pad: bool = False) -> str:
    """Write a value with at most three digits (exactly, with `pad`), as a power of ten if it is very small or large."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:#.3g}".rstrip(".") if pad else f"{value:.3g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    short = mantissa.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    return power if short == "1" else f"{short}·{power}"


def score_text(value: float | None) -> str:
    """Write a score with four decimals, with fewer if it is large, and as a power of ten if it is tiny or huge.

    Example:
        >>> score_text(0.5), score_text(-321.456), score_text(-1.2e-5), score_text(None)
        ('0.5000', '−321.46', '−1.2·10⁻⁵', '–')
    """
    if value is None or (value and not 1e-3 <= abs(value) < 1e7):
        return "–" if value is None else power_text(value).replace("-", "−")
    digits = 4 if abs(value) < 1e2 else 2 if abs(value) < 1e3 else 1 if abs(value) < 1e4 else 0
    return f"{value:.{digits}f}".replace("-", "−")


def capitalise(text: str) -> str:
    """Capitalise the first letter and keep the other letters."""
    return text[:1].upper() + text[1:]


def article(noun: str) -> str:
    """Return the noun with "a" or "an"."""
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def graph_noun(graph: Mapping[str, Any]) -> str:
    """Return the noun for a kind of graph; "network" for a custom one without a readable name."""
    kind = str(graph.get("kind") or "")
    place = in_module(kind)
    kind = kind if place is None else place[1]
    plain = kind.replace("_", " ") if kind.isascii() and kind.isprintable() else ""
    return _GRAPHS.get(kind, plain) or "network"


def topology_name(graph: Mapping[str, Any]) -> str:
    """Return the kind and size of a graph as text, such as "ring of 10 agents"."""
    m = int(graph.get("agents") or 0)
    return "one agent" if m == 1 else f"{graph_noun(graph)} of {m} agents"


def spans(names: Sequence[str]) -> list[str]:
    """Join names that end in consecutive numbers.

    Example:
        >>> spans(["0", "1", "2", "7"]), spans(["h", "v1", "v2", "z"])
        (['0–2', '7'], ['h', 'v1–v2', 'z'])
    """
    runs: list[list[str]] = []
    for name in names:
        stem = name.rstrip("0123456789")
        number = name[len(stem) :]
        if number and runs and runs[-1][-1] == f"{stem}{int(number) - 1}":
            runs[-1].append(name)
        else:
            runs.append([name])
    return [f"{run[0]}–{run[-1]}" if len(run) > 1 else run[0] for run in runs]


def range_text(low: float, high: float, digits: str) -> str:
    """Write two numbers as a range, or as a single number if both are printed identically.

    Example:
        >>> range_text(7.35, 16.8, ".3g"), range_text(2.0, 2.0001, ".3g"), range_text(46, 1191, ",")
        ('7.35–16.8', '2', '46–1,191')
    """
    return "–".join(dict.fromkeys([f"{low:{digits}}", f"{high:{digits}}"]))


def ratio_text(value: float | None) -> str:
    """Write a ratio with two digits, such as 0.12 or 18; "–" for None.

    Example:
        >>> ratio_text(0.123), ratio_text(18.4), ratio_text(None)
        ('0.12', '18', '–')
    """
    return "–" if value is None else f"{value:.2g}" if value < 10.0 else f"{value:.0f}"
