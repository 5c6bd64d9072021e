"""`resume` of an interrupted run, with the result of an uninterrupted one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from decentral_dp.files.trust import trusting
from decentral_dp.simulation.run import Run

if TYPE_CHECKING:
    from decentral_dp.config.components import Objects
    from decentral_dp.simulation.events import Callback


def resume(
    folder: str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
    **objects: Unpack[Objects],
) -> Run:
    """Resume an interrupted run, to the bit as without the interruption.

    A run resumes from the last state in its folder. What was released after that state is released again with the same
    draws: the same values, and no second release.

    Args:
        folder: of the run.
        callbacks: functions that are called with a `Progress`; by default notebooks show a bar.
        trust: whether to run code that the folder holds or names and that this machine has not run before.
        **objects: those that the run was given in place of what its scenario names, if any.

    Returns:
        The finished run.

    Raises:
        InputError: there is nothing to resume, it is complete or under way; the records, the scenario or the versions
            are others than those of the beginning.
        Stopped: interrupted again.

    Example:
        >>> import decentral_dp
        >>> try:
        ...     decentral_dp.resume("scenarios")
        ... except decentral_dp.InputError as error:
        ...     print(str(error).partition(":")[0])
        resume
    """
    if trust:
        with trusting():
            return Run.resume(folder, callbacks=callbacks, **objects)
    return Run.resume(folder, callbacks=callbacks, **objects)
