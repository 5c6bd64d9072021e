"""The name of an algorithm, with every part that a scenario has switched on.

A baseline is the algorithm of its name: momentum, averages, centred features and second moments are off unless a key
asks for them, and plans, tables, legends and pages print which are on.
"""

from __future__ import annotations

from decentral_dp.simulation.jobs.job import Job

_NAMES = {
    "dp_dsgd": "D-SGD",
    "ldp_single_level": "D-SGD, combine then adapt",
    "federated": "DP-FedAvg with noise of each agent",
    "central": "DP-SGD on the records of all",
    "alone": "DP-SGD of each agent by itself",
    "random_walk": "random-walk SGD",
    "push_sum": "push-sum SGD",
    "choco": "CHOCO-SGD",
    "exact_diffusion": "exact diffusion",
    "gradient_tracking": "gradient tracking",
}


def method_name(job: Job) -> str:
    """Name the algorithm of a job, and what is on beside it.

    Example:
        >>> import decentral_dp
        >>> plain = {"algorithm.heavy_ball": 0.0, "algorithm.centring": False, "run.average": 1}
        >>> [method_name(decentral_dp.build("dp_dsgd", set=keys).simulation()) for keys in (plain, {})]
        ['D-SGD', 'D-SGD + momentum 0.9, centred features, tail average']
    """
    kind, algorithm = job.scenario.algorithm.kind, job.algorithm
    parts = []
    if momentum := getattr(algorithm, "heavy_ball", 0.0):
        parts.append(f"momentum {momentum:g}")
    if decay := getattr(algorithm, "adaptive", 0.0):
        parts.append(f"second moments {decay:g}")
    if getattr(algorithm, "centring_rounds", 0):
        parts.append("centred features")
    if min(job.scenario.tail_length, job.rounds) > 1:
        parts.append("tail average")
    name = _NAMES.get(kind, kind)
    return f"{name} + {', '.join(parts)}" if parts else name
