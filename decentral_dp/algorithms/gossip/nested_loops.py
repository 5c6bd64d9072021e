"""What double-loop gossip algorithms share: K gossiped gradient steps on y, then N iterations on the inverse Hessian.

With P v = a_i v_i + Σ_j w_ij v_j, every round begins with

    y^{k+1} = P y^k − β_t ∇_y g_i(x, y^k)     k = 0 … K−1,     y^0 = y^K of the round before

each step over a fresh batch, and each result sent at once.
"""

from __future__ import annotations

from typing import Protocol

from decentral_dp.algorithms import vocabulary as dp


class NestedLoops(dp.Algorithm, Protocol):
    """An algorithm whose rounds send x once, then y of K inner steps, then what N inverse iterations need.

    Args:
        y: β; a field of the algorithm, as the others.
        inner: K.
        inverse: N.
    """

    y: dp.StepSize
    inner: int
    inverse: int

    @property
    def releases_per_round(self) -> int:
        return 1 + self.inner + self.inverse

    def first_sum(self, dataset: dp.LocalDataset) -> dp.Array:
        """Σ_j w_ij y_j over neighbours, (b, q), known before anything is sent: all agents start from the same y."""
        return dataset.neighbour_weight * dataset.start("y", self.start)

    def descend(
        self, t: int, dataset: dp.LocalDataset, x: dp.Value, y: dp.Value, y_near: dp.Array
    ) -> dp.GossipSteps[tuple[dp.Value, dp.Array]]:
        """Take K gossiped steps from y.

        Args:
            t: round.
            dataset: of the agents.
            x: (b, p).
            y: (b, q), what counts as the agents' own.
            y_near: (b, q), Σ_j w_ij ỹ_j of the last message.

        Returns:
            y^K, and Σ_j w_ij ỹ_j of the message that sent it.
        """
        a = 1.0 - dataset.neighbour_weight
        for k in range(self.inner):
            y = a * y + y_near - self.y(t) * dataset.batch(t, k, kept=True).lower_grad_y(x, y)
            reply = yield dp.Gossip(y=y)
            y, y_near = self.own_value(reply.released.y, y), reply.neighbour_sum.y
        return y, y_near

    def planned_descent(self, public: dp.Public) -> dp.Planned:
        """Exchanges 1 … K send y¹ … y^K, each β_t times a clipped mean."""
        index, t = dp.grid(public.rounds, self.releases_per_round, range(1, 1 + self.inner))
        return dp.plan_release(public, index, [dp.Use("lower_grad_y", self.y.series(public.rounds)[t], t)], kept=True)
