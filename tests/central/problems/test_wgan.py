"""The Wasserstein GAN: derivatives, clipping of real and generated records, scores and a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.central.problems import wgan
from decentral_dp.central.problems.wgan import Real, Wgan
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.build import ModelTable
from decentral_dp.problems import SOLVED, ProblemFacts
from decentral_dp.simulation.jobs.build import build_job as build

D, LATENT = 3, 2


FACTS = ProblemFacts(D, 2, seed=5, l2=2.0)


def build_problem(facts: ProblemFacts = FACTS, **options: Any) -> Any:
    return SOLVED["minimax"]["wgan"].build({"latent": LATENT, "generator": [4], "penalty": 0.3, **options}, facts)


def problem(*hidden: int, clip: float = np.inf, **options: Any) -> Wgan:
    model = {"model": ModelTable(kind="mlp", hidden=list(hidden))} if hidden else {}
    built = build_problem(FACTS._replace(clip={"y": clip}), **model, **options)
    assert isinstance(built, Wgan)
    return built


def records(n: int = 6, seed: int = 0) -> Real:
    return Real(np.random.default_rng(seed).uniform(-1.0, 1.0, (n, D)))


def point(m: Wgan) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    return draw.normal(size=m.p), 0.8 * draw.normal(size=m.q)


# The oracle, in numpy: dense layers, ReLU between them; derivatives by differences ----------------------------------


def dense(weights: np.ndarray, widths: list[int], rows: np.ndarray) -> np.ndarray:
    offset = 0
    for k in range(len(widths) - 1):
        i, o = widths[k], widths[k + 1]
        rows = rows @ weights[offset : offset + i * o].reshape(o, i).T + weights[offset + i * o : offset + i * o + o]
        offset += i * o + o
        if k < len(widths) - 2:
            rows = np.maximum(rows, 0.0)
    return rows


def generate(x: np.ndarray, latents: np.ndarray) -> np.ndarray:
    return np.tanh(dense(x, [LATENT, 4, D], latents))


def criticise(y: np.ndarray, hidden: tuple[int, ...], rows: np.ndarray) -> np.ndarray:
    return dense(y, [D, *hidden, 1], rows)[:, 0]


def differences(f: Any, x: np.ndarray, h: float = 1e-6) -> np.ndarray:
    return np.array([(f(x + h * e) - f(x - h * e)) / (2.0 * h) for e in np.eye(x.size)])


def clip_vector(v: np.ndarray, bound: float) -> np.ndarray:
    return np.asarray(v * min(1.0, bound / float(np.linalg.norm(v))))


@pytest.mark.parametrize("hidden", [(), (5,), (4, 3)])
def test_generator_gradient_reads_no_record(hidden: tuple[int, ...]) -> None:
    m = problem(*hidden)
    x, y = point(m)
    z = m.latents("fakes", wgan.FAKES, 3)
    np.testing.assert_allclose(m.generate(x, z), generate(x, z), rtol=1e-12, atol=1e-14)
    expected = -differences(lambda w: float(criticise(y, hidden, generate(w, z)).mean()), x)
    np.testing.assert_allclose(m.public("grad_x", x, y, 3), expected, rtol=1e-5, atol=1e-7)
    assert m.terms == {"grad_x": False, "grad_y": True}


@pytest.mark.parametrize("hidden", [(), (5,), (4, 3)])
def test_public_part_of_the_critic_gradient(hidden: tuple[int, ...]) -> None:
    m = problem(*hidden)
    x, y = point(m)
    z = m.latents("fakes", wgan.FAKES, 0)
    expected = differences(lambda w: -float(criticise(w, hidden, generate(x, z)).mean()) - 0.3 * float(w @ w), y)
    np.testing.assert_allclose(m.public("grad_y", x, y, 0), expected, rtol=1e-5, atol=1e-6)


def test_generated_records_are_clipped() -> None:
    """Equal real and generated records cancel for every clip."""
    bound, m = 0.7, problem(5, clip=0.7)
    x, y = point(m)
    fakes = generate(x, m.latents("fakes", wgan.FAKES, 0))
    rows = [clip_vector(differences(lambda w, f=f: float(criticise(w, (5,), f[None])[0]), y), bound) for f in fakes]
    np.testing.assert_allclose(m.public("grad_y", x, y, 0), -np.mean(rows, axis=0) - 0.6 * y, rtol=1e-5, atol=1e-6)
    # With the generated records as real ones, only the penalty remains.
    (total,) = m.sums(Real(m.generate(x, m.latents("fakes", wgan.FAKES, 0))), [ClippedQuery("grad_y", x, y, bound)])
    np.testing.assert_allclose(total / wgan.FAKES + m.public("grad_y", x, y, 0), -0.6 * y, atol=1e-12)


@pytest.mark.parametrize("hidden", [(), (5,), (4, 3)])
@pytest.mark.parametrize("bound", [0.3, 1e6])
def test_records_are_clipped_one_by_one(hidden: tuple[int, ...], bound: float) -> None:
    m, r = problem(*hidden), records()
    x, y = point(m)
    rows = [differences(lambda w, a=a: float(criticise(w, hidden, a[None])[0]), y) for a in r.inputs]
    (actual,) = m.sums(r, [ClippedQuery("grad_y", x, y, bound)])
    np.testing.assert_allclose(actual, sum(clip_vector(v, bound) for v in rows), rtol=1e-5, atol=1e-6)


def test_layers_keep_records_apart() -> None:
    m = problem(5)
    x, y = point(m)
    z = m.latents("fakes", 8, 0)
    generated = m.generate(x, z)
    for k in range(8):
        np.testing.assert_allclose(m.generate(x, z[k : k + 1])[0], generated[k], rtol=1e-12)
    first = m.critic.forward(y, generated)[0]
    other = np.concatenate([generated[:1], 0.5 * generated[1:]])
    np.testing.assert_allclose(m.critic.forward(y, other)[0][0], first[0], rtol=1e-12)


# Scores --------------------------------------------------------------------------------------------------------------


def test_scores_separate_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    m, y = problem(5), np.zeros(problem(5).q)
    real, alike = records(200, 1), records(200, 2).inputs

    def scores(fake: np.ndarray) -> dict[str, float]:
        monkeypatch.setattr(Wgan, "generate", lambda self, x, latents: fake[: len(latents)])
        return dict(m.scores(np.zeros(m.p), y, records(3), real))

    same, other = scores(alike), scores(0.5 * alike + 0.4)
    assert same["test_distance"] < 0.08
    # Every projection moves by at least the shift along it.
    assert other["test_distance"] > 0.25


# Refusals and runs ---------------------------------------------------------------------------------------------------


def content(guarantee: str, **algorithm: Any) -> dict[str, Any]:
    return {
        "seed": 1,
        "problem": {
            "kind": "wgan",
            "data": "digits",
            "scale": "public_ranges",
            "generator": [32],
            "model": {"kind": "mlp", "hidden": [32]},
        },
        "topology": {"kind": "star", "agents": 5},
        "algorithm": {
            "kind": "dp_sgda",
            "rounds": 100,
            "rate": 0.2,
            "x": {"scale": 0.2},
            "y": {"scale": 0.2},
            **algorithm,
        },
        "privacy": {"guarantee": guarantee, "epsilon": 4.0, "delta": 1e-4, "clip": {"y": 1.0}},
        "run": {"evaluate_every": 100},
    }


def test_only_the_critic_gradient_is_charged() -> None:
    run = decentral_dp.run(decentral_dp.load(content("certified")))
    assert run.result["status"] == "ok"
    assert run.records.costs_within(run.simulation().ledger)
    assert [c.channel for c in run.simulation().ledger.channels] == ["gy"]
    assert run.simulation().problem.clip == 1.0
    assert 3.6 <= run.result["privacy"]["epsilon_max"] <= 4.0
    rows = run.metrics.set_index(["round", "name"])["value"]
    assert rows[100, "test_distance"] < 0.4 * rows[0, "test_distance"]


def test_refuses_a_critic_without_clip() -> None:
    scenario = content("certified")
    del scenario["privacy"]["clip"]
    with pytest.raises(InputError, match=r"privacy\.clip\.y: missing"):
        build(decentral_dp.load(scenario))
    # The gradient of the generator reads no record, and needs no clip.
    assert build(decentral_dp.load(content("certified"))).clip.x == np.inf
