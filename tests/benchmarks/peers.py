"""Processor time of other packages for the same work: `python -m tests.benchmarks.peers`.

A ratio is our time divided by the peer's. All take turns on one thread, and the shortest of five times counts. JAX,
torch, decent-bench, Opacus and dp_accounting are optional. The script prints "not installed" for a missing one.
"""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

import decentral_dp
from decentral_dp.engines.local import LocalEngine
from decentral_dp.privacy.accounting.accountants import epsilon_of
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import mechanism_of
from decentral_dp.simulation.jobs.build import build_job

if TYPE_CHECKING:
    from torch import nn

RECORDS, BATCH, PIXELS, HIDDEN, DIGITS, TRAINERS = 20, 64, 784, 128, 10, 64
# Agents, records per agent, and pixels of an image, for custom modules.
OWNERS, SHARD, SMALL_IMAGE = 8, 180, 64
LEARNING_RATE, DELTA = 0.1, 1e-5

Rounds = Callable[[int], object]
Peers = dict[str, tuple[Callable[[], Rounds], int]]


def fastest(functions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the shortest processor time of each in seconds; functions take turns, so that load slows all of them."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for k, function in enumerate(functions):
            start = time.process_time()
            function()
            best[k] = min(best[k], time.process_time() - start)
    return best


def _job(
    agents: int, records: int, width: int, classes: int, rounds: int, model: str | None = None
) -> Callable[[], object]:
    """Prepare certified D-SGD on a ring with its ledger; a network if there are more than two classes."""
    draw, n = np.random.default_rng(0), agents * records
    data = {"features": draw.uniform(-1.0, 1.0, (n, width)), "labels": draw.integers(classes, size=n)}
    data |= {"agent": np.arange(n) // records, "split": np.full(n, "train"), "classes": np.arange(classes)}
    linear: dict[str, Any] = {"data": "breast_cancer", "classes": [0, 1]}
    problem = {"data": "digits", "model": model or {"kind": "mlp", "hidden": [HIDDEN]}} if classes > 2 else linear
    content = {
        "seed": 1,
        "problem": {"kind": "classification", **problem},
        "topology": {"kind": "ring", "agents": agents},
        "algorithm": {"kind": "dp_dsgd", "rounds": rounds, "learning_rate": {"scale": LEARNING_RATE}},
        "privacy": {"clip": 1.0, "noise_multiplier": 1.0, "delta": DELTA, "mechanism": "gaussian"},
        "run": {"evaluate_every": rounds, "average": 1},
    }
    return partial(build_job(decentral_dp.load(content), data=data).start, LocalEngine())


# Rounds of D-SGD of linear models on a ring: margins, clip, weighted sums, Gaussian noise, mix ------------------------


def _records(m: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw features and labels, and compute row norms."""
    draw = np.random.default_rng(0)
    x = draw.uniform(-1.0, 1.0, (m, RECORDS, d))
    return x, np.where(draw.uniform(size=(m, RECORDS)) < 0.5, -1.0, 1.0), np.linalg.norm(x, axis=2)


def _numpy(m: int, d: int) -> Rounds:
    import scipy.sparse as sp

    x, labels, norms = _records(m, d)
    a, draw = np.arange(m), np.random.Generator(np.random.SFC64(0))
    mix = sp.csr_array((np.full(3 * m, 1 / 3), (np.tile(a, 3), np.concatenate([a, (a + 1) % m, (a - 1) % m]))))

    def run(rounds: int) -> object:
        y = np.zeros((m, d))
        for _ in range(rounds):
            slope = -labels / (1.0 + np.exp(labels * np.matmul(x, y[:, :, None])[:, :, 0]))
            slope *= np.minimum(1.0, 1.0 / np.maximum(np.abs(slope) * norms, 1e-300))
            mean = np.matmul(slope[:, None, :], x)[:, 0, :] / RECORDS
            y = mix @ (y - LEARNING_RATE * (mean + draw.standard_normal((m, d)) / RECORDS))
        return y

    return run


def _jax(m: int, d: int) -> Rounds:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    x, labels, norms = map(jnp.asarray, _records(m, d))

    def step(_: Any, carry: Any) -> Any:
        y, key = carry
        key, fresh = jax.random.split(key)
        slope = -labels * jax.nn.sigmoid(-labels * jnp.einsum("gnd,gd->gn", x, y))
        slope = slope * jnp.minimum(1.0, 1.0 / jnp.maximum(jnp.abs(slope) * norms, 1e-300))
        mean = jnp.einsum("gn,gnd->gd", slope, x) / RECORDS
        z = y - LEARNING_RATE * (mean + jax.random.normal(fresh, (m, d)) / RECORDS)
        return (z + jnp.roll(z, 1, 0) + jnp.roll(z, -1, 0)) / 3.0, key

    compiled = jax.jit(lambda rounds: jax.lax.fori_loop(0, rounds, step, (jnp.zeros((m, d)), jax.random.key(0)))[0])
    return lambda rounds: compiled(rounds).block_until_ready()


def _torch(m: int, d: int) -> Rounds:
    import torch

    torch.set_num_threads(1)
    x, labels, norms = map(torch.from_numpy, _records(m, d))

    def run(rounds: int) -> object:
        y = torch.zeros(m, d, dtype=torch.float64)
        for _ in range(rounds):
            slope = -labels * torch.sigmoid(-labels * torch.bmm(x, y[:, :, None])[:, :, 0])
            slope = slope * torch.clamp(1.0 / torch.clamp(slope.abs() * norms, min=1e-300), max=1.0)
            mean = torch.bmm(slope[:, None, :], x)[:, 0] / RECORDS
            z = y - LEARNING_RATE * (mean + torch.randn(m, d, dtype=torch.float64) / RECORDS)
            y = (z + z.roll(1, 0) + z.roll(-1, 0)) / 3.0
        return y

    return run


def _decent_bench(m: int, d: int) -> Rounds:
    import networkx as nx
    from decent_array import interoperability as iop
    from decent_bench.agents import Agent
    from decent_bench.algorithms.p2p import DGD
    from decent_bench.costs import LogisticRegressionCost
    from decent_bench.networks import P2PNetwork
    from decent_bench.schemes import GaussianNoise

    iop.set_backend("numpy")
    x, labels, _ = _records(m, d)
    zero_one = (labels[:, :, None] > 0).astype(float)
    shards = [[(iop.from_numpy(x[i, k]), iop.from_numpy(zero_one[i, k])) for k in range(RECORDS)] for i in range(m)]
    agents = [Agent(LogisticRegressionCost(shard), state_snapshot_period=10**9) for shard in shards]
    network = P2PNetwork(nx.cycle_graph(m), agents, message_noise=GaussianNoise(0.0, LEARNING_RATE / RECORDS))
    algorithm = DGD(step_size=LEARNING_RATE)
    algorithm.initialize(network)

    def run(rounds: int) -> None:
        for t in range(rounds):
            network._step(t)
            algorithm.step(network, t)

    return run


# Rounds of D-SGD of dense networks 784-128-10 -------------------------------------------------------------------------


def _opacus() -> Rounds:
    """Prepare ghost clipping, agent after agent. The optimiser is a placeholder because only gradients are compared."""
    import torch
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, DIGITS)).double()
    module = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
    optimiser = SimpleNamespace(loss_reduction="mean", zero_grad=module.zero_grad)
    loss = DPLossFastGradientClipping(module, optimiser, nn.CrossEntropyLoss(), loss_reduction="mean")
    x, labels = torch.rand(TRAINERS, BATCH, PIXELS, dtype=torch.float64), torch.randint(DIGITS, (TRAINERS, BATCH))

    def run(rounds: int) -> None:
        for agent in list(range(TRAINERS)) * rounds:
            module.zero_grad()
            loss(module(x[agent]), labels[agent]).backward()
            for weights in module.parameters():
                weights.grad.add_(torch.randn_like(weights))

    return run


# Rounds of D-SGD of custom modules ------------------------------------------------------------------------------------


def convolutions(n_features: int, outputs: int) -> nn.Module:
    """Build two convolutions of 16 and 32 channels with pooling, and a dense layer."""
    from torch import nn

    side = math.isqrt(n_features)
    first = nn.Unflatten(1, (1, side, side)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*first, *second, nn.Linear(32 * (side // 4) ** 2, outputs))


def encoder(n_features: int, outputs: int) -> nn.Module:
    """Build a transformer layer of width 32 with 4 heads for sequences of length 16, and dense layers around it."""
    from torch import nn

    first = nn.Unflatten(1, (16, -1)), nn.Linear(n_features // 16, 32)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.Sequential(*first, layer, nn.Flatten(), nn.Linear(16 * 32, outputs))


def _private_engine(build: Callable[[int, int], nn.Module], dtype: str) -> Rounds:
    """Prepare Opacus' default per-example gradients on the pooled records, all of them in each step."""
    import torch
    from opacus import PrivacyEngine
    from opacus.validators import ModuleValidator
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    kind, n = getattr(torch, dtype), OWNERS * SHARD
    # Attention is replaced by that of Opacus.
    module = ModuleValidator.fix(build(SMALL_IMAGE, DIGITS)).to(kind)
    records = TensorDataset(2.0 * torch.rand(n, SMALL_IMAGE, dtype=kind) - 1.0, torch.randint(DIGITS, (n,)))
    module, optimiser, loader = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), LEARNING_RATE),
        data_loader=DataLoader(records, batch_size=n),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )

    def run(rounds: int) -> None:
        for _ in range(rounds):
            for x, labels in loader:
                optimiser.zero_grad()
                torch.autograd.backward(torch.nn.functional.cross_entropy(module(x), labels))
                optimiser.step()

    return run


# Accounting -----------------------------------------------------------------------------------------------------------


def _ledger(scales: np.ndarray, rate: float | None) -> Ledger:
    """Make a ledger of Laplace releases of sensitivity 1, or Gaussian ones of sensitivity 2 on Poisson samples."""
    scale, indices, group = scales[:, None], np.arange(1, len(scales) + 1), np.zeros(1, dtype=np.int64)
    size, share = np.full_like(scale, 2.0 if rate else 1.0), np.full_like(scale, rate or 1.0)
    mechanism, sampling = mechanism_of("gaussian" if rate else "laplace"), "poisson" if rate else "fixed"
    line = ChannelLedger("y", mechanism, 1, group, indices, scale, {"train": size}, {"train": share}, sampling=sampling)
    return Ledger(1, (line,))


def _dp_accounting(scales: np.ndarray, counts: np.ndarray, rate: float | None) -> float:
    """Compute ε by the PLD accountant. It doubles the sensitivity of Gaussian releases itself."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(dp.NeighboringRelation.REPLACE_ONE if rate else dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for b, count in zip(scales.tolist(), counts.tolist(), strict=True):
        event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(b)) if rate else dp.LaplaceDpEvent(b)
        accountant.compose(event, count)
    return float(accountant.get_epsilon(DELTA))


# The comparison -------------------------------------------------------------------------------------------------------


def _is_installed(work: str, package: str) -> bool:
    installed = importlib.util.find_spec(package) is not None
    print(end="" if installed else f"{work} | {package} | not installed\n")
    return installed


def compare_rounds(work: str, ours: Callable[[int], Callable[[], object]], rounds: int, peers: Peers) -> None:
    """Print our time of a round over the times of the peers.

    Args:
        work: title of the work.
        ours: function that prepares a job of a number of rounds, and returns its start.
        rounds: number of our rounds. The time of a job of one round is subtracted.
        peers: package → (function that prepares its rounds, number of its rounds).
    """
    ready = {name: (make(), n) for name, (make, n) in peers.items() if _is_installed(work, name)}
    # JAX compiles in its first call.
    for run, _ in ready.values():
        run(1)
    calls: list[Callable[[], object]] = [ours(rounds + 1), ours(1), *(partial(run, n) for run, n in ready.values())]
    long, short, *times = fastest(calls, 5)
    each = (long - short) / rounds
    for (name, (_, n)), seconds in zip(ready.items(), times, strict=True):
        print(f"{work} | {name} | {each * n / seconds:.2f} | {1e3 * each:.3f} ms", flush=True)


def compare_accounting(work: str, scales: np.ndarray, rate: float | None = None) -> None:
    """Print our time over that of dp_accounting, and by how much our ε is larger.

    Args:
        work: title of the work.
        scales: noise scale of every release.
        rate: sampling rate of Gaussian releases on Poisson samples; default Laplace releases without sampling.
    """
    if not _is_installed(work, "dp_accounting"):
        return
    ledger, unique, values = _ledger(scales, rate), np.unique(scales, return_counts=True), np.zeros(2)
    calls = (lambda: values.put(0, epsilon_of(ledger, DELTA)), lambda: values.put(1, _dp_accounting(*unique, rate)))
    a, b = fastest(calls, 3)
    larger = f"ε {values[0]:.5f}, {100.0 * (values[0] / values[1] - 1.0):+.3f} %"
    print(f"{work} | dp_accounting | {a / b:.4f} | {a:.3f} s | {larger}", flush=True)


def main() -> None:
    packages = {"numpy": (_numpy, 1), "jax": (_jax, 1), "torch": (_torch, 1), "decent_bench": (_decent_bench, 20)}
    for m, d, rounds in ((10, 10, 1000), (50, 64, 300), (1000, 64, 60)):
        peers: Peers = {name: (partial(make, m, d), rounds // slower) for name, (make, slower) in packages.items()}
        compare_rounds(f"D-SGD round, {m} × {d}", partial(_job, m, RECORDS, d, 2), rounds, peers)
    compare_rounds("MLP round", partial(_job, TRAINERS, BATCH, PIXELS, DIGITS), 12, {"opacus": (_opacus, 1)})
    for build in (convolutions, encoder):
        ours = partial(_job, OWNERS, SHARD, SMALL_IMAGE, DIGITS, model=f"tests.benchmarks.peers:{build.__name__}")
        for dtype in ("float32", "float64"):
            work = f"{build.__name__} round, {dtype}"
            compare_rounds(work, ours, 4, {"opacus": (partial(_private_engine, build, dtype), 4)})
    compare_accounting("1000 Laplace scales", np.linspace(16.0, 47.0, 1000))
    compare_accounting("10⁶ equal Laplace releases", np.full(10**6, 1000.0))
    compare_accounting("1000 Gaussian releases on Poisson samples", np.full(1000, 0.8), 0.01)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
