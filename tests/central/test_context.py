"""Exchanges of the trusted coordinator: values, privacy costs and refusals."""

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


def make_plan(price: float, releases: int, width: int, kinds: tuple[Split, ...] = ("train",), **keys: Any) -> Ledger:
    ones = np.ones((releases, 1))
    rate = keys.pop("rate", 1.0)
    line = ChannelLedger(
        "gy", "gaussian", width, np.zeros(1, dtype=np.int64), np.arange(1, releases + 1), ones,
        dict.fromkeys(kinds, price * ones), dict.fromkeys(kinds, rate * ones), **keys,
    )  # fmt: skip
    return Ledger(1, (line,))


def make_bounded(value: Array, sensitivity: float, **spread: Any) -> Bounded:
    return Bounded(
        np.zeros_like(value), value, {"train": Sensitivity(np.array([sensitivity]), np.ones(1), None, **spread)}, "l2"
    )


def records(counts: list[int] = COUNTS, seed: int = 0) -> dict[Split, list[Any]]:
    rng, problem = np.random.default_rng(seed), LogisticHyperparameter(D)
    out: dict[Split, list[Any]] = {"train": [], "validation": []}
    for n in counts:
        for kind in out:
            out[kind].append(problem.prepare(rng.normal(size=(n, D)), rng.choice([-1.0, 1.0], size=n), "l2"))
    return out


class State(NamedTuple):
    y: Array


@dataclass(frozen=True)
class Descent:
    """An algorithm with one clipped mean a round, queried and released."""

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
            response = yield Release(other=answer.g)
        elif self.kind == "tells":
            response = yield Release(gy=answer.g.private)
        else:
            response = yield Release(gy=answer.g)
        return State(s.y - response.released["gy"][0])

    def published(self, s: State) -> Mapping[str, Array]:
        return {"y": s.y}


def coordinator_node(
    program: Descent, price: float = 1.0, sizes: tuple[int, ...] = (3,), **keys: Any
) -> CoordinatorNode:
    problem, shards, clip = LogisticHyperparameter(D), records(), Clip("l2", y=0.5)
    context = CoordinatorContext(
        problem, {"train": sum(COUNTS), "validation": sum(COUNTS)}, len(COUNTS), clip, Domain()
    )
    ends = np.cumsum(sizes)
    client_blocks = tuple(
        ClientBlock(a, problem, {k: [r[i] for i in a] for k, r in shards.items()}, clip, Streams(ROOT, "coins", a))
        for a in (np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True))
    )
    ledger = make_plan(price, 6, D, **keys)
    return CoordinatorNode(program, context, lambda: PlannedReleaser(ledger, ROOT), client_blocks, len(COUNTS))


def run(program: Descent, rounds: int = 6, **keys: Any) -> tuple[Snapshot, Ledger]:
    last, ledger = LocalEngine().coordinate(coordinator_node(program, **keys), rounds)
    return last, ledger


def run_by_hand(rounds: int, noise: list[Array], rate: float = 1.0) -> Array:
    """Run the same descent over single records, with keyed noise and samples."""
    shards, y = records(), np.zeros(D)
    for t in range(rounds):
        total = np.zeros(D)
        for agent, dataset in enumerate(shards["train"]):
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
    # Rounded twice to a grid of 2^-16 of the scale.
    expected = run_by_hand(6, [scale * n for n in normals], rate)
    assert last.released["y"][0] == pytest.approx(expected, abs=6 * scale * 2e-5)
    assert ledger.channels[0].sampling == ("fixed" if rate == 1.0 else "poisson")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("carries", "not public"),
        ("twice", "step of Descent publishes 2 times or more .expected releases_per_round = 1"),
        ("other channel", "was not planned"),
    ],
)
def test_invalid_programs_are_stopped(kind: str, words: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=words):
        run(Descent(kind=kind), rounds=6)


def test_a_sample_of_a_block_is_refused() -> None:
    question = ClippedSum("lower_grad_y", np.zeros(D), np.zeros(D), block=(0, 2))
    assert Ask(g=question).values == {"g": question}
    with pytest.raises(ValueError, match=r"^g samples a block \(got rate = 0\.5, expected 1\)\. Fix: remove block"):
        Ask(g=question._replace(rate=0.5))


def test_unreleased_value_is_missing_from_the_ledger() -> None:
    """A value that is published as an array was never released, so that the ledger is short and the run is refused."""
    _, ledger = run(Descent(kind="tells"))
    assert ledger.channels[0].mechanism.name == "free"
    assert not ledger.costs_within(make_plan(1.0, 6, D).repeat(3))


class OneAgentAtATime(LogisticHyperparameter):
    """A problem that overrides `terms`, so that agents are evaluated one at a time."""

    def terms(self, *args: Any) -> Any:
        return super().terms(*args)


@pytest.mark.parametrize("kind", [LogisticHyperparameter, OneAgentAtATime])
def test_sampled_records_are_evaluated_one_by_one(
    kind: type[LogisticHyperparameter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A contribution does not depend on the other sampled records, not even by the rounding of a matrix product.

    Each record is evaluated as that of an agent with one record.
    """
    real, together, sizes = LogisticHyperparameter.stacked_terms, [], []

    def stacked_terms(self: LogisticHyperparameter, x: Any, y: Any, z: Any, records: Any, *more: Any) -> Any:
        agents, n = records[0].shape[:2]
        together.append(agents)
        sizes.append(n)
        return real(self, x, y, z, records, *more)

    monkeypatch.setattr(LogisticHyperparameter, "stacked_terms", stacked_terms)
    clip, shards = Clip("l2", y=0.5), records()
    for rate in (1.0, 0.5):
        sizes.clear()
        client_block = ClientBlock(np.arange(3), kind(D), shards, clip, Streams(ROOT, "coins", range(3)))
        client_block.answer(1, {"g": ClippedSum("lower_grad_y", np.zeros(D), np.zeros(D), rate=rate)})
        assert sizes == list(COUNTS) if rate == 1.0 else set(sizes) == {1}
    assert (max(together) > 1) == (kind is LogisticHyperparameter)


def test_answers_carry_their_sensitivity() -> None:
    problem, clip, shards = LogisticHyperparameter(D), Clip("l2", y=0.5), records()
    context = CoordinatorContext(
        problem, {"train": sum(COUNTS), "validation": sum(COUNTS)}, len(COUNTS), clip, Domain()
    )
    question = {"g": ClippedSum("lower_grad_y", np.zeros(D), np.zeros(D))}

    def mean(train: list[Any]) -> Bounded:
        client_block = ClientBlock(
            np.arange(3), problem, {**shards, "train": train}, clip, Streams(ROOT, "coins", range(3))
        )
        answer: Bounded = context.combine(1, question, client_block.answer(1, question)).g
        return answer

    worst = 0.0
    for sign in (1.0, -1.0):
        row = np.zeros((COUNTS[1], D))
        row[:, 0] = 100.0
        other = [*shards["train"]]
        other[1] = problem.prepare(row, np.array([sign, *np.ones(COUNTS[1] - 1)]), "l2")
        base = [*other]
        base[1] = problem.prepare(row, np.ones(COUNTS[1]), "l2")
        distance = float(np.linalg.norm(mean(other).value - mean(base).value))
        sensitivity = float(mean(base).sensitivities["train"].sensitivity[0])
        assert distance <= sensitivity
        worst = max(worst, distance / sensitivity)
    assert worst > 0.999


def test_a_mean_with_a_small_factor_changes_by_the_rounding_of_the_other_split() -> None:
    problem, clip, shards = LogisticHyperparameter(D), Clip("l2", y=0.5, z=0.5), records()
    counts: dict[Split, int] = {"train": sum(COUNTS), "validation": sum(COUNTS)}
    context = CoordinatorContext(problem, counts, len(COUNTS), clip, Domain())
    questions = {term: ClippedSum(term, np.zeros(D), np.zeros(D)) for term in ("lower_grad_y", "upper_grad_y")}

    def total(train: list[Any]) -> Bounded:
        client_block = ClientBlock(
            np.arange(3), problem, {**shards, "train": train}, clip, Streams(ROOT, "coins", range(3))
        )
        answer = context.combine(1, questions, client_block.answer(1, questions))
        return 1e-10 * answer.lower_grad_y + answer.upper_grad_y

    shares = []
    for row in 100.0 * np.random.default_rng(4).normal(size=(20, D)):
        features, label = np.tile(row, (COUNTS[1], 1)), np.ones(COUNTS[1])
        pair = []
        for sign in (1.0, -1.0):
            changed = problem.prepare(features, np.array([sign, *label[1:]]), "l2")
            pair.append(total([shards["train"][0], changed, *shards["train"][2:]]))
        distance = float(np.linalg.norm(pair[0].private - pair[1].private))
        shares.append(distance / float(pair[0].sensitivities["train"].sensitivity[0]))
    assert 0.99 < max(shares) <= 1.0


class Dice(NamedTuple):
    """A selection mechanism that returns its scale."""

    sensitivity: Mapping[Split, float]
    mechanism: str = "exponential"
    width: int = 1
    distortion: float = 0.0

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        return np.array([scale])


def test_scale_covers_both_splits() -> None:
    splits: tuple[Split, ...] = ("train", "validation")
    line = make_plan(0.5, 1, 1, splits).channels[0]
    prices: dict[Split, Array] = {"train": np.array([[0.5]]), "validation": np.array([[0.1]])}
    for mechanism in ("exponential", "gaussian"):
        ledger = Ledger(1, (ChannelLedger(**{**vars(line), "mechanism": mechanism, "sensitivity": prices}),))
        dice = Dice({"train": 1.0, "validation": 0.4}, mechanism)
        releaser = PlannedReleaser(ledger, ROOT)
        response = releaser.release(1, {"gy": dice})
        assert response.scale["gy"] == pytest.approx(4.0)
        assert response.released["gy"][0, 0] == response.scale["gy"]
        assert releaser.ledger().costs_within(ledger)
        half = ChannelLedger(**{**vars(ledger.channels[0]), "sensitivity": {k: v / 2 for k, v in prices.items()}})
        assert not releaser.ledger().costs_within(Ledger(1, (half,)))


def test_noise_has_the_charged_scale() -> None:
    """With 4000 coordinates a deviation of two thirds or three halves would be rejected."""
    n, sensitivity, price = 4000, 0.3, 0.7
    releaser = PlannedReleaser(make_plan(price, 1, n), ROOT)
    response = releaser.release(1, {"gy": make_bounded(np.full((1, n), 2.0), sensitivity)})
    noise = (response.released["gy"] - 2.0) / (sensitivity / price)
    assert abs(noise.std() - 1.0) < 0.05
    for wrong in (2.0 / 3.0, 1.5):
        assert abs(noise.std() / wrong - 1.0) > 0.05


@pytest.mark.parametrize("sensitivity", [np.nan, np.inf, -1.0])
def test_infinite_sensitivity_is_never_released(sensitivity: float) -> None:
    with pytest.raises(ValueError, match="expected finite numbers"):
        PlannedReleaser(make_plan(1.0, 1, 2), ROOT).release(1, {"gy": make_bounded(np.ones((1, 2)), sensitivity)})


def test_nan_cost_exceeds_every_plan() -> None:
    line = make_plan(1.0, 1, 2).channels[0]
    broken = ChannelLedger(**{**vars(line), "sensitivity": {"train": np.array([[np.nan]])}})
    assert not Ledger(1, (broken,)).costs_within(make_plan(1.0, 1, 2))


def test_missing_clip_names_its_key() -> None:
    """The joint gradient and a change between two points use the clip of x."""
    counts: dict[Split, int] = {"train": 8, "validation": 8}
    minimax = MinimaxContext(Composite(LinearModel(3, 1), AucObjective(0.5)), counts, 1, Clip("l2"))
    bilevel = CoordinatorContext(HyperCleaning(2, (0, 1, 2), 3), counts, 1, Clip("l2"), Domain())
    for context, term in ((minimax, "grad_x"), (minimax, "joint"), (bilevel, CHANGE)):
        with pytest.raises(InputError, match=r"privacy\.clip\.x: missing"):
            context.check_bounded((term,))
