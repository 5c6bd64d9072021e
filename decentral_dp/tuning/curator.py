"""The trusted coordinator's only way out: noise by the plan, and the ledger line with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from decentral_dp.privacy.keys import Streams, tag
from decentral_dp.privacy.ledger import ChannelLedger, Ledger, Recorder, assemble
from decentral_dp.privacy.mechanisms import gaussian_integers, laplace_integers
from decentral_dp.privacy.prices import grid
from decentral_dp.privacy.sensitivity import Array, Bounded, Kind, Norm, Spread
from decentral_dp.tuning.constants import Family

# Room for the float64 arithmetic of a scale.
_UP = 1.0 + 1e-12


class Released(NamedTuple):
    """value: (d,). scale: of its noise, in every coordinate."""

    value: Array
    scale: float


class Curator:
    """Releases values at the prices of a plan, each at most once; the recorder keeps what they were charged."""

    def __init__(self, plan: Ledger, root: bytes) -> None:
        self.plan = plan
        self.recorder = Recorder(1)
        self._streams = Streams(root, "noise", [0])
        self._channels = {c.channel: c for c in plan.channels}

    def release(self, index: int, channel: str, value: Array, sensitivity: Mapping[Kind, float]) -> Released:
        """value plus noise that makes it cost what is planned. sensitivity: l2, or l1 where the channel is Laplace."""
        scale = self.scale(index, channel, sensitivity)
        mechanism, d = self._channels[channel].mechanism, value.size
        self.charge(index, channel, value, sensitivity, scale)
        g = grid(scale, mechanism).reshape(1, 1)
        generator = self.generator(index, channel)
        if mechanism == "gaussian":
            integers = gaussian_integers(value[None], g, scale / g, generator.standard_normal((1, 1, d)))
        else:
            exponentials, uniforms = generator.standard_exponential((2, 1, d)), generator.random((1, d))
            integers = laplace_integers(value[None], g, scale / g, exponentials, uniforms)
        return Released((g * integers)[0], scale)

    def scale(self, index: int, channel: str, sensitivity: Mapping[Kind, float]) -> float:
        """The smallest scale that costs no kind of record more than planned for this release."""
        planned = self.planned(index, channel)
        return _UP * max(moved / planned[kind] for kind, moved in sensitivity.items())

    def planned(self, index: int, channel: str) -> dict[Kind, float]:
        """What the release may cost one record of each kind: at scale 1, its sensitivity."""
        line = self._channels[channel]
        at = int(np.searchsorted(line.rounds, index))
        return {kind: float(s[at, 0]) for kind, s in line.sensitivity.items()}

    def generator(self, index: int, channel: str) -> np.random.Generator:
        """The keyed random bits of one release."""
        return self._streams.at(0, index, tag(channel))

    def charge(self, index: int, channel: str, value: Array, sensitivity: Mapping[Kind, float], scale: float) -> None:
        """Write the ledger line of a release."""
        mechanism = self._channels[channel].mechanism
        norm: Norm = "l2" if mechanism == "gaussian" else "l1"
        spread = {k: Spread(np.array([s]), np.ones(1), None) for k, s in sensitivity.items()}
        bounded = Bounded(np.zeros((1, value.size)), value[None], spread, norm)
        self.recorder.charge(index, channel, mechanism, np.array([scale]), bounded)

    def ledger(self) -> Ledger:
        """What was released. Raises ValueError unless it is what was planned, at the planned prices."""
        spent = assemble([(np.zeros(1, dtype=np.int64), self.recorder)], 1)
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
