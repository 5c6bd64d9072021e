"""LDP-DSBO: locally differentially private decentralised stochastic bilevel optimisation (one gossip exchange a round).

With W the mixing matrix (zero row sums, a_i = 1 − |w_ii|), ṽ the released value, f_{i,t} and g_{i,t} the means over the
records that agent i reads in round t, and all right-hand sides at time t, every agent runs

    y_{i,t+1} = a_i y_{i,t} + Σ_j w_ij ỹ_{j,t} − λ_{y,t} ∇_y g_{i,t}
    z_{i,t+1} = a_i z_{i,t} + Σ_j w_ij z̃_{j,t} − λ_{z,t} (∇²_yy g_{i,t} z − ∇_y f_{i,t})
    x_{i,t+1} = a_i x_{i,t} + Σ_j w_ij x̃_{j,t} − λ_{x,t} (∇_x f_{i,t} − ∇²_xy g_{i,t} z)

y tracks the lower solution, z the Hessian-inverse-vector product (Σ ∇²_yy g_i)⁻¹ Σ ∇_y f_i, x the hypergradient.
Noise protects one record of agent i from an adversary that observes all messages. Two protocols differ in the
right-hand side; the messages are the same:

`released` (default, "P1")
    The term a_i v_{i,t} and all gradients use agent i's own *released* ṽ_{i,t}. Given the messages, only clipped means
    depend on records, at public points, so the sensitivity of v_{t+1} is λ_{v,t}·2C/N_t per term. It needs no Lipschitz
    constant and no step-size condition, and does not depend on W. A channel that reads no record needs no noise.
`private` ("P2")
    The consensus term keeps the noiseless v_{i,t}, and gradients are evaluated at ṽ_{i,t}. One record changes v by
    D_{t+1} = |a_i| D_t + λ_{v,t}·2C/N_t (plus the float64 rounding of each round).
In Algorithms 1 and 2 of the paper only received values have noise.

If x is free and sets the strength of the regulariser, each coordinate is bounded above where the regulariser's
curvature reaches 1/max(λ_y, λ_z). Above this bound the steps of y and z overshoot, and with a small budget the noise of
z drives x there. The bound is public, so it has no privacy cost. The paper has no such bound.

Without noise all protocols coincide. One agent (W = 0) runs plain single-loop bilevel descent; on a complete graph with
Metropolis weights all agents hold the same average each round up to their own steps.

Reference: Z. Chen and Y. Wang, "Locally Differentially Private Decentralized Stochastic Bilevel Optimization with
Guaranteed Convergence Accuracy", ICML 2024, PMLR 235, Algorithms 1 and 2, Theorems 4.1 and 4.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS


class LdpDsboState(NamedTuple):
    """State of the agents before noise is added: x (b, p), y (b, q) and z (b, q)."""

    x: dp.Value
    y: dp.Value
    z: dp.Value


@dataclass(frozen=True)
class LdpDsbo(dp.Algorithm):
    """Single-loop bilevel gossip with noisy x, y and z (Chen & Wang, ICML 2024).

    Args:
        x, y, z: step sizes λ.
        protocol: state on the right-hand side (see the module docstring).
    """

    x: dp.StepSize = dp.option("λ_x, of x along the hypergradient")
    y: dp.StepSize = dp.option("λ_y, of y along the lower gradient")
    z: dp.StepSize = dp.option("λ_z, of z, the product of inverse Hessian and gradient")
    protocol: Literal["released", "private"] = dp.option(
        "state: computed at the own released values, or kept without noise", default="released"
    )

    channels = dp.CHANNELS

    @property
    def memoryless(self) -> bool:
        return self.protocol == "released"

    def init(self, dataset: dp.LocalDataset) -> LdpDsboState:
        values = [dataset.start(c, self.start) for c in dp.CHANNELS]
        if self.protocol == "released":
            return LdpDsboState(*values)
        # A private state accumulates every batch, so it carries a bound from the start; a free channel reads none.
        hidden = [dataset.reads_records(c) for c in dp.CHANNELS]
        return LdpDsboState(*(dataset.constant_state(v) if h else v for v, h in zip(values, hidden, strict=True)))

    def step(self, t: int, dataset: dp.LocalDataset, s: LdpDsboState) -> dp.GossipSteps[LdpDsboState]:
        released, neighbour_sum = yield dp.Gossip(x=s.x, y=s.y, z=s.z)
        own_values = released if self.protocol == "released" else s
        if self.protocol == "private":
            own_values = LdpDsboState(*(dataset.remembered_state(t, v) for v in s))
        d = dataset.oracle(t, released.x, released.y, released.z)
        steps = (self.x(t), self.y(t), self.z(t))
        x, y, z = step_along(steps, 1.0 - dataset.neighbour_weight, own_values, neighbour_sum, d)
        return LdpDsboState(dataset.within_steps(x, max(steps[1:])), y, z)

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        terms = {c: tuple(t for t in TERMS if CLIP_OF_TERM[t] == c) for c in dp.CHANNELS}
        return {c: dp.Channel(c, p if c == "x" else q, terms[c]) for c in dp.CHANNELS}

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Compute sensitivities by the formulas of the module docstring."""
        index, keep, out = np.arange(1, public.rounds + 1), 1.0 - public.neighbour_weight, {}
        for channel in dp.CHANNELS:
            step = getattr(self, channel).series(public.rounds)
            uses = [dp.Use(term, step, index - 1) for term in TERMS if CLIP_OF_TERM[term] == channel]
            # A private state keeps earlier batches, so sampling gives no amplification.
            out[channel] = plan = dp.plan_release(public, index, uses, kept=self.protocol == "private")
            if self.protocol == "private":
                out[channel] = plan._replace(
                    sensitivity={
                        split: dp.fading(change, keep, dp.memory_slack(public.stored_counts(split)))
                        for split, change in plan.sensitivity.items()
                    },
                    largest=dp.fading(plan.largest, keep),
                )
        return out


def step_along(
    steps: tuple[float, float, float], a: dp.Array, own_values: Any, neighbour_sum: dp.Bundle, d: Any
) -> LdpDsboState:
    """Compute a·v + Σ_j w_ij ṽ_j − λ_v · (the step of v) for v = x, y, z.

    Args:
        steps: step sizes λ_x, λ_y and λ_z of this round.
        a: 1 − |w_ii|, (b, 1).
        own_values: the agent's own x, y and z.
        neighbour_sum: sums Σ_j w_ij ṽ_j of x, y and z.
        d: averaged terms at the points of the protocol.

    Returns:
        The next x, y and z.
    """
    by_x, by_y, by_z = steps
    return LdpDsboState(
        x=_step(a, own_values.x, neighbour_sum.x, by_x, d.upper_grad_x - d.lower_jvp),
        y=_step(a, own_values.y, neighbour_sum.y, by_y, d.lower_grad_y),
        z=_step(a, own_values.z, neighbour_sum.z, by_z, d.lower_hvp - d.upper_grad_y),
    )


def _step(a: dp.Array, own_value: dp.Value, near: dp.Array, size: float, direction: dp.Value) -> dp.Value:
    """Return a·own + near − size·direction, in few numpy calls if the own value is public."""
    if isinstance(own_value, dp.Bounded):
        return a * own_value + near - size * direction
    if isinstance(direction, dp.Bounded):
        return direction.with_public(a * own_value + near - size * direction.public, -size)
    return a * own_value + near - size * direction


ENTRY = dp.Entry(
    "ldp_dsbo",
    LdpDsbo,
    (dp.Citation("Algorithm and convergence theorem (Theorem 4.1)", "chen2024locally"),),
    display_name="LDP-DSBO",
    proved=True,
)
