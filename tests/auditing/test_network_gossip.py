"""μ of every (observer, victim) pair, against covariances written out in full, and what must hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp import topology
from decentral_dp.auditing.network_gossip import observer_sets, pairwise
from decentral_dp.errors import InputError
from tests.support.network_pairs_oracle import Case, worst_written_out, written_out

GRAPHS: dict[str, tuple[str, int, dict[str, Any], Any]] = {
    "ring": ("ring", 9, {}, "metropolis"),
    "path": ("path", 8, {}, {"kind": "constant", "value": 0.4}),
    "star": ("star", 7, {}, "metropolis"),
    "torus": ("torus", 12, {}, {"kind": "constant", "value": 0.15}),
    "complete": ("complete", 6, {}, "metropolis"),
    "barbell-like": ("small_world", 14, {"degree": 4, "rewire": 0.2}, "metropolis"),
    "regular": ("random_regular", 30, {"degree": 3}, "metropolis"),
}


def draw(name: str, seed: int, rounds: int = 8) -> Case:
    kind, m, params, weights = GRAPHS[name]
    rng = np.random.default_rng(seed)
    mixing = topology.build_topology(kind, m, params, weights, seed=1).mixing.toarray()
    arrives = rng.random((rounds, m)) < 0.4
    arrives[0] = True
    shrink = rng.uniform(0.0, 1.6, (rounds, m)) if seed % 2 else rng.uniform(0.0, 0.5, (rounds, 1)) + np.zeros(m)
    return Case(
        mixing, shrink, rng.uniform(0.1, 1.0, (rounds, m)), 10.0 ** rng.uniform(-1.5, 1.5, (rounds, m)), arrives
    )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", GRAPHS)
def test_agrees_with_the_covariance_written_out(name: str, seed: int) -> None:
    """Up to 30 agents, ten weight rules and graphs, unequal noise over three decades, and coalitions."""
    case = draw(name, seed)
    m = len(case.mixing)
    coalitions = [[0], [m - 1], [0, m // 2], [1, 2, 4]]
    found = pairwise(*case[:4], coalitions, case.arrives)
    assert found.observers == tuple(tuple(sorted(c)) for c in coalitions)
    for row, members in enumerate(coalitions):
        for victim in range(0, m, 1 if m < 20 else 4):
            if victim in members:
                assert np.isnan(found.mu[row, victim])
                assert found.arrival[row, victim] == -1
            else:
                wanted = worst_written_out(case, members, victim)
                assert found.mu[row, victim] == pytest.approx(wanted, rel=1e-9), (members, victim)
                at = int(found.arrival[row, victim])
                assert case.arrives[at, victim]
                assert written_out(case, members, victim, at) == pytest.approx(wanted, rel=1e-9)


def test_a_later_record_can_be_the_worst() -> None:
    """With a negative self-weight, the movement by an early record may cancel: its μ would be too low."""
    seeds = range(1, 9, 2)
    gaps = []
    for case in (draw("path", seed) for seed in seeds):
        every = pairwise(*case[:4], None, np.ones_like(case.arrives)).mu
        first = pairwise(*case[:4]).mu
        gaps.append(np.nanmax(every / first))
        assert np.nanmin(every / first) >= 1.0 - 1e-12
    assert max(gaps) > 1.01


def test_a_pair_by_hand() -> None:
    """Two rounds of a path 0–1–2: agent 0 sees agent 1 twice, and agent 2 through it once."""
    mixing = np.array([[-0.3, 0.3, 0.0], [0.3, -0.7, 0.4], [0.0, 0.4, -0.4]])
    g, s = np.array([[0.0, 0.5, 0.9], [0.0, 0.7, 1.1]]), np.array([[1.0, 2.0, 3.0], [1.0, 4.0, 5.0]])
    found = pairwise(mixing, np.array([0.0, 0.1]), g, s, [[0]])
    blurred = 16.0 + (0.4 * 3.0) ** 2
    assert found.mu[0, 2] ** 2 == pytest.approx((0.4 * 0.9) ** 2 / blurred, rel=1e-12)
    assert found.mu[0, 1] ** 2 == pytest.approx((0.5 / 2.0) ** 2 + 0.7**2 / blurred, rel=1e-12)
    assert found.total[1] ** 2 == pytest.approx((0.5 / 2.0) ** 2 + (0.7 / 4.0) ** 2, rel=1e-12)


@pytest.mark.parametrize("name", GRAPHS)
def test_nobody_learns_more_than_who_sees_every_message(name: str) -> None:
    for seed in (2, 3):
        case = draw(name, seed)
        found = pairwise(*case[:4], None, case.arrives)
        outside = ~np.eye(len(case.mixing), dtype=bool)
        assert (found.mu <= found.total * (1 + 1e-12))[outside].all()
        assert np.isnan(found.mu).sum() == len(case.mixing)


@pytest.mark.parametrize(
    ("coalitions", "error"),
    [
        ([["a"], ["a", 1, 2]], r"a coalition of all agents leaves no victim \(got 3 agents, expected at most 2\)"),
        ([["a"], ["z"]], r'invalid agents \(got \["z"\], expected some of agents a, b and c\)'),
        ([[-1]], r"invalid agents \(got \[-1\]"),
        ([[]], r"invalid agents \(got \[\]"),
        ("ab", r'invalid agents \(got "a"'),
    ],
)
def test_invalid_coalitions_are_refused(coalitions: Any, error: str) -> None:
    with pytest.raises(InputError, match=f"^coalitions: {error}.*Fix: ") as refused:
        observer_sets(coalitions, "abc")
    assert refused.value.command.startswith("--coalition: ")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(GRAPHS)))
def test_a_larger_coalition_learns_at_least_as_much(seed: int, name: str) -> None:
    """Data processing: what the smaller one sees is a function of what the larger one sees."""
    case, rng = draw(name, seed, rounds=5), np.random.default_rng(seed)
    order = rng.permutation(len(case.mixing))
    nested = [sorted(order[: k + 1].tolist()) for k in range(4)]
    found = pairwise(*case[:4], nested, case.arrives).mu
    outside = order[4:]
    assert (np.diff(found[:, outside], axis=0) >= -1e-10 * found[1:, outside]).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"noise": np.zeros((2, 3))}, "noise scales must be positive"),
        ({"noise": np.full((2, 3), np.inf)}, "noise scales must be positive"),
        ({"injected": np.full((2, 3), np.nan)}, "learning rates and clipping norms finite"),
        ({"observers": [[0, 3]]}, r"got \[0, 3\], expected some of agents 0, 1 and 2"),
    ],
)
def test_refusals(change: dict[str, Any], sentence: str) -> None:
    given_: dict[str, Any] = {
        "mixing": topology.build_topology("ring", 3).mixing, "contraction": np.zeros(2), "injected": np.ones((2, 3)),
        "noise": np.ones((2, 3)),
    }  # fmt: skip
    with pytest.raises(InputError, match=sentence) as caught:
        pairwise(**(given_ | change))
    assert "\n" not in str(caught.value)


def test_noise_that_spans_more_than_float64_is_refused() -> None:
    """On a path, the far agent's noise reaches the observer through one neighbour only."""
    noise = np.ones((3, 3))
    noise[:2, 2] = 1e9
    path = topology.build_topology("path", 3).mixing
    with pytest.raises(InputError, match="too much for float64"):
        pairwise(path, np.zeros(3), np.ones((3, 3)), noise, [[0]])
    noise[:2, 2] = 1e4
    assert np.isfinite(pairwise(path, np.zeros(3), np.ones((3, 3)), noise, [[0]]).mu[0, 1:]).all()
