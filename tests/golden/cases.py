"""Which scenarios are measured, and how they are shortened."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.support.published import certified_kind

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parent.parent
SHIPPED = REPOSITORY / "scenarios"
SCENARIOS = {path.stem: path for folder in (SHIPPED, REPOSITORY / "papers/scenarios") for path in folder.glob("*.toml")}

# Without noise these need a key that the target ε would have settled.
NOISE_FREE = {
    "pp_ift": ("algorithm.inner=50",),
}

# Without noise these release a minimum that a search finds from values, not from slopes.
SEARCHED = ("exponential_mechanism", "regularised_exponential_mechanism")

# Runs on Ray without --all-on-ray: one for each kind of job, of exchange and of oracle. The other scenarios use the
# same blocks, in this process or in an actor.
ON_RAY = (
    "ring_breast_cancer",
    "ma_dsbo",
    "vrdsbo",
    "bsa",
    "minibatch_torus",
    "hyper_cleaning",
    "own_losses",
    "paper_boxed",
    "dp_bilevel",
    "regularisation_tuner",
    "exponential_mechanism",
    "warm_start",
    "auc_digits",
    "recursive_spider",
    "scdro",
)

# Name → (overrides of every run, reason). The plan is measured as shipped.
SHORTENED: dict[str, tuple[tuple[str, ...], str]] = {
    "td_cartpole": (
        ("problem.synthetic.records=60", "problem.synthetic.test_records=20"),
        "playing 3000 trajectories takes five seconds, and the rounds none of them",
    ),
}


def scenario_names() -> list[str]:
    return sorted(SCENARIOS)


def is_planned_only(name: str) -> bool:
    """Return whether a scenario is of full size, with records from OpenML, and is only planned."""
    return name.endswith("_full")


def plan_overrides(name: str = "") -> list[str]:
    """On the processor; of full size on digits, since a plan reads no more of the records than their counts."""
    digits = ['problem.data="digits"'] if is_planned_only(name) else []
    return [*digits, 'run.device="cpu"']


def run_overrides(name: str, noise: bool = True) -> list[str]:
    """Two rounds, or one where the mechanism is a single draw, with a seed; without noise if asked."""
    content = _content(name)
    rounds = min(2, content["algorithm"]["rounds"])
    overrides = [*plan_overrides(), f"algorithm.rounds={rounds}", "run.evaluate_every=2"]
    if "seed" not in content:
        overrides.append("seed=1")
    overrides += SHORTENED.get(name, ((), ""))[0]
    if not noise:
        # Clipping stays; targets, scales and shares are refused where there is no noise, and boxes would be domains.
        refused = sorted(content.get("privacy", {}).keys() - {"guarantee", "clip"})
        overrides += ['privacy.guarantee="none"', *(f"privacy.{key}=null" for key in refused)]
        overrides += NOISE_FREE.get(name, ())
        # Without noise the certified form of a published one runs.
        overrides.append(f"algorithm.kind={certified_kind(content['algorithm']['kind'])}")
    return overrides


def ray_overrides(agents: int) -> list[str]:
    """Use one actor for all agents."""
    return ['run.engine="ray"', f"run.agents_per_actor={agents}"]


def _content(name: str) -> dict:
    return tomllib.loads(SCENARIOS[name].read_text(encoding="utf-8"))
