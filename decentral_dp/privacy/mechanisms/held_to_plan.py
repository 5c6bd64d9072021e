"""A releaser that holds an algorithm of somebody else's to its plan: what was not priced does not leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Bounded
from decentral_dp.exchange import Bundle, Value
from decentral_dp.files.source_lines import place_in_class
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import Mechanism
from decentral_dp.privacy.mechanisms.scheduled_releaser import ScheduledReleaser
from decentral_dp.privacy.recorder import Recorder
from decentral_dp.user_code import UserCodeError

# How far two computations of one sensitivity may differ by rounding.
_ROUNDING = 1e-9


class ReleaseRefusedError(UserCodeError):
    """A release that was not planned, or that one record moves further than planned; it was not made."""


class HeldToPlan:
    """A `ScheduledReleaser` that refuses a round before anything of it is noised, where it is not what was priced.

    Args:
        make: builds the releaser.
        plan: the releases of the block's agents, as they were priced.
        algorithm: its class, for messages.
    """

    def __init__(self, make: Callable[[], Any], plan: Ledger, algorithm: type) -> None:
        self._inner: ScheduledReleaser = make()
        self._lines = {c.channel: c for c in plan.channels}
        self._per_round = plan.releases_per_round
        self._algorithm = algorithm

    @property
    def recorder(self) -> Recorder:
        return self._inner.recorder

    @property
    def mechanism(self) -> Mechanism:
        return self._inner.mechanism

    def release(self, index: int, values: Mapping[str, Value], sends: NDArray[np.bool_] | None = None) -> Bundle:
        """Release as planned; arguments as of `ScheduledReleaser`.

        Raises:
            ReleaseRefusedError: a channel, an index or a sensitivity that was not priced.
        """
        for channel, value in values.items():
            # The start, at index 0, depends on no record and is not listed.
            if index > 0 and isinstance(value, Bounded):
                self._check(index, channel, value, sends)
        return self._inner.release(index, values, sends)

    def _check(self, index: int, channel: str, value: Bounded, sends: NDArray[np.bool_] | None) -> None:
        line = self._lines.get(channel)
        at = -1 if line is None else int(np.searchsorted(line.rounds, index))
        if line is None or not line.mechanism.charged or at >= line.rounds.size or line.rounds[at] != index:
            raise ReleaseRefusedError(
                f"{self._where(index)} it releases {channel} from records, which was not planned and priced; nothing "
                "of that round was released. Mend the plan of releases, or `step`."
            )
        for split, moved in value.sensitivities.items():
            planned = line.sensitivity[split][at, line.group] if split in line.sensitivity else np.zeros(1)
            # Written so that what is not a number fails, too.
            fits = moved.sensitivity <= planned * (1.0 + _ROUNDING)
            if sends is not None:
                fits |= ~sends
            if not fits.all():
                row = int(np.argmin(fits))
                raise ReleaseRefusedError(
                    f"{self._where(index)} one {split} record may move {channel} by {moved.sensitivity[row]:.6g}, and "
                    f"{np.broadcast_to(planned, fits.shape)[row]:.6g} was planned and priced; nothing of that round "
                    "was released. Mend the plan of releases, or `step`."
                )

    def _where(self, index: int) -> str:
        made_by = f"step of {self._algorithm.__name__}{place_in_class(self._algorithm, 'step')}"
        return f"round {-(-index // self._per_round)}: {made_by}:"
