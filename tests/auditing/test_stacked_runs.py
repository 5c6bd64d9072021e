"""Runs that are computed together: transcripts and replays are bitwise those of single runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.auditing.transcripts import observe, observe_runs, replay, replay_runs, runs_at_once
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.jobs.build import build_job as build

ROOTS = [seeded_root(k, b"stacked") for k in range(3)]
TOGETHER = (
    *("adasdbo", "biased_regularisation", "classification", "dlm", "dp_dsgd", "dsbo_jhip", "dsoba", "exact_diffusion"),
    *("extra", "f2sa", "gbdsbo", "gossip_sgda", "gradient_tracking", "hyper_cleaning", "kgt", "ldp_dsbo"),
    *("ldp_single_level", "ma_dsbo", "minibatch_torus", "quadratic", "spdb", "stream_laplace", "vrdsbo"),
)
ONE_BY_ONE = ("bsa", "choco", "federated", "push_sum", "random_walk", "shared_noise", "own_losses")


def assert_equal_bits(first: Any, second: Any) -> None:
    """Compare nested mappings, tuples and arrays."""
    if hasattr(first, "keys"):
        assert list(first) == list(second)
        first, second = tuple(first.values()), tuple(second.values())
    if isinstance(first, tuple):
        for pair in zip(first, second, strict=True):
            assert_equal_bits(*pair)
    elif isinstance(first, np.ndarray):
        assert (first.shape, first.tobytes()) == (second.shape, second.tobytes())
    else:
        assert first == second


@pytest.mark.parametrize("name", TOGETHER)
def test_runs_together_have_the_bits_of_single_runs(name: str) -> None:
    job = build(load(name, ["algorithm.rounds=3"]))
    assert runs_at_once(job) >= len(ROOTS)
    together = observe_runs(job, 1, ROOTS)
    for transcript, replayed, root in zip(together, replay_runs(job, 1, together), ROOTS, strict=True):
        single = observe(job.with_root(root), 1)
        assert_equal_bits(transcript._asdict(), single._asdict())
        assert_equal_bits(replayed, replay(job, 1, single))
    assert np.array_equal(together[0].published, together[1].published) is not job.mechanism.adds_noise


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_runs_whose_network_or_code_may_depend_on_the_block_are_not_joined(name: str) -> None:
    assert runs_at_once(build(load(name, ["algorithm.rounds=3"]))) == 1
