"""AdaSDBO: bilevel gossip with step sizes from the accumulated norms of released gradients.

With P the mixing matrix (P v = a_i v_i + Σ_j w_ij v_j, a_i = 1 − |w_ii|), ũ the release of u, f_{i,t} and g_{i,t} the
means over the records that agent i reads, and w one of x, y and z, round t of agent i runs

    m_{w,t+1} = P m_{w,t} + ‖ũ_{w,t}‖²,     m_{w,0} = m,     ũ_{w,0} = 0                 accumulate
    d_y = √m_{y,t+1},     d_z = max(√m_{y,t+1}, √m_{z,t+1}),     d_x = d_z √m_{x,t+1}
    w_{t+1} = P w_t − η ũ_{w,t}/d_w                                                      step
    u_x = ∇_x f_{i,t} − ∇²_xy g_{i,t} z,     u_y = ∇_y g_{i,t},     u_z = ∇²_yy g_{i,t} z − ∇_y f_{i,t}

with u at (x_{t+1}, y_{t+1}, z_{t+1}), η → base_step and m → floor. The hierarchy of the step sizes is that of S-TFBO.
Round 0 only reads the first gradients, and the gradients at the last point are not released.

Noise protects one record of agent i. Only u reads records: its sensitivity is 2C_x/N per term of x, 2C_y/N for y and
2C_z/N per term of z, at every value of the accumulators. x, y, z and m are functions of released values, and are sent
without noise. Step sizes from noiseless gradients would depend on records. Here a step size multiplies the released
gradient and its noise. The accumulators contain the energy of the noise, so a run with more noise takes smaller steps.
Messages contain u, and are twice as long as those of `ldp_dsbo`.

Without noise the fixed points are those of `ldp_dsbo`. One agent runs S-TFBO with one factor η.

References: after Z. Zhai, W. Yan, Y.-J. A. Zhang, "Problem-Parameter-Free Decentralized Bilevel Optimization",
arXiv:2510.24288, 2025; Y. Yang, H. Ban, M. Huang, S. Ma, K. Ji, "Tuning-Free Bilevel Optimization: New Algorithms and
Convergence Analysis", ICLR 2025 (S-TFBO).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp


class AdasdboState(NamedTuple):
    """State of the agents.

    Args:
        x, y, z: public iterates, (b, p), (b, q) and (b, q).
        m: accumulators of x, y and z, public, (b, 3).
        ux, uy, uz: gradients before noise, with the shapes of x, y and z.
    """

    x: dp.Array
    y: dp.Array
    z: dp.Array
    m: dp.Array
    ux: dp.Value
    uy: dp.Value
    uz: dp.Value


@dataclass(frozen=True)
class Adasdbo(dp.Derived):
    """Single-loop bilevel gossip with adaptive step sizes (after Zhai, Yan & Zhang, 2025)."""

    base_step: float = dp.option("η, common factor of all step sizes", default=1.0, above=0.0)
    floor: float = dp.option("m, start of the accumulators", default=1.0, above=0.0)

    channels = dp.CHANNELS
    memoryless: ClassVar[bool] = True
    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {
        **{c: {} for c in (*dp.CHANNELS, "m")},
        "ux": {"upper_grad_x": 1.0, "lower_jvp": 1.0},
        "uy": {"lower_grad_y": 1.0},
        "uz": {"lower_hvp": 1.0, "upper_grad_y": 1.0},
    }
    WIDTHS: ClassVar[Mapping[str, int | str]] = {"m": 3}

    def init(self, dataset: dp.LocalDataset) -> AdasdboState:
        x, y, z = (dataset.start(c, self.start) for c in dp.CHANNELS)
        return AdasdboState(x, y, z, dataset.public(self.floor, 3), 0.0 * x, 0.0 * y, 0.0 * z)

    def step(self, t: int, dataset: dp.LocalDataset, s: AdasdboState) -> dp.GossipSteps[AdasdboState]:
        released, neighbour_sum = yield dp.Gossip(**s._asdict())
        x, y, z, m = ((1.0 - dataset.neighbour_weight) * released[c] + neighbour_sum[c] for c in (*dp.CHANNELS, "m"))
        ux, uy, uz = released.ux, released.uy, released.uz
        # Compressed accumulators may fall below their start.
        m = np.maximum(m, self.floor) + np.stack([(u**2).sum(axis=1) for u in (ux, uy, uz)], axis=1)
        by_x, by_y, by_z = np.sqrt(m).T[..., None]
        by_z = np.maximum(by_y, by_z)
        x, y, z = (w - self.base_step * u / by for w, u, by in ((x, ux, by_x * by_z), (y, uy, by_y), (z, uz, by_z)))
        d = dataset.oracle(t, x, y, z)
        return AdasdboState(x, y, z, m, d.upper_grad_x - d.lower_jvp, d.lower_grad_y, d.lower_hvp - d.upper_grad_y)


ENTRY = dp.Entry(
    "adasdbo",
    Adasdbo,
    (
        dp.Citation("AdaSDBO, here with noise", "zhai2025problem"),
        dp.Citation("Hierarchy of the step sizes", "yang2025tuning"),
    ),
    display_name="AdaSDBO",
    proved=True,
)
