"""Search for the largest movement of a minimax coordinator's answers by one record, compared with the sensitivity.

Agents and coordinator are the real ones, the points are forced. One record is replaced by huge, tiny, empty and
non-finite ones, by such as nearly cancel, and by a mirrored one; the farthest pair is compared with the charge.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest

from decentral_dp.bounded import Array
from decentral_dp.central.clients import MinimaxClientBlock
from decentral_dp.central.context import MinimaxContext
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.build import ModelTable
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.problems import SOLVED, ProblemFacts

_D, _N, _L = 4, 5, 3
# Name of an agent's draws.
_TRAIN = tag("train")
_MLP = ModelTable(kind="mlp", hidden=[6])


class Case(NamedTuple):
    """kind, options: of the problem. terms: that records are asked for. classes: 0 for numbers."""

    kind: str
    options: dict[str, Any]
    terms: tuple[str, ...]
    classes: int = 2


CASES = {
    "auc": Case("auc_maximisation", {"positive_share": 0.1}, ("grad_x", "grad_y", "dual", "positive", "joint")),
    "auc_mlp": Case("auc_maximisation", {"positive_share": 0.7, "model": _MLP}, ("grad_x", "grad_y", "joint")),
    "chi2": Case("dro", {"divergence": "chi2", "strength": 0.5, "cap": 3.0}, ("grad_x", "grad_y", "joint")),
    "chi2_mlp": Case(
        "dro",
        {"divergence": "chi2", "strength": 0.5, "cap": 3.0, "model": _MLP},
        ("grad_x", "grad_y"),
        3,
    ),
    "numbers": Case("dro", {"divergence": "kl", "strength": 0.5, "cap": 3.0}, ("grad_x", "grad_y", "joint"), 0),
    "kl": Case("kl_dro", {"strength": 0.5, "radius": 0.3, "cap": 3.0}, ("inner", "inner_x", "inner_y")),
    "kl_mlp": Case("kl_dro", {"strength": 0.5, "radius": 0.3, "cap": 3.0, "model": _MLP}, ("inner", "inner_x")),
    "groups": Case(
        "group_dro",
        {"group_shares": [0.6, 0.3, 0.1], "strength": 0.5, "cap": 3.0},
        ("grad_x", "grad_y", "dual", "joint"),
        3,
    ),
    "mspbe": Case("mspbe", {"discount": 0.9}, ("grad_x", "grad_y")),
    "mspbe_mlp": Case("mspbe", {"discount": 0.9, "model": _MLP}, ("grad_x", "grad_y")),
    "wgan": Case("wgan", {"generator": [5], "latent": 2, "model": _MLP}, ("grad_y",)),
}
TERMS = [(name, term) for name, case in CASES.items() for term in case.terms]


class Setting(NamedTuple):
    """base: the records of one agent. others: what its first record is replaced by, one record each."""

    problem: Any
    context: MinimaxContext
    base: Any
    others: list[Any]


def setting(name: str, clip: float = 0.8) -> Setting:
    case, rng = CASES[name], np.random.default_rng(7)
    played = (_L, 2) if case.kind == "mspbe" else None
    width = (_L + 1) * 2 + _L + 1 if played else _D
    limits = {"x": clip, "y": clip}
    facts = ProblemFacts(width, case.classes, l2=2.0, trajectory=played, clip=limits)
    problem = SOLVED["minimax"][case.kind].build(case.options, facts)
    context = MinimaxContext(problem, {"train": _N, "validation": 0}, 1, Clip("l2", **limits))
    rows = [rng.normal(size=width) * size for size in (1.0, 1.0, 1.0, 30.0, 1e-3, 1e-170, 1e150, 1e300)]
    rows += [-rows[0], np.zeros(width), np.full(width, np.inf), np.full(width, np.nan), np.r_[np.nan, rows[0][1:]]]
    cancelling = rng.normal(size=width)
    cancelling[:2] = 1e16, -1e16
    rows += [cancelling, -cancelling, np.r_[1e-5, 1e20, np.zeros(width - 2)], np.r_[1e200, np.zeros(width - 1)]]
    # Mapped from classes, 4.0 would be out of bounds, which the data refuse; numbers may be anything.
    labels = [float(k) for k in range(case.classes)] or [0.0, -1e3, 1e3, 1e300]
    if played:
        labels = [1.0, 2.0, float(_L)]
        rows = [np.r_[row[:-1], float(k % 2)] for k, row in enumerate(rows)]
    pairs = [(row, label) for row in rows for label in labels]
    features, told = np.array([row for row, _ in pairs]), np.array([label for _, label in pairs])
    everyone = problem.prepare(features, told, "l2")
    base = problem.prepare(rng.normal(size=(_N, width)), np.array([labels[k % len(labels)] for k in range(_N)]), "l2")
    return Setting(problem, context, base, [type(base)(*(c[k : k + 1] for c in everyone)) for k in range(len(pairs))])


def told(s: Setting, first: Any, asked: ClippedQuery, number: int) -> Array:
    """The mean that the coordinator gets with this first record."""
    records = type(s.base)(*(np.concatenate([one, rest[1:]]) for one, rest in zip(first, s.base, strict=True)))
    client_block = MinimaxClientBlock(
        np.zeros(1, dtype=np.int64), s.problem, [records], Streams(b"n" * 32, "coins", [0])
    )
    answer = s.context.combine(number, {"g": asked}, client_block.answer(number, {"g": asked}))["g"]
    assert answer.sensitivities["train"].sensitivity[0] == s.context.sensitivity_of(asked)
    return np.asarray(answer.private[0])


def farthest(s: Setting, asked: ClippedQuery) -> float:
    """The largest movement between two choices of the first record, over the charge."""
    number = next(
        k for k in range(99) if Streams(b"n" * 32, "coins", [0]).generator(0, k, _TRAIN).random(1)[0] < asked.rate
    )
    means = np.array([told(s, first, asked, number) for first in s.others])
    assert np.isfinite(means).all()
    gaps = np.linalg.norm(means[:, None] - means[None], axis=2)
    return float(gaps.max()) / s.context.sensitivity_of(asked)


def points(s: Setting) -> list[tuple[Array, Array]]:
    """Public points: the start, and one away from it."""
    rng = np.random.default_rng(3)
    x, y = s.context.start("x", {}), s.context.start("y", {})
    there = s.problem.project_x(x + 0.5 * rng.normal(size=x.size))
    return [(x, y), (there, s.problem.project_y(y + 0.5 * np.abs(rng.normal(size=y.size))))]


@pytest.mark.parametrize(("name", "term"), TERMS)
@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_no_record_moves_a_mean_further_than_charged(name, term, rate):
    s = setting(name)
    found = [farthest(s, s.context.query(term, x, y, rate)) for x, y in points(s)]
    assert max(found) <= 1.0
    # The search is worth something: a charge of half of that would be found out.
    assert max(found) > 0.5


@pytest.mark.parametrize(("name", "term"), [pair for pair in TERMS if pair[1] != "positive"])
@pytest.mark.parametrize("size", [1.0, 1e-4, 1e-9])
def test_no_record_moves_a_change_further_than_charged(name, term, size):
    s, rng = setting(name), np.random.default_rng(5)
    best = 0.0
    for share, rate in ((1.0, 0.4), (0.05, 1.0)):
        x, y = points(s)[1]
        here = x + size * rng.normal(size=x.size), s.problem.project_y(y + size * rng.normal(size=y.size))
        away = float(np.linalg.norm(np.concatenate([here[0] - x, here[1] - y])))
        found = farthest(s, s.context.query(term, *here, rate, (x, y), share * away))
        assert found <= 1.0
        best = max(best, found)
    # Piecewise constant answers seldom change in a short step.
    assert best > 0.5


@pytest.mark.parametrize(("name", "term"), TERMS)
def test_a_sampled_record_adds_at_most_half_of_the_charge(name, term):
    """The cost of a Poisson sample compares a record with its absence, at the public centre."""
    s = setting(name)
    for x, y in points(s):
        asked = s.context.query(term, x, y, 0.4)
        nobody = s.problem.sums(type(s.base)(*(c[:0] for c in s.base)), [asked])[0]
        assert not nobody.any()
        with np.errstate(all="ignore"):
            most = max(float(np.linalg.norm(s.problem.sums(one, [asked])[0])) for one in s.others)
        assert most / (0.4 * _N) <= 0.5 * s.context.sensitivity_of(asked)
