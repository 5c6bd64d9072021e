"""BSA: bilevel stochastic approximation with a server that averages the answers of agents.

Round t, with all m agents at the server's point (x, y), K inner steps and a Neumann series of b terms:

    y <- y − β_t mean_i ∇_y g_i(x, y)                                        K times, from the last y
    v_0 = mean_i ∇_y f_i(x, y),     v_k = mean_i (v_{k−1} − (1/L) ∇²_yy g_i(x, y) v_{k−1})     0 < k < b
    w = (1/L) Σ_{k<b} v_k
    x <- x − α_t mean_i (∇_x f_i(x, y) − ∇²_xy g_i(x, y) w)

α → x, β → y, K → inner, b → inverse, L → smoothness. The paper stops the series at a random length, (b/L) v_p with p
uniform below b, whose mean is w. This implementation uses w itself, without that variance. K and β are constant over
the inner steps. With a minibatch stream every answer uses a fresh batch.

The server is untrusted: each agent adds noise to its own answer. x and y are functions of answers, so they are public,
equal at all agents, and without privacy cost. The mean averages the noise of m agents.

`released` (certified): the sensitivity is 2C_y/N for answers on channel gy, 2C_z/N for v_0, (1/L)·2C_z/N for v_k, and
2C_x/N per term for gx.

The server averages Hessian-vector products. Without noise the limit is the optimum up to (1 − μ/L)^b, the truncation of
the series, for any K. The graph is not used. One agent runs double-loop bilevel descent.

Reference: S. Ghadimi and M. Wang, "Approximation Methods for Bilevel Programming", arXiv:1802.02246, 2018.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.inner_loops import U_TERMS, V_TERMS, planned_series


class BsaState(NamedTuple):
    """State of the server: x (b, p) and y (b, q), whose rows are all equal."""

    x: dp.Array
    y: dp.Array


@dataclass(frozen=True)
class Bsa(dp.Algorithm):
    """Bilevel approximation by a server: inner steps and a Neumann series of answers with noise (Ghadimi & Wang, 2018).

    Args:
        x, y: step sizes α, β.
        inner, inverse: number K of inner steps and number b of terms.
        smoothness: smoothness L.
    """

    x: dp.StepSize = dp.option("α, of x along the hypergradient")
    y: dp.StepSize = dp.option("β, of y in every inner iteration")
    inner: int = dp.lower_steps()
    inverse: int = dp.neumann_terms()
    smoothness: float = dp.neumann_smoothness()

    has_server = True

    @property
    def releases_per_round(self) -> int:
        return 2 + self.inner + self.inverse

    memoryless = True

    def init(self, dataset: dp.LocalDataset) -> BsaState:
        return BsaState(*self.starts(dataset))

    def step(self, t: int, dataset: dp.LocalDataset, s: BsaState) -> Generator[dp.Ask, dp.Answer, BsaState]:
        batches = (dataset.batch(t, draw) for draw in range(self.releases_per_round - 1))
        x, y = s
        # The server publishes its point before it asks.
        yield dp.Ask(x=x, y=y)
        for _ in range(self.inner):
            answer = yield dp.Ask(gy=next(batches).lower_grad_y(x, y))
            y = y - self.y(t) * answer.mean.gy

        step = 1.0 / self.smoothness
        v = (yield dp.Ask(v=next(batches).upper_grad_y(x, y))).mean.v
        w = step * v
        for _ in range(1, self.inverse):
            v = (yield dp.Ask(v=v - step * next(batches).lower_hvp(x, y, v))).mean.v
            w = w + step * v

        batch = next(batches)
        answer = yield dp.Ask(gx=batch.upper_grad_x(x, y) - batch.lower_jvp(x, y, w))
        return BsaState(x - self.x(t) * answer.mean.gx, y)

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        return {
            "x": dp.Channel("x", p, ()),
            "y": dp.Channel("y", q, ()),
            "gy": dp.Channel("y", q, ("lower_grad_y",)),
            "v": dp.Channel("z", q, V_TERMS),
            "gx": dp.Channel("x", p, U_TERMS),
        }

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan exchange 0, which sends x and y, followed by K queries of gy, b queries of v and one query of gx."""
        rounds, e = np.arange(public.rounds), self.releases_per_round
        ends, always = (rounds + 1) * e, np.ones(public.rounds)
        gy_index, gy_t = dp.grid(public.rounds, e, range(1, 1 + self.inner))
        v_index, v_t = dp.grid(public.rounds, e, range(1 + self.inner, e - 1))
        k = np.tile(np.arange(self.inverse), public.rounds)
        return {
            "x": dp.free_release(public, ends),
            "y": dp.free_release(public, ends),
            "gy": dp.plan_release(public, gy_index, [dp.Use("lower_grad_y", np.ones(gy_t.size), gy_t)]),
            "v": planned_series(public, v_index, v_t, k, self.smoothness),
            "gx": dp.plan_release(public, ends - 1, [dp.Use(term, always, rounds) for term in U_TERMS]),
        }


ENTRY = dp.Entry("bsa", Bsa, (dp.Citation("Algorithm", "ghadimi2018approximation"),), display_name="BSA", proved=True)
