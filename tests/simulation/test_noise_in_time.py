"""Noise that is correlated over rounds: distribution, privacy cost, and equal bits on every engine."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.special import binom

import decentral_dp
from decentral_dp import InputError
from decentral_dp.auditing.losses import compute_movement, log_ratio
from decentral_dp.auditing.neighbours import find_neighbours
from decentral_dp.auditing.transcripts import observe, replay
from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.participants import LocalDataset
from decentral_dp.privacy.randomness import Streams
from decentral_dp.privacy.releasers import NoiseSchedule, ScheduledReleaser
from decentral_dp.privacy.time_factors import (
    TimeFactor,
    banded_square_root,
    carried_noise,
    charged_sensitivity,
    empty_past,
    factor_of,
    next_past,
)
from tests.support.training import training

BANDED = 3


def scenario(
    over_rounds: Any = BANDED,
    batch: int | None = 30,
    rounds: int = 12,
    privacy: dict[str, Any] | None = None,
    **run: Any,
) -> dict[str, Any]:
    tables = {
        "problem": {"sampling": None if batch is None else {"kind": "cyclic", "batch_size": batch}},
        "algorithm": {"rounds": rounds, "momentum": 0.0},
        "privacy": {"correlation": {"over_rounds": over_rounds}, **(privacy or {})},
        "run": {"evaluate_every": 4, **run},
    }
    return training(**tables)


ACROSS = {"correlation": {"over_rounds": BANDED, "between_agents": "pairwise", "ratio": 4.0}, "colluders": 1}
CASES: dict[str, dict[str, Any]] = {
    "banded_square_root": scenario("banded_square_root"),
    "bands": scenario(4),
    "every record": scenario(BANDED, batch=None),
    "own": scenario(np.eye(12) - 0.4 * np.eye(12, k=-1) + 0.2 * np.eye(12, k=-3)),
    "across as well": scenario(privacy=ACROSS),
}


@pytest.mark.parametrize("case", CASES)
def test_blocks_do_not_move_a_bit_and_all_meet_the_target(case: str) -> None:
    job = CASES[case]
    whole = decentral_dp.run(job)
    parts = decentral_dp.run({**job, "run": {**job["run"], "blocks": 3}})
    assert np.array_equal(whole.released["y"], parts.released["y"])
    assert 3.99 < whole.result.privacy.epsilon_max <= 4.0


# C⁻¹ ------------------------------------------------------------------------------------------------------------------

T = 10
SQUARE_ROOT = binom(2 * np.arange(T), np.arange(T)) / 4.0 ** np.arange(T)


def lower(column: Any) -> Any:
    return np.tril(toeplitz(np.pad(column, (0, T - len(column)))))


OWN = np.eye(T) + np.tril(np.random.default_rng(1).uniform(-0.5, 0.5, (T, T)), -1)
# Factor, its C by other formulas.
FACTORS: dict[str, tuple[TimeFactor, Any]] = {
    "banded_square_root": (banded_square_root(T, 4), lower(SQUARE_ROOT[:4])),
    "own": (factor_of(OWN), np.linalg.inv(OWN)),
}


def noises(factor: TimeFactor | None, query: float = 0.0, from_index: int = 1) -> Any:
    """(T, b, d): what is added to the value `query` in each round; grid."""
    agents, d = 2, 50
    one = Sensitivity(np.ones(agents), np.ones(agents), None)
    schedule = NoiseSchedule(np.full(agents, 0.3), np.zeros(agents))
    releaser = ScheduledReleaser("gaussian", {"y": schedule}, Streams(b"r", "noise", [0, 1]), factor=factor)
    value = Bounded(np.zeros((agents, d)), np.full((agents, d), query), {"train": one}, "l2")
    out = [releaser.release(index, {"y": value})["y"] - query for index in range(from_index, T + 1)]
    return np.array(out), float(releaser.mechanism.grid(0.3, d))  # type: ignore[attr-defined]  # a noise mechanism


@pytest.mark.parametrize("kind", FACTORS)
def test_what_is_added_is_the_inverse_factor_of_fresh_noise(kind: str) -> None:
    """The noise is C⁻¹ of the same draws, except for the rounding of each message to the grid."""
    factor, matrix = FACTORS[kind]
    (fresh, grid), (added, _) = noises(None), noises(factor)
    wanted = np.einsum("ts,sbd->tbd", np.linalg.inv(matrix), fresh)
    assert np.abs(added - wanted).max() <= 0.51 * grid
    assert np.abs(added - fresh)[1:].max() > 1e3 * grid
    # The noise does not depend on the value.
    elsewhere, _ = noises(factor, query=0.123456)
    assert np.abs(elsewhere - wanted).max() <= 0.51 * grid


@pytest.mark.parametrize("kind", FACTORS)
def test_a_releaser_that_starts_late_draws_what_was_before(kind: str) -> None:
    factor, _ = FACTORS[kind]
    (whole, _), (late, _) = noises(factor), noises(factor, from_index=6)
    assert np.array_equal(whole[5:], late)


# Privacy cost ---------------------------------------------------------------------------------------------------------


def reads(job: Any, agent: int) -> Any:
    """(n, T) which rounds read each record of an agent, seen by what replacing it changes."""
    (node,) = job.nodes([job.n_agents])
    found = []
    point = np.zeros((job.n_agents, job.problem.p)), np.full((job.n_agents, job.problem.q), 0.1)
    before = [np.asarray(node.dataset.batch(t).lower_grad_y(*point).private[agent]) for t in range(job.rounds)]
    mine = job.records["train"][agent]
    for k in range(len(mine.labels if hasattr(mine, "labels") else mine[0])):
        changed = type(mine)(*(np.concatenate([part[:k], -2.0 * part[k : k + 1], part[k + 1 :]]) for part in mine))
        parts = tuple(changed if i == agent else part for i, part in enumerate(job.records["train"]))
        (other,) = replace(job, records={**job.records, "train": parts}).nodes([job.n_agents])
        after = [np.asarray(other.dataset.batch(t).lower_grad_y(*point).private[agent]) for t in range(job.rounds)]
        found.append([not np.array_equal(a, b) for a, b in zip(before, after, strict=True)])
    return np.array(found)


def long_inverse(kind: str, factor: TimeFactor) -> Any:
    """Return C⁻¹ of the float64 coefficients, in long double."""
    if kind == "own":
        return OWN.astype(np.longdouble)
    column = np.zeros(T, dtype=np.longdouble)
    column[0] = 1
    series = np.zeros(T, dtype=np.longdouble)
    series[1 : 1 + factor.noise_weights.size] = factor.noise_weights
    for k in range(1, T):
        column[k] = -sum(series[j] * column[k - j] for j in range(1, k + 1))
    return np.tril(toeplitz(column))


MATRICES = {
    "banded_square_root": lambda r: lower_of(SQUARE_ROOT[:3], r),
    # Every round has other coefficients.
    "own": lambda r: np.eye(r) + np.tril(np.random.default_rng(2).uniform(0.0, 1.5, (r, r)), -1),
}


def lower_of(column: Any, rounds: int) -> Any:
    return np.tril(toeplitz(np.pad(column, (0, rounds - len(column)))))


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("batch", [30, 47, None])
def test_no_record_and_no_signs_show_more_than_is_charged(kind: str, batch: int | None) -> None:
    """Oracle: the recorded reads, contributions of every sign, and every last round."""
    rounds = 8
    matrix, agent = MATRICES[kind](rounds), 1
    factor = np.tril(np.linalg.inv(matrix), -1) + np.eye(rounds) if kind == "own" else BANDED
    job = decentral_dp.build(scenario(factor, batch, rounds)).simulation()
    n = int(job.counts["train"][agent])
    size = n if batch is None else batch
    sigma, moved = float(job.noise["y"].scale[agent]), 0.5 * 2.0 * 0.1 / size
    (line,) = job.ledger.charged_channels
    column = line.group[agent]
    spent = np.cumsum(np.square(line.sensitivity["train"][:, column] / line.scale[:, column]))
    found = reads(job, agent)
    assert found.any(axis=1).all()
    assert (found.sum(axis=0) == size).all()
    shown = np.zeros(rounds)
    for pattern in np.unique(found, axis=0):
        signs = np.array(list(product((-1.0, 1.0), repeat=int(pattern.sum()))))
        at = np.zeros((len(signs), rounds))
        at[:, pattern] = signs
        shown = np.maximum(shown, np.cumsum(np.square(at @ matrix.T * moved / sigma), axis=1).max(axis=0))
    assert (shown <= spent).all()
    # The ledger also has the cost of the grid, and of batches that do not divide n. For a custom factor the rounds that
    # read a record are those of the worst agent.
    assert shown[-1] >= (0.98 if size == n else 0.9 if kind == "own" else 0.7) * spent[-1]


def test_two_records_together_may_be_read_in_any_rounds() -> None:
    job = scenario(np.eye(6) - np.eye(6, k=-1), rounds=6, privacy={"unit": 2})
    sizes = decentral_dp.plan(job).ledger.query("channel == 'y' and agent == 0")["sensitivity"].to_numpy()
    assert sizes / sizes[0] == pytest.approx(np.arange(1.0, 7.0), rel=1e-2)


@pytest.mark.parametrize("kind", FACTORS)
def test_the_grid_is_charged_as_often_as_it_is_rounded_to(kind: str) -> None:
    """Queries that do not differ may be rounded apart in every coordinate of every round, always to the same side."""
    factor, matrix = FACTORS[kind]
    nothing, grid, d = np.zeros((T, 1)), np.full((T, 1), 0.5), 9
    # Also in rounds that do not read the record.
    seldom = factor if kind == "own" else banded_square_root(T, 4, apart=4)
    rounded = np.abs(matrix).sum(axis=1) * 3.0 * 0.5
    for one in (factor, seldom):
        cost = charged_sensitivity(one, np.arange(1, T + 1), nothing, grid, d) + 3.0 * grid
        assert (cost[:, 0] >= rounded).all()
        assert cost[:, 0] == pytest.approx(rounded, rel=5e-3)


@pytest.mark.parametrize("kind", FACTORS)
def test_float64_goes_on_as_finely_as_is_stated(kind: str) -> None:
    """Draws as large as they get, of the worst signs, against long doubles."""
    factor, matrix = FACTORS[kind]
    inverse = np.linalg.inv(matrix)
    draws = np.random.default_rng(4).integers(-(2**40), 2**40, (T, 300)).astype(np.float64)
    draws[:, 0] = 2.0**40 * np.sign(inverse[-1])
    past, wrong, largest = empty_past(factor, (300,)), 0.0, 0.0
    for t, draw in enumerate(draws):
        # C⁻¹ by forward substitution, in 64 bits of mantissa.
        exact = draws[t].astype(np.longdouble) * 0
        for s in range(t):
            exact = exact + np.longdouble(long_inverse(kind, factor)[t, s]) * draws[s]
        found = carried_noise(factor, past)
        wrong = max(wrong, float(np.abs(found - exact).max()))
        largest = max(largest, float(np.abs(found + draw).max()))
        past = next_past(factor, past, draw)
    assert wrong <= factor.error * 2.0**40
    assert 2.0**40 <= largest <= factor.growth * 2.0**40


@pytest.mark.parametrize("case", ["banded_square_root", "own", "every record", "across as well"])
def test_scores_of_an_audit_have_the_law_of_what_is_priced(case: str) -> None:
    job = decentral_dp.build(CASES[case]).simulation()
    neighbours = find_neighbours(job, b"search")
    (line,) = job.ledger.charged_channels
    column = line.group[neighbours.victim]
    priced = float(np.linalg.norm(line.sensitivity["train"][:, column] / line.scale[:, column]))
    apart = []
    for k in range(25):
        seen = observe(neighbours.first.with_root(bytes([k]) * 32), neighbours.victim)
        first, second = (replay(side, neighbours.victim, seen) for side in (neighbours.first, neighbours.second))
        mu = float(np.linalg.norm(compute_movement(seen, first, second).gaussian))
        assert 0.0 < mu <= priced
        apart.append((log_ratio(seen, first, second) - 0.5 * mu**2) / mu)
        residuals = seen.residuals["gaussian"]
        assert residuals.std() == pytest.approx(1.0, abs=5.0 / np.sqrt(residuals.size))
    assert abs(np.mean(apart)) < 4.0 / np.sqrt(25)
    assert 0.5 < np.std(apart) < 1.6


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [30, None])
def test_a_factor_of_ones_own(batch: int | None, tmp_path: Path) -> None:
    run = decentral_dp.run(scenario(OWN, batch, rounds=T), out=tmp_path / "run")
    there = decentral_dp.run(scenario(batch=batch, rounds=T), set={"privacy.correlation.over_rounds": OWN})
    for again in (decentral_dp.run(tmp_path / "run" / "scenario.toml"), there):
        assert np.array_equal(again.released["y"], run.released["y"])
        assert again.ledger.equals(run.ledger)
    if batch is None:
        sizes = run.ledger.query("channel == 'y' and agent == 0")["sensitivity"].to_numpy()
        assert sizes / sizes[0] == pytest.approx(np.abs(np.linalg.inv(OWN)).sum(axis=1), rel=1e-2)


OTHERS: dict[str, tuple[str, Any]] = {
    "rounds": ("got 10 lines", OWN),
    "not causal": ("ones on its diagonal", np.ones((11, 11))),
    "no numbers": ("expected a number", [["a"] * 11] * 11),
}


@pytest.mark.parametrize("why", OTHERS)
def test_what_is_no_factor_of_ones_own_is_refused(why: str) -> None:
    said, given = OTHERS[why]
    with pytest.raises(InputError, match=said):
        decentral_dp.plan(scenario(given, rounds=T + 1))


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "steps": ("changes by round", {"algorithm.learning_rate": {"scale": 0.5, "decay": 0.5}}),
    "noise": ("changes by round", {"privacy.y": {"decay": 0.5}}),
    "nothing": ("expected between_agents", {"privacy.correlation": {}}),
    "a ratio alone": (
        "ratio needs between_agents",
        {"privacy.correlation": {"over_rounds": "banded_square_root", "ratio": 2.0}},
    ),
    "no factor": ("banded_square_root", {"privacy.correlation": {"over_rounds": "antipgd"}}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_the_proof_does_not_cover_is_refused(why: str) -> None:
    said, changed = REFUSED[why]
    with pytest.raises(InputError, match=said):
        decentral_dp.plan(scenario(), set=changed)


ONE_MEAN = ("dp_dsgd", "gradient_tracking", "exact_diffusion", "choco", "push_sum", "ldp_single_level")


@pytest.mark.parametrize("kind", ONE_MEAN)
def test_a_release_reads_the_turn_of_its_round_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The privacy cost assumes that a record is in no other release until its next batch."""
    seen: list[tuple[str, int]] = []
    batch_of, release = LocalDataset._batch_of, ScheduledReleaser.release

    def read(self: Any, t: int, *more: Any) -> Any:
        seen.append(("read", t))
        return batch_of(self, t, *more)

    def sent(self: Any, index: int, *more: Any) -> Any:
        seen.append(("sent", index))
        return release(self, index, *more)

    monkeypatch.setattr(LocalDataset, "_batch_of", read)
    monkeypatch.setattr(ScheduledReleaser, "release", sent)
    job = scenario("banded_square_root", rounds=5)
    job["algorithm"] = {"kind": kind, "rounds": 5, "learning_rate": {"scale": 0.5}}
    if kind == "choco":
        job["topology"]["compression"] = {"kind": "sign"}
    run = decentral_dp.run(job)
    assert run.result.privacy.epsilon_max <= 4.0
    of_round = {t: [index for index, (what, at) in enumerate(seen) if (what, at) == ("sent", t)] for t in range(6)}
    for place, (what, t) in enumerate(seen):
        if what == "read":
            assert of_round[t][0] < place < of_round[t + 1][0]
