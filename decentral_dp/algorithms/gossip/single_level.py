"""One level: min_y (1/m) Σ_i g_i(x, y) at a constant x, by gossip and local gradient steps.

With ỹ what an agent released, and a_i = 1 − |w_ii|:

`ldp_single_level` (combine, then adapt: Algorithm 2 of Chen & Wang without its upper level, their Appendix G.3)
    y_{i,t+1} = a_i ỹ_{i,t} + Σ_j w_ij ỹ_{j,t} − λ_t ∇_y g_i(x, ỹ_{i,t})
`dp_dsgd` (adapt, then combine: decentralised SGD, each local step noised before it is sent)
    y_{i,t+1} = c_{i,t} + β (c_{i,t} − c_{i,t−1}) − λ_t ∇_y g_i(x, c_{i,t}),
    c_{i,t+1} = a_i ỹ_{i,t+1} + Σ_j w_ij ỹ_{j,t+1},      c_{i,−1} = c_{i,0}
    β, `heavy_ball`, is 0 by default. Its difference is one of released values, and so it costs no privacy; in effect it
    makes steps 1/(1 − β) times as long.
    With a decay γ in `adaptive` each weight has a step of its own, by what the agent itself released: y set out from
    a_t = c_t + β (c_t − c_{t−1}), so that d = a_{t−1} − ỹ_t is the step with noise, of a public variance σ², and
        v_t = γ v_{t−1} + (1 − γ) (d² − σ²),      s_k = max(v_{t,k}/(1 − γᵗ), e_t),      v_0 = 0,
        c_t is c_t as above and (1 − √(mean(s)/s_k)) d_k,      e_t² = 2σ⁴ (1 − γ)(1 + γᵗ)/((1 + γ)(1 − γᵗ)).
    As E[d²] is the square of the step without noise and σ², v/(1 − γᵗ) estimates that square; e is its standard error
    where d is noise alone, so that weights of which no more is known have equal steps. It is Adam's second moment, with
    the noise subtracted as in DP-AdamBC; the mean is there for λ to stay the step of a usual weight. Neighbours hear of
    the correction a round later: over the network mean(c) moves by the mean of √(mean(s)/s) d. All of it is a function
    of released values and costs no privacy. Agents whose records differ settle where the sum of their adapted steps is
    0, which is another point than the minimiser. t counts released steps.
    With `centring` the problem reads features from a centre x (`problems.training`): x_{i,1} is the clipped mean of the
    features of all of agent i's records, whatever a round reads, released with noise of its own once, and
    x_{i,t+1} = a_i x̃_{i,t} + Σ_j w_ij x̃_{j,t} for some rounds, then once multiplied by
    max(0, 1 − ν²/‖x‖²), ν² what is expected of its noise (James & Stein 1961), and sent as it stays: functions of what
    was released. Gradients are taken at the x of their round.
    With K `local_steps` a round goes on from ỹ by K − 1 further steps, each released to oneself at its price. Where all
    that an agent holds is protected (privacy.unit = "agent") they are taken without noise from c to y_K, and
    y_{i,t+1} = c_{i,t} + β (c_{i,t} − c_{i,t−1}) + clip(y_K − c_{i,t}) is the release of the round, as in DP-FedAvg.

`choco` (CHOCO-SGD: gossip on replicas ŷ_i of agent i that compressed differences move)
    q_i = Q(ỹ_{i,t} − ŷ_i) is sent,     ŷ_i ← ŷ_i + q_i
    c_{i,t} = ỹ_{i,t} + γ Σ_j w_ij (ŷ_j − ŷ_i),     y_{i,t+1} = c_{i,t} − λ_t ∇_y g_i(x, c_{i,t})
    with Q the quantiser and γ the consensus step of `topology.compression`. The first line and c are the exchange
    itself: any algorithm mixes to this c where messages are compressed. Noise comes first, then compression: q, ŷ and c
    are functions of released values, and cost nothing. Without noise it converges as decentralised SGD does, if γ is
    small enough for Q. With noise the differences are mostly noise, of which each keeps a part for later rounds.
`alone`, `central` (DP-SGD without a network: what collaboration and trust are worth)
    `dp_dsgd` of agents without edges, and of one agent, a server that all agents trust, that has all records. A record
    moves a release of `central` by λ_t·2C/N_t with N_t the records of all agents. Both account every step.

Noise protects one train record of agent i: given all messages only the clipped mean gradient depends on it, at a public
point, so a release moves by λ_t·2C/N_t. No validation record is read, and x is never sent.

Without noise both converge to the common minimiser if λ_t → 0; with a constant step to within O(λ) of it where the g_i
differ. One agent runs gradient descent.

References: Chen & Wang, "Locally Differentially Private Decentralized Stochastic Bilevel Optimization with Guaranteed
Convergence Accuracy", ICML 2024, Appendix G.3; X. Lian et al., "Can Decentralized Algorithms Outperform Centralized
Algorithms?", NeurIPS 2017 (decentralised SGD); A. Koloskova, S. Stich, M. Jaggi, "Decentralized Stochastic Optimization
and Gossip Algorithms with Compressed Communication", ICML 2019, Algorithm 2; M. Abadi et al., "Deep Learning with
Differential Privacy", CCS 2016 (DP-SGD); Q. Tang, F. Shpilevskiy, M. Lécuyer, "DP-AdamBC: Your DP-Adam Is
Actually DP-SGD (Unless You Apply Bias Correction)", AAAI 2024; X. Chen, B. Karimi, W. Zhao, P. Li, "On the Convergence
of Decentralized Adaptive Gradient Methods", ACML 2022 (second moments of each agent's own, and where they settle).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms import vocabulary as dp

# Instead of a mean of squares of 0.
_TINY = 1e-300


class OneLevelState(NamedTuple):
    """x: (b, p), constant and public. y: (b, q): before noise."""

    x: dp.Array
    y: dp.Value


@dataclass(frozen=True)
class OneLevel(dp.Derived, Protocol):
    """Gossip on y alone, at an x that is published as it is. y: step size λ."""

    y: dp.StepSize = dp.option("λ, of y along the lower gradient")

    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {"y": {"lower_grad_y": "y"}}

    memoryless: ClassVar[bool] = True
    one_mean: ClassVar[bool] = True

    def init(self, dataset: dp.LocalDataset) -> Any:
        return OneLevelState(dataset.start("x", self.start), dataset.start("y", self.start))


class LdpSingleLevel(OneLevel):
    """The lower level alone: gossip first, then a local step (Chen & Wang, Appendix G.3)."""

    def step(self, t: int, dataset: dp.LocalDataset, s: OneLevelState) -> dp.GossipSteps[OneLevelState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        y = self.own_value(released.y, s.y)
        mixed = (1.0 - dataset.neighbour_weight) * y + neighbour_sum.y
        return s._replace(y=mixed - self.y(t) * dataset.batch(t).lower_grad_y(s.x, y))


class Choco(OneLevel):
    """Decentralised SGD on compressed differences with error feedback (CHOCO-SGD; Koloskova, Stich & Jaggi, 2019)."""

    def step(self, t: int, dataset: dp.LocalDataset, s: OneLevelState) -> dp.GossipSteps[OneLevelState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        combined = (1.0 - dataset.neighbour_weight) * released.y + neighbour_sum.y
        return OneLevelState(s.x, combined - self.y(t) * dataset.batch(t).lower_grad_y(s.x, combined))


class DpDsgdState(NamedTuple):
    """x: (b, p), public but for round 1 of centring, where it is before noise. y: (b, q): before noise.

    last_mixed: (b, q), c of the round before, public. ahead, second: (b, q), a and v, public; of no width without
    adaptive steps.
    """

    x: dp.Value
    y: dp.Value
    last_mixed: dp.Array
    ahead: dp.Array
    second: dp.Array


def adapted_share(
    second: dp.Array, step: dp.Array, variance: dp.Array | float, decay: float, count: int
) -> tuple[dp.Array, dp.Array]:
    """Weigh released steps by their second moments.

    Args:
        second: (b, q) v before them.
        step: (b, q) d, with noise.
        variance: (b, 1) σ² of this noise.
        decay: γ.
        count: how many steps were released with these.

    Returns:
        v, and what each step is to be multiplied by, √(mean(s)/s), both (b, q).

    Example:
        >>> _, share = adapted_share(np.zeros((1, 2)), np.array([[0.1, 0.7]]), 0.0, 0.9, 1)
        >>> share.round(3).tolist()
        [[5.0, 0.714]]
    """
    second = decay * second + (1.0 - decay) * (np.square(step) - variance)
    left = decay**count
    error = variance * np.sqrt(2.0 * (1.0 - decay) * (1.0 + left) / ((1.0 + decay) * (1.0 - left)))
    square = np.maximum(second / (1.0 - left), error)
    mean = square.mean(axis=1, keepdims=True)
    # Without noise a weight that never moved has a square of 0.
    return second, np.sqrt(mean / np.where(square > 0.0, square, np.maximum(mean, _TINY)))


def feature_mean_release(public: dp.Public, index: NDArray[np.int64]) -> dp.Planned:
    """Plan the release of the mean of the features of all records. index: (1,)."""
    return dp.plan_release(public.unsampled(), index, [dp.Use("feature_mean", np.ones(1), np.zeros_like(index))])


@dataclass(frozen=True)
class DpDsgd(OneLevel):
    """Decentralised DP-SGD: a local noised step, then gossip; learns most where nothing is tuned."""

    heavy_ball: float = dp.option("β of the heavy ball, on released values", default=0.0, at_least=0.0, below=1.0)
    local_steps: int | None = dp.option(
        'K, steps between two exchanges, each noised and priced; where privacy.unit is "agent", all of them without '
        "noise, and their difference is clipped and noised as one",
        default=None,
        unit="steps",
        example="5",
        at_least=1,
    )
    adaptive: float = dp.option(
        "γ, decay of the second moment of released steps, by whose root the step of each weight is divided; 0: none",
        default=0.0,
        example="0.999",
        at_least=0.0,
        below=1.0,
    )
    centring: bool = dp.option(
        "whether agents first release the mean of their features, with noise, and a linear model reads features less "
        "the mean of these",
        default=False,
    )
    # Whether a round's steps are one release.
    block: bool = dp.internal(default=False)
    # In how many rounds the features' means of agents are sent; 0 where features have no centre.
    centring_rounds: int = dp.internal(default=0)
    # ν².
    centre_noise: float = dp.internal(default=0.0)

    @property
    def steps(self) -> int:
        """K."""
        return self.local_steps or 1

    @property
    def releases_per_round(self) -> int:
        return 1 if self.block else self.steps

    @property
    def subtracts_variance(self) -> bool:
        return self.adaptive > 0.0

    def for_unit(self, unit: dp.Unit) -> DpDsgd:
        return replace(self, block=unit.records is None and self.local_steps is not None)

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        channels = super().releases(p, q)
        return channels | {"x": dp.Channel("x", p, ("feature_mean",))} if self.centring_rounds else channels

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        indices = np.arange(1, public.rounds * self.releases_per_round + 1)
        if self.block:
            sent = dp.plan_block(public, indices, "lower_grad_y")
        else:
            t = (indices - 1) // self.steps
            sent = dp.plan_release(public, indices, [dp.Use("lower_grad_y", self.y.series(public.rounds)[t], t)])
        x = dp.free_release(public, indices[-1:])
        if self.centring_rounds:
            first = indices[self.releases_per_round - 1 : self.releases_per_round]
            x = feature_mean_release(public, first)
        return {"x": x, "y": sent}

    def init(self, dataset: dp.LocalDataset) -> DpDsgdState:
        start = dataset.start("y", self.start)
        second = dataset.public(0.0, dataset.q if self.adaptive else 0)
        return DpDsgdState(dataset.start("x", self.start), start, start, start if self.adaptive else second, second)

    def step(self, t: int, dataset: dp.LocalDataset, s: DpDsgdState) -> dp.GossipSteps[DpDsgdState]:
        x = s.x
        if 0 < t <= self.centring_rounds:
            released, neighbour_sum = yield dp.Gossip(x=x, y=s.y)
            # In the last of these rounds as it was sent, so that what is published is what gradients are taken at.
            x = released.x
            if t < self.centring_rounds:
                x = (1.0 - dataset.neighbour_weight) * x + neighbour_sum.x
            if t == self.centring_rounds - 1:
                x = self.shortened(x)
        else:
            released, neighbour_sum = yield dp.Gossip(y=s.y)
        # In place: of a network every further array of all agents' weights takes as long as a product.
        combined = (1.0 - dataset.neighbour_weight) * released.y
        combined += neighbour_sum.y
        second = s.second
        if self.adaptive and t:
            change, second = self._correction(dataset, t, 0, s.ahead - released.y, second)
            combined += change
        ahead = combined + self.heavy_ball * (combined - s.last_mixed) if self.heavy_ball else combined
        next_ahead = ahead if self.adaptive else s.ahead
        if self.block:
            local_change = dataset.local_steps(t, x, combined, self.steps, self.y(t))
            return DpDsgdState(x, ahead + local_change, combined, next_ahead, second)
        y = ahead + -self.y(t) * dataset.batch(t).lower_grad_y(x, combined)
        for k in range(1, self.steps):
            # A release to itself: neighbours go on from the last one of a round alone.
            own = (yield dp.Gossip(y=y)).released.y
            if self.adaptive:
                change, second = self._correction(dataset, t, k, next_ahead - own, second)
                next_ahead = own = own + change
            y = own - self.y(t) * dataset.batch(t, draw=k).lower_grad_y(x, own)
        if self.centring_rounds and t == 0:
            x = dataset.feature_mean()
        return DpDsgdState(x, y, combined, next_ahead, second)

    def shortened(self, x: dp.Array) -> dp.Array:
        """Means with noise, (b, p), times max(0, 1 − ν²/‖x‖²)."""
        if not self.centre_noise:
            return x
        length = np.square(x).sum(axis=1, keepdims=True)
        shorter: dp.Array = np.maximum(0.0, 1.0 - self.centre_noise / np.maximum(length, self.centre_noise)) * x
        return shorter

    def _correction(
        self, dataset: dp.LocalDataset, t: int, k: int, step: dp.Array, second: dp.Array
    ) -> tuple[dp.Array, dp.Array]:
        """What is added to a released value for its step to be an adapted one, and v; k: steps of the round before."""
        variance = dataset.noise_variance("y", t)[dataset.agents, None]
        if (online := dataset.network.online(t)) is not None:
            # Who was away released no step.
            step, variance = (np.where(online[dataset.agents, None], part, 0.0) for part in (step, variance))
        second, share = adapted_share(second, step, variance, self.adaptive, t * self.releases_per_round + k)
        return (1.0 - share) * step, second


class Alone(DpDsgd):
    """Every agent by itself, without messages: DP-SGD on its own records."""


class Central(DpDsgd):
    """A server that all agents trust with their records: DP-SGD on the pooled records, noise once."""


_DP_SGD = (dp.Citation("DP-SGD", "abadi2016deep"),)
ENTRIES = (
    dp.Entry(
        "ldp_single_level",
        LdpSingleLevel,
        (dp.Citation("Algorithm (its lower level alone, Appendix G.3)", "chen2024locally"),),
    ),
    dp.Entry("choco", Choco, (dp.Citation("CHOCO-SGD, here with noise", "koloskova2019decentralized"),)),
    dp.Entry("dp_dsgd", DpDsgd, (dp.Citation("Decentralised SGD, here with noise", "lian2017can"),)),
    dp.Entry("alone", Alone, _DP_SGD, network="isolated"),
    dp.Entry("central", Central, _DP_SGD, network="pooled"),
)
