"""ψ-divergences D(p, q) = Σ_i q_i ψ(p_i/q_i), their convex conjugates ψ* and the weights that these give to records.

ψ is convex on t ≥ 0 with its minimum ψ(1) = 0, and ψ*(s) = sup_{t ≥ 0} {ts − ψ(t)}, whose derivative w = (ψ*)' is
the maximising t. With a public strength λ, the worst mean of losses ℓ_i under a penalty on the divergence from the
uniform distribution is (Shapiro 2017; Levy et al. 2020; Xu et al. 2025, Equation 3)

    max_p Σ_i p_i ℓ_i − λ D(p, 1/n) = min_η mean_i λψ*((ℓ_i − η)/λ) + η,       p_i = w((ℓ_i − η)/λ)/n at the best η.

    name            ψ(t), +∞ for t < 0                ψ*(s)                                  w(s)
    chi2            ½(t − 1)²                         ½((s + 1)₊² − 1)                       (s + 1)₊
    kl              t log t − t + 1                   e^s − 1                                e^s
    kl_cvar α       the same on t ≤ 1/α, else +∞      e^s − 1, and from s = −log α on        min(e^s, 1/α)
                                                      (1 + s + log α)/α − 1, the tangent
    cvar α          0 on t ≤ 1/α, else +∞             s₊/α                                   1/α if s > 0, else 0
    cressie_read k  (t^k − kt + k − 1)/(k(k − 1))     (((k − 1)s + 1)₊^(k/(k−1)) − 1)/k      ((k − 1)s + 1)₊^(1/(k−1))

chi2 is cressie_read of order 2; (t − 1)² at strength λ is chi2 at strength 2λ. Of cressie_read below order 1, ψ* is +∞
for s ≥ 1/(1 − k) where k > 0, and for s > 1/(1 − k) where k < 0; orders 0 and 1 are limits (kl is that of 1).

Table 1 of Xu et al. prints −1 + ¼(s + 2)² for chi2, which is the conjugate of (t − 1)² without (·)₊ and lets weights be
negative, and min(e^s, (1 + s + log α)/α) − 1 for kl_cvar, where the second is a tangent of the first and so always the
smaller: the dual has no minimum then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.data import nearest
from decentral_dp.errors import InputError

Function = Callable[[Array], Array]


@dataclass(frozen=True)
class PsiDivergence:
    """conjugate: ψ*. weight: w, nondecreasing. reach: t → sup {s : w(s) ≤ t}, for t ≥ 1."""

    conjugate: Function
    weight: Function
    reach: Callable[[float], float]


class _Kind(NamedTuple):
    make: Callable[[float], PsiDivergence]
    parameter: Literal["", "order", "level"] = ""
    strength: bool = True


def divergence_of(name: str, order: float | None = None, level: float | None = None) -> PsiDivergence:
    """The divergence of this name. order: k, level: α. Raises InputError for one that is missing or not taken."""
    if name not in DIVERGENCES:
        raise InputError(f"problem.divergence: no divergence {name!r}; {nearest(name, DIVERGENCES)}.")
    kind = DIVERGENCES[name]
    for key, value in (("order", order), ("level", level)):
        takers = [n for n, k in DIVERGENCES.items() if k.parameter == key]
        if value is not None and name not in takers:
            raise InputError(f"problem.{key}: {name} takes none, only {', '.join(takers)}. Leave it out.")
        if value is None and name in takers:
            raise InputError(f"problem.{key}: missing. {name} needs it; give for example {key} = {_EXAMPLES[key]}.")
    return kind.make(next((float(v) for v in (order, level) if v is not None), 0.0))


def _chi2(_: float) -> PsiDivergence:
    return PsiDivergence(
        lambda s: 0.5 * np.maximum(s, -1.0) * (np.maximum(s, -1.0) + 2.0),
        lambda s: np.maximum(s + 1.0, 0.0),
        lambda t: t - 1.0,
    )


def _kl_cvar(level: float) -> PsiDivergence:
    most = 1.0 / level
    last = math.log(most)

    def conjugate(s: Array) -> Array:
        return np.where(s <= last, _expm1(np.minimum(s, last)), most * (1.0 + s - last) - 1.0)

    def weight(s: Array) -> Array:
        return np.minimum(_exp(np.minimum(s, last)), most)

    return PsiDivergence(conjugate, weight, lambda t: math.inf if t >= most else math.log(t))


def _cvar(level: float) -> PsiDivergence:
    most = 1.0 / level
    return PsiDivergence(
        lambda s: most * np.maximum(s, 0.0),
        lambda s: np.where(np.isnan(s), np.nan, np.where(s > 0.0, most, 0.0)),
        lambda t: math.inf if t >= most else 0.0,
    )


def _cressie_read(k: float) -> PsiDivergence:
    if min(abs(k), abs(k - 1.0)) < _NEAREST:
        mend = "take kl instead" if abs(k - 1.0) < _NEAREST else f"take at least {_NEAREST:g} on either side"
        raise InputError(f"problem.order: cressie_read of order {k:g} is a limit that its formula cannot tell; {mend}.")

    def log_base(s: Array) -> Array:
        """log((k − 1)s + 1), and −∞ where there is none."""
        with np.errstate(divide="ignore"):
            return np.log1p(np.maximum((k - 1.0) * s, -1.0))

    def conjugate(s: Array) -> Array:
        beyond = (k - 1.0) * s < -1.0
        return np.where(beyond & (k < 1.0), np.inf, _expm1(k / (k - 1.0) * log_base(s)) / k)

    def weight(s: Array) -> Array:
        return _exp(log_base(s) / (k - 1.0))

    def reach(t: float) -> float:
        return float(_expm1(np.array((k - 1.0) * math.log(t)))) / (k - 1.0)

    return PsiDivergence(conjugate, weight, reach)


def _exp(s: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.exp(s)


def _expm1(s: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.expm1(s)


# Closer to 0 and 1 than this, the powers of Cressie and Read lose their digits.
_NEAREST = 1e-3
_EXAMPLES = {"order": "3.0", "level": "0.1"}

DIVERGENCES: Mapping[str, _Kind] = {
    "chi2": _Kind(_chi2),
    "kl": _Kind(lambda _: PsiDivergence(_expm1, _exp, math.log)),
    "kl_cvar": _Kind(_kl_cvar, "level"),
    "cvar": _Kind(_cvar, "level", strength=False),
    "cressie_read": _Kind(_cressie_read, "order"),
}
