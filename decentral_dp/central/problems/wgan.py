"""A Wasserstein GAN: x are the generator's weights, which minimise, y the critic's, which maximise.

    f(w_G, w_D; ξ) = D(ξ; w_D),      r = −mean_z D(G(z; w_G); w_D) − λ ‖w_D‖²       (Equation 65 of Zhang et al. 2025)

Only D(ξ) reads records. ∇_{w_G} F reads none and has no privacy cost, whereas ∇_{w_D} D(ξ) is clipped and noisy.
(PrivateDiff as published does the reverse: it adds noise to the generator's gradient, and trains the critic without
noise.) The mean over z is over 256 standard normal vectors, drawn in every round by the public seed. Their number is
constant, since a number that depends on the sample size would reveal it. The gradient with respect to w_D at each
vector is clipped like the gradient at a record (privacy.clip.y), since one-sided clipping would bias the critic.

D is linear or (problem.model kind = "mlp") a network with ReLU, so layers do not mix records. G has ReLU units in the
layers of problem.generator (default [64]), reads problem.latent numbers (8), and ends in tanh: records must be in [−1,
1]. λ is problem.penalty (0.1). y stays in the ball of problem.radius (10), because the maximum over all w_D is 0 or
infinite: D grows with w_D as fast as the penalty with two layers, and faster with more layers.

The paper plots F at the published critic and calls a value near zero optimal, which any generator reaches with w_D = 0.
Φ is not computed here. The metrics are `test_distance`, the mean Wasserstein distance over 64 fixed directions between
held-out records and an equal number of generated ones (0 for the same distribution), and `estimate`, F without the
penalty on the train records, for comparison with the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from decentral_dp.bounded import Array, Norm
from decentral_dp.central.problems.saddle import Minimax, Scores
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import Refusal, refuse
from decentral_dp.exchange import ClippedQuery
from decentral_dp.files.tables import Count, NonNegative, Positive
from decentral_dp.models.autodiff import quiet_torch
from decentral_dp.models.build import Model
from decentral_dp.models.devices import tensor, to_numpy
from decentral_dp.models.protocol import Slope
from decentral_dp.problems.entry import ModelChoice, ProblemEntry, ProblemFacts
from decentral_dp.problems.records import take

if TYPE_CHECKING:
    from torch import Tensor

USUAL_GENERATOR, USUAL_LATENT, USUAL_PENALTY, USUAL_RADIUS = (64,), 8, 0.1, 10.0
# Number of generated records in a round.
FAKES = 256
_DIRECTIONS = 64
# Float64 numbers in one part of a sum, 128 MiB.
_CELLS = 1 << 24


class Real(NamedTuple):
    """Records.

    Args:
        inputs: inputs (n, d), in [−1, 1].
    """

    inputs: Array


@dataclass(frozen=True)
class Wgan(Minimax):
    """The minimax problem of a generator and a critic.

    Args:
        critic: D, with one output.
        n_features: number d of features.
        hidden: units of the critic's layers.
        generator: units of the generator's layers.
        latent: dimension of z.
        penalty: penalty weight λ.
        radius: radius of the ball of y.
        clip: clipping norm of the gradients with respect to w_D, at generated records and at records.
        seed: public seed.
        device: device "cpu" or "cuda".
    """

    critic: Model
    n_features: int
    hidden: tuple[int, ...] = ()
    generator: tuple[int, ...] = USUAL_GENERATOR
    latent: int = USUAL_LATENT
    penalty: float = USUAL_PENALTY
    radius: float = USUAL_RADIUS
    clip: float = math.inf
    seed: int = 0
    device: str = "cpu"

    @property
    def p(self) -> int:
        return sum((i + 1) * o for i, o in pairwise([self.latent, *self.generator, self.n_features]))

    @property
    def q(self) -> int:
        return self.critic.p

    @property
    def terms(self) -> Mapping[str, bool]:
        return {"grad_x": False, "grad_y": True}

    @cached_property
    def start(self) -> Mapping[str, Array]:
        draw = public_generator(self.seed, "generator")
        widths = [self.latent, *self.generator, self.n_features]
        layers = [(draw.normal(size=i * o) * math.sqrt(2.0 / i), np.zeros(o)) for i, o in pairwise(widths)]
        return {"x": np.concatenate([part for layer in layers for part in layer]), "y": self.critic.start}

    def width(self, term: str) -> int:
        return {"grad_x": self.p, "grad_y": self.q}[term]

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Real:
        return Real(np.asarray(features))

    def project_y(self, y: Array) -> Array:
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(y))
        return y if length <= self.radius else np.asarray(y * (self.radius / length))

    def public(self, term: str, x: Array, y: Array, round: int) -> Array:
        latents = self.latents("fakes", FAKES, round)
        if term == "grad_x":
            from torch.func import grad

            def mean(generator: Tensor) -> Any:
                return _dense(critic, [self.n_features, *self.hidden, 1], self._generate(generator, z))[:, 0].mean()

            with quiet_torch():
                weights, critic, z = self._tensors(x, y, latents)
                return -to_numpy(grad(mean)(weights))
        total = self._clipped_sum(y, Real(self.generate(x, latents)), np.ones((FAKES, 1)), None, self.clip)
        return np.asarray(-total / FAKES - 2.0 * self.penalty * y)

    def latents(self, purpose: str, n: int, round: int = 0) -> Array:
        """Draw (n, latent) standard normal numbers, a function of the public seed and the round."""
        return public_generator(self.seed, purpose, round).standard_normal((n, self.latent))

    def generate(self, x: Array, latents: Array) -> Array:
        """Compute G(z), (n, d)."""
        with quiet_torch():
            return to_numpy(self._generate(*self._tensors(x, latents)))

    def _generate(self, weights: Tensor, latents: Tensor) -> Any:
        return _dense(weights, [self.latent, *self.generator, self.n_features], latents).tanh()

    def _tensors(self, *arrays: Array) -> list[Tensor]:
        return [tensor(a, self.device) for a in arrays]

    def sums(
        self, records: Real, queries: Sequence[ClippedQuery], is_drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        totals, start = [np.zeros(self.q) for _ in queries], 0
        for part in self._chunks(records):
            n = len(part.inputs)
            # Every clip turns a NaN into zero.
            along = np.ones((n, 1)) if is_drawn is None else np.where(is_drawn[start : start + n, None], 1.0, np.nan)
            start += n
            for total, query in zip(totals, queries, strict=True):
                since = None if query.earlier_point is None else query.earlier_point[1]
                total += self._clipped_sum(query.y, part, along, since, query.bound)
        return totals

    def _clipped_sum(self, y: Array, records: Real, along: Array, since: Array | None, bound: float) -> Array:
        """Compute Σ clip(∇_{w_D} D), or of its change since an earlier critic."""
        earlier_slope = None if since is None else self._slope(since, records, along)
        slope, extra = self._slope(y, records, along), np.zeros((len(along), 0))
        return self.critic.clipped_sum(slope, extra, bound, earlier_slope)[0]

    def _slope(self, y: Array, records: Real, along: Array) -> Slope:
        return Slope(self.critic.forward(y, records.inputs)[1], along)

    def _chunks(self, records: Real) -> Iterator[Real]:
        """Yield parts of bounded memory."""
        size = max(1, _CELLS // self.critic.cells)
        return (take(records, slice(k, k + size)) for k in range(0, len(records.inputs), size))

    def scores(self, x: Array, y: Array, train: Real, test: Real | None) -> Scores:
        with np.errstate(all="ignore"):
            n = max(1, len(train.inputs))
            real = sum(float(self._critic_values(y, part).sum()) for part in self._chunks(train)) / n
            fake = float(self._critic_values(y, Real(self.generate(x, self.latents("judged", n)))).mean())
            out = {"estimate": real - fake} if np.isfinite(real - fake) else {}
            if test is not None:
                samples = self.generate(x, self.latents("held against", len(test.inputs)))
                if np.isfinite(samples).all():
                    draw = public_generator(self.seed, "directions")
                    directions = draw.standard_normal((self.n_features, _DIRECTIONS))
                    directions /= np.linalg.norm(directions, axis=0)
                    # In one dimension, the distance between two sets of equal size is that of the sorted sets.
                    gaps = np.abs(np.sort(test.inputs @ directions, axis=0) - np.sort(samples @ directions, axis=0))
                    out["test_distance"] = float(gaps.mean())
        return out

    def _critic_values(self, y: Array, records: Real) -> Array:
        return np.asarray(self.critic.forward(y, records.inputs, keep=False)[0][:, 0])


def _dense(flat: Tensor, widths: Sequence[int], rows: Any) -> Any:
    """Apply dense layers with ReLU between them; weights are ordered as in `models`: layer by layer A, then b."""
    begin, last = 0, len(widths) - 2
    for k, (i, o) in enumerate(pairwise(widths)):
        middle, end = begin + i * o, begin + (i + 1) * o
        rows = rows @ flat[begin:middle].reshape(o, i).T + flat[middle:end]
        rows, begin = rows.relu() if k < last else rows, end
    return rows


_REFUSED = (
    Refusal[tuple[ProblemFacts, ModelChoice | None]](
        lambda c: c[1] is not None and c[1].kind not in ("linear", "mlp") and c[1].kind,
        "problem.model",
        "wgan requires derivatives of its critic with respect to the input (got {it!r})",
        'use "linear", or for example {{ kind = "mlp", hidden = [64] }}',
    ),
    Refusal[tuple[ProblemFacts, ModelChoice | None]](
        lambda c: c[0].l2 is None,
        "problem.scale",
        "wgan requires records in [-1, 1], and these have no declared range",
        'set scale = "public_ranges", or another declared range',
    ),
)


def wgan(
    facts: ProblemFacts,
    generator: Annotated[list[Count], Doc("Units of each hidden layer of the generator.")] | None = None,
    latent: Annotated[Count, Doc("Dimension of the generator's input.")] = USUAL_LATENT,
    penalty: Annotated[NonNegative, Doc("Weight of the gradient penalty of the critic.")] = USUAL_PENALTY,
    radius: Annotated[Positive, Doc("l2 radius of the critic's weights; default 10.")] = USUAL_RADIUS,
    model: ModelChoice | None = None,
) -> Wgan:
    """Build the problem from the keys of a scenario. Raises InputError."""
    refuse((facts, model), _REFUSED)
    return Wgan(
        facts.model(1, model),
        facts.n_features,
        () if model is None else tuple(model.hidden or ()),
        USUAL_GENERATOR if generator is None else tuple(generator),
        latent,
        penalty,
        radius,
        facts.clip.get("y", math.inf),
        facts.seed,
        facts.device,
    )


ENTRY = ProblemEntry(
    "wgan",
    wgan,
    "a generator of synthetic records against a critic: a Wasserstein GAN",
    task="trained a generator against a critic",
)
