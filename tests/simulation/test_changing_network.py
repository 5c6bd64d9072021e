"""Networks that change, lose or delay messages: oracle, blocks, Ray, resumption, privacy cost and communication."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.engines.host import Host
from tests.support.training import gradient_of, training

KINDS: dict[str, dict[str, Any]] = {
    "matching": {"over_time": "matching"},
    "one_peer": {"kind": "complete", "over_time": "one_peer_exponential"},
    "resample": {"kind": "erdos_renyi", "probability": 0.6, "over_time": "resample"},
    "drop": {"drop": 0.4},
    "offline": {"offline": 0.3},
    "delay": {"delay": 2},
    "away and late": {"over_time": "matching", "offline": 0.3, "delay": 2},
    "all": {"over_time": "matching", "drop": 0.2, "offline": 0.2, "delay": 1},
}
ROUNDS = 12


def scenario(table: dict[str, Any], **changes: Any) -> dict[str, Any]:
    tables = {"topology": {"agents": 6, **table}, "algorithm": {"rounds": ROUNDS}}
    return training(**tables, run={"evaluate_every": 2, **changes})


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_it_is_a_loop_over_messages(kind: str) -> None:
    """Oracle: messages one by one, stored while they are delayed, and gradients by their formula."""
    content = scenario(KINDS[kind]) | {"privacy": {"guarantee": "none"}}
    run = decentral_dp.run(content)
    job = run.simulation()
    over_time, m = job.topology.over_time, 6
    gradient, d = gradient_of(job), job.shards.features.shape[1]
    last_sent = np.zeros((m, d + 1))
    values, mail = np.zeros((m, d + 1)), []
    for t in range(ROUNDS):
        online = over_time.online(t)
        there = np.ones(m, dtype=bool) if online is None else online
        last_sent = np.where(there[:, None], values, last_sent)
        mail.append((values, there))
        arriving, wrote = mail[max(0, t - over_time.delay)]
        weights = over_time.received_weights(t).toarray()
        # Edges of the round of sending, between agents that were online then and receivers that are online now.
        links = over_time.make(max(0, t - over_time.delay)).toarray() * np.outer(wrote & there, wrote)
        np.testing.assert_array_equal(weights, links * (weights > 0.0) if over_time.drop else links)
        combined = np.empty_like(values)
        for i in range(m):
            combined[i] = (1.0 - weights[i].sum()) * last_sent[i] + sum(weights[i, j] * arriving[j] for j in range(m))
        values = np.stack([combined[i] - 0.5 * gradient(i, combined[i]) for i in range(m)])
    online = over_time.online(ROUNDS)
    sends = np.ones(m, dtype=bool) if online is None else online
    np.testing.assert_allclose(run.released["y"], np.where(sends[:, None], values, last_sent), rtol=1e-9, atol=1e-12)


def test_who_is_away_releases_nothing_and_pays_nothing() -> None:
    noise = {"privacy": {"mechanism": "gaussian", "delta": 1e-5, "clip": 0.1, "y": {"scale": 0.05}}}
    run = decentral_dp.run(scenario(KINDS["offline"]) | noise)
    over_time = run.simulation().topology.over_time
    lines = run.ledger[run.ledger["channel"] == "y"]
    charged = lines[lines["sensitivity_train"] > 0.0] if "sensitivity_train" in lines else lines
    per_agent = charged.groupby("agent")["round"].count()
    there = np.stack([over_time.online(t) for t in range(1, ROUNDS + 1)])
    assert per_agent.tolist() == there.sum(axis=0).tolist()
    always = decentral_dp.plan(scenario({}) | noise)
    assert max(e.epsilon for e in run.result.privacy.agents) <= max(always.epsilon)
    assert min(e.epsilon for e in run.result.privacy.agents) < min(always.epsilon)


def test_a_network_that_loses_every_message_is_refused() -> None:
    with pytest.raises(InputError, match=r"topology\.drop: got 1\.0, expected a number below 1"):
        decentral_dp.plan("classification", set={"topology.drop": 1.0})


def test_a_price_that_depends_on_the_weights_is_refused() -> None:
    with pytest.raises(InputError, match="depend on the weight of"):
        decentral_dp.plan("ldp_dsbo", set={"topology.drop": 0.1, "algorithm.protocol": "private"})
    assert decentral_dp.plan("ldp_dsbo", set={"topology.drop": 0.1}).epsilon == decentral_dp.plan("ldp_dsbo").epsilon


# --- communication ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("dp_dsgd", "federated", "ldp_single_level", "gradient_tracking", "exact_diffusion", "ring_breast_cancer"),
        *("bsa", "ma_dsbo", "gbdsbo", "spdb", "vrdsbo", "dsbo_jhip"),
    ],
)
@pytest.mark.parametrize("rounds", [1, 3])
def test_numbers_are_those_of_the_messages_that_are_made(
    name: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the widths of all messages of a run, except the last release."""
    sent: dict[int, int] = {}
    advance = Host.advance

    def counted(self: Host, *messages: Any) -> Any:
        index, message = self._index, advance(self, *messages)
        sent[index] = message.shape[1]
        return message

    monkeypatch.setattr(Host, "advance", counted)
    # One round of gradient tracking releases no gradient, so that there is no noise to find.
    free = {"privacy.guarantee": "none"} if name == "gradient_tracking" and rounds == 1 else {}
    job = decentral_dp.build(name, set={"algorithm.rounds": rounds, **free})
    job.run()
    each, central = job.ledger.releases_per_round, job.simulation().has_server
    # A server's question is no separate message.
    kept = {
        index: width for index, width in sent.items() if index < rounds * each and not (central and not index % each)
    }
    made = sum(kept.values())
    known = job.plan().communication
    assert known is not None
    per_link = known.numbers * len(kept) / known.messages
    # Z of DSBO-JHIP is counted once a round.
    assert per_link == made if name != "dsbo_jhip" else 0.5 * made < per_link < made


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_those_between_online_agents(kind: str) -> None:
    """Oracle: messages of every round along the edges between online agents."""
    job = decentral_dp.build(scenario(KINDS[kind]))
    known, over_time, m = job.plan().communication, job.simulation().topology.over_time, 6
    assert known is not None
    sent = np.zeros(m)
    for t in range(ROUNDS):
        there = np.ones(m, dtype=bool) if over_time.online(t) is None else over_time.online(t)
        sent += np.count_nonzero(over_time.make(t).toarray() * np.outer(there, there), axis=0)
    assert known.by_agent == tuple(sent)
    assert (known.messages, known.numbers) == (sent.sum(), 31 * sent.sum())


def test_a_token_is_a_message_if_it_moves() -> None:
    walk = decentral_dp.build("random_walk", set={"topology.kind": "star", "algorithm.rounds": 40})
    assert 0 < walk.plan().communication.messages < 40
    assert decentral_dp.build("dp_bilevel_breast_cancer").plan().communication is None
