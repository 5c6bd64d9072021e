"""Calibrated budgets are met, not passed, and split as asked; caps are kept."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import account, calibrate
from decentral_dp.privacy.ledger import Ledger
from tests.support.schedules import ledger, line, sampling

DELTA = 1e-5


def scaled(base: Ledger, factors: dict[str, np.ndarray]) -> Ledger:
    """The ledger with every channel's scales multiplied, agent by agent."""
    out = []
    for c in base.channels:
        wide = replace(
            c,
            group=np.arange(base.n_agents),
            scale=c.scale[:, c.group] * factors[c.channel],
            sensitivity={k: s[:, c.group] for k, s in c.sensitivity.items()},
            rate={k: r[:, c.group] for k, r in c.rate.items()},
        )
        out.append(wide)
    return Ledger(base.n_agents, tuple(out))


def check(base: Ledger, epsilon: float, delta: float, shares: dict[str, float] | None = None) -> Ledger:
    """Calibrate, and assert that every agent ends just under the target."""
    final = scaled(base, calibrate(base, epsilon, delta, shares))
    spent = account(final, delta).epsilon
    assert (spent <= epsilon).all()
    assert (spent >= epsilon * (1 - 1.01e-3)).all()
    return final


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.1, 4.0, 30.0])
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_every_agent_meets_the_target(mechanism: str, epsilon: float, delta: float) -> None:
    base = sampling(60, [1, 5, 10, 5], mechanism)
    if mechanism == "gaussian" and delta == 0.0:
        with pytest.raises(InputError, match="no amount of noise"):
            calibrate(base, epsilon, delta)
        return
    check(base, epsilon, delta)


def test_gaussian_channels_share_the_squares() -> None:
    shares = {"y": 0.25, "z": 0.75}
    final = check(sampling(60, [1, 10], "gaussian"), 3.0, DELTA, shares)
    squares = {}
    for c in final.channels:
        squares[c.channel] = ((c.sensitivity["train"] / c.scale) ** 2).sum(axis=0)
    np.testing.assert_allclose(squares["z"] / (squares["y"] + squares["z"]), 0.75, rtol=1e-2)


@pytest.mark.parametrize("rounds", [1, 20])
def test_a_target_that_rounding_forbids_is_refused_with_what_can_be_reached(rounds: int) -> None:
    base = ledger(line("y", {"train": np.full(rounds, 0.004)}, np.ones(rounds), "gaussian", dimension=1_000_000))
    with pytest.raises(InputError, match="float64 rounding and sampling") as refused:
        calibrate(base, 1e-5, DELTA)
    said = str(refused.value)
    assert ("fewer rounds" in said) == (rounds > 1)
    least = float(re.search(r"cost about (\d\.\d+) at", said).group(1))  # type: ignore[union-attr]  # It would fail here.
    # The number is true: noise without end costs about that, and a target above it is met.
    endless = [account(base.rescale(factor), DELTA).epsilon.max() for factor in np.linspace(2.0**40, 2.0**41, 40)]
    assert 0.95 * least < min(endless) < 1.05 * least
    check(base, 1.5 * least, DELTA)


def test_a_delta_that_sampling_uses_up_is_named() -> None:
    base = ledger(line("y", {"train": np.full(1, 0.004)}, np.ones(1), "gaussian", dimension=30))
    with pytest.raises(InputError, match=r"privacy\.delta: too small, since float64 sampling .*got 1e-20"):
        calibrate(base, 1.0, 1e-20)


def test_what_cannot_be_calibrated_is_refused() -> None:
    base = sampling(10)
    unbounded = ledger(line("y", {"train": np.array([np.inf])}, np.ones(1)))
    with pytest.raises(InputError, match="unbounded"):
        calibrate(unbounded, 1.0, DELTA)
    silent = ledger(line("y", {"train": np.array([1.0])}, np.zeros(1), "none"))
    with pytest.raises(InputError, match="has no noise"):
        calibrate(silent, 1.0, DELTA)
    unmoved = ledger(line("y", {"train": np.zeros(3)}, np.ones(3)))
    for nothing in (unmoved, Ledger(1, ())):
        with pytest.raises(InputError, match="reads a record"):
            calibrate(nothing, 1.0, DELTA)
    for shares in ({"y": 1.0}, {"y": 0.5, "z": 0.5, "x": 0.1}):
        with pytest.raises(InputError, match="share"):
            calibrate(base, 1.0, DELTA, shares)
    mixed = ledger(base.channels[0], line("z", {"train": np.full(10, 0.1)}, np.ones(10), "gaussian"))
    with pytest.raises(InputError, match="different mechanisms"):
        calibrate(mixed, 1.0, DELTA, {"y": 0.5, "z": 0.5})
    check(mixed, 1.0, DELTA)
