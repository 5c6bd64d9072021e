"""Published claims on private bilevel, minimax and robust optimisation: rates, privacy and failures.

    Kornowski, Differentially Private Bilevel Optimization                                     first-order, by penalties
    Lowy & Liu, Differentially Private Bilevel Optimization: Efficient Algorithms with         exponential mechanisms,
        Near-Optimal Rates                                                                     second-order
    Zhang et al., Improved Rates of Differentially Private Nonconvex-Strongly-Concave Minimax Optimization
    Xu et al., Differentially Private Non-convex Distributionally Robust Optimization

`run` measures one experiment and compares each claim with the measurements. Exponents have a confidence interval over
seeds, and a claim is reproduced only if its whole interval lies in a window around the theoretical value. Most
experiments measure the error of the gradient estimator, with the number of rounds and the penalty from the theory.
Gradient norms at the end of a run would also depend on its start. The experiments are not private: seeds are public
and data are synthetic.

An experiment imports its dependencies when it runs, so that importing this module is fast.
"""

from __future__ import annotations

from importlib import import_module
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from papers.findings import Finding


class Entry(NamedTuple):
    """An experiment: the claim of a paper and the module that measures it.

    Args:
        alias: short name, e1 … e19.
        title: title of a few words.
        source: paper and statement with the claim.
        claim: the claim, or the result of the experiment, in one line.
        module: module with `measure` and `judge`.
    """

    alias: str
    title: str
    source: str
    claim: str
    module: str


_FIRST, _SECOND = "Kornowski", "Lowy & Liu"

EXPERIMENTS: Mapping[str, Entry] = MappingProxyType(
    {
        "kornowski_theorem_4_rate": Entry(
            "e1",
            "Rate of the penalty method",
            f"{_FIRST}, Theorem 4",
            "The error of the private penalty gradient decreases as n^(−1/3) for every d_y.",
            "penalty_rate",
        ),
        "kornowski_lemma_8_dimension": Entry(
            "e2",
            "The lower dimension in the penalty method",
            f"{_FIRST}, Lemma 8",
            "A worst-case inner error adds a factor √d_y. Isotropic Gaussian noise does not.",
            "inner_dimension",
        ),
        "lowy_liu_theorem_4_2_rate": Entry(
            "e3",
            "Rate of the second-order method",
            f"{_SECOND}, Theorem 4.2",
            "The error of the private hypergradient decreases as n^(−1/2) and does not depend on d_y.",
            "second_order_rate",
        ),
        "lowy_liu_theorem_3_2_rate": Entry(
            "e4",
            "Rate of the exponential mechanism",
            f"{_SECOND}, Theorem 3.2 and Equation 4",
            "Excess risk decreases as 1/(nε) with the corrected scale. It does not decrease with the published scale.",
            "exponential_rate",
        ),
        "lowy_liu_lemma_b6_calibration": Entry(
            "e5",
            "The regularised exponential mechanism",
            f"{_SECOND}, Theorem 3.3 and Lemma B.6",
            "Excess risk is √d_x/(nε) with the proved sensitivity. Calibrated by Lemma B.6, ε exceeds 1 for large κ.",
            "regularised_rate",
        ),
        "lowy_liu_theorem_3_9_walks": Entry(
            "e6",
            "Grid walks with inexact scores",
            f"{_SECOND}, Lemmas 3.6 to 3.8 and Theorem 3.9",
            "Score errors ζ add 2ζ to the distance and keep e^(−2ζ) of conductance. The last step needs αγ/2 + 2ζ ≤ 1.",
            "walks",
        ),
        "kornowski_theorem_11_batches": Entry(
            "e7",
            "Batches in the upper level",
            f"{_FIRST}, Theorem 11 and Remark 12",
            "The error of a batch of b is b^(−1/2), not 1/b. The published noise is not private for b below nε/√T.",
            "batches",
        ),
        "kornowski_theorem_18_lower_solvers": Entry(
            "e8",
            "Private solvers of the lower level",
            f"{_FIRST}, Theorems 18 and 28",
            "Output perturbation, noisy gradient descent and localised descent all have an error of order √d/n.",
            "inner_solvers",
        ),
        "kornowski_theorem_13_population": Entry(
            "e9",
            "Generalisation of hypergradients",
            f"{_FIRST}, Theorem 13 and Lemma 27",
            "The hypergradient of n records has a distance n^(−1/2) from the population's, not n^(−1/4).",
            "population",
        ),
        "lowy_liu_theorem_4_3_warm_start": Entry(
            "e10",
            "Warm starts by the exponential mechanism",
            f"{_SECOND}, Theorem 4.3",
            "A private start improves the rate n^(−1/2) to n^(−3/4) once nε exceeds a multiple of d_x.",
            "warm_start_rate",
        ),
        "kornowski_section_7_tuning": Entry(
            "e11",
            "Tuning of a regulariser",
            f"{_FIRST}, Section 7",
            "Implicit differentiation at a private point has the least noise. The published sign increases the loss.",
            "tuners",
        ),
        "sensitivity_searches": Entry(
            "e12",
            "Searches for violations of sensitivities",
            f"{_FIRST}, Section 7; {_SECOND}, Lemma 4.1 and Equation 4",
            "No neighbouring data sets change a release by more than its certified sensitivity. Some come close.",
            "searches",
        ),
        "kornowski_algorithm_1_attack": Entry(
            "e13",
            "An attack on the penalty method",
            f"{_FIRST}, Algorithm 1",
            "The optimal attack on transcripts attains nearly all of the certified μ, and never exceeds it.",
            "attack",
        ),
        "zhang_theorem_5_attack": Entry(
            "e14",
            "An attack on PrivateDiff Minimax",
            "Zhang et al. 2025, Theorem 5 and Remark 5.1",
            "As published, an attack on one release exceeds six times the claimed ε. With a private y, none does.",
            "privatediff_audit",
        ),
        "zhang_theorem_1_noise": Entry(
            "e15",
            "Privacy cost of published noise for minimax problems",
            "Zhang et al. 2025, Theorem 1 and Remark 5.1",
            "The true ε of DP-SGDA is below half its claim. The true ε of PrivateDiff would be twice as large.",
            "claimed_noise",
        ),
        "xu_theorem_1_noise": Entry(
            "e16",
            "Privacy cost of published noise for SPIDER methods",
            "Xu et al. 2025, Theorems 1, 6 and 8",
            "At a claimed ε = 1, the accounted ε is 7 to 9 with clipped records. Clipped means hide no record.",
            "spider_budgets",
        ),
        "xu_table_2_membership": Entry(
            "e17",
            "Membership inference on different populations",
            "Xu et al. 2025, Table 2",
            "The reported AUCs exceed the bound of the claimed ε for random members: they separate classes.",
            "membership",
        ),
        "zhang_theorem_6_rates": Entry(
            "e18",
            "Rates of minimax algorithms",
            "Zhang et al. 2025, Theorems 2 and 6",
            "PrivateDiff does not attain s^(2/3) if y is released. Estimates of both gradients attain it.",
            "minimax_rates",
        ),
        "bellet_figure_3_noise": Entry(
            "e19",
            "Noise correlated over rounds, on graphs",
            "Bellet et al. 2025, Figure 3",
            "At equal ε, the optimal factor of a graph adds less noise to the models than other factors.",
            "mixed_noise",
        ),
    }
)


def resolve_name(name: str) -> str:
    """Return the name of an experiment from its name or alias.

    Raises:
        InputError: there is no such experiment.

    Example:
        >>> resolve_name("e5")
        'lowy_liu_lemma_b6_calibration'
    """
    if name in EXPERIMENTS:
        return name
    for full_name, entry in EXPERIMENTS.items():
        if entry.alias == name:
            return full_name
    from decentral_dp.errors import InputError, quoted

    names = ", ".join(f"{entry.alias} or {full_name}" for full_name, entry in EXPERIMENTS.items())
    raise InputError(f"papers: unknown experiment (got {quoted(name)}, expected one of {names}).")


def run(name: str, seed: int = 0, quick: bool = False) -> Finding:
    """Measure one experiment.

    Args:
        name: name or alias of an experiment in `EXPERIMENTS`.
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        The measurements and the verdicts on the claims.

    Raises:
        InputError: there is no such experiment, or a required package is not installed.
    """
    name = resolve_name(name)
    entry = EXPERIMENTS[name]
    from papers.findings import Finding, table

    experiment: Any = import_module(f"{__name__}.{entry.module}")
    start = perf_counter()
    rows = table(experiment.measure(seed, quick))
    checks, sentences = experiment.judge(rows)
    return Finding(name, entry.title, entry.source, rows, tuple(checks), tuple(sentences), perf_counter() - start)
