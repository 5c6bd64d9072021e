"""Algorithms as their papers print them: for comparison, never a certificate.

One final class per printed form: the certified program with what its paper does otherwise, be it the noise alone or
`init` and `step` as well. Certified modules import nothing from here; the registry pairs both by `PRINTED`, and a
scenario with guarantee = "as_printed" runs the printed one.
"""

from __future__ import annotations

from decentral_dp.algorithms.printed import coordinator_bilevel as bilevel
from decentral_dp.algorithms.printed import coordinator_minimax as minimax
from decentral_dp.algorithms.printed import gossip

# Name of the algorithm → what "as_printed" runs, and where the paper states the budget of its calibration; "" where it
# states none. What is absent was not printed, or not with a noise that is known.
PRINTED: dict[str, tuple[type, str]] = {
    "ldp_dsbo": (gossip.PrintedLdpDsbo, ""),
    "ma_dsbo": (gossip.PrintedMaDsbo, ""),
    "dsbo_jhip": (gossip.PrintedDsboJhip, ""),
    "gbdsbo": (gossip.PrintedGbdsbo, ""),
    "ldp_single_level": (gossip.PrintedLdpSingleLevel, ""),
    "dp_dsgd": (gossip.PrintedDpDsgd, ""),
    "vrdsbo": (gossip.PrintedVrdsbo, ""),
    "spdb": (gossip.PrintedSpdb, ""),
    "bsa": (gossip.PrintedBsa, ""),
    "second_order_dp_bilevel": (bilevel.PrintedSecondOrder, "Theorem 4.2 of Lowy & Liu (2025), as printed"),
    "dp_bilevel": (bilevel.PrintedDpBilevel, "Theorems 4 and 11 of Kornowski (2024), as printed"),
    "dp_sgda": (minimax.PrintedDpSgda, "Theorem 1 and the explicit values after it, as printed"),
    "privatediff": (minimax.PrintedPrivateDiff, "Theorem 5 and Remark 5.1 of Zhang et al. (2025), as printed"),
    "double_spider": (
        minimax.PrintedDoubleSpider,
        "Theorem 6 of Xu et al. (2025), as printed, its constant taken as 1",
    ),
    "recursive_spider": (
        minimax.PrintedRecursiveSpider,
        "Theorem 8 of Xu et al. (2025), as printed, its constant taken as 1",
    ),
    "dp_spider": (minimax.PrintedDpSpider, "the calibration of Arora et al. (2023), its constant taken as 1"),
    "dp_sgd_dual": (minimax.PrintedDpSgdDual, "Theorem 5 of Xu et al. (2025), as printed, its constant taken as 1"),
    "exponential_mechanism": (bilevel.PrintedExponentialMechanism, "Equation 4 of Lowy & Liu (2025), as printed"),
    "regularised_exponential_mechanism": (
        bilevel.PrintedRegularisedExponentialMechanism,
        "Equation 5 and Lemma B.6 of Lowy & Liu (2025), as printed",
    ),
    "gradient_norm_exponential_mechanism": (
        bilevel.PrintedGradientNormMechanism,
        "Appendix C.3 of Lowy & Liu (2025), as printed",
    ),
    "grid_walk": (bilevel.PrintedGridWalk, "Theorem B.15 of Lowy & Liu (2025), as printed"),
    "warm_start": (bilevel.PrintedWarmStart, "Theorem 4.3 of Lowy & Liu (2025), as printed"),
}
