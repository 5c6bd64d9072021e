"""Without a seed every draw is from a keystream: noise, batches, Bernoulli draws and selections; with one, none is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.privacy import randomness
from decentral_dp.privacy.randomness import Keystreams, Philox, SecretRoot, Streams
from decentral_dp.simulation import run as runner
from decentral_dp.simulation.jobs.build import build_job

Make = Callable[..., dict[str, Any]]
ROOT = SecretRoot(bytes(range(32)))
# Purposes of draws: gossip with minibatches, Poisson samples of both coordinator settings, and a selection.
SCENARIOS = {
    "minibatch_torus": {"noise", "batch"},
    "stream_laplace": {"noise"},
    "dp_bilevel_minibatch": {"noise", "coins"},
    "dp_sgd_dual": {"noise", "coins"},
    "exponential_mechanism": {"noise"},
}


class _Asked:
    """How often each generator was made or asked, and the purposes and kinds of root that were drawn for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.philox = self.keystream = 0
        self.drawn: set[str] = set()
        self.roots: set[type] = set()
        purposes: dict[int, str] = {}
        made = Streams.__init__

        def init(streams: Streams, root: Any, purpose: str, agents: Any) -> None:
            self.roots.add(type(root))
            made(streams, root, purpose, agents)
            purposes[id(streams.source)] = purpose
            kept.append(streams.source)

        def counted(name: str, call: Any) -> Any:
            def count(source: Any, *given: Any, **named: Any) -> Any:
                setattr(self, name, getattr(self, name) + 1)
                self.drawn.add(purposes.get(id(source), ""))
                return call(source, *given, **named)

            return count

        kept: list[Any] = []  # so that no two have the same id
        monkeypatch.setattr(Streams, "__init__", init)
        monkeypatch.setattr(Keystreams, "generator", counted("keystream", Keystreams.generator))
        monkeypatch.setattr(Keystreams, "ciphers", counted("keystream", Keystreams.ciphers))
        monkeypatch.setattr(Philox, "generator", counted("philox", Philox.generator))
        monkeypatch.setattr(Philox, "__init__", counted("philox", Philox.__init__))


def _short(name: str, **given: Any) -> Any:
    made = load(name, [] if name == "exponential_mechanism" else ["algorithm.rounds=2"])
    return made.model_copy(update=given)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_without_a_seed_draws_from_keystreams_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _Asked(monkeypatch)
    decentral_dp.run(_short(name, seed=None))
    assert asked.keystream > 0
    assert asked.philox == 0
    assert asked.roots == {SecretRoot}
    assert asked.drawn == SCENARIOS[name]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_with_a_seed_draws_from_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _Asked(monkeypatch)
    decentral_dp.run(_short(name))
    assert asked.keystream == 0
    assert asked.philox > 0


def test_the_tuner_without_a_seed_draws_from_keystreams_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, asked = np.random.default_rng(0), _Asked(monkeypatch)
    x, y = rng.normal(size=(200, 2)), np.where(rng.random(200) < 0.5, -1.0, 1.0)
    decentral_dp.tune(
        train=(x[:120], y[:120]),
        validation=(x[120:], y[120:]),
        epsilon=1.0,
        delta=1e-5,
        weight_range=(1e-2, 1.0),
        steps=3,
    )
    assert (asked.keystream > 0, asked.philox) == (True, 0)
    assert asked.roots == {SecretRoot}


def _performed(given: dict[str, Any]) -> tuple[Any, Any]:
    return runner._perform(build_job(given).with_root(ROOT), None)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_blocks_and_the_compiled_part_do_not_matter(
    scenario: Make, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta = {} if mechanism == "laplace" else {"delta": 1e-5}
    given = scenario(
        problem={"sampling": {"kind": "fixed_batch", "batch_size": 8}}, privacy={"mechanism": mechanism, **delta}
    )
    rows, whole = _performed(given)
    others = [_performed({**given, "run": {**given["run"], "blocks": 3}})]
    monkeypatch.setattr(randomness, "_compiled", None)
    monkeypatch.setattr(randomness, "_variates", None)
    others.append(_performed(given))
    for other_rows, other in others:
        pd.testing.assert_frame_equal(pd.DataFrame(other_rows), pd.DataFrame(rows))
        for channel, value in whole.last_snapshot.released.items():
            np.testing.assert_array_equal(other.last_snapshot.released[channel], value, strict=True)
    seeded = decentral_dp.run(given)
    assert all((seeded.released[c] != v).any() for c, v in whole.last_snapshot.released.items())


def test_two_runs_of_one_job_share_no_secret_draw() -> None:
    job = decentral_dp.build("classification", set={"seed": None, "algorithm.rounds": 2})
    first, second = (job.run().released["y"] for _ in range(2))
    assert np.abs(first - second).min() > 0.0
