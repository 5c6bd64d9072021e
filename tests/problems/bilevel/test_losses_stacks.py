"""Agents whose losses are a user's own, several in one call: the bits of an agent alone, whatever stands beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decentral_dp.privacy.clipping import Clip, clipped_row_sums, clipped_sum
from decentral_dp.problems.bilevel.losses import LossProblem, LossRecords, from_losses

torch = pytest.importorskip("torch")

P, Q, AGENTS, RECORDS = 2, 5, 19, 7
CLIP = Clip("l2", 0.5, 0.3, 0.2)
LOWER, UPPER = ("lower_grad_y", "lower_hvp", "lower_jvp"), ("upper_grad_y", "upper_grad_x")


def smooth(x: Any, y: Any, features: Any, label: Any) -> Any:
    return torch.nn.functional.softplus(-label * (features @ y)) * torch.exp(x[0]) + x[1] * y[0]


def inverse(x: Any, y: Any, features: Any, label: Any) -> Any:
    """It raises where a record's features are all zero."""
    matrix = torch.outer(features, features) + (features @ features).sign() * torch.eye(Q, dtype=torch.float64)
    return y @ torch.linalg.inv(matrix) @ y * torch.exp(x[0]) + x[1] * (features @ y - label) ** 2


def problem_of(loss: Any) -> LossProblem:
    return from_losses(loss, loss, p=P, q=Q, n_features=Q)


def numbers(seed: int = 0) -> tuple[Any, ...]:
    """x, y, z and records of all agents; one record overflows."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(AGENTS, RECORDS, Q))
    features[1, 2] = 1e200
    x, y, z = (draw.normal(size=(AGENTS, d)) for d in (P, Q, Q))
    return x, y, z, LossRecords(features, draw.choice([-1.0, 1.0], (AGENTS, RECORDS)))


def asked(problem: LossProblem, given: tuple[Any, ...], rows: Any, wanted: tuple[str, ...]) -> dict[str, np.ndarray]:
    x, y, z, records = given
    some = LossRecords(*(a[rows] for a in records))
    found = problem.stacked_terms(x[rows], y[rows], z[rows], some, CLIP, wanted)._asdict()
    return {name: found[name] for name in wanted}


def calls(problem: LossProblem, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many agents each call has from now on."""
    made: list[int] = []
    whole = LossProblem._rows_of_stack

    def counted(self: LossProblem, names: tuple[str, ...], *given: Any) -> Any:
        made.append(len(given[0]))
        return whole(self, names, *given)

    monkeypatch.setattr(LossProblem, "_rows_of_stack", counted)
    return made


@pytest.mark.parametrize("wanted", [LOWER, UPPER], ids=["lower", "upper"])
@pytest.mark.parametrize("loss", [smooth, inverse])
def test_an_agent_alone_has_the_bits_that_it_has_among_others(
    loss: Any, wanted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, given = problem_of(loss), numbers()
    made = calls(problem, monkeypatch)
    whole = asked(problem, given, np.arange(AGENTS), wanted)
    assert made == [16, 16]
    assert all(np.abs(part).max() > 0.0 for part in whole.values())
    for rows in ([0], [18], [5, 3, 11], list(range(17))):
        for name, part in asked(problem, given, np.array(rows), wanted).items():
            np.testing.assert_array_equal(part, whole[name][rows], err_msg=f"{name} of agents {rows}")
    assert set(made) == {16}


@pytest.mark.parametrize("loss", [smooth, inverse])
def test_a_stack_computes_what_agents_one_by_one_do(loss: Any) -> None:
    problem, (x, y, z, records) = problem_of(loss), numbers()
    whole = asked(problem, (x, y, z, records), np.arange(AGENTS), LOWER)
    for agent in range(AGENTS):
        own = LossRecords(*(a[agent] for a in records))
        alone = problem.terms(x[agent], y[agent], z[agent], own, own, CLIP, LOWER)._asdict()
        for name in LOWER:
            np.testing.assert_allclose(whole[name][agent], alone[name], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("broken", [[(4, 2)], [(4, k) for k in range(RECORDS)], [(a, 0) for a in range(AGENTS)]])
def test_records_that_raise_count_as_zero_and_change_no_bit_of_others(broken: list[tuple[int, int]]) -> None:
    """One record; all records of an agent; one of every agent."""
    problem, (x, y, z, records) = problem_of(inverse), numbers()
    every = np.arange(AGENTS)
    features = records.features.copy()
    for agent, k in broken:
        # Not finite: cut to zero, and raises nowhere.
        features[agent, k] = np.inf
    wanted = asked(problem, (x, y, z, records._replace(features=features)), every, LOWER)
    for agent, k in broken:
        features[agent, k] = 0.0
    with pytest.raises(RuntimeError):
        problem._row_terms(LOWER)(*problem._tensors(x[4], y[4], z[4], np.zeros((1, Q)), np.ones(1)))
    found = asked(problem, (x, y, z, records._replace(features=features)), every, LOWER)
    for name in LOWER:
        np.testing.assert_array_equal(found[name], wanted[name])


def test_all_agents_with_records_that_raise_contribute_nothing() -> None:
    problem, (x, y, z, records) = problem_of(inverse), numbers()
    nothing = records._replace(features=np.zeros_like(records.features))
    for part in asked(problem, (x, y, z, nothing), np.arange(AGENTS), LOWER).values():
        np.testing.assert_array_equal(part, np.zeros_like(part))


@pytest.mark.parametrize("wrong", ["place", "neighbour"])
def test_a_function_that_rounds_by_place_or_neighbour_is_called_for_one_agent(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, given = problem_of(smooth), numbers()
    sound = LossProblem._stack_oracle

    def moved(self: LossProblem, names: tuple[str, ...]) -> Any:
        def rows(*some: Any) -> dict[str, Any]:
            out = sound(self, names)(*some)
            by = torch.arange(len(some[0])) if wrong == "place" else some[1].roll(1, 0)[:, 0] - some[1][0, 0]
            return {name: part * (1.0 + 2.0**-50 * by.double())[:, None, None] for name, part in out.items()}

        return rows

    monkeypatch.setattr(LossProblem, "_stack_oracle", moved)
    made = calls(problem, monkeypatch)
    asked(problem, given, np.arange(AGENTS), LOWER)
    assert not made


def test_agents_of_many_records_or_of_none_are_not_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(smooth)
    made = calls(problem, monkeypatch)
    few = LossRecords(np.ones((2, 0, Q)), np.ones((2, 0)))
    many = LossRecords(np.ones((2, 900, Q)), np.ones((2, 900)))
    x, y = np.ones((2, P)), np.ones((2, Q))
    for records in (few, many):
        found = problem.stacked_terms(x, y, y, records, CLIP, LOWER)
        assert found.lower_grad_y is not None
        assert np.isfinite(found.lower_grad_y).all()
    assert not made
    assert problem._stack_size(LOWER, 100) == 8


def test_what_was_found_of_stacks_stays_in_its_process() -> None:
    problem = problem_of(smooth)
    assert problem._stack_size(LOWER, RECORDS) == 16
    assert problem._stacks
    assert problem.__getstate__()["_stacks"] == {}
    assert replace(problem, name="other")._stacks == {}


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_clipped_sums_of_many_agents_are_those_of_each(norm: Any) -> None:
    draw = np.random.default_rng(2)
    rows = draw.normal(size=(4, 9, 3)) * 10.0 ** draw.integers(-3, 3, (4, 9, 1))
    rows[1, 2, 0], rows[2, 3, 1] = np.nan, np.inf
    together = clipped_row_sums(rows, 0.7, norm)
    for agent in range(4):
        np.testing.assert_array_equal(clipped_sum(rows[agent], 0.7, norm), together[agent])
    length = {"l1": lambda v: np.abs(v).sum(), "l2": lambda v: np.sqrt((v * v).sum())}[norm]
    by_hand = sum(v * min(1.0, 0.7 / length(v)) for v in rows[0])
    np.testing.assert_allclose(together[0], by_hand, rtol=1e-13)
