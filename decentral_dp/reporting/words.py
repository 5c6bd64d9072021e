"""Words of pages and figures: numbers and names as they print them, and all that differs by who trusts whom.

Every ε is rounded up.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, get_args

from decentral_dp.formatting import SUPERSCRIPTS
from decentral_dp.simulation.statements.statement import PrivacyStatement, Setting
from decentral_dp.user_code import in_module

Json: TypeAlias = Mapping[str, Any]

GRAPHS = {
    "complete": "complete graph",
    "random_regular": "random regular graph",
    "erdos_renyi": "Erdős–Rényi graph",
    "small_world": "small-world graph",
    "preferential_attachment": "preferential-attachment graph",
    "geometric": "random geometric graph",
    "bipartite": "bipartite graph",
    "directed_exponential": "directed exponential graph",
    "isolated": "set without links",
    # The file in a run folder whose graph was an object.
    "topology": "network",
}


def power_text(value: float, pad: bool = False) -> str:
    """`value` in three digits (at most, unless `pad`), as a power of ten where it is very small or large."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:#.3g}".rstrip(".") if pad else f"{value:.3g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    short = mantissa.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    return power if short == "1" else f"{short}·{power}"


def score_text(value: float) -> str:
    """`value` in four digits; whole where it has more before the point, as people write prices."""
    if 1e3 <= abs(value) < 1e7:
        return f"{value:.0f}"
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e3 else power_text(value)


def capitalise(text: str) -> str:
    """`str.capitalize` without lowering the rest: a name within stays a name."""
    return text[:1].upper() + text[1:]


def article(noun: str) -> str:
    """The noun with "a" or "an"."""
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def graph_noun(graph: Json) -> str:
    """What a graph of this kind is called; "network" of a custom one whose name is no word."""
    kind = str(graph.get("kind") or "")
    place = in_module(kind)
    kind = kind if place is None else place.name
    plain = kind.replace("_", " ") if kind.isascii() and kind.isprintable() else ""
    return GRAPHS.get(kind, plain) or "network"


def topology_name(graph: Json) -> str:
    """ "ring of 10 agents"; "one agent"."""
    m = int(graph.get("agents") or 0)
    return "one agent" if m == 1 else f"{graph_noun(graph)} of {m} agents"


def spans(names: Sequence[str], least: int = 2) -> list[str]:
    """Draw names together that end in consecutive numbers, where they are at least so many.

    Example:
        >>> spans(["0", "1", "2", "7"]), spans(["h", "v1", "v2", "z"], least=3)
        (['0–2', '7'], ['h', 'v1', 'v2', 'z'])
    """
    runs: list[list[str]] = []
    for name in names:
        stem = name.rstrip("0123456789")
        number = name[len(stem) :]
        if number and runs and runs[-1][-1] == f"{stem}{int(number) - 1}":
            runs[-1].append(name)
        else:
            runs.append([name])
    return [part for run in runs for part in ([f"{run[0]}–{run[-1]}"] if len(run) >= least else run)]


def cut_text(shares: Mapping[str, float]) -> str:
    """Say how many values the declared ranges cut; "" where none.

    Args:
        shares: feature → share of its values that were cut, largest first.

    Example:
        >>> cut_text({"gain": 0.5, "age": 0.015})
        'Values outside problem.scale were cut: gain 50%, age 1.5%.'
    """
    listed = [f"{name} {_percent(float(share))}" for name, share in list(shares.items())[:5]]
    more = f" and fewer of {len(shares) - 5} other features" if len(shares) > 5 else ""
    return f"Values outside problem.scale were cut: {', '.join(listed)}{more}." if listed else ""


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{100.0 * share:.2g}%"


class Reach(NamedTuple):
    """Of which cells of a study something is measured.

    Args:
        head: the same in words.
        kinds: the kinds of study that measure it: "run", "plan".
        over_rounds: those of them that know it of every round, too.
    """

    head: str
    kinds: tuple[str, ...]
    over_rounds: tuple[str, ...]


SCORE = Reach("Of runs, over rounds and at the end", ("run",), ("run",))
PRICE = Reach("Of plans, over rounds and at the end; of runs, at the end", ("run", "plan"), ("plan",))
OF_RUNS = Reach("Of runs, at the end", ("run",), ())
FACT = Reach("Of runs and plans, at the end", ("run", "plan"), ())
SENT = Reach("Of runs and plans, over rounds and at the end", ("run", "plan"), ("run", "plan"))
OF_PLANS = Reach("Of plans, at the end", ("plan",), ())


class Measure(NamedTuple):
    """A measured name.

    Args:
        figure: what it is, in figures and tables; "" where its name stands for itself.
        page: on the page of a run; "" where none measures it, or the name says it.
        meaning: in `show measures` and the reference, where figures say less; "" where they say it.
        endings: each makes one more measured name of it.
        reach: where it is measured.
    """

    figure: str = ""
    page: str = ""
    meaning: str = ""
    endings: tuple[str, ...] = ("",)
    reach: Reach = SCORE

    @property
    def qualifiers(self) -> list[str]:
        """The parts of its endings, such as "_min" of "_last_min"."""
        return [part for part in ENDINGS if any(part in ending for ending in self.endings)]


_SPREAD = ("", "_min", "_max")
# Trusted coordinators that publish x alone have losses of a state that nobody sees.
_LOSS = (*_SPREAD, *(f"_unreleased{end}" for end in _SPREAD))
_TEST = (*_LOSS, *(f"_last{end}" for end in _SPREAD))
# Runs that a run is judged by, as tables call them.
BASELINES = MappingProxyType(
    {"alone": "each agent alone", "central": "a trusted server", "none": "this network without noise"}
)
_CHOICES: Mapping[str, Mapping[str, Any]] = {
    "endings": {"spread": _SPREAD, "loss": _LOSS, "test": _TEST},
    "reach": {"price": PRICE, "runs": OF_RUNS, "fact": FACT, "sent": SENT, "plans": OF_PLANS},
}


def _measures() -> Mapping[str, Measure]:
    tables = tomllib.loads(Path(__file__).with_name("measures.toml").read_text(encoding="utf-8"))
    return MappingProxyType(
        {
            name: Measure(**{key: _CHOICES[key][text] if key in _CHOICES else text for key, text in table.items()})
            for name, table in tables.items()
        }
    )


# In the order of a run's page, then by name.
MEASURES = _measures()
# Ending of a name → what it adds to a label, and what it means.
ENDINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "_min": (", lowest agent", "the lowest agent's; without an ending it is the mean over agents"),
        "_max": (", highest agent", "the highest agent's"),
        "_last": (", last released values", "of the last released values alone, where published ones are averages"),
        "_unreleased": (", unreleased state", "of the state, which nobody sees"),
    }
)


_COST_WORDS = {"rounds": "rounds", "epsilon": "ε spent", "bits": "bits sent per agent"}


def metric_words(name: str) -> str | None:
    """What a measured name is; None where nothing is known of it.

    Example:
        >>> metric_words("upper_loss"), metric_words("test_loss_max"), metric_words("mine")
        ('upper loss (validation)', 'loss on held-out records, highest agent', None)
        >>> metric_words("network_epsilon_distance_2")
        'largest ε towards an agent 2 links away'
        >>> metric_words("rounds_to_test_accuracy_0.9")
        'rounds until 0.9 is reached, accuracy on held-out records'
    """
    if words := MEASURES.get(name, Measure()).figure:
        return words
    for start, price in (
        ("network_epsilon_distance_", "ε"),
        ("network_linear_distance_", "linear ε (no bound for training)"),
    ):
        links = name.removeprefix(start)
        if links != name and links.isdecimal():
            return f"largest {price} towards an agent {links} {'link' if links == '1' else 'links'} away"
    what, reached, score = name.partition("_to_")
    if reached and what in _COST_WORDS:
        metric, _, level = score.rpartition("_")
        return f"{_COST_WORDS[what]} until {level} is reached, {metric_words(metric) or metric.replace('_', ' ')}"
    ending = next((e for e in ENDINGS if name.endswith(e)), "")
    words = MEASURES.get(name.removesuffix(ending), Measure()).figure
    return words + ENDINGS[ending][0] if words else None


def metric_label(name: str) -> str:
    """What a measured name is, or the name itself."""
    return metric_words(name) or name.replace("_", " ")


@dataclass(frozen=True, kw_only=True)
class SettingWords:
    """Words for the runs of one setting: all that pages and figures say differently by who trusts whom.

    Args:
        participants: who takes part beside the agents; "" where the graph says it.
        network: who talks to whom; "" where the graph says it.
        epsilon_owner: of which agent the stated ε is.
        mean_prefix, final_prefix: before the score of the first sentence. score_scope: what a tile's score is over.
        omitted_rows: rows of "What was run" that say nothing here.
        lower: names of the variables beside x. variables: what they are.
        has_local_models: whether every agent publishes a value of its own; else one is published for all.
        letters: what formulas of queries mean.
        privacy_reason: why that is private; {reasons} and {draws} are filled in.
        printed_protocol: of a protocol as printed, with a claim and without.
        unnoised_values: what went out without noise.
        record_kind: what a record keeps besides its place when it is replaced.
        epsilon_parts: what an agent's ε is the larger of.
        coverage, release, settings: of what the guarantee covers. exclusions, private: of what it does not cover.
        signal: what signals are summed over.
        epsilon_axis, loss, hypergradient: axes of figures. captions: of figures.
        columns: heads of the table of metrics.
    """

    participants: str
    network: str
    epsilon_owner: str
    mean_prefix: str
    final_prefix: str
    score_scope: str
    omitted_rows: tuple[str, ...]
    lower: str
    variables: str
    has_local_models: bool
    letters: str
    privacy_reason: str
    printed_protocol: tuple[str, str]
    unnoised_values: str
    record_kind: str
    epsilon_parts: str
    coverage: str
    release: str
    settings: str
    exclusions: str
    private: str
    signal: str
    epsilon_axis: str
    loss: str
    hypergradient: str
    captions: Mapping[str, str]
    columns: tuple[str, ...]


_TABLES = tomllib.loads(Path(__file__).with_name("settings.toml").read_text(encoding="utf-8"))


def _table(name: str) -> dict[str, Any]:
    own: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in _TABLES[name].items()
    }
    base = _table(str(own.pop("based_on"))) if "based_on" in own else {}
    return {**base, **own, "captions": {**base.get("captions", {}), **own.get("captions", {})}}


WORDS: Mapping[Setting, SettingWords] = {name: SettingWords(**_table(name)) for name in get_args(Setting)}
_SERVER = SettingWords(**_table("server"))


# What a coordinator releases on a channel.
CHANNELS: Mapping[str, str] = _TABLES["channels"]


def choose_words(privacy: PrivacyStatement, graph: Json, solves: str = "bilevel") -> SettingWords:
    """Choose the words for a run or a plan. graph, solves: as `result.json` has them."""
    words = WORDS[privacy.setting]
    if privacy.pools_records:
        whom = "server" if privacy.setting == "gossip" else "coordinator"
        pools = f"every agent hands its records to a trusted {whom}; the scenario's graph plays no part"
        words = replace(words, network=pools)
    elif graph.get("central") and words is WORDS["gossip"]:
        words = _SERVER
    elif graph.get("kind") == "isolated":
        words = replace(words, release="what every agent released, at every round; nothing is sent to another")
    variables = WORDS["coordinator_minimax"].variables
    return replace(words, lower="y", variables=variables) if solves == "minimax" else words
