"""Units and neighbours: bounds by hand, every batch of small pools, neighbours searched for, plan and record, words."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom, norm

import decentral_dp
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Array, Bounded, Norm
from decentral_dp.data.streams import Sampling
from decentral_dp.errors import InputError
from decentral_dp.participants import LocalDataset, Network
from decentral_dp.privacy.accounting.loss_distributions import group_profile
from decentral_dp.privacy.clipping import RECORD, Clip, Unit
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import GossipJob
from tests.support.training import changed
from tests.support.units import KEYS, data_sets, replayed, with_train

UNITS = tuple(Unit(k, zeroed) for k in (1, 3, None) for zeroed in (False, True))
ALGORITHMS = ("dp_dsgd", "ldp_single_level", "gradient_tracking", "exact_diffusion", "choco", "push_sum")
# The factor of a mean in the first release that has one: λ_0, or 1 if the gradient itself is released.
FACTOR = dict.fromkeys(ALGORITHMS, 0.7) | {"gradient_tracking": 1.0}
SAMPLINGS: tuple[Any, ...] = (
    "full",
    {"kind": "streaming", "batch_size": 2, "warm_start": 1},
    {"kind": "fixed_batch", "batch_size": 4},
)
CLIP = 0.5


def content(keys: Mapping[str, Any], kind: str = "dp_dsgd", sampling: Any = "full", **tables: Any) -> dict[str, Any]:
    """A small job of one level; keyword tables change it."""
    out: dict[str, Any] = {
        "seed": 3,
        "problem": {
            "kind": "classification",
            "data": "synthetic_classification",
            "synthetic": {"dimension": 3, "records": 12, "test_records": 8},
            "sampling": sampling,
        },
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {"kind": kind, "rounds": 4, "learning_rate": {"scale": 0.7, "decay": 0.1}},
        "privacy": {"mechanism": "gaussian", "clip": CLIP, "y": {"scale": 0.5}, "delta": 1e-6, **keys},
    }
    return changed(out, **tables)


def refused(unit: Mapping[str, Any], sampling: Any) -> bool:
    """Records and groups that contribute nothing, in batches of fixed size."""
    fixed = isinstance(sampling, dict) and sampling.get("kind") == "fixed_batch"
    return fixed and unit.get("neighbours") == "zero_out" and unit.get("unit") != "agent"


def built(keys: Mapping[str, Any], *rest: Any, **tables: Any) -> GossipJob:
    job = build(content(keys, *rest, **tables))
    assert isinstance(job, GossipJob)
    return job


PLAIN = functools.cache(lambda: built({}))


# Bounds -------------------------------------------------------------------------------------------------------------


def test_bounds_by_hand() -> None:
    """C = 0.5 and N = 10: by how much of 2C/N each unit moves a mean."""
    by_hand = {
        Unit(1): 0.1, Unit(1, True): 0.05, Unit(3): 0.3, Unit(3, True): 0.15, Unit(None): 1.0, Unit(None, True): 0.5,
        Unit(10): 1.0, Unit(40): 1.0, Unit(40, True): 0.5,
    }  # fmt: skip
    for unit, bound in by_hand.items():
        assert float(unit.sensitivity(CLIP, 10, 4)) == pytest.approx(bound, rel=1e-12)
        assert float(unit.sensitivity(CLIP, 10, 4)) > bound


def test_rounding_of_one_record_less_has_room() -> None:
    """Sums of N and of N − 1 clipped vectors are both rounded, by up to (κ − 1)·C each (docs/proofs/01)."""
    n, d = 10**6, 10
    slack = 1.01 * n * (n + d + 8) * 2.0**-53
    assert float(Unit(1, True).sensitivity(1.0, n, d)) * n >= 1.0 + 2.0 * slack * (1 - 1e-9)
    assert float(Unit(1).sensitivity(1.0, n, d)) * n >= 2.0 + 2.0 * slack * (1 - 1e-9)


@pytest.mark.parametrize(("n", "batch", "k"), [(6, 2, 2), (6, 3, 2), (5, 1, 3), (6, 4, 1), (5, 4, 2)])
def test_a_group_in_drawn_batches_by_all_of_them(n: int, batch: int, k: int) -> None:
    """Every ordered batch, by enumeration: how often it holds the group, and the coupling of proof 36."""
    group = set(range(k))
    batches = list(itertools.permutations(range(n), batch))
    holding = [b for b in batches if group & set(b)]
    share = len(holding) / len(batches)
    rate = float(Unit(k).rate(np.array([batch / n]))[0])
    assert share <= rate <= 1.0
    if n - k < batch:
        assert rate == 1.0
        return
    # Members' places are filled by others that were left out: all batches without members come equally often.
    weight: dict[tuple[int, ...], float] = {}
    for b in holding:
        places = [p for p, record in enumerate(b) if record in group]
        assert len(places) <= min(k, batch)
        fillings = list(itertools.permutations(set(range(k, n)) - set(b), len(places)))
        for filling in fillings:
            other = list(b)
            for p, record in zip(places, filling, strict=True):
                other[p] = record
            weight[tuple(other)] = weight.get(tuple(other), 0.0) + 1.0 / len(fillings)
    assert set(weight) == {b for b in batches if not group & set(b)}
    assert max(weight.values()) == pytest.approx(min(weight.values()))


def test_fixed_batches_need_a_replacement() -> None:
    """One of two records ±1 is drawn, and the first contributes nothing: C/B at the rate 1/2 would be too cheap.

    The law is ½N(v) + ½N(−1) against ½N(0) + ½N(−1): with v = 1 the hockey-stick divergence at ε from Balle, Barthe &
    Gaboardi with a base of μ = C/σ is passed, since the coupled pair N(1), N(−1) is 2C apart.
    """
    sigma, e = 1.0, 1.0
    z = np.linspace(-12.0, 12.0, 480_001)
    step = z[1] - z[0]

    def law(at: float) -> Array:
        return np.asarray(np.exp(-0.5 * ((z - at) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi)))

    def phi(v: float) -> float:
        return 0.5 * math.erfc(-v / math.sqrt(2.0))

    def amplified(mu: float) -> tuple[float, float]:
        """(ε', δ) of a base with this μ at the rate ½."""
        delta = phi(mu / 2 - e / mu) - math.exp(e) * phi(-mu / 2 - e / mu)
        return math.log1p(0.5 * math.expm1(e)), 0.5 * delta

    with_it, without = 0.5 * law(1.0) + 0.5 * law(-1.0), 0.5 * law(0.0) + 0.5 * law(-1.0)
    shown = []
    for mu in (1.0 / sigma, 2.0 / sigma):
        at, delta = amplified(mu)
        shown.append(np.maximum(with_it - math.exp(at) * without, 0.0).sum() * step <= delta)
    assert shown == [False, True]
    with pytest.raises(InputError, match="zero_out"):
        built({"neighbours": "zero_out"}, sampling={"kind": "fixed_batch", "batch_size": 4})


# Neighbours ---------------------------------------------------------------------------------------------------------


def dataset(problem: Any, records: Any, unit: Unit, norm: Norm, seed: int, sampling: Sampling) -> LocalDataset:
    of_kinds = {"train": [records], "validation": [type(records)(*(column[:0] for column in records))]}
    streams = Streams(bytes([seed]) * 32, "batch", np.arange(1))
    lone = Network(sp.csr_array((1, 1)))
    return LocalDataset(
        np.arange(1), problem, of_kinds, np.zeros(1), sampling, Clip(norm, y=CLIP), streams, network=lone, unit=unit
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_no_neighbours_exceed_the_bound_of_their_unit_and_some_come_near(unit: Unit, norm: Norm) -> None:
    job = built({})
    problem, records = job.problem, job.records["train"][0]
    largest = 0.0
    for sampling in (Sampling("full"), Sampling("streaming", batch=2, warm_start=3)):
        for seed in range(30):
            draw = np.random.default_rng([9, seed])
            at, t = draw.normal(size=(1, problem.q)), int(draw.integers(4))
            at[0, 0] = 0.0
            pair = list(data_sets(records, unit, draw, extreme=seed % 3 == 0))
            means = [
                dataset(problem, r, unit, norm, seed, sampling).batch(t).lower_grad_y(np.zeros((1, 0)), at)
                for r in pair
            ]
            assert all(isinstance(mean, Bounded) for mean in means)
            allowed = float(means[0].sensitivities["train"].sensitivity[0])
            moved = means[0].private - means[1].private
            size = float(np.abs(moved).sum() if norm == "l1" else np.linalg.norm(moved))
            assert size <= allowed * (1.0 + 1e-12)
            largest = max(largest, size / allowed)
    assert largest > 0.9


@pytest.mark.parametrize("keys", KEYS, ids=str)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_messages_of_neighbours_stay_within_what_is_planned(algorithm: str, keys: Mapping[str, Any]) -> None:
    """On one transcript, neighbouring data sets differ by at most the sensitivity in the ledger, in one agent only."""
    job = built(keys, algorithm)
    largest = 0.0
    for seed in range(8):
        draw = np.random.default_rng([4, seed])
        pair = list(data_sets(job.records["train"][1], job.unit, draw, extreme=seed % 2 == 0))
        told = [replayed(with_train(job, 1, records)) for records in pair]
        c = job.ledger.charged_channels[0]
        for index in c.rounds:
            moved = told[0][index - 1] - told[1][index - 1]
            assert np.abs(moved[[0, 2, 3]]).max() == 0.0
            share = float(np.linalg.norm(moved[1])) / float(c.sensitivity["train"][index - 1, c.group[1]])
            assert share <= 1.0 + 1e-9
            largest = max(largest, share)
    assert largest > 0.9


# Plan and record ----------------------------------------------------------------------------------------------------


# Batches do not depend on the algorithm.
SAMPLED = [("dp_dsgd", sampling) for sampling in SAMPLINGS] + [(kind, SAMPLINGS[1]) for kind in ALGORITHMS[1:]]


@pytest.mark.parametrize(("algorithm", "sampling"), SAMPLED, ids=str)
@pytest.mark.parametrize("keys", KEYS, ids=str)
def test_planned_is_recorded_for_every_unit(algorithm: str, keys: Mapping[str, Any], sampling: Any) -> None:
    if refused(keys, sampling):
        with pytest.raises(InputError, match=r'privacy\.neighbours: "zero_out" is not supported'):
            built(keys, algorithm, sampling)
        return
    run = decentral_dp.run(content(keys, algorithm, sampling))
    job = run.simulation()
    assert run.result.status == "ok"
    assert run.records.same_releases(job.ledger)
    assert not run.records.same_releases(built({"unit": 2}, algorithm, sampling).ledger)
    c = job.ledger.charged_channels[0]
    n = {"full": 12.0, "streaming": 3.0, "fixed_batch": 4.0}[job.sampling.kind]
    k = {"record": 1.0, "agent": 12.0}.get(str(keys.get("unit", "record")), 3.0)
    clips = min(k, n) * (1.0 if job.unit.zeroed else 2.0)
    assert c.sensitivity["train"][0, 0] == pytest.approx(FACTOR[algorithm] * clips * CLIP / n, rel=1e-9)
    fixed = job.sampling.kind == "fixed_batch"
    assert c.rate["train"][0, 0] == pytest.approx(min(1.0, k * 4 / 12) if fixed else 1.0)


# Refusals and words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", KEYS[1:], ids=str)
def test_an_audit_refutes_a_price_that_forgets_the_unit(
    keys: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounted as half, as one record, or as an agent's records one by one. The correct ledger is not refuted."""
    noise = {"scale": 0.5 if keys.get("unit") == "agent" else 0.05}
    scenario = content({**keys, "y": noise}, algorithm={"rounds": 2, "momentum": 0.0})
    right = decentral_dp.audit(scenario, runs=60)
    assert right.status == "ok"
    assert right.null_shown == 0.0
    assert 0.4 * right.certified < right.shown <= right.certified
    clips = Unit.clips

    def forgotten(unit: Unit, averaged: Any) -> Array:
        return 0.5 * clips(unit, averaged) if unit.records == 1 else clips(Unit(1, unit.zeroed), averaged)

    monkeypatch.setattr(Unit, "clips", forgotten)
    wrong = decentral_dp.audit(scenario, runs=60)
    assert wrong.certified < right.certified
    assert wrong.status == "refuted"


def test_unlike_units_are_labelled_side_by_side(tmp_path: Any) -> None:
    for name, keys in zip("abc", (KEYS[0], KEYS[0], KEYS[1]), strict=True):
        decentral_dp.run(content(keys), out=tmp_path / name)
    alike, unlike = (decentral_dp.compare(tmp_path / "a", tmp_path / other) for other in "bc")
    assert not any("different adjacencies" in remark for remark in alike.remarks)
    assert any("different adjacencies" in remark for remark in unlike.remarks)


# Local steps --------------------------------------------------------------------------------------------------------


def moved_block(records: Any, unit: Unit, norm: Norm, sampling: Sampling, at: Array, step: float = 2.0) -> Bounded:
    block = dataset(PLAIN().problem, records, unit, norm, 1, sampling).local_steps(1, np.zeros((1, 0)), at, 5, step)
    assert isinstance(block, Bounded)
    return block


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("unit", [Unit(None), Unit(None, True)], ids=str)
def test_no_agent_moves_a_block_further_than_its_clip_says(unit: Unit, norm: Norm) -> None:
    records, largest = built({}).records["train"][0], 0.0
    for sampling in (Sampling("full"), Sampling("fixed_batch", batch=3)):
        for seed in range(20):
            draw = np.random.default_rng([11, seed])
            at = draw.normal(size=(1, 4))
            at[0, 0] = 0.0
            pair = data_sets(records, unit, draw, extreme=seed % 2 == 0)
            one, other = (moved_block(r, unit, norm, sampling, at) for r in pair)
            allowed = float(one.sensitivities["train"].sensitivity[0])
            assert allowed == pytest.approx(CLIP if unit.zeroed else 2.0 * CLIP, rel=1e-12)
            assert one.sensitivities["train"].rate[0] == 1.0
            apart = one.private - other.private
            size = float(np.abs(apart).sum() if norm == "l1" else np.linalg.norm(apart))
            assert size <= allowed
            largest = max(largest, size / allowed)
    assert largest > 0.9


def test_steps_that_overflow_count_as_none_and_records_have_no_bound() -> None:
    records = built({}).records["train"][0]
    with np.errstate(all="ignore"):
        wild = moved_block(records, Unit(None), "l2", Sampling("full"), np.full((1, 4), 1.0), step=1e308)
    assert np.isfinite(wild.private).all()
    for unit in (RECORD, Unit(3)):
        block = moved_block(records, unit, "l2", Sampling("full"), np.full((1, 4), 1.0))
        assert np.isinf(block.sensitivities["train"].sensitivity).all()
    with pytest.raises(TypeError, match="release it first"):
        moved_block(records, Unit(None), "l2", Sampling("full"), block)  # type: ignore[arg-type]


# Poisson samples ----------------------------------------------------------------------------------------------------

COINS = {"kind": "poisson", "rate": 0.25}


@pytest.mark.parametrize(
    ("algorithm", "keys"), [*(("dp_dsgd", keys) for keys in KEYS[:4]), *((a, KEYS[3]) for a in ALGORITHMS[1:])], ids=str
)
def test_poisson_samples_of_other_units_are_recorded_as_planned(algorithm: str, keys: Mapping[str, Any]) -> None:
    runs = [decentral_dp.run(content(keys, algorithm, COINS, run={"blocks": b})) for b in (1, 3)]
    job = runs[0].simulation()
    c, k = job.ledger.charged_channels[0], job.unit.records or 0
    assert c.sampling == job.unit.sampling
    clips = k * (1.0 if job.unit.zeroed else 2.0)
    assert c.sensitivity["train"][0, 0] == pytest.approx(FACTOR[algorithm] * clips * CLIP / (0.25 * 12), rel=1e-9)
    np.testing.assert_array_equal(c.rate["train"], 0.25)
    assert runs[0].records.same_releases(job.ledger)
    assert np.array_equal(runs[0].released["y"], runs[1].released["y"])


@pytest.mark.parametrize("unit", [u for u in UNITS if u.records is not None], ids=str)
def test_no_poisson_samples_of_neighbours_exceed_the_bound_of_their_unit(unit: Unit) -> None:
    """Use the same sample: a replaced record moves as far as two exchanged ones."""
    job = built({})
    problem, records = job.problem, job.records["train"][0]
    draw, at, largest = np.random.default_rng(1), np.zeros((1, problem.q)), 0.0
    for t in range(300):
        means = [
            dataset(problem, data_set, unit, "l2", 5, Sampling("poisson", share=0.5))
            .batch(t)
            .lower_grad_y(at[:, :0], at)
            for data_set in data_sets(records, unit, draw, extreme=t % 2 == 0)
        ]
        moved = np.linalg.norm(means[0].private - means[1].private)
        largest = max(largest, float(moved / means[0].sensitivities["train"].sensitivity[0]))
    assert 0.95 < largest <= 1.0


@pytest.mark.parametrize("unit", [Unit(k, z) for k in (1, 2, 5) for z in (False, True)][1:], ids=str)
@pytest.mark.parametrize(("m", "q"), [(0.3, 0.5), (1.0, 0.1), (2.5, 0.02), (0.7, 0.9)])
def test_the_price_of_a_sample_is_no_less_than_that_of_any_pair_of_its_unit(unit: Unit, m: float, q: float) -> None:
    """Integrate in both orders: j of k records are drawn, all on one side or on both."""
    k, z = unit.records or 0, np.linspace(-25.0, 25.0, 100_001)
    laws = [sum(binom.pmf(j, k, q) * norm.pdf(z - side * j * m) for j in range(k + 1)) for side in (1.0, -1.0, 0.5)]
    others = [norm.pdf(z)] if unit.zeroed else [norm.pdf(z), laws[1], laws[2]]
    profile = group_profile(unit.steps * m, q, k, unit.zeroed)
    near = 0.0
    for e in (1e-9, 0.01, 0.2, 1.0, 2.0):
        allowed = float(profile(np.array([e]))[0])
        for p, o in [(laws[0], o) for o in others] + [(o, laws[0]) for o in others]:
            delta = float(np.maximum(p - math.exp(e) * o, 0.0).sum() * (z[1] - z[0]))
            assert delta <= allowed * (1.0 + 1e-6) + 1e-12
            near = max(near, delta / allowed)
    assert near > 0.999


def test_coins_are_fresh_secret_and_each_records_own() -> None:
    """Compute sums over the drawn samples, including an empty one."""
    job = built({}, "dp_dsgd", COINS)
    problem, records = job.problem, job.records["train"][0]
    at, n = np.full((1, problem.q), 0.2), len(records.label)
    each = [
        problem.terms(np.zeros(0), at[0], at[0], one, one, Clip("l2", y=CLIP), ("lower_grad_y",)).lower_grad_y
        for one in (type(records)(records.features[k : k + 1], records.label[k : k + 1]) for k in range(n))
    ]
    local = dataset(problem, records, RECORD, "l2", 5, Sampling("poisson", share=0.25))
    held, sizes = np.zeros(n), []
    for t in range(400):
        batch = local.batch(t)
        mean = batch.lower_grad_y(np.zeros((1, 0)), at)
        coins = local._batches.generator(0, t, tag("train/poisson/0")).random(n) < 0.25
        total = sum((each[k] for k in np.flatnonzero(coins)), np.zeros(4))
        np.testing.assert_allclose(mean.private[0], total / (0.25 * n))
        moved = mean.sensitivities["train"]
        assert (moved.sampling, moved.rate[0]) == ("poisson", 0.25)
        # A record adds at most half of what is charged for two that are exchanged.
        assert max(np.linalg.norm(v) for v in each) / (0.25 * n) <= moved.sensitivity[0] / 2.0
        held, sizes = held + coins, [*sizes, int(coins.sum())]
    assert min(sizes) == 0
    assert np.abs(held / 400 - 0.25).max() < 0.09
    assert np.std(sizes) == pytest.approx(math.sqrt(n * 0.25 * 0.75), rel=0.15)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"problem": {"sampling": {"kind": "poisson"}}}, "rate: missing"),
        ({"problem": {"sampling": {"kind": "poisson", "rate": 0.5, "batch_size": 2}}}, "batch_size: does not apply"),
        ({"problem": {"sampling": {"kind": "fixed_batch", "rate": 0.5, "batch_size": 2}}}, "rate: does not apply"),
    ],
)
def test_poisson_samples_without_a_price_are_refused(change: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        build(content({}, "dp_dsgd", COINS, **change))


@dataclass(frozen=True)
class Stating(DpDsgd):
    """A custom algorithm that claims the attributes of a built-in one."""

    one_mean = True
    memoryless = True


@pytest.mark.parametrize("keys", [{"sampling": COINS}, {"keys": {"neighbours": "zero_out"}}], ids=str)
def test_an_algorithm_from_outside_unlocks_no_price_by_stating_it(keys: Any) -> None:
    own = content(keys.get("keys", {}), "dp_dsgd", keys.get("sampling", "full"))
    assert max(decentral_dp.plan(own).epsilon) > 0
    with pytest.raises(InputError, match=r"not accounted|privacy\.neighbours: "):
        decentral_dp.plan(own, algorithm=Stating(StepSize(0.7)))
    # Its limit for T → ∞ is not inherited either.
    of_outside = decentral_dp.plan(content({}), algorithm=Stating(StepSize(0.7))).privacy
    assert (of_outside.at_infinity.finite_data, decentral_dp.plan(content({})).privacy.at_infinity.finite_data) == (
        None,
        math.inf,
    )
