"""Algorithms as their papers print them: for comparison, never a certificate.

One final class per printed form: the certified program with what its paper does otherwise, be it the noise alone or
`init` and `step` as well. Certified modules import nothing from here; the registry pairs both by `PRINTED`, and a
scenario with guarantee = "as_printed" runs the printed one.
"""

from __future__ import annotations

from decentral_dp.algorithms.printed.printed_bsa import PrintedBsa
from decentral_dp.algorithms.printed.printed_double_spider import PrintedDoubleSpider
from decentral_dp.algorithms.printed.printed_dp_bilevel import PrintedDpBilevel
from decentral_dp.algorithms.printed.printed_dp_sgd_dual import PrintedDpSgdDual
from decentral_dp.algorithms.printed.printed_dp_sgda import PrintedDpSgda
from decentral_dp.algorithms.printed.printed_dp_spider import PrintedDpSpider
from decentral_dp.algorithms.printed.printed_dsbo_jhip import PrintedDsboJhip
from decentral_dp.algorithms.printed.printed_exponential_mechanism import PrintedExponentialMechanism
from decentral_dp.algorithms.printed.printed_gbdsbo import PrintedGbdsbo
from decentral_dp.algorithms.printed.printed_gradient_norm_exponential_mechanism import PrintedGradientNormMechanism
from decentral_dp.algorithms.printed.printed_grid_walk import PrintedGridWalk
from decentral_dp.algorithms.printed.printed_ldp_dsbo import PrintedLdpDsbo
from decentral_dp.algorithms.printed.printed_ma_dsbo import PrintedMaDsbo
from decentral_dp.algorithms.printed.printed_privatediff import PrintedPrivateDiff
from decentral_dp.algorithms.printed.printed_recursive_spider import PrintedRecursiveSpider
from decentral_dp.algorithms.printed.printed_regularised_exponential_mechanism import (
    PrintedRegularisedExponentialMechanism,
)
from decentral_dp.algorithms.printed.printed_second_order import PrintedSecondOrder
from decentral_dp.algorithms.printed.printed_single_level import PrintedDpDsgd, PrintedLdpSingleLevel
from decentral_dp.algorithms.printed.printed_spdb import PrintedSpdb
from decentral_dp.algorithms.printed.printed_vrdsbo import PrintedVrdsbo
from decentral_dp.algorithms.printed.printed_warm_start import PrintedWarmStart

__all__ = ["PRINTED"]

# Name of the algorithm → what "as_printed" runs. What is absent was not printed, or not with a noise that is known.
PRINTED: dict[str, type] = {
    "ldp_dsbo": PrintedLdpDsbo,
    "ma_dsbo": PrintedMaDsbo,
    "dsbo_jhip": PrintedDsboJhip,
    "gbdsbo": PrintedGbdsbo,
    "ldp_single_level": PrintedLdpSingleLevel,
    "dp_dsgd": PrintedDpDsgd,
    "vrdsbo": PrintedVrdsbo,
    "spdb": PrintedSpdb,
    "bsa": PrintedBsa,
    "second_order_dp_bilevel": PrintedSecondOrder,
    "dp_bilevel": PrintedDpBilevel,
    "dp_sgda": PrintedDpSgda,
    "privatediff": PrintedPrivateDiff,
    "double_spider": PrintedDoubleSpider,
    "recursive_spider": PrintedRecursiveSpider,
    "dp_spider": PrintedDpSpider,
    "dp_sgd_dual": PrintedDpSgdDual,
    "exponential_mechanism": PrintedExponentialMechanism,
    "regularised_exponential_mechanism": PrintedRegularisedExponentialMechanism,
    "gradient_norm_exponential_mechanism": PrintedGradientNormMechanism,
    "grid_walk": PrintedGridWalk,
    "warm_start": PrintedWarmStart,
}
