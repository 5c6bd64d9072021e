"""Gossip algorithms as their papers print them.

BSA as printed: the server asks as in `bsa`, agents add noise, and nobody clips.

The points are public all the same, so what is missing is a bound on one record: every answer that reads a kind of
record has an infinite price for it, by the formulas of the certified program at an infinite clip.

Reference: S. Ghadimi and M. Wang, "Approximation Methods for Bilevel Programming", arXiv:1802.02246, 2018.

Inverse-Hessian-vector products of the printed forms: the Neumann series of `algorithms.neumann`, kept by the agent.

    v_0 = ∇_y f(x, y),     v_k = v_{k−1} − (1/L) ∇²_yy g(x, y) v_{k−1}   for 0 < k < b,     w = (1/L) Σ_{k<b} v_k

No v_k is released before the next is computed from it, so that products are at private points and nothing bounds what
one record moves them by.

Gradient tracking of the printed forms: an inverse Hessian's product, by iterations whose values agents keep.

    z^{k+1} = a_i z^k + Σ_j w_ij z̃_j^k − γ d^k,    d^{k+1} = a_i d^k + Σ_j w_ij d̃_j^k + r^{k+1} − r^k,    d⁰ = r⁰

with r^k the residual at z^k. Only what comes from neighbours is noised, so that nothing bounds what one record moves.

LDP-DSBO as printed: noise on what is received, and everything that is an agent's own without.

With W the mixing matrix, a_i = 1 − |w_ii|, ṽ what an agent released, and all gradients at the agent's un-noised point:

    v_{i,t+1} = a_i v_{i,t} + Σ_j w_ij ṽ_{j,t} − λ_{v,t} · (the step of v in `ldp_dsbo`)            v = x, y, z

One record moves a private state by what a recursion in the Lipschitz constants of all terms says
(`privacy.private_state`). It is infinite unless those exist, which for hyper-parameter problems needs z and y boxed and
x capped.

Reference: Z. Chen and Y. Wang, "Locally Differentially Private Decentralized Stochastic Bilevel Optimization with
Guaranteed Convergence Accuracy", ICML 2024, PMLR 235, Algorithms 1 and 2.

MA-DSBO as printed: noise on every received vector, own values and all gradients at un-noised points.

The recursion is that of `ma_dsbo` as its paper has it, with S^{k+1} − S^k from a fresh batch for every k:

    z^{k+1} = P z^k − γ_t d^k,     s^{k+1} = H z^{k+1} − b,     d^{k+1} = P d^k + s^{k+1} − s^k

where P v = a_i v_i + Σ_j w_ij ṽ_j mixes the agent's own un-noised value with what it received. Nothing is proven of any
release that has met a record.

Reference: Chen & Wang, ICML 2024, Algorithm 3, where z and d share one schedule; after X. Chen, M. Huang, S. Ma,
K. Balasubramanian, ICML 2023.

DSBO-JHIP as printed: own values un-noised, noise on every received vector and matrix; h is not sent.

The recursion is that of `dsbo_jhip` as its paper has it, with S^{k+1} − S^k from a fresh batch for every k:

    Z^{k+1} = P Z^k − γ_t D^k,     S^{k+1} = H_i Z^{k+1} − J_iᵀ,     D^{k+1} = P D^k + S^{k+1} − S^k

where P V = a_i V_i + Σ_j w_ij Ṽ_j mixes the agent's own un-noised value with what it received, and ∇_y f_i multiplies
(Z^N)ᵀ as it is. Nothing is proven of any release that has met a record.

Reference: X. Chen, M. Huang, S. Ma, "Decentralized Bilevel Optimization", arXiv:2206.05670, 2022; noised on every
message as in Chen & Wang, ICML 2024, Algorithm 3.

GBDSBO as printed: own values un-noised, noise on every received vector and matrix.

The recursion is that of `gbdsbo`, with P v = a_i v_i + Σ_j w_ij ṽ_j of the agent's own un-noised value and what it
received, and all gradients at un-noised points. Nothing is proven of any release that has met a record; x_1 has met
none.

Reference: S. Yang, X. Zhang, M. Wang, "Decentralized Gossip-Based Stochastic Bilevel Optimization over Communication
Networks", NeurIPS 2022; noised on every message as in Chen & Wang, ICML 2024, Algorithm 3.

One level as printed: everything un-noised except what is received.

`ldp_single_level`     y_{i,t+1} = a_i y_{i,t} + Σ_j w_ij ỹ_{j,t} − λ_t ∇_y g_i(x, y_{i,t})
`dp_dsgd`              y_{i,t+1} = c − λ_t ∇_y g_i(x, c),     c = a_i y_{i,t} + Σ_j w_ij ỹ_{j,t}

Nothing can be proven without Lipschitz constants.

References: Chen & Wang, ICML 2024, Appendix G.3; X. Lian et al., NeurIPS 2017 (decentralised SGD).

VRDSBO as printed: x, y, Z^F and Z^G are sent, with noise on what is received, and own values and series without.

The recursion is that of `vrdsbo`, with P v = a_i v_i + Σ_j w_ij ṽ_j of the agent's own un-noised value and what it
received; the Neumann series stays with the agent (`unreleased_series`). Nothing is proven.

Reference: H. Gao, B. Gu, M. T. Thai, AISTATS 2023 (VRDBO); noised as compared with in Chen & Wang, ICML 2024,
Appendix A.

SPDB as printed: noise on what is received only, so that the multipliers add to zero no longer, and drift.

The steps are those of `spdb`, at the agent's own un-noised x and y, with the Neumann series kept by the agent
(`unreleased_series`). y is published, and read by nobody. Nothing is proven.

Reference: after S. Lu et al., "Decentralized Bilevel Optimization for Personalized Client Learning", ICASSP 2022
(SPDB); see `spdb` on what is known of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.gossip.bsa import Bsa
from decentral_dp.algorithms.gossip.dsbo_jhip import DsboJhip, transposed_times
from decentral_dp.algorithms.gossip.dsbo_jhip import State as DsboJhipState
from decentral_dp.algorithms.gossip.gbdsbo import Gbdsbo, correction
from decentral_dp.algorithms.gossip.gbdsbo import State as GbdsboState
from decentral_dp.algorithms.gossip.ldp_dsbo import State, step_along
from decentral_dp.algorithms.gossip.ma_dsbo import D_TERMS, MaDsbo
from decentral_dp.algorithms.gossip.ma_dsbo import U_TERMS as MA_DSBO_U_TERMS
from decentral_dp.algorithms.gossip.ma_dsbo import State as MaDsboState
from decentral_dp.algorithms.gossip.neumann import V_TERMS
from decentral_dp.algorithms.gossip.single_level import DpDsgd, LdpSingleLevel
from decentral_dp.algorithms.gossip.single_level import State as SingleLevelState
from decentral_dp.algorithms.gossip.spdb import U_TERMS as SPDB_U_TERMS
from decentral_dp.algorithms.gossip.spdb import Spdb
from decentral_dp.algorithms.gossip.spdb import State as SpdbState
from decentral_dp.algorithms.gossip.vrdsbo import U_TERMS as VRDSBO_U_TERMS
from decentral_dp.algorithms.gossip.vrdsbo import Vrdsbo
from decentral_dp.algorithms.printed.protocol import PrintedGossip
from decentral_dp.algorithms.protocol import Algorithm, Channel, Planned, Public, StepSize
from decentral_dp.algorithms.sensitivity_rules import before, fading, free_release, grid, nothing_proven
from decentral_dp.bounded import CHANNELS, SPLITS, Array, Split
from decentral_dp.constants.bounded_matrices import transposed, unproven
from decentral_dp.errors import InputError
from decentral_dp.exchange import Gossip, Reply, Value
from decentral_dp.participants.agents import LocalDataset
from decentral_dp.participants.batch import Batch
from decentral_dp.privacy.accounting.private_state import private_state
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS


def solve_unreleased(batches: Sequence[Batch], x: Value, y: Value, smoothness: float) -> Value:
    """Compute w at (x, y).

    Args:
        batches: b of them; v_k is computed from batches[k].
        x: (agents, p).
        y: (agents, q).
        smoothness: L.

    Returns:
        w, (agents, q).

    Sensitivity:
        None is proven, as products are at private points.
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
    keep: Array,
    step: float,
    iterations: int,
    z: Value,
    first: Value,
    residual: Callable[[int, Value], Value],
) -> Generator[Gossip, Reply, Value]:
    """Iterate on z along a tracker of the mean residual, both sent in every exchange.

    Args:
        channels: of z and of d.
        keep: a_i, the agents' own weights.
        step: γ.
        iterations: N.
        z: z⁰.
        first: r⁰, the residual at z⁰.
        residual: k, z^k → r^k, for 0 < k < N.

    Returns:
        z^N.
    """
    of_z, of_d = channels
    last = d = first
    for k in range(iterations):
        _, neighbour_sum = yield Gossip(**{of_z: z, of_d: d})
        z = keep * z + neighbour_sum[of_z] - step * d
        if k < iterations - 1:
            now = residual(k + 1, z)
            d = keep * d + neighbour_sum[of_d] + (now - last)
            last = now
    return z


@final
@dataclass(frozen=True)
class PrintedLdpDsbo(Algorithm):
    """x, y, z: step sizes λ. start: constants, 0 where absent."""

    x: StepSize
    y: StepSize
    z: StepSize

    protocol = "printed"
    channels = CHANNELS

    def init(self, dataset: LocalDataset) -> State:
        # A private state remembers every batch it met, so it is bounded from the start.
        return State(*(dataset.untouched(dataset.start(c, self.start)) for c in CHANNELS))

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        _, neighbour_sum = yield Gossip(x=s.x, y=s.y, z=s.z)
        d = dataset.oracle(t, s.x, s.y, s.z)
        return step_along((self.x(t), self.y(t), self.z(t)), 1.0 - dataset.neighbour_weight, s, neighbour_sum, d)

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        return {c: Channel(c, p if c == "x" else q, tuple(TERMS)) for c in CHANNELS}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """The recursion of the private state, or infinite from the first record on where no constants are known."""
        shares = (public.rounds, public.neighbour_weight.size)
        steps = {c: getattr(self, c) for c in CHANNELS}
        still = [c for c in CHANNELS if steps[c].scale == 0.0]
        if public.constants is None and still:
            # What one record reaches, and when, would be another recursion for every set of variables that rest.
            raise InputError(
                f"algorithm.{still[0]}.scale: got 0, but without problem constants the printed form is priced for "
                "steps above 0 only. Give a step size above 0."
            )
        out: dict[str, dict[Split, Array]] = {c: {} for c in CHANNELS}
        for split in SPLITS:
            if public.constants is None:
                # After one round only the channels that read such records have met one; then it is in everything.
                met = {
                    c: any(k == split and CLIP_OF_TERM[t] == c for t, k in public.reads_records.items())
                    for c in CHANNELS
                }
                for c in CHANNELS:
                    out[c][split] = np.full(shares, np.inf if any(met.values()) else 0.0)
                    out[c][split][0] = np.inf if met[c] else 0.0
                continue
            change = private_state(
                public.constants, steps, public.neighbour_weight, public.averaged, public.rounds, split
            )
            for v, c in enumerate(CHANNELS):
                out[c][split] = change[1:, :, v]
        ones, unbounded = np.ones(shares), np.full(shares, np.inf)
        index = np.arange(1, public.rounds + 1)
        return {c: Planned(out[c], dict.fromkeys(SPLITS, ones), unbounded, index) for c in CHANNELS}


_MET = (*MA_DSBO_U_TERMS, "lower_grad_y", *D_TERMS)


@final
class PrintedMaDsbo(PrintedGossip, MaDsbo):
    """The fields of `MaDsbo`, with own values that are never noised."""

    def init(self, dataset: LocalDataset) -> MaDsboState:
        return super().init(dataset)._replace(r=dataset.untouched(dataset.public(0.0, dataset.p)))

    def step(self, t: int, dataset: LocalDataset, s: MaDsboState) -> Generator[Gossip, Reply, MaDsboState]:
        a = 1.0 - dataset.neighbour_weight
        _, x_near = yield Gossip(x=s.x)
        y, y_near = yield from self.descend(t, dataset, s.x, s.y, s.y_near)

        at = dataset.batch(t, self.inner, kept=True)
        first = -at.upper_grad_y(s.x, y)

        def residual(k: int, z: Value) -> Value:
            at = dataset.batch(t, self.inner + k, kept=True)
            return at.lower_hvp(s.x, y, z) - at.upper_grad_y(s.x, y)

        start = dataset.public(0.0, dataset.q)
        z = yield from track_unreleased(("z", "d"), a, self.z(t), self.inverse, start, first, residual)

        at = dataset.batch(t, self.inner + self.inverse, kept=True)
        u = at.upper_grad_x(s.x, y) - at.lower_jvp(s.x, y, z)
        alpha = self.x(t)
        return MaDsboState(
            x=a * s.x + x_near.x - alpha * s.r,
            y=y,
            z=z,
            r=(1.0 - alpha) * dataset.remembered(t, s.r) + alpha * u,
            y_near=y_near,
        )

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        families = {"x": "x", "y": "y", "d": "z", "z": "z"}
        return {c: Channel(family, p if c == "x" else q, _MET) for c, family in families.items()}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """Infinite once a record was met, by a step that is not zero; x_1 has met none, z⁰ = 0 is always public.

        Exchange 0 sends x, 1 … K send y¹ … y^K, the last N send z and d of k = 0 … N−1. What is published at the end is
        noised once more, y and z included.
        """
        rounds, e, inner = public.rounds, self.releases_per_round, self.inner
        x_index = np.arange(1, rounds + 1) * e
        y_index, _ = grid(rounds, e, range(1, 1 + inner))
        d_index, _ = grid(rounds, e, range(1 + inner, e))
        last, alpha = x_index[-1:], self.x.scale > 0.0
        z_index = d_index.reshape(rounds, self.inverse)[:, 1:].reshape(-1)
        return {
            "x": nothing_proven(public, x_index, (np.arange(rounds) > 0) & alpha),
            "y": nothing_proven(public, np.concatenate([y_index, last]), self.y.scale > 0.0),
            "z": nothing_proven(public, np.concatenate([z_index, last]), self.z.scale > 0.0),
            "d": nothing_proven(public, d_index),
        }


@final
class PrintedDsboJhip(PrintedGossip, DsboJhip):
    """The fields of `DsboJhip`, with own values that are never noised."""

    def step(self, t: int, dataset: LocalDataset, s: DsboJhipState) -> Generator[Gossip, Reply, DsboJhipState]:
        a, p, q = 1.0 - dataset.neighbour_weight, dataset.p, dataset.q
        _, x_near = yield Gossip(x=s.x)
        y, y_near = yield from self.descend(t, dataset, s.x, s.y, s.y_near)

        at = dataset.batch(t, self.inner, kept=True)
        upper = at.upper_grad_y(s.x, y)
        first = -transposed(at.lower_jacobian(s.x, y), p, q)

        def residual(k: int, z: Value) -> Value:
            at = dataset.batch(t, self.inner + k, kept=True)
            return at.lower_hessian_product(s.x, y, z) - transposed(at.lower_jacobian(s.x, y), p, q)

        start = dataset.public(0.0, q * p)
        z = yield from track_unreleased(("Z", "D"), a, self.z(t), self.inverse, start, first, residual)

        at = dataset.batch(t, self.inner + self.inverse, kept=True)
        direction = at.upper_grad_x(s.x, y) - unproven(transposed_times, z, upper)
        return DsboJhipState(x=a * s.x + x_near.x - self.x(t) * direction, y=y, y_near=y_near)

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        tracked = ("lower_jacobian",) if self.inverse == 1 else ("lower_jacobian", "lower_hessian_product")
        met = ("upper_grad_x", "lower_grad_y", *tracked, "upper_grad_y")
        sizes = {"x": ("x", p), "y": ("y", q), "Z": ("z", q * p), "D": ("z", q * p)}
        return {c: Channel(family, width, met) for c, (family, width) in sizes.items()}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """Infinite as soon as a record was met; a step of zero meets none, and Z⁰ = 0 is public in every round.

        Exchange 0 sends x, 1 … K send y¹ … y^K, the last N send Z and D of k = 0 … N−1. What is published at the end is
        noised once more, y included.
        """
        rounds, e = public.rounds, self.releases_per_round
        keep = 1.0 - public.neighbour_weight

        def met(step: Array) -> Array:
            return np.where(np.broadcast_to(step[:, None], (step.size, keep.size)) > 0.0, np.inf, 0.0)

        y_index, y_t = grid(rounds, e, range(1, 1 + self.inner))
        y = fading(met(self.y.series(rounds)[y_t]), np.broadcast_to(keep, (y_t.size, keep.size)))
        x = fading(met(self.x.series(rounds)), np.broadcast_to(keep, (rounds, keep.size)))
        z_index, z_t = grid(rounds, e, range(2 + self.inner, e))
        d_index, d_t = grid(rounds, e, range(1 + self.inner, e))
        x_index = np.arange(1, rounds + 1) * e
        return {
            "x": _private(x, x_index),
            "y": _private(np.concatenate([y, y[-1:]]), np.concatenate([y_index, x_index[-1:]])),
            "Z": _private(met(self.z.series(rounds)[z_t]), z_index) if z_index.size else free_release(public, d_index),
            "D": _private(np.full((d_t.size, keep.size), np.inf), d_index),
        }


def _private(sensitivity: Array, index: NDArray[np.int64]) -> Planned:
    """Releases of a private state, of which nothing else is known."""
    return Planned(
        dict.fromkeys(SPLITS, sensitivity),
        dict.fromkeys(SPLITS, np.ones_like(sensitivity)),
        sensitivity + np.inf,
        index,
    )


@final
class PrintedGbdsbo(PrintedGossip, Gbdsbo):
    """The fields of `Gbdsbo`, with own values that are never noised."""

    def init(self, dataset: LocalDataset) -> GbdsboState:
        x, y = self.starts(dataset)
        widths = {c: channel.width for c, channel in self.releases(dataset.p, dataset.q).items() if c in self.terms}
        return GbdsboState(x, y, {c: dataset.untouched(dataset.public(0.0, width)) for c, width in widths.items()})

    def step(self, t: int, dataset: LocalDataset, s: GbdsboState) -> Generator[Gossip, Reply, GbdsboState]:
        _, neighbour_sum = yield Gossip(x=s.x, y=s.y, **s.estimates)
        own: dict[str, Value] = {"x": s.x, "y": s.y, **s.estimates}
        a, beta = 1.0 - dataset.neighbour_weight, self.averaging(t)
        mixed = {c: a * v + neighbour_sum[c] for c, v in own.items()}

        batch = dataset.batch(t, kept=True)
        seen = {
            "s": batch.upper_grad_x(s.x, s.y),
            "h": batch.upper_grad_y(s.x, s.y),
            "u": batch.lower_jacobian(s.x, s.y),
        }
        hessians = [f"v{j}" for j in range(1, self.inverse + 1)]
        for j, c in enumerate(hessians):
            seen[c] = dataset.batch(t, 1 + j, kept=True).lower_hessian(s.x, s.y)

        def product(u: Array, h: Array, *v: Array) -> Array:
            return correction(self.smoothness, u, h, *v)

        by_y = unproven(product, own["u"], own["h"], *(own[c] for c in hessians))
        return GbdsboState(
            x=mixed["x"] - self.x(t) * (own["s"] - by_y),
            y=mixed["y"] - self.y(t) * batch.lower_grad_y(s.x, s.y),
            estimates={c: (1.0 - beta) * mixed[c] + beta * seen[c] for c in self.terms},
        )

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        sent = super().releases(p, q)
        met = tuple(dict.fromkeys(t for channel in sent.values() for t in channel.terms))
        return {c: channel._replace(terms=met) for c, channel in sent.items()}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """Infinite as soon as a record was met; a step of zero meets none.

        x and y are released with the indices 1 … T, the estimates are sent for the last time with T − 1.
        """
        index = np.arange(1, public.rounds + 1)
        shape = (public.rounds, public.neighbour_weight.size)
        own = np.broadcast_to(1.0 - public.neighbour_weight, shape)
        x, y, beta = (
            np.broadcast_to(s.series(public.rounds)[:, None], shape) for s in (self.x, self.y, self.averaging)
        )

        def accumulated(step: Array, keep: Array) -> Array:
            return fading(np.where(step > 0.0, np.inf, 0.0), keep)

        estimates = accumulated(beta, own * (1.0 - beta))
        sensitivity = {"x": accumulated(x * np.minimum(before(estimates), 1.0), own), "y": accumulated(y, own)}
        if public.rounds > 1:
            sensitivity |= dict.fromkeys(self.terms, estimates[:-1])
        return {
            c: Planned(dict.fromkeys(SPLITS, d), dict.fromkeys(SPLITS, np.ones_like(d)), d + np.inf, index[: len(d)])
            for c, d in sensitivity.items()
        }


def _begin(program: LdpSingleLevel | DpDsgd, dataset: LocalDataset) -> SingleLevelState:
    return SingleLevelState(dataset.start("x", program.start), dataset.untouched(dataset.start("y", program.start)))


def _mixed(dataset: LocalDataset, s: SingleLevelState) -> Generator[Gossip, Reply, Value]:
    """a_i y_i + Σ_j w_ij ỹ_j, with the agent's own un-noised value."""
    _, neighbour_sum = yield Gossip(y=s.y)
    mixed: Value = (1.0 - dataset.neighbour_weight) * s.y + neighbour_sum.y
    return mixed


def _planned(program: LdpSingleLevel | DpDsgd, public: Public) -> dict[str, Planned]:
    """x is published as it is; of y nothing is proven once a step has met a record."""
    indices = np.arange(1, public.rounds + 1)
    return {"x": free_release(public, indices[-1:]), "y": nothing_proven(public, indices, program.y.scale > 0.0)}


@final
class PrintedLdpSingleLevel(LdpSingleLevel):
    """The fields of `LdpSingleLevel`, with an own y that is never noised."""

    protocol = "printed"

    def step(self, t: int, dataset: LocalDataset, s: SingleLevelState) -> Generator[Gossip, Reply, SingleLevelState]:
        mixed = yield from _mixed(dataset, s)
        return s._replace(y=mixed - self.y(t) * dataset.batch(t).lower_grad_y(s.x, s.y))

    init, planned_releases = _begin, _planned


@final
class PrintedDpDsgd(DpDsgd):
    """The fields of `DpDsgd`, with an own y that is never noised."""

    protocol = "printed"

    def step(self, t: int, dataset: LocalDataset, s: SingleLevelState) -> Generator[Gossip, Reply, SingleLevelState]:
        combined = yield from _mixed(dataset, s)
        return s._replace(y=combined - self.y(t) * dataset.batch(t).lower_grad_y(s.x, combined))

    init, planned_releases = _begin, _planned


_VRDSBO_MET = (*VRDSBO_U_TERMS, "lower_grad_y", *V_TERMS)


@final
class PrintedVrdsbo(PrintedGossip, Vrdsbo):
    """The fields of `Vrdsbo`, with own values and series that are never noised."""

    releases_per_round = 2

    def _series(self, at: Batch, x: Value, y: Value) -> Generator[Gossip, Reply, Value]:
        yield from ()  # Nothing of it is sent.
        return solve_unreleased([at] * self.inverse, x, y, self.smoothness)

    def _no_series(self, dataset: LocalDataset) -> Generator[Gossip, Reply, None]:
        yield from ()

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        sizes = {"x": ("x", p), "y": ("y", q), "zf": ("x", p), "zg": ("y", q)}
        return {c: Channel(family, width, _VRDSBO_MET) for c, (family, width) in sizes.items()}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """Exchange 0 sends x and y, the last Z; nothing is proven of either once a step has met a record."""
        ends = np.arange(1, public.rounds + 1) * self.releases_per_round
        met = {c: size.scale > 0.0 and self.averaging.scale > 0.0 for c, size in (("x", self.x), ("y", self.y))}
        trackers = nothing_proven(public, ends - 1)
        return {**{c: nothing_proven(public, ends, m) for c, m in met.items()}, "zf": trackers, "zg": trackers}


_SPDB_MET = (*SPDB_U_TERMS, "lower_grad_y", *V_TERMS)


@final
class PrintedSpdb(PrintedGossip, Spdb):
    """The fields of `Spdb`, with own values and series that are never noised."""

    releases_per_round = 1

    def step(self, t: int, dataset: LocalDataset, s: SpdbState) -> Generator[Gossip, Reply, SpdbState]:
        _, neighbour_sum = yield Gossip(x=s.x, y=s.y)
        distance = dataset.neighbour_weight * s.x - neighbour_sum.x
        multiplier = s.multiplier + self.dual(t) * distance

        batches = [dataset.batch(t, k) for k in range(self.inverse + 1)]
        w = solve_unreleased(batches[:-1], s.x, s.y, self.smoothness)
        at = batches[-1]
        u = at.upper_grad_x(s.x, s.y) - at.lower_jvp(s.x, s.y, w)
        return SpdbState(
            x=s.x - self.x(t) * (u + multiplier + self.penalty * distance),
            y=s.y - self.y(t) * at.lower_grad_y(s.x, s.y),
            multiplier=multiplier,
        )

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        return {"x": Channel("x", p, _SPDB_MET), "y": Channel("y", q, _SPDB_MET)}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """One exchange sends x and y; nothing is proven of either once its step has met a record."""
        ends = np.arange(1, public.rounds + 1) * self.releases_per_round
        return {c: nothing_proven(public, ends, step.scale > 0.0) for c, step in (("x", self.x), ("y", self.y))}


@final
class PrintedBsa(Bsa):
    """The fields and steps of `Bsa`, for answers that are not clipped."""

    protocol = "printed"
