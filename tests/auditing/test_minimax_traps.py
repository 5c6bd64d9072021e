"""Common errors of private minimax programs: merged events, batch sizes, empty samples, the meaning of z."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from decentral_dp.central.clients import MinimaxClientBlock
from decentral_dp.privacy.accounting.accountants import epsilon_of
from decentral_dp.privacy.accounting.loss_distributions import poisson_profile
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.randomness import tag
from tests.support.coordinator_replay import Listening, scripted, with_noise
from tests.support.minimax_loop import Loop, agree, made

SGDA: dict[str, Any] = {"kind": "dp_sgda", "x": {"scale": 0.8}, "y": {"scale": 0.7}}


# Several releases of one sample are one event ------------------------------------------------------------------------
#
# One Poisson sample of rate q, records a and b exchanged, two releases r_j with noise of deviation 1 to which a adds
# u_j and b adds v_j, |u_j|, |v_j| ≤ m_j = 1/z_j; the second pair may be any function of r_1. With the likelihood ratios
# L_a = Π exp(u_j r_j − u_j²/2) and L_b to the data set without either record,
#
#     P(out ∈ S) − e^ε Q(out ∈ S) ≤ E[φ(L_a, L_b)],     φ(A, B) = (1−q + qA − e^ε(1−q) − e^ε q B)₊.
#
# φ is convex in A and in B with ∂²φ/∂A∂B ≤ 0, and so is what is left to be expected after the first round. Along any
# path of covariances of (log L_a, log L_b) from (u², v², uv) to (m², m², −m²) the expectation does not fall, so the
# opposite pair u = −v = m is the worst after any history, and two of them are one with m̄² = m_1² + m_2².

R = np.linspace(-9.0, 9.0, 241)
DENSITY = norm.pdf(R) * (R[1] - R[0])
PARTS = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def ratios(shift: np.ndarray) -> np.ndarray:
    """exp(u r − u²/2), (shifts, r)."""
    return np.exp(shift[:, None] * R - 0.5 * shift[:, None] ** 2)


def excess(a: np.ndarray, b: np.ndarray, q: float, epsilon: float) -> np.ndarray:
    return np.maximum(0.0, (1.0 - q) + q * a - math.exp(epsilon) * ((1.0 - q) + q * b))


def worst_of_two(m_1: float, m_2: float, q: float, epsilon: float) -> tuple[float, float]:
    """δ(ε) of the worst adaptive second round after the worst first one, and of two opposite pairs."""
    first, second = ratios(m_1 * PARTS), ratios(m_2 * PARTS)
    best, opposite = 0.0, 0.0
    for i in range(PARTS.size):
        for j in range(PARTS.size):
            # For every r_1 the second controls that are worst there.
            after = np.stack([
                excess(first[i][:, None] * second[k], first[j][:, None] * second[n], q, epsilon) @ DENSITY
                for k in range(PARTS.size)
                for n in range(PARTS.size)
            ])  # fmt: skip
            best = max(best, float(after.max(axis=0) @ DENSITY))
            if PARTS[i] == 1.0 and PARTS[j] == -1.0:
                opposite = float(after[(PARTS.size - 1) * PARTS.size] @ DENSITY)
    return best, opposite


@pytest.mark.parametrize(
    ("m_1", "m_2", "q", "epsilon"),
    [(1.0, 0.6, 0.1, 0.0), (0.7, 1.2, 0.3, 0.5), (1.5, 0.8, 0.05, 0.7), (2.0, 1.0, 0.02, 1.0)],
)
def test_no_adaptive_second_release_beats_one_merged_event(m_1: float, m_2: float, q: float, epsilon: float) -> None:
    best, opposite = worst_of_two(m_1, m_2, q, epsilon)
    merged = float(poisson_profile(2.0 * math.hypot(m_1, m_2), q)(np.array([max(epsilon, 1e-12)]))[0])
    assert opposite == pytest.approx(merged, rel=2e-3)
    assert best <= opposite * (1.0 + 1e-9)
    # The test has power: the larger multiplier instead of the merged one would break the bound.
    alone = float(poisson_profile(2.0 * max(m_1, m_2), q)(np.array([max(epsilon, 1e-12)]))[0])
    assert best > 1.02 * alone


def test_the_ledger_merges_releases_of_one_index() -> None:
    def line(name: str, mu: float, index: list[int]) -> ChannelLedger:
        one = np.ones((len(index), 1))
        return ChannelLedger(
            name, "gaussian", 1, np.zeros(1, dtype=np.int64), np.array(index, dtype=np.int64), one,
            {"train": mu * one}, {"train": 0.05 * one}, sampling="poisson",
        )  # fmt: skip

    rounds = list(range(1, 51))

    def cost(*lines: ChannelLedger) -> float:
        return float(epsilon_of(Ledger(1, lines), 1e-5)[0])

    together = cost(line("a", 1.2, rounds), line("b", 1.6, rounds))
    assert together == pytest.approx(cost(line("a", 2.0, rounds)), rel=1e-3)
    apart = cost(line("a", 1.2, rounds), line("b", 1.6, [r + 50 for r in rounds]))
    assert abs(together - apart) > 0.05 * together


# The size of a sample ------------------------------------------------------------------------------------------------


def composed(
    pairs: list[tuple[np.ndarray, np.ndarray, float]], releases: int, delta: float, step: float = 2e-3
) -> float:
    """ε(δ) of equal releases, in the worse direction; pairs: (P, Q) as densities on a grid, and its step.

    Masses are split between the two nearest losses with the same mean, and composed by a Fourier transform.
    """
    # The split raises ε by about step².
    half = round(65.536 / step)
    worst = 0.0
    for turn in (0, 1):
        mass = np.zeros(2 * half)
        for p, q, width in pairs:
            mine, theirs = (p, q) if turn == 0 else (q, p)
            kept = (mine > 1e-290) & (theirs > 1e-290)
            at = np.clip(np.log(mine[kept] / theirs[kept]) / step, 2 - half, half - 2)
            low = np.floor(at).astype(np.int64)
            for place, share in ((low, 1.0 - (at - low)), (low + 1, at - low)):
                np.add.at(mass, place % (2 * half), mine[kept] * share * width)
        together = np.fft.irfft(np.fft.rfft(mass) ** releases, 2 * half)
        losses = step * np.where(np.arange(2 * half) < half, np.arange(2 * half), np.arange(2 * half) - 2 * half)
        low_e, high_e = 0.0, 60.0
        for _ in range(50):
            e = 0.5 * (low_e + high_e)
            found = float((together * np.maximum(0.0, -np.expm1(np.minimum(0.0, e - losses)))).sum())
            low_e, high_e = (e, high_e) if found > delta else (low_e, e)
        worst = max(worst, high_e)
    return worst


def normal(x: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    return np.asarray(norm.pdf(x, mean, deviation))


def test_a_public_sample_size_costs_several_times_as_much() -> None:
    """q = 0.01 of 10 000, z = 1, 1000 releases, δ = 1e-5. All others are −C, the exchanged records C and −C.

    Show that a known batch size reveals the sum of the data set of −C.
    Divided by |B|, its mean is −C for every |B|.
    """
    q, n, releases, delta = 0.01, 10_000, 1000, 1e-5
    m, sizes = q * n, np.arange(50, 160)
    weights = binom.pmf(sizes, n, q)
    x = np.linspace(-10.0, 13.0, 4601)
    width = float(x[1] - x[0])
    none = normal(x, 0.0, 1.0)

    def drawn(k: float, shift: float, deviation: float = 1.0) -> np.ndarray:
        return (1.0 - k / n) * normal(x, 0.0, deviation) + k / n * normal(x, shift, deviation)

    pairs = list(zip(sizes, weights, strict=True))
    told = composed([(w * none, w * drawn(k, 2.0), width) for k, w in pairs], releases, delta)
    by_public_noise = composed([(none, sum(w * drawn(k, 2.0 * m / k) for k, w in pairs), width)], releases, delta)
    first = sum(w * normal(x, 0.0, m / k) for k, w in pairs)
    by_own_noise = composed([(first, sum(w * drawn(k, 2.0 * m / k, m / k) for k, w in pairs), width)], releases, delta)
    assert told == pytest.approx(13.4, abs=0.1)
    assert by_own_noise == pytest.approx(9.9, abs=0.1)
    assert by_public_noise == pytest.approx(14.3, abs=0.1)
    opposite = [((1 - q) * none + q * normal(x, 1.0, 1.0), (1 - q) * none + q * normal(x, -1.0, 1.0), width)]
    hidden = composed(opposite, releases, delta, step=2.5e-4)
    assert hidden == pytest.approx(2.845, abs=0.01)
    one = np.ones((releases, 1))
    line = ChannelLedger(
        "g", "gaussian", 1, np.zeros(1, dtype=np.int64), np.arange(1, releases + 1), one, {"train": 2.0 * one},
        {"train": q * one}, sampling="poisson",
    )  # fmt: skip
    ours = float(epsilon_of(Ledger(1, (line,)), delta)[0])
    assert hidden <= ours <= 1.001 * hidden


def divided(self: MinimaxClientBlock, number: int, questions: Any) -> dict[str, np.ndarray]:
    """Divide as many implementations do: a sum over the sample, times the expected over the real number of records."""
    out = HONEST(self, number, questions)
    for name, asked in questions.items():
        for row in range(self.agents.size):
            n = len(self.records[row][0])
            size = int((self.coins.generator(row, number, tag("train")).random(n) < asked.rate).sum())
            out[name][row] *= asked.rate * n / max(size, 1)
    return out


HONEST = MinimaxClientBlock.answer


def test_answers_are_divided_by_a_public_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = made(SGDA)
    agree(job, Loop(job, with_noise))
    monkeypatch.setattr(MinimaxClientBlock, "answer", divided)
    with pytest.raises(AssertionError):
        agree(job, Loop(job, with_noise))


def test_an_empty_sample_is_released_with_noise() -> None:
    """One record on average, and every third sample is empty: the sums are zero, and only noise is visible."""
    n = made(SGDA).context.n  # type: ignore[union-attr]  # a coordinator's job
    job = made(SGDA | {"rate": 1.001 / n}, privacy={"epsilon": 1.0, "delta": 1e-3})
    releaser = Listening(job)
    told: dict[Any, np.ndarray] = {}
    real = releaser.release

    def release(index: int, values: Any) -> Any:
        out = real(index, values)
        told.update({(index, c): v for c, v in out.released.items()})
        return out

    releaser.release = release  # type: ignore[method-assign]  # A spy.
    scripted(job, releaser)
    assert sorted(told) == sorted((i, c) for i in range(1, 8) for c in ("gx", "gy"))
    empty = [key for key, wanted in releaser.wanted.items() if (wanted.private == 0.0).all()]
    assert empty
    assert all((told[key] != releaser.wanted[key].value).all() for key in empty)


# The noise multiplier z ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_noise_on_the_sum_is_z_clips_and_a_replaced_record_is_two_of_them(rate: float) -> None:
    """One convention: deviation z·C on the sum, z·C/(qn) on the mean; two data sets are 2C apart, which is μ = 2/z."""
    job = made(SGDA | {"rate": rate})
    releaser = Listening(job)
    scripted(job, releaser)
    n, clip = job.context.n, 0.2  # type: ignore[union-attr]  # a coordinator's job
    (line,) = [c for c in releaser.ledger().channels if c.channel == "gx"]
    (planned,) = [c for c in job.ledger.channels if c.channel == "gx"]
    z = line.scale[:, 0] * rate * n / clip
    np.testing.assert_allclose(planned.sensitivity["train"][:, 0], 2.0 / z, rtol=1e-9)
    if rate == 1.0:
        # Both channels of every round, exactly Gaussian; δ of a pair at distance μ from its formula.
        mu = math.sqrt(sum(float((c.sensitivity["train"] ** 2).sum()) for c in job.ledger.charged_channels))
        e = float(job.budget.epsilon[0])
        delta = norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)
        assert delta == pytest.approx(1e-4, rel=1e-2)
        # With μ = 1/z instead, the same noise would appear to cost half.
        assert norm.cdf(mu / 4 - 2 * e / mu) - math.exp(e) * norm.cdf(-mu / 4 - 2 * e / mu) < 1e-5
