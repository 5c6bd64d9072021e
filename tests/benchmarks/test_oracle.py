"""Cost of the logistic oracle, as a ratio to the bare products over the same records in the same run."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from tests.benchmarks.timing import fastest


@pytest.mark.parametrize(("n", "d"), [(20_000, 200), (100_000, 64)])
def test_logistic_oracle_ratio(benchmark, n, d):
    """Everything one round needs, against X·[y z] and [r s]ᵀ·X on the train records, X·y and rᵀ·X on the validation.

    One thread on both sides: agents run side by side, so a core is what an agent has.
    """
    rng = np.random.default_rng([n, d])
    problem = LogisticHyperparameter(d)
    train, validation = (
        problem.prepare(rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], size=n), "l2") for _ in range(2)
    )
    clip = Clip("l2", 1.0, 1.0, 1.0)
    x, y, z = rng.normal(size=(3, d)) / d
    right = np.stack([y, z], axis=1)
    left = rng.normal(size=(2, n))

    def oracle():
        return problem.terms(x, y, z, train, validation, clip)

    def products():
        return train.signed @ right, left @ train.signed, validation.signed @ y, left[0] @ validation.signed

    def products_by_columns():
        """The same by matrix-vector products, which some BLAS do faster than a product with two columns."""
        a = train.signed
        return a @ y, a @ z, left[0] @ a, left[1] @ a, validation.signed @ y, left[0] @ validation.signed

    with threadpool_limits(1, user_api="blas"):
        ours, bare, by_columns = fastest([oracle, products, products_by_columns], rounds=15)
        benchmark.pedantic(oracle, rounds=5, warmup_rounds=1)
    ratio = ours / bare
    benchmark.extra_info["ratio"] = ratio
    benchmark.extra_info["ratio_to_products_by_columns"] = ours / by_columns
    print(f"\nlogistic oracle {n} x {d}: {ratio:.2f} of the bare products ({ours / by_columns:.2f} by columns)")
    assert ratio <= 1.3


def test_logistic_oracle_overhead_on_small_shards(benchmark):
    """A thousand agents of fifty records call the oracle every round: Python's share must stay in microseconds."""
    rng = np.random.default_rng(50)
    problem = LogisticHyperparameter(30)
    records = problem.prepare(rng.normal(size=(50, 30)), rng.choice([-1.0, 1.0], size=50), "l2")
    x, y, z = rng.normal(size=(3, 30))
    clip = Clip("l2", 1.0, 1.0, 1.0)
    right, left = np.stack([y, z], axis=1), rng.normal(size=(2, 50))
    a = records.signed
    with threadpool_limits(1, user_api="blas"):
        ours, bare = fastest(
            [
                lambda: problem.terms(x, y, z, records, records, clip),
                lambda: (a @ right, left @ a, a @ y, left[0] @ a),
            ],
            rounds=5000,
        )
        benchmark(problem.terms, x, y, z, records, records, clip)
    benchmark.extra_info["microseconds_per_call"] = ours * 1e6
    print(f"\nlogistic oracle 50 x 30: {ours * 1e6:.1f} µs per call, {ours / bare:.1f} of the bare products")
    assert ours <= 20 * bare
