"""Algorithms by name, from the entries at the end of their modules. A new one is a module and a line of `_MODULES`."""

from __future__ import annotations

from types import ModuleType

from decentral_dp.algorithms.coordinator_bilevel import (
    dp_bilevel,
    exponential_mechanism,
    gradient_norm_exponential_mechanism,
    grid_walk,
    pp_ift,
    regularisation_tuner,
    regularised_exponential_mechanism,
    second_order_dp_bilevel,
    warm_start,
)
from decentral_dp.algorithms.coordinator_minimax import (
    double_spider,
    dp_sgd_dual,
    dp_sgda,
    dp_spider,
    dptd,
    privatediff,
    privatediff_xy,
    recursive_spider,
    scdro,
)
from decentral_dp.algorithms.entry import Entry, Options
from decentral_dp.algorithms.gossip import bsa, dsbo_jhip, gbdsbo, ldp_dsbo, ma_dsbo, single_level, spdb, vrdsbo
from decentral_dp.algorithms.printed import PRINTED

__all__ = ["ALGORITHMS", "Entry", "Options"]

# In the order in which they are listed.
_MODULES: tuple[ModuleType, ...] = (
    ldp_dsbo,
    ma_dsbo,
    dsbo_jhip,
    gbdsbo,
    single_level,
    vrdsbo,
    spdb,
    bsa,
    regularisation_tuner,
    pp_ift,
    second_order_dp_bilevel,
    dp_bilevel,
    dp_sgda,
    dptd,
    privatediff,
    privatediff_xy,
    double_spider,
    recursive_spider,
    dp_spider,
    dp_sgd_dual,
    scdro,
    exponential_mechanism,
    regularised_exponential_mechanism,
    gradient_norm_exponential_mechanism,
    grid_walk,
    warm_start,
)


def _entries(module: ModuleType) -> tuple[Entry, ...]:
    found: tuple[Entry, ...] = module.ENTRIES if hasattr(module, "ENTRIES") else (module.ENTRY,)
    return found


# Certified modules may not import printed ones, so the two are paired here.
ALGORITHMS: dict[str, Entry] = {
    entry.kind: entry.with_printed(*PRINTED.get(entry.kind, ())) for module in _MODULES for entry in _entries(module)
}
