"""Cost of a trusted coordinator's questions and draws, as ratios or against a limit in the same run."""

import time

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from decentral_dp.central.context import CoordinatorContext, Domain
from decentral_dp.central.pooled import Pooled, PooledBounds
from decentral_dp.central.selection import FiniteExponential, ScoreBounds
from decentral_dp.constants.families import family_of
from decentral_dp.exchange import ClippedSum
from decentral_dp.participants.clients import ClientBlock
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.regularised_losses import logistic_regularisation, ridge_regularisation
from tests.benchmarks.timing import fastest


@pytest.mark.parametrize(
    ("kind", "n", "d"), [("logistic", 20_000, 200), ("logistic", 100_000, 64), ("ridge", 20_000, 200)]
)
def test_ask_ratio(benchmark, kind, n, d):
    """One question of a gradient over ten agents' records, against X·y and rᵀ·X over the same records."""
    agents, rng = 10, np.random.default_rng([n, d])
    problem = LogisticHyperparameter(d) if kind == "logistic" else Quadratic(d)
    parts = [
        problem.prepare(rng.normal(size=(n // agents, d)), rng.choice([-1.0, 1.0], size=n // agents), "l2")
        for _ in range(agents)
    ]
    clip, root = Clip("l2", 1.0, 1.0, 1.0), seeded_root(1, b"ask")
    client_block = ClientBlock(
        np.arange(agents), problem, {"train": parts, "validation": parts}, clip, Streams(root, "coins", range(agents))
    )
    context = CoordinatorContext(problem, {"train": n, "validation": n}, agents, clip, Domain())
    x, y = rng.normal(size=(2, d)) / d
    question = {"g": ClippedSum("lower_grad_y", x, y)}
    rows = [p[0] for p in parts]
    left = [rng.normal(size=n // agents) for _ in parts]

    def ask():
        return context.combine(1, question, client_block.answer(1, question))

    def products():
        return [a @ y for a in rows], [r @ a for r, a in zip(left, rows, strict=True)]

    with threadpool_limits(1, user_api="blas"):
        ours, bare = fastest([ask, products], rounds=15)
        benchmark.pedantic(ask, rounds=5, warmup_rounds=1)
    benchmark.extra_info["ratio"] = ours / bare
    print(f"\nask {kind} {n} x {d}: {ours / bare:.2f} of two bare passes")
    assert ours / bare <= 1.5


@pytest.mark.parametrize("kind", ["ridge", "logistic"])
def test_one_dimensional_tuning_by_exact_samplers(benchmark, kind):
    """A draw at n = 10⁵, after sufficient statistics (squares) or with a solve at every score (logistic)."""
    n, d, rng = 100_000, 20, np.random.default_rng(3)
    problem = ridge_regularisation(d) if kind == "ridge" else logistic_regularisation(d, [0.0, 1.0])
    features = rng.normal(size=(n, d))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = np.sign(features[:, 0] + 0.5 * rng.normal(size=n))
    records = problem.prepare(features, labels if kind == "ridge" else (labels > 0).astype(float), "l2")
    family = family_of(problem, 1.0, 1.0)
    pool, low, high = Pooled.from_agents(family, [(records, records)]), np.array([-5.0]), np.array([0.0])
    facts = ScoreBounds.of_value(PooledBounds(family, n, n), low, high)
    scale = max(facts.sensitivity.values())
    streams = Streams(seeded_root(2, b"draw"), "noise", [0])

    points, coefficients = np.linspace(high, low, 65), rng.normal(size=n)

    def bare():
        """Of a score no less than a product for its gradient, one back, and one for its losses."""
        for at in rng.normal(size=(len(points), d)):
            (features @ at, coefficients @ features, features @ at)

    with threadpool_limits(1, user_api="blas"):
        # Moments are kept: they are part of the price of the first look, and a pool is looked at once here.
        solved, passes = fastest([lambda: Pooled.from_agents(family, [(records, records)]).scores(points), bare], 3)
        scores = pool.scores(points)

    def draw():
        return FiniteExponential(facts, points, lambda _: scores).draw(streams.generator(0, 1, 1), scale)

    started = time.perf_counter()
    draw()
    drawn = time.perf_counter() - started
    benchmark.pedantic(draw, rounds=3)
    benchmark.extra_info |= {"seconds": drawn, "ratio": solved / passes}
    print(
        f"\n{kind}, n = {n}: 65 certified scores in {solved:.2f} s, {solved / passes:.2f} of three passes each; then "
        f"one exact draw in {drawn * 1e3:.1f} ms"
    )
    assert drawn < 1.0
    # Squares need their moments once; a logistic score is a solve over all records.
    assert solved <= 4.0 * passes
