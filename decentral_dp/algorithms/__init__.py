"""Algorithms by name. Each entry builds its algorithm from the scenario's [algorithm] table and the guarantee."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from decentral_dp.algorithms.central.bsa import Bsa
from decentral_dp.algorithms.central.double_spider import DoubleSpider
from decentral_dp.algorithms.central.dp_bilevel import DpBilevel
from decentral_dp.algorithms.central.dp_sgd_dual import DpSgdDual
from decentral_dp.algorithms.central.dp_sgda import DpSgda
from decentral_dp.algorithms.central.dp_spider import DpSpider
from decentral_dp.algorithms.central.dptd import Dptd
from decentral_dp.algorithms.central.exponential_mechanism import ExponentialMechanism
from decentral_dp.algorithms.central.gradient_norm_exponential_mechanism import GradientNormMechanism
from decentral_dp.algorithms.central.grid_walk import GridWalk
from decentral_dp.algorithms.central.pp_ift import PpIft
from decentral_dp.algorithms.central.privatediff import PrivateDiff
from decentral_dp.algorithms.central.privatediff_xy import PrivateDiffXY
from decentral_dp.algorithms.central.protocol import Coordinated
from decentral_dp.algorithms.central.recursive_spider import RecursiveSpider
from decentral_dp.algorithms.central.regularisation_tuner import RegularisationTuner
from decentral_dp.algorithms.central.regularised_exponential_mechanism import RegularisedExponentialMechanism
from decentral_dp.algorithms.central.scdro import UNPROTECTED, Scdro, check_unprotected
from decentral_dp.algorithms.central.second_order_dp_bilevel import SecondOrder
from decentral_dp.algorithms.central.warm_start import WarmStart
from decentral_dp.algorithms.decentralised.dsbo_jhip import DsboJhip
from decentral_dp.algorithms.decentralised.gbdsbo import Gbdsbo
from decentral_dp.algorithms.decentralised.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.decentralised.ma_dsbo import MaDsbo
from decentral_dp.algorithms.decentralised.single_level import DpDsgd, LdpSingleLevel
from decentral_dp.algorithms.decentralised.spdb import Spdb
from decentral_dp.algorithms.decentralised.vrdsbo import Vrdsbo
from decentral_dp.algorithms.printed.printed_bsa import PrintedBsa
from decentral_dp.algorithms.printed.printed_double_spider import PrintedDoubleSpider
from decentral_dp.algorithms.printed.printed_dp_bilevel import PrintedDpBilevel
from decentral_dp.algorithms.printed.printed_dp_sgd_dual import PrintedDpSgdDual
from decentral_dp.algorithms.printed.printed_dp_sgda import PrintedDpSgda
from decentral_dp.algorithms.printed.printed_dp_spider import PrintedDpSpider
from decentral_dp.algorithms.printed.printed_dsbo_jhip import PrintedDsboJhip
from decentral_dp.algorithms.printed.printed_exponential_mechanism import PrintedExponentialMechanism
from decentral_dp.algorithms.printed.printed_gbdsbo import PrintedGbdsbo
from decentral_dp.algorithms.printed.printed_gradient_norm_exponential_mechanism import PrintedGradientNormMechanism
from decentral_dp.algorithms.printed.printed_grid_walk import PrintedGridWalk
from decentral_dp.algorithms.printed.printed_ldp_dsbo import PrintedLdpDsbo
from decentral_dp.algorithms.printed.printed_ma_dsbo import PrintedMaDsbo
from decentral_dp.algorithms.printed.printed_privatediff import PrintedPrivateDiff
from decentral_dp.algorithms.printed.printed_recursive_spider import PrintedRecursiveSpider
from decentral_dp.algorithms.printed.printed_regularised_exponential_mechanism import (
    PrintedRegularisedExponentialMechanism,
)
from decentral_dp.algorithms.printed.printed_second_order import PrintedSecondOrder
from decentral_dp.algorithms.printed.printed_single_level import PrintedDpDsgd, PrintedLdpSingleLevel
from decentral_dp.algorithms.printed.printed_spdb import PrintedSpdb
from decentral_dp.algorithms.printed.printed_vrdsbo import PrintedVrdsbo
from decentral_dp.algorithms.printed.printed_warm_start import PrintedWarmStart
from decentral_dp.algorithms.protocol import Algorithm, StepSize
from decentral_dp.algorithms.references import (
    ARORA,
    BSA,
    CHEN_WANG,
    DP_DRO,
    DP_SGD,
    DPTD,
    DSBO_JHIP,
    DSGD,
    GBDSBO,
    KORNOWSKI,
    LOWY_LIU,
    MA_DSBO,
    PRIVATEDIFF,
    SCDRO,
    SPDB,
    VRDBO,
    Citation,
)
from decentral_dp.errors import InputError

# Keys of the [algorithm] table that some algorithms need and others refuse: step sizes, and numbers.
STEPS = ("x", "y", "z", "averaging", "dual")
NUMBERS = ("inner", "inverse", "smoothness", "momentum", "penalty")
WORDS = ("domain", "solver", "rate", "method", "candidates", "strength", "period", "longest")
OPTIONS = STEPS + NUMBERS + WORDS


Built = TypeVar("Built")


class Options(NamedTuple):
    """What a scenario says of its algorithm: step sizes and numbers by key, constant start, protocol."""

    steps: Mapping[str, StepSize]
    numbers: Mapping[str, Any]
    init: Mapping[str, float]
    protocol: str


class Entry(NamedTuple):
    """A registered algorithm: how to build it, one line for the list, the module that describes it, what it needs.

    citations: whom to cite. message: what message t = 1, 2, … carries, where one sentence can say it.
    """

    certified: Callable[[Options, str], Algorithm | Coordinated]
    summary: str
    home: str
    options: tuple[str, ...]
    citations: tuple[Citation, ...]
    message: str = ""
    # Whether protocol = "private" can be chosen.
    private: bool = False
    # Keys that may be left out: the algorithm then settles them from public facts.
    optional: tuple[str, ...] = ()
    # Whether it is a trusted coordinator's program, and whether δ = 0 will do: it adds no Gaussian noise.
    trusted: bool = False
    pure: bool = False
    # Where the paper states the budget of its own calibration, which "as_printed" runs.
    claim: str = ""
    # The kind of problem it is for: "bilevel" or "minimax".
    solves: str = "bilevel"
    # Key → how a scenario could give it, where the usual example does not fit.
    example: Mapping[str, str] = MappingProxyType({})
    # What "as_printed" runs, of `algorithms.printed`, or the sentence that says why there is none.
    printed: type | None = None
    unprinted: str = ""

    def build(self, options: Options, guarantee: str) -> Algorithm | Coordinated:
        """Make the algorithm that a guarantee asks for.

        Raises:
            InputError: for "as_printed" where no paper prints it.
        """
        if guarantee != "as_printed":
            return self.certified(options, guarantee)
        if self.printed is None:
            raise InputError(self.unprinted)
        made: Algorithm | Coordinated = self.printed(**options.steps, **options.numbers, start=options.init)
        return made


def _plain(algorithm: Callable[..., Built]) -> Callable[[Options, str], Built]:
    """Fields named as the keys are; a protocol only where the scenario names one besides the usual."""

    def build(options: Options, guarantee: str) -> Built:
        named = {} if options.protocol == "released" else {"protocol": options.protocol}
        return algorithm(**options.steps, **options.numbers, **named, start=options.init)

    return build


def _unprotected(options: Options, guarantee: str) -> Scdro:
    """Raises InputError for any guarantee but none."""
    check_unprotected(guarantee)
    return _plain(Scdro)(options, guarantee)


_NOISED = Citation("Noise on its messages (Algorithm 3 there)", CHEN_WANG)
# A minimax problem in a scenario, for the examples of `show`.
_AUC = {
    "problem": '"auc_maximisation"',
    "problem_keys": "# Public: no count of these records.\npositive_share = 0.6",
    "clip": "clip.x = 1.0",
}
_ASCENT = {"y": "{ scale = 0.5 }", "solver": '"ascent"'}
_DRO = {
    "problem": '"dro"',
    "problem_keys": 'divergence = "chi2"\nstrength = 1.0\ncap = 5.0',
    "clip": "clip.x = 1.0",
}
_KL = {"problem": '"kl_dro"', "problem_keys": "strength = 1.0\nradius = 0.5\ncap = 5.0", "clip": "clip.x = 1.0"}
_TD = {
    "problem": '"mspbe"',
    "data": '"cartpole"',
    "problem_keys": 'discount = 0.9\nmodel = { kind = "mlp", hidden = [50] }\nsynthetic = { records = 20, steps = 50 }',
    "clip": "clip.x = 3.0\nclip.y = 3.0",
}
_ONE_STEP = (
    "carries the step of round t − 1, taken on the records seen by then, and the noise of index t: "
    "λ_(t−1) · gradient + noise of deviation σ_t."
)

ALGORITHMS: dict[str, Entry] = {
    "ldp_dsbo": Entry(
        _plain(LdpDsbo),
        "single-loop bilevel gossip with noised x, y and z (Chen & Wang, ICML 2024)",
        "decentral_dp.algorithms.decentralised.ldp_dsbo",
        ("x", "y", "z"),
        (Citation("Algorithm and convergence theorem (Theorem 4.1)", CHEN_WANG),),
        _ONE_STEP,
        private=True,
        printed=PrintedLdpDsbo,
    ),
    "ma_dsbo": Entry(
        _plain(MaDsbo),
        "nested loops with gradient tracking for the inverse Hessian (Chen et al., ICML 2023; DSBO-HIGP)",
        "decentral_dp.algorithms.decentralised.ma_dsbo",
        ("x", "y", "z", "inner", "inverse"),
        (Citation("Algorithm", MA_DSBO), _NOISED),
        printed=PrintedMaDsbo,
    ),
    "dsbo_jhip": Entry(
        _plain(DsboJhip),
        "nested loops with gradient tracking for Jacobian times inverse Hessian (Chen, Huang & Ma, 2022)",
        "decentral_dp.algorithms.decentralised.dsbo_jhip",
        ("x", "y", "z", "inner", "inverse"),
        (Citation("Algorithm", DSBO_JHIP), _NOISED),
        printed=PrintedDsboJhip,
    ),
    "gbdsbo": Entry(
        _plain(Gbdsbo),
        "one time scale, gossiped gradients, Jacobian and Neumann factors (Yang, Zhang & Wang, NeurIPS 2022)",
        "decentral_dp.algorithms.decentralised.gbdsbo",
        ("x", "y", "averaging", "inverse", "smoothness"),
        (Citation("Algorithm", GBDSBO), _NOISED),
        printed=PrintedGbdsbo,
    ),
    "ldp_single_level": Entry(
        _plain(LdpSingleLevel),
        "the lower level alone: gossip first, then a local step (Chen & Wang, Appendix G.3)",
        "decentral_dp.algorithms.decentralised.single_level",
        ("y",),
        (Citation("Algorithm (its lower level alone, Appendix G.3)", CHEN_WANG),),
        _ONE_STEP,
        printed=PrintedLdpSingleLevel,
    ),
    "dp_dsgd": Entry(
        _plain(DpDsgd),
        "decentralised DP-SGD on the lower level: a local noised step first, then gossip",
        "decentral_dp.algorithms.decentralised.single_level",
        ("y",),
        (Citation("Decentralised SGD, here with noise", DSGD),),
        _ONE_STEP,
        printed=PrintedDpDsgd,
    ),
    "vrdsbo": Entry(
        _plain(Vrdsbo),
        "variance-reduced local hypergradients with gradient tracking (Gao, Gu & Thai, AISTATS 2023; VRDBO)",
        "decentral_dp.algorithms.decentralised.vrdsbo",
        ("x", "y", "averaging", "momentum", "smoothness", "inverse"),
        (Citation("Algorithm", VRDBO), Citation("Noise on its messages (Appendix A there)", CHEN_WANG)),
        printed=PrintedVrdsbo,
    ),
    "spdb": Entry(
        _plain(Spdb),
        "personal lower variables, consensus on x by multipliers (after Lu et al., ICASSP 2022)",
        "decentral_dp.algorithms.decentralised.spdb",
        ("x", "y", "penalty", "dual", "smoothness", "inverse"),
        (Citation("A primal-dual method after", SPDB),),
        printed=PrintedSpdb,
    ),
    "bsa": Entry(
        _plain(Bsa),
        "a server asks, agents answer with noise: inner steps and a Neumann series (Ghadimi & Wang, 2018)",
        "decentral_dp.algorithms.central.bsa",
        ("x", "y", "inner", "inverse", "smoothness"),
        (Citation("Algorithm", BSA),),
        printed=PrintedBsa,
    ),
    "regularisation_tuner": Entry(
        _plain(RegularisationTuner),
        "a trusted coordinator: one regularisation strength and its model, three ways (Kornowski, 2024, Section 7)",
        "decentral_dp.algorithms.central.regularisation_tuner",
        (),
        (Citation('The rule of method = "penalty", its sign corrected', KORNOWSKI),),
        optional=("method", "penalty", "candidates", "domain"),
        trusted=True,
        unprinted=(
            'privacy.guarantee: the printed tuner climbs the validation loss, so there is no "as_printed" of it. Use '
            '"certified".'
        ),
    ),
    "pp_ift": Entry(
        _plain(PpIft),
        "a trusted coordinator: implicit differentiation at a private lower-level point, private by construction",
        "decentral_dp.algorithms.central.pp_ift",
        (),
        (Citation("Implicit hypergradients, here at a private point, after", LOWY_LIU),),
        optional=("x", "inner", "smoothness", "solver", "domain"),
        trusted=True,
        unprinted=(
            'privacy.guarantee: pp_ift was never printed, so it has no "as_printed". Use "certified", or "none".'
        ),
    ),
    "second_order_dp_bilevel": Entry(
        _plain(SecondOrder),
        "a trusted coordinator: exact hypergradients of pooled records, with noise (Lowy & Liu, 2025, Algorithm 1)",
        "decentral_dp.algorithms.central.second_order_dp_bilevel",
        (),
        (Citation("Algorithm", LOWY_LIU),),
        optional=("x", "domain"),
        trusted=True,
        claim="Theorem 4.2 of Lowy & Liu (2025), as printed",
        printed=PrintedSecondOrder,
    ),
    "dp_bilevel": Entry(
        _plain(DpBilevel),
        "a trusted coordinator: a penalty, private lower-level solvers, first derivatives only (Kornowski, 2024)",
        "decentral_dp.algorithms.central.dp_bilevel",
        (),
        (Citation("Algorithm", KORNOWSKI),),
        optional=("x", "penalty", "inner", "smoothness", "rate", "solver", "domain"),
        trusted=True,
        claim="Theorems 4 and 11 of Kornowski (2024), as printed",
        printed=PrintedDpBilevel,
    ),
    "dp_sgda": Entry(
        _plain(DpSgda),
        "a trusted coordinator: minimax by simultaneous steps on one noised Poisson sample (Yang et al., 2022)",
        "decentral_dp.algorithms.central.dp_sgda",
        ("x",),
        (Citation("Algorithm 1 of the paper, as DP-SGDA", PRIVATEDIFF),),
        optional=("y", "rate", "solver"),
        trusted=True,
        solves="minimax",
        claim="Theorem 1 and the explicit values after it, as printed",
        example=_AUC | _ASCENT | {"clip": "clip.x = 1.0\nclip.y = 1.0"},
        printed=PrintedDpSgda,
    ),
    "dptd": Entry(
        _plain(Dptd),
        "a trusted coordinator: minimax with momentum on both sides, for temporal differences (Zhao et al., 2023)",
        "decentral_dp.algorithms.central.dptd",
        ("x", "y", "averaging"),
        (Citation("An algorithm of the kind of", DPTD),),
        optional=("rate",),
        trusted=True,
        solves="minimax",
        example=_TD,
        unprinted=(
            'privacy.guarantee: the noise that dptd was printed with is not known here, so it has no "as_printed". Use '
            '"certified", or "none".'
        ),
    ),
    "privatediff": Entry(
        _plain(PrivateDiff),
        "a trusted coordinator: minimax, the gradient by x carried on by differences (Zhang et al., 2025)",
        "decentral_dp.algorithms.central.privatediff",
        ("x", "period"),
        (Citation("Algorithms 3 and 4; certified here with a y that is released", PRIVATEDIFF),),
        optional=("y", "inner", "smoothness", "rate", "solver"),
        trusted=True,
        solves="minimax",
        claim="Theorem 5 and Remark 5.1 of Zhang et al. (2025), as printed",
        example=_AUC | _ASCENT | {"smoothness": "1.0"},
        printed=PrintedPrivateDiff,
    ),
    "privatediff_xy": Entry(
        _plain(PrivateDiffXY),
        "a trusted coordinator: minimax, both gradients carried on by differences, on one sample a round",
        "decentral_dp.algorithms.central.privatediff_xy",
        ("x", "y", "period"),
        (Citation("After Algorithm 3", PRIVATEDIFF),),
        optional=("smoothness", "rate"),
        trusted=True,
        solves="minimax",
        example=_AUC | {"smoothness": "1.0"},
        unprinted=(
            'privacy.guarantee: privatediff_xy was never printed, so it has no "as_printed". Use "certified", or '
            '"none"; as printed there is privatediff.'
        ),
    ),
    "double_spider": Entry(
        _plain(DoubleSpider),
        "a trusted coordinator: robust learning, x and the dual variable in turn, by differences (Xu et al., 2025)",
        "decentral_dp.algorithms.central.double_spider",
        ("x", "y", "period"),
        (Citation("Algorithm 2, with per-record clips", DP_DRO),),
        optional=("smoothness", "rate", "longest"),
        trusted=True,
        solves="minimax",
        claim="Theorem 6 of Xu et al. (2025), as printed, its constant taken as 1",
        example=_DRO | {"smoothness": "1.0"},
        printed=PrintedDoubleSpider,
    ),
    "recursive_spider": Entry(
        _plain(RecursiveSpider),
        "a trusted coordinator: KL-robust learning, a function of a recursively estimated mean (Xu et al., 2025)",
        "decentral_dp.algorithms.central.recursive_spider",
        ("x", "y", "period", "averaging"),
        (Citation("Algorithm 3, corrected", DP_DRO),),
        optional=("smoothness", "rate"),
        trusted=True,
        solves="minimax",
        claim="Theorem 8 of Xu et al. (2025), as printed, its constant taken as 1",
        example=_KL | {"smoothness": "1.0"},
        printed=PrintedRecursiveSpider,
    ),
    "dp_spider": Entry(
        _plain(DpSpider),
        "a trusted coordinator: both gradients as one vector, carried on by differences (Arora et al., 2023)",
        "decentral_dp.algorithms.central.dp_spider",
        ("x", "period"),
        (
            Citation("Algorithm, with per-record clips", ARORA),
            Citation("On (x, η) as one variable (Section 3)", DP_DRO),
        ),
        optional=("y", "smoothness", "rate"),
        trusted=True,
        solves="minimax",
        claim="the calibration of Arora et al. (2023), its constant taken as 1",
        example=_DRO | {"smoothness": "1.0"},
        printed=PrintedDpSpider,
    ),
    "dp_sgd_dual": Entry(
        _plain(DpSgdDual),
        "a trusted coordinator: both gradients as one vector, one noised step a round (DP-SGD on the dual objective)",
        "decentral_dp.algorithms.central.dp_sgd_dual",
        ("x",),
        (Citation("DP-SGD", DP_SGD), Citation("On (x, η) as one variable (Section 3)", DP_DRO)),
        optional=("y", "rate"),
        trusted=True,
        solves="minimax",
        claim="Theorem 5 of Xu et al. (2025), as printed, its constant taken as 1",
        example=_DRO,
        printed=PrintedDpSgdDual,
    ),
    "scdro": Entry(
        _unprotected,
        "a baseline without privacy: KL-robust learning by moving averages (after Qi et al., 2022)",
        "decentral_dp.algorithms.central.scdro",
        ("x", "y", "averaging"),
        (Citation("After the algorithm", SCDRO), Citation("As the baseline that is not private (Table 3)", DP_DRO)),
        optional=("rate",),
        trusted=True,
        solves="minimax",
        example=_KL | {"guarantee": '"none"', "clip": ""},
        unprinted=UNPROTECTED,
    ),
    "exponential_mechanism": Entry(
        _plain(ExponentialMechanism),
        "a trusted coordinator: one draw of x by an exponential mechanism, pure ε (Lowy & Liu, 2025, Equation 4)",
        "decentral_dp.algorithms.central.exponential_mechanism",
        ("domain",),
        (Citation("Mechanism (Equation 4, its scale corrected)", LOWY_LIU),),
        optional=("method", "candidates"),
        trusted=True,
        pure=True,
        claim="Equation 4 of Lowy & Liu (2025), as printed",
        example={"rounds": "1", "method": '"grid"'},
        printed=PrintedExponentialMechanism,
    ),
    "regularised_exponential_mechanism": Entry(
        _plain(RegularisedExponentialMechanism),
        "a trusted coordinator: one draw of x from a log-concave density (Lowy & Liu, 2025, Equation 5)",
        "decentral_dp.algorithms.central.regularised_exponential_mechanism",
        ("domain",),
        (Citation("Mechanism (Equation 5, its calibration corrected)", LOWY_LIU),),
        optional=("method", "strength"),
        trusted=True,
        claim="Equation 5 and Lemma B.6 of Lowy & Liu (2025), as printed",
        example={"problem": '"quadratic"', "rounds": "1", "method": '"tangent"'},
        printed=PrintedRegularisedExponentialMechanism,
    ),
    "gradient_norm_exponential_mechanism": Entry(
        _plain(GradientNormMechanism),
        "a trusted coordinator: one draw of an x that is nearly stationary, pure ε (Lowy & Liu, 2025, Appendix C.3)",
        "decentral_dp.algorithms.central.gradient_norm_exponential_mechanism",
        ("domain",),
        (Citation("Mechanism (Appendix C.3, its scale corrected)", LOWY_LIU),),
        optional=("method", "candidates"),
        trusted=True,
        pure=True,
        claim="Appendix C.3 of Lowy & Liu (2025), as printed",
        example={"rounds": "1", "method": '"grid"'},
        printed=PrintedGradientNormMechanism,
    ),
    "grid_walk": Entry(
        _plain(GridWalk),
        "a trusted coordinator: a Markov chain for the exponential mechanism, at ε = ∞ (Lowy & Liu, 2025, B.3)",
        "decentral_dp.algorithms.central.grid_walk",
        ("domain",),
        (Citation("Algorithm (Appendix B.3)", LOWY_LIU),),
        optional=("candidates", "inner"),
        trusted=True,
        pure=True,
        claim="Theorem B.15 of Lowy & Liu (2025), as printed",
        example={"guarantee": '"as_printed"', "rounds": "1", "inner": "10000"},
        printed=PrintedGridWalk,
    ),
    "warm_start": Entry(
        _plain(WarmStart),
        "a trusted coordinator: hypergradient descent from a start drawn privately (Lowy & Liu, 2025, Algorithm 2)",
        "decentral_dp.algorithms.central.warm_start",
        ("domain",),
        (Citation("Algorithm 2", LOWY_LIU),),
        optional=("x", "candidates"),
        trusted=True,
        claim="Theorem 4.3 of Lowy & Liu (2025), as printed",
        printed=PrintedWarmStart,
    ),
}
