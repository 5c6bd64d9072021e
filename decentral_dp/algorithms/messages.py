"""How large a message may be: refused by its size before anything of that size is allocated."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from decentral_dp.errors import InputError

# Bytes of one agent's message in one exchange.
LARGEST_MESSAGE = 64 * 2**20


@runtime_checkable
class Checked(Protocol):
    """An algorithm that does not fit every problem."""

    def check(self, p: int, q: int) -> None:
        """Raises InputError where x in R^p and y in R^q are too large for it."""
        ...


def check_message(algorithm: str, numbers: int, formula: str, p: int, q: int, mend: str) -> None:
    """Refuse a message of more than `LARGEST_MESSAGE` bytes.

    Args:
        algorithm: its name.
        numbers: float64 numbers in a message.
        formula: how they add up.
        p: coordinates of x.
        q: coordinates of y.
        mend: a sentence on what makes it smaller.

    Raises:
        InputError: a message that is larger.
    """
    size = 8 * numbers
    if size > LARGEST_MESSAGE:
        raise InputError(
            f"algorithm.kind: with p = {p} and q = {q} each message of {algorithm} is 8·({formula}) = {size:,} bytes, "
            f"and more than {LARGEST_MESSAGE:,} are refused. {mend}"
        )
