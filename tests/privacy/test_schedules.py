"""Public schedules of learning rates, clips and noise: costs by round, planned = recorded, refusals."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant

import decentral_dp
from decentral_dp import InputError
from tests.support.naive import finished
from tests.support.training import changed, training

ROUNDS, DELTA, AGENTS = 12, 1e-5, 4
STEP = {"scale": 0.5, "decay": 0.2, "points": [[0, 0.1], [4, 1.0]]}
# Rises and falls, so that neither its first nor its last round bounds it.
CLIP = {"scale": 1.0, "decay": 0.3, "points": [[0, 0.2], [3, 1.0], [9, 0.3]]}
NOISE = {"scale": 0.05, "decay": 0.4, "points": [[1, 1.0], [12, 0.5]]}


def content(kind: str = "dp_dsgd", **tables: Any) -> dict[str, Any]:
    content = training(
        topology={"agents": AGENTS},
        algorithm={"kind": kind, "rounds": ROUNDS, "learning_rate": STEP},
        privacy={"epsilon": None, "delta": DELTA, "clip": CLIP, "y": NOISE},
        run={"evaluate_every": 4},
    )
    return changed(content, **tables) | {"seed": 2}


def numbers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(T,) λ_t, C_t and the σ of what they are released with, written down once more."""

    def factor(points: list[list[float]], t: int) -> float:
        for (a, low), (b, high) in pairwise(points):
            if a <= t <= b:
                return low + (high - low) * (t - a) / (b - a)
        return points[0][1] if t < points[0][0] else points[-1][1]

    out = [
        [s["scale"] / (t + late + 1) ** s["decay"] * factor(s["points"], t + late) for t in range(ROUNDS)]
        for s, late in ((STEP, 0), (CLIP, 0), (NOISE, 1))
    ]
    return tuple(map(np.array, out))  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["dp_dsgd", "push_sum"])
def test_rounds_that_differ_cost_what_their_composition_does(kind: str) -> None:
    """Compare with dp_accounting, one Gaussian per round with the round's ratio; no constant clip has this cost."""
    plan = decentral_dp.plan(content(kind))
    fewest = min(decentral_dp.build(content(kind)).simulation().counts["train"])
    step, clip, noise = numbers()

    def epsilon(clips: np.ndarray) -> float:
        accountant = pld_privacy_accountant.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE, 1e-3)
        for ratio in noise * fewest / (step * clips):
            accountant.compose(dp_accounting.GaussianDpEvent(ratio))
        return float(accountant.get_epsilon(DELTA))

    assert plan.privacy.epsilon_max == pytest.approx(epsilon(clip), rel=2e-3)
    for t in (0, int(np.argmax(clip)), ROUNDS - 1):
        assert abs(epsilon(np.full(ROUNDS, clip[t])) / epsilon(clip) - 1.0) > 0.05


@pytest.mark.parametrize(
    "kind", ["dp_dsgd", "ldp_single_level", "push_sum", "exact_diffusion", "gradient_tracking", "choco", "federated"]
)
def test_what_is_planned_is_recorded(kind: str) -> None:
    """Each sensitivity is derived twice, from the schedule as a whole and from the clip of its round."""
    job = decentral_dp.build(content(kind, algorithm={"rounds": 5})).simulation()
    assert finished(job).ledger.same_releases(job.ledger)
    assert all(len(np.unique(c.sensitivity["train"])) > 1 for c in job.ledger.charged_channels if c.dimension > 30)


@pytest.mark.parametrize("name", ["ldp_dsbo", "ma_dsbo", "dsbo_jhip", "gbdsbo", "vrdsbo", "bsa", "spdb", "gossip_sgda"])
def test_clips_of_all_families_are_those_of_their_round(name: str) -> None:
    clip = decentral_dp.load(name).privacy.clip
    falling: Any = {"scale": clip, "decay": 0.5}
    if isinstance(clip, dict):
        falling = {channel: {"scale": bound, "decay": 0.5} for channel, bound in clip.items()}
    keys = {"algorithm.rounds": 3, "run.evaluate_every": 3, "run.average": 1}
    jobs = [decentral_dp.build(name, set={**keys, "privacy.clip": table}).simulation() for table in (clip, falling)]
    assert finished(jobs[1]).ledger.same_releases(jobs[1].ledger)
    first, second = (
        np.concatenate([s.ravel() for c in job.ledger.charged_channels for s in c.sensitivity.values()]) for job in jobs
    )
    assert (second <= first * (1.0 + 1e-12)).all()
    assert (second < 0.8 * first).any()


def test_local_steps_that_are_too_long_have_the_length_of_the_round_that_is_charged() -> None:
    job: Any = decentral_dp.build(content(algorithm={"local_steps": 3}, privacy={"unit": "agent"})).simulation()
    (node,) = job.nodes()
    y, clips = np.zeros((AGENTS, job.problem.q)), numbers()[1]
    assert clips.max() > 2.0 * clips.min()
    for t in range(ROUNDS):
        change = node.dataset.local_steps(t, y[:, :0], y, 3, 1e6)
        np.testing.assert_allclose(np.linalg.norm(change.private, axis=1), clips[t], rtol=1e-9)
        np.testing.assert_allclose(change.sensitivities["train"].sensitivity, 2.0 * clips[t], rtol=1e-9)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"algorithm.learning_rate.points": [[3, 1.0], [1, 0.5]]},
            r"algorithm\.learning_rate\.points.*in increasing order",
        ),
        ({"privacy.y.points": [[0.5, 1.0]]}, r"privacy\.y\.points.*round numbers in increasing order"),
        ({"privacy.clip": {"decay": 0.5}}, r"privacy\.clip\.scale"),
        ({"privacy.clip": {"scale": 1e-39, "decay": 5.0}}, r"privacy\.clip\.y: too small"),
        ({"privacy.correlation": {"over_rounds": "banded_square_root"}}, "changes by round"),
    ],
)
def test_what_no_price_is_derived_for_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        decentral_dp.plan(content(), set=keys)
