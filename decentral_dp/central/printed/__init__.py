"""Coordinators as their papers print them: for comparison, never a certificate.

As of `algorithms.printed`: certified modules import nothing from here, and the registry pairs both by `PRINTED`.
"""

from __future__ import annotations

from decentral_dp.central.printed import bilevel, minimax

PRINTED: dict[str, type] = {
    "second_order_dp_bilevel": bilevel.PrintedSecondOrder,
    "dp_bilevel": bilevel.PrintedDpBilevel,
    "dp_sgda": minimax.PrintedDpSgda,
    "privatediff": minimax.PrintedPrivateDiff,
    "double_spider": minimax.PrintedDoubleSpider,
    "recursive_spider": minimax.PrintedRecursiveSpider,
    "dp_spider": minimax.PrintedDpSpider,
    "dp_sgd_dual": minimax.PrintedDpSgdDual,
    "exponential_mechanism": bilevel.PrintedExponentialMechanism,
    "regularised_exponential_mechanism": bilevel.PrintedRegularisedExponentialMechanism,
    "gradient_norm_exponential_mechanism": bilevel.PrintedGradientNormMechanism,
    "grid_walk": bilevel.PrintedGridWalk,
    "warm_start": bilevel.PrintedWarmStart,
}
