"""Algorithms as their papers print them: for comparison, never a certificate.

One final class per printed form: the certified program with what its paper does otherwise, be it the noise alone or
`init` and `step` as well. Certified modules import nothing from here; the registry pairs both by `PRINTED`, and a
scenario with guarantee = "as_printed" runs the printed one.
"""

from __future__ import annotations

from typing import NamedTuple

from decentral_dp.algorithms.printed import coordinator_bilevel, coordinator_minimax, gossip


class Printed(NamedTuple):
    """What "as_printed" runs, and where the paper states the budget of its calibration; "" where it states none."""

    form: type
    claim: str = ""


# Name of the algorithm → its printed form. What is absent was not printed, or not with a noise that is known.
PRINTED: dict[str, Printed] = {
    "ldp_dsbo": Printed(gossip.PrintedLdpDsbo),
    "ma_dsbo": Printed(gossip.PrintedMaDsbo),
    "dsbo_jhip": Printed(gossip.PrintedDsboJhip),
    "gbdsbo": Printed(gossip.PrintedGbdsbo),
    "ldp_single_level": Printed(gossip.PrintedLdpSingleLevel),
    "dp_dsgd": Printed(gossip.PrintedDpDsgd),
    "vrdsbo": Printed(gossip.PrintedVrdsbo),
    "spdb": Printed(gossip.PrintedSpdb),
    "bsa": Printed(gossip.PrintedBsa),
    "second_order_dp_bilevel": Printed(
        coordinator_bilevel.PrintedSecondOrder, "Theorem 4.2 of Lowy & Liu (2025), as printed"
    ),
    "dp_bilevel": Printed(coordinator_bilevel.PrintedDpBilevel, "Theorems 4 and 11 of Kornowski (2024), as printed"),
    "dp_sgda": Printed(coordinator_minimax.PrintedDpSgda, "Theorem 1 and the explicit values after it, as printed"),
    "privatediff": Printed(
        coordinator_minimax.PrintedPrivateDiff, "Theorem 5 and Remark 5.1 of Zhang et al. (2025), as printed"
    ),
    "double_spider": Printed(
        coordinator_minimax.PrintedDoubleSpider, "Theorem 6 of Xu et al. (2025), as printed, its constant taken as 1"
    ),
    "recursive_spider": Printed(
        coordinator_minimax.PrintedRecursiveSpider, "Theorem 8 of Xu et al. (2025), as printed, its constant taken as 1"
    ),
    "dp_spider": Printed(
        coordinator_minimax.PrintedDpSpider, "the calibration of Arora et al. (2023), its constant taken as 1"
    ),
    "dp_sgd_dual": Printed(
        coordinator_minimax.PrintedDpSgdDual, "Theorem 5 of Xu et al. (2025), as printed, its constant taken as 1"
    ),
    "exponential_mechanism": Printed(
        coordinator_bilevel.PrintedExponentialMechanism, "Equation 4 of Lowy & Liu (2025), as printed"
    ),
    "regularised_exponential_mechanism": Printed(
        coordinator_bilevel.PrintedRegularisedExponentialMechanism,
        "Equation 5 and Lemma B.6 of Lowy & Liu (2025), as printed",
    ),
    "gradient_norm_exponential_mechanism": Printed(
        coordinator_bilevel.PrintedGradientNormMechanism, "Appendix C.3 of Lowy & Liu (2025), as printed"
    ),
    "grid_walk": Printed(coordinator_bilevel.PrintedGridWalk, "Theorem B.15 of Lowy & Liu (2025), as printed"),
    "warm_start": Printed(coordinator_bilevel.PrintedWarmStart, "Theorem 4.3 of Lowy & Liu (2025), as printed"),
}
