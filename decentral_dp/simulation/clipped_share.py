"""Which share of records a clip cuts, at the values where a run ended: in the simulator's view, from private data.

A record is cut on a channel where a term that feeds it, unclipped, is longer than the clip. A clip that cuts nearly all
leaves of every record its direction alone, which is what happens to features that were never scaled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Problem, take

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
    free = Clip(clip.norm)
    cut: dict[str, list[bool]] = {}
    for agent in np.linspace(0, m - 1, min(m, _AGENTS)).round().astype(int):
        x, y = values["x"][agent], values["y"][agent]
        z = values["z"][agent] if "z" in values else np.zeros_like(y)
        for split in SPLITS:
            wanted = [t for t in TERMS if problem.reads_records.get(t) == split and _is_cut(t, clip, "z" in values)]
            shard = records[split][agent]
            n = len(shard[0]) if wanted else 0
            for k in np.linspace(0, n - 1, min(n, max(1, MOST_RECORDS // min(m, _AGENTS)))).round().astype(int):
                one = take(shard, slice(k, k + 1))
                pair = {s: one if s == split else take(records[s][agent], slice(0, 1)) for s in SPLITS}
                with np.errstate(all="ignore"):
                    terms = problem.terms(x, y, z, pair["train"], pair["validation"], free, wanted)
                longest: dict[str, float] = {}
                for term in wanted:
                    channel, length = CLIP_OF_TERM[term], _length(getattr(terms, term), clip)
                    longest[channel] = max(longest.get(channel, 0.0), length)
                for channel, length in longest.items():
                    cut.setdefault(channel, []).append(not length <= clip.bound(channel) * (1.0 + 1e-9))
    return {channel: float(np.mean(found)) for channel, found in cut.items()}


def _is_cut(term: str, clip: Clip, has_z: bool) -> bool:
    return math.isfinite(clip.bound(CLIP_OF_TERM[term])) and (has_z or term not in ("lower_hvp", "lower_jvp"))


def _length(value: Array, clip: Clip) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.abs(value).sum() if clip.norm == "l1" else np.sqrt(np.square(value).sum()))


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
