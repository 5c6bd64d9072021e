"""The [privacy] table as clips and noise schedules: declared, or calibrated to a target, and cut at a cap."""

from __future__ import annotations

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.privacy.calibration import calibrate, rounds_within
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import NoiseSchedule
from decentral_dp.privacy.sensitivity import CHANNELS, Array, Norm
from decentral_dp.problems.protocol import Problem
from decentral_dp.problems.shard import FEEDS
from decentral_dp.schema import Noise, Scenario, by_channel


def charged_channels(problem: Problem, guarantee: str) -> tuple[str, ...]:
    """The channels that need noise: all where the state is private and feeds on data, else those with a query."""
    if guarantee == "as_printed":
        return CHANNELS
    return tuple(c for c in CHANNELS if any(FEEDS[t] == c for t in problem.touches))


def clips(s: Scenario, problem: Problem) -> Clip:
    norm: Norm = "l1" if s.privacy.mechanism == "laplace" else "l2"
    if s.privacy.guarantee != "certified":
        return Clip(norm)
    for channel in charged_channels(problem, "certified"):
        if channel not in s.privacy.clip:
            raise InputError(
                f"privacy.clip.{channel}: missing. A certified run bounds every record's contribution to {channel}; "
                f"add for example clip.{channel} = 1.0."
            )
    return Clip(norm, **by_channel(s.privacy.clip))


def schedules(s: Scenario, charged: tuple[str, ...], m: int) -> dict[str, NoiseSchedule]:
    """Schedules as declared; scale 1 for what the target epsilon will calibrate."""
    calibrated = s.privacy.epsilon is not None
    out = {}
    for channel in charged:
        table = s.privacy.noise(channel)
        if calibrated and table is not None and table.scale is not None:
            raise InputError(
                f"privacy.{channel}.scale: epsilon = {s.privacy.epsilon} already settles the noise. "
                "Give one of the two."
            )
        if not calibrated and (table is None or table.scale is None):
            raise InputError(
                f"privacy.{channel}.scale: missing. Give privacy.epsilon, or a noise scale for every channel that "
                "touches data."
            )
        out[channel] = _schedule(channel, table or Noise(), m)
    return out


def _schedule(channel: str, table: Noise, m: int) -> NoiseSchedule:
    def per_agent(key: str, value: float | list[float]) -> Array:
        values = np.asarray(value, dtype=np.float64)
        if values.ndim and values.size != m:
            raise InputError(f"privacy.{channel}.{key}: got {values.size} values, wanted one for each of {m} agents.")
        return np.broadcast_to(values, (m,)).astype(np.float64)

    with np.errstate(over="ignore"):
        decay = per_agent("decay", table.decay) + table.decay_per_agent * np.arange(1, m + 1)
    return NoiseSchedule(per_agent("scale", 1.0 if table.scale is None else table.scale), decay)


def calibrated_schedules(s: Scenario, noise: dict[str, NoiseSchedule], ledger: Ledger) -> dict[str, NoiseSchedule]:
    privacy = s.privacy
    missing = [c for c in noise if privacy.share and c not in privacy.share]
    if missing:
        raise InputError(f"privacy.share.{missing[0]}: missing. Give a share for each of {', '.join(noise)}, or none.")
    if privacy.mechanism == "gaussian" and privacy.delta == 0.0:
        raise InputError(
            "privacy.delta: Gaussian noise gives no pure guarantee. "
            'Take a delta above 0, for example 1e-5, or mechanism = "laplace".'
        )
    shares = dict.fromkeys(noise, 1.0) | {c: v for c, v in by_channel(privacy.share).items() if c in noise}
    total = sum(shares.values())
    epsilon = privacy.epsilon if privacy.epsilon is not None else 0.0
    factors = calibrate(ledger, epsilon, privacy.delta, {c: v / total for c, v in shares.items()})
    return {c: NoiseSchedule(schedule.scale * factors[c], schedule.decay) for c, schedule in noise.items()}


def capped(ledger: Ledger, cap: float, delta: float, rounds: int) -> tuple[int, str, str | None]:
    allowed = rounds_within(ledger, cap, delta)
    if allowed >= rounds:
        return rounds, "ok", None
    if allowed == 0:
        raise InputError(f"privacy.cap: the first round alone costs more than {cap}. Raise the cap, or add noise.")
    reason = f"stopped after round {allowed} of {rounds}: round {allowed + 1} would pass the declared cap ε = {cap}"
    return allowed, "budget_reached", reason
