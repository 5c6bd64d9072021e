"""Algorithms as their papers print them: for comparison, never a certificate.

One final class per printed form: the certified program with what its paper does otherwise, be it the noise alone or
`init` and `step` as well. Certified modules import nothing from here; the registry pairs both by `PRINTED`, and a
scenario with guarantee = "as_printed" runs the printed one.
"""

from __future__ import annotations

from decentral_dp.algorithms.printed import coordinator_bilevel as bilevel
from decentral_dp.algorithms.printed import coordinator_minimax as minimax
from decentral_dp.algorithms.printed import gossip

# Name of the algorithm → what "as_printed" runs. What is absent was not printed, or not with a noise that is known.
# Where the paper states the budget of its own calibration, the class says so in `claim`.
PRINTED: dict[str, type] = {
    "ldp_dsbo": gossip.PrintedLdpDsbo,
    "ma_dsbo": gossip.PrintedMaDsbo,
    "dsbo_jhip": gossip.PrintedDsboJhip,
    "gbdsbo": gossip.PrintedGbdsbo,
    "ldp_single_level": gossip.PrintedLdpSingleLevel,
    "dp_dsgd": gossip.PrintedDpDsgd,
    "vrdsbo": gossip.PrintedVrdsbo,
    "spdb": gossip.PrintedSpdb,
    "bsa": gossip.PrintedBsa,
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
