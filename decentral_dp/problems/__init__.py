"""Problems by name, from the entries at the end of their modules. A new one is a module and a line of `_MODULES`."""

from __future__ import annotations

from types import ModuleType

from decentral_dp.problems.bilevel import (
    hyper_cleaning,
    logistic,
    losses,
    means,
    meta_learning,
    quadratic,
    regularised_losses,
    softmax,
)
from decentral_dp.problems.entry import Entry, Facts
from decentral_dp.problems.minimax import auc, dro, group_dro, kl_dro, mspbe, wgan

__all__ = ["BILEVEL", "MINIMAX", "PROBLEMS", "Entry", "Facts"]

_MODULES: tuple[ModuleType, ...] = (
    *(regularised_losses, losses, hyper_cleaning, logistic, means, meta_learning),
    *(quadratic, softmax),
    *(auc, dro, kl_dro, group_dro, mspbe, wgan),
)


def _entries(module: ModuleType) -> tuple[Entry, ...]:
    found: tuple[Entry, ...] = module.ENTRIES if hasattr(module, "ENTRIES") else (module.ENTRY,)
    return found


_ENTRIES = [entry for module in _MODULES for entry in _entries(module)]
BILEVEL = {entry.kind: entry for entry in sorted(_ENTRIES) if entry.solves == "bilevel"}
MINIMAX = {entry.kind: entry for entry in _ENTRIES if entry.solves == "minimax"}
PROBLEMS = BILEVEL | MINIMAX
