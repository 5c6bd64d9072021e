"""Values that stay in one process: records, the noise key, and noiseless state."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from decentral_dp.errors import InputError

T = TypeVar("T")


class Secret(Generic[T]):
    """Value that only a call of this object returns. No pickle, copy, text or attribute contains it.

    Args:
        name: name of the value in messages.
        held: secret value, which is missing from copies and pickles.

    Raises:
        InputError: a copy or a pickle is called.

    Example:
        >>> import copy
        >>> secret = Secret("the records", [1.0, 2.0])
        >>> secret, secret()
        (<Secret: the records>, [1.0, 2.0])
        >>> try:
        ...     copy.copy(secret)()
        ... except InputError as error:
        ...     print(str(error).partition(".")[0])
        the records: not available in this process, since copies and pickles omit it
    """

    __slots__ = ("_held", "name")

    def __init__(self, name: str, *values: T) -> None:
        self.name, self._held = name, values

    def __call__(self) -> T:
        if not self._held:
            raise InputError(
                f"{self.name}: not available in this process, since copies and pickles omit it. Fix: build "
                "the job again from the scenario."
            )
        return self._held[0]

    def __bool__(self) -> bool:
        return bool(self._held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self.name, self._held) == (other.name, other._held)

    __hash__ = None  # type: ignore[assignment] # equal values need not be hashable

    def __repr__(self) -> str:
        return f"<Secret: {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self.name,)
