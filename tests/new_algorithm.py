"""Record what the tests compare a new algorithm with: `python -m tests.new_algorithm NAME`.

An algorithm is one file, `decentral_dp/algorithms/SETTING/NAME.py`, and its scenario, `scenarios/NAME.toml`. The
command lists the missing parts of both. If nothing is missing, it writes all files that follow from them: golden data,
texts, the measured gain of the algorithm, and its slow tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import decentral_dp
from decentral_dp import InputError, algorithms
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.entry import works
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.loading import shipped_names
from tests.golden import record
from tests.slow_tests import LIST

ROOT = Path(__file__).parents[1]
GAINS = ROOT / "tests" / "conformance" / "gains.json"
# Metric → whether larger is better, in the order of the search.
SCORES = {
    "test_accuracy": True,
    "test_auc": True,
    "upper_loss": False,
    "upper_loss_unreleased": False,
    "primal": False,
    "stationarity": False,
    "gradient_norm": False,
    "test_loss": False,
}
# Seeds, and the recorded share of the least gain, since last bits differ between processors.
SEEDS, ROOM = (1, 2, 3), 0.6
# Folders with tests of all registered algorithms.
FOLDERS = ("auditing", "algorithms", "cli", "config", "conformance", "golden", "reporting")


def missing(name: str) -> Iterator[str]:
    """Yield missing parts of the file and the scenario of an algorithm, with their fix."""
    entry = ALGORITHMS.get(name)
    if entry is None:
        places = ", ".join(f"{folder.replace('.', '/')}/" for folder in algorithms._FOLDERS.values())
        yield f'no algorithm {name!r}: add a file to one of {places}; it ends with ENTRY = Entry("{name}", …).'
        return
    module = entry.algorithm.__module__
    described = sys.modules[module].__doc__ or ""
    if len(described.split("\n\n")) < 3:
        yield f"{module}: its docstring lacks the update, whose data is protected, or how far it moves."
    # The default docstring of a dataclass is its signature.
    if (entry.algorithm.__doc__ or "(").startswith(("(", f"{entry.algorithm.__name__}(")):
        yield f"{entry.algorithm.__name__}: no docstring; its first line is the summary of `decentral-dp list`."
    if not entry.citations:
        yield f'ENTRY of {name} cites nothing: add Citation("Algorithm", KEY), KEY of works.toml.'
    for citation in entry.citations:
        if citation.key not in works():
            yield (
                f"works.toml has no [{citation.key}], which ENTRY of {name} cites: add authors, title and "
                "year, and venue where there is one."
            )
            continue
        author = citation.work.authors.split(",")[0]
        if author not in described + entry.summary:
            yield f"{module}: its docstring does not name {author}, whom it cites; add a line Reference."
    for option in entry.keys:
        if not option.description:
            yield f'{entry.algorithm.__name__}.{option.key}: no description; write {option.key}: … = option("…").'
    yield from _missing_of_scenario(name)


def _missing_of_scenario(name: str) -> Iterator[str]:
    if name not in shipped_names("scenario"):
        yield f"scenarios/{name}.toml is not there; start from `decentral-dp new --algorithm {name}`."
        return
    try:
        scenario = load(name)
    except InputError as refusal:
        yield f"scenarios/{name}.toml: {refusal}"
        return
    if scenario.algorithm.kind != name:
        yield f'scenarios/{name}.toml: algorithm.kind is "{scenario.algorithm.kind}"; set "{name}".'
    if scenario.seed is None:
        yield f"scenarios/{name}.toml: no seed; add for example seed = 1."
    if not scenario.title or len(scenario.description.split(". ")) < 2:
        yield f"scenarios/{name}.toml: add a title, and a description of two sentences or more."
    privacy = scenario.privacy
    if privacy.guarantee == "certified" and not (privacy.epsilon and privacy.epsilon <= 8.0 and privacy.delta <= 1e-5):
        yield f"scenarios/{name}.toml: set privacy.epsilon to at most 8, and privacy.delta to at most 1e-5."


def gain_of(name: str) -> tuple[str, float]:
    """Return a metric that improves from round 0 to the end, and a share of its least change over some seeds.

    Raises:
        InputError: no metric improves.
    """
    changes: dict[str, list[float]] = {score: [] for score in SCORES}
    for seed in SEEDS:
        metrics = decentral_dp.run(load(name, [f"seed={seed}"])).metrics
        mean = metrics[metrics["agent"] == "mean"]
        for score in SCORES:
            values = mean[mean["name"] == score].set_index("round")["value"].sort_index()
            if len(values) > 1:
                changes[score].append(float(values.iloc[-1] - values.iloc[0]))
    for score, more in SCORES.items():
        worst = min(change if more else -change for change in changes[score]) if changes[score] else 0.0
        least = float(f"{ROOM * worst:.2g}")
        if least > 0.0:
            return score, least if more else -least
    raise InputError(f"scenarios/{name}.toml: over seeds {SEEDS} nothing is learned; change steps, rounds or budget.")


def record_gain(name: str) -> None:
    """Add the gain to `gains.json` if it is missing."""
    gains = json.loads(GAINS.read_text(encoding="utf-8"))
    if name not in gains:
        gains[name] = gain_of(name)
        lines = ",\n".join(f" {json.dumps(each)}: {json.dumps(gain)}" for each, gain in gains.items())
        GAINS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def record_slow_tests(name: str) -> None:
    """List its slow tests: those of another algorithm of its setting."""
    listed = LIST.read_text(encoding="utf-8").splitlines()
    folders = [f"tests/{folder}" for folder in FOLDERS]
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--slow", "all", "-k", name, *folders]
    said = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    there = {line for line in said if "::" in line and name in line.partition("[")[2]}
    others = [e.kind for e in ALGORITHMS.values() if e.setting == ALGORITHMS[name].setting and e.kind != name]
    slow = {other: {_renamed(node, other, name) for node in listed} - {None} for other in others}
    found = max((there & nodes for nodes in slow.values()), key=len, default=set())
    LIST.write_text("\n".join(sorted({*listed, *found})) + "\n", encoding="utf-8")


def _renamed(node: str, other: str, name: str) -> str | None:
    """Return the id of the same test for this algorithm, or None."""
    test, bracket, case = node.partition("[")
    parts = case.removesuffix("]").split("-")
    return f"{test}[{'-'.join(name if p == other else p for p in parts)}]" if bracket and other in parts else None


def main(names: Sequence[str]) -> int:
    if len(names) != 1 or names[0].startswith("-"):
        print(__doc__)
        return 0 if set(names) <= {"-h", "--help"} and names else 2
    name = names[0]
    lacks = list(missing(name))
    if lacks:
        print(*lacks, sep="\n")
        return 1
    try:
        print(decentral_dp.plan(name), flush=True)
        record_gain(name)
    except InputError as refusal:
        print(refusal)
        return 1
    record.main([name, "texts"])
    record_slow_tests(name)
    print(
        f"recorded; look at what changed (git diff), then run\n"
        f"  decentral-dp check {name}\n"
        f"  python -m pytest -n 2 -k {name} --slow none {' '.join(f'tests/{folder}' for folder in FOLDERS)}\n"
        f"  python -m pytest -n 2 tests/architecture/test_reference.py tests/golden/test_outputs.py"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
