"""Compressed messages: quantisers by definition, runs by an oracle with replicas, blocks, Ray and resumption."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.simulation.communication import communication, compression_summary
from decentral_dp.simulation.jobs.build import build_job, run_digest
from decentral_dp.topology.compression import Compression
from tests.support.training import gradient_of, training

KINDS: dict[str, dict[str, Any]] = {
    "top_k": {"kind": "top_k", "share": 0.2},
    "random_k": {"kind": "random_k", "share": 0.5},
    "qsgd": {"kind": "qsgd", "levels": 4},
    "sign": {"kind": "sign"},
}
ROUNDS, AGENTS = 12, 6


def scenario(
    compression: dict[str, Any] | None, kind: str = "dp_dsgd", graph: str = "ring", **changes: Any
) -> dict[str, Any]:
    return training(
        topology={"kind": graph, "agents": AGENTS, "compression": compression},
        algorithm={"kind": kind, "rounds": ROUNDS, "momentum": 0.0 if kind == "dp_dsgd" else None},
        run={"evaluate_every": 2, **changes},
    )


# Quantisers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 7, 40])
def test_a_quantiser_contracts_as_it_says(kind: str, width: int) -> None:
    """‖Q(u) − u‖² ≤ (1 − δ)‖u‖², in the mean over the random draws, if any; adversarial u are included."""
    quantiser = Compression(**KINDS[kind], seed=3)
    rng = np.random.default_rng(width)
    vectors = np.stack([rng.normal(size=width), rng.normal(size=width) ** 3, np.ones(width), np.eye(1, width)[0]])
    draws = 400 if kind in ("random_k", "qsgd") else 1
    errors = np.zeros((draws, len(vectors)))
    for index in range(draws):
        left = quantiser(vectors, "y", index, np.arange(len(vectors))) - vectors
        errors[index] = (left**2).sum(axis=1) / (vectors**2).sum(axis=1)
    delta = np.full(len(vectors), quantiser.contraction(width))
    if kind == "sign":
        delta = np.abs(vectors).sum(axis=1) ** 2 / (width * (vectors**2).sum(axis=1))
        np.testing.assert_allclose(errors[0], 1.0 - delta, atol=1e-12)
    spread = errors.std(axis=0) / math.sqrt(draws)
    assert (errors.mean(axis=0) <= 1.0 - delta + 4.0 * spread + 1e-12).all()


def test_qsgd_has_the_vector_as_its_mean() -> None:
    quantiser, u = Compression("qsgd", levels=2, seed=1), np.random.default_rng(0).normal(size=(1, 5))
    drawn = np.stack([quantiser(u, "y", index, np.array([0]))[0] for index in range(4000)])
    scale = 1.0 + min(5 / 4, math.sqrt(5) / 2)
    np.testing.assert_allclose(scale * drawn.mean(axis=0), u[0], atol=4 * scale * drawn.std(axis=0).max() / 60)
    # On the levels, and on no others.
    steps = drawn * scale * 2 / np.linalg.norm(u)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-12)


def test_coins_are_each_releases_channels_and_agents_own() -> None:
    quantiser, u = Compression("random_k", share=0.3, seed=1), np.ones((2, 30))
    drawn = [quantiser(u, "y", 1, np.array([0, 1])), quantiser(u, "y", 2, np.array([0, 1]))]
    drawn.append(quantiser(u, "s", 1, np.array([0, 1])))
    rows = {row.tobytes() for each in drawn for row in each}
    assert len(rows) == 6
    np.testing.assert_array_equal(quantiser(u[1:], "y", 1, np.array([1])), drawn[0][1:])


def test_sizes_are_those_of_the_definitions() -> None:
    sizes = {
        Compression("top_k", share=0.1): (64, 64 * (64 + 10)),
        Compression("random_k", share=0.1): (64, 64 * 64),
        Compression("qsgd", levels=3): (640, 64 + 640 * 3),
        Compression("sign"): (640, 64 + 640),
        Compression("top_k", share=1e-9): (1, 64 + 10),
    }
    for quantiser, wanted in sizes.items():
        assert quantiser.size(640) == wanted
        assert quantiser.size(0) == (0, 0)


# Runs ---------------------------------------------------------------------------------------------------------------


def quantised(u: np.ndarray, kind: str) -> np.ndarray:
    """Q by its definition, entry by entry."""
    if kind == "sign":
        return np.array([math.copysign(sum(abs(v) for v in u) / len(u), v) for v in u])
    kept = sorted(range(len(u)), key=lambda k: -abs(u[k]))[: math.ceil(0.2 * len(u))]
    return np.array([v if k in kept else 0.0 for k, v in enumerate(u)])


@pytest.mark.parametrize("graph", ["ring", "star"])
@pytest.mark.parametrize("kind", ["top_k", "sign"])
@pytest.mark.parametrize("algorithm", ["choco", "dp_dsgd", "gradient_tracking"])
def test_without_noise_it_is_a_loop_over_replicas(algorithm: str, kind: str, graph: str) -> None:
    """Oracle: every agent keeps replicas of its neighbours, moved by what they send; gradients by their formula."""
    content = scenario(KINDS[kind], algorithm, graph) | {"privacy": {"guarantee": "none"}}
    run = decentral_dp.run(content)
    job, m = run.simulation(), AGENTS
    gradient, d = gradient_of(job), job.shards.features.shape[1] + 1
    # γ is the contraction δ of the quantiser: 2/π of sign, the share of entries that top_k keeps.
    gamma = 2.0 / math.pi if kind == "sign" else math.ceil(0.2 * d) / d
    links = job.topology.mixing.toarray()
    near = {i: [j for j in range(m) if j != i and links[i, j] > 0.0] for i in range(m)}

    replicas: dict[str, dict[tuple[int, int], np.ndarray]] = {"y": {}, "s": {}}

    def mixed(channel: str, values: list[np.ndarray]) -> list[np.ndarray]:
        kept = replicas[channel]
        for i in range(m):
            sent = quantised(values[i] - kept.get((i, i), np.zeros(d)), kind)
            for holder in (i, *near[i]):
                kept[holder, i] = kept.get((holder, i), np.zeros(d)) + sent
        return [values[i] + gamma * sum(links[i, j] * (kept[i, j] - kept[i, i]) for j in near[i]) for i in range(m)]

    y, s = [np.zeros(d)] * m, [np.zeros(d)] * m
    last = [np.zeros(d)] * m
    for _ in range(ROUNDS):
        ahead = mixed("y", y)
        if algorithm != "gradient_tracking":
            y = [ahead[i] - 0.5 * gradient(i, ahead[i]) for i in range(m)]
            continue
        tracked = mixed("s", s)
        y = [ahead[i] - 0.5 * tracked[i] for i in range(m)]
        now = [gradient(i, y[i]) for i in range(m)]
        s = [tracked[i] + now[i] - last[i] for i in range(m)]
        last = now
    np.testing.assert_allclose(run.released["y"], np.stack(y), rtol=0, atol=1e-12)


@pytest.mark.parametrize("algorithm", ["dp_dsgd", "gradient_tracking", "ring_breast_cancer", "ma_dsbo", "spdb"])
def test_the_price_and_what_is_recorded_are_those_of_whole_messages(algorithm: str) -> None:
    def built(changes: dict[str, Any]) -> Any:
        if algorithm in ("dp_dsgd", "gradient_tracking"):
            return decentral_dp.build(scenario(changes.get("topology.compression"), algorithm))
        return decentral_dp.build(algorithm, set={"algorithm.rounds": 4, **changes})

    plain, compressed = built({}), built({"topology.compression": KINDS["top_k"]})
    assert compressed.ledger.same_releases(plain.ledger)
    assert compressed.plan().epsilon == plain.plan().epsilon
    run = compressed.run()
    assert run.records.same_releases(plain.ledger)


# Outputs and refusals -----------------------------------------------------------------------------------------------


def test_bits_are_counted_as_sent_and_the_page_says_what_it_saves(tmp_path: Path) -> None:
    width, messages = 31, 12 * ROUNDS
    plan = decentral_dp.plan(scenario(KINDS["top_k"]))
    assert (plan.communication.messages, plan.communication.numbers) == (messages, 7 * messages)
    assert plan.communication.bits == messages * 7 * (64 + 5)
    said = plan.topology["compression"]
    assert said["share_of_bits"] == pytest.approx(7 * 69 / (64 * width))
    assert said["contraction"] == {"y": pytest.approx(7 / width)}
    assert said["consensus"] == pytest.approx(7 / width)
    assert "0.243 of the bits" in " ".join(str(plan).split())
    run = decentral_dp.run(scenario(KINDS["top_k"]), out=tmp_path / "run")
    assert run.result.communication == plan.communication
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Compressed by top_k, with error feedback: 0.243 of the bits" in page


def test_pairs_of_agents_are_priced_for_whole_messages() -> None:
    with pytest.raises(InputError, match="network DP is not derived for compressed messages"):
        decentral_dp.build("network_view", set={"topology.compression": KINDS["sign"]}).network()


# Custom quantisers --------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "compression.md"
SCALED = "\n    def contraction(self, d):\n        return DELTA\n"


def custom(folder: Path, monkeypatch: pytest.MonkeyPatch, extra: str = "", **keys: Any) -> dict[str, Any]:
    """Write the page's quantiser, and return its table."""
    (code,) = re.findall(r"^```python dithered.py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (folder / "dithered.py").write_text(code + extra, encoding="utf-8")
    monkeypatch.chdir(folder)
    return {"kind": "dithered:Dithered", "grid": 0.05} | keys


def test_a_custom_quantiser_is_used_with_error_feedback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bits are counted, its contraction is γ, ε is that of whole messages, and the replica differs by the grid."""
    table = custom(tmp_path, monkeypatch)
    job, whole = build_job(scenario(table)), build_job(scenario(None))
    compression = job.compression
    assert compression is not None
    d = job.problem.q
    assert compression.size(d) == (d, 16 * d)
    assert compression.consensus == pytest.approx(1.0 - 0.05**2 / 6.0, abs=3e-4)
    u = np.linspace(-1.0, 1.0, d)[None]
    sent = compression(u, "y", 3, np.array([2]))
    np.testing.assert_allclose(sent / 0.05, np.rint(sent / 0.05), atol=1e-9)
    assert np.abs(sent - u).max() < 0.05
    assert (sent != compression(u, "y", 4, np.array([2]))).any()
    assert job.budget.epsilon.tolist() == whole.budget.epsilon.tolist()
    sent, most = (communication(each) for each in (job, whole))
    assert sent is not None
    assert most is not None
    assert sent.bits == most.bits * 16 / 64
    summary = compression_summary(job)
    assert summary is not None
    assert (summary["kind"], summary["share_of_bits"]) == ("dithered:Dithered", 0.25)
    runs = [decentral_dp.run(scenario(each)) for each in (table, None)]
    losses = [run.metrics.query("name == 'lower_loss'")["value"].iloc[-1] for run in runs]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_the_noise_key_depends_on_a_custom_quantiser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halved, free = SCALED.replace("DELTA", "0.5"), {"privacy": {"guarantee": "none"}}
    # The file is read when the digest is computed.
    digests = [run_digest(build_job(scenario(custom(tmp_path, monkeypatch)) | free)) for _ in range(2)]
    assert digests[0] == digests[1]
    digests.append(run_digest(build_job(scenario(custom(tmp_path, monkeypatch, grid=0.01)) | free)))
    job = build_job(scenario(custom(tmp_path, monkeypatch, extra=halved)) | free)
    assert len({*digests, run_digest(job)}) == 3
    assert job.compression is not None
    assert job.compression.consensus == 0.5


@pytest.mark.parametrize(
    ("keys", "extra", "told"),
    [
        ({"grid": 100.0}, "", "does not contract"),
        ({"share": 0.5}, "", "share: does not apply"),
        ({"levels_": 4}, "", "levels_"),
        ({"kind": "dithered:dither"}, "\ndef dither(u, generator):\n    return u\n", "has no method bits"),
        ({}, SCALED.replace("DELTA", "1.5"), "does not contract"),
        ({}, "\n    def __call__(self, u, generator):\n        return u[:1]\n", "wrong shape"),
        ({}, SCALED.replace("DELTA", "1 / 0"), "dithered:Dithered fails: ZeroDivisionError"),
        ({}, "\n    def bits(self, d):\n        return None\n", "dithered:Dithered fails: TypeError"),
        ({"kind": "top_k", "share": 0.5}, "", "grid: does not apply"),
        ({"kind": "top_q"}, "", '"top_k", "random_k", "qsgd", "sign" or "module:Name"'),
    ],
)
def test_wrong_custom_quantisers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], extra: str, told: str
) -> None:
    table = custom(tmp_path, monkeypatch, extra, **keys)
    if table["kind"] == "dithered:dither":
        del table["grid"]
    with pytest.raises(InputError, match=re.escape(told)):
        decentral_dp.plan(scenario(table))
