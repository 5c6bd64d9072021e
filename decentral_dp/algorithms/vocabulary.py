"""Names for writing a gossip algorithm: `from decentral_dp.algorithms import vocabulary as dp`."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

from decentral_dp.algorithms.entry import (
    AUC,
    NOISED,
    Citation,
    Entry,
)
from decentral_dp.algorithms.options import (
    internal,
    inverse_iterations,
    lower_steps,
    neumann_smoothness,
    neumann_terms,
    option,
)
from decentral_dp.algorithms.plans import (
    Derived,
    Use,
    fading,
    free_release,
    grid,
    lag,
    plan_block,
    plan_release,
    plan_tracker,
    reads,
)
from decentral_dp.algorithms.protocol import (
    Algorithm,
    Channel,
    Planned,
    Public,
    StepSize,
    check_message,
)
from decentral_dp.bounded import (
    CHANNELS,
    SPLITS,
    Array,
    Bounded,
    Split,
    memory_slack,
)
from decentral_dp.errors import InputError
from decentral_dp.exchange import Answer, Ask, Bundle, Gossip, Reply, Value
from decentral_dp.participants import Batch, LocalDataset
from decentral_dp.privacy.clipping import Unit

S = TypeVar("S")
# Generator of a round or a part of it: it yields exchanges and returns S.
GossipSteps: TypeAlias = Generator[Gossip, Reply, S]
