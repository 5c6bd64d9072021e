"""The trusted coordinator's exchanges: what goes where, what it costs, and what is refused."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from decentral_dp import InputError
from decentral_dp.bounded import Array, Bounded, Sensitivity, Split
from decentral_dp.central.context import CoordinatorContext, Domain, MinimaxContext
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.central.problems.composite import Composite
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import CoordinatorNode, Snapshot
from decentral_dp.exchange import Ask, ClippedSum, Release, Request, Response
from decentral_dp.models.build import LinearModel
from decentral_dp.participants import ClientBlock
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.privacy.releasers import PlannedReleaser
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter
from decentral_dp.problems.protocol import CHANGE

ROOT = seeded_root(5, b"coordinator")
COUNTS = [7, 3, 12]
D = 4


def plan(price: float, releases: int, width: int, kinds: tuple[Split, ...] = ("train",), **keys: Any) -> Ledger:
    one = np.ones((releases, 1))
    rate = keys.pop("rate", 1.0)
    line = ChannelLedger(
        "gy", "gaussian", width, np.zeros(1, dtype=np.int64), np.arange(1, releases + 1), one,
        dict.fromkeys(kinds, price * one), dict.fromkeys(kinds, rate * one), **keys,
    )  # fmt: skip
    return Ledger(1, (line,))


def bounded(value: Array, sensitivity: float, **spread: Any) -> Bounded:
    return Bounded(
        np.zeros_like(value), value, {"train": Sensitivity(np.array([sensitivity]), np.ones(1), None, **spread)}, "l2"
    )


def records(counts: list[int] = COUNTS, seed: int = 0) -> dict[Split, list[Any]]:
    rng, problem = np.random.default_rng(seed), LogisticHyperparameter(D)
    made: dict[Split, list[Any]] = {"train": [], "validation": []}
    for n in counts:
        for kind in made:
            made[kind].append(problem.prepare(rng.normal(size=(n, D)), rng.choice([-1.0, 1.0], size=n), "l2"))
    return made


class State(NamedTuple):
    y: Array


@dataclass(frozen=True)
class Descent:
    """One clipped mean a round, asked for and published."""

    rate: float = 1.0
    kind: str = "honest"

    releases_per_round = 1

    def init(self, context: Any) -> State:
        return State(np.zeros(D))

    def step(self, t: int, context: Any, s: State) -> Generator[Request, Response, State]:
        answer = yield Ask(g=ClippedSum("lower_grad_y", np.zeros(D), s.y, rate=self.rate))
        if self.kind == "carries":
            yield Ask(g=ClippedSum("lower_grad_y", np.zeros(D), answer.g))
        if self.kind == "twice":
            yield Release(gy=answer.g)
        if self.kind == "other channel":
            told = yield Release(other=answer.g)
        elif self.kind == "tells":
            told = yield Release(gy=answer.g.private)
        else:
            told = yield Release(gy=answer.g)
        return State(s.y - told.released["gy"][0])

    def published(self, s: State) -> Mapping[str, Array]:
        return {"y": s.y}


def coordinator_node(
    program: Descent, price: float = 1.0, sizes: tuple[int, ...] = (3,), **keys: Any
) -> CoordinatorNode:
    problem, made, clip = LogisticHyperparameter(D), records(), Clip("l2", y=0.5)
    context = CoordinatorContext(
        problem, {"train": sum(COUNTS), "validation": sum(COUNTS)}, len(COUNTS), clip, Domain()
    )
    ends = np.cumsum(sizes)
    client_blocks = tuple(
        ClientBlock(a, problem, {k: [r[i] for i in a] for k, r in made.items()}, clip, Streams(ROOT, "coins", a))
        for a in (np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True))
    )
    ledger = plan(price, 6, D, **keys)
    return CoordinatorNode(program, context, lambda: PlannedReleaser(ledger, ROOT), client_blocks, len(COUNTS))


def run(program: Descent, rounds: int = 6, **keys: Any) -> tuple[Snapshot, Ledger]:
    last, ledger = LocalEngine().coordinate(coordinator_node(program, **keys), rounds)
    return last, ledger


def by_hand(rounds: int, noise: list[Array], rate: float = 1.0) -> Array:
    """The same descent over raw records, one by one, with the noise and the coins of the streams."""
    made, y = records(), np.zeros(D)
    for t in range(rounds):
        total = np.zeros(D)
        for agent, dataset in enumerate(made["train"]):
            coins = Streams(ROOT, "coins", [agent]).generator(0, t + 1, _tag("train")).random(len(dataset.signed))
            for row, coin in zip(dataset.signed, coins, strict=True):
                if rate == 1.0 or coin < rate:
                    g = -row / (1.0 + np.exp(row @ y))
                    total += g * min(1.0, 0.5 / np.linalg.norm(g))
        y = y - (total / (rate * sum(COUNTS)) + noise[t])
    return y


def _tag(name: str) -> int:
    from decentral_dp.privacy.randomness import tag

    return tag(name)


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_agrees_with_a_loop_over_records(rate: float) -> None:
    sampling = {} if rate == 1.0 else {"rate": rate, "sampling": "poisson"}
    sensitivity = 2.0 * 0.5 / (rate * sum(COUNTS))
    last, ledger = run(Descent(rate), price=2.0, **sampling)
    scale = sensitivity / 2.0
    assert ledger.channels[0].scale == pytest.approx(np.full((6, 1), scale), rel=1e-9)
    normals = [
        Streams(ROOT, "noise", [0]).generator(0, t, _tag("gy")).standard_normal((1, 1, D))[0, 0] for t in range(1, 7)
    ]
    # On a grid of 2^-16 of the scale, twice rounded.
    assert last.released["y"][0] == pytest.approx(by_hand(6, [scale * n for n in normals], rate), abs=6 * scale * 2e-5)
    assert ledger.channels[0].sampling == ("fixed" if rate == 1.0 else "poisson")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("carries", "not public"),
        ("twice", "step of Descent publishes 2 times or more, and releases_per_round states 1"),
        ("other channel", "was not planned"),
    ],
)
def test_a_program_that_breaks_the_rules_is_stopped(kind: str, words: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=words):
        run(Descent(kind=kind), rounds=6)


def test_what_is_smuggled_out_as_an_array_is_seen_in_the_ledger() -> None:
    """By type an array is public; what was planned as charged was then not released, and the run is refused."""
    _, ledger = run(Descent(kind="tells"))
    assert ledger.channels[0].mechanism.name == "free"
    assert not ledger.costs_within(plan(1.0, 6, D).repeat(3))


class OneAgentAtATime(LogisticHyperparameter):
    """A problem that overrides `terms`, so that agents are not evaluated together."""

    def terms(self, *asked: Any) -> Any:
        return super().terms(*asked)


@pytest.mark.parametrize("kind", [LogisticHyperparameter, OneAgentAtATime])
def test_records_of_a_sample_are_evaluated_one_by_one(
    kind: type[LogisticHyperparameter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A contribution must not depend on the other sampled records, not even by the rounding of a matrix product.

    Each record is evaluated as an agent with one record, which keeps its bits.
    """
    real, together, sizes = LogisticHyperparameter.stacked_terms, [], []

    def stacked_terms(self: LogisticHyperparameter, x: Any, y: Any, z: Any, records: Any, *more: Any) -> Any:
        agents, n = records[0].shape[:2]
        together.append(agents)
        sizes.append(n)
        return real(self, x, y, z, records, *more)

    monkeypatch.setattr(LogisticHyperparameter, "stacked_terms", stacked_terms)
    clip, made = Clip("l2", y=0.5), records()
    for rate in (1.0, 0.5):
        sizes.clear()
        client_block = ClientBlock(np.arange(3), kind(D), made, clip, Streams(ROOT, "coins", range(3)))
        client_block.answer(1, {"g": ClippedSum("lower_grad_y", np.zeros(D), np.zeros(D), rate=rate)})
        assert sizes == list(COUNTS) if rate == 1.0 else set(sizes) == {1}
    assert (max(together) > 1) == (kind is LogisticHyperparameter)


def test_one_record_moves_an_answer_by_what_it_carries_and_no_more() -> None:
    problem, clip, made = LogisticHyperparameter(D), Clip("l2", y=0.5), records()
    context = CoordinatorContext(
        problem, {"train": sum(COUNTS), "validation": sum(COUNTS)}, len(COUNTS), clip, Domain()
    )
    question = {"g": ClippedSum("lower_grad_y", np.zeros(D), np.zeros(D))}

    def mean(train: list[Any]) -> Bounded:
        client_block = ClientBlock(
            np.arange(3), problem, {**made, "train": train}, clip, Streams(ROOT, "coins", range(3))
        )
        answer: Bounded = context.combine(1, question, client_block.answer(1, question)).g
        return answer

    worst = 0.0
    for sign in (1.0, -1.0):
        row = np.zeros((COUNTS[1], D))
        row[:, 0] = 100.0
        other = [*made["train"]]
        other[1] = problem.prepare(row, np.array([sign, *np.ones(COUNTS[1] - 1)]), "l2")
        base = [*other]
        base[1] = problem.prepare(row, np.ones(COUNTS[1]), "l2")
        apart = float(np.linalg.norm(mean(other).value - mean(base).value))
        carried = float(mean(base).sensitivities["train"].sensitivity[0])
        assert apart <= carried
        worst = max(worst, apart / carried)
    assert worst > 0.999


class Dice(NamedTuple):
    """A selection mechanism that returns its scale."""

    sensitivity: Mapping[Split, float]
    mechanism: str = "exponential"
    width: int = 1
    distortion: float = 0.0

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        return np.array([scale])


def test_the_scale_is_the_least_that_no_kind_of_record_exceeds() -> None:
    both: tuple[Split, ...] = ("train", "validation")
    line = plan(0.5, 1, 1, both).channels[0]
    prices: dict[Split, Array] = {"train": np.array([[0.5]]), "validation": np.array([[0.1]])}
    for mechanism in ("exponential", "gaussian"):
        ledger = Ledger(1, (ChannelLedger(**{**vars(line), "mechanism": mechanism, "sensitivity": prices}),))
        dice = Dice({"train": 1.0, "validation": 0.4}, mechanism)
        releaser = PlannedReleaser(ledger, ROOT)
        told = releaser.release(1, {"gy": dice})
        assert told.scale["gy"] == pytest.approx(4.0)
        assert told.released["gy"][0, 0] == told.scale["gy"]
        assert releaser.ledger().costs_within(ledger)
        half = ChannelLedger(**{**vars(ledger.channels[0]), "sensitivity": {k: v / 2 for k, v in prices.items()}})
        assert not releaser.ledger().costs_within(Ledger(1, (half,)))


def test_noise_has_the_scale_that_is_charged() -> None:
    """With 4000 coordinates the right deviation passes, and two thirds or three halves of it do not."""
    n, sensitivity, price = 4000, 0.3, 0.7
    releaser = PlannedReleaser(plan(price, 1, n), ROOT)
    told = releaser.release(1, {"gy": bounded(np.full((1, n), 2.0), sensitivity)})
    noise = (told.released["gy"] - 2.0) / (sensitivity / price)
    assert abs(noise.std() - 1.0) < 0.05
    for wrong in (2.0 / 3.0, 1.5):
        assert abs(noise.std() / wrong - 1.0) > 0.05


@pytest.mark.parametrize("sensitivity", [np.nan, np.inf, -1.0])
def test_a_sensitivity_that_bounds_nothing_is_never_released(sensitivity: float) -> None:
    with pytest.raises(ValueError, match="bound nothing"):
        PlannedReleaser(plan(1.0, 1, 2), ROOT).release(1, {"gy": bounded(np.ones((1, 2)), sensitivity)})


def test_a_price_that_is_no_number_is_not_within_a_plan() -> None:
    line = plan(1.0, 1, 2).channels[0]
    broken = ChannelLedger(**{**vars(line), "sensitivity": {"train": np.array([[np.nan]])}})
    assert not Ledger(1, (broken,)).costs_within(plan(1.0, 1, 2))


def test_a_missing_clip_is_called_by_its_key_in_the_scenario() -> None:
    """Both gradients as one vector, and a change between two points, are clipped by the clip of x."""
    counts: dict[Split, int] = {"train": 8, "validation": 8}
    minimax = MinimaxContext(Composite(LinearModel(3, 1), AucObjective(0.5)), counts, 1, Clip("l2"))
    bilevel = CoordinatorContext(HyperCleaning(2, (0, 1, 2), 3), counts, 1, Clip("l2"), Domain())
    for context, term in ((minimax, "grad_x"), (minimax, "joint"), (bilevel, CHANGE)):
        with pytest.raises(InputError, match=r"privacy\.clip\.x: missing"):
            context.check_bounded((term,))
