"""Published claims on private bilevel, minimax and robust optimisation: rates, privacy and failures.

    Kornowski, Differentially Private Bilevel Optimization                                     first-order, by penalties
    Lowy & Liu, Differentially Private Bilevel Optimization: Efficient Algorithms with         exponential mechanisms,
        Near-Optimal Rates                                                                     second-order
    Zhang et al., Improved Rates of Differentially Private Nonconvex-Strongly-Concave Minimax Optimization
    Xu et al., Differentially Private Non-convex Distributionally Robust Optimization

`run` measures one experiment and holds each claim against its numbers. Exponents come with an interval over seeds, and
a claim holds only where the whole interval lies in the window of the theory. The measured quantity is mostly the error
of the gradient estimator with the rounds and the penalty that theory prescribes: gradient norms at the end of a run mix
in how far from stationary it was started. Nothing here is private: seeds are known, and data made up.

Importing this module imports nothing else: what an experiment needs is imported when it is run.
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
    """An experiment: what a paper claims, and the module that measures it.

    Args:
        alias: a short name, e1 … e19.
        title: a few words.
        source: where the claim is made.
        claim: the claim, or what is measured of it, in one line.
        module: where `measure` and `judge` are.
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
            "The error of the private penalty gradient falls like n^(−1/3) for every d_y.",
            "penalty_rate",
        ),
        "kornowski_lemma_8_dimension": Entry(
            "e2",
            "The lower dimension in the penalty method",
            f"{_FIRST}, Lemma 8",
            "An adversarially placed inner error costs √d_y; the isotropic one of a Gaussian release costs nothing.",
            "inner_dimension",
        ),
        "lowy_liu_theorem_4_2_rate": Entry(
            "e3",
            "Rate of the second-order method",
            f"{_SECOND}, Theorem 4.2",
            "The error of the private hypergradient falls like n^(−1/2) and does not depend on d_y.",
            "second_order_rate",
        ),
        "lowy_liu_theorem_3_2_rate": Entry(
            "e4",
            "Rate of the exponential mechanism",
            f"{_SECOND}, Theorem 3.2 and Equation 4",
            "Excess risk falls like 1/(nε) with the corrected scale; with the printed one it does not fall.",
            "exponential_rate",
        ),
        "lowy_liu_lemma_b6_calibration": Entry(
            "e5",
            "The regularised exponential mechanism",
            f"{_SECOND}, Theorem 3.3 and Lemma B.6",
            "Excess risk is √d_x/(nε) with the right sensitivity; calibrated by Lemma B.6 it is not (1, 1e-6)-private.",
            "regularised_rate",
        ),
        "lowy_liu_theorem_3_9_walks": Entry(
            "e6",
            "Grid walks with inexact scores",
            f"{_SECOND}, Lemmas 3.6 to 3.8 and Theorem 3.9",
            "Errors of ζ cost 2ζ of distance and e^(−2ζ) of conductance, and break the last step where αγ/2 + 2ζ > 1.",
            "walks",
        ),
        "kornowski_theorem_11_batches": Entry(
            "e7",
            "Batches of the upper level",
            f"{_FIRST}, Theorem 11 and Remark 12",
            "A batch of b errs like b^(−1/2), not 1/b, and the printed noise is not private for b below nε/√T.",
            "batches",
        ),
        "kornowski_theorem_18_lower_solvers": Entry(
            "e8",
            "Private minimisers of the lower level",
            f"{_FIRST}, Theorems 18 and 28",
            "Output perturbation, noisy gradient descent and its localised form all err like √d/n.",
            "inner_solvers",
        ),
        "kornowski_theorem_13_population": Entry(
            "e9",
            "From records to their population",
            f"{_FIRST}, Theorem 13 and Lemma 27",
            "Hypergradients of n records are n^(−1/2) from the population's, not n^(−1/4).",
            "population",
        ),
        "lowy_liu_theorem_4_3_warm_start": Entry(
            "e10",
            "Warm starts by the exponential mechanism",
            f"{_SECOND}, Theorem 4.3",
            "A privately drawn start improves n^(−1/2) to n^(−3/4) once nε exceeds a multiple of d_x.",
            "warm_start_rate",
        ),
        "kornowski_section_7_tuning": Entry(
            "e11",
            "Tuning a regulariser",
            f"{_FIRST}, Section 7",
            "Implicit differentiation at a private point has the least noise; the printed sign climbs.",
            "tuners",
        ),
        "sensitivity_searches": Entry(
            "e12",
            "Searches for violated sensitivities",
            f"{_FIRST}, Section 7; {_SECOND}, Lemma 4.1 and Equation 4",
            "No neighbours found move a release by more than its certified sensitivity, and some come close.",
            "searches",
        ),
        "kornowski_algorithm_1_attack": Entry(
            "e13",
            "An attack on the penalty method",
            f"{_FIRST}, Algorithm 1",
            "The best distinguisher of whole transcripts shows nearly all of the certified budget, and no more.",
            "attack",
        ),
        "zhang_theorem_5_attack": Entry(
            "e14",
            "An attack on PrivateDiff Minimax",
            "Zhang et al. 2025, Theorem 5 and Remark 5.1",
            "As printed, one release shows more than six times the claimed ε; with a private y nothing shows more.",
            "privatediff_audit",
        ),
        "zhang_theorem_1_noise": Entry(
            "e15",
            "Privacy cost of published noise for minimax problems",
            "Zhang et al. 2025, Theorem 1 and Remark 5.1",
            "DP-SGDA's costs less than half of what it claims, and PrivateDiff's would cost twice as much as that.",
            "claimed_noise",
        ),
        "xu_theorem_1_noise": Entry(
            "e16",
            "Privacy cost of published noise for SPIDER methods",
            "Xu et al. 2025, Theorems 1, 6 and 8",
            "A claim of 1 costs 7 to 9 with clipped records, and the clipped means of the method hide no record.",
            "spider_budgets",
        ),
        "xu_table_2_membership": Entry(
            "e17",
            "Membership inference on groups that differ",
            "Xu et al. 2025, Table 2",
            "The reported AUCs exceed the limit of the claimed ε for others drawn as members: they separate classes.",
            "membership",
        ),
        "zhang_theorem_6_rates": Entry(
            "e18",
            "Rates of minimax programs",
            "Zhang et al. 2025, Theorems 2 and 6",
            "A y that is released costs PrivateDiff its s^(2/3); estimates of both gradients bring it back.",
            "minimax_rates",
        ),
        "bellet_figure_3_noise": Entry(
            "e19",
            "Noise correlated in time, on graphs",
            "Bellet et al. 2025, Figure 3",
            "The best factor for a graph adds less noise to the models than factors that do not know it, at equal ε.",
            "mixed_noise",
        ),
    }
)


def name_of(name: str) -> str:
    """The name of an experiment that is given by name or alias.

    Raises:
        InputError: where there is no such experiment.

    Example:
        >>> name_of("e5")
        'lowy_liu_lemma_b6_calibration'
    """
    if name in EXPERIMENTS:
        return name
    for known, entry in EXPERIMENTS.items():
        if entry.alias == name:
            return known
    from decentral_dp.errors import InputError, quoted

    every = ", ".join(f"{entry.alias} or {known}" for known, entry in EXPERIMENTS.items())
    raise InputError(f"papers: there is no {quoted(name)}; wanted is one of {every}.")


def entry_of(name: str) -> Entry:
    """The entry of an experiment, by name or alias. Raises InputError for an unknown one."""
    return EXPERIMENTS[name_of(name)]


def run(name: str, seed: int = 0, quick: bool = False) -> Finding:
    """Measure one experiment.

    Args:
        name: key of `EXPERIMENTS`, or an alias.
        seed: public seed of all random bits; default 0.
        quick: whether there are fewer points and repetitions, in seconds; default no.

    Returns:
        Return the measurements and the verdicts on the claims.

    Raises:
        InputError: no such experiment, or a package that it needs is not installed.
    """
    name = name_of(name)
    entry = EXPERIMENTS[name]
    from papers.findings import Finding, table

    inside: Any = import_module(f"{__name__}.{entry.module}")
    start = perf_counter()
    rows = table(inside.measure(seed, quick))
    checks, sentences = inside.judge(rows)
    return Finding(name, entry.title, entry.source, rows, tuple(checks), tuple(sentences), perf_counter() - start)
