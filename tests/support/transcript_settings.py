"""Settings in which transcripts are audited, their distributions, and the bound of an optimal distinguisher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import beta

from decentral_dp.algorithms.gossip.adasdbo import Adasdbo
from decentral_dp.algorithms.gossip.bsa import Bsa
from decentral_dp.algorithms.gossip.choco import Choco
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.algorithms.gossip.dsoba import Dsoba
from decentral_dp.algorithms.gossip.exact_diffusion import ExactDiffusion
from decentral_dp.algorithms.gossip.f2sa import F2sa
from decentral_dp.algorithms.gossip.federated import Federated
from decentral_dp.algorithms.gossip.gradient_tracking import GradientTracking
from decentral_dp.algorithms.gossip.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.gossip.ldp_single_level import LdpSingleLevel
from decentral_dp.algorithms.gossip.ma_dsbo import MaDsbo
from decentral_dp.algorithms.gossip.push_sum import PushSum
from decentral_dp.algorithms.gossip.spdb import Spdb
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Bounded
from decentral_dp.data import Sampling
from decentral_dp.engines.host import Host
from decentral_dp.engines.protocol import AgentNode
from decentral_dp.exchange import Bundle
from decentral_dp.participants import LocalDataset
from decentral_dp.privacy.accounting.accountants import account
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.privacy.recorder import Recorder, assemble
from decentral_dp.privacy.releasers import NoiseSchedule, ScheduledReleaser
from tests.support.release_cost_oracle import grid
from tests.support.replay import Crossed, Script

ROUNDS, WEIGHT, CLIP, BOUND = 2, 0.6, 0.2, 0.2


STEP = StepSize(0.5)


START = {"x": 1.0, "y": 1.0, "z": 1.0}


ALGORITHMS: dict[str, Any] = {
    "ldp_dsbo": LdpDsbo(STEP, STEP, STEP, "released", start=START),
    "ldp_dsbo, private state": LdpDsbo(STEP, STEP, STEP, "private", start=START),
    "ma_dsbo": MaDsbo(STEP, STEP, StepSize(0.2), inner=1, inverse=2, start=START),
    "adasdbo": Adasdbo(start=START),
    "f2sa": F2sa(STEP, STEP, STEP, penalty=1.0, start=START),
    "dsoba": Dsoba(STEP, STEP, STEP, theta=0.5, start=START),
    "ldp_single_level": LdpSingleLevel(STEP, start=START),
    "dp_dsgd": DpDsgd(STEP, start=START),
    "push_sum": PushSum(STEP, start=START),
    "choco": Choco(STEP, start=START),
    "federated": Federated(STEP, start=START),
    "exact_diffusion": ExactDiffusion(STEP, start=START),
    "gradient_tracking": GradientTracking(STEP, start=START),
    "spdb": Spdb(STEP, STEP, 0.5, STEP, smoothness=1.0, inverse=2, start=START),
    "bsa": Bsa(STEP, STEP, inner=1, inverse=2, smoothness=1.0, start=START),
}


# How far one of two records moves a release: λ·2C/2 of y and z, 2C/2 of one d a round, α²·2C/2 of x (of SPDB's
# twice that, of D-SOBA's θα·2C/2), 2C/2 of one term of a series with L = 1, of an answer to a server, and of a gradient
# that is tracked.
WHOLE = ("s", "d", "v", "gy", "gx", "ux", "uy", "uz")
MOVES = {**dict.fromkeys("yzu", 0.5 * BOUND), "x": 0.25 * BOUND, **dict.fromkeys(WHOLE, BOUND)}


# So many records of the kind that is not replaced, so that the other kind decides the budget.
MANY = 20


class Heard:
    """A mechanism, and everything it let out."""

    def __init__(self, mechanism: ScheduledReleaser) -> None:
        self.said: list[Bundle] = []
        self._mechanism = mechanism

    @property
    def recorder(self) -> Recorder:
        return self._mechanism.recorder

    def release(self, index: int, values: Mapping[str, Any]) -> Bundle:
        self.said.append(self._mechanism.release(index, values))
        return self.said[-1]


@dataclass(frozen=True)
class Setting:
    """Store an agent's algorithm, problem and split of the replaced record.

    size: ε of one release with the change in `MOVES`.
    """

    name: str
    mechanism: str = "laplace"
    kind: str = "train"
    size: float = 0.4
    copies: int = 2000
    problem: Any = Crossed(2)  # noqa: RUF009  # It has no state.
    algorithm: Any = None

    @property
    def program(self) -> Any:
        return self.algorithm or ALGORITHMS[self.name]

    @property
    def noise(self) -> dict[str, NoiseSchedule]:
        flat = np.zeros(self.copies)
        laplace = 2.0**0.5 if self.mechanism == "laplace" else 1.0
        return {c: NoiseSchedule(flat + laplace * v / self.size, flat) for c, v in MOVES.items()}

    def drive(self, data_set: int, releaser: Callable[[], Any]) -> Host:
        """A run in this data set, with a neighbour that keeps every term of the first record at its clip."""
        norm: Any = "l1" if self.mechanism == "laplace" else "l2"
        records: dict[Any, Any] = {}
        for kind in ("train", "validation"):
            n = 2 if kind == self.kind else MANY
            features, labels = np.full((n, 2), 0.05), np.ones(n)
            features[0] = [1e4, 0.0]
            labels[0] = -1.0 if data_set and kind == self.kind else 1.0
            records[kind] = [self.problem.prepare(features, labels, norm)] * self.copies
        agents = np.arange(self.copies)
        batches = Streams(seeded_root(data_set, b"family"), "batch", agents)
        clip = Clip(norm, x=CLIP, y=CLIP, z=CLIP)
        weights = np.full(self.copies, WEIGHT)
        dataset = LocalDataset(agents, self.problem, records, weights, Sampling("full"), clip, batches)
        mixing = sp.csr_array(weights[:, None])
        host = Host(AgentNode(agents, self.program, dataset, releaser, (0,), mixing), ROUNDS)
        said = host.advance()
        for _ in range(ROUNDS * self.program.releases_per_round):
            said = host.advance(np.full((1, said.shape[1]), 5.0))
        return host

    def transcripts(self, data_set: int, seed: int) -> tuple[list[Bundle], Ledger]:
        agents, releases_per_round = np.arange(self.copies), self.program.releases_per_round
        streams = Streams(seeded_root(seed, b"family"), "noise", agents)
        heard = Heard(ScheduledReleaser(self.mechanism, self.noise, streams, releases_per_round))
        self.drive(data_set, lambda: heard)
        return heard.said, assemble([(agents, heard.recorder)], self.copies, releases_per_round).select(np.array([0]))

    def scores(self, said: list[Bundle]) -> np.ndarray:
        """Exact log-likelihood ratio of the first data set against the second, per copy."""
        wanted = []
        for data_set in (0, 1):
            script = Script(said)
            self.drive(data_set, lambda script=script: script)
            wanted.append(script.wanted)
        total, noise = np.zeros(self.copies), self.noise
        for index in range(1, len(said)):
            for channel, released in said[index].items():
                pair = [w[index][channel] for w in wanted]
                if not isinstance(pair[0], Bounded):
                    # Sent in the clear: a difference between the data sets decides.
                    apart = [np.abs(released - np.asarray(v)).max(axis=1) > 1e-12 for v in pair]
                    total = total + 50.0 * apart[1] - 50.0 * apart[0]
                    continue
                scale = noise[channel].scales(index // self.program.releases_per_round, self.mechanism)[:1, None]
                g = grid(scale, self.mechanism, 1)
                for sign, value in zip((1, -1), pair, strict=True):
                    integers = np.rint((released - value.public) / g)
                    total = total + sign * log_law(integers, value.private, scale, self.mechanism).sum(axis=1)
        return total

    def audit(self, delta: float = 0.0) -> tuple[float, float]:
        """(lower bound on ε, certified ε) at δ."""
        found, ledgers = zip(*(self.transcripts(w, seed=21 + w) for w in (0, 1)), strict=True)
        shown = lower_bound(*(self.scores(said) for said in found), delta)
        return shown, float(account(ledgers[0], delta).epsilon[0])


CONFIDENCE = 0.99


def lower_bound(first: np.ndarray, second: np.ndarray, delta: float) -> float:
    """ε that holds at least, with confidence 0.99: the test is chosen on one half of the scores, counted on the other.

    first, second: scores in the two data sets, larger where the first is likelier.
    """
    halves = [(s[: s.size // 2], s[s.size // 2 :]) for s in (first, second)]
    best: tuple[float, int, float] = (-np.inf, 1, 0.0)
    for sign in (1, -1):
        a, b = (sign * h[0] for h in halves[::sign])
        # Ties at the ends of the scores are events too.
        cuts = np.quantile(np.concatenate([a, b]), np.linspace(0.0, 1.0, 400)) - 1e-9
        found = _bounds(*((s[None] >= cuts[:, None]).sum(axis=1) for s in (a, b)), a.size, b.size, delta)
        k = int(np.argmax(found))
        best = max(best, (float(found[k]), sign, float(cuts[k])))
    _, sign, cut = best
    a, b = (sign * h[1] for h in halves[::sign])
    counts = (np.array([(s >= cut).sum()]) for s in (a, b))
    return max(0.0, float(_bounds(*counts, a.size, b.size, delta)[0]))


def _bounds(hits: np.ndarray, false: np.ndarray, n: int, m: int, delta: float) -> np.ndarray:
    """log((TPR − δ)/FPR) with the rates at the ends of their Clopper-Pearson intervals."""
    risk = 0.5 * (1.0 - CONFIDENCE)
    least = np.where(hits > 0, beta.ppf(risk, np.maximum(hits, 1), n - hits + 1), 0.0)
    most = np.where(false < m, beta.ppf(1.0 - risk, false + 1, np.maximum(m - false, 1)), 1.0)
    return np.log(np.maximum(least - delta, 1e-300) / most)


def log_law(integers: np.ndarray, query: np.ndarray, scale: np.ndarray, kind: str) -> np.ndarray:
    """Compute the log probability of the released integers given the rounded query, up to a constant."""
    g = grid(scale, kind, 1)
    if kind == "gaussian":
        return -0.5 * ((integers - np.rint(query / g)) * g / scale) ** 2
    floor = np.floor(query / g)
    up, steps = query / g - floor, integers - floor
    # Rounded down with probability 1 − up, else up, and then a difference of two geometrics.
    return -np.abs(steps) * g / scale + np.log1p(up * np.expm1((np.abs(steps) - np.abs(steps - 1)) * g / scale))
