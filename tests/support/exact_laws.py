"""Laws of discrete samplers, and a test that rejects a wrong one."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats


def exponential(gamma: Fraction, digits: int = 150) -> Decimal:
    """e^{−γ}, by the decimal library."""
    with localcontext(prec=digits):
        return (-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp()


def rejected(counts: Any, law: Any) -> bool:
    """Return whether these counts contradict the distribution, at 1 in 10^6."""
    law = np.asarray(law, dtype=np.float64)
    return bool(stats.chisquare(counts, law / law.sum() * np.sum(counts)).pvalue < 1e-6)
