"""Utility of sites with unequal numbers of records: weights of sites or of records, and a partition into equal sites.

    python -m tests.benchmarks.sites [--epsilon 1] [--seeds 3] [TABLE …]

Held-out AUC of the common model on all held-out records, its mean and standard deviation over seeds. Three tables are
generated; `affairs` is the survey of Fair (1978), which statsmodels ships, and is left out if it is not installed. No
default was set on these tables.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import decentral_dp

Range = tuple[float, float]


class Table(NamedTuple):
    """Records, the site that holds each of them, and what is public of the columns."""

    records: pd.DataFrame
    site: np.ndarray
    scale: Mapping[str, Range]
    columns: Mapping[str, Any] = MappingProxyType({})


def skewsites() -> Table:
    """Five sites of 5000 to 30 records whose shares of positive labels are 6 % to 70 %."""
    x, y = make_classification(
        30_000, 15, n_informative=8, n_redundant=3, weights=[0.7], class_sep=0.8, flip_y=0.05, random_state=9
    )
    rng = np.random.default_rng(9)
    left = [list(rng.permutation(np.flatnonzero(y == label))) for label in (0, 1)]
    chosen, site = [], []
    for a, (n, share) in enumerate([(5000, 0.10), (1500, 0.30), (600, 0.70), (150, 0.06), (30, 0.5)]):
        positive = int(n * share)
        chosen += [left[1].pop() for _ in range(positive)] + [left[0].pop() for _ in range(n - positive)]
        site += [a] * n
    frame = pd.DataFrame(x[chosen].round(3), columns=[f"f{i}" for i in range(15)]).assign(label=y[chosen])
    return Table(frame, np.array(site), {f"f{i}": (-8, 8) for i in range(15)})


def fraud() -> Table:
    """1 % positive labels, heavy tails, six sites of 5000 to 300 records."""
    rng = np.random.default_rng(1)
    n, d = 12_000, 16
    x = rng.standard_normal((n, d))
    x[:, 8:] = np.sign(x[:, 8:]) * np.abs(x[:, 8:]) ** 1.6
    w = np.r_[1.2, -1, 0.8, 0.8, -0.6, 0.5, 0, 0, 0.6, 0.5, -0.4, np.zeros(5)]
    z = x @ w + rng.logistic(0, 1, n)
    y = (z > np.quantile(z, 0.99)).astype(int)
    frame = pd.DataFrame(x.round(4), columns=[f"v{i}" for i in range(d)])
    frame["amount"] = np.exp(3 + 0.8 * rng.standard_normal(n) + 0.5 * y).round(2)
    scale = {f"v{i}": (-4.0, 4.0) if i < 8 else (-8.0, 8.0) for i in range(d)}
    scale["amount"] = (0.0, 500.0)
    return Table(frame.assign(label=y), _sites(rng, [5000, 3000, 2000, 1000, 700, 300]), scale, {"log": ["amount"]})


def binary200() -> Table:
    """200 columns of zeros and ones, five sites of 2500 to 300 records."""
    rng = np.random.default_rng(5)
    n, d = 6000, 200
    p = rng.beta(0.5, 4, d)
    x = (rng.random((n, d)) < p).astype(int)
    w = rng.normal(0, 1, d) * (rng.random(d) < 0.25)
    z = (x - p) @ w * 1.2 + rng.logistic(0, 1, n)
    names = [f"c{i}" for i in range(d)]
    frame = pd.DataFrame(x, columns=names).assign(label=(z > np.quantile(z, 0.8)).astype(int))
    return Table(frame, _sites(rng, [2500, 1500, 1000, 700, 300]), dict.fromkeys(names, (0, 1)))


def affairs() -> Table:
    """A survey of 6366 women, partitioned into six sites of 2500 to 100 records."""
    frame = importlib.import_module("statsmodels.datasets.fair").load_pandas().data
    frame["label"] = (frame.pop("affairs") > 0).astype(int)
    ends = [(1, 5), (16, 60), (0, 40), (0, 8), (1, 4), (6, 22), (1, 6), (1, 6)]
    names = ["rate_marriage", "age", "yrs_married", "children", "religious", "educ", "occupation", "occupation_husb"]
    sites = _sites(np.random.default_rng(4), [2500, 1600, 1200, 600, 366, 100])
    return Table(frame, sites, dict(zip(names, ends, strict=True)))


TABLES: dict[str, Callable[[], Table]] = {f.__name__: f for f in (skewsites, fraud, binary200, affairs)}

NOISE: dict[str, dict[str, Any]] = {
    "own noise": {},
    "shared noise, one colluder": {"colluders": 1, "correlation": {"between_agents": "pairwise"}},
}


def _sites(rng: np.random.Generator, sizes: list[int]) -> np.ndarray:
    return rng.permutation(np.repeat(np.arange(len(sizes)), sizes))


def _split(site: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return which records are held out, a fifth of each site's."""
    held_out = np.zeros(len(site), dtype=bool)
    for a in np.unique(site):
        records = rng.permutation(np.flatnonzero(site == a))
        held_out[records[: max(1, round(0.2 * len(records)))]] = True
    return held_out


def _even(site: np.ndarray, held_out: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Assign the same train and held-out records to as many equal sites."""
    even, sites = site.copy(), len(np.unique(site))
    for part in (held_out, ~held_out):
        records = rng.permutation(np.flatnonzero(part))
        even[records] = np.arange(len(records)) % sites
    return even


def scores(table: Table, epsilon: float, seed: int) -> Iterator[tuple[str, float]]:
    """Yield the AUC of each setting on one random split."""
    rng = np.random.default_rng(1000 + seed)
    held_out = _split(table.site, rng)
    even = _even(table.site, held_out, rng)
    test = table.records[held_out].drop(columns="label")
    label = table.records["label"][held_out]

    def auc(site: np.ndarray, algorithm: dict[str, Any], weights: str, privacy: dict[str, Any]) -> float:
        frame = table.records.assign(agent=site, split=np.where(held_out, "test", "train"))
        scenario = {
            "seed": seed,
            "problem": {
                "kind": "classification",
                "label": "label",
                "classes": [0, 1],
                "scale": dict(table.scale),
                "partition": {"kind": "column", "name": "agent"},
                "weights": weights,
                **({"columns": dict(table.columns)} if table.columns else {}),
            },
            "topology": {"kind": "ring", "agents": len(np.unique(site))},
            "algorithm": algorithm,
            "privacy": {"mechanism": "gaussian", "epsilon": epsilon, "delta": 1e-5, **privacy},
            "run": {"average": 0.5, "measures": ["test_loss"], "evaluate_every": 10**6},
        }
        model = decentral_dp.run(scenario, data=frame).model
        return float(roc_auc_score(label, np.asarray(model.predict_proba(test))[:, 1]))

    gossip = {"kind": "dp_dsgd", "rounds": 1000, "momentum": 0.9, "centring": True}
    for name, privacy in NOISE.items():
        for weights in ("sites", "records"):
            yield f"{name}, weights of {weights}", auc(table.site, gossip, weights, privacy)
        yield f"{name}, equal sites", auc(even, gossip, "sites", privacy)
    yield "trusted server", auc(table.site, {**gossip, "kind": "central"}, "sites", {})
    train = table.records[~held_out]
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    plain.fit(train.drop(columns="label"), train["label"])
    yield "scikit-learn, no privacy", float(roc_auc_score(label, plain.predict_proba(test)[:, 1]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", help=", ".join(TABLES))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for name in given.tables or TABLES:
        try:
            table = TABLES[name]()
        except ModuleNotFoundError as error:
            print(f"{name}: not run, {error.name} is not installed")
            continue
        runs = pd.DataFrame([dict(scores(table, given.epsilon, seed)) for seed in range(1, given.seeds + 1)])
        print(f"{name}, ε = {given.epsilon:g}, {given.seeds} seeds")
        for setting in runs:
            print(f"    {setting:45} {runs[setting].mean():.3f} ({runs[setting].std():.3f})", flush=True)


if __name__ == "__main__":
    main()
