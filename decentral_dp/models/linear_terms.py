"""Common parts of linear models: validation of features, their norms, and clipping by coefficient.

Every per-example term of a linear model is a coefficient times the features (for several classes, an outer product).
Its norm is |coefficient|·‖a‖, and clipping needs one number per record.

Products and sums have a stated order, so that their bits depend neither on the processor nor on other agents. If the
package was built with a C compiler, `_linear.c` computes them for all agents in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm
from decentral_dp.errors import InputError
from decentral_dp.privacy.clipping import SMALLEST_CLIP, Clip, row_norms

try:
    from decentral_dp.models import _linear
except ImportError:
    _linear = None  # type: ignore[assignment]  # it is optional

# Lanes of a product, and norms of rows, of the compiled module.
_LANES = 8
_NORM_CODES: dict[Norm | None, int] = {None: 0, "l1": 1, "l2": 2}

# Float64 numbers of a block, 2 MiB: it stays in the cache of a core from the forward to the backward product, and hides
# the cost of the loop.
BLOCK = 1 << 18

# Numbers near the ends of float64's range have too few digits for exact bounds. Contributions with a smaller factor,
# and records with a larger norm, count as zero, like those that are not finite.
LEAST_FACTOR = 1e-290
LARGEST_NORM = 1e250


@dataclass(frozen=True, eq=False)
class Joined:
    """Joined records of agents with unequal numbers of records. Only products and sums separate the agents.

    Args:
        rows: records (1, N, d), agent after agent.
        counts: numbers of records of the agents, (b,).
    """

    rows: Array
    counts: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (1, N, d) of the rows."""
        return self.rows.shape


Rows: TypeAlias = Array | Joined


def spread(values: Array, rows: Rows) -> Array:
    """Return a number per agent, (b, 1), repeated for each record of joined records, (1, N)."""
    return np.repeat(values[:, 0], rows.counts)[None] if isinstance(rows, Joined) else values


def divisor_of(rows: Rows) -> float | Array:
    """Return the numbers of averaged records, at least 1, as one number for all agents or with shape (b, 1)."""
    return np.maximum(rows.counts, 1.0)[:, None] if isinstance(rows, Joined) else float(max(rows.shape[1], 1))


def blocks(n_records: int, width: int) -> Iterator[slice]:
    """Yield slices of the records with about `BLOCK` numbers each."""
    rows = max(1, BLOCK // max(1, width))
    for start in range(0, n_records, rows):
        yield slice(start, min(start + rows, n_records))


def tiles(n_agents: int, n_records: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Divide agents and their records into tiles, each with many small shards or with part of a large shard.

    The boundaries within an agent, and hence the bits of its sums, depend only on its number of records.

    Args:
        n_agents: number g of agents.
        n_records: number of records per agent.
        width: number of floats per record.

    Returns:
        The slices of agents and of records of the tiles, each with about `BLOCK` numbers.
    """
    n_together = max(1, BLOCK // max(1, n_records * width))
    for start in range(0, n_agents, n_together):
        for part in blocks(n_records, width):
            yield slice(start, min(start + n_together, n_agents)), part


def clipped_means(
    coefficients: Callable[..., Sequence[Array]],
    points: Sequence[Array | None],
    rows: Rows,
    norms: Array,
    bounds: Sequence[float],
    *extra_arrays: Array,
) -> Sequence[Array]:
    """Average records times clipped coefficients, Σ_k c_k a_k / n, tile by tile.

    Args:
        coefficients: function of a tile's points, rows and extra arrays that returns an array (g, n) for each mean,
            which is overwritten.
        points: points (g, ·) each, or None.
        rows: records (g, n, d), or joined records with g = 1 and n = N.
        norms: norms of the records, (g, n).
        bounds: clip of each mean, as in `clip_coefficients`.
        extra_arrays: further arrays, (g, n, …) each.

    Returns:
        The means (g, d), or zeros if there are no records.

    Limits:
        Call it with floating-point warnings disabled.
    """
    n_agents, n_records, width = rows.shape
    if isinstance(rows, Joined) or rows.size <= BLOCK:
        return clipped_sums(coefficients(*points, rows, *extra_arrays), norms, bounds, rows, divisor_of(rows))
    means = [np.zeros((n_agents, width)) for _ in bounds]
    for agents, part in tiles(n_agents, n_records, width):
        tile_points = [None if point is None else point[agents] for point in points]
        tile = rows[agents, part]
        tile_coefficients = coefficients(*tile_points, tile, *(extra[agents, part] for extra in extra_arrays))
        for mean, total in zip(means, clipped_sums(tile_coefficients, norms[agents, part], bounds, tile), strict=True):
            mean[agents] += total
    for mean in means:
        mean /= float(max(n_records, 1))
    return means


def forward(rows: Rows, *vectors: Array) -> Sequence[Array]:
    """Compute a·v for every record and the vectors of its agent.

    Args:
        rows: records (g, n, d), or joined records.
        vectors: vectors of the agents, (b, d) each.

    Returns:
        The products, (g, n) or (1, N) for each, with bits that do not depend on other agents.
    """
    return [forward_and_sizes(rows, v)[0] for v in vectors]


def forward_and_sizes(rows: Rows, vector: Array, norm: Norm | None = None) -> list[Array]:
    """Compute `forward` of one vector, and the sizes ‖a‖₁ or ‖a‖₂² of the records.

    Coordinate j belongs to lane j mod 8. Each lane is summed in the order of coordinates, and lanes in pairs.

    Args:
        rows: records (g, n, d), or joined records.
        vector: vector of each agent, (b, d).
        norm: norm "l1" or "l2". None (the default) computes no sizes.

    Returns:
        The products, and with a norm the sizes, each (g, n) or (1, N).
    """
    flat, counts = _flat(rows)
    if _linear is not None:
        products, sizes = _linear.forward(flat, counts, vector, _NORM_CODES[norm])
    else:
        products = _sum_lanes(flat * vector.repeat(counts, axis=0))
        sizes = None if norm is None else _sum_lanes(np.abs(flat) if norm == "l1" else np.square(flat))
    shape = rows.shape[:2]
    return [part.reshape(shape) for part in (products, sizes) if part is not None]


def weighted_sums(coefficients: Array, rows: Rows) -> tuple[Array, Array]:
    """Compute Σ_k c_k a_k and Σ_k c_k of each agent, record after record. Records with c_k = 0 are ignored.

    Args:
        coefficients: coefficients c, (g, n) or (1, N).
        rows: records a, which may be infinite or NaN if c_k = 0.

    Returns:
        The sums of records, (b, d), and of coefficients, (b,), with bits that do not depend on other agents.
    """
    flat, counts = _flat(rows)
    c = np.ascontiguousarray(coefficients).reshape(-1)
    if _linear is not None:
        return _linear.weighted_sums(c, flat, counts)
    sums, totals = np.zeros((counts.size, flat.shape[1])), np.zeros(counts.size)
    ends = np.cumsum(counts)
    for agent, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
        used = start + np.flatnonzero(c[start:end])
        if used.size:
            # `sum` would add in another order.
            sums[agent] = np.add.accumulate(c[used, None] * flat[used])[-1] + 0.0
            totals[agent] = np.add.accumulate(c[used])[-1]
    return sums, totals


def _flat(rows: Rows) -> tuple[Array, NDArray[np.int64]]:
    """Return the records, (N, d), and the number of each agent, (b,)."""
    if isinstance(rows, Joined):
        return rows.rows[0], rows.counts
    g, n, d = rows.shape
    return np.ascontiguousarray(rows).reshape(g * n, d), np.full(g, n)


def _sum_lanes(terms: Array) -> Array:
    """Sum rows (N, d) in the order of `forward_and_sizes`."""
    n, d = terms.shape
    blocks_of_lanes = 1 + -(-d // _LANES)
    lanes = np.zeros((n, blocks_of_lanes * _LANES))
    lanes[:, _LANES : _LANES + d] = terms
    lane_sums = np.add.accumulate(lanes.reshape(n, blocks_of_lanes, _LANES), axis=1)[:, -1]
    pairs = lane_sums[:, :4] + lane_sums[:, 4:]
    halves = pairs[:, :2] + pairs[:, 2:]
    return np.asarray(halves[:, 0] + halves[:, 1])


def logistic_coefficients(margins: Array, along: Array | None = None) -> tuple[Array, Array]:
    """Compute −σ(−t) of the logistic loss, and σ(t)σ(−t)·along if `along` is given.

    Args:
        margins: margins t, (g, n), overwritten.
        along: factors (g, n), or None.

    Returns:
        The coefficients, (g, n) each. The second array is meaningless without `along`.

    Limits:
        Call it with floating-point warnings disabled.
    """
    # exp(t) = inf gives σ(−t) = 0, and inf·0 in the curvature, which a clip turns into its limit 0.
    exp_t = np.exp(margins, margins)
    slope = -1.0 / (exp_t + 1.0)
    if along is not None:
        exp_t *= slope
        exp_t *= slope
        exp_t *= along
    return slope, exp_t


def clipped_sums(
    coefficients: Sequence[Array], norms: Array, bounds: Sequence[float], rows: Rows, divisor: float | Array = 1.0
) -> Sequence[Array]:
    """Sum the records of each agent times clipped coefficients, Σ_k c_k a_k.

    Args:
        coefficients: coefficients of each sum, (g, n), overwritten.
        norms: norms of the records, (g, n).
        bounds: clip of each sum, as in `clip_coefficients`.
        rows: records, (g, n, d).
        divisor: divisor of the sums.

    Returns:
        The sums, (g, d) each, computed one agent at a time so that its bits do not depend on other agents.

    Limits:
        Call it with floating-point warnings disabled.
    """
    clipped = [clip_coefficients(term, norms, bound) for term, bound in zip(coefficients, bounds, strict=True)]
    return [weighted_sums(c, rows)[0] / divisor for c in clipped]


def with_intercept(features: Array, intercept: bool = True) -> Array:
    """Append a column of ones to features (N, d) if there is an intercept."""
    return np.column_stack([features, np.ones(len(features))]) if intercept else features


def named_rows(rows: Array, intercept: bool) -> dict[str, Array]:
    """Return "weight" (e, d) of rows (e, d (+ 1)), and "bias" (e,) if the last column is the intercept."""
    weights = {"weight": rows[:, : rows.shape[1] - intercept].copy()}
    return weights | ({"bias": rows[:, -1].copy()} if intercept else {})


def as_features(features: Array, labels: Array, n_features: int, intercept: bool) -> Array:
    """Validate features and copy them as a C-ordered float64 array.

    Args:
        features: features, (N, n_features).
        labels: labels, (N,).
        n_features: expected number of columns.
        intercept: whether a column of ones is appended.

    Returns:
        The features, (N, d).

    Raises:
        InputError: the shape is wrong, there are no records, or a value is not finite.
    """
    rows = np.ascontiguousarray(features, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != n_features or len(rows) == 0 or np.shape(labels) != (len(rows),):
        raise InputError(
            f"problem: records have the wrong shape (got features {rows.shape} and labels {np.shape(labels)}, "
            f"expected (n, {n_features}) and (n,) with n ≥ 1)."
        )
    bad = ~(np.isfinite(rows).all(axis=1) & np.isfinite(np.asarray(labels, dtype=np.float64)))
    if bad.any():
        raise InputError(
            f"problem: record {int(np.argmax(bad))} has a feature or label that is not finite. Fix: remove the record."
        )
    return with_intercept(rows, intercept)


def class_index(labels: Array, classes: Sequence[float]) -> NDArray[np.int64]:
    """Return indices (n,) of labels (n,) in the declared classes. Raises InputError for other labels."""
    match = np.asarray(labels)[:, None] == np.asarray(classes)
    unknown = ~match.any(axis=1)
    if unknown.any():
        row = int(np.argmax(unknown))
        raise InputError(
            f"problem: record {row} has a label that is not one of the declared classes {list(classes)}. Fix: "
            "declare the class, or remove the record."
        )
    return np.asarray(np.argmax(match, axis=1), dtype=np.int64)


def feature_norms(features: Array) -> tuple[Array, Array]:
    """Compute ℓ1 and ℓ2 norms of the rows, (N,), infinite above `LARGEST_NORM`.

    Rows are first scaled by their largest entry, because a sum of squares underflows to 0 below 1e-162, and a record
    with norm 0 is never clipped.
    """
    largest = np.abs(features).max(axis=1)
    scale = np.where(largest > 0, largest, 1.0)
    with np.errstate(over="ignore"):
        l2 = row_norms(features / scale[:, None], "l2") * scale
        l1 = row_norms(features, "l1")
        return np.where(l1 > LARGEST_NORM, np.inf, l1), np.where(l2 > LARGEST_NORM, np.inf, l2)


def norms_of(records: Any, clip: Clip) -> Array:
    """Return the norms (…, n) of the features in the norm of the clip."""
    norms: Array = records.l1 if clip.norm == "l1" else records.l2
    return norms


def _overwrite_by_factors(lengths: Array, bound: float) -> Array:
    """Overwrite lengths by min(1, bound/length), and by 0 below `LEAST_FACTOR` and for a clip that is too small."""
    np.divide(bound if bound >= SMALLEST_CLIP else 0.0, lengths, out=lengths)
    np.minimum(lengths, 1.0, out=lengths)
    np.putmask(lengths, lengths < LEAST_FACTOR, 0.0)
    return lengths


def clip_coefficients(coefficients: Array, norms: Array, bound: float, least: float = 0.0) -> Array:
    """Scale coefficients in place so that every |coefficient|·norm ≤ bound. Infinite and NaN contributions become zero.

    No branch is needed, because infinite values give NaN (bound/NaN, inf·0, or inf/inf if nothing is clipped), and NaN
    becomes 0.

    Args:
        coefficients: coefficients (…, n), overwritten.
        norms: norms of the vectors that they multiply, (…, n).
        bound: clipping norm. Below `SMALLEST_CLIP` all contributions become zero.
        least: |coefficient| below which the bound of a record decreases in proportion, by default 0.

    Limits:
        Call it with floating-point warnings disabled.
    """
    factors = np.abs(coefficients)
    if least:
        # A bound divided by u is a norm multiplied by u ≥ 1.
        np.maximum(factors, least, out=factors)
    factors *= norms
    coefficients *= _overwrite_by_factors(factors, bound)
    np.putmask(coefficients, coefficients != coefficients, 0.0)
    return coefficients


def clip_columns(coefficients: Array, norms: Array | float, norm: Norm, bound: float) -> Array:
    """Scale columns in place so that ‖column‖·norm ≤ bound. Infinite and NaN contributions become zero.

    Args:
        coefficients: coefficients (…, c, n), overwritten.
        norms: norms of the rows with which the columns form outer products, (…, n).
        norm: norm of the columns.
        bound: clipping norm. Below `SMALLEST_CLIP` all contributions become zero.

    Limits:
        Call it with floating-point warnings disabled.
    """
    factors = column_norms(coefficients, norm)
    factors *= norms
    coefficients *= _overwrite_by_factors(factors, bound)[..., None, :]
    np.putmask(coefficients, coefficients != coefficients, 0.0)
    return coefficients


def column_norms(columns: Array, norm: Norm) -> Array:
    """Compute the norms (…, n) of the columns of a (…, c, n) array, with floating-point warnings disabled."""
    sizes = np.abs(columns)
    if norm == "l1":
        return np.asarray(sizes.sum(axis=-2))
    # Scaled by the largest entry: squares may underflow, and a norm of 0 is never clipped.
    largest = sizes.max(axis=-2)
    return np.asarray(np.sqrt(np.square(sizes / largest[..., None, :]).sum(axis=-2)) * largest)


def bounded_columns(columns: Array, norms: Array, norm: Norm, bound: float) -> Array:
    """Scale columns to the norm min(‖column‖·norms, bound). Infinite and NaN columns become zero.

    Intended for outer products with rows of norm 1, so that no factor leaves the range of float64 for long rows.

    Args:
        columns: columns, (c, n).
        norms: norms of the rows, (n,).
        norm: norm of the columns.
        bound: clipping norm.

    Limits:
        Call it with floating-point warnings disabled.
    """
    sizes = column_norms(columns, norm)
    lengths = sizes * norms
    directions: Array = columns / sizes
    directions *= np.where(np.isfinite(lengths), np.minimum(lengths, bound), 0.0)
    np.putmask(directions, directions != directions, 0.0)
    return directions


def unit_rows(features: Array, norms: Array) -> Array:
    """Return a/‖a‖ of rows (n, d) with norms (n,), or zero for norms that are zero or infinite."""
    return features / np.where(norms > 0, norms, 1.0)[:, None]


def curved_sums(
    features: Array,
    norms: Array,
    curvature: Callable[[slice], Array],
    matrix: Array | None,
    clip: Clip,
    term_names: Collection[str],
) -> dict[str, Array]:
    """Average ∇²_yy l = M ⊗ aaᵀ and ∇²_yy l·Z, with each record's term clipped to clip.z.

    In either norm, M ⊗ aaᵀ has the norm ‖M‖·‖a‖², and ∇²_yy l·Z (the outer product of a and V = M (Z a)) has the norm
    ‖V‖·‖a‖, so no matrix of a record is formed. Rows have norm 1, so that no clipped coefficient leaves the range of
    float64.

    Args:
        features: rows a, (N, d).
        norms: norms of the rows in clip.norm, (N,).
        curvature: function that maps a block of records to M (c, c, n).
        matrix: matrix Z (c·d, p), or None if no product is needed.
        clip: clips of the run.
        term_names: subset of "lower_hessian" and "lower_hessian_product".

    Returns:
        The mean of each name, (c·d, c·d) or (c·d, p).
    """
    d, sums = features.shape[1], dict.fromkeys(term_names, np.zeros(()))
    with np.errstate(all="ignore"):
        for part in blocks(len(features), d if matrix is None else max(matrix.size // d, d)):
            a, size = features[part], norms[part]
            unit, m = unit_rows(a, size), curvature(part)
            c = len(m)
            if "lower_hessian_product" in term_names:
                # Σ_k clip(a_k ⊗ M_k (Z a_k)).
                stacked_matrix = np.asarray(matrix).reshape(c, d, -1).transpose(1, 0, 2).reshape(d, -1)
                along = m.transpose(2, 0, 1) @ (a @ stacked_matrix).reshape(len(a), c, -1)
                rows = bounded_columns(along.reshape(len(a), -1).T, size, clip.norm, clip.z).T
                total = (unit.T @ rows).reshape(d, c, -1).transpose(1, 0, 2).reshape(c * d, -1)
                sums["lower_hessian_product"] = sums["lower_hessian_product"] + total
            if "lower_hessian" in term_names:
                # Σ_k clip(M_k ⊗ a_k a_kᵀ).
                m = bounded_columns(m.reshape(c * c, -1), np.square(size), clip.norm, clip.z).reshape(c, c, -1)
                whole = np.empty((c, d, c, d))
                for r, k in zip(*np.tril_indices(c), strict=True):
                    whole[r, :, k] = (unit.T * m[r, k]) @ unit
                    whole[k, :, r] = whole[r, :, k]
                sums["lower_hessian"] = sums["lower_hessian"] + whole.reshape(c * d, c * d)
        return {name: total / len(features) for name, total in sums.items()}
