"""The [privacy] table as clips and noise schedules: declared, or calibrated to a target, and cut at a cap."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from decentral_dp.algorithms.protocol import Channel
from decentral_dp.bounded import Array, Norm
from decentral_dp.config.schema import Noise, Scenario, by_channel
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.calibration import calibrate, rounds_within
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import Mechanism
from decentral_dp.privacy.mechanisms.scheduled_releaser import NoiseSchedule
from decentral_dp.problems.protocol import CLIP_OF_TERM, MATRICES, Problem


def charged_channels(channels: Mapping[str, Channel], problem: Problem) -> dict[str, str]:
    """Channel → family, of those that need noise: whose releases depend on records of this problem."""
    return {name: c.family for name, c in channels.items() if _queries(c, problem)}


def _queries(channel: Channel, problem: Problem) -> list[str]:
    """The terms of this channel that read records."""
    return [t for t in channel.terms if MATRICES.get(t, t) in problem.reads_records]


def clipped_families(channels: Mapping[str, Channel], problem: Problem) -> list[str]:
    """The families whose clip bounds what a record of this problem contributes."""
    return list(dict.fromkeys(CLIP_OF_TERM[t] for c in channels.values() for t in _queries(c, problem)))


def clips(s: Scenario, channels: Mapping[str, Channel], problem: Problem, mechanism: Mechanism) -> Clip:
    """Bound every record's contribution, in the norm of the mechanism.

    Args:
        s: the scenario; its guarantee and privacy.clip are read.
        channels: channel → what is released on it.
        problem: whose records contribute.
        mechanism: of the scenario; one without a norm has ℓ2.

    Returns:
        The clips as declared for a certified run; none for any other.

    Raises:
        InputError: a certified run lacks the clip of a family that reads records.
    """
    norm: Norm = mechanism.norm or "l2"
    if s.privacy.guarantee != "certified":
        return Clip(norm)
    for family in clipped_families(channels, problem):
        if family not in s.privacy.clip:
            raise InputError(
                f"privacy.clip.{family}: missing. A certified run bounds every record's contribution to {family}; "
                f"add for example clip.{family} = 1.0."
            )
    return Clip(norm, **by_channel(s.privacy.clip))


def check_domain(s: Scenario, channels: Mapping[str, Channel], central: bool) -> None:
    """Refuse a domain of releases that the algorithm cannot keep.

    Args:
        s: the scenario; its guarantee and privacy.box are read.
        channels: channel → what is released on it.
        central: whether agents answer a server.

    Raises:
        InputError: agents answer a server, the algorithm does not release the variable, or the domain is empty.
    """
    for channel, (low, high) in s.privacy.domain.items():
        key = f"privacy.box.{channel}"
        if central:
            raise InputError(f"{key}: agents of {s.algorithm.kind} answer a server, in no domain. Leave the box out.")
        if channel not in channels:
            raise InputError(
                f"{key}: {s.algorithm.kind} releases no {channel}, but {', '.join(channels)}. Leave it out."
            )
        if not low < high:
            raise InputError(f"{key}: got {high:g}, wanted a bound above 0 on the size of every coordinate.")


def schedules(s: Scenario, charged: Mapping[str, str], m: int) -> dict[str, NoiseSchedule]:
    """Schedules as declared; scale 1 for what the target epsilon will calibrate. charged: channel → family."""
    calibrated = s.privacy.epsilon is not None
    declared = {}
    for channel in dict.fromkeys(charged.values()):
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
        declared[channel] = _schedule(channel, table or Noise(), m)
    return {channel: declared[family] for channel, family in charged.items()}


def _schedule(channel: str, table: Noise, m: int) -> NoiseSchedule:
    def per_agent(key: str, value: float | list[float]) -> Array:
        values = np.asarray(value, dtype=np.float64)
        if values.ndim and values.size != m:
            raise InputError(f"privacy.{channel}.{key}: got {values.size} values, wanted one for each of {m} agents.")
        return np.broadcast_to(values, (m,)).astype(np.float64)

    with np.errstate(over="ignore"):
        decay = per_agent("decay", table.decay) + table.decay_per_agent * np.arange(1, m + 1)
    return NoiseSchedule(per_agent("scale", 1.0 if table.scale is None else table.scale), decay)


def calibrated_schedules(
    s: Scenario, charged: Mapping[str, str], noise: dict[str, NoiseSchedule], ledger: Ledger, mechanism: Mechanism
) -> dict[str, NoiseSchedule]:
    """Scale the schedules so that every agent spends the target.

    The channels of a family split its share evenly.

    Args:
        s: the scenario; epsilon, delta and share of its [privacy] are read.
        charged: channel → family.
        noise: channel → schedule to start from.
        ledger: the releases planned with that noise.
        mechanism: of the noise.

    Returns:
        Channel → schedule; one that the ledger does not charge stays as it is.

    Raises:
        InputError: a family without its share, a delta of 0 for a mechanism without a pure guarantee, or a target that
            no noise meets.
    """
    # Some channels are never sent in so few rounds.
    charged = {c.channel: charged[c.channel] for c in ledger.charged}
    privacy, families = s.privacy, list(charged.values())
    missing = [c for c in families if privacy.share and c not in privacy.share]
    if missing:
        raise InputError(
            f"privacy.share.{missing[0]}: missing. "
            f"Give a share for each of {', '.join(dict.fromkeys(families))}, or none."
        )
    if not mechanism.pure and privacy.delta == 0.0:
        raise InputError(
            f"privacy.delta: {mechanism.words} gives no pure guarantee. "
            'Take a delta above 0, for example 1e-5, or mechanism = "laplace".'
        )
    given = by_channel(privacy.share)
    shares = {c: given.get(family, 1.0) / families.count(family) for c, family in charged.items()}
    total = sum(shares.values())
    epsilon = privacy.epsilon if privacy.epsilon is not None else 0.0
    factors = calibrate(ledger, epsilon, privacy.delta, {c: v / total for c, v in shares.items()})
    return {c: NoiseSchedule(v.scale * factors[c], v.decay) if c in factors else v for c, v in noise.items()}


def calibration_rounds(s: Scenario) -> int:
    """Rounds over which the target epsilon is spent: all, or privacy.epsilon_rounds of them.

    Raises:
        InputError: they are more than are run, or there is no target.
    """
    first, rounds = s.privacy.epsilon_rounds, s.algorithm.rounds
    if first is None:
        return rounds
    if s.privacy.epsilon is None:
        raise InputError(f"privacy.epsilon_rounds: got {first}, but no epsilon to spend over them. Leave it out.")
    if first > rounds:
        raise InputError(
            f"privacy.epsilon_rounds: got {first}, but algorithm.rounds = {rounds} end before. Give at most as many."
        )
    return first


def require_calibrated(ledger: Ledger, priced: Ledger) -> None:
    """Refuse channels whose first charged release comes after the rounds that the target epsilon is spent over.

    Args:
        ledger: all planned releases.
        priced: those that the noise was calibrated to.

    Raises:
        InputError: there is one, whose noise nothing settles.
    """
    known = {c.channel for c in priced.charged}
    later = [c.channel for c in ledger.charged if c.channel not in known]
    if later:
        raise InputError(
            f"privacy.epsilon_rounds: {later[0]} is released after them for the first time, so that epsilon does not "
            "settle its noise. Give more rounds, or leave epsilon_rounds out."
        )


def capped(ledger: Ledger, cap: float, delta: float, rounds: int) -> tuple[int, str, str | None]:
    allowed = rounds_within(ledger, cap, delta)
    if allowed >= rounds:
        return rounds, "ok", None
    if allowed == 0:
        raise InputError(f"privacy.cap: the first round alone costs more than {cap}. Raise the cap, or add noise.")
    reason = f"stopped after round {allowed} of {rounds}: round {allowed + 1} would pass the declared cap ε = {cap}"
    return allowed, "budget_reached", reason
