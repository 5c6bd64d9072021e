"""Published theorems, evaluated as published: claims for comparison with certified ε.

Reference: Z. Chen and Y. Wang, "Locally Differentially Private Decentralized Stochastic Bilevel Optimization with
Guaranteed Convergence Accuracy", ICML 2024, PMLR 235, Theorems 4.1 and 4.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy

from decentral_dp.bounded import CHANNELS, Array
from decentral_dp.privacy.schedules import StepSize

SOURCE_4_5 = "Theorem 4.5 of Chen & Wang (2024), as published"
NAME_4_1 = "Theorem 4.1 of Chen & Wang (2024)"
# Differences of decimal exponents below this are rounding errors: 2·0.81 > 0.75 + 0.87 must not hold.
_ROUNDING = 1e-12


class AgentNoise(Protocol):
    """Noise parameters σ_i and ς_i of one channel, (m,) each."""

    @property
    def scale(self) -> Array: ...

    @property
    def decay(self) -> Array: ...


@dataclass(frozen=True)
class ClaimedBudget:
    """The published ε of every agent.

    Args:
        epsilon: ε of each agent, (m,), None if the formula is undefined.
        source: statement of the paper.

    Example:
        >>> ClaimedBudget((0.5, 1.5), "a paper").epsilon_max, ClaimedBudget((0.5, None), "a paper").epsilon_max
        (1.5, None)
    """

    epsilon: tuple[float | None, ...]
    source: str

    @property
    def epsilon_max(self) -> float | None:
        """The largest ε, None if the formula is undefined for some agent."""
        defined = [e for e in self.epsilon if e is not None]
        return max(defined) if defined and len(defined) == len(self.epsilon) else None


def theorem_4_5(
    steps: Mapping[str, StepSize], noise: Mapping[str, AgentNoise], min_neighbour_weight: float, rounds: float
) -> ClaimedBudget:
    """Evaluate the published ε of Theorem 4.5.

        ε_i ≤ Σ_v Σ_{t=1}^T √2 C_v/(σ_{i,v} (t+1)^{1+v_v−ς_{i,v}}),   C_v = (4/w̄)(4(1+v_v)/(e ln(4/(2−2w̄))))^{1+v_v}

    Args:
        steps: channel → λ.
        noise: channel → σ_i and ς_i of every agent.
        min_neighbour_weight: w̄ = min_i |w_ii| (as published, min w_ii, which is negative).
        rounds: T, or math.inf.

    Returns:
        The claim for every agent, undefined for w̄ ≥ 1.

    Limits:
        The claim is not a guarantee. For l(y; ξ) = ξᵀy, ‖ξ‖₁ ≤ c and h = 0, the exact ε is proportional to c, which is
        not in the formula. The proof omits the factor b of the lemma behind (181) to (184), and therefore λ, the
        Lipschitz constants and the gradient bounds. It has ln(4/(2 − 2w̄)), although the contraction 1 − w̄/2 of (180)
        gives ln(4/(4 − w̄)). See docs/proofs/32.

    References:
        Chen & Wang, ICML 2024, Theorem 4.5.
    """
    agents = len(next(iter(noise.values())).scale)
    w = min_neighbour_weight
    if not 0.0 < w < 1.0:
        return ClaimedBudget((None,) * agents, SOURCE_4_5)
    total = np.zeros(agents)
    for channel in CHANNELS:
        v = steps[channel].decay
        constant = 4.0 / w * (4.0 * (1.0 + v) / (math.e * math.log(4.0 / (2.0 - 2.0 * w)))) ** (1.0 + v)
        exponents = 1.0 + v - np.asarray(noise[channel].decay, dtype=np.float64)
        sums = np.array([_power_sum(float(r), rounds) for r in exponents])
        with np.errstate(divide="ignore"):
            total += math.sqrt(2.0) * constant * sums / np.asarray(noise[channel].scale, dtype=np.float64)
    return ClaimedBudget(tuple(float(e) for e in total), SOURCE_4_5)


def _power_sum(exponent: float, rounds: float) -> float:
    """Compute Σ_{t=1}^T (t+1)^{−exponent}."""
    if math.isinf(rounds):
        return float(scipy.special.zeta(exponent, 2.0)) if exponent > 1.0 else math.inf
    return float((np.arange(2.0, rounds + 2.0) ** -exponent).sum())


@dataclass(frozen=True)
class Condition:
    """One strict inequality.

    Args:
        condition: inequality as text.
        margin: left side minus right side.
    """

    condition: str
    margin: float

    @property
    def holds(self) -> bool:
        return self.margin > _ROUNDING

    def to_dict(self) -> dict[str, Any]:
        return {"condition": self.condition, "holds": self.holds, "margin": round(self.margin, 12)}


@dataclass(frozen=True)
class Case:
    """One case of a theorem.

    Args:
        case: name of the case.
        bounds: quantity that converges.
        exponent: b in O(T^−b).
        conditions: necessary conditions of the case.
    """

    case: str
    bounds: str
    exponent: float
    conditions: tuple[Condition, ...]

    @property
    def holds(self) -> bool:
        return all(c.holds for c in self.conditions)

    @property
    def rate(self) -> str | None:
        return f"{self.bounds} = O(T^-{self.exponent:.4g})" if self.holds else None

    def to_dict(self) -> dict[str, Any]:
        listed = [c.to_dict() for c in self.conditions]
        return {"case": self.case, "holds": self.holds, "rate": self.rate, "conditions": listed}


@dataclass(frozen=True)
class Theorem:
    """A theorem with the checked conditions of its cases."""

    name: str
    cases: tuple[Case, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "cases": [c.to_dict() for c in self.cases]}


def theorem_4_1(step_decays: Mapping[str, float], noise_decays: Mapping[str, Array]) -> Theorem:
    """Check the conditions of Theorem 4.1 for its three convexity cases.

    In the conditions, ς is the smallest decay over agents and max ς the largest. Every case includes Assumption 3.1
    (max ς < v) and the order of the step sizes.

    Args:
        step_decays: channel → v.
        noise_decays: channel → ς of every agent, (m,).

    Returns:
        The cases with their margins and rates.

    Limits:
        A channel that is not in `noise_decays` has no noise. It satisfies the noise bounds of the proof for every
        ς < v, and is checked at ς = v without Assumption 3.1.

    References:
        Chen & Wang, ICML 2024, Theorem 4.1.

    Example:
        >>> decays = {"x": 0.9, "y": 0.7, "z": 0.6}
        >>> theorem = theorem_4_1(decays, {channel: np.array([0.1]) for channel in decays})
        >>> len(theorem.cases), [case.holds for case in theorem.cases]
        (3, [False, False, False])
    """
    v = {c: float(step_decays[c]) for c in CHANNELS}
    noisy = [c for c in CHANNELS if c in noise_decays]
    s = {c: float(np.min(noise_decays[c])) if c in noisy else v[c] for c in CHANNELS}
    common = (
        Condition("v_z > 0", v["z"]),
        Condition("v_y > v_z", v["y"] - v["z"]),
        Condition("v_x > v_y", v["x"] - v["y"]),
        Condition("1 > v_x", 1.0 - v["x"]),
        *(Condition(f"v_{c} > max ς_{c}", v[c] - float(np.max(noise_decays[c]))) for c in noisy),
    )

    def lower_bound(label: str, channel: str, right: float) -> Condition:
        return Condition(f"2ς_{channel} > {label}", 2.0 * s[channel] - right)

    shared = (
        lower_bound("v_z + v_y", "x", v["z"] + v["y"]),
        lower_bound("v_z + v_y", "y", v["z"] + v["y"]),
        lower_bound("v_y", "z", v["y"]),
    )

    def ergodic(gap: str, size: float) -> tuple[Condition, ...]:
        return (
            Condition("ς_x > 1/2", s["x"] - 0.5),
            *shared,
            lower_bound(f"2v_z + {gap}", "x", 2.0 * v["z"] + size),
            lower_bound(f"2v_z + {gap}", "y", 2.0 * v["z"] + size),
            lower_bound(f"v_y + {gap}", "y", v["y"] + size),
            lower_bound(f"v_z + {gap}", "z", v["z"] + size),
        )

    beta = min(
        2.0 * s["x"] - v["x"],
        2.0 * s["x"] - 2.0 * v["z"],
        2.0 * s["y"] - 2.0 * v["z"],
        2.0 * s["z"] - v["z"],
        2.0 * s["y"] - v["y"],
        2.0 - 2.0 * v["y"],
    )
    slow = 1.0 - v["x"]
    strong = (lower_bound("v_x", "x", v["x"]), *shared)
    return Theorem(
        NAME_4_1,
        (
            Case("(i) strongly convex", "E‖x_T − x*‖²", beta, (*common, *strong)),
            Case("(ii) convex", "mean of E[F(x_t) − F*]", slow, (*common, *ergodic("2 − 2v_x", 2.0 * slow))),
            Case("(iii) nonconvex", "mean of E‖∇F(x_t)‖²", slow, (*common, *ergodic("1 − v_x", slow))),
        ),
    )
