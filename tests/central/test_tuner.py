"""`tune`: its budget, estimates and refusals."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from decentral_dp.central.bilevel.regularisation_tuner import penalty_slope
from decentral_dp.central.context import CoordinatorContext, Domain
from decentral_dp.central.pooled import Pooled
from decentral_dp.central.tuner import Arguments, Tuned, plan_program, project, release_plan, tune
from decentral_dp.constants import family_of
from decentral_dp.errors import InputError
from decentral_dp.exchange import Bundle, Released
from decentral_dp.privacy.accounting.accountants import account, gaussian_epsilon
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.privacy.releasers import PlannedReleaser
from decentral_dp.problems.bilevel.linear import logistic_regularisation, ridge_regularisation
from tests.support.release_cost_oracle import gaussian_mu, laplace_loss

METHODS = ("ppift", "penalty", "em")
LOSSES = ("logistic", "squared")
Role = tuple[np.ndarray, np.ndarray]


@functools.cache
def draw(n: int, d: int, seed: int, strength: float = 6.0) -> Role:
    """Draw records on the sphere with logistic labels."""
    rng = np.random.default_rng(seed)
    star = np.random.default_rng(99).normal(size=d)
    a = rng.normal(size=(n, d))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    return a, np.where(rng.random(n) < expit(strength / np.linalg.norm(star) * (a @ star)), 1.0, -1.0)


def make_pool(loss: str, train: Role, validation: Role) -> Pooled:
    d = train[0].shape[1]
    problem = ridge_regularisation(d) if loss == "squared" else logistic_regularisation(d, (-1.0, 1.0))
    prepared = (problem.prepare(*project(*r, loss, 1.0, 1.0), "l2") for r in (train, validation))  # type: ignore[arg-type] # parametrised over both
    return Pooled(family_of(problem, 1.0, 1.0), *prepared)


def make_context(pool: Pooled) -> CoordinatorContext:
    return CoordinatorContext(pool.family.problem, pool.counts, 1, Clip("l2"), Domain(), pool.family)


def log_weight(w: float) -> np.ndarray:
    return np.array([math.log(w)])


def validation_loss(pool: Pooled, w: float) -> float:
    """Compute F(w) exactly."""
    return float(pool.scores(log_weight(w)[None])[0])


def roles(loss: str, n: int = 400, d: int = 3) -> Pooled:
    return make_pool(loss, draw(n, d, 1), draw(n, d, 2))


def make_plan(method: str, d: int, steps: int = 15, epsilon: float = 1.0, delta: float = 1e-6, n: int = 200) -> Ledger:
    arguments = Arguments(epsilon, delta, (0.01, 1.0), "logistic", 1.0, 1.0, method, steps, 10.0, None)  # type: ignore[arg-type] # parametrised
    return release_plan(arguments, *plan_program(arguments, n, n, d))


def make_released(channel: str, value: np.ndarray, scale: float) -> Released:
    return Released(Bundle({channel: value[None]}), {channel: scale})


def call_tune(n: int = 200, d: int = 3, **changes: Any) -> Tuned:
    arguments: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "weight_range": (0.01, 1.0), "seed": 5, **changes}
    return tune(train=draw(n, d, 1), validation=draw(n + 50, d, 2), **arguments)


# Budget -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("epsilon", "steps", "d"), [(0.2, 15, 3), (4.0, 40, 20)])
def test_epsilon_is_close_to_target(method: str, loss: str, epsilon: float, steps: int, d: int) -> None:
    tuned = call_tune(method=method, loss=loss, epsilon=epsilon, steps=steps, d=d)
    spent = account(tuned.ledger, tuned.budget.delta)
    target = "epsilon_pure" if method == "em" else "epsilon"
    promised = float(getattr(tuned.budget, target)[0])
    assert (1 - 1e-3) * epsilon <= promised <= epsilon
    # A release has its planned cost for one split, and possibly a smaller one for the other.
    assert 0.9 * promised <= getattr(spent, target)[0] <= promised
    assert all(spent.records[k].epsilon[0] <= tuned.budget.records[k].epsilon[0] for k in spent.records)
    assert set(spent.records) == {"train", "validation"}
    assert f"epsilon = {math.ceil(tuned.budget.epsilon[0] * 1e4) / 1e4:.4f}" in tuned.statement


@pytest.mark.parametrize("method", METHODS)
def test_result_is_what_was_released(method: str) -> None:
    """The channels, counts and sizes are those of the plan."""
    tuned = call_tune(method=method)
    assert tuned.model.shape == (3,)
    assert 0.01 <= tuned.weight <= 1.0
    assert tuned.weight == tuned.path[-1]
    assert tuned.path.size == (1 if method == "em" else 16)
    frame = tuned.ledger.to_frame()
    expected = {
        "ppift": {"model": ("gaussian", 16, 3), "slope": ("gaussian", 15, 1)},
        "penalty": {"model": ("gaussian", 16, 3), "pulled": ("gaussian", 15, 3)},
        "em": {"x": ("exponential", 1, 1), "model": ("laplace", 1, 3)},
    }[method]
    for channel, (mechanism, releases, d) in expected.items():
        rows = frame[(frame["channel"] == channel) & (frame["records"] == "train")]
        assert (set(rows["mechanism"]), len(rows), set(rows["dimension"])) == ({mechanism}, releases, {d})
    assert set(frame["channel"]) == set(expected)
    # The model does not read validation records.
    assert set(frame[frame["channel"] == "model"]["records"]) == {"train"}


@pytest.mark.parametrize("method", ["ppift", "penalty"])
def test_plan_matches_closed_form(method: str) -> None:
    plan = make_plan(method, 7)
    squares = {"train": 0.0, "validation": 0.0}
    for line in plan.channels:
        for split, s in line.sensitivity.items():
            squares[split] += float((GAUSSIAN.cost(s, line.scale, line.dimension) ** 2).sum())
    for total in squares.values():
        assert 0.999 <= float(gaussian_epsilon(math.sqrt(total), 1e-6)) <= 1.0
    assert math.sqrt(squares["train"]) == pytest.approx(0.23670, rel=2e-3)


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-9, 1e9), st.floats(0.01, 1.0), st.integers(1, 300))
def test_scales_never_raise_the_cost(sensitivity: float, epsilon: float, d: int) -> None:
    for plan, channel, loss in (
        (make_plan("penalty", d, 2, epsilon), "pulled", gaussian_mu),
        (make_plan("em", d, epsilon=epsilon), "model", laplace_loss),
    ):
        releaser = PlannedReleaser(plan, bytes(32))
        for split, price_of_it in releaser.planned_cost(2, channel).items():
            scale = releaser.scale(2, channel, {split: sensitivity})
            assert loss(sensitivity, scale, d) <= loss(price_of_it, 1.0, d)


# Slope --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("w", [0.003, 0.1, 2.0])
def test_slopes_match_differences(loss: str, w: float) -> None:
    pool, h = roles(loss), 1e-4
    exact = (validation_loss(pool, w * math.exp(h)) - validation_loss(pool, w * math.exp(-h))) / (2 * h)
    theta = pool.minimiser(log_weight(w)).value[0]
    assert pool.implicit(log_weight(w), theta, pointwise=True).value[0, 0] == pytest.approx(exact, rel=1e-5)
    lam = 1e4 / w
    plain = make_released("model", theta, 0.0)
    penalised = make_released("pulled", pool.minimiser(log_weight(w), lam).value[0], 0.0)
    estimate, _ = penalty_slope(make_context(pool), log_weight(w), lam, plain, penalised)
    assert estimate == pytest.approx(exact, rel=2e-2)
    # The published update adds the slope to w, which is the wrong direction.
    assert np.sign(estimate) == np.sign(exact) != 0


def test_slope_subtracts_minimiser_noise() -> None:
    """Without the correction d(s₂² − s₁²)/2 the estimate would have a bias of many standard errors."""
    rng = np.random.default_rng(1)
    theta, penalised, w, lam, s1, s2 = np.array([0.3, -0.2, 0.5]), np.array([0.1, 0.4, 0.2]), 0.2, 10.0, 0.3, 0.9
    context = make_context(roles("logistic"))

    def slope(near: np.ndarray, far: np.ndarray, s1: float, s2: float) -> float:
        plain, other = make_released("model", near, s1), make_released("pulled", far, s2)
        return penalty_slope(context, log_weight(w), lam, plain, other)[0]

    exact = slope(theta, penalised, 0.0, 0.0)
    estimates = [
        slope(theta + s1 * rng.normal(size=3), penalised + s2 * rng.normal(size=3), s1, s2) for _ in range(4000)
    ]
    error = np.std(estimates) / math.sqrt(len(estimates))
    assert abs(np.mean(estimates) - exact) < 4 * error
    assert w * lam * 1.5 * (s2**2 - s1**2) > 20 * error


# Arguments ----------------------------------------------------------------------------------------------------------


class Untouchable:
    """Data that fail the test when they are read."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise AssertionError("the data were touched")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"weight_range": (0.0, 1.0)}, "weight_range"),
        ({"weight_range": (1.0, 1.0)}, "weight_range"),
        ({"weight_range": (math.nan, 1.0)}, "weight_range"),
        ({"weight_range": 0.1}, "weight_range"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 0.0, "method": "penalty"}, "delta"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"steps": 2.5}, "steps"),
        ({"method": "grid"}, "method"),
    ],
)
def test_refusals_read_no_data(changes: dict[str, Any], key: str) -> None:
    arguments: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "weight_range": (0.01, 1.0), **changes}
    with pytest.raises(InputError, match=f"^{key}: ") as caught:
        tune(train=(Untouchable(), Untouchable()), validation=(Untouchable(), Untouchable()), **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("train", "validation", "words"),
    [
        ((np.ones((0, 2)), np.ones(0)), None, "^train: "),
        (None, (np.ones((0, 3)), np.ones(0)), "^validation: "),
        ((np.ones((4, 3)), np.ones(3)), None, "^train: "),
        ((np.ones((4, 0)), np.ones(4)), None, "^train: "),
        ((np.ones((4, 5)), np.ones(4)), None, "^validation: wrong shapes .* d = 5, as in train"),
        (([["a"]], [1.0]), None, "^train features: "),
    ],
)
def test_refuses_invalid_shapes(train: Any, validation: Any, words: str) -> None:
    good = np.ones((4, 3)), np.ones(4)
    with pytest.raises(InputError, match=words):
        tune(
            train=train if train is not None else good,
            validation=validation or good,
            epsilon=1.0,
            delta=1e-6,
            weight_range=(0.1, 1.0),
        )


def test_refuses_numbers_beyond_float64() -> None:
    with pytest.raises(InputError, match="float64"):
        call_tune(weight_range=(1e-12, 1.0))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308])
def test_any_value_completes_a_run(method: str, loss: str, value: float) -> None:
    a, b = (x.copy() for x in draw(5, 2, 1))
    a[0], b[1], a[2, 1] = value, value, value
    tuned = tune(
        train=(a, b),
        validation=(np.full((1, 2), value), np.array([value])),
        epsilon=0.5,
        delta=1e-6,
        weight_range=(1e-4, 10.0),
        method=method,  # type: ignore[arg-type] # parametrised over all
        loss=loss,  # type: ignore[arg-type] # as above
        steps=4,
    )
    assert np.isfinite(tuned.model).all()
    assert np.isfinite(tuned.path).all()


@pytest.mark.parametrize("method", METHODS)
def test_seed_repeats_a_run(method: str) -> None:
    once, again, other = call_tune(method=method), call_tune(method=method), call_tune(method=method, seed=6)
    np.testing.assert_array_equal(once.model, again.model)
    assert once.weight == again.weight
    assert not np.array_equal(once.model, other.model)
    assert "simulation" in once.statement
    secret = [call_tune(method=method, seed=None) for _ in range(2)]
    assert not np.array_equal(secret[0].model, secret[1].model)
    assert "simulation" not in secret[0].statement
    # Equal noise for two budgets would cancel.
    models = [call_tune(method=method, epsilon=e).model for e in (1.0, 1.0 + 1e-9)]
    assert not np.allclose(models[0], models[1], atol=1e-6)


def test_noise_depends_on_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal noise on two data sets would cancel in a difference."""
    roots = []
    real_init = PlannedReleaser.__init__
    monkeypatch.setattr(
        PlannedReleaser, "__init__", lambda s, plan, root: (roots.append(root), real_init(s, plan, root))[1]
    )
    train, validation = draw(200, 3, 1), draw(200, 3, 2)
    changed = train[0].copy()
    changed[7, 1] = np.nextafter(changed[7, 1], 1.0)
    relabelled = np.append(-validation[1][:1], validation[1][1:])
    data_sets = [
        (train, validation),
        ((changed, train[1]), validation),
        (train, (validation[0], relabelled)),
        (validation, train),
    ]
    for train_part, validation_part in data_sets:
        tune(
            train=train_part,
            validation=validation_part,
            epsilon=1.0,
            delta=1e-6,
            weight_range=(0.01, 1.0),
            method="em",
            seed=5,
        )
    assert len(set(roots)) == 4
    # Different roots have different noise.
    draws = [Streams(root, "noise", [0]).generator(0, 2, tag("model")).standard_normal(3) for root in roots[:2]]
    assert not np.allclose(draws[0], draws[1], atol=1e-3)
