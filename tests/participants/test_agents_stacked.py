"""Many agents in one pass: each agent's sums have the bits of a block with this agent only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.data.streams import Sampling
from decentral_dp.exchange import ClippedSum
from decentral_dp.models import linear_terms
from decentral_dp.models.dense import DenseLayers
from decentral_dp.participants import ClientBlock, LocalDataset
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.linear import (
    LogisticHyperparameter,
    Quadratic,
    SoftmaxHyperparameter,
    biased_regularisation,
)
from decentral_dp.problems.protocol import TERMS, Stacked, as_stacked
from decentral_dp.problems.records import take
from decentral_dp.problems.training import Logistic, Training

WIDTH, CLASSES = 6, (0.0, 1.0, 2.0)
TRAIN, VALIDATION = [7, 7, 3, 7, 1, 3, 12], [4, 9, 4, 4, 9, 9, 1]
PROBLEMS = {
    "logistic": LogisticHyperparameter(WIDTH),
    "logistic with an intercept": LogisticHyperparameter(WIDTH, intercept=True),
    "softmax": SoftmaxHyperparameter(WIDTH, CLASSES),
    "quadratic": Quadratic(WIDTH),
    "biased": biased_regularisation(WIDTH, CLASSES),
    "hyper-cleaning": HyperCleaning(WIDTH, CLASSES, agents=len(TRAIN), groups=4),
    "training": Training("classification", DenseLayers((WIDTH, 1), 0.4, 0.2), Logistic(), WIDTH, 2),
}


def labels(problem: Any, draw: np.random.Generator, n: int) -> np.ndarray:
    if isinstance(problem, LogisticHyperparameter):
        return np.where(draw.uniform(size=n) < 0.5, -1.0, 1.0)
    if isinstance(problem, Quadratic):
        return draw.normal(size=n)
    return draw.integers(2 if isinstance(problem, Training) else 3, size=n).astype(np.float64)


def shards(problem: Any, sizes: list[int], seed: int, train: bool) -> list[Any]:
    """Records of every agent: ordinary ones, huge ones, and one that overflows."""
    draw, out = np.random.default_rng(seed), []
    for agent, n in enumerate(sizes):
        features = draw.normal(size=(n, WIDTH)) * 10.0 ** draw.integers(-3, 4, size=(n, 1))
        if agent == 1:
            features[0] = 1e200
        found = problem.prepare(features, labels(problem, draw, n), "l2")
        out.append(problem.place_records(found, agent) if train and hasattr(problem, "place_records") else found)
    return out


def dataset(problem: Any, chosen: np.ndarray, records: dict[str, list[Any]], sampling: Sampling) -> LocalDataset:
    return LocalDataset(
        chosen,
        problem,
        {k: [some[i] for i in chosen] for k, some in records.items()},
        np.full(chosen.size, 0.5),
        sampling,
        Clip("l2", 0.7, 0.9, 0.4),
        Streams(seeded_root(3, b"stacked"), "batch", chosen),
    )


def directions(problem: Any, chosen: np.ndarray, records: Any, sampling: Sampling) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(4)
    every = (draw.normal(size=(len(TRAIN), d)) for d in (problem.p, problem.q, problem.q))
    x, y, z = (v[chosen] for v in every)
    with np.errstate(all="ignore"):
        found = dataset(problem, chosen, records, sampling).oracle(5, x, y, z)._asdict()
    return {term: getattr(value, "private", value) for term, value in found.items()}


@pytest.mark.parametrize(
    "sampling", [Sampling("full"), Sampling("streaming", batch=1), Sampling("fixed_batch", batch=2)], ids=str
)
@pytest.mark.parametrize("name", PROBLEMS)
def test_an_agent_alone_computes_the_same_bits(name: str, sampling: Sampling) -> None:
    problem: Any = PROBLEMS[name]
    assert isinstance(problem, Stacked)
    if sampling.kind == "fixed_batch":
        sizes: tuple[list[int], list[int]] = ([max(n, 2) for n in TRAIN], [max(n, 2) for n in VALIDATION])
    else:
        sizes = (TRAIN, VALIDATION)
    records = {"train": shards(problem, sizes[0], 1, True), "validation": shards(problem, sizes[1], 2, False)}
    whole = directions(problem, np.arange(len(TRAIN)), records, sampling)
    assert any(np.abs(value).max() > 0.0 for value in whole.values())
    for agent in range(len(TRAIN)):
        alone = directions(problem, np.array([agent]), records, sampling)
        for term, value in alone.items():
            np.testing.assert_array_equal(value[0], whole[term][agent], err_msg=f"{term} of agent {agent}")
    some = np.array([6, 0, 3, 1])
    for term, value in directions(problem, some, records, sampling).items():
        np.testing.assert_array_equal(value, whole[term][some], err_msg=term)


def test_a_class_that_overrides_its_terms_is_asked_agent_by_agent() -> None:
    class Doubled(LogisticHyperparameter):
        def terms(self, *arguments: Any, **named: Any) -> Any:
            terms = super().terms(*arguments, **named)
            return terms if terms.lower_grad_y is None else terms._replace(lower_grad_y=2.0 * terms.lower_grad_y)

    plain, doubled = LogisticHyperparameter(WIDTH), Doubled(WIDTH)
    assert as_stacked(plain) is plain
    assert as_stacked(doubled) is None
    records = {"train": shards(plain, TRAIN, 1, True), "validation": shards(plain, VALIDATION, 2, False)}
    every = np.arange(len(TRAIN))
    once, twice = (directions(problem, every, records, Sampling("full")) for problem in (plain, doubled))
    np.testing.assert_array_equal(twice["lower_grad_y"], 2.0 * once["lower_grad_y"])
    np.testing.assert_array_equal(twice["lower_hvp"], once["lower_hvp"])


@pytest.mark.parametrize("name", ["logistic", "quadratic", "training"])
def test_agents_with_unequal_counts_share_one_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem: Any = PROBLEMS[name]
    records = {"train": shards(problem, TRAIN, 1, True), "validation": shards(problem, VALIDATION, 2, False)}
    calls, terms = list[Any](), type(problem).stacked_terms

    def counted(*arguments: Any) -> Any:
        calls.append(arguments[-1])
        return terms(*arguments)

    monkeypatch.setattr(type(problem), "joins_agents", True)
    monkeypatch.setattr(type(problem), "stacked_terms", counted)
    directions(problem, np.arange(len(TRAIN)), records, Sampling("full"))
    assert len(calls) == len(set(problem.reads_records.values()))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_large_shard_is_cut_by_its_own_size_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Split every shard under a small cache, independently of the other agents."""
    problem: Any = PROBLEMS[name]
    monkeypatch.setattr(linear_terms, "BLOCK", 4 * WIDTH)
    records = {"train": shards(problem, [9, 9, 9], 1, True), "validation": shards(problem, [5, 5, 5], 2, False)}
    clip, draw = Clip("l2", 0.7, 0.9, 0.4), np.random.default_rng(5)
    x, y, z = (draw.normal(size=(3, d)) for d in (problem.p, problem.q, problem.q))
    for split in ("train", "validation"):
        wanted = [term for term in TERMS if problem.reads_records.get(term) == split]
        stack = type(records[split][0])(*(np.stack(arrays) for arrays in zip(*records[split], strict=True)))
        with np.errstate(all="ignore"):
            together = problem.stacked_terms(x, y, z, stack, clip, wanted)
        for agent, shard in enumerate(records[split]):
            empty = take(shard, slice(0))
            pair = (shard, empty) if split == "train" else (empty, shard)
            alone = problem.terms(x[agent], y[agent], z[agent], *pair, clip, wanted)
            for term in wanted:
                np.testing.assert_array_equal(getattr(alone, term), getattr(together, term)[agent])


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_sample_is_the_sum_of_its_records_each_alone(name: str) -> None:
    """To the bit, so that being drawn moves nothing of what the others contribute."""
    problem: Any = PROBLEMS[name]
    train, validation = (shards(problem, [40, 9], 3 + k, train=not k)[1] for k in (0, 1))
    draw, clip = np.random.default_rng(8), Clip("l2", x=0.5, y=0.7, z=0.3)
    block = ClientBlock(np.zeros(1, dtype=np.int64), problem, {}, clip, Streams(seeded_root(2, b""), "coins", [0]))
    x, y, z = draw.normal(size=problem.p), draw.normal(size=problem.q), draw.normal(size=problem.q)
    for term in (term for term in TERMS if term in problem.reads_records):
        records = train if term.startswith("lower") else validation
        total = np.zeros(problem.p if term in ("lower_jvp", "upper_grad_x") else problem.q)
        with np.errstate(all="ignore"):
            for k in range(len(records[0])):
                one = [take(r, slice(k, k + 1) if r is records else slice(0)) for r in (train, validation)]
                total = total + getattr(problem.terms(x, y, z, *one, clip, (term,)), term)
            found = block.clipped_sum(ClippedSum(term, x, y, z, rate=0.5), records)
        assert found.tobytes() == total.tobytes(), term
        assert total.any(), term
