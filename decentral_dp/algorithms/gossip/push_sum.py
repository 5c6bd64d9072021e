"""Push-sum: min_y (1/m) Σ_i g_i(x, y) over a directed graph, by stochastic gradient push at a constant x.

With ũ_i the release of agent i, a_ij the share of j's value that i receives, a_jj the share that j keeps
(Σ_i a_ij = 1), and λ_t, C_t public schedules of step and clip:

    c_{i,t} = Σ_j a_ij(t) ũ_{j,t},      w_{i,t+1} = Σ_j a_ij(t) w_{j,t},      w_{i,0} = 1,
    z_{i,t} = c_{i,t}/w_{i,t+1},        u_{i,t+1} = c_{i,t} − λ_t clip_{C_t} ∇_y g_i(x, z_{i,t}).

The published and scored value is z = ũ/w, the numerator over the weight. One message contains both, u with noise and w
without: w is a public function of the graph.

Σ_i w_i = m always, and only gradients and noise change Σ_i u_i: each column of A sums to 1 in every round, because the
sender keeps the share of a lost message. An agent that is offline continues from its last mixture c and weight, both
public, and takes a step from there. So without gradients and noise every z_i converges to the mean of the starts, for
any losses. Otherwise u and w would both shrink, and steps λ/w would grow. On a graph with symmetric weights and without
losses w = 1, and this is dp_dsgd. One agent runs gradient descent.

Noise protects one train record of agent i: given all messages c, w and so z are public, and u_{i,t+1} depends on
records only through the clipped mean gradient of its round, so its sensitivity is λ_t·2C_t/N_t. Division by w, a public
positive number, has no privacy cost (docs/proofs/39-push-sum.md).

References: M. Assran et al., "Stochastic Gradient Push for Distributed Deep Learning", ICML 2019; Z. Zhu et al.,
"PrivSGP-VR: Differentially Private Variance-Reduced Stochastic Gradient Push with Tight Utility Bounds", IJCAI 2024,
arXiv 2405.02638; "Dyn-D²P", arXiv 2505.06651. PrivSGP-VR adds noise to messages. Its variance reduction is omitted,
because a noiseless estimate from earlier rounds is a private state without a known ε. Dyn-D²P has data-dependent
schedules of clip and noise; here they have public exponents. Only the abstracts of both were read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp


class PushSumState(NamedTuple):
    """State of the agents.

    Args:
        x: constant public upper variable, (b, p).
        y: numerator u before noise, (b, q).
        w: public weight of the numerator, (b, 1).
        last_mixed: public c of the previous round, (b, q).
    """

    x: dp.Array
    y: dp.Value
    w: dp.Array
    last_mixed: dp.Array


@dataclass(frozen=True)
class PushSum(dp.Derived):
    """Stochastic gradient push: noisy numerators over public weights, on directed graphs."""

    learning_rate: dp.StepSize = dp.option("λ, of the model along the gradient")

    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {"y": {"lower_grad_y": "learning_rate"}, "w": {}}
    WIDTHS: ClassVar[Mapping[str, int]] = {"w": 1}

    channels: ClassVar[tuple[str, ...]] = ("x", "y", "w")

    memoryless = True
    one_mean = True

    conserves_mass = True

    def init(self, dataset: dp.LocalDataset) -> PushSumState:
        x, y = self.starts(dataset)
        return PushSumState(x, y, dataset.public(1.0, 1), y)

    def solution(self, values: Mapping[str, dp.Array]) -> dict[str, dp.Array]:
        """Return z = u/w, (b, q), from the numerators u (b, q) and the public weights w (b, 1)."""
        return {"y": values["y"] / values["w"]}

    def step(self, t: int, dataset: dp.LocalDataset, s: PushSumState) -> dp.GossipSteps[PushSumState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y, w=s.w)
        total = dataset.kept_weight * released.y + neighbour_sum.y
        w = dataset.kept_weight * released.w + neighbour_sum.w
        if (online := dataset.network.online(t)) is not None:
            online_rows = online[dataset.agents][:, None]
            total, w = np.where(online_rows, total, s.last_mixed), np.where(online_rows, w, s.w)
        gradient = dataset.batch(t).lower_grad_y(s.x, total / w)
        return PushSumState(s.x, total - self.learning_rate(t) * gradient, w, total)


ENTRY = dp.Entry(
    "push_sum",
    PushSum,
    (dp.Citation("Stochastic gradient push, here with noise", "assran2019stochastic"),),
    display_name="push-sum SGD",
    proved=True,
)
