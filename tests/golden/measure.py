"""Measurements: what is recorded of a scenario, of a command's text and of a run folder."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.simulation.jobs.build import build_job

from .cases import SCENARIOS, is_planned_only, plan_overrides, ray_overrides, run_overrides

_REPOSITORY = Path(__file__).resolve().parents[2]
# Larger arrays are stored as projections on public directions, with their norm and largest entry.
_FULL = 64
_PROJECTIONS = 8
# Number of distinct texts of a ledger's column that are stored with its hash, to make diffs readable.
_SHOWN = 8

FOLDERS = {"gossip": "ring_breast_cancer", "coordinator": "regularisation_tuner"}
COMMANDS = (
    "run",
    "new",
    "plan",
    "network",
    "audit",
    "check",
    "compare",
    "predict",
    "study",
    "list",
    "report",
)

# One entry of each kind: the reference pages describe every key, and have their own tests.
SHOWN = (
    "dp_dsgd",
    "ridge_hyperparameter",
    "group_dro",
    "erdos_renyi",
    "karate_club",
    "lazy_metropolis",
    "laplace",
    "by_class",
    "wine",
    "cartpole",
    "synthetic_classification",
    "warm_start",
    "ring_breast_cancer",
    "network_view",
    "mean_lower_bound",
)

# Number of columns of the terminal that texts are written for.
_WIDTH = 100
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Finished(NamedTuple):
    """Store the compared parts of a run."""

    released: dict[str, np.ndarray]
    ledger: pd.DataFrame
    status: str
    agents: int


def scenario(name: str, ray: bool = True) -> dict[str, Any]:
    """Return all recorded data of a scenario. ray: on the Ray engine too (Ray must be initialised)."""
    out: dict[str, Any] = {"canary": canary(), "plan": plan(name)}
    if not is_planned_only(name):
        out |= {"seeded": seeded(name), "noise_free": noise_free(name)}
        if ray:
            out["ray"] = bits(finished_on_ray(name).released)
    return out


def plan(name: str) -> dict[str, Any]:
    job = planned(name)
    return {"epsilon": numbers(job.budget.epsilon), "rounds": int(job.rounds), "ledger": ledger(job.ledger.to_frame())}


@lru_cache(maxsize=1)
def planned(name: str) -> decentral_dp.Job:
    """The job as shipped, on the processor."""
    with threadpool_limits(limits=1):
        return build_job(load(str(SCENARIOS[name]), plan_overrides(name)))


def seeded(name: str) -> dict[str, Any]:
    done = finished(name)
    return {"status": done.status, "bits": bits(done.released), "ledger": ledger(done.ledger)}


def noise_free(name: str) -> dict[str, Any]:
    done = finished(name, noise=False)
    return {
        "status": done.status,
        "released": {channel: array(value) for channel, value in sorted(done.released.items())},
        "ledger": ledger(done.ledger),
    }


@cache
def finished(name: str, noise: bool = True) -> Finished:
    """A short run on the local engine, once per process."""
    return _kept(performed(name, noise=noise))


@lru_cache(maxsize=1)
def performed(name: str, *, noise: bool) -> decentral_dp.Run:
    """The same with all that a run has, which is too much to be kept of every scenario."""
    return _run(name, run_overrides(name, noise))


@cache
def finished_on_ray(name: str) -> Finished:
    return _kept(_run(name, [*run_overrides(name), *ray_overrides(finished(name).agents)]))


def _run(name: str, overrides: list[str]) -> decentral_dp.Run:
    with threadpool_limits(limits=1):
        return decentral_dp.run(load(str(SCENARIOS[name]), overrides))


def _kept(done: decentral_dp.Run) -> Finished:
    agents = len(done.ledger["agent"].unique())
    return Finished(dict(done.released), done.ledger, done.result["status"], agents)


def numbers(values: Iterable[float]) -> list[float | str]:
    """Numbers for JSON: infinities and NaN as texts, which `float` reads."""
    return [number(v) for v in np.asarray(values, dtype=float).ravel()]


def number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else repr(float(value))


def bits(released: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Channel → hash of the array's bytes, with its type and shape."""
    return {
        channel: {
            "dtype": value.dtype.str,
            "shape": list(value.shape),
            "sha256": hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest(),
        }
        for channel, value in sorted(released.items())
    }


def array(value: np.ndarray) -> dict[str, Any]:
    """The entries of a small array; of a large one projections on public directions, its norm and largest entry."""
    flat = np.asarray(value, dtype=float).ravel()
    out: dict[str, Any] = {"dtype": value.dtype.str, "shape": list(value.shape)}
    out["largest"] = number(np.abs(flat).max(initial=0.0))
    if flat.size <= _FULL:
        return out | {"entries": numbers(flat)}
    directions = np.random.default_rng(0).uniform(-1.0, 1.0, size=(_PROJECTIONS, flat.size))
    # Sums without rounding do not depend on their order.
    out["projections"] = [number(math.fsum(row)) for row in (directions * flat).tolist()]
    return out | {"norm": number(math.sqrt(math.fsum((flat * flat).tolist())))}


def ledger(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the columns in order, and a summary of the content per channel and column."""
    channels = {str(c): rows for c, rows in frame.groupby("channel", sort=True)}
    return {
        "rows": len(frame),
        "columns": [f"{name}: {frame[name].dtype}" for name in frame.columns],
        "channels": {
            channel: {str(name): _column(rows[name]) for name in frame.columns if name != "channel"}
            for channel, rows in channels.items()
        },
    }


def _column(values: pd.Series) -> dict[str, Any]:
    if not pd.api.types.is_numeric_dtype(values):
        texts = [str(v) for v in values]
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
        return {"sha256": digest, "distinct": sorted(set(texts))[:_SHOWN]}
    content = values.to_numpy(dtype=float)
    finite = content[np.isfinite(content)]
    places = np.flatnonzero(np.isfinite(content)) + 1.0
    return {
        "count": int(content.size),
        "infinite": int(np.isposinf(content).sum()),
        "minus_infinite": int(np.isneginf(content).sum()),
        "nan": int(np.isnan(content).sum()),
        "sum": math.fsum(finite.tolist()),
        "sum_by_place": math.fsum((finite * places).tolist()),
        "least": number(finite.min(initial=math.inf)),
        "largest": number(finite.max(initial=-math.inf)),
    }


@cache
def canary() -> str:
    """Hash of floating-point results that differ between processors and libraries, and so do last bits of runs."""
    random = np.random.default_rng(0)
    a, b = random.uniform(-1, 1, (200, 64)), random.uniform(-1, 1, (64, 30))
    labels = np.where(a[:, 0] > 0, 1.0, -1.0)
    w = b[:, 0]
    with threadpool_limits(limits=1):
        margins = labels * (a @ w)
        symmetric = a.T @ a
        weights = torch.tensor(b, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(torch.tensor(a) @ weights, torch.arange(200) % 30)
        (slope,) = torch.autograd.grad(loss, weights)
        results = [
            a @ b,
            np.einsum("ij,jk->ik", a, b),
            np.exp(a),
            np.log1p(np.exp(-margins)),
            -(labels / (1.0 + np.exp(margins))) @ a / len(a),
            np.linalg.eigh(symmetric)[0],
            np.linalg.solve(symmetric + np.eye(64), b),
            random.laplace(size=500),
            random.normal(size=500),
            slope.numpy(),
        ]
    joined = b"".join(np.ascontiguousarray(r).tobytes() for r in results)
    return hashlib.sha256(joined).hexdigest()


def texts() -> dict[str, str]:
    """File name → what a command prints: schema, lists, help, and one description of each kind of component."""
    return {
        "help.txt": _printed("--help"),
        "schema.json": _printed("list", "--schema"),
        "list.txt": _printed("list"),
        "described.txt": "\n".join(f"$ decentral-dp list {n}\n\n{_printed('list', n)}" for n in SHOWN),
        **{f"help_{command}.txt": _printed(command, "--help") for command in COMMANDS},
    }


def _printed(*arguments: str, width: int = _WIDTH) -> str:
    environment = {"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1"}
    done = CliRunner(env=environment).invoke(app, list(arguments), prog_name="decentral-dp")
    if done.exit_code != 0:
        raise RuntimeError(f"{' '.join(arguments)}: exit code {done.exit_code}") from done.exception
    # The checkout's path differs between machines.
    lines = _ESCAPES.sub("", done.stdout).replace(str(_REPOSITORY), "REPOSITORY").splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def folder(name: str, place: Path) -> dict[str, Any]:
    """Return the structure of a run folder: names of files, columns, keys and arrays, without values."""
    out = place / "run"
    decentral_dp.run(load(str(SCENARIOS[name]), run_overrides(name)), out=out)
    found: dict[str, Any] = {}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        inside: list[str] | None = None
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path)
            inside = [f"{column}: {frame[column].dtype}" for column in frame.columns]
        elif path.suffix == ".json":
            inside = sorted(set(_keys(json.loads(path.read_text(encoding="utf-8")))))
        elif path.suffix == ".toml":
            inside = sorted(set(_keys(tomllib.loads(path.read_text(encoding="utf-8")))))
        elif path.suffix == ".npz":
            with np.load(path) as arrays:
                inside = sorted(arrays.files)
        found[path.relative_to(out).as_posix()] = inside
    return found


def _keys(value: Any, above: str = "") -> Iterable[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"{above}{key}"
            yield from _keys(inner, f"{above}{key}.")
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner, f"{above}[].")
