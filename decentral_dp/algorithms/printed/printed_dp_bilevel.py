"""First-order private bilevel optimisation with its printed noise: the program of `dp_bilevel`.

(ε/√(18T), δ/(3(T+1))) for each of the three releases of a round, as Algorithm 1 says, by its Lemma 15, and by Lemma 14
for the descents within. With Gaussian noise that is several times too much of it: composed exactly it costs .2 to .4
for ε = 1, and less where solvers take many steps.

Reference: G. Kornowski, "Differentially Private Bilevel Optimization", 2024, Theorems 4 and 11.
"""

from __future__ import annotations

import math
from typing import final

from decentral_dp.algorithms.coordinator_bilevel.dp_bilevel import DpBilevel
from decentral_dp.algorithms.coordinator_bilevel.lower_solvers import SOLVERS
from decentral_dp.algorithms.printed.printed_scales import calibrated
from decentral_dp.algorithms.printed.protocol import Noise
from decentral_dp.errors import InputError
from decentral_dp.participants.coordinator_context import CoordinatorContext


@final
class PrintedDpBilevel(DpBilevel):
    """The fields and steps of `DpBilevel`, with the printed noise."""

    protocol = "printed"

    def printed_calibration(self, context: CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        """Compute Lemma 15 at (ε/√(18T), δ/(3(T+1))), with sensitivities of full batches, which Theorem 11 keeps.

        Raises:
            InputError: a solver that needs the records themselves.
        """
        if self.needs_records:
            raise InputError(
                'algorithm.solver: the paper solves the lower level step by step; with "as_printed" take "dp_loc_gd", '
                '"dp_loc_sgd" or "dp_gd".'
            )
        each = epsilon / math.sqrt(18.0 * rounds), delta / (3.0 * (rounds + 1.0))
        inner, width = self._solver, context.problem.q
        below = {"lower_grad_y": 1.0}
        above = {"lower_grad_y": 1.0, "upper_grad_y": 1.0 / self._penalised.penalty}
        sampled = self.rate if SOLVERS[self.solver].samples else 1.0
        out = {
            channel: calibrated(context, factors, width, sampled, rounds, inner.publishes, each)
            for channel, factors in (("y", below), ("pulled", above))
            if any(context.reads(term) for term in factors)
        }
        if self.reads:
            factors = dict.fromkeys(self._step_terms(context), 1.0)
            out["gx"] = calibrated(context, factors, context.problem.p, self.rate, rounds, 1, each)
        return out
