"""The page: its sections in order, in one file that loads nothing."""

from __future__ import annotations

from pathlib import Path

from decentral_dp.report.budgets import budget_section
from decentral_dp.report.folder import read_result, read_scenario, scenario_text
from decentral_dp.report.guarantee import guarantee_section
from decentral_dp.report.markup import Html, join, tag
from decentral_dp.report.opening import opening, what_was_run
from decentral_dp.report.outcome import outcome_section, topology_section
from decentral_dp.report.theorem import theorem_section


def write_report(folder: Path) -> Path:
    """Write `folder/report.html` and return its path; the figures are drawn if the folder has none yet.

    The page inlines `plots/*.png` and loads nothing from anywhere. Raises InputError where `folder` holds no readable
    result.json.
    """
    result, scenario = read_result(folder), read_scenario(folder)
    if not any((folder / "plots").glob("*.png")):
        # Only here: drawing imports matplotlib, and the figures of a run are usually there already.
        from decentral_dp.plots import write_plots

        write_plots(folder)
    title = str(scenario.get("title") or (result.get("problem") or {}).get("kind") or "A run without a title")
    sections = [
        *opening(title, result),
        *what_was_run(result, scenario),
        *guarantee_section(result),
        *budget_section(folder, result),
        *outcome_section(folder, result),
        *topology_section(folder, result),
        *theorem_section(result),
        *_scenario_and_citation(folder),
    ]
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    head = join(
        [
            Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<link rel="icon" href="data:,">'),
            Html('<meta name="color-scheme" content="light dark">'),
            tag("title", title),
            tag("style", Html(style)),
        ]
    )
    page = tag("html", tag("head", head), tag("body", tag("main", *sections)), lang="en")
    path = folder / "report.html"
    path.write_text(f"<!DOCTYPE html>\n{page.markup}\n", encoding="utf-8")
    return path


BIBTEX = """@inproceedings{chen2024locally,
  title     = {Locally Differentially Private Decentralized Stochastic Bilevel Optimization
               with Guaranteed Convergence Accuracy},
  author    = {Chen, Ziqin and Wang, Yongqiang},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series    = {Proceedings of Machine Learning Research},
  volume    = {235},
  year      = {2024}
}"""


def _scenario_and_citation(folder: Path) -> list[Html]:
    text = scenario_text(folder)
    summary = tag("summary", "The scenario, fully resolved")
    missing = tag("p", "The folder holds no scenario.toml.")
    cite = (
        "Algorithm and convergence theorem (Theorem 4.1): Z. Chen and Y. Wang, Locally Differentially Private "
        "Decentralized Stochastic Bilevel Optimization with Guaranteed Convergence Accuracy, ICML 2024, PMLR 235."
    )
    own = (
        "The certified number is decentral_dp's own analysis, not the paper's Theorem 4.5. "
        "Do not cite the paper for it; state the adjacency, δ and protocol given above."
    )
    return [
        tag("h2", "Scenario"),
        tag("details", summary, tag("pre", text)) if text else missing,
        tag("h2", "How to cite"),
        tag("p", cite),
        tag("p", tag("strong", own)),
        tag("details", tag("summary", "BibTeX"), tag("pre", BIBTEX)),
    ]
