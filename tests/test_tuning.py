"""`tune`: its budget, its sign, its refusals, and how well it tunes."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logsumexp

from decentral_dp.data.loaders import load
from decentral_dp.data.scaling import normalise, scale
from decentral_dp.errors import InputError
from decentral_dp.privacy.accountants import gaussian_epsilon, price
from decentral_dp.privacy.bounded import SPLITS, Split
from decentral_dp.privacy.planned_releaser import PlannedReleaser
from decentral_dp.privacy.release_cost import gaussian_mu, laplace_loss
from decentral_dp.tuning import exponential, penalty, ppift
from decentral_dp.tuning.constants import Family, minimiser_sensitivity, score_sensitivity
from decentral_dp.tuning.records import Records, project
from decentral_dp.tuning.solver import Part, certificate, minimise, moments
from decentral_dp.tuning.tuner import Tuned, tune
from decentral_dp.tuning.tuner_plan import gaussian_plan, pure_plan
from decentral_dp.tuning.tuner_releaser import TunerRelease, TunerReleaser, shortened

METHODS = ("ppift", "penalty", "em")
LOSSES = ("logistic", "squared")
Role = tuple[np.ndarray, np.ndarray]


@functools.cache
def draw(n: int, d: int, seed: int, strength: float = 6.0) -> Role:
    """Records on the sphere with logistic labels."""
    rng = np.random.default_rng(seed)
    star = np.random.default_rng(99).normal(size=d)
    a = rng.normal(size=(n, d))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    return a, np.where(rng.random(n) < expit(strength / np.linalg.norm(star) * (a @ star)), 1.0, -1.0)


def validation_loss(loss: str, train: Records, validation: Records, w: float) -> float:
    """F(w), exactly."""
    family = Family(loss, 1.0, 1.0)  # type: ignore[arg-type] # parametrised over both
    return moments(family, validation, minimise(family, [Part(train, 1.0)], w)).value


def roles(loss: str, n: int = 400, d: int = 3) -> tuple[Records, Records]:
    return project(*draw(n, d, 1), loss, 1.0, 1.0), project(*draw(n, d, 2), loss, 1.0, 1.0)  # type: ignore[arg-type] # as above


def call(n: int = 200, d: int = 3, **changes: Any) -> Tuned:
    arguments: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "weight_range": (0.01, 1.0), "seed": 5, **changes}
    return tune(draw(n, d, 1), draw(n + 50, d, 2), **arguments)


# Budget -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("epsilon", "steps", "d"), [(0.2, 15, 3), (1.0, 1, 3), (4.0, 40, 20)])
def test_the_budget_is_met_and_used(method: str, loss: str, epsilon: float, steps: int, d: int) -> None:
    found = call(method=method, loss=loss, epsilon=epsilon, steps=steps, d=d)
    spent = price(found.ledger, found.budget.delta)
    target = "epsilon_pure" if method == "em" else "epsilon"
    planned = float(getattr(found.budget, target)[0])
    assert (1 - 1e-3) * epsilon <= planned <= epsilon
    # Every release costs a record of one role what is planned, and one of the other role perhaps less.
    assert 0.9 * planned <= getattr(spent, target)[0] <= planned
    assert all(spent.records[k].epsilon[0] <= found.budget.records[k].epsilon[0] for k in spent.records)
    assert set(spent.records) == {"train", "validation"}
    assert f"epsilon = {math.ceil(found.budget.epsilon[0] * 1e4) / 1e4:.4f}" in found.statement


@pytest.mark.parametrize("method", METHODS)
def test_what_is_returned_is_what_was_released(method: str) -> None:
    """Its channels, counts and sizes, and nothing beside them."""
    found = call(method=method)
    assert found.model.shape == (3,)
    assert 0.01 <= found.weight <= 1.0
    assert found.weight == found.path[-1]
    assert found.path.size == (1 if method == "em" else 16)
    frame = found.ledger.to_frame()
    expected = {
        "ppift": {"model": ("gaussian", 16, 3), "slope": ("gaussian", 15, 1)},
        "penalty": {"model": ("gaussian", 16, 3), "pulled": ("gaussian", 15, 3)},
        "em": {"weight": ("exponential", 1, 1), "model": ("laplace", 1, 3)},
    }[method]
    for channel, (mechanism, releases, d) in expected.items():
        rows = frame[(frame["channel"] == channel) & (frame["records"] == "train")]
        assert (set(rows["mechanism"]), len(rows), set(rows["dimension"])) == ({mechanism}, releases, {d})
    assert set(frame["channel"]) == set(expected)
    # The model alone is never about a validation record.
    assert set(frame[frame["channel"] == "model"]["records"]) == {"train"}


@pytest.mark.parametrize("method", ["ppift", "penalty"])
def test_the_plan_composes_as_its_closed_form(method: str) -> None:
    second, width = ("slope", 1) if method == "ppift" else ("pulled", 7)
    plan = gaussian_plan(second, width, 15, 7, 1.0, 1e-6)
    squares = {"train": 0.0, "validation": 0.0}
    for line in plan.channels:
        for split, s in line.sensitivity.items():
            squares[split] += float((gaussian_mu(s, line.scale, line.dimension) ** 2).sum())
    for total in squares.values():
        assert 0.999 <= float(gaussian_epsilon(math.sqrt(total), 1e-6)) <= 1.0
    assert math.sqrt(squares["train"]) == pytest.approx(0.23670, rel=2e-3)


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-9, 1e9), st.floats(0.01, 1.0), st.integers(1, 300))
def test_no_scale_makes_a_release_dearer_than_planned(sensitivity: float, epsilon: float, d: int) -> None:
    for plan, channel, loss in (
        (gaussian_plan("pulled", d, 2, d, epsilon, 1e-6), "pulled", gaussian_mu),
        (pure_plan(d, epsilon), "model", laplace_loss),
    ):
        index = 1 if channel == "pulled" else 2
        releaser = TunerReleaser(plan, bytes(32))
        for split, planned in releaser.mechanism.planned_cost(index, channel).items():
            scale = releaser.mechanism.scale(index, channel, {split: sensitivity})
            assert loss(sensitivity, scale, d) <= loss(planned, 1.0, d)


def test_releases_that_are_not_those_planned_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PlannedReleaser.scale
    for factor in (0.5, 2.0):
        monkeypatch.setattr(PlannedReleaser, "scale", lambda *a, f=factor: f * whole(*a))
        with pytest.raises(ValueError, match="did not cost what was planned"):
            call()
    monkeypatch.setattr(PlannedReleaser, "scale", whole)
    releaser = TunerReleaser(gaussian_plan("slope", 1, 1, 2, 1.0, 1e-6), bytes(32))
    releaser.release(1, "model", np.zeros(2), {"train": 0.1})
    with pytest.raises(ValueError, match="not what was planned"):
        releaser.ledger()


@pytest.mark.parametrize(("index", "channel", "plan"), [(1, "model", "gaussian"), (2, "model", "pure")])
def test_the_noise_has_the_scale_that_is_charged(index: int, channel: str, plan: str) -> None:
    d = 40_000
    planned = pure_plan(d, 1.0) if plan == "pure" else gaussian_plan("slope", 1, 1, d, 1.0, 1e-4)
    value = np.full(d, 0.123)
    found = TunerReleaser(planned, bytes(32)).release(index, channel, value, {"train": 0.01})
    deviation = float((found.value - value).std()) / (math.sqrt(2.0) if plan == "pure" else 1.0)
    assert deviation == pytest.approx(found.scale, rel=0.03)
    other = TunerReleaser(planned, bytes([1] * 32)).release(index, channel, value, {"train": 0.01})
    assert abs(np.corrcoef(found.value, other.value)[0, 1]) < 0.03


def test_the_law_of_the_drawn_weight_is_pure() -> None:
    """Probabilities of all 65 weights under neighbours, from the scores and the scale that is charged."""
    rng = np.random.default_rng(0)
    n, low, high = 4, 2.0, 200.0
    family = Family("logistic", 1.0, 1.0)
    weights = exponential.candidates(low, high)
    allowed = score_sensitivity(family, low, n, n, 0.0)
    planned = TunerReleaser(pure_plan(1, 1.0), bytes(32)).mechanism.planned_cost(1, "weight")
    scale = max(sensitivity / planned[split] for split, sensitivity in allowed.items())

    def log_law(data: dict[Split, np.ndarray]) -> np.ndarray:
        r = [project(data[k][:, None], np.ones(n), "logistic", 1.0, 1.0) for k in SPLITS]
        s = -exponential.score(family, r[0], r[1], weights) / scale
        return np.asarray(s - logsumexp(s))

    worst = dict.fromkeys(SPLITS, 0.0)
    for turn in range(60):
        split = SPLITS[turn % 2]
        data = {k: rng.choice([1.0, rng.uniform(-1, 1)], size=n) for k in SPLITS}
        data[split][0] = 1.0
        other = {**data, split: np.append(-1.0, data[split][1:])}
        worst[split] = max(worst[split], float(np.abs(log_law(data) - log_law(other)).max()))
    # The bounds allow the scores' difference to change sign along the grid; these neighbours do not make it.
    assert 0.1 * planned["train"] < worst["train"] <= planned["train"]
    assert 0.1 * planned["validation"] < worst["validation"] <= planned["validation"]


def test_the_drawn_weight_follows_its_law() -> None:
    """Two thousand draws against the softmax of the scores."""
    train, validation = roles("squared", 3000, 2)
    family, low, high = Family("squared", 1.0, 1.0), 0.5, 50.0
    plan = pure_plan(2, 8.0)
    drawn = []
    score = exponential.score(family, train, validation, exponential.candidates(low, high))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exponential, "score", lambda *_: score)
        for seed in range(2000):
            releaser = TunerReleaser(plan, seed.to_bytes(32, "little"))
            drawn.append(exponential.release_weight(releaser, family, train, validation, low, high))
        scale = float(releaser.mechanism.recorder.columns["weight"].scale[0])
    law = np.exp(-score / scale - logsumexp(-score / scale))
    below = np.searchsorted(exponential.candidates(low, high), drawn)
    counts = np.bincount(below, minlength=law.size)
    blocks = np.add.reduceat(counts, range(0, 65, 13)), 2000 * np.add.reduceat(law, range(0, 65, 13))
    assert float(((blocks[0] - blocks[1]) ** 2 / blocks[1]).sum()) < 18.5  # χ²₄ at 0.001
    assert law.max() > 2.0 / law.size


def test_a_pure_budget_needs_no_delta() -> None:
    found = call(method="em", delta=0.0)
    assert found.budget.epsilon[0] == found.budget.epsilon_pure[0] <= 1.0
    # At a delta above 0 the same releases cost less.
    assert call(method="em", delta=1e-2).budget.epsilon[0] < 0.999


# Slope --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("w", [0.003, 0.1, 2.0])
def test_both_slopes_against_differences_of_the_exact_validation_loss(loss: str, w: float) -> None:
    train, validation = roles(loss)
    family = Family(loss, 1.0, 1.0)  # type: ignore[arg-type] # parametrised over both
    h = 1e-4
    exact = (
        validation_loss(loss, train, validation, w * math.exp(h))
        - validation_loss(loss, train, validation, w * math.exp(-h))
    ) / (2 * h)
    theta = minimise(family, [Part(train, 1.0)], w)
    assert ppift.slope(family, train, validation, w, theta) == pytest.approx(exact, rel=1e-5)
    lam = 1e4 / w
    penalised = minimise(family, [Part(train, 1.0), Part(validation, 1.0 / lam)], w)
    found = penalty.slope(w, lam, TunerRelease(theta, 0.0), TunerRelease(penalised, 0.0))
    assert found == pytest.approx(exact, rel=2e-2)
    # The printed update adds the slope to w, and so takes the other direction.
    assert np.sign(found) == np.sign(exact) != 0


def test_the_noise_of_the_minimisers_is_taken_from_the_slope() -> None:
    """Without the correction d(s₂² − s₁²)/2 the estimate would be off by many standard errors."""
    rng = np.random.default_rng(1)
    theta, penalised, w, lam, s1, s2 = np.array([0.3, -0.2, 0.5]), np.array([0.1, 0.4, 0.2]), 0.2, 10.0, 0.3, 0.9
    exact = penalty.slope(w, lam, TunerRelease(theta, 0.0), TunerRelease(penalised, 0.0))
    found = [
        penalty.slope(
            w,
            lam,
            TunerRelease(theta + s1 * rng.normal(size=3), s1),
            TunerRelease(penalised + s2 * rng.normal(size=3), s2),
        )
        for _ in range(4000)
    ]
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - exact) < 4 * error
    assert w * lam * 1.5 * (s2**2 - s1**2) > 20 * error


@pytest.mark.parametrize("method", ["ppift", "penalty"])
def test_enough_records_find_the_optimum_and_the_printed_sign_flees_it(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, validation = draw(200_000, 2, 1, 2.0), draw(200_000, 2, 2, 2.0)
    tr, va = (project(*r, "squared", 1.0, 1.0) for r in (train, validation))

    def final(start_to_end: Tuned) -> tuple[float, float]:
        return tuple(validation_loss("squared", tr, va, w) for w in start_to_end.path[[0, -1]])  # type: ignore[return-value] # two weights

    def run() -> Tuned:
        return tune(
            train,
            validation,
            epsilon=2.0,
            delta=1e-6,
            weight_range=(0.1, 10.0),
            loss="squared",
            method=method,  # type: ignore[arg-type] # parametrised over both
            seed=3,
        )

    before, after = final(run())
    assert after < before - 0.01
    module, name = (penalty, "slope") if method == "penalty" else (ppift, "slope")
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *a: -right(*a))
    before, after = final(run())
    assert after > before + 0.01


# Arguments ----------------------------------------------------------------------------------------------------------


class Untouchable:
    """Stands for data: any attempt to read it fails the test."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise AssertionError("the data were touched")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weight_range": (0.0, 1.0)}, "weight_range is .0, 1.*without regularisation"),
        ({"weight_range": (-1.0, 1.0)}, "0 < smallest < largest"),
        ({"weight_range": (1.0, 1.0)}, "0 < smallest < largest"),
        ({"weight_range": (0.1, math.inf)}, "0 < smallest < largest"),
        ({"weight_range": (math.nan, 1.0)}, "0 < smallest < largest"),
        ({"weight_range": 0.1}, "weight_range is 0.1"),
        ({"delta": 0.0}, "no guarantee at delta = 0"),
        ({"delta": 0.0, "method": "penalty"}, "no guarantee at delta = 0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"delta": -1e-9}, "delta is"),
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": True}, "epsilon is True"),
        ({"radius": 0.0}, "radius is 0.0"),
        ({"label_bound": -1.0, "loss": "squared"}, "label_bound is -1.0"),
        ({"lam": 0.0}, "lam is 0.0"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"method": "grid"}, "method is 'grid'.*ppift, penalty, em"),
        ({"loss": "hinge"}, "loss is 'hinge'.*logistic, squared"),
    ],
)
def test_refused_before_the_data_are_touched(changes: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "weight_range": (0.01, 1.0), **changes}
    with pytest.raises(InputError, match=words) as caught:
        tune((Untouchable(), Untouchable()), (Untouchable(), Untouchable()), **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("train", "validation", "words"),
    [
        ((np.ones((0, 2)), np.ones(0)), None, "train has no records"),
        (None, (np.ones((0, 3)), np.ones(0)), "validation has no records"),
        ((np.ones((4, 3)), np.ones(3)), None, "features of shape .4, 3. and labels of shape .3,"),
        ((np.ones(4), np.ones(4)), None, "wanted; give one row"),
        ((np.ones((4, 0)), np.ones(4)), None, "has 0 features"),
        ((np.ones((4, 5)), np.ones(4)), None, "train has 5 features and validation 3"),
        (np.ones((4, 3)), None, "must be a pair"),
        (([["a"]], [1.0]), None, "not an array of numbers"),
    ],
)
def test_shapes_that_cannot_be_used(train: Any, validation: Any, words: str) -> None:
    good = np.ones((4, 3)), np.ones(4)
    with pytest.raises(InputError, match=words):
        tune(train if train is not None else good, validation or good, epsilon=1.0, delta=1e-6, weight_range=(0.1, 1.0))


def test_public_numbers_that_float64_cannot_serve() -> None:
    with pytest.raises(InputError, match="so that float64 solves every data set"):
        call(weight_range=(1e-12, 1.0))
    with pytest.raises(InputError, match="no noise brings 31 releases"):
        call(delta=1e-22)
    with pytest.raises(InputError, match="too small for float64 noise"):
        call(method="em", epsilon=1e-16)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, 5e-324, 0.0])
def test_no_value_stops_a_run(method: str, loss: str, value: float) -> None:
    a, b = (x.copy() for x in draw(5, 2, 1))
    a[0], b[1], a[2, 1] = value, value, value
    found = tune(
        (a, b),
        (np.full((1, 2), value), np.array([value])),
        epsilon=0.5,
        delta=1e-6,
        weight_range=(1e-6, 10.0),
        method=method,  # type: ignore[arg-type] # parametrised over all
        loss=loss,  # type: ignore[arg-type] # as above
        steps=4,
    )
    assert np.isfinite(found.model).all()
    assert np.isfinite(found.path).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_repeats_a_run_and_says_so(method: str) -> None:
    once, again, other = call(method=method), call(method=method), call(method=method, seed=6)
    np.testing.assert_array_equal(once.model, again.model)
    assert once.weight == again.weight
    assert not np.array_equal(once.model, other.model)
    assert "simulation" in once.statement
    secret = [call(method=method, seed=None) for _ in range(2)]
    assert not np.array_equal(secret[0].model, secret[1].model)
    assert "simulation" not in secret[0].statement
    # Equal noise under two budgets would cancel out.
    twice = [call(method=method, epsilon=e).model for e in (1.0, 1.0 + 1e-9)]
    assert not np.allclose(twice[0], twice[1], atol=1e-6)


def test_the_package_exports_it() -> None:
    import decentral_dp
    from decentral_dp.tuner import tune

    assert decentral_dp.tune is tune


# Accuracy of the slopes at (1, 1e-6), 15 steps, 20 000 records of each role, 20 features: root mean square errors of
# dF/dlog w at each weight. The data of the reference differ in detail, so a factor of 2 either way is allowed.
TABLE = {
    0.01: (0.0381, 0.096, 0.90, 0.087),
    0.03: (0.0431, 0.049, 0.49, 0.0151),
    0.1: (0.0253, 0.0198, 0.187, 0.0017),
    0.3: (0.0106, 0.0072, 0.066, 0.0005),
}


@pytest.mark.parametrize("w", TABLE)
def test_accuracy_of_the_slopes(w: float) -> None:
    n, d = 20_000, 20
    train, validation = roles("logistic", n, d)
    family = Family("logistic", 1.0, 1.0)
    theta = minimise(family, [Part(train, 1.0)], w)
    truth = ppift.slope(family, train, validation, w, theta)
    sensitivity = minimiser_sensitivity(family, w, n, certificate(family, w, (n,), d).accuracy)

    def error(plan: Any, draws: int, estimate: Any) -> float:
        found = []
        for seed in range(draws):
            releaser = TunerReleaser(plan, bytes([seed] * 32))
            plain = releaser.release(1, "model", theta, sensitivity)
            found.append(estimate(releaser, plain) - truth)
        return float(np.sqrt(np.mean(np.square(found))))

    by_penalty = []
    for lam in (10.0, 100.0):
        penalised = minimise(family, [Part(train, 1.0), Part(validation, 1.0 / lam)], w)

        def estimate(
            releaser: TunerReleaser, plain: TunerRelease, lam: float = lam, penalised: np.ndarray = penalised
        ) -> float:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(penalty, "minimise", lambda *_: penalised)
                found = penalty.release_penalised(releaser, 1, family, train, validation, w, lam)
            return penalty.slope(w, lam, plain, found)

        by_penalty.append(error(gaussian_plan("pulled", d, 15, d, 1.0, 1e-6), 100, estimate))

    def implicit(releaser: TunerReleaser, plain: TunerRelease) -> float:
        at = shortened(family, w, plain.value)
        return float(ppift.release_slope(releaser, 1, family, train, validation, w, at).value[0])

    by_ppift = error(gaussian_plan("slope", 1, 15, d, 1.0, 1e-6), 25, implicit)
    expected = TABLE[w]
    for found, reference in zip((truth, *by_penalty, by_ppift), expected, strict=True):
        assert 0.5 < found / reference < 2.0
    assert by_ppift < by_penalty[0] < by_penalty[1]


# Usefulness ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "method"), [(1.0, "ppift"), (4.0, "ppift"), (4.0, "penalty")])
def test_tuning_on_569_records_beats_the_worst_end(epsilon: float, method: str) -> None:
    data = scale(load("breast_cancer", n_agents=1, seed=0), "public_ranges")
    a, b = normalise(data.features, "l2").features, 2.0 * data.labels - 1.0
    order = np.random.default_rng(0).permutation(len(b))
    first, second = order[:284], order[284:]
    tr, va = (project(a[i], b[i], "logistic", 1.0, 1.0) for i in (first, second))
    ends = [validation_loss("logistic", tr, va, w) for w in (0.03, 3.0)]
    found = []
    for seed in range(8):
        tuned = tune(
            (a[first], b[first]),
            (a[second], b[second]),
            epsilon=epsilon,
            delta=1e-5,
            weight_range=(0.03, 3.0),
            method=method,  # type: ignore[arg-type] # parametrised
            seed=seed,
        )
        found.append(validation_loss("logistic", tr, va, tuned.weight))
    assert np.mean(found) < max(ends) - 0.1 * abs(ends[0] - ends[1])
