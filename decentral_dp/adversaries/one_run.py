"""Auditing in a single training: many canaries at once, whose labels are coins that the published model may betray.

m records are replaced by canaries: invented rows with one of two labels, by a fair coin each. After one run an attacker
guesses the coins of the r canaries whose two losses are farthest apart. How many may be right follows from what one
replaced record may cost, for the coins are independent, and any of them alone is one replaced record
(`one_run_bounds`). Where all releases are Gaussian and read every record, that is a curve G_μ, and the largest μ that
is refuted is turned to ε at δ. Elsewhere it is (ε, δ) alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.adversaries.one_run_bounds import epsilon_refuted, mu_refuted
from decentral_dp.adversaries.sampled_releases import amplified
from decentral_dp.bounded import Array
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.problems.minimax.protocol import Attackable
from decentral_dp.simulation.jobs.job import CoordinatorMinimaxJob, Job

# Fewer canaries show nothing at any confidence that is worth having.
FEWEST_CANARIES = 20
# Of all canaries, the shares that are guessed; the risk is split among them.
_SHARES = (0.1, 0.25, 0.5, 1.0)
# Of showing something by coins that were not in the run.
_NULL_RISK = 1e-3


class Canaries(NamedTuple):
    """Where canaries lie, and both records of each.

    place: (m, 2) agent and row. first, second: records of m rows, alike but for the label. coins: (m,) whether the
    first is in the data.
    """

    place: NDArray[np.int64]
    first: Any
    second: Any
    coins: NDArray[np.bool_]


class Shown(NamedTuple):
    """What one run shows.

    epsilon: by the bound that fits. null: the same for coins that were not in the run. right: guesses of all canaries.
    plain: ε without the assumption of a Gaussian curve.
    """

    epsilon: float
    null: float
    right: int
    plain: float


def shown_in_one_run(job: Job, wanted: int, root: bytes, risk: float) -> Shown:
    """Show an ε by guessing the coins of canaries from one run.

    Args:
        job: of a trusted coordinator on a minimax problem.
        wanted: how many canaries.
        root: of their rows, their coins and the noise of the run.
        risk: one less the confidence.

    Returns:
        ε that the run shows, by two bounds, and the number of right guesses.

    Raises:
        InputError: where a record cannot be asked about, and for too few canaries or too many.
    """
    job, canaries = plant(job, wanted, root)
    scores = _scores(job, _with(job, canaries), canaries, root)
    delta, gaussian = job.scenario.privacy.delta, gaussian_throughout(job)
    other = _coins(root, "null", canaries.coins.size)
    right = int(((scores > 0.0) == canaries.coins).sum())
    return Shown(
        one_run_bound(scores, canaries.coins, delta, risk, gaussian),
        one_run_bound(scores, other, delta, _NULL_RISK, gaussian),
        right,
        one_run_bound(scores, canaries.coins, delta, risk, gaussian=False),
    )


def plant(job: Job, wanted: int, root: bytes) -> tuple[CoordinatorMinimaxJob, Canaries]:
    """Invent canaries for a job, and toss their coins.

    Args:
        job: of a trusted coordinator on a minimax problem.
        wanted: how many canaries.
        root: of their rows and their coins.

    Returns:
        The job as it was given, and its canaries.

    Raises:
        InputError: where a record cannot be asked about, and for too few canaries or too many.
    """
    if not isinstance(job, CoordinatorMinimaxJob) or not isinstance(job.problem, Attackable):
        raise InputError(
            "audit: canaries need a model that can be asked about a record: a minimax problem of a trusted coordinator "
            "that classifies or regresses. Leave --canaries out."
        )
    shards = job.shards
    counts = np.array([len(records[0]) for records in job.records["train"]])
    if not FEWEST_CANARIES <= wanted <= counts.sum() // 2:
        raise InputError(
            f"audit: got {wanted} canaries; wanted {FEWEST_CANARIES} or more, and at most {counts.sum() // 2}, half of "
            "the train records."
        )
    generator = Streams(root, "canaries", [0]).at(0, 0, tag("rows"))
    flat = np.sort(generator.choice(int(counts.sum()), wanted, replace=False))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    agents = np.searchsorted(starts, flat, side="right") - 1
    place = np.stack([agents, flat - starts[agents]], axis=1)
    there = np.concatenate([np.asarray(part) for part in shards.train])
    size = float(np.linalg.norm(shards.features[there].reshape(there.size, -1), axis=1).max()) or 1.0
    rows = generator.normal(size=(wanted, *shards.features.shape[1:]))
    rows *= size / np.linalg.norm(rows.reshape(wanted, -1), axis=1).reshape(-1, *[1] * (rows.ndim - 1))
    labels = np.unique(np.asarray(shards.labels, dtype=np.float64)[there])
    pair = [job.problem.prepare(rows, np.full(wanted, label), job.clip.norm) for label in (labels[0], labels[-1])]
    return job, Canaries(place, pair[0], pair[1], _coins(root, "coins", wanted))


def _coins(root: bytes, name: str, n: int) -> NDArray[np.bool_]:
    return np.asarray(Streams(root, "canaries", [0]).at(0, 0, tag(name)).random(n) < 0.5)


def _with(job: CoordinatorMinimaxJob, canaries: Canaries) -> Any:
    records = [type(r)(*(column.copy() for column in r)) for r in job.records["train"]]
    for k, (agent, row) in enumerate(canaries.place):
        chosen = canaries.first if canaries.coins[k] else canaries.second
        for column, value in zip(records[agent], chosen, strict=True):
            column[row] = value[k]
    return replace(job, records={**job.records, "train": tuple(records)})


def _scores(job: CoordinatorMinimaxJob, planted: Any, canaries: Canaries, root: bytes) -> Array:
    """(m,) the loss of the second record less that of the first, by what was published."""
    node = planted.keyed(root).coordinator_node()
    published = LocalEngine().coordinate(node, job.rounds).last.published
    if "x" not in published or not np.isfinite(published["x"]).all():
        return np.zeros(canaries.coins.size)
    x, problem = published["x"].reshape(-1), job.problem
    if not isinstance(problem, Attackable):
        return np.zeros(canaries.coins.size)
    with np.errstate(all="ignore"):
        first, second = (problem.record_losses(x, r) for r in (canaries.first, canaries.second))
    return np.asarray(np.nan_to_num(second - first))


def one_run_bound(scores: Array, coins: NDArray[np.bool_], delta: float, risk: float, gaussian: bool) -> float:
    """Bound ε from below by guesses, the surest first.

    Args:
        scores: (m,) positive where the coin is guessed to be so.
        coins: (m,) as they fell.
        delta: δ.
        risk: one less the confidence.
        gaussian: whether one record costs a Gaussian trade-off curve, of unknown μ.

    Returns:
        ε that is shown; 0 where nothing is.
    """
    order = np.argsort(-np.abs(scores), kind="stable")
    right = (scores > 0.0) == coins
    best = 0.0
    for share in _SHARES:
        r = max(1, round(share * coins.size))
        counts = int(right[order[:r]].sum()), r, coins.size
        if gaussian:
            mu = mu_refuted(*counts, risk / len(_SHARES))
            best = max(best, float(gaussian_epsilon(mu, delta)) if delta > 0.0 else 0.0)
        else:
            best = max(best, epsilon_refuted(*counts, delta, risk / len(_SHARES)))
    return best


def gaussian_throughout(job: Job) -> bool:
    """Say whether all that is released of records is their queries under Gaussian noise, without secret samples."""
    charged = job.ledger.charged
    return bool(charged) and not amplified(job) and all(c.mechanism == GAUSSIAN for c in charged)
