"""Scores of records by what was published, and how well they rank members above others.

An attacker who may ask a published model about a record scores it by how well the model fits it:

    loss          minus the loss of the record, its label included
    confidence    the probability that the model gives to its own answer: no label needed

A function of the label alone is no attack on a model. Where members and others differ in the shares of their classes,
it is what an attack has before it looks at the model: `class_only`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.problems.protocol import Problem
from decentral_dp.problems.records import take
from decentral_dp.problems.saddle import Attackable

LOSS, CONFIDENCE = "loss", "confidence"


def class_only(members: NDArray[Any], others: NDArray[Any]) -> float:
    """The largest AUC of any score that reads a record's class alone; ½ where the classes have equal shares.

    members, others: (n,) and (n',) labels of the records that were read, and of others.
    Classes in order of how much commoner they are among members: no other order has a larger AUC (Neyman & Pearson).
    Of few records it is above ½ by chance.
    """
    classes = np.unique(np.concatenate([members, others]))
    p, q = (np.array([np.mean(labels == c) for c in classes]) for labels in (members, others))
    likelier = p / np.maximum(p + q, np.finfo(np.float64).tiny)
    order = np.argsort(-likelier, kind="stable")
    p, q = p[order], q[order]
    return float(np.sum(p * (1.0 - np.cumsum(q)) + 0.5 * p * q))


def minimax_scores(problem: Attackable, x: Array, records: Any) -> dict[str, Array]:
    """Attack → (n,) scores by a published x (p,).

    Records are scored in an order that does not tell members from others: rounding may depend on the place.
    """
    order = np.random.default_rng(0).permutation(len(records[0]))
    back, mixed, at = np.argsort(order), take(records, order), _finite(x)
    with np.errstate(all="ignore"):
        scores, confidence = {LOSS: -problem.record_losses(at, mixed)[back]}, problem.confidences(at, mixed)
    return scores if confidence is None else scores | {CONFIDENCE: confidence[back]}


def bilevel_scores(problem: Problem, x: Array, y: Array, records: Any) -> dict[str, Array]:
    """Score records by a published x and y, by the lower loss of each record alone.

    Args:
        problem: the bilevel problem.
        x: (p,), as it was published.
        y: (q,), as it was published.
        records: n of them, as the lower loss takes them.

    Returns:
        Attack → (n,) scores; `LOSS` alone.
    """
    upper, lower, one = _finite(x)[None], _finite(y)[None], np.ones(1)
    with np.errstate(all="ignore"):
        losses = [
            problem.losses(upper, lower, take(records, slice(k, k + 1)), one)[0][0] for k in range(len(records[0]))
        ]
    return {LOSS: -np.array(losses)}


def _finite(values: Array) -> Array:
    """As they are, or zeros where they are not all finite: a model of which there is nothing to ask."""
    return values if np.isfinite(values).all() else np.zeros_like(values)
