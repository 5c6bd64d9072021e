"""What training at one level leaves to be planned: keys that may be left out of a scenario, or be "auto".

Rounds, heavy ball and the length of the averaged tail are the same for every training, and are filled in when a
scenario is read. The step and the clip follow from public numbers of the records (`simulation.jobs.settings`), and are
filled in when its job is built. A run folder has all of them as numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decentral_dp.data import DATASETS
from decentral_dp.errors import InputError
from decentral_dp.problems import PROBLEMS

AUTO = "auto"
# (table, key) that may be "auto".
KEYS = (
    ("algorithm", "kind"),
    ("algorithm", "rounds"),
    ("algorithm", "y"),
    ("algorithm", "heavy_ball"),
    ("privacy", "clip"),
    ("run", "average"),
)
ROUNDS, HEAVY_BALL = 1000, 0.9


def with_planned(content: dict[str, Any]) -> dict[str, Any]:
    """Fill in what training leaves out and what no record decides; what else is "auto" is left out.

    Args:
        content: of a scenario, as it is written.

    Returns:
        The same where the problem is none of one level.

    Raises:
        InputError: "auto" where nothing is planned.

    Example:
        >>> with_planned({"problem": {"kind": "classification"}})["algorithm"]
        {'kind': 'dp_dsgd', 'rounds': 1000, 'heavy_ball': 0.9}
        >>> with_planned({"problem": {"kind": "quadratic"}, "algorithm": {"kind": "bsa"}})["algorithm"]
        {'kind': 'bsa'}
    """
    tables = {name: content.get(name) for name in ("problem", "algorithm", "privacy", "run")}
    if not all(value is None or isinstance(value, Mapping) for value in tables.values()):
        return content
    kind = (tables["problem"] or {}).get("kind")
    entry = PROBLEMS.get(kind) if isinstance(kind, str) else None
    auto = [(table, key) for table, key in KEYS if (tables[table] or {}).get(key) == AUTO]
    if entry is None or not entry.one_level:
        if auto:
            raise InputError(
                f'{".".join(auto[0])}: "auto" is for problem.kind = "classification" or "regression". Give a value.'
            )
        return content
    given = {name: dict(value or {}) for name, value in tables.items()}
    for table, key in auto:
        del given[table][key]
    algorithm = given["algorithm"] = {"kind": "dp_dsgd", "rounds": ROUNDS} | given["algorithm"]
    # The papers' form has none.
    if algorithm["kind"] == "dp_dsgd" and given["privacy"].get("guarantee") != "as_printed":
        algorithm.setdefault("heavy_ball", HEAVY_BALL)
    if entry.labels == "numbers" and given["problem"].get("data") not in DATASETS:
        given["problem"].setdefault("classes", [])
    if isinstance(algorithm["rounds"], int):
        given["run"].setdefault("average", max(1, algorithm["rounds"] // 2))
    return {**content, **given}
