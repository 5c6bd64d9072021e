"""Client blocks of the penalty method on known records."""

from __future__ import annotations

from typing import Any

import numpy as np

from decentral_dp.participants.clients import ClientBlock
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.simulation.jobs.job import PlannedJob as Job

Records = dict[str, list[Any]]


def client_blocks(job: Job, records: Records, clip: Clip | None = None) -> tuple[ClientBlock, ...]:
    agents, coins = np.arange(job.n_agents), Streams(seeded_root(1, b"t"), "coins", np.arange(job.n_agents))
    return (ClientBlock(agents, job.problem, records, clip or job.context.clip, coins),)
