"""Features that are read from their mean: what is sent of it, what a record moves, and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.entry import entry_of_class
from decentral_dp.algorithms.gossip.centring import Centring
from decentral_dp.bounded import Bounded
from decentral_dp.simulation.communication import communication, count_sent
from tests.conformance.gossip import with_fields_of
from tests.support.naive import finished, ledgers, misheard
from tests.support.replay import conversation, loud, network_replay
from tests.support.training import changed

AGENTS, RECORDS, D, ROUNDS = 4, 3, 2, 12
CLIP = {"x": 1.0, "y": 0.3}


def _frame(draw: np.random.Generator, rows: int = AGENTS * RECORDS, middle: float = 0.4) -> pd.DataFrame:
    frame = pd.DataFrame(np.clip(middle + 0.3 * draw.normal(size=(rows, D)), -1.0, 1.0), columns=["a", "b"])
    return frame.assign(label=draw.integers(2, size=rows), agent=np.arange(rows) % AGENTS, split="train")


def _job(frame: pd.DataFrame | None = None, seed: int = 1, **tables: Any) -> Any:
    content: dict[str, Any] = {
        "seed": seed,
        "problem": {
            "kind": "classification",
            "label": "label",
            "classes": [0, 1],
            "scale": {"a": [-1, 1], "b": [-1, 1]},
        },
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {
            "kind": "dp_dsgd",
            "rounds": ROUNDS,
            "learning_rate": {"scale": 0.5},
            "momentum": 0.5,
            "centring": True,
        },
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": CLIP},
    }
    rows = _frame(np.random.default_rng(0)) if frame is None else frame
    return decentral_dp.build(changed(content, **tables), data=rows).simulation()


def test_the_plan_is_the_hand_made_one_and_what_is_recorded() -> None:
    """2C_x/N once, and 2λC_y/N a round, as without a centre."""
    job = _job()
    x, y = job.ledger.charged_channels
    assert (x.channel, list(x.rounds), y.channel, list(y.rounds)) == ("x", [1], "y", list(range(1, ROUNDS + 1)))
    np.testing.assert_allclose(x.sensitivity["train"], 2.0 * CLIP["x"] / RECORDS, rtol=1e-12)
    np.testing.assert_allclose(y.sensitivity["train"], 0.5 * 2.0 * CLIP["y"] / RECORDS, rtol=1e-12)
    assert finished(job).ledger.same_releases(job.ledger)


def test_means_are_averaged_shortened_by_their_noise_and_published() -> None:
    job = _job()
    said = conversation(job, loud)
    rounds, noise = job.algorithm.averaging_rounds, job.algorithm.noise
    assert 2 < rounds < ROUNDS // 2
    assert noise == pytest.approx(D * float(job.noise["x"].scale[0]) ** 2 / AGENTS, rel=0.05)
    assert [("x" in exchange) for exchange in said] == [1 <= t <= rounds or t == ROUNDS for t in range(ROUNDS + 1)]
    mixing, x = np.eye(AGENTS) + job.topology.mixing.toarray(), said[1]["x"]
    means = np.array([records.features.mean(axis=0) for records in job.records["train"]])
    noised = np.array([loud(1, "x", agent, D) for agent in range(AGENTS)])
    np.testing.assert_allclose(x - means, noised, atol=1e-6)
    for t in range(2, rounds + 1):
        x = mixing @ x
        if t == rounds:
            x = np.maximum(0.0, 1.0 - noise / np.square(x).sum(axis=1))[:, None] * x
        np.testing.assert_allclose(said[t]["x"], x, atol=1e-9)
    np.testing.assert_allclose(said[ROUNDS]["x"], x, atol=1e-9)


# Channel, size of its values, and coordinates beyond D: of gossip, and of a server.
_SAID = (("x", 1.0, 0), ("y", 3.0, 1), ("m", 1.0, 0), ("u", 0.3, 1), ("s", 0.3, 1))
_BATCHES = [{"kind": "fixed_batch", "batch_size": 2}, {"kind": "poisson", "rate": 0.5}]


def _search(program: type | None = None, seeds: int = 8, **tables: Any) -> dict[str, float]:
    """Channel → the largest share of its planned sensitivity by which a unit's records of one agent move a release.

    Fails where another agent's release moves, or what counts as public.
    """
    largest: dict[str, float] = {}
    unit = tables.get("privacy", {}).get("unit", 1)
    moved_records = RECORDS if unit == "agent" else unit
    for seed in range(seeds):
        rng = np.random.default_rng([3, seed])
        victim, frame = int(rng.integers(AGENTS)), _frame(rng)
        rows = victim + AGENTS * np.arange(moved_records)
        transcript = [
            {c: size * rng.normal(size=(AGENTS, D + d)) for c, size, d in _SAID} for _ in range(2 * ROUNDS + 1)
        ]
        wanted = []
        for sign in (1.0, -1.0):
            # Records at one corner of the ranges, then at the opposite one, or with the other label, or none.
            frame.loc[rows, ["a", "b"]] = sign if seed % 2 else 1.0
            frame.loc[rows, "label"] = int(sign > 0.0)
            job = _job(frame, **tables)
            if job.unit.zeroed and sign < 0.0:
                nothing = job.problem.null_record(job.records["train"][victim])
                job = job.with_record("train", victim, nothing, moved_records)
            job = replace(job, algorithm=with_fields_of(program or type(job.algorithm), job.algorithm))
            wanted.append(network_replay(job, transcript).wanted)
        planned = {c.channel: c for c in job.ledger.charged_channels}
        for t, (one, other) in enumerate(zip(*wanted, strict=True)):
            for channel in one:
                if not isinstance(one[channel], Bounded):
                    np.testing.assert_array_equal(one[channel], other[channel])
                    continue
                np.testing.assert_array_equal(one[channel].public, other[channel].public)
                moved = np.linalg.norm(one[channel].private - other[channel].private, axis=1)
                assert not moved[np.arange(AGENTS) != victim].any()
                of = planned[channel]
                if moved[victim]:
                    (row,) = np.flatnonzero(of.rounds == t)
                    allowed = of.sensitivity["train"][row, of.group[victim]]
                    stated = one[channel].sensitivities["train"].sensitivity[victim]
                    assert stated == pytest.approx(allowed, rel=1e-12)
                    largest[channel] = max(largest.get(channel, 0.0), float(moved[victim] / allowed))
    return largest


def test_what_is_counted_is_what_exchanges_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean travels in the messages of some rounds; all agents are one block here, and each has two neighbours."""
    carried: list[int] = []
    step = Centring.step

    def counted(self: Centring, t: int, dataset: Any, state: Any) -> Any:
        steps, reply = step(self, t, dataset, state), None
        while True:
            try:
                exchange = steps.send(reply)
            except StopIteration as ended:
                return ended.value
            carried.append(sum(value.shape[1] for value in exchange.values.values()))
            reply = yield exchange

    job = _job()
    monkeypatch.setattr(Centring, "step", counted)
    finished(job)
    numbers = 2 * AGENTS * np.array(carried)
    assert numbers.size == ROUNDS
    assert 0 < (numbers > numbers[0]).sum() < ROUNDS - 1
    whole = communication(job)
    assert whole is not None
    assert (whole.numbers, whole.bits) == (numbers.sum(), 64 * numbers.sum())
    after = count_sent(job, range(ROUNDS + 1))["bits"]
    np.testing.assert_allclose(np.diff(after), 64 * numbers / AGENTS, rtol=1e-12)
    for early in (1, 2, 5):
        cut = communication(job, early)
        assert cut is not None
        assert cut.numbers == numbers[:early].sum()


@pytest.mark.parametrize("sampling", ["full", *_BATCHES], ids=["full", "fixed_batch", "poisson"])
@pytest.mark.parametrize(("kind", "sent"), [("dp_dsgd", {"x", "y"}), ("federated", {"m", "u"})])
def test_no_neighbour_exceeds_the_plan_whatever_the_centre_and_the_worst_reaches_it(
    kind: str, sent: set[str], sampling: Any
) -> None:
    # Calibration is not tested here, and takes most of the time.
    scales = {"epsilon": None, "x": {"scale": 0.3}, "y": {"scale": 0.1}}
    found = _search(algorithm={"kind": kind}, problem={"sampling": sampling}, privacy=scales)
    assert found.keys() == sent
    for share in found.values():
        assert 0.95 < share <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("ldp_single_level", "y"), ("choco", "y"), ("exact_diffusion", "y"), ("gradient_tracking", "s")],
)
def test_other_algorithms_compose_with_centring(kind: str, sent: str) -> None:
    scales = {"epsilon": None, "x": {"scale": 0.3}, "y": {"scale": 0.1}}
    found = _search(algorithm={"kind": kind, "momentum": None}, privacy=scales, seeds=4)
    assert found.keys() == {"x", sent}
    assert max(found.values()) <= 1.0 + 1e-9
    assert found["x"] > 0.95


@pytest.mark.parametrize("kind", ["random_walk", "push_sum", "ldp_dsbo"])
def test_algorithms_without_symmetric_averages_of_all_agents_have_no_such_key(kind: str) -> None:
    assert "centring" not in (option.key for option in ALGORITHMS[kind].keys)


@dataclass(frozen=True)
class Averaging:
    """Custom gossip of one level."""

    channels = ("x", "y")
    RELEASES = MappingProxyType({"y": {"lower_grad_y": 0.1}})
    conserves_mass: ClassVar[Any] = False

    def init(self, dataset: Any, x: Any, y: Any) -> Any: ...

    def step(self, t: int, dataset: Any, s: Any) -> Any: ...


class Conserving(Averaging):
    conserves_mass = property(lambda self: True)


@pytest.mark.parametrize(("kind", "can_centre"), [(Averaging, True), (Conserving, False)])
def test_a_custom_algorithm_that_conserves_mass_is_not_centred(kind: type, can_centre: bool) -> None:
    assert entry_of_class(kind, "mine:Mine").can_centre is can_centre


@pytest.mark.parametrize("neighbours", ["replace", "zero_out"])
@pytest.mark.parametrize("unit", [1, 2, "agent"], ids=str)
def test_under_shared_noise_no_unit_moves_more_than_is_planned(unit: Any, neighbours: str) -> None:
    privacy = {"epsilon": None, "x": {"scale": 0.3}, "y": {"scale": 0.1}, "unit": unit, "neighbours": neighbours}
    found = _search(privacy={**privacy, "correlation": {"between_agents": "pairwise", "ratio": 3.0}})
    assert found.keys() == {"x", "y"}
    for share in found.values():
        assert 0.95 < share <= 1.0 + 1e-9


@pytest.mark.parametrize("kind", ["dp_dsgd", "alone", "federated", "central"])
@pytest.mark.parametrize("sampling", _BATCHES, ids=["fixed_batch", "poisson"])
def test_of_batches_the_mean_is_of_all_records_and_priced_without_amplification(kind: str, sampling: Any) -> None:
    job = _job(algorithm={"kind": kind}, problem={"sampling": sampling})
    mean, steps = sorted(job.ledger.charged_channels, key=lambda c: c.rounds.size)
    held = job.counts["train"][0]
    np.testing.assert_allclose(mean.sensitivity["train"], 2.0 * CLIP["x"] / held, rtol=1e-12)
    assert (mean.rate["train"] == 1.0).all()
    assert (steps.rate["train"] < 1.0).all()
    # The cost is at least that of each part, and at most their sum.
    parts = [budget.epsilon.max() for budget in job.budget.channels.values() if budget.epsilon.max() > 0.0]
    assert len(parts) == 2
    assert max(parts) < job.budget.epsilon.max() < sum(parts)
    assert finished(job).ledger.same_releases(job.ledger)


def test_a_server_shortens_the_mean_of_the_answers_and_reads_features_from_it() -> None:
    job = _job(algorithm={"kind": "federated"})
    said, noise = conversation(job, loud), job.algorithm.noise
    (index,) = [t for t, exchange in enumerate(said) if "m" in exchange]
    assert index == 3
    means = np.array([records.features.mean(axis=0) for records in job.records["train"]])
    noised = np.array([loud(index, "m", agent, D) for agent in range(AGENTS)])
    np.testing.assert_allclose(said[index]["m"] - means, noised, atol=1e-6)
    x = said[index]["m"].mean(axis=0)
    x = max(0.0, 1.0 - noise / (x @ x)) * x
    for t in range(0, 2 * ROUNDS + 1, 2):
        np.testing.assert_allclose(said[t]["x"], np.tile(x if t > 2 else 0.0 * x, (AGENTS, 1)), atol=1e-9)


class Unreleased(Centring):
    """Takes gradients from the mean before noise."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        own = {"x": s.x.public + s.x.private} if isinstance(s.x, Bounded) else {}
        return misheard(
            super().step(t, dataset, s),
            lambda _, reply: reply._replace(released=type(reply.released)({**reply.released, **own})),
        )


class Again(Centring):
    """Adds the mean of the features once more, where the plan has it once."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        after = yield from super().step(t, dataset, s)
        return after._replace(x=after.x + dataset.feature_mean()) if t == 1 else after


def test_the_search_sees_a_mean_before_noise_and_the_comparison_of_records_a_second_one() -> None:
    with pytest.raises(AssertionError):
        _search(Unreleased)
    planned, recorded = ledgers(_job(), with_fields_of(Again, _job().algorithm))
    assert not recorded.same_releases(planned)
