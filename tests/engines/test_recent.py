"""The mean of the last released values, which is published and evaluated."""

import numpy as np
import pytest

from decentral_dp.engines.host import RecentValues

ROUNDS = 60


def _values() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.normal(size=(2, 1)), "y": rng.normal(size=(2, 3))} for _ in range(ROUNDS + 1)]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 30, 100])
@pytest.mark.parametrize("every", [1, 4, 11])
def test_it_is_the_mean_of_what_is_kept_without_the_start(length: int, every: int) -> None:
    values, recent = _values(), RecentValues(length)
    for newest, value in enumerate(values):
        recent.append(value)
        if newest % every:
            continue
        kept = values[max(1, newest + 1 - length) : newest + 1] or values[:1]
        for channel, mean in recent.mean(newest).items():
            np.testing.assert_allclose(mean, np.mean([v[channel] for v in kept], axis=0), rtol=0, atol=1e-15)


@pytest.mark.parametrize("cut", [5, 29, 41])
def test_who_goes_on_from_what_is_kept_has_the_same_bits(cut: int) -> None:
    values, whole, after = _values(), RecentValues(30), RecentValues(30)
    for newest, value in enumerate(values):
        whole.append(value)
        whole.mean(newest)
        if newest == cut:
            after.values.extend(whole.values)
        elif newest > cut:
            after.append(value)
    np.testing.assert_array_equal(after.mean(ROUNDS)["y"], whole.mean(ROUNDS)["y"])


def test_an_evaluation_reads_fewer_values_than_it_averages() -> None:
    """In a run of T rounds that averages T/2 values, evaluations had cost more than the rounds."""
    reads = 0

    class Counted(dict[str, np.ndarray]):
        def __getitem__(self, channel: str) -> np.ndarray:
            nonlocal reads
            reads += 1
            return super().__getitem__(channel)

    recent, evaluations = RecentValues(400), 0
    for newest in range(801):
        recent.append(Counted(y=np.ones((1, 1))))
        if newest % 10 == 0 and newest >= 400:
            evaluations += 1
            assert recent.mean(newest)["y"] == 1.0
    assert 0 < reads < evaluations * 400 / 4
