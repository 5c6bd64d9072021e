"""Folder of published models, which contains exactly what an adversary of `privacy.adversary` may receive.

    model.npz           named weights, and x and y: the centre of features and the weights as the agents send them
    metadata.json       features, classes and ranges of the model
    scenario.toml       the scenario of the run
    statement.json      the privacy statement: ε of the published models and of all messages

All other files of a run folder reveal more than the published models.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.simulation.metrics import average_agents
from decentral_dp.simulation.model import TrainedModel
from decentral_dp.simulation.result import METADATA, MODEL, PUBLISHED, STATEMENT, RunResult, text_of

README = "README.txt"
_README = (
    f"{PUBLISHED}/ has the published model. Everything else in this folder shows more than the published model, and "
    "the smaller ε does not cover it.\n"
)
# Keys of a problem's summary that predictions need.
_READ = ("kind", "data", "features", "classes", "image", "bounds")


def write_published(result: RunResult, model: TrainedModel, published: Mapping[str, Array], place: Path) -> list[str]:
    """Write the published models of a run whose adversary receives nothing else.

    Args:
        result: result of the run.
        model: trained model of the run.
        published: channel → released values of each agent.
        place: folder in which `published/` is created; it contains `scenario.toml`.

    Returns:
        The names of the written files, relative to the folder.
    """
    privacy = result.privacy
    target = place / PUBLISHED
    target.mkdir()
    values = {name: published[name] for name in ("x", "y")}
    if privacy.view == "final_average":
        values, weights = average_agents(values), model.weights
    else:
        named = [model.of_agent(agent).weights for agent in range(len(values["y"]))]
        weights = {name: np.stack([agent[name] for agent in named]) for name in named[0]}
    np.savez(target / MODEL, allow_pickle=False, **weights, **values)
    problem = result.problem
    metadata: dict[str, Any] = {
        "model": model.problem.description,
        "agents": list(result.topology["labels"]) if len(values["y"]) > 1 else [],
        "linked": model.linked,
        "problem": {key: problem[key] for key in _READ if key in problem},
    }
    (target / METADATA).write_text(text_of(metadata), encoding="utf-8")
    (target / STATEMENT).write_text(text_of(privacy.to_dict()), encoding="utf-8")
    shutil.copyfile(place / "scenario.toml", target / "scenario.toml")
    (place / README).write_text(_README, encoding="utf-8")
    return [README, *(f"{PUBLISHED}/{name}" for name in (MODEL, METADATA, "scenario.toml", STATEMENT))]
