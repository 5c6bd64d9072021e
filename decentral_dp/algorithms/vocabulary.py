"""What an algorithm is written in, by one name each: `from decentral_dp.algorithms import vocabulary as dp`.

Every name that is imported here is part of it.
"""

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
    nothing_proven,
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
from decentral_dp.participants.agents import Batch, LocalDataset
from decentral_dp.privacy.unit import Unit

S = TypeVar("S")
# What agents do in a round or a part of it: exchanges are yielded, S is what they end with.
GossipSteps: TypeAlias = Generator[Gossip, Reply, S]
