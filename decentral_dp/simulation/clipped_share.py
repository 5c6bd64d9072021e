"""Which share of records a clip cuts, at the values where a run ended: in the simulator's view, from private data.

A record is cut on a channel where a term that feeds it, unclipped, is longer than the clip. A clip that cuts nearly all
leaves of every record its direction alone, which is what happens to features that were never scaled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Norm, Split
from decentral_dp.privacy.clipping import Clip, row_norms
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Problem
from decentral_dp.problems.records import take
from decentral_dp.simulation.metrics import evenly_spaced

# Records of each kind that are tried, of so many agents.
MOST_RECORDS, _AGENTS = 32, 8
# From this share on a sentence says how to mend it: of records that were scaled, and of others.
_NEARLY_ALL, _MANY = 0.9, 0.25


def clipped_shares(
    problem: Problem, records: Mapping[Split, Sequence[Any]], values: Mapping[str, Array], clip: Clip
) -> dict[str, float]:
    """Try a few records of a few agents, evenly spaced.

    Args:
        problem: whose terms are clipped.
        records: kind → those of each agent.
        values: channel → (m, ·); without z, terms that need it are left out.
        clip: what cuts.

    Returns:
        Channel → share of the tried records that are cut there; channels without a clip, or that read no record, are
        left out.
    """
    m = len(values["x"])
    agents = evenly_spaced(m, _AGENTS)
    cut: dict[str, list[bool]] = {}
    for agent in agents:
        own = {channel: rows[agent] for channel, rows in values.items()}
        for split in SPLITS:
            wanted = [t for t in TERMS if problem.reads_records.get(t) == split and _is_cut(t, clip, "z" in values)]
            if not wanted:
                continue
            shards = {s: records[s][agent] for s in SPLITS}
            for k in evenly_spaced(len(shards[split][0]), max(1, MOST_RECORDS // len(agents))):
                pair = {s: take(shards[s], slice(k, k + 1) if s == split else slice(0, 1)) for s in SPLITS}
                for channel, length in _lengths(problem, own, pair, clip.norm, wanted).items():
                    cut.setdefault(channel, []).append(not length <= clip.bound(channel) * (1.0 + 1e-9))
    return {channel: float(np.mean(found)) for channel, found in cut.items()}


def _lengths(
    problem: Problem, values: Mapping[str, Array], records: Mapping[Split, Any], norm: Norm, wanted: Sequence[str]
) -> dict[str, float]:
    """Channel → norm of the longest unclipped term that feeds it. records: one of each kind."""
    x, y = values["x"], values["y"]
    z = values.get("z", np.zeros_like(y))
    longest: dict[str, float] = {}
    with np.errstate(all="ignore"):
        terms = problem.terms(x, y, z, records["train"], records["validation"], Clip(norm), wanted)
        for term in wanted:
            channel, value = CLIP_OF_TERM[term], np.ravel(getattr(terms, term))
            longest[channel] = max(longest.get(channel, 0.0), float(row_norms(value[None], norm)[0]))
    return longest


def _is_cut(term: str, clip: Clip, has_z: bool) -> bool:
    return math.isfinite(clip.bound(CLIP_OF_TERM[term])) and (has_z or term not in ("lower_hvp", "lower_jvp"))


def clip_advice(shares: Mapping[str, float], scaled: bool) -> list[str]:
    """Say which clips cut nearly every record, and what mends it.

    Args:
        shares: of `clipped_shares`.
        scaled: whether the features were scaled or normalised.
    """
    tight = [channel for channel, share in shares.items() if share >= (_NEARLY_ALL if scaled else _MANY)]
    if not tight:
        return []
    named = ", ".join(tight)
    if not scaled:
        return [
            f"The features are neither scaled nor normalised, and the clips of {named} cut many records to their "
            'direction alone: set problem.scale and problem.normalise, for example problem.normalise = "l2".'
        ]
    return [
        f"The clips of {named} cut nearly every record to its direction alone. A larger privacy.clip.{tight[0]} keeps "
        "more of it, with more noise at the same ε."
    ]
