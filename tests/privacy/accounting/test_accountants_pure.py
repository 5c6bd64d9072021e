"""Releases of which only the pure ε is known, accounted as the worst case."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from decentral_dp.privacy.accounting.accountants import account, epsilon_of
from decentral_dp.privacy.ledger import Ledger
from tests.support.schedules import ledger, line

DELTA = 1e-5


def pure(losses: list[float], mechanism: str = "pure", rate: float = 1.0) -> Ledger:
    e = np.asarray(losses, dtype=float)
    return ledger(line("w", {"train": e}, np.ones(e.size), mechanism, rate=rate))


def responses_delta(loss: float, count: int, epsilon: float) -> float:
    """δ(ε) of `count` randomised responses of pure ε `loss`, from the number of truthful answers."""
    k = np.arange(count + 1)
    truth = 1.0 / (1.0 + math.exp(-loss))
    mass = stats.binom.pmf(k, count, truth)
    return float((mass * np.maximum(0.0, -np.expm1(epsilon - loss * (2.0 * k - count)))).sum())


@pytest.mark.parametrize("loss", [0.01, 0.5, 1.0, 6.0])
def test_one_release_is_randomised_response(loss: float) -> None:
    exact = math.log(math.exp(loss) - DELTA * (1.0 + math.exp(loss)))
    found = account(pure([loss]), DELTA)
    assert exact - 1e-9 <= found.epsilon[0] <= exact + 0.01 * loss
    assert found.epsilon_pure[0] == loss
    # An exact sampler adds nothing.
    assert found.slack_delta == found.slack_epsilon == 0.0


@pytest.mark.parametrize(("loss", "count"), [(1.0, 3), (0.3, 40), (0.02, 2000), (2.0, 10)])
def test_composition_against_the_binomial(loss: float, count: int) -> None:
    found = float(epsilon_of(pure([loss] * count), DELTA)[0])
    assert responses_delta(loss, count, found) <= DELTA
    assert responses_delta(loss, count, 0.98 * found) > DELTA


def test_laplace_prices_would_be_too_low_for_them() -> None:
    """The control: an exponential mechanism passed off as Laplace noise."""
    laplace = float(epsilon_of(pure([1.0] * 3, "laplace"), 0.05)[0])
    assert responses_delta(1.0, 3, laplace) > 0.05
    assert responses_delta(1.0, 3, float(epsilon_of(pure([1.0] * 3), 0.05)[0])) <= 0.05
