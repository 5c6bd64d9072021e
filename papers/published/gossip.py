"""Gossip algorithms as published: received values have noise, and an agent's own values have none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, final

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip import (
    bsa,
    dsbo_jhip,
    gbdsbo,
    inner_loops,
    ldp_dsbo,
    ldp_single_level,
    ma_dsbo,
    one_level,
    spdb,
    vrdsbo,
)
from decentral_dp.bounded import transpose
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Problem
from decentral_dp.simulation.job_statement import smallest_noise
from decentral_dp.simulation.jobs.job import GossipJob
from decentral_dp.simulation.statement import PaperClaim
from papers.published.lipschitz import LipschitzConstants, bound_directions, clip_to_box, lipschitz_constants
from papers.published.private_state import endless_remainder, private_state
from papers.published.theorems import theorem_4_5

# Rounds of the private-state recursion that are computed explicitly, before its invariant bound.
_EXPLICIT_ROUNDS = 10_000


class PublishedGossip(dp.Algorithm, Protocol):
    """A gossip algorithm whose agents keep noiseless values."""

    protocol: str = "as_published"

    def starts(self, dataset: dp.LocalDataset) -> tuple[Any, Any]:
        x, y = super().starts(dataset)
        return dataset.constant_state(x), dataset.constant_state(y)

    def own_value(self, released: dp.Value, mine: dp.Value) -> dp.Value:
        return mine


def plan_unbounded(public: dp.Public, index: NDArray[np.int64], reads: NDArray[np.bool_] | bool = True) -> dp.Planned:
    """Plan releases of a private state without clipping. reads: whether it has read a record, (R,)."""
    shape = (index.size, public.neighbour_weight.size)
    bound = np.where(np.broadcast_to(np.asarray(reads).reshape(-1, 1), shape), np.inf, 0.0)
    rates = np.ones(shape)
    return dp.Planned(dict.fromkeys(dp.SPLITS, bound), dict.fromkeys(dp.SPLITS, rates), rates * np.inf, index)


def solve_unreleased(batches: Sequence[dp.Batch], x: dp.Value, y: dp.Value, smoothness: float) -> dp.Value:
    """Compute w at (x, y).

        v_0 = ∇_y f(x, y),     v_k = v_{k−1} − (1/L) ∇²_yy g(x, y) v_{k−1}   for 0 < k < b,     w = (1/L) Σ_{k<b} v_k

    No v_k is released before the next one is computed from it. Products are therefore at private points, and their
    sensitivity is unbounded.

    Args:
        batches: b batches; v_k is computed from batches[k].
        x: upper variables (agents, p).
        y: lower variables (agents, q).
        smoothness: L.

    Returns:
        w, (agents, q).

    Sensitivity:
        None is proved.
    """
    step = 1.0 / smoothness
    v = batches[0].upper_grad_y(x, y)
    w = step * v
    for batch in batches[1:]:
        v = v - step * batch.lower_hvp(x, y, v)
        w = w + step * v
    return w


def track_unreleased(
    channels: tuple[str, str],
    keep: dp.Array,
    step: float,
    iterations: int,
    z: dp.Value,
    first: dp.Value,
    residual: Callable[[int, dp.Value], dp.Value],
) -> dp.GossipSteps[dp.Value]:
    """Iterate on z along a tracker of the mean residual, and send both in every exchange.

        z^{k+1} = a_i z^k + Σ_j w_ij z̃_j^k − γ d^k,    d^{k+1} = a_i d^k + Σ_j w_ij d̃_j^k + r^{k+1} − r^k,    d⁰ = r⁰

    with r^k the residual at z^k. Only received values have noise, so the sensitivity is unbounded.

    Args:
        channels: channels of z and of d.
        keep: agents' own weights a_i, (b, 1).
        step: γ.
        iterations: N.
        z: z⁰.
        first: r⁰, the residual at z⁰.
        residual: function (k, z^k) → r^k for 0 < k < N.

    Returns:
        z^N.
    """
    of_z, of_d = channels
    last = d = first
    for k in range(iterations):
        _, neighbour_sum = yield dp.Gossip(**{of_z: z, of_d: d})
        z = keep * z + neighbour_sum[of_z] - step * d
        if k < iterations - 1:
            now = residual(k + 1, z)
            d = keep * d + neighbour_sum[of_d] + (now - last)
            last = now
    return z


@final
@dataclass(frozen=True)
class PublishedLdpDsbo(dp.Algorithm):
    """LDP-DSBO as published: noise on received values, and none on an agent's own values.

    Args:
        x, y, z: step sizes λ.
        box: variable → bound on the points at which directions are evaluated.
        constants: constants of the problem inside the box; None if there are none.

    With the mixing matrix W, a_i = 1 − |w_ii|, released values ṽ, and all gradients at the agent's noiseless point:

        v_{i,t+1} = a_i v_{i,t} + Σ_j w_ij ṽ_{j,t} − λ_{v,t} · (the step of v in `ldp_dsbo`)            v = x, y, z

    The sensitivity of a private state follows from a recursion with the Lipschitz constants of all terms
    (`papers.published.private_state`). It is infinite if these do not exist. For hyper-parameter problems, they exist
    if y and z are boxed and x has an upper bound.

    Reference: Z. Chen and Y. Wang, "Locally Differentially Private Decentralized Stochastic Bilevel Optimization with
    Guaranteed Convergence Accuracy", ICML 2024, PMLR 235, Algorithms 1 and 2.
    """

    x: dp.StepSize
    y: dp.StepSize
    z: dp.StepSize
    box: Mapping[str, float] = dp.internal(default_factory=dict)
    constants: LipschitzConstants | None = dp.internal(None)

    protocol = "as_published"
    channels = dp.CHANNELS

    def for_problem(self, problem: Problem, box: Mapping[str, float], radius: float | None) -> Self:
        return replace(self, box=box, constants=lipschitz_constants(problem, box, radius))

    def init(self, dataset: dp.LocalDataset) -> ldp_dsbo.LdpDsboState:
        # A private state depends on all its past batches, so its bound starts with the first one.
        return ldp_dsbo.LdpDsboState(*(dataset.constant_state(dataset.start(c, self.start)) for c in dp.CHANNELS))

    def step(self, t: int, dataset: dp.LocalDataset, s: ldp_dsbo.LdpDsboState) -> dp.GossipSteps[ldp_dsbo.LdpDsboState]:
        _, neighbour_sum = yield dp.Gossip(x=s.x, y=s.y, z=s.z)
        state: Any = s
        at = {c: clip_to_box(v, c, self.box) for c, v in zip(dp.CHANNELS, state, strict=True)}
        d = dataset.oracle(t, **at)
        if self.constants is not None:
            d = bound_directions(self.constants, dataset.averaged_counts(t), at, d)
        return ldp_dsbo.step_along(
            (self.x(t), self.y(t), self.z(t)), 1.0 - dataset.neighbour_weight, s, neighbour_sum, d
        )

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        return {c: dp.Channel(c, p if c == "x" else q, tuple(TERMS)) for c in dp.CHANNELS}

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Compute the recursion of the private state. Without constants, sensitivities are infinite after a record."""
        shape = (public.rounds, public.neighbour_weight.size)
        steps = {c: getattr(self, c) for c in dp.CHANNELS}
        constant = [c for c in dp.CHANNELS if steps[c].scale == 0.0]
        if self.constants is None and constant:
            # Constant variables would need another recursion.
            raise dp.InputError(
                f"algorithm.{constant[0]}.scale: a step size of 0 needs problem constants (got 0, expected a positive "
                "number). Fix: give a step size above 0."
            )
        out: dict[str, dict[dp.Split, dp.Array]] = {c: {} for c in dp.CHANNELS}
        for split in dp.SPLITS:
            if self.constants is None:
                # After one round, only the channels that read the split depend on it. After two rounds, all do.
                reads = {
                    c: any(s == split and CLIP_OF_TERM[t] == c for t, s in public.reads_records.items())
                    for c in dp.CHANNELS
                }
                for c in dp.CHANNELS:
                    out[c][split] = np.full(shape, np.inf if any(reads.values()) else 0.0)
                    out[c][split][0] = np.inf if reads[c] else 0.0
                continue
            change = private_state(
                self.constants, steps, public.neighbour_weight, public.averaged_counts, public.rounds, split
            )
            for v, c in enumerate(dp.CHANNELS):
                out[c][split] = change[1:, :, v]
        ones, unbounded = np.ones(shape), np.full(shape, np.inf)
        index = np.arange(1, public.rounds + 1)
        return {c: dp.Planned(out[c], dict.fromkeys(dp.SPLITS, ones), unbounded, index) for c in dp.CHANNELS}

    def paper_claim(self, job: GossipJob) -> PaperClaim:
        """Return ε of Theorem 4.5 as published, with remarks on the proved ε and on the theorem."""
        steps = {c: getattr(self, c) for c in dp.CHANNELS}
        weight = float(job.topology.neighbour_weight.min())
        claim = theorem_4_5(steps, job.noise, weight, job.rounds)
        endless = theorem_4_5(steps, job.noise, weight, math.inf).epsilon_max
        proven = "The provable ε of the published protocol holds in exact arithmetic, for the declared boxes."
        if np.isinf(job.budget.epsilon).any():
            proven = (
                "The protocol as published has certified ε = ∞ here: its state is private and unclipped, and the terms "
                "of its updates are not Lipschitz without boxes on y and z, an upper bound on x, and a bound on the l1 "
                "norm of records."
            )
        refuted = (
            "Theorem 4.5 as published is no certificate: its constants do not depend on the size of the gradients, and "
            "the exact ε of some losses exceeds it."
        )
        return PaperClaim(claim.epsilon_max, endless, tuple(claim.epsilon), claim.source, remarks=(proven, refuted))

    def endless_stream(self, job: GossipJob) -> float | None:
        """Evaluate the recursion for the first rounds and then its invariant bound, for the worst split and weight."""
        if self.constants is None or job.sampling.kind != "streaming":
            return None
        rounds, batch = max(job.rounds, _EXPLICIT_ROUNDS), job.sampling.batch or 1
        steps = {c: getattr(self, c) for c in dp.CHANNELS}
        noise, t = smallest_noise(job), np.arange(1.0, rounds + 1.0)
        cost = np.stack([math.sqrt(2.0) * (t + 1.0) ** noise[c].decay / noise[c].scale for c in dp.CHANNELS], axis=1)
        weights, worst = np.unique(job.topology.neighbour_weight), 0.0
        counts = dict.fromkeys(dp.SPLITS, job.sampling.warm_start + batch * t)
        for split in dp.SPLITS:
            sensitivity = private_state(self.constants, steps, weights, counts, rounds, split)
            totals = (sensitivity[1:] * cost[:, None, :]).sum(axis=(0, 2))
            for weight, total, last in zip(weights, totals, sensitivity[-1], strict=True):
                remainder = endless_remainder(self.constants, steps, float(weight), last, rounds, batch, noise, split)
                worst = max(worst, float(total) + remainder)
        return worst


# Terms of records that private states depend on.
_TERMS = (*inner_loops.U_TERMS, "lower_grad_y", *inner_loops.V_TERMS)


@final
class PublishedMaDsbo(PublishedGossip, ma_dsbo.MaDsbo):
    """The fields of `MaDsbo`, with noiseless own values.

    The recursion is that of `ma_dsbo` as in its paper, with S^{k+1} − S^k from a fresh batch for every k:

        z^{k+1} = P z^k − γ_t d^k,     s^{k+1} = H z^{k+1} − b,     d^{k+1} = P d^k + s^{k+1} − s^k

    where P v = a_i v_i + Σ_j w_ij ṽ_j mixes the agent's own noiseless value with received values. Releases that depend
    on records have no proved sensitivity.

    Reference: Chen & Wang, ICML 2024, Algorithm 3, where z and d share one schedule; after X. Chen, M. Huang, S. Ma, K.
    Balasubramanian, ICML 2023.
    """

    def init(self, dataset: dp.LocalDataset) -> ma_dsbo.MaDsboState:
        return super().init(dataset)._replace(r=dataset.constant_state(dataset.public(0.0, dataset.p)))

    def tracked_inverse(self, t: int, dataset: dp.LocalDataset, x: dp.Value, y: dp.Value) -> dp.GossipSteps[dp.Value]:
        first = -dataset.batch(t, self.inner, kept=True).upper_grad_y(x, y)

        def residual(k: int, z: dp.Value) -> dp.Value:
            at = dataset.batch(t, self.inner + k, kept=True)
            return at.lower_hvp(x, y, z) - at.upper_grad_y(x, y)

        a, start = 1.0 - dataset.neighbour_weight, dataset.public(0.0, dataset.q)
        return (yield from track_unreleased(("z", "d"), a, self.z(t), self.inverse, start, first, residual))

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        families = {"x": "x", "y": "y", "d": "z", "z": "z"}
        return {c: dp.Channel(family, p if c == "x" else q, _TERMS) for c, family in families.items()}

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan infinite sensitivities for values that depend on a record. x_1 and z⁰ = 0 do not.

        Exchange 0 sends x, exchanges 1 … K send y¹ … y^K, and the last N send z and d of k = 0 … N−1. All published
        values have fresh noise.
        """
        rounds, e, inner = public.rounds, self.releases_per_round, self.inner
        x_index = np.arange(1, rounds + 1) * e
        y_index, _ = dp.grid(rounds, e, range(1, 1 + inner))
        d_index, _ = dp.grid(rounds, e, range(1 + inner, e))
        last, alpha = x_index[-1:], self.x.scale > 0.0
        z_index = d_index.reshape(rounds, self.inverse)[:, 1:].reshape(-1)
        return {
            "x": plan_unbounded(public, x_index, (np.arange(rounds) > 0) & alpha),
            "y": plan_unbounded(public, np.concatenate([y_index, last]), self.y.scale > 0.0),
            "z": plan_unbounded(public, np.concatenate([z_index, last]), self.z.scale > 0.0),
            "d": plan_unbounded(public, d_index),
        }


@final
class PublishedDsboJhip(PublishedGossip, dsbo_jhip.DsboJhip):
    """The fields of `DsboJhip`, with noiseless own values.

    The recursion is that of `dsbo_jhip` as in its paper, with S^{k+1} − S^k from a fresh batch for every k:

        Z^{k+1} = P Z^k − γ_t D^k,     S^{k+1} = H_i Z^{k+1} − J_iᵀ,     D^{k+1} = P D^k + S^{k+1} − S^k

    where P V = a_i V_i + Σ_j w_ij Ṽ_j mixes the agent's own noiseless value with received values, and ∇_y f_i
    multiplies (Z^N)ᵀ without noise. Releases that depend on records have no proved sensitivity.

    Reference: X. Chen, M. Huang, S. Ma, "Decentralized Bilevel Optimization", arXiv:2206.05670, 2022, with noise on
    every message as in Chen & Wang, ICML 2024, Algorithm 3.
    """

    def tracked_inverse(
        self, t: int, dataset: dp.LocalDataset, x: dp.Value, y: dp.Value
    ) -> dp.GossipSteps[tuple[dp.Value, dp.Value]]:
        p, q, at = dataset.p, dataset.q, dataset.batch(t, self.inner, kept=True)
        upper = at.upper_grad_y(x, y)
        first = -transpose(at.lower_jacobian(x, y), p, q)

        def residual(k: int, z: dp.Value) -> dp.Value:
            at = dataset.batch(t, self.inner + k, kept=True)
            return at.lower_hessian_product(x, y, z) - transpose(at.lower_jacobian(x, y), p, q)

        a, start = 1.0 - dataset.neighbour_weight, dataset.public(0.0, q * p)
        return (yield from track_unreleased(("Z", "D"), a, self.z(t), self.inverse, start, first, residual)), upper

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        tracked = ("lower_jacobian",) if self.inverse == 1 else ("lower_jacobian", "lower_hessian_product")
        terms = ("upper_grad_x", "lower_grad_y", *tracked, "upper_grad_y")
        sizes = {"x": ("x", p), "y": ("y", q), "Z": ("z", q * p), "D": ("z", q * p)}
        return {c: dp.Channel(family, width, terms) for c, (family, width) in sizes.items()}

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan infinite sensitivities for values that depend on a record. Z⁰ = 0 and variables with step 0 do not.

        Exchange 0 sends x, exchanges 1 … K send y¹ … y^K, and the last N send Z and D of k = 0 … N−1. All published
        values have fresh noise.
        """
        rounds, e = public.rounds, self.releases_per_round
        x_index = np.arange(1, rounds + 1) * e
        y_index, z_index, d_index = (
            dp.grid(rounds, e, range(first, last))[0]
            for first, last in ((1, 1 + self.inner), (2 + self.inner, e), (1 + self.inner, e))
        )
        unsent = dp.free_release(public, d_index)
        return {
            "x": plan_unbounded(public, x_index, self.x.scale > 0.0),
            "y": plan_unbounded(public, np.concatenate([y_index, x_index[-1:]]), self.y.scale > 0.0),
            "Z": plan_unbounded(public, z_index, self.z.scale > 0.0) if z_index.size else unsent,
            "D": plan_unbounded(public, d_index),
        }


@final
class PublishedGbdsbo(PublishedGossip, gbdsbo.Gbdsbo):
    """The fields of `Gbdsbo`, with noiseless own values.

    The recursion is that of `gbdsbo`, where P v = a_i v_i + Σ_j w_ij ṽ_j mixes the agent's own noiseless value with
    received values, and all gradients are at noiseless points. Releases that depend on records have no proved
    sensitivity. x_1 depends on no record.

    Reference: S. Yang, X. Zhang, M. Wang, "Decentralized Gossip-Based Stochastic Bilevel Optimization over
    Communication Networks", NeurIPS 2022, with noise on every message as in Chen & Wang, ICML 2024, Algorithm 3.
    """

    def init(self, dataset: dp.LocalDataset) -> gbdsbo.GbdsboState:
        x, y = self.starts(dataset)
        widths = {c: channel.width for c, channel in self.releases(dataset.p, dataset.q).items() if c in self.terms}
        return gbdsbo.GbdsboState(
            x, y, {c: dataset.constant_state(dataset.public(0.0, width)) for c, width in widths.items()}
        )

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        sent = super().releases(p, q)
        terms = tuple(dict.fromkeys(t for channel in sent.values() for t in channel.terms))
        return {c: channel._replace(terms=terms) for c, channel in sent.items()}

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan infinite sensitivities for values that depend on a record. Variables with step 0 do not.

        x and y are released with indices 1 … T, and the estimates with indices 1 … T − 1.
        """
        index, averaged = np.arange(1, public.rounds + 1), self.averaging.scale > 0.0
        out = {
            "x": plan_unbounded(public, index, (index > 1) & averaged & (self.x.scale > 0.0)),
            "y": plan_unbounded(public, index, self.y.scale > 0.0),
        }
        estimates = dict.fromkeys(self.terms, plan_unbounded(public, index[:-1], averaged))
        return out | estimates if public.rounds > 1 else out


def _begin(program: one_level.OneLevel, dataset: dp.LocalDataset) -> one_level.OneLevelState:
    return one_level.OneLevelState(
        dataset.start("x", program.start), dataset.constant_state(dataset.start("y", program.start))
    )


def _plan(program: one_level.OneLevel, public: dp.Public) -> dict[str, dp.Planned]:
    """Plan a public x, and infinite sensitivities of y after a step on records."""
    indices = np.arange(1, public.rounds + 1)
    return {
        "x": dp.free_release(public, indices[-1:]),
        "y": plan_unbounded(public, indices, program.learning_rate.scale > 0.0),
    }


@final
class PublishedLdpSingleLevel(PublishedGossip, ldp_single_level.LdpSingleLevel):
    """The fields of `LdpSingleLevel`, with a noiseless own y.

        y_{i,t+1} = a_i y_{i,t} + Σ_j w_ij ỹ_{j,t} − λ_t ∇_y g_i(x, y_{i,t})

    Without Lipschitz constants, no sensitivity is proved.

    Reference: Chen & Wang, ICML 2024, Appendix G.3.
    """

    init, planned_releases = _begin, _plan


@final
@dataclass(frozen=True)
class PublishedDpDsgd(one_level.OneLevel):
    """The fields of `DpDsgd`, with a noiseless own y.

        y_{i,t+1} = c − λ_t ∇_y g_i(x, c),     c = a_i y_{i,t} + Σ_j w_ij ỹ_{j,t}

    Without Lipschitz constants, no sensitivity is proved.

    Reference: X. Lian et al., NeurIPS 2017 (decentralised SGD).
    """

    protocol = "as_published"

    momentum: float = 0.0
    local_steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("momentum", "local_steps"):
            if getattr(self, key):
                raise dp.InputError(f"algorithm.{key}: the papers' form has none. Leave it out.")

    def step(
        self, t: int, dataset: dp.LocalDataset, s: one_level.OneLevelState
    ) -> dp.GossipSteps[one_level.OneLevelState]:
        _, neighbour_sum = yield dp.Gossip(y=s.y)
        combined = (1.0 - dataset.neighbour_weight) * s.y + neighbour_sum.y
        return s._replace(y=combined - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, combined))

    init, planned_releases = _begin, _plan


def _series(
    program: vrdsbo.Vrdsbo | spdb.Spdb, batches: Sequence[dp.Batch], x: dp.Value, y: dp.Value
) -> dp.GossipSteps[dp.Value]:
    yield from ()  # The series is not sent.
    return solve_unreleased(batches, x, y, program.smoothness)


@final
class PublishedVrdsbo(PublishedGossip, vrdsbo.Vrdsbo):
    """The fields of `Vrdsbo`, with noiseless own values and series.

    The recursion is that of `vrdsbo`, where P v = a_i v_i + Σ_j w_ij ṽ_j mixes the agent's own noiseless value with
    received values. The Neumann series is not released (`solve_unreleased`). No sensitivity is proved.

    Reference: H. Gao, B. Gu, M. T. Thai, AISTATS 2023 (VRDBO), with noise as in Chen & Wang, ICML 2024, Appendix A.
    """

    releases_per_round, _series = 2, _series

    def _skip_series(self, dataset: dp.LocalDataset) -> dp.GossipSteps[None]:
        yield from ()

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        sizes = {"x": ("x", p), "y": ("y", q), "zf": ("x", p), "zg": ("y", q)}
        return {c: dp.Channel(family, width, _TERMS) for c, (family, width) in sizes.items()}

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan infinite sensitivities after a step on records. Exchange 0 sends x and y, and the last one Z."""
        ends = np.arange(1, public.rounds + 1) * self.releases_per_round
        reads = {c: size.scale > 0.0 and self.averaging.scale > 0.0 for c, size in (("x", self.x), ("y", self.y))}
        trackers = plan_unbounded(public, ends - 1)
        return {**{c: plan_unbounded(public, ends, r) for c, r in reads.items()}, "zf": trackers, "zg": trackers}


@final
class PublishedSpdb(PublishedGossip, spdb.Spdb):
    """The fields of `Spdb`, with noiseless own values and series.

    The steps are those of `spdb` at the agent's own noiseless x and y. The Neumann series is not released
    (`solve_unreleased`). y is published, and no agent reads it. No sensitivity is proved.

    Reference: S. Lu et al., "Decentralized Bilevel Optimization for Personalized Client Learning", ICASSP 2022 (SPDB),
    with the limits in `spdb`.
    """

    releases_per_round, _series = 1, _series

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        return {"x": dp.Channel("x", p, _TERMS), "y": dp.Channel("y", q, _TERMS)}

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan infinite sensitivities after a step on records. The single exchange sends x and y."""
        ends = np.arange(1, public.rounds + 1) * self.releases_per_round
        return {c: plan_unbounded(public, ends, step.scale > 0.0) for c, step in (("x", self.x), ("y", self.y))}


@final
class PublishedBsa(bsa.Bsa):
    """The fields and steps of `Bsa`, without clipping.

    The points are public, but the contribution of a record is unbounded. Every answer that reads records has an
    infinite privacy cost, by the formulas of the certified algorithm at an infinite clip.

    Reference: S. Ghadimi and M. Wang, "Approximation Methods for Bilevel Programming", arXiv:1802.02246, 2018.
    """

    protocol = "as_published"
