"""Auditing whole transcripts: what an optimal distinguisher can show, against what is certified.

Many repetitions of one agent's transcript are drawn with the real mechanism, in two neighbouring data sets. Given a
transcript, what was rounded and noised is a known number in either data set, so the likelihood ratio is exact. Its
power gives a lower bound on ε by Clopper and Pearson, which must stay below the certificate, and does not when
something is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from decentral_dp.algorithms.gossip.ldp_dsbo import LdpDsbo, State
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Bounded
from decentral_dp.data import Stream
from decentral_dp.engines.host import Host
from decentral_dp.engines.protocol import AgentNode
from decentral_dp.participants.agents import LocalDataset
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms.releasers import NoiseSchedule, ScheduledReleaser
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.privacy.recorder import Recorder, assemble
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from tests.support.release_cost_oracle import grid
from tests.support.replay import Script
from tests.support.transcripts import log_law, lower_bound

READ_ALL = Stream("all")


# The statistics -----------------------------------------------------------------------------------------------------


# Two data sets ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """One agent: its algorithm, problem, noise, both data sets (the last record is replaced), what is planted."""

    algorithm: LdpDsbo
    problem: LogisticHyperparameter
    kind: str
    noise: dict[str, NoiseSchedule]
    neighbours: tuple[np.ndarray, np.ndarray]
    clip: Clip
    rounds: int
    stream: Stream = READ_ALL
    # What the sampler really does with the scale that it states.
    actual: float = 1.0

    def dataset(self, side: int, copies: int) -> LocalDataset:
        features = self.neighbours[side]
        records = self.problem.prepare(features, np.ones(len(features)), self.clip.norm)
        validation = self.problem.prepare(np.ones((2, features.shape[1])), np.ones(2), self.clip.norm)
        agents = np.arange(copies)
        return LocalDataset(
            agents,
            self.problem,
            {"train": [records] * copies, "validation": [validation] * copies},
            np.full(copies, 0.6),
            self.stream,
            self.clip,
            Streams(seeded_root(side, b"audit"), "batch", agents),
        )

    def host(self, side: int, copies: int, releaser: Callable[[], Any]) -> Host:
        weights = sp.csr_array(np.full((copies, 1), 0.6))
        node = AgentNode(np.arange(copies), self.algorithm, self.dataset(side, copies), releaser, (0,), weights)
        return Host(node, self.rounds)

    def drive(self, host: Host) -> list[dict[str, np.ndarray]]:
        """Every release of index 0…T, with a neighbour that says the same to every copy."""
        rng, d = np.random.default_rng(9), self.problem.q
        said = [host.advance()]
        said += [host.advance(0.01 * rng.normal(size=(1, 3 * d))) for _ in range(self.rounds)]
        return [{c: m[:, k * d : (k + 1) * d] for k, c in enumerate("xyz")} for m in said]

    def transcripts(self, side: int, copies: int, seed: int) -> tuple[list[dict[str, np.ndarray]], Ledger]:
        root = seeded_root(seed, b"audit")
        agents = np.arange(copies)

        def releaser() -> ScheduledReleaser:
            mechanism = ScheduledReleaser(self.kind, self.noise, Streams(root, "noise", agents))
            if self.actual != 1.0:
                mechanism = Quieter(self.kind, self.noise, Streams(root, "noise", agents), self.actual)
            return mechanism

        host = self.host(side, copies, releaser)
        said = self.drive(host)
        return said, assemble([(agents, host.recorder())], copies).select(np.array([0]))

    def scores(self, said: Sequence[dict[str, np.ndarray]]) -> np.ndarray:
        """Exact log-likelihood ratio of the first data set against the second, per copy."""
        copies, total = len(said[0]["y"]), 0.0
        wanted = []
        for side in (0, 1):
            script = Script(said)
            self.drive(self.host(side, copies, lambda script=script: script))
            wanted.append(script.wanted)
        for index in range(1, self.rounds + 1):
            for channel, released in said[index].items():
                pair = [w[index][channel] for w in wanted]
                if not isinstance(pair[0], Bounded):
                    # Sent in the clear: a difference between the data sets decides.
                    apart = [np.abs(released - np.asarray(v)).max(axis=1) > 1e-12 for v in pair]
                    total = total + np.where(apart[1], 50.0, 0.0) - np.where(apart[0], 50.0, 0.0)
                    continue
                scale = self.actual * self.noise[channel].scales(index, self.kind)[:1, None]
                g = grid(scale, self.kind, 1)
                for sign, value in zip((1, -1), pair, strict=True):
                    integers = np.rint((released - value.public) / g)
                    total = total + sign * log_law(integers, value.private, scale, self.kind).sum(axis=1)
        return np.asarray(total)

    def audit(self, copies: int, delta: float = 0.0, neighbours: tuple[int, int] = (0, 1)) -> tuple[float, float]:
        """(lower bound on ε, certified ε) at δ."""
        found, ledgers = zip(*(self.transcripts(w, copies, seed=11 + k) for k, w in enumerate(neighbours)), strict=True)
        shown = lower_bound(*(self.scores(said) for said in found), delta)
        return shown, float(price(ledgers[0], delta).epsilon[0])


class Quieter(ScheduledReleaser):
    """Writes the ledger lines of the stated noise, and draws less."""

    def __init__(self, kind: str, schedules: dict[str, NoiseSchedule], streams: Streams, factor: float) -> None:
        super().__init__(kind, schedules, streams)
        self._factor = factor

    def _add_noise(self, index: int, bounded: Any, widths: Any, noise: Any) -> tuple[dict[str, np.ndarray], Any]:
        return super()._add_noise(index, bounded, widths, noise._replace(ratio=noise.ratio * self._factor))


def setting(
    kind: str = "laplace",
    protocol: Any = "released",
    dimension: int = 2,
    rounds: int = 3,
    size: float = 1.0,
    **more: Any,
) -> Setting:
    """A last train record that turns from one axis to another, or around; size: rough ε of one release of y."""
    norm: Any = "l1" if kind == "laplace" else "l2"
    records = np.full((2, dimension), 1.5)
    other = records.copy()
    records[-1] = [3.0] + [0.0] * (dimension - 1)
    other[-1] = [-3.0] if dimension == 1 else [0.0] * (dimension - 1) + [3.0]
    # One record in two, clip 0.2, step 0.1: it can move y by 0.1·0.4/2.
    sd = 0.02 / size * (2.0**0.5 if kind == "laplace" else 1.0)
    flat = NoiseSchedule(np.full(10**6, sd), np.full(10**6, 0.1))
    z = StepSize(0.0 if dimension == 1 else 0.1)
    algorithm = LdpDsbo(StepSize(0.1), StepSize(0.1, 0.2), z, protocol, start={"z": 50.0})
    problem, clip = LogisticHyperparameter(dimension), Clip(norm, y=0.2, z=0.2)
    made = Setting(algorithm, problem, kind, {"y": flat, "z": flat}, (records, other), clip, rounds)
    return replace(made, **more)


def sized(made: Setting, copies: int) -> Setting:
    return replace(made, noise={c: n.select(np.arange(copies)) for c, n in made.noise.items()})


# What must hold -----------------------------------------------------------------------------------------------------


def test_one_laplace_release_spends_what_is_certified() -> None:
    """y of one round: 95 % of its ε can be shown, and no more than all of it."""
    copies = 200_000
    made = setting(dimension=1, rounds=1, size=1.0)
    wanted = []
    for side in (0, 1):
        script = Script([{c: np.zeros((1, 1)) for c in "xyz"}] * 2)
        one = sized(made, 1)
        one.drive(one.host(side, 1, lambda script=script: script))
        wanted.append(script.wanted[1]["y"])
    many = sized(made, copies)
    scale = many.noise["y"].scales(1, "laplace")[:1, None]
    g, scores, epsilon = grid(scale, "laplace", 1), [], 0.0
    for side, value in enumerate(wanted):
        assert isinstance(value, Bounded)
        ones = np.ones(copies)
        spread = {k: s._replace(sensitivity=s.sensitivity * ones, rate=ones) for k, s in value.sensitivities.items()}
        query = [np.repeat(part, copies, axis=0) for part in (value.public, value.private)]
        tiled = Bounded(query[0], query[1], spread, value.norm)
        streams = Streams(seeded_root(side, b"one"), "noise", np.arange(copies))
        mechanism = ScheduledReleaser("laplace", many.noise, streams)
        released = mechanism.release(1, {"y": tiled})["y"]
        integers = np.rint((released - value.public) / g)
        logs = [log_law(integers, v.private, scale, "laplace").sum(axis=1) for v in wanted]
        scores.append(logs[0] - logs[1])
        ledger = assemble([(np.arange(copies), mechanism.recorder)], copies).select(np.array([0]))
        epsilon = float(price(ledger, 0.0).epsilon[0])
    assert epsilon == pytest.approx(1.0 * 2**0.1, rel=0.2)
    assert 0.95 * epsilon <= lower_bound(scores[0], scores[1], 0.0) <= epsilon
    # No single outcome tells more than what is certified.
    assert max(np.abs(s).max() for s in scores) <= epsilon


@pytest.mark.parametrize(
    ("kind", "protocol", "delta", "share"),
    [("laplace", "released", 1e-3, 0.25), ("gaussian", "released", 1e-3, 0.25), ("laplace", "private", 1e-3, 0.3)],
)
def test_a_transcript_shows_no_more_than_is_certified(kind: str, protocol: str, delta: float, share: float) -> None:
    copies = 4000
    shown, certified = sized(setting(kind, protocol, size=0.3), copies).audit(copies, delta)
    assert share * certified <= shown <= certified


@pytest.mark.parametrize("protocol", ["released", "private"])
def test_no_laplace_transcript_tells_more_than_the_pure_budget(protocol: str) -> None:
    """The largest likelihood ratio met, not a statistic: any single excess would be a counterexample."""
    copies = 1000
    made = sized(setting("laplace", protocol, size=0.5), copies)
    said, ledger = made.transcripts(0, copies, seed=5)
    certified = float(price(ledger, 0.0).epsilon_pure[0])
    largest = float(np.abs(made.scores(said)).max())
    assert 0.8 * certified <= largest <= certified


def test_fresh_batches_are_worth_their_amplification() -> None:
    """One of two records is read, at random: the bound on ε from all outputs stays below log(1 + (e^E − 1)/2)."""
    copies = 25_000
    made = setting(dimension=1, rounds=1, size=1.5, stream=Stream("minibatch", batch=1))
    draws = []
    for side in (0, 1):
        said, ledger = sized(made, copies).transcripts(side, copies, seed=side)
        draws.append(said[1]["y"][:, 0])
    certified = float(price(ledger, 0.0).epsilon[0])
    channels = [replace(c, rate={k: np.ones_like(r) for k, r in c.rate.items()}) for c in ledger.channels]
    alone = replace(ledger, channels=tuple(channels))
    # The likelihood ratio of the mixtures is monotone in the only coordinate.
    shown = lower_bound(-draws[0], -draws[1], 0.0)
    shown = max(shown, lower_bound(draws[0], draws[1], 0.0))
    assert 0.8 * certified <= shown <= certified < 0.8 * float(price(alone, 0.0).epsilon[0])


def test_equal_data_sets_show_nothing() -> None:
    copies = 3000
    made = sized(setting(dimension=1, rounds=2), copies)
    shown, certified = made.audit(copies, neighbours=(0, 0))
    assert shown == 0.0
    assert certified > 1.0


# Planted bugs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_half_the_noise_shows(kind: str) -> None:
    copies, delta = 5000, 0.0 if kind == "laplace" else 1e-2
    made = sized(setting(kind, dimension=1, rounds=2, size=0.6), copies)
    shown, certified = made.audit(copies, delta)
    assert shown <= certified
    shown, same = replace(made, actual=0.5).audit(copies, delta)
    assert same == certified
    assert shown > certified


def test_a_forgotten_clip_shows() -> None:
    class Unclipped(LogisticHyperparameter):
        def terms(self, x: Any, y: Any, z: Any, train: Any, validation: Any, clip: Clip) -> Any:
            return super().terms(x, y, z, train, validation, Clip("l1"))

    copies = 3000
    made = sized(setting(dimension=1, rounds=1, size=0.4), copies)
    shown, certified = replace(made, problem=Unclipped(1)).audit(copies)
    assert shown > certified
    assert made.audit(copies)[0] <= certified


def test_an_uncharged_channel_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """z is noised like y, and left out of the ledger."""
    copies = 5000
    made = setting(rounds=1, size=0.3)
    fine = NoiseSchedule(made.noise["y"].scale / 5, made.noise["y"].decay)
    made = sized(replace(made, noise={**made.noise, "z": fine}), copies)
    shown, certified = made.audit(copies)
    assert shown <= certified
    charge = Recorder.charge

    def forgetful(self: Recorder, index: int, channel: str, *rest: Any, **more: Any) -> None:
        if channel != "z":
            charge(self, index, channel, *rest, **more)

    monkeypatch.setattr(Recorder, "charge", forgetful)
    shown, certified = made.audit(copies)
    assert shown > certified


def test_a_private_value_sent_in_the_clear_shows() -> None:
    """An algorithm that smuggles what it holds into a channel without data: the ledger calls it free."""

    class Leaky(LdpDsbo):
        def step(self, t: int, dataset: LocalDataset, s: State) -> Any:
            y = s.y.value if isinstance(s.y, Bounded) else s.y
            return (yield from super().step(t, dataset, s._replace(x=np.asarray(s.x) + 1e-9 * y)))

    copies = 1000
    made = sized(setting(dimension=1, rounds=2, size=0.3), copies)
    leaky = Leaky(made.algorithm.x, made.algorithm.y, made.algorithm.z, "released", start=made.algorithm.start)
    shown, certified = replace(made, algorithm=leaky).audit(copies)
    assert shown > certified


def test_the_statistics_find_what_is_there() -> None:
    """Randomised response at ε = 1, and with a δ: the bound comes close and stays below, in either direction."""
    rng = np.random.default_rng(3)
    truth = np.e / (1 + np.e)
    first = (rng.random(40_000) < truth).astype(float)
    second = (rng.random(40_000) < 1 - truth).astype(float)
    assert 0.9 <= lower_bound(first, second, 0.0) <= 1.0
    assert 0.9 <= lower_bound(-second, -first, 0.0) <= 1.0
    assert 0.5 < lower_bound(first, second, 0.1) < 0.9
