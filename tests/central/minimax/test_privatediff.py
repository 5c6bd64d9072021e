"""PrivateDiff in its three forms: agreement with loops over records, plans, sensitivities and refusals."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.bounded import Bounded
from decentral_dp.central.minimax.steps import Estimate, plan_estimates, threshold
from decentral_dp.exchange import Ask, Bundle, ClippedQuery, Released
from decentral_dp.privacy.accounting.accountants import epsilon_of
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import Listening, Scripted, keyed, loud, scripted, with_noise
from tests.support.minimax_loop import Loop, agree, content, made

STEPS: dict[str, Any] = {"x": {"scale": 0.8, "decay": 0.3}, "y": {"scale": 0.7, "decay": 0.5}}
ONLY_X: dict[str, Any] = {"x": STEPS["x"], "solver": "closed_form"}
PROGRAMS: dict[str, dict[str, Any]] = {
    "ascent": {"kind": "privatediff", "period": 2, "inner": 2, "smoothness": 0.3, **STEPS},
    "ascent, one step": {"kind": "privatediff", "period": 3, "smoothness": 2.0, **STEPS},
    "closed form": {"kind": "privatediff", "period": 3, "smoothness": 0.3, **ONLY_X},
    "anchors alone": {"kind": "privatediff", "period": 1, "inner": 3, **STEPS},
    "xy": {"kind": "privatediff_xy", "period": 3, "smoothness": 0.4, **STEPS},
    "xy, anchors alone": {"kind": "privatediff_xy", "period": 1, **STEPS},
    "xy, one anchor": {"kind": "privatediff_xy", "period": 50, "smoothness": 0.4, **STEPS},
    "sgda": {"kind": "dp_sgda", **STEPS},
    "sgda, closed form": {"kind": "dp_sgda", **ONLY_X},
}
PRINTED = {"guarantee": "as_published", "clip": {"x": 0.2, "y": 0.6}}


@functools.cache
def make_job(name: str, rate: float = 0.4) -> Job:
    return made(PROGRAMS[name] | {"rate": rate})


# Against loops -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_a_loop_over_records(name: str, rate: float) -> None:
    job = make_job(name, rate)
    agree(job, Loop(job, with_noise))


def test_smaller_clip_of_y_replaces_the_known_ball() -> None:
    job = made(PROGRAMS["ascent"], privacy={"clip": {"x": 0.2, "y": 0.3}})
    agree(job, Loop(job, with_noise, clip_y=0.3))


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_loop_with_keyed_noise(name: str) -> None:
    """Scales are 2·bound/(qn) over the planned μ; noise is drawn again from the keyed streams."""
    job = make_job(name)
    prices = prices_of(job)
    loop = Loop(job, with_noise)
    loop.say = keyed(job, lambda i, c: 2.0 * loop.bounds[i, c] / (0.4 * loop.n) / prices[i, c])
    # Scales may differ in their last bits, so that a variate rounds to the next grid point.
    agree(job, loop, Listening(job), atol=1e-3)


def prices_of(job: Job) -> dict[tuple[int, str], float]:
    return {
        (int(index), c.channel): float(sensitivity / scale)
        for c in job.ledger.charged_channels
        for index, sensitivity, scale in zip(c.rounds, c.sensitivity["train"][:, 0], c.scale[:, 0], strict=True)
    }


def collect_queries(program: str, protocol: str) -> list[list[ClippedQuery]]:
    """Return the queries of three rounds of a program that receives random releases."""
    job = make_job(program) if protocol == "released" else made(PROGRAMS[program], privacy=PRINTED)
    state, out, rng = job.algorithm.init(job.context), [], np.random.default_rng(3)
    for t in range(3):
        running, reply, queries = job.algorithm.step(t, job.context, state), None, []
        while True:
            try:
                request: Any = running.send(reply)
            except StopIteration as done:
                state = done.value
                break
            if isinstance(request, Ask):
                queries += request.values.values()
                zero = {c: np.zeros((3, job.problem.width(q.term))) for c, q in request.values.items()}
                reply = job.context.combine(1, request.values, zero)
            else:
                released = {c: rng.normal(size=(1, v.private.shape[1])) for c, v in request.values.items()}
                reply = Released(Bundle(released), dict.fromkeys(released, 1.0))
        out.append(queries)
    return out


@pytest.mark.parametrize("protocol", ["released", "as_published"])
def test_queries_use_the_last_released_point(protocol: str) -> None:
    """The part of ∇_α f that reads records does not depend on y, so the loops above do not test its y."""
    rounds = collect_queries("ascent", protocol)
    for t, (first, second, last) in enumerate(rounds):
        assert first.term == second.term == "grad_y"
        assert last.term == "grad_x"
        for query, following in ((first, second), (second, last)):
            assert np.array_equal(query.x, following.x)
            assert not np.array_equal(query.y, following.y)
        if t:
            before = rounds[t - 1][2]
            assert not np.array_equal(first.x, before.x)
            # y continues from the point of ∇_x f.
            assert np.array_equal(first.y, before.y)
            if protocol == "released" and t % 2:
                assert same(last.earlier_point, before)
            else:
                assert last.earlier_point is None


def same(since: Any, before: ClippedQuery) -> bool:
    return np.array_equal(since[0], before.x) and np.array_equal(since[1], before.y)


# Prices --------------------------------------------------------------------------------------------------------------


def squares(job: Job) -> dict[str, float]:
    return {c.channel: float((c.sensitivity["train"] ** 2).sum()) for c in job.ledger.charged_channels}


def test_anchors_have_half_of_the_budget() -> None:
    spent = squares(make_job("ascent"))
    assert spent["gx"] == pytest.approx(spent["dx"], rel=1e-9)
    assert spent["gy"] / sum(spent.values()) == pytest.approx(0.1, rel=1e-9)
    spent = squares(make_job("xy"))
    assert all(s == pytest.approx(spent["gx"], rel=1e-9) for s in spent.values())
    assert squares(make_job("anchors alone")).keys() == {"gx", "gy"}
    # Round 0 is the only anchor.
    alone = squares(made(PROGRAMS["ascent"] | {"rounds": 1}))
    assert alone["gy"] / sum(alone.values()) == pytest.approx(0.1, rel=1e-9)


@pytest.mark.parametrize("period", [2, 3, 6])
def test_budget_split_follows_the_multipliers(period: int) -> None:
    """If T divides R: z_1 = z√(2/T), z_2 = z√(2(T−1)/T), relative to the z of equal rounds."""
    context = make_job("xy").context
    blocks = plan_estimates(context, period, {Estimate("grad_y", "g", "d"): np.arange(1, 13)}, 1.0)
    z_1, z_2 = (math.sqrt(blocks[c].indices.size / blocks[c].share) for c in "gd")
    z = math.sqrt(12.0)
    assert z_1 == pytest.approx(z * math.sqrt(2.0 / period))
    assert z_2 == pytest.approx(z * math.sqrt(2.0 * (period - 1) / period))
    assert sorted([*blocks["g"].indices, *blocks["d"].indices]) == list(range(1, 13))
    assert list(blocks["g"].indices) == list(range(1, 13, period))


# The plan -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ascent", "closed form", "xy"])
def test_anchor_rounds_do_not_depend_on_records(name: str) -> None:
    """Other records, noise and steps have the same releases at the same indices and cost."""
    runs = []
    for seed, scale in ((1, 0.8), (2, 0.8), (3, 50.0)):
        changed = PROGRAMS[name] | {"x": {"scale": scale}}
        job = made(changed, problem={"seed": seed})
        releaser = Listening(job)
        scripted(job, releaser)
        runs.append((sorted(releaser.wanted), job.ledger))
    assert runs[0][0] == runs[1][0] == runs[2][0]
    assert runs[0][1].same_releases(runs[1][1])
    assert runs[0][1].same_releases(runs[2][1])
    per_round = max(i for i, _ in runs[0][0]) // 7
    period = PROGRAMS[name]["period"]
    for index, channel in runs[0][0]:
        if channel in ("gx", "dx"):
            assert (channel == "gx") == (((index - 1) // per_round) % period == 0)


def test_threshold_is_a_usable_distance() -> None:
    point, before = (np.array([3.0, 0.0]), np.array([4.0])), (np.zeros(2), np.zeros(1))
    assert threshold(2.0, point, before) == pytest.approx(10.0)
    assert threshold(2.0, point, point) == 0.0
    for bad in (math.nan, math.inf, 1e300):
        assert threshold(2.0, (np.array([bad, 0.0]), np.zeros(1)), before) == 0.0


@pytest.mark.parametrize(("name", "scale"), [("ascent", 1e150), ("closed form", 1.7e308), ("xy", 1.7e308)])
def test_overflowing_releases_do_not_stop_a_run(name: str, scale: float) -> None:
    """Points that overflow have a threshold of 0, and all planned releases are made."""
    run = decentral_dp.run(content(PROGRAMS[name] | {"x": {"scale": scale}}))
    assert run.records.rounds == 7
    assert run.records.costs_within(run.simulation().ledger)


# As printed ----------------------------------------------------------------------------------------------------------


def noise_without_y(index: int, channel: str, public: np.ndarray, private: np.ndarray) -> np.ndarray:
    return public + private + (0.0 if channel == "gy" else loud(index, channel, private.size))


@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize("inner", [1, 3])
def test_published_form_agrees_with_loop(inner: int, rate: float) -> None:
    """y continues without noise, a difference uses two samples, and noise is in units of C_{2,r}."""
    job = made(PROGRAMS["ascent"] | {"inner": inner, "rate": rate}, privacy=PRINTED)

    class Silent(Scripted):
        def release(self, index: int, values: Any) -> Any:
            out = super().release(index, values)
            exact = {c: v.value if c == "gy" else out.released[c] for c, v in values.items()}
            return out._replace(released=type(out.released)(exact))

    agree(job, Loop(job, noise_without_y, clip_y=0.6), Silent(), program="as_published")


def test_published_noise_matches_the_remark() -> None:
    job = made(PROGRAMS["ascent"] | {"inner": 3, "period": 4, "rounds": 9}, privacy=PRINTED)
    n, root = job.context.n, math.sqrt(9 * math.log(1e4))  # type: ignore[union-attr]  # a coordinator's job
    lines = {c.channel: c for c in job.ledger.charged_channels}
    assert set(lines) == {"gy", "gx", "dx", "y"}
    assert lines["gx"].scale == pytest.approx(np.full((3, 1), 4.0 * root / 2.0 / (n * 6.0) * 0.2))
    assert lines["dx"].scale == pytest.approx(np.full((6, 1), 4.0 * root / (n * 6.0)))
    # 1/μ is the step scale 0.7; the sensitivity is 2C_0², without a part for βM.
    assert lines["y"].scale == pytest.approx(np.full((9, 1), 4.0 * 2.0 * 0.6**2 * root * 0.7 / (n * 6.0)))
    assert lines["gy"].mechanism.name == "uncertified"
    assert (lines["gy"].scale == 0.0).all()
    assert all(np.isinf(c.sensitivity["train"]).all() for c in lines.values())
    assert list(lines["gx"].rounds) == [4, 20, 36]
    releaser, out = Listening(job), {}
    real = releaser.release

    def release(index: int, values: Any) -> Any:
        response = real(index, values)
        out.update({(index, c): (values[c], v) for c, v in response.released.items() if isinstance(values[c], Bounded)})
        return response

    releaser.release = release  # type: ignore[method-assign]  # A spy.
    scripted(job, releaser)
    for (_, channel), (value, response) in out.items():
        assert np.array_equal(value.value, response) == (channel == "gy")


def test_published_form_is_not_certified() -> None:
    run = decentral_dp.run(content(PROGRAMS["ascent"], privacy=PRINTED))
    privacy = run.result["privacy"]
    assert run.result["status"] == "ok"
    assert run.records.costs_within(run.simulation().ledger)
    assert np.isinf(privacy["epsilon_max"])
    assert np.isinf(epsilon_of(run.records, 1e-4)).all()
    assert privacy["claimed"]["epsilon_max"] == 6.0
    assert "Remark 5.1" in privacy["claimed"]["source"]
    assert any("y has no noise in the update of x" in reason for reason in privacy["uncertified"].values())


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "changes", "words"),
    [
        ("closed form", {}, "algorithm.solver: the paper ascends"),
        ("sgda, closed form", {}, "algorithm.solver: as published, y ascends"),
        ("xy", {}, "privacy.guarantee: privatediff_xy"),
        ("ascent", {"y": {"scale": 0.0}}, "algorithm.y: its scale"),
    ],
)
def test_refuses_unpublished_options_as_published(program: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        made(PROGRAMS[program] | changes, privacy=PRINTED)
