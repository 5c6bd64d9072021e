"""Batches: what their queries return, against loops over records, and what they state about themselves."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from decentral_dp.bounded import MIXED, Bounded
from decentral_dp.data import Sampling
from decentral_dp.participants import LocalDataset
from decentral_dp.privacy.clipping import RECORD, Clip, Unit
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.privacy.recorder import Recorder
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter
from decentral_dp.problems.protocol import Problem
from tests.support.replay import CROSSED, CROSSED_PENALTY, Crossed, crossed

D, COUNTS = 2, {"train": (3, 5), "validation": (4, 2)}
ALL = Sampling("full")
FRESH = Sampling("fixed_batch", batch=2)
CLIP = {"x": 0.7, "y": 0.5, "z": 0.3}
VECTORS = ("lower_grad_y", "lower_hvp", "lower_jvp", "upper_grad_y", "upper_grad_x")
MATRICES = ("lower_hessian", "lower_jacobian", "lower_hessian_product")


@functools.cache
def from_crossed_losses() -> Problem:
    return crossed(D)


def rows(seed: int = 1, size: float = 1.0) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    rng = np.random.default_rng(seed)
    return {k: [(size * rng.normal(size=(n, D)), rng.choice([-1.0, 1.0], n)) for n in ns] for k, ns in COUNTS.items()}


def dataset(
    records: Any,
    norm: Any = "l1",
    sampling: Sampling = ALL,
    problem: Any = None,
    clip: Any = None,
    unit: Unit = RECORD,
) -> LocalDataset:
    problem = problem or from_crossed_losses()
    prepared: Any = {k: [problem.prepare(a, b, norm) for a, b in pairs] for k, pairs in records.items()}
    batches = Streams(seeded_root(2, b"batch"), "batch", [0, 1])
    clip = clip or Clip(norm, **CLIP)
    return LocalDataset(np.arange(2), problem, prepared, np.array([0.5, 0.5]), sampling, clip, batches, unit=unit)


def point(seed: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(2, D)), "y": rng.normal(size=(2, D)), "z": rng.normal(size=(2, D))}


def ask(batch: Any, name: str, at: dict[str, np.ndarray], matrix: np.ndarray | None = None) -> Any:
    """Any query by its name; Z is the given matrix, or z as one column after another."""
    if name in ("lower_hvp", "lower_jvp"):
        return getattr(batch, name)(at["x"], at["y"], at["z"])
    if name == "lower_hessian_product":
        whole = np.repeat(at["z"], D, axis=1) if matrix is None else matrix
        return batch.lower_hessian_product(at["x"], at["y"], whole)
    return getattr(batch, name)(at["x"], at["y"])


def whole(name: str, x: np.ndarray, y: np.ndarray, z: np.ndarray, a: np.ndarray, b: float) -> np.ndarray:
    """Derive one record's matrix: ∇²_yy l = ∇²_xy l = b a aᵀ."""
    return b * np.outer(a, a) @ (np.repeat(z[:, None], D, axis=1) if name.endswith("product") else np.eye(D))


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("name", [*VECTORS, *MATRICES])
def test_a_query_is_the_clipped_mean_and_the_regulariser(name: str, norm: Any) -> None:
    records, at = rows(size=2.0), point()
    kind = "train" if name.startswith("lower") else "validation"
    channel = {"lower_grad_y": "y", "upper_grad_x": "x", "lower_jvp": "x", "lower_jacobian": "x"}.get(name, "z")
    matrix = np.repeat(at["z"], D, axis=1)
    got = ask(dataset(records, norm).batch(0), name, at, matrix)
    assert isinstance(got, Bounded)
    for i in range(2):
        x, y, z = (at[c][i] for c in "xyz")
        total = np.zeros(got.private[i].size)
        for a, b in zip(*records[kind][i], strict=True):
            one = (whole(name, x, y, z, a, b) if name in MATRICES else CROSSED[name](x, y, z, a, b)).ravel()
            size = np.linalg.norm(one, 1 if norm == "l1" else 2)
            total += one * min(1.0, CLIP[channel] / size)
        np.testing.assert_allclose(got.private[i], total / COUNTS[kind][i], atol=1e-12)
        exact = {
            "lower_hessian": np.eye(D),
            "lower_jacobian": 0.3 * np.eye(D),
            "lower_hessian_product": np.repeat(z[:, None], D, axis=1),
        }.get(name)
        if exact is None:
            exact = CROSSED_PENALTY[name](x, y, z) if name in CROSSED_PENALTY else np.zeros(D)
        np.testing.assert_allclose(got.public[i], exact.ravel(), atol=1e-12)
        # One record moves it by at most 2C/N, and the slack of float64 summation is small.
        stated = got.sensitivities[kind].sensitivity[i]  # type: ignore[index]
        assert stated == pytest.approx(2 * CLIP[channel] / COUNTS[kind][i], rel=1e-10)
        assert stated > 2 * CLIP[channel] / COUNTS[kind][i]
    assert set(got.sensitivities) == {kind}


@pytest.mark.parametrize("name", [*VECTORS, *MATRICES])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_no_replaced_record_moves_a_query_further_than_it_states(name: str, norm: Any) -> None:
    kind = "train" if name.startswith("lower") else "validation"
    best = 0.0
    for seed in range(12):
        at, records = point(seed), rows(seed, size=10.0)
        other = {k: [(a.copy(), b.copy()) for a, b in pairs] for k, pairs in records.items()}
        if seed % 2:
            other[kind][0][1][-1] *= -1.0
        else:
            other[kind][0][0][-1] = np.random.default_rng([seed, 9]).normal(size=D) * 100
        ours, theirs = (ask(dataset(r, norm).batch(0), name, at) for r in (records, other))
        sensitivity = np.linalg.norm((ours.private - theirs.private)[0], 1 if norm == "l1" else 2)
        stated = ours.sensitivities[kind].sensitivity[0]
        assert sensitivity <= stated
        assert np.array_equal(ours.public, theirs.public)
        assert np.array_equal(ours.private[1], theirs.private[1])
        best = max(best, sensitivity / stated)
    assert best > 0.999


def test_what_touches_no_record_is_public() -> None:
    problem = LogisticHyperparameter(D)
    records, at = rows(), point()
    batch = dataset(records, problem=problem).batch(0)
    for name in ("lower_jvp", "lower_jacobian", "upper_grad_x"):
        assert isinstance(ask(batch, name, at), np.ndarray)
    np.testing.assert_allclose(batch.lower_jvp(**renamed(at)), np.exp(at["x"]) * at["y"] * at["z"], rtol=1e-14)
    diagonal = np.stack([np.diag(v).ravel() for v in np.exp(at["x"]) * at["y"]])
    np.testing.assert_allclose(batch.lower_jacobian(at["x"], at["y"]), diagonal, rtol=1e-14)
    assert (batch.upper_grad_x(at["x"], at["y"]) == 0.0).all()
    assert isinstance(batch.lower_grad_y(at["x"], at["y"]), Bounded)


def renamed(at: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"x": at["x"], "y": at["y"], "along": at["z"]}


@pytest.mark.parametrize("name", [*VECTORS, *MATRICES])
def test_at_a_private_point_nothing_is_proven(name: str) -> None:
    one, at = dataset(rows()), point()
    public = ask(one.batch(0), name, at)
    width = at["z"] if name != "lower_hessian_product" else np.repeat(at["z"], D, axis=1)
    inputs = {"x": at["x"], "y": at["y"], "z": width}
    reads = "xyz" if name in ("lower_hvp", "lower_jvp", "lower_hessian_product") else "xy"
    for hidden in reads:
        mixed = [one.constant_state(v) if c == hidden else v for c, v in inputs.items() if c in reads]
        got = getattr(one.batch(0), name)(*mixed)
        assert isinstance(got, Bounded)
        assert (got.public == 0.0).all()
        np.testing.assert_allclose(got.value, public.value, atol=1e-14)
        assert all(np.isinf(s.sensitivity).all() for s in got.sensitivities.values())
        assert set(got.sensitivities) == {"train", "validation"}
    # Even where the term reads no record itself: its argument has met some.
    free = dataset(rows(), problem=LogisticHyperparameter(D))
    got = free.batch(0).lower_jvp(at["x"], free.constant_state(at["y"]), at["z"])
    assert isinstance(got, Bounded)
    assert np.isinf(got.sensitivities["train"].sensitivity).all()


def test_a_fresh_batch_is_drawn_for_every_round_and_draw_and_kept_ones_are_not_amplified() -> None:
    records, at = rows(), point()
    one = dataset(records, sampling=FRESH, clip=Clip("l1"), problem=Crossed(D))
    met: dict[int, np.ndarray] = {}
    values = set()
    for t in range(8):
        for draw in range(4):
            fresh, kept = (ask(one.batch(t, draw, kept=k), "lower_hvp", at) for k in (False, True))
            again = ask(one.batch(t, draw), "lower_hvp", at)
            assert np.array_equal(fresh.private, again.private)
            assert np.array_equal(fresh.private, kept.private)
            assert fresh.sensitivities["train"].batch not in met
            met[fresh.sensitivities["train"].batch] = fresh.private
            values.add(fresh.private[1].tobytes())
            np.testing.assert_array_equal(fresh.sensitivities["train"].rate, [2 / 3, 2 / 5])
            assert kept.sensitivities["train"].batch == MIXED
            assert (kept.sensitivities["train"].rate == 1.0).all()
            other = ask(one.batch(t, draw), "upper_grad_x", at)
            np.testing.assert_array_equal(other.sensitivities["validation"].rate, [2 / 4, 1.0])
    assert MIXED not in met
    # Ten pairs of five records, all of them met.
    assert len(values) == 10


@pytest.mark.parametrize("place", [(0.5, 0), (1, 0.5), (-1, 0), (0, -1), (0, 2**16)], ids=str)
def test_rounds_and_draws_without_a_key_are_refused(place: Any) -> None:
    """One minibatch under two numbers would be amplified as two, and two under one number as one."""
    one = dataset(rows(), sampling=FRESH)
    with pytest.raises((TypeError, ValueError), match=r"^batch: out of range|^'float' object"):
        one.batch(*place)
    assert one.batch(np.int64(1), np.int64(2**16 - 1))._draw_number == 2**17 - 1


@pytest.mark.parametrize("private_first", [True, False])
def test_a_minibatch_read_at_a_private_point_amplifies_no_other_release(private_first: bool) -> None:
    one, at = dataset(rows(), sampling=FRESH), point()
    private: Any = one.oracle(0, at["x"], one.constant_state(at["y"]), at["z"]).lower_grad_y
    values = [("u", private), ("y", ask(one.batch(0), "lower_grad_y", at))]
    assert np.array_equal(private.value, values[1][1].value)
    recorder = Recorder(2)
    (name, first), (other, second) = values if private_first else values[::-1]
    recorder.charge(1, name, "laplace", np.ones(1), first)
    with pytest.raises(ValueError, match=r"may remember$|accounted as forgotten"):
        recorder.charge(2, other, "laplace", np.ones(1), second)


@pytest.mark.parametrize("unit", [Unit(), Unit(2), Unit(1, True)], ids=str)
@pytest.mark.parametrize("sampling", [ALL, FRESH, Sampling("poisson", share=0.5)], ids=lambda s: s.kind)
def test_a_private_point_without_records_has_the_sensitivity_of_a_kept_batch(sampling: Sampling, unit: Unit) -> None:
    one, at = dataset(rows(), sampling=sampling, unit=unit), point()
    private = one.oracle(0, at["x"], one.constant_state(at["y"]), at["z"])
    for term, public in one.batch(0, kept=True).directions(**at)._asdict().items():
        (split,) = public.sensitivities
        found, expected = (value.sensitivities[split] for value in (getattr(private, term), public))
        np.testing.assert_array_equal(found.sensitivity, expected.sensitivity)
        np.testing.assert_array_equal(found.rate, np.ones(2))
        assert found.batch == expected.batch


def test_all_queries_of_a_batch_read_the_same_records() -> None:
    """∇²_yy l·z of a batch is its matrix times z, which draws apart would not be."""
    one = dataset(rows(), sampling=FRESH, clip=Clip("l1"))
    for t in range(6):
        at, batch = point(t), one.batch(t, 3)
        matrix = ask(batch, "lower_hessian", at).private.reshape(2, D, D)
        product = np.einsum("bij,bj->bi", matrix, at["z"])
        np.testing.assert_allclose(ask(batch, "lower_hvp", at).private, product, atol=1e-12)


def test_two_fresh_batches_in_one_value_are_not_amplified() -> None:
    one, at = dataset(rows(), sampling=FRESH), point()
    first, second = (ask(one.batch(0, k), "lower_hvp", at) for k in (0, 1))
    both = (first + second).sensitivities["train"]
    assert both.batch == MIXED
    assert (both.rate == 1.0).all()
    assert ((first + first).sensitivities["train"].rate < 1.0).all()


def test_a_state_that_is_kept_is_charged_for_its_rounding() -> None:
    """1 + 4.04(N + 4)2⁻⁵³ for every round that keeps it, N each agent's own count."""
    one, at = dataset(rows()), point()
    value = ask(one.batch(0), "lower_hvp", at)
    kept = one.remembered_state(0, one.remembered_state(0, value))
    assert isinstance(kept, Bounded)
    for split, before in value.sensitivities.items():
        growth = (1.0 + 4.04 * (np.array(COUNTS[split]) + 4.0) * 2.0**-53) ** 2
        grown = kept.sensitivities[split].sensitivity / before.sensitivity
        np.testing.assert_allclose(grown, growth, rtol=1e-15)
        assert (grown > 1.0 + 4.0 * 2.0**-52).all()
    assert one.remembered_state(0, at["x"]) is at["x"]


def test_contributions_that_are_not_finite_count_as_zero() -> None:
    """At a point that overflows no record contributes to any term, and the sensitivity is the same."""
    records, at = rows(), point()
    for name in ("lower_grad_y", "lower_hvp", "lower_jvp", "upper_grad_y", "upper_grad_x"):
        kind = "train" if name.startswith("lower") else "validation"
        far = {c: np.where(np.arange(2)[:, None] == 0, np.nan, v) for c, v in at.items()}
        with np.errstate(all="ignore"):
            got, want = ask(dataset(records).batch(0), name, far), ask(dataset(records).batch(0), name, at)
        assert (got.private[0] == 0.0).all()
        np.testing.assert_array_equal(got.private[1], want.private[1])
        np.testing.assert_array_equal(got.sensitivities[kind].sensitivity, want.sensitivities[kind].sensitivity)


@pytest.mark.parametrize("sampling", [ALL, FRESH, Sampling("streaming", batch=1)])
@pytest.mark.parametrize("stacked", [True, False])
def test_what_is_kept_from_round_to_round_is_what_each_round_finds_anew(sampling: Sampling, stacked: bool) -> None:
    """Numbers of records, groups and sensitivities: as records come in, when all are there, and at an earlier round."""
    problem = LogisticHyperparameter(D) if stacked else from_crossed_losses()
    kept, at = dataset(rows(), sampling=sampling, problem=problem), point()
    for t in (0, 1, 2, 7, 8, 1):
        found, anew = (d.oracle(t, **at) for d in (kept, dataset(rows(), sampling=sampling, problem=problem)))
        for name, value, expected in zip(found._fields, found, anew, strict=True):
            if not isinstance(expected, Bounded):
                np.testing.assert_array_equal(value, expected)
                continue
            np.testing.assert_array_equal(value.value, expected.value, err_msg=name)
            assert value.sensitivities.keys() == expected.sensitivities.keys()
            for kind, moved in expected.sensitivities.items():
                same = value.sensitivities[kind]
                np.testing.assert_array_equal(same.sensitivity, moved.sensitivity)
                np.testing.assert_array_equal(same.rate, moved.rate)
                assert same.batch == moved.batch
