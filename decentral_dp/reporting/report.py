"""The report of a run: what its page, its figures and the terminal show, read from its folder."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.files.parquet import Columns
from decentral_dp.files.regular import own
from decentral_dp.formatting import delta_text, epsilon_text, score_text
from decentral_dp.problems import PROBLEMS
from decentral_dp.simulation.metrics import JUDGES
from decentral_dp.simulation.result import BASELINES_FOLDER, RunResult, is_complete, published_values, read_result

if TYPE_CHECKING:
    import pandas as pd


def scenario_text(folder: Path) -> str:
    """The scenario of a run folder as text; "" where there is none."""
    path = folder / "scenario.toml"
    return own(path, folder, str(folder)).read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def read_scenario(folder: Path) -> dict[str, Any]:
    """The resolved scenario; empty where there is none that can be read, for the page can do without."""
    try:
        return tomllib.loads(scenario_text(folder))
    except tomllib.TOMLDecodeError:
        return {}


def published_x(folder: Path) -> Array | None:
    """(m, p), last published; None where the folder has none. Raises InputError for a broken file."""
    there = (folder / "state.npz").exists()
    return published_values(folder, str(folder), ["x"]).get("x") if there else None


def broken(path: Path, error: Exception) -> InputError:
    """What is said of a file that cannot be read."""
    why = " ".join(str(error).split()).rstrip(".")
    return InputError(f"{path}: cannot be read ({why}); run the scenario again to write the folder anew.")


OVERFLOW = 1e100  # Beyond this a curve is drawn as overflown: axes in float64 cannot hold it.
DRAWN_ROUNDS = 120


class Drawing(NamedTuple):
    """The content of a run folder that the page and the figures show.

    Args:
        result: of the run.
        scenario: fully resolved.
        metrics: columns round, agent, name, value.
        ledger: columns as of `Ledger.to_frame`, at the drawn rounds.
        x: (m, p), last published; None if the run has none.
    """

    result: RunResult
    scenario: Mapping[str, Any]
    metrics: Columns
    ledger: Columns
    x: Array | None

    @property
    def limits(self) -> dict[str, float]:
        """ε that the scenario aims at ("target") or must not pass ("cap")."""
        values = {"target": self.scenario.get("privacy", {}).get("epsilon"), "cap": self.result.privacy.cap}
        return {name: float(value) for name, value in values.items() if value is not None}

    @property
    def start(self) -> float | None:
        """The value at which every coordinate of x starts; None if it is unknown."""
        if self.result.algorithm:
            # A coordinator projects the start onto its domain.
            value = self.result.algorithm["start"]["x"]
        elif "x" in (self.scenario.get("problem", {}).get("start") or {}):
            return None
        else:
            value = (self.scenario.get("algorithm", {}).get("init") or {}).get("x", 0.0)
        return float(value) if isinstance(value, int | float) else None

    @property
    def is_trusted(self) -> bool:
        """Whether a trusted coordinator publishes one value for all agents."""
        return self.result.privacy.is_trusted

    def score(self, name: str) -> Curve | None:
        """A score over rounds, of what was published or else of the exact lower solution there."""
        return curve(self.metrics, f"{name}_unreleased" if self.result.solves_lower else name)


class Curve(NamedTuple):
    """A metric by round, (T,): mean, lowest, highest over agents; NaN where one overflowed, first at `overflow`."""

    rounds: Array
    mean: Array
    low: Array
    high: Array
    overflow: int | None

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last finite mean."""
        finite = self.mean[np.isfinite(self.mean)]
        return (float(finite[0]), float(finite[-1])) if finite.size else (math.nan, math.nan)


def read_drawing(folder: Path) -> Drawing:
    """Read a run folder.

    Raises:
        InputError: the folder holds no result.json, or a file that is broken.
    """
    result = read_result(folder)
    ledger = read_ledger(folder / "ledger.parquet", drawn_rounds(result))
    return Drawing(result, read_scenario(folder), read_metrics(folder / "metrics.parquet"), ledger, published_x(folder))


def drawn_rounds(result: RunResult) -> Array:
    """(k,) the rounds at which a ledger is drawn, evenly spaced on a log axis."""
    last = max(1, result.rounds, result.rounds_planned or 0)
    return np.unique(np.geomspace(1, last, DRAWN_ROUNDS).round())


# Columns of what was measured.
_COLUMNS = {"round": "int64", "agent": "str", "name": "str", "value": "float64"}


def nothing_measured() -> pd.DataFrame:
    """Make the table of a run that measured nothing."""
    # Slow to import, and a run that ends is drawn from what is in memory.
    import pandas as pd

    return pd.DataFrame(columns=list(_COLUMNS)).astype(_COLUMNS)


def read_metrics(path: Path) -> pd.DataFrame:
    """Read what was measured: rows (round, agent, name, value), none where nothing was or the file is missing.

    Raises:
        InputError: for a file that is broken, or holds something else.
    """
    import pandas as pd

    try:
        frame = pd.read_parquet(own(path, path.parent, str(path)))
        if not set(_COLUMNS) <= set(frame):
            return nothing_measured()
        kinds = {n: pd.api.types.infer_dtype(frame[n], skipna=False) for n in ("agent", "name")}
        if wrong := [n for n, kind in kinds.items() if kind not in ("string", "empty") or frame[n].isna().any()]:
            raise ValueError(f"its column {wrong[0]} has other values than text")
        if wrong := [n for n in ("round", "value") if not pd.api.types.is_numeric_dtype(frame[n])]:
            raise ValueError(f"its column {wrong[0]} has other values than numbers")
        return frame.astype({"round": "int64", "value": "float64"})
    except InputError:
        raise
    except FileNotFoundError:
        return nothing_measured()
    except (ValueError, TypeError, RuntimeError, OSError) as error:  # Arrow's errors are among these.
        raise broken(path, error) from None


def read_ledger(path: Path, rounds: Array) -> pd.DataFrame:
    """Read a ledger at some rounds, part by part: it may be longer than memory.

    Args:
        path: of `ledger.parquet`; where it is missing nothing is read.
        rounds: (k,) whole numbers.

    Raises:
        InputError: for a file that is broken.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.parquet import ParquetFile

    if not own(path, path.parent, str(path)).exists():
        return pd.DataFrame()
    numbers = pa.array(rounds.astype(np.int64))
    try:
        with ParquetFile(path) as file:
            # A run without any release has a ledger without columns.
            if "round" not in file.schema_arrow.names:
                return pd.DataFrame()
            # A mask: filters that are expressions keep memory from part to part.
            parts = (file.read_row_group(k) for k in range(file.num_row_groups))
            chosen = (part.filter(pc.is_in(part["round"], value_set=numbers)) for part in parts)
            read = [part for part in chosen if part.num_rows] or [file.schema_arrow.empty_table()]
        ledger: pd.DataFrame = pa.concat_tables(read).unify_dictionaries().to_pandas()
        return ledger
    except (ValueError, OSError) as error:
        raise broken(path, error) from None


def curve(metrics: Columns, name: str) -> Curve | None:
    """The metric over rounds, its band from `…_min`/`…_max` or else from rows per agent; None if it is missing."""
    stem, last = (name.removesuffix("_last"), "_last") if name.endswith("_last") else (name, "")
    agents, names = np.asarray(metrics["agent"]), np.asarray(metrics["name"])
    every_round, every_value = np.asarray(metrics["round"]), np.asarray(metrics["value"], dtype=np.float64)

    def means(of: str) -> dict[float, float]:
        rows = np.flatnonzero((names == of) & (agents == "mean"))
        return dict(zip(every_round[rows].tolist(), every_value[rows].tolist(), strict=True))

    rows = np.flatnonzero((names == name) & (agents != "mean"))
    rows = rows[np.argsort(every_round[rows], kind="stable")]
    times, first = np.unique(every_round[rows], return_index=True)
    # Not strict: no rows are split into one part, which is empty.
    by_agent = dict(zip(times.tolist(), np.split(every_value[rows], first[1:]), strict=False))
    mean = means(name) or {t: float(np.mean(values)) for t, values in by_agent.items()}
    if not mean:
        return None
    lines = [mean]
    for side, extreme in (("min", np.min), ("max", np.max)):
        extremes = means(f"{name}_{side}") or means(f"{stem}_{side}{last}")
        lines.append(extremes or {t: float(extreme(values)) for t, values in by_agent.items()} or mean)
    rounds = np.array(sorted(mean), dtype=np.float64)
    values = np.array([[line.get(t, np.nan) for t in rounds.tolist()] for line in lines])
    drawable = np.where(np.abs(values) < OVERFLOW, values, np.nan)
    bad = rounds[~np.isfinite(drawable[0])]
    return Curve(rounds, drawable[0], drawable[1], drawable[2], int(bad[0]) if bad.size else None)


class TextTable(NamedTuple):
    """A table in words.

    Args:
        heads: name of each column, and what is said below it.
        numbers: whether a column holds numbers.
        rows: text of each cell.
        sorted_by: what a column is sorted by, row by row; the text where that is None, or by default.
        note: what the means and intervals are.
    """

    heads: Sequence[tuple[str, str]]
    numbers: Sequence[bool]
    rows: Sequence[Sequence[str]]
    sorted_by: Sequence[Sequence[float | None]] = ()
    note: str = ""


def head_of(head: tuple[str, str]) -> str:
    """Name and what is said below it in one line."""
    name, below = head
    return " ".join(filter(None, (name, below and f"({below})")))


def network_text(result: RunResult) -> str:
    """The trusted party or the server that agents answer; "" if agents use the graph."""
    server = "a server asks every agent; the scenario's graph plays no part"
    return result.privacy.network_text or (server if result.topology["central"] else "")


def method_lines(result: RunResult) -> list[tuple[str, str]]:
    """Notes on the records, the algorithm with every part that is on, and the settings of training."""
    settings = result.problem.get("settings")
    lines = [("Data", note) for note in result.problem["notes"]]
    lines += [("Algorithm", f"{result.method}.")] if result.method else []
    return [*lines, ("Settings", settings)] if settings else lines


def judge_of(result: RunResult) -> str | None:
    """The first of `JUDGES` that the run has; None if it has none."""
    return next((name for name in JUDGES if result.score(name) is not None), None)


def predicts(result: RunResult) -> bool:
    """Whether a run of training at one level left a model for new records."""
    kind = PROBLEMS.get(result.problem["kind"])
    return kind is not None and kind.one_level and not result.has_diverged and bool(result.problem.get("features"))


def score_notes(result: RunResult) -> list[tuple[str, str]]:
    """Scores of a guess, clipped values, failed callbacks, and advice: head and sentence of each."""
    texts = []
    for guess, names in (("commonest class", ("test_accuracy",)), ("mean label", ("test_rmse", "test_r2"))):
        # R² of a mean over the train records is 0 but for chance; + 0.0 leaves no sign on it.
        scores = [f"{n} {score_text(round(result.baselines[n], 4) + 0.0)}" for n in names if n in result.baselines]
        texts += [f"Always the {guess}: {', '.join(scores)}."] if scores else []
    if result.labels_cut:
        texts.append(
            f"{result.labels_cut:.1%} of the labels lie outside problem.label_range and were cut, as scores know them."
        )
    if result.clipped:
        shares = ", ".join(f"{channel} {share:.0%}" for channel, share in result.clipped.items())
        texts.append(f"Records that a clip cuts at these values: {shares}.")
    if features := result.features_cut:
        listed = ", ".join(
            f"{name} {f'{share:.0%}' if share >= 0.1 else f'{100.0 * share:.2g}%'}"
            for name, share in list(features.items())[:5]
        )
        more = f" and fewer of {len(features) - 5} other features" if len(features) > 5 else ""
        texts.append(f"Values outside problem.scale were cut: {listed}{more}.")
    texts += [result.unmeasured, *result.failed_callbacks]
    return [("", text) for text in texts if text] + [("What to change", advice) for advice in result.learning]


# The runs that a run is judged by, and their names in tables.
BASELINES = {"alone": "each agent alone", "central": "a trusted server", "none": "this network without noise"}
# Two standard errors, beyond which one run each tells two scores apart.
_ERRORS = 2.0


class BaselineComparison(NamedTuple):
    """What a run is worth.

    Args:
        table: a row for the guess, the run and each baseline; its scores and ε.
        sentence: what collaboration gains and what distrust costs; "" where no score judges.
        price: what reading the records again costs.
    """

    table: TextTable
    sentence: str
    price: str


def baselines_in(folder: Path) -> dict[str, RunResult]:
    """Baseline → its result, of those that a run folder holds and that are complete."""
    places = {name: own(folder / BASELINES_FOLDER / name, folder, str(folder)) for name in BASELINES}
    return {name: read_result(place) for name, place in places.items() if place.is_dir() and is_complete(place)}


def compare_with_baselines(result: RunResult, baselines: Mapping[str, RunResult]) -> BaselineComparison | None:
    """Set a run beside its baselines; None where there are none.

    Args:
        result: of the run.
        baselines: "alone", "central", "none" → result.
    """
    if not baselines:
        return None
    return BaselineComparison(
        baseline_table(result, baselines), _sentence(result, baselines), _price(result, baselines)
    )


def baseline_table(result: RunResult, baselines: Mapping[str, RunResult]) -> TextTable:
    """A row for the guess, the run and each baseline; its scores and ε."""
    rows = {"this run": result, **{BASELINES[name]: baselines[name] for name in BASELINES if name in baselines}}
    names = [name for name in (*JUDGES, "test_loss") if result.score(name) is not None]
    known = {"test_auc": 0.5} | dict(result.baselines)
    guess = [_text(known.get(name)) for name in names]
    cells = [["the guess", *guess, ""]] if any(text != "–" for text in guess) else []
    cells += [
        [words, *(_text(one.score(name)) for name in names), epsilon_text(one.privacy.epsilon_max)]
        for words, one in rows.items()
    ]
    heads = [("", ""), *((JUDGES.get(name, ("loss",))[0], "") for name in names), ("ε", "")]
    return TextTable(heads, [False] + [True] * (len(names) + 1), cells)


def _text(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else score_text(round(value, 4))


def _sentence(result: RunResult, baselines: Mapping[str, RunResult]) -> str:
    judge = judge_of(result)
    if judge is None:
        return ""
    mine, word, width = result.score(judge) or 0.0, JUDGES[judge][0], _width(judge, result)
    parts = []
    for name, of, better, worse in (
        ("alone", "over each agent alone at the same ε", "Collaboration gains", "Collaboration loses"),
        ("central", "against a trusted server at the same ε", "Distrust gains", "Distrust costs"),
        ("none", "against the same network without noise", "Noise gains", "Noise costs"),
    ):
        other = None if name not in baselines else baselines[name].score(judge)
        if other is not None and math.isfinite(other):
            chance = ", which chance explains" if abs(mine - other) < width else ""
            parts.append(f"{better if mine >= other else worse} {abs(mine - other):.3f} in {word} {of}{chance}")
    if not parts:
        return ""
    chance = f", where differences below {width:.2g} may be chance" if width else ""
    return f"{'; '.join([parts[0], *(part[0].lower() + part[1:] for part in parts[1:])])}. One run each{chance}."


def _width(judge: str, result: RunResult) -> float:
    """Two standard errors of the difference of two scores on the same number of held-out records, at most.

    An accuracy p of n records has the variance p(1 − p)/n; an AUC of value a at most a(1 − a)/k, k the fewer of the
    two classes. R² has none that its value bounds: 0.
    """
    records, share = (result.problem.get("records") or {}).get("test"), result.score(judge)
    guess = result.baselines.get("test_accuracy")
    if judge == "test_r2" or not records or share is None or not 0.0 <= share <= 1.0:
        return 0.0
    count = float(records)
    if judge == "test_auc" and guess is not None:
        count *= min(guess, 1.0 - guess)
    return _ERRORS * math.sqrt(2.0 * share * (1.0 - share) / count) if count > 0.0 else 0.0


def _price(result: RunResult, baselines: Mapping[str, RunResult]) -> str:
    noised = [result, *(one for name, one in baselines.items() if name != "none")]
    spent = [(one.privacy.epsilon_max, one.privacy.delta) for one in noised]
    # What is not known is not 0.
    epsilon, delta = (sum(math.inf if cost is None else cost for cost in costs) for costs in zip(*spent, strict=True))
    text = "All of these read the same records, and scores are of the same held-out ones."
    if len(noised) > 1 and result.privacy.is_noisy and math.isfinite(epsilon):
        text += f" Whoever sees what those with noise released has seen ε = {epsilon_text(epsilon)} at most, at "
        text += f"δ = {delta_text(delta)}."
    if result.privacy.shared is not None:
        some = f"{result.privacy.colluders} colluder{'s' * (result.privacy.colluders != 1)}"
        text += f" ε of this run holds against {some} (privacy.colluders), elsewhere against any number."
    if "none" in baselines:
        text += " What the run without noise released protects nobody: keep it, and its scores, to yourself."
    return text
