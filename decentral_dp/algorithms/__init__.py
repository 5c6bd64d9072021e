"""Algorithms by name: whatever a module in a folder of a setting states as its `ENTRY`, or its `ENTRIES`."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import get_args

from decentral_dp import annexes
from decentral_dp.algorithms.entry import Entry, Options, Setting

__all__ = ["ALGORITHMS", "Entry", "Options"]

# Listed in this order, before all others, which follow by setting and file.
_LISTED_FIRST = (
    *("ldp_dsbo", "ma_dsbo", "dsbo_jhip", "gbdsbo", "ldp_single_level", "dp_dsgd", "vrdsbo", "spdb", "bsa"),
    *("regularisation_tuner", "pp_ift", "second_order_dp_bilevel", "dp_bilevel"),
    *("dp_sgda", "dptd", "privatediff", "privatediff_xy", "double_spider", "recursive_spider"),
    *("dp_spider", "dp_sgd_dual", "scdro"),
    *("exponential_mechanism", "regularised_exponential_mechanism", "gradient_norm_exponential_mechanism"),
    "warm_start",
)
_FOLDERS = {"gossip": f"{__name__}.gossip"} | dict(annexes.ALGORITHMS)


def _entries(setting: Setting) -> Iterator[Entry]:
    """The entries of the modules in a setting's folder; a module without one is what others share."""
    folder = import_module(_FOLDERS[setting])
    for module_info in pkgutil.iter_modules(folder.__path__):
        module = import_module(f"{folder.__name__}.{module_info.name}")
        for entry in getattr(module, "ENTRIES", [module.ENTRY] if hasattr(module, "ENTRY") else ()):
            yield entry._replace(setting=setting)


def _algorithms() -> dict[str, Entry]:
    entries = {entry.kind: entry for setting in get_args(Setting) for entry in _entries(setting)}
    return {kind: entries[kind] for kind in _LISTED_FIRST} | entries


ALGORITHMS = annexes.Registry(_algorithms)
