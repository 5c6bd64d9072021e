"""Utility on twelve tables of agents: ours, a trusted server, isolated agents, Opacus and scikit-learn.

    python -m tests.benchmarks.sites [TABLE …] [--epsilon 1 3 8] [--seeds 3] [--deviations]

The command prints one Markdown table for each ε: the mean over seeds of the AUC of two classes, the one-vs-rest AUC of
more, or the R² of numbers, on the held-out records of all agents. Seven tables are generated. Two come with
statsmodels and two with lifelines, and are skipped without it. `text` depends on the versions of four packages. The
column of Opacus requires Opacus and dp_accounting. No setting was tuned on these tables.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import decentral_dp

Range = tuple[float, float]


class Table(NamedTuple):
    """Records, the site that holds each of them, and public facts of the columns. Numeric labels have a range."""

    records: pd.DataFrame
    site: np.ndarray
    scale: Mapping[str, Range]
    columns: Mapping[str, Any] = MappingProxyType({})
    label_range: Range | None = None


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


def visits() -> Table:
    """Visits to a doctor of 12,000 people (RAND experiment), five sites by a noisy quantile of a payment."""
    rng = np.random.default_rng(3)
    frame = importlib.import_module("statsmodels.datasets.randhie").load_pandas().data
    frame = frame.sample(12_000, random_state=0).reset_index(drop=True).rename(columns={"mdvis": "label"})
    payment = frame["lpi"].to_numpy() + rng.normal(0, 2, len(frame))
    ends = {"lncoins": 5, "idp": 1, "lpi": 8, "fmde": 9, "physlm": 1, "disea": 60, "hlthg": 1, "hlthf": 1, "hlthp": 1}
    site = np.digitize(payment, np.quantile(payment, [0.05, 0.2, 0.45, 0.7]))
    return Table(frame, site, {name: (0, end) for name, end in ends.items()}, label_range=(0, 40))


def tiny() -> Table:
    """200 released prisoners, five sites of 40 records."""
    frame = importlib.import_module("lifelines.datasets").load_rossi().sample(200, random_state=0)
    frame = frame.reset_index(drop=True).drop(columns="week").rename(columns={"arrest": "label"})
    scale = {"age": (16, 60), "prio": (0, 20), **dict.fromkeys(("fin", "race", "wexp", "mar", "paro"), (0, 1))}
    return Table(frame, np.repeat(np.arange(5), 40), scale)


def dd() -> Table:
    """1808 political regimes with categories and missing values, five continents as sites."""
    frame = importlib.import_module("lifelines.datasets").load_dd()
    site = np.unique(frame["un_continent_name"], return_inverse=True)[1]
    frame = frame[["democracy", "regime", "start_year", "duration", "observed"]].rename(columns={"observed": "label"})
    frame.loc[np.random.default_rng(11).random(len(frame)) < 0.1, "duration"] = np.nan
    regimes = ["Civilian Dict", "Military Dict", "Parliamentary Dem", "Presidential Dem", "Monarchy", "Mixed Dem"]
    columns = {"fill": {"duration": 5}, "categories": {"democracy": ["Democracy"], "regime": regimes}}
    return Table(frame, site, {"start_year": (1940, 2010), "duration": (0, 50)}, columns)


def claimslog() -> Table:
    """Logarithm of insurance claims, heavy tails, five sites of 3000 to 200 records."""
    rng = np.random.default_rng(0)
    n = 6000
    frame = pd.DataFrame({"age": rng.integers(18, 90, n), "power": rng.gamma(6, 15, n).clip(30, 300).round(1)})
    frame["km"] = rng.lognormal(9.3, 0.6, n).round()
    frame["bonus"] = (100 * rng.beta(2, 5, n)).round(1)
    frame["urban"] = (rng.random(n) < 0.4).astype(int)
    frame["previous"] = rng.poisson(0.4, n)
    frame["vehicle"] = rng.integers(0, 25, n)
    mean = 6.5 + 0.02 * (frame["age"] - 45).abs() + 0.004 * frame["power"] + 0.25 * np.log(frame["km"] / 1e4)
    mean += 0.3 * frame["urban"] + 0.25 * frame["previous"] - 0.02 * frame["vehicle"] - 0.005 * frame["bonus"]
    frame["label"] = np.log1p(np.exp(mean + 0.7 * rng.standard_t(3, n)).clip(0, 1e6))
    ends = [(18, 100), (0, 300), (0, 60_000), (0, 100), (0, 1), (0, 10), (0, 30)]
    scale = dict(zip(frame.columns, ends, strict=False))
    return Table(frame, _sites(rng, [3000, 1500, 900, 400, 200]), scale, {"log": ["km"]}, label_range=(0, 15))


def ordinal() -> Table:
    """Five ordered classes with an interaction, five sites of 1500 to 200 records."""
    rng = np.random.default_rng(2)
    n, d = 4000, 11
    x = rng.standard_normal((n, d)) @ (0.4 * rng.standard_normal((d, d)) + np.eye(d))
    z = 0.8 * x[:, 0] - 0.6 * x[:, 3] + 0.5 * x[:, 5] + 0.3 * x[:, 1] * x[:, 2] + rng.logistic(0, 0.8, n)
    label = np.digitize(z, np.quantile(z, [0.05, 0.25, 0.6, 0.9])) + 1
    return _numeric(x, label, _sites(rng, [1500, 1000, 800, 500, 200]), (-6, 6))


def sensors() -> Table:
    """500 columns of eight factors, five sites of 1000 to 300 records."""
    rng = np.random.default_rng(6)
    n, d, k = 3000, 500, 8
    factors = rng.standard_normal((n, k))
    x = factors @ rng.standard_normal((k, d)) + 0.7 * rng.standard_normal((n, d)) + rng.normal(0, 2, d)
    z = 1.2 * factors[:, 5] - factors[:, 6] + 0.7 * factors[:, 7] + rng.logistic(0, 1, n)
    return _numeric(x, (z > 0).astype(int), _sites(rng, [1000, 700, 600, 400, 300]), (-15, 15))


def twenty() -> Table:
    """Twenty classes, four sites of 2000 records."""
    x, y = make_classification(
        8000, 40, n_informative=16, n_redundant=8, n_classes=20, n_clusters_per_class=1, class_sep=1.6, flip_y=0.03,
        random_state=8,
    )  # fmt: skip
    return _numeric(x, y, _sites(np.random.default_rng(0), [2000] * 4), (-10, 10))


def text() -> Table:
    """Docstrings of four packages, 256 hashed words, five sites of which four mostly have one class."""
    rng = np.random.default_rng(7)
    packages = ["numpy", "scipy", "sklearn", "pandas"]
    texts, label = zip(*[(s, k) for k in range(4) for s in islice(_docstrings(packages[k]), 1500)], strict=True)
    site = np.where(rng.random(len(label)) < 0.6, label, rng.integers(0, 5, len(label)))
    hashing = HashingVectorizer(n_features=256, alternate_sign=False, stop_words="english", token_pattern=r"[a-z]{3,}")
    return _numeric(hashing.transform(texts).toarray(), np.array(packages)[list(label)], site, (0, 0.5))


_FUNCTIONS = (
    *(skewsites, fraud, binary200, affairs, visits, tiny, dd),
    *(claimslog, ordinal, sensors, twenty, text),
)
TABLES: dict[str, Callable[[], Table]] = {f.__name__: f for f in _FUNCTIONS}

# The settings of `decentral-dp new` and of its option --algorithm adassp: tables [algorithm] and [run].
DEFAULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dp_dsgd": ({"rounds": 1000, "momentum": 0.9, "centring": True}, {"average": 0.5}),
    "adassp": ({"rounds": 40}, {}),
}
PAIRWISE_NOISE = {"colluders": 1, "correlation": {"between_agents": "pairwise"}}
DELTA = 1e-5
# Settings of Opacus. The learning rates, of classes and of numbers, are the best of four on other generated tables.
RATE, EPOCHS, CLIP, MOMENTUM, LEARNING_RATE_OF_CLASSES, LEARNING_RATE_OF_NUMBERS = 0.1, 20, 1.0, 0.9, 0.3, 0.03


def _sites(rng: np.random.Generator, sizes: list[int]) -> np.ndarray:
    return rng.permutation(np.repeat(np.arange(len(sizes)), sizes))


def _numeric(x: np.ndarray, label: np.ndarray, site: np.ndarray, ends: Range) -> Table:
    """Make a table of columns with the same range."""
    names = [f"f{i}" for i in range(x.shape[1])]
    return Table(pd.DataFrame(x, columns=names).assign(label=label), site, dict.fromkeys(names, ends))


def _docstrings(package: str) -> Iterator[str]:
    """Yield long docstrings of a package without its name, examples and abbreviations."""
    folder = Path(importlib.import_module(package).__path__[0])
    for path in sorted(path for path in folder.rglob("*.py") if "test" not in str(path.relative_to(folder))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else None
            if found is not None and len(found) >= 120:
                names = r"numpy|scipy|sklearn|scikit|pandas|>>>.*|\bnp\b|\bpd\b|dataframe|series"
                yield re.sub(names, " ", found.lower())


def _split(site: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return which records are held out, a fifth of each site's."""
    held_out = np.zeros(len(site), dtype=bool)
    for a in np.unique(site):
        records = rng.permutation(np.flatnonzero(site == a))
        held_out[records[: max(1, round(0.2 * len(records)))]] = True
    return held_out


def _score(label: np.ndarray, predicted: Any) -> float:
    """Return R² of predicted numbers (n,), or the AUC of predicted probabilities (n, c)."""
    values = np.asarray(predicted)
    if values.ndim == 1:
        return float(r2_score(label, values))
    return float(roc_auc_score(label, values[:, 1] if values.shape[1] == 2 else values, multi_class="ovr"))


@cache
def _noise_multiplier(epsilon: float) -> float:
    """Return the noise multiplier of Opacus for a replaced record. Its own accountants add or remove one."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    def event(sigma: float) -> Any:
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(RATE, dp.GaussianDpEvent(sigma)), round(EPOCHS / RATE))

    replace = dp.NeighboringRelation.REPLACE_ONE
    return float(dp.calibrate_dp_mechanism(lambda: PLDAccountant(replace), event, epsilon, DELTA, tol=1e-2))


def _opacus(x: np.ndarray, label: np.ndarray, table: Table, epsilon: float, seed: int) -> Callable[[np.ndarray], Any]:
    """Train a linear model by DP-SGD of Opacus on pooled records.

    Args:
        x: features in [−1, 1], (n, d).
        label: labels, (n,).
        table: of the records.
        epsilon: target ε.
        seed: of the batches and the noise.

    Returns:
        Function that predicts numbers or probabilities of features.
    """
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    low, high = table.label_range or (-1.0, 1.0)
    if table.label_range:
        y = torch.tensor(2 * (label.clip(low, high) - low) / (high - low) - 1).float()[:, None]
    else:
        y = torch.tensor(np.unique(label, return_inverse=True)[1])
    loss: Any = torch.nn.MSELoss() if table.label_range else torch.nn.CrossEntropyLoss()
    model: Any = torch.nn.Linear(x.shape[1], 1 if table.label_range else int(y.max()) + 1)
    for weights in model.parameters():
        torch.nn.init.zeros_(weights)
    learning_rate = LEARNING_RATE_OF_NUMBERS if table.label_range else LEARNING_RATE_OF_CLASSES
    optimiser: Any = torch.optim.SGD(model.parameters(), learning_rate, MOMENTUM)
    loader: Any = DataLoader(TensorDataset(torch.tensor(x).float(), y), batch_size=int(np.ceil(RATE * len(x))))
    model, optimiser, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimiser, data_loader=loader, noise_multiplier=_noise_multiplier(epsilon),
        max_grad_norm=CLIP,
    )  # fmt: skip
    for _ in range(EPOCHS):
        for features, target in loader:
            optimiser.zero_grad()
            loss(model(features), target).backward()
            optimiser.step()

    def predict(features: np.ndarray) -> Any:
        scores = model(torch.tensor(features).float()).detach()
        if table.label_range:
            return low + (scores[:, 0].numpy() + 1) / 2 * (high - low)
        return scores.double().softmax(1).numpy()

    return predict


def scores(table: Table, algorithm: str, epsilon: float, seed: int) -> Iterator[tuple[str, float]]:
    """Yield the score of each method on one random split; `algorithm` is a key of `DEFAULTS`."""
    held_out = _split(table.site, np.random.default_rng(1000 + seed))
    frame = table.records.assign(agent=table.site, split=np.where(held_out, "test", "train"))
    label = table.records["label"].to_numpy()
    sizes, numbers = np.bincount(table.site), table.label_range is not None
    settings, run = DEFAULTS[algorithm]
    target = {"label_range": table.label_range} if numbers else {"classes": np.unique(label).tolist()}

    def score(
        graph: str, weights: str = "sites", privacy: Mapping[str, Any] = MappingProxyType({}), agent: int | None = None
    ) -> tuple[float, Any]:
        records = frame if agent is None else frame[table.site == agent].assign(agent=0)
        scenario = {
            "seed": seed,
            "problem": {
                "kind": "regression" if numbers else "classification",
                "label": "label",
                **target,
                "scale": dict(table.scale),
                "partition": {"kind": "column", "name": "agent"},
                "weights": weights,
                **({"columns": dict(table.columns)} if table.columns else {}),
            },
            "topology": {"kind": graph, "agents": records["agent"].nunique()},
            "algorithm": {"kind": algorithm, **settings},
            "privacy": {"mechanism": "gaussian", "epsilon": epsilon, "delta": DELTA, **privacy},
            "run": {"measures": ["test_loss"], "evaluate_every": 10**6, **run},
        }
        model = decentral_dp.run(scenario, data=records).model
        test = table.records[held_out].drop(columns="label")
        return _score(label[held_out], model.predict(test) if numbers else model.predict_proba(test)), model

    central, server = score("pooled")
    if algorithm == "dp_dsgd":
        x = server.prepare(table.records.drop(columns="label"))
        fitted = x[~held_out], label[~held_out]
        majority = DummyRegressor() if numbers else DummyClassifier()
        linear = LinearRegression() if numbers else LogisticRegression(max_iter=1000)
        for name, model in (("constant", majority), ("scikit-learn", make_pipeline(StandardScaler(), linear))):
            model.fit(*fitted)
            yield name, _score(label[held_out], (model.predict if numbers else model.predict_proba)(x[held_out]))
        if all(map(importlib.util.find_spec, ("opacus", "dp_accounting"))):
            yield "Opacus", _score(label[held_out], _opacus(*fitted, table, epsilon, seed)(x[held_out]))
    isolated = [score("pooled", agent=agent)[0] for agent in range(len(sizes))]
    yield "isolated, mean", float(np.mean(isolated))
    yield "isolated, largest", isolated[sizes.argmax()]
    yield "trusted server", central
    yield "ours, sites", score("ring")[0]
    yield "ours, records", score("ring", "records")[0]
    yield "ours, records, pairwise noise", score("ring", "records", PAIRWISE_NOISE)[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", help=", ".join(TABLES))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--deviations", action="store_true", help="also print standard deviations over seeds")
    arguments = parser.parse_args()
    rows: dict[str, tuple[Table, str]] = {}
    for name in arguments.tables or TABLES:
        try:
            table = TABLES[name]()
        except ModuleNotFoundError as error:
            print(f"{name}: skipped, {error.name} is not installed.\n")
            continue
        rows[f"{name}, R²" if table.label_range else f"{name}, AUC"] = table, "dp_dsgd"
        if table.label_range:
            rows[f"{name}, R², `adassp`"] = table, "adassp"
    for epsilon in arguments.epsilon:
        columns, deviations = list[str](), list[str]()
        for row, (table, algorithm) in rows.items():
            seeds = range(1, arguments.seeds + 1)
            runs = pd.DataFrame([dict(scores(table, algorithm, epsilon, seed)) for seed in seeds])
            if not columns:
                columns = list(map(str, runs))
                heading = f"| ε = {epsilon:g}, {arguments.seeds} seeds | {' | '.join(columns)} |\n"
                heading += "|---" * (len(columns) + 1) + "|"
                print(heading)
            print(_line(row, runs.mean(), columns), flush=True)
            deviations.append(_line(row, runs.std(), columns))
        print()
        if arguments.deviations:
            print("Standard deviations:", "", heading, *deviations, "", sep="\n")


def _line(row: str, values: pd.Series, columns: list[str]) -> str:
    cells = [f"{values[c]:z.3f}".replace("-", "−") if c in values else "–" for c in columns]
    return f"| {row} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
