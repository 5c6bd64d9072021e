"""Audit releases on samples and random choices, and sum over the Bernoulli draw of the replaced record."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation

from decentral_dp.auditing.losses import (
    Choice,
    mixture_epsilon,
    mixture_log_ratio,
    refute_stated_laws,
    sampling_rates,
)
from decentral_dp.auditing.neighbours import find_farthest
from decentral_dp.auditing.transcripts import (
    Membership,
    Neighbours,
    observe,
    prescribe_agent,
    replay,
)
from decentral_dp.central.clients import MinimaxClientBlock
from decentral_dp.central.selection import FiniteExponential
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.data.streams import draw_batch
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.audits import audit

SAMPLED = ["algorithm.rounds=2", "algorithm.rate=0.3"]
MINIBATCH = ["algorithm.rounds=2", "topology.rows=3", "topology.columns=3"]


def neighbours_of(name: str, overrides: list[str]) -> Neighbours:
    job = build(load(name, overrides))
    return find_farthest(job, seeded_root(0, b"worlds"))


@pytest.mark.parametrize(("move", "rate", "number"), [(0.8, 0.2, 1), (0.5, 0.05, 30), (2.0, 0.5, 4), (1.0, 0.999, 3)])
def test_the_loss_of_samples_is_that_of_the_library(move: float, rate: float, number: int) -> None:
    """dp_accounting bounds it from above, on a grid of 1e-4; this one from below."""
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(1.0 / move)), number))
    for delta in (1e-2, 1e-5):
        above = accountant.get_epsilon(delta)
        below = mixture_epsilon(np.full((number, 2), move), np.full(number, rate), delta)
        assert 0.99 * above - 2e-3 <= below <= above


def test_a_prescribed_minibatch_has_its_distribution() -> None:
    """At the sampling rate, batches have the distribution of `draw_batch` with b − 1 common records."""

    class Node:
        def __init__(self) -> None:
            self.dataset = self

        def with_sampler(self, draw: Any) -> Any:
            self.draw = draw
            return self

        def _replace(self, dataset: Any) -> Any:
            return dataset

    nodes = {w: prescribe_agent(Node(), Membership("train", w)) for w in ("in", "out")}  # type: ignore[arg-type]
    n, batch, tries = 5, 2, 20_000
    found: Counter[tuple[int, ...]] = Counter()
    for k in range(tries):
        pair = {w: node.draw("train", n, batch, np.random.default_rng(k)).index for w, node in nodes.items()}
        assert 0 in pair["in"]
        assert 0 not in pair["out"]
        # Common records have the same position.
        assert (pair["in"] != pair["out"]).sum() == 1
        real = draw_batch(n, batch, np.random.default_rng(k)).index
        # One of the two is what the run itself draws.
        assert any(np.array_equal(real, one) for one in pair.values())
        found[tuple(pair["out"].tolist())] += 1
    # Without the record, the 12 ordered pairs of the others are uniform: chi-square with 11 degrees, 1e-6.
    counts = np.array(list(found.values()))
    assert counts.size == 12
    assert ((counts - tries / 12) ** 2 / (tries / 12)).sum() < 49.0
    other = nodes["in"].draw("validation", n, batch, np.random.default_rng(3)).index
    assert np.array_equal(other, draw_batch(n, batch, np.random.default_rng(3)).index)


def test_the_mixture_follows_bayes() -> None:
    """Compute the loss of one release from the densities with and without the record."""
    neighbours = neighbours_of("dp_sgda", ["algorithm.rounds=1", "algorithm.rate=0.3"])
    rates = sampling_rates(neighbours.first, neighbours.victim, neighbours.split)
    assert rates is not None
    job: Any = neighbours.first
    transcript = observe(job.with_root(seeded_root(5, b"one")), neighbours.victim)
    densities = []
    for side in (neighbours.first, neighbours.second):
        parts = []
        for drawn, weight in (("in", 0.3), ("out", 0.7)):
            made = replay(side, neighbours.victim, transcript, Membership(neighbours.split, drawn))  # type: ignore[arg-type]
            exponent = 0.0
            for key, query in made.items():
                noise = transcript.noise[key]
                assert noise is not None
                apart = (transcript.releases[key] - query.public - query.private) / noise.scale
                exponent -= 0.5 * float((apart**2).sum())
            parts.append(np.log(weight) + exponent)
        densities.append(np.logaddexp(*parts))
    assert mixture_log_ratio(neighbours, transcript, rates) == pytest.approx(densities[0] - densities[1], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "overrides", "method"),
    [
        ("dp_sgda", ["algorithm.rounds=1", "algorithm.rate=0.3"], "exact"),
        ("dp_sgda", SAMPLED, "likelihood"),
        ("minibatch_torus", MINIBATCH, "exact"),
        ("exponential_mechanism", ["algorithm.candidates=17"], "exact"),
    ],
)
def test_samples_and_choices_have_lower_bounds(name: str, overrides: list[str], method: str) -> None:
    found = audit(name, overrides=overrides, runs=20)
    assert found.method == method
    assert 0.0 < found.shown <= found.certified
    assert (found.status, found.null_shown) == ("ok", 0.0)


# Planted errors -------------------------------------------------------------------------------------------------------


def test_a_record_that_is_always_drawn_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = MinimaxClientBlock._sums

    def all_of_them(self: Any, row: int, number: int, rate: float, query: Any) -> Any:
        return whole(self, row, number, 1.0, query)

    monkeypatch.setattr(MinimaxClientBlock, "_sums", all_of_them)
    found = audit("dp_sgda", overrides=[*SAMPLED, "privacy.epsilon=1.0"], runs=20)
    assert found.method == "counting"
    assert any("was in" in s for s in found.sentences)


def test_a_choice_at_a_smaller_scale_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours = neighbours_of("exponential_mechanism", ["algorithm.candidates=17"])
    roots = [seeded_root(k, b"laws") for k in range(200)]
    assert refute_stated_laws(neighbours, roots) == ""
    whole = FiniteExponential.draw
    monkeypatch.setattr(FiniteExponential, "draw", lambda self, g, scale: whole(self, g, scale / 8))
    assert "do not have the stated distribution" in refute_stated_laws(neighbours, roots)


def test_choices_by_brute_force() -> None:
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    for delta in (0.0, 1e-3, 0.05):
        found = Choice(np.log(p), np.log(q)).epsilon(delta)
        spent = max(np.maximum(a - np.exp(found) * b, 0.0).sum() for a, b in ((p, q), (q, p)))
        assert spent <= delta + 1e-12
        if found > 0.0:
            less = max(np.maximum(a - np.exp(found - 1e-6) * b, 0.0).sum() for a, b in ((p, q), (q, p)))
            assert less > delta
