"""Random walk against a loop of its formulas: its walk, its ε, and refusals."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import epsilon_of
from tests.support import naive
from tests.support.naive import finished, made, squares

TABLE = {"kind": "random_walk", "rounds": 30, "learning_rate": {"scale": 0.3, "decay": 0.2}}
STAR, RING = {"kind": "star", "agents": 5}, {"kind": "ring", "agents": 4}


def _content(*guarantee: str, **changes: Any) -> dict[str, Any]:
    content = naive.base({**TABLE, **changes.pop("algorithm", {})}, *guarantee, **changes)
    privacy = {key: value for key, value in content["privacy"].items() if key not in ("x", "z")}
    return content | {"privacy": privacy | ({"clip": 1.0} if "clip" in privacy else {})}


def _walk(job: Any, rounds: int) -> list[int]:
    return [holder for (holder,) in islice(job.algorithm.senders(job.public_network), rounds)]


@pytest.mark.parametrize("topology", [STAR, RING])
def test_without_noise_it_is_the_loop_over_holders(topology: dict[str, Any]) -> None:
    """The token y moves by −λ (H_i y − c_i) at every holder i but the first; an agent keeps what it sent last."""
    content = _content("none", topology=topology)
    content["problem"]["normalise"] = "l2"
    job = made("quadratic", content)
    start = job.algorithm.start
    parts = [(s.hessian, s.linear + 0.5 * start["x"]) for s in squares(job)]
    token = np.full(2, start["y"])
    last = np.tile(token, (job.n_agents, 1))
    for t, holder in enumerate(_walk(job, 31)):
        if t:
            hessian, linear = parts[holder]
            token = token - 0.3 / t**0.2 * (hessian @ token - linear)
        last[holder] = token
    np.testing.assert_allclose(finished(job).last_snapshot.released["y"], last, rtol=0, atol=1e-12)


def test_the_walk_is_on_links_and_holds_every_agent_equally_often() -> None:
    """On a star a walk without Metropolis–Hastings would be at the hub half of the time."""
    job = made("quadratic", _content("none", topology=STAR))
    holders = _walk(job, 20_000)
    links = {(i, int(j)) for i in range(5) for j in job.public_network.neighbours(i)}
    assert all(i == j or (i, j) in links for i, j in pairwise(holders))
    shares = np.bincount(holders, minlength=5) / 20_000
    np.testing.assert_allclose(shares, 0.2, atol=0.03)


def test_an_agent_pays_for_its_visits_alone() -> None:
    job = decentral_dp.build("random_walk")
    inner = job.simulation()
    holders = np.array(_walk(inner, inner.rounds + 1))
    (y,) = inner.ledger.charged_channels
    move = 2 * inner.clip.y * inner.algorithm.learning_rate.scale
    for agent in range(inner.n_agents):
        column = y.group[agent]
        paid = np.flatnonzero(y.sensitivity["train"][:, column])
        visits = np.flatnonzero(holders == agent)
        assert (paid + 1).tolist() == visits[visits > 0].tolist()
        records = inner.counts["train"][agent]
        np.testing.assert_allclose(y.sensitivity["train"][paid, column], move / records, rtol=1e-8)
    assert epsilon_of(inner.ledger, 1e-5).max() <= 4.0
    # No message if the token stays.
    assert job.plan().communication.messages == np.count_nonzero(holders[1:] != holders[:-1])


def test_records_of_a_run_are_the_plan_however_agents_are_hosted() -> None:
    ends = []
    for blocks in (1, 3):
        content = _content(topology=STAR, run={"blocks": blocks})
        job = made("crossed", content)
        outcome = finished(job)
        assert outcome.ledger.same_releases(job.ledger)
        ends.append(outcome.last_snapshot.released["y"])
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-9)


def test_a_walk_shows_no_more_than_its_visits_cost() -> None:
    content = _content(topology={"kind": "ring", "agents": 3}, algorithm={"rounds": 8})
    content["privacy"] = {"clip": 1.0, "epsilon": 4.0, "mechanism": "gaussian", "delta": 1e-3}
    found = decentral_dp.audit(content, runs=40)
    assert 1.0 < found.shown <= found.certified <= 4.0


def test_what_cannot_be_is_refused() -> None:
    for key, value in {"drop": 0.1, "delay": 2, "over_time": "matching"}.items():
        with pytest.raises(InputError, match="would end the walk of a token"):
            decentral_dp.plan("random_walk", set={f"topology.{key}": value})
