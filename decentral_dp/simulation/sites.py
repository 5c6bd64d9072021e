"""Scores per site: the common model and each agent's own model on the held-out records of each agent.

Like other scores on held-out records, they are not covered by ε. The common model is the mean of the agents' published
models. A personal algorithm has no common model: each agent's published model is scored on its own records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.simulation.statement import Number
from decentral_dp.simulation.statistics import paired_interval

# Computed if the records have an owner column, or on request.
SITE_MEASURES = ("site_accuracy", "site_absolute_error", "worst_site", "share_of_sites_that_gain")


Verdict: TypeAlias = Literal["", "helps", "hurts", "may be chance", "one seed", "too few records"]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class SiteScore:
    """Score of a site.

    Args:
        agent: number of the agent.
        records: number of its held-out records.
        score: mean score of the common model over these records and over seeds, which is the share of correct classes
            or the mean absolute error of numbers; None without records.
        alone: score of the agent's own model, trained in isolation at the same ε; None if it was not trained.
        gain: improvement of `score` over `alone`, positive if the common model is better.
        low: lower end of the 95 % interval of the gain.
        high: upper end of this interval.
        verdict: verdict "helps", "hurts" or "may be chance"; "one seed" or "too few records" if there is none.
    """

    agent: int
    records: int
    score: Number = None
    alone: Number = None
    gain: Number = None
    low: Number = None
    high: Number = None
    verdict: Verdict = ""


@dataclass(frozen=True, eq=False)
class Sites:
    """Held-out records of the agents.

    Args:
        problem: `Predictor` that predicts from published values.
        features: features of all held-out records, (n, d).
        labels: labels of these records, (n,).
        parts: indices of the records of each scored agent; empty if it has none.
        agents: numbers of the scored agents, (m,).
        unit: size of the label 1 in the unit of numeric labels; None for classes.
        personal: whether each agent's own model is scored.
    """

    problem: Any
    features: Array
    labels: Array | IntArray
    parts: Sequence[IntArray]
    agents: IntArray
    unit: float | None
    personal: bool

    @property
    def measure(self) -> str:
        """Name of the measure."""
        return "site_accuracy" if self.unit is None else "site_absolute_error"

    def outcomes(self, published: Mapping[str, Array]) -> list[Array]:
        """Score every held-out record of each site.

        Args:
            published: values "x" (m, p) and "y" (m, q) of all agents.

        Returns:
            An array (n_i,) for each agent, with 1 for a correct class and 0 for a wrong class, or the absolute error of
            a number.
        """
        x, y = (np.asarray(published[channel])[self.agents] for channel in ("x", "y"))
        with np.errstate(all="ignore"):
            if self.personal:
                return [self._outcomes(x[k], y[k], part) for k, part in enumerate(self.parts)]
            outcomes = self._outcomes(x.mean(axis=0), y.mean(axis=0), slice(None))
        return [outcomes[part] for part in self.parts]

    def _outcomes(self, x: Array, y: Array, part: Any) -> Array:
        weights = self.problem.predicting(x[None], y[None]) if hasattr(self.problem, "predicting") else y[None]
        predicted, labels = self.problem.predict(weights, self.features[part])[0], self.labels[part]
        if self.unit is not None:
            return np.asarray(self.unit * np.abs(predicted - labels))
        best = predicted == predicted.max(axis=-1, keepdims=True)
        # Each of k tied classes counts 1/k. Records with NaN have no best class.
        mine = np.take_along_axis(best, labels[:, None].astype(np.int64), axis=-1)[:, 0]
        return np.asarray(mine / np.maximum(best.sum(axis=-1), 1))

    def scores(self, published: Mapping[str, Array]) -> list[SiteScore]:
        """Score the published values (see `outcomes`) on the records of each site."""
        return [
            SiteScore(int(agent), each.size, float(each.mean()) if each.size else None)
            for agent, each in zip(self.agents, self.outcomes(published), strict=True)
        ]


def site_summary(sites: Sites, scores: Sequence[SiteScore], seeds: int = 1) -> dict[str, Any]:
    """Return the entries of `result.json`."""
    return {"sites": list(map(asdict, scores)), "personal": sites.personal, "seeds": seeds}


def compare_sites(sites: Sites, joint: Sequence[Sequence[Array]], alone: Sequence[Sequence[Array]]) -> list[SiteScore]:
    """Compare the common model with each agent's own model on the same held-out records, over seeds.

    Args:
        sites: sites of the run.
        joint: outcomes of the run (see `Sites.outcomes`), for each seed.
        alone: outcomes of all isolated agents, for each seed.

    Returns:
        The score of each site, with an interval of the mean gain over records and seeds.
    """
    scores = []
    for row, agent in enumerate(sites.agents.tolist()):
        common, single = np.stack([each[row] for each in joint]), np.stack([each[agent] for each in alone])
        gains = common - single if sites.unit is None else single - common
        if not gains.size or not np.isfinite(gains).all():
            scores.append(SiteScore(agent, gains.shape[1], verdict="too few records"))
            continue
        gain, low, high = paired_interval(gains, bound=1.0 if sites.unit is None else None)
        verdict: Verdict = "helps" if low > 0.0 else "hurts" if high < 0.0 else "may be chance"
        # The interval of one seed does not contain the noise.
        verdict = "one seed" if len(joint) == 1 else verdict if math.isfinite(low) else "too few records"
        means = float(common.mean()), float(single.mean())
        scores.append(SiteScore(agent, gains.shape[1], *means, gain, low, high, verdict))
    return scores
