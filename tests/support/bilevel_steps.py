"""Clipped terms, records and noise of a coordinator's bilevel algorithm, for loops over records."""

from __future__ import annotations

import numpy as np

from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.simulation.jobs.job import PlannedJob as Job

# Clip of all terms.
C = 0.3


def clip_vector(rows: np.ndarray) -> np.ndarray:
    sizes = np.sqrt((rows.reshape(len(rows), -1) ** 2).sum(axis=1))
    factor = np.minimum(1.0, C / np.maximum(sizes, 1e-300))
    return rows * factor.reshape(-1, *([1] * (rows.ndim - 1)))


def signed_records(job: Job) -> tuple[np.ndarray, np.ndarray]:
    train, validation = (np.concatenate([r.signed for r in job.records[k]]) for k in ("train", "validation"))
    return train, validation


def noise(job: Job, index: int, channel: str, d: int) -> np.ndarray:
    drawn = Streams(job.root, "noise", [0]).generator(0, index, tag(channel)).standard_normal((1, 1, d))
    return np.asarray(drawn[0, 0])
