"""Digests of the libraries and the processor that determine the last bits of a computation.

Two machines with equal digests are expected to compute bitwise equal queries. On another machine, repeated rounds could
have different last bits under the same noise, which would be a second release.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from decentral_dp.files.package import package_digest, versions
from decentral_dp.models.devices import device_words

# Settings of libraries that the sample below does not use, because few problems import them.
_SETTINGS = ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")


def machine(device: str = "cpu") -> dict[str, str]:
    """Return the versions, the processor and the sample digest on which last bits depend, by name.

    Args:
        device: device of the problem, default "cpu".

    Example:
        >>> sorted(machine().keys() & {"arithmetic", "numpy", "processor"})
        ['arithmetic', 'numpy', 'processor']
    """
    device_text, processor = device_words(device), platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((t.partition(":")[2].strip() for t in lines if t.startswith("model name")), processor)
    return {
        **versions(),
        "sources": package_digest(),
        "processor": processor,
        "arithmetic": _sample_digest(),
        **({"device": device_text} if device_text else {}),
    }


def machine_digest(block: Any = None) -> str:
    """Return a digest of `machine`.

    Args:
        block: block of agents, or their data set, whose problem has a device; None (the default) means the CPU only.
    """
    # Clients that read their records later contain an inner block.
    device = getattr(getattr(getattr(block, "block", block), "problem", None), "device", "cpu")
    return blake2b(json.dumps(machine(device), sort_keys=True).encode(), digest_size=8).hexdigest()


@functools.cache
def _sample_digest() -> str:
    """Hash results that depend on the processor-specific kernels of numpy, BLAS, LAPACK and libm."""
    draw = np.random.default_rng(0)
    tall, wide = draw.uniform(-1.0, 1.0, (300, 64)), draw.uniform(-1.0, 1.0, (64, 30))
    # Kernels split long sums by the size of the cache.
    long = draw.uniform(-1.0, 1.0, (8, 5000))
    symmetric = tall.T @ tall + np.eye(64)
    with threadpool_limits(limits=1):
        results = [
            tall @ wide,
            tall @ wide[:, 0],
            wide[:, 0] @ wide,
            long @ long.T,
            long[0] @ long[1],
            np.einsum("ij,jk->ik", tall, wide),
            long.sum(axis=1),
            np.exp(tall),
            np.log1p(np.exp(-tall)),
            np.tanh(tall),
            np.abs(tall) ** 0.7,
            np.sin(tall),
            np.arange(1.0, 300.0) ** -0.3,
            np.linalg.eigvalsh(symmetric),
            np.linalg.solve(symmetric, wide),
            draw.standard_normal(500),
        ]
    digest = blake2b(digest_size=8)
    for result in results:
        digest.update(np.ascontiguousarray(result).tobytes())
    features = np.show_config(mode="dicts")["SIMD Extensions"]
    settings = [features.get("found", []), [os.environ.get(name, "") for name in _SETTINGS]]
    digest.update(json.dumps(settings).encode())
    return digest.hexdigest()
