"""Texts of pages and terminals, one a medium: `python -m tests.reporting.snapshots` records them anew."""

from __future__ import annotations

import html
import io
import re
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console

import decentral_dp
from decentral_dp.cli import run as command
from decentral_dp.reporting import terminal
from decentral_dp.reporting.report import read_report
from decentral_dp.studies.report import print_findings
from tests.support.run_folders import page_of, privacy_of, write_run

TEXTS = Path(__file__).with_name("texts")
STUDY = {
    "title": "Rounds and ε",
    "scenario": "classification",
    "kind": "plan",
    "measure": ["rounds", "epsilon_max"],
    "grid": {"algorithm.rounds": [2, 4]},
    "plots": [{"name": "cost", "x": "algorithm.rounds", "y": "epsilon_max"}],
    "claims": [
        {
            "statement": "Twice the rounds are more rounds",
            "left": {"measure": "rounds", "where": {"algorithm.rounds": 4}},
            "is": "greater",
            "right": {"measure": "rounds", "where": {"algorithm.rounds": 2}},
        }
    ],
}
DIVERGED = {"status": "diverged", "divergence": {"name": "y", "is_released": True}}
DIAGNOSTICS = {
    "baselines": {"test_accuracy": 0.63},
    "labels_cut": 0.125,
    "features_cut": {"age": 0.25},
    "clipped": {"y": 0.5},
    "weak_score": {"name": "test_accuracy", "value": 0.64, "baseline": 0.63, "interval": [0.6, 0.68]},
    "loss_trend": {"name": "lower_loss", "first": 0.7, "last": 0.3},
}


_HIDDEN = re.compile(r"<(style|pre|title|script|svg)\b[^>]*>.*?</\1>", re.DOTALL)
_BLOCKS = re.compile(r"</(p|h\d|li|dd|tr|small|summary|figcaption|div)>")


def _shown(page: Path) -> str:
    """Return the text of a page, a line per paragraph, entry and row, without versions, listings and figures."""
    markup = " ".join(_HIDDEN.sub("", page.read_text(encoding="utf-8")).split())
    markup = re.sub(r"<dt>Versions</dt> ?<dd>.*?</dd>", "", markup)
    text = re.sub(r"<[^>]*>", "", _BLOCKS.sub("\n", re.sub(r"</(td|th|dt)>", " | ", markup.replace("<br>", " "))))
    lines = (" ".join(line.split()).removesuffix(" |") for line in html.unescape(text).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def _terminal(print_something: Any) -> str:
    """Return the output on a console of 100 columns."""
    printed = io.StringIO()

    def console(*_: Any) -> Console:
        return terminal.console(printed, 100)

    with patch.object(command, "console", console), patch("decentral_dp.studies.report.console", console):
        print_something()
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines()) + "\n"


def texts(folder: Path) -> dict[str, str]:
    """File → text. folder: an empty one."""
    changes = {"diagnostics": DIAGNOSTICS, "method": "LDP-DSBO + tail average"}
    printed = {
        "guarantee": "as_published",
        "noise": "secret",
        "signal": {"y": {"one_release": 0.5, "all_releases": 18.0}},
    }
    claim = {"epsilon_max": 320.61, "epsilon_max_at_infinity": None, "agents": [320.61] * 10, "source": "Theorem 1"}
    privacy = privacy_of(folder / "known", **printed, claimed=claim, clip={"norm": "l2", "y": 1.0})
    page_of(folder / "run", changes=changes)
    page_of(folder / "published", guarantee="as_published", changes={"privacy": privacy, **DIVERGED})
    compared = decentral_dp.compare(folder / "run", folder / "published")
    findings = decentral_dp.study(STUDY, workers=1, out=folder / "study")
    compared.write(folder / "compared")
    report = read_report(write_run(folder / "terminal", changes=changes))
    return {
        "run_page.txt": _shown(folder / "run" / "report.html"),
        "published_run_page.txt": _shown(folder / "published" / "report.html"),
        "comparison_page.txt": _shown(folder / "compared" / "comparison.html"),
        "study_page.txt": _shown(folder / "study" / "report.html"),
        "plan.txt": f"{decentral_dp.plan('ring_breast_cancer', set={'algorithm.rounds': 2})}\n",
        "coordinator_plan.txt": f"{decentral_dp.plan('regularisation_tuner')}\n",
        "run.txt": f"{terminal.capture_text(lambda out: terminal.print_run(report, None, out))}\n",
        "comparison.txt": _terminal(lambda: command.print_comparison(compared)),
        "study.txt": _terminal(lambda: print_findings(findings)).partition("Tables")[0],
    }


if __name__ == "__main__":
    TEXTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for name, text in texts(Path(place)).items():
            (TEXTS / name).write_text(text, encoding="utf-8")
