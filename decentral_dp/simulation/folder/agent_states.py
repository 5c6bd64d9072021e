"""States of agents whose records are with them: files beside these records, which never travel.

Where a block of agents reads `/data/agent-3.npz`, its states are `/data/states/RUN-3-ROUND.npz`, readable by their
owner only. The driver gets a receipt: the round, and a digest that tells nothing of the state, because random bits lie
beside it. The last two are kept, so that blocks that were cut off while one of them wrote have a round in common.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decentral_dp.engines.protocol import Receipts
from decentral_dp.files.durable import digest, intact, write_synced
from decentral_dp.simulation.folder.states import Home, UnreadableError, from_bytes, to_bytes

STATES = "states"
# How many are kept, and the random bytes that keep a digest from telling whether a guess of the state is right.
_LAST, _SALT = 2, 16


@dataclass
class AgentStates:
    """The states of one block of agents in one run.

    Args:
        folder: where they lie.
        name: begins the name of each file.
        home: the module of the algorithm.
        receipts: of what this run has kept so far; default none.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     states = AgentStates(Path(folder) / STATES, "run-0", Home("", {}))
        ...     kept = [states.keep(t, {"y": float(t)}) for t in (10, 20, 30)][-1]
        ...     later = AgentStates(Path(folder) / STATES, "run-0", Home("", {}), kept)
        ...     later.held(), later.after(30)
        ([20, 30], {'y': 30.0})
    """

    folder: Path
    name: str
    home: Home
    receipts: Receipts = field(default=())

    def keep(self, t: int, state: Mapping[str, Any]) -> Receipts:
        """Write the state after a round.

        Returns:
            What the driver may know: the rounds that are kept, and a digest of each file.

        Raises:
            TypeError: it is not made of values, or cannot be written here; no run ends because of that.
        """
        content = to_bytes({"salt": os.urandom(_SALT).hex(), "state": dict(state)}, self.home)
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            write_synced(self._path(t), content, mode=0o600)
        except OSError as error:
            raise TypeError(f"the state of agents cannot be kept in {self.folder}: {error.strerror}") from error
        before = [(kept, of) for kept, of in self.receipts if kept < t]
        self.receipts = [*before, (t, digest(content))][-_LAST:]
        self._remove_others()
        return self.receipts

    def held(self) -> list[int]:
        """Rounds whose states are here as they were written."""
        return [t for t, _ in self.receipts if self._read(t) is not None]

    def after(self, t: int) -> Mapping[str, Any]:
        """The state after a round, one of `held`."""
        state: Mapping[str, Any] = self._read(t)["state"]
        return state

    def forget(self, later_than: int = -1) -> None:
        """Remove the states of all later rounds; by default all, and the folder where it is empty then."""
        self.receipts = [(t, of) for t, of in self.receipts if 0 < t <= later_than]
        self._remove_others()

    def _path(self, t: int) -> Path:
        return self.folder / f"{self.name}-{t}.npz"

    def _read(self, t: int) -> Any:
        """What lies in a file; None where it is not what was written."""
        try:
            content = intact(self._path(t), dict(self.receipts)[t])
            return None if content is None else from_bytes(content, self.home)
        except (OSError, UnreadableError):
            return None

    def _remove_others(self) -> None:
        """Remove all files of this block and run but those that there are receipts of."""
        kept = {self._path(t) for t, _ in self.receipts}
        try:
            for path in {*self.folder.glob(f"{self.name}-*.npz"), *self.folder.glob(f".{self.name}-*.part")} - kept:
                path.unlink(missing_ok=True)
            if not kept:
                self.folder.rmdir()
        except OSError:
            # Somebody else's files lie there, or it may not be written any more: no run ends because of that.
            return
