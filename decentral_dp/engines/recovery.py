"""How an engine notices what is lost, and how often it starts again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recovery:
    """How lost actors are noticed and started again.

    Args:
        heartbeat: seconds after which actors are asked whether they are there.
        save_every: seconds after which the driver keeps what they would go on from.
        restarts: starts after a loss, without a round more done, before a run gives up.
        pause: seconds before the first of these starts, doubled each time.
        longest_pause: the most that it is doubled to, in seconds.

    Example:
        >>> [Recovery().wait(k) for k in (1, 2, 3, 9)]
        [0.25, 0.5, 1.0, 5.0]
    """

    heartbeat: float = 1.0
    save_every: float = 5.0
    restarts: int = 3
    pause: float = 0.25
    longest_pause: float = 5.0

    def wait(self, start: int) -> float:
        """Seconds before a start; the first after a loss is 1."""
        # Doubled more often, the longest pause is long reached, or the first is 0.
        return min(self.pause * 2.0 ** min(start - 1, 60), self.longest_pause)
