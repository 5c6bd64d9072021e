"""Federated averaging with an untrusted server.

min_y (1/m) Σ_i g_i(x, y) at a constant x. Round t, with all m agents at the server's point y_t and noisy answers ũ:

    u_i = −λ_t ∇_y g_i(x, y_t)                       each record's gradient clipped
    y_{t+1} = y_t + β (y_t − y_{t−1}) + (1/m) Σ_i ũ_i
    with K `local_steps`, if all records of an agent are protected (privacy.unit = "agent"): K steps without noise from
    y_t to y_K, and u_i = clip(y_K − y_t), as in DP-FedAvg

Each agent adds noise to its own answer, so the server may be honest-but-curious. Its point is a function of answers, so
it is public and equal at all agents. In DP-FedAvg the server is trusted and adds noise once, to the mean: for the same
ε that noise is √m times smaller than the mean of the agents' noise.

An answer depends on the records through one clipped mean at a public point: the sensitivity to one train record of
agent i is λ_t·2C/N_t. All records of the agent change a block of local steps by at most 2C.

The graph is not used. Without noise the algorithm is gradient descent on the mean of the g_i. β, the momentum,
multiplies a difference of released values, without privacy cost.

Reference: H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, "Learning Differentially Private Recurrent Language Models",
ICLR 2018 (DP-FedAvg, Algorithm 1 with all agents in every round).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd


class Served(NamedTuple):
    """State of the server, whose rows are all equal.

    Args:
        x: public centre, (b, p).
        y: point of this round, (b, q).
        last_y: point of the previous round, (b, q).
    """

    x: dp.Array
    y: dp.Array
    last_y: dp.Array


@dataclass(frozen=True)
class Federated(DpDsgd):
    """Federated averaging: an untrusted server averages steps with the agents' noise (DP-FedAvg)."""

    has_server = True
    releases_per_round = 2

    def init(self, dataset: dp.LocalDataset) -> Any:
        x, y = self.starts(dataset)
        return Served(x, y, y)

    # The base class sends to neighbours; this algorithm answers a server.
    def step(  # type: ignore[override]
        self, t: int, dataset: dp.LocalDataset, s: Served
    ) -> Generator[dp.Ask, dp.Answer, Served]:
        # The server publishes its point before it asks.
        yield dp.Ask(x=s.x, y=s.y)
        answer = yield dp.Ask(u=self.change(t, dataset, s.x, s.y))
        change = self.momentum * (s.y - s.last_y) + answer.mean.u
        return Served(s.x, s.y + change, s.y)

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        return {
            "x": dp.Channel("x", p, ()),
            "y": dp.Channel("y", q, ()),
            "u": dp.Channel("y", q, ("lower_grad_y",)),
        }

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan exchange 0, which sends x and y, and the query of u."""
        index, t = dp.grid(public.rounds, 2, [1])
        if self.local_steps is not None:
            plan = dp.plan_block(public, index, "lower_grad_y", t)
        else:
            plan = dp.plan_release(public, index, [dp.Use("lower_grad_y", self.learning_rate.series(public.rounds), t)])
        free = dp.free_release(public, index + 1)
        return {"x": free, "y": free, "u": plan}


ENTRY = dp.Entry(
    "federated",
    Federated,
    (dp.Citation("DP-FedAvg, here without a trusted server", "mcmahan2018learning"),),
    display_name="DP-FedAvg with noise of each agent",
    proved=True,
)
