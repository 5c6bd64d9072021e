"""The trusted coordinator's only way out: noise by the plan, and the ledger line with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from decentral_dp.exchange import SelectionMechanism
from decentral_dp.privacy import planned_releaser
from decentral_dp.privacy.bounded import Array, Bounded, Norm, Sensitivity, Split
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.tuning.constants import Family


class TunerRelease(NamedTuple):
    """value: (d,). scale: of its noise, in every coordinate."""

    value: Array
    scale: float


class TunerReleaser:
    """Releases values at the prices of a plan, each at most once."""

    def __init__(self, plan: Ledger, root: bytes) -> None:
        self.plan = plan
        self.mechanism = planned_releaser.PlannedReleaser(plan, root)
        self._channels = {c.channel: c for c in plan.channels}

    def release(self, index: int, channel: str, value: Array, sensitivity: Mapping[Split, float]) -> TunerRelease:
        """value plus noise that makes it cost what is planned. sensitivity: l2, or l1 where the channel is Laplace."""
        norm: Norm = self._channels[channel].mechanism.norm or "l1"
        sensitivities = {k: Sensitivity(np.array([s]), np.ones(1), None) for k, s in sensitivity.items()}
        return self._release(index, channel, Bounded(np.zeros((1, value.size)), value[None], sensitivities, norm))

    def draw(self, index: int, channel: str, selection: SelectionMechanism) -> TunerRelease:
        """What the selection mechanism draws at the planned price."""
        return self._release(index, channel, selection)

    def _release(self, index: int, channel: str, value: Bounded | SelectionMechanism) -> TunerRelease:
        released = self.mechanism.release(index, {channel: value})
        return TunerRelease(released.released[channel][0], released.scale[channel])

    def ledger(self) -> Ledger:
        """What was released. Raises ValueError unless it is what was planned, at the planned prices."""
        spent = self.mechanism.ledger()
        if [_listed(c) for c in spent.channels] != [_listed(c) for c in self._channels.values()]:
            raise ValueError("what was released is not what was planned")
        for line in spent.channels:
            planned = self._channels[line.channel].sensitivity
            shares = np.max([line.sensitivity[k] / line.scale / planned[k] for k in planned], axis=0)
            if (shares > 1.0).any() or (shares < 1.0 - 1e-9).any():
                raise ValueError(f"a release on {line.channel!r} did not cost what was planned")
        return spent


def _listed(c: ChannelLedger) -> tuple[object, ...]:
    return c.channel, c.mechanism, c.dimension, c.rounds.tolist(), sorted(c.sensitivity)


def shortened(family: Family, weight: float, theta: Array) -> Array:
    """θ projected on the ball that holds every minimiser of g: post-processing that takes off noise."""
    norm = float(np.linalg.norm(theta))
    return theta * min(1.0, family.solution_radius(weight) / max(norm, 1e-300))
