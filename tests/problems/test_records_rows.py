"""The contribution of a record depends on the record and its index only: other records change no bit of it.

Records without a contribution, with any content, take one index of a batch in turn. Sums over the batch then
have to be equal to the bit. Features go up to 1e300; where labels are numbers, coefficients are aᵀy − b ≈ 0, so that a
bit would be a sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.models import linear_terms
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import MATRICES, TERMS
from tests.support.bilevel_cases import KINDS, problem_of

CLIP = Clip("l2", x=0.7, y=0.9, z=0.4)


def silent(problem: Any, records: Any, place: int, ask: Any) -> list[Any]:
    """The same records with others in this place that contribute nothing to any term, and are very different."""
    rng, width, out = np.random.default_rng(8), records[0].shape[1], []
    far = 1e300 * rng.choice([-1.0, 1.0], size=(3, width))
    far[1], far[2, ::2] = far[1] * rng.uniform(0.1, 1.0, width), 0.0
    # Non-finite features are refused where features are multiplied directly.
    nan = np.where(np.arange(width) == 0, np.nan, far[0])
    for row in (np.zeros(width), *far, *([] if "l1" in records._fields else [nan, np.full(width, np.nan)])):
        kept = [a.copy() for a in records]
        kept[0][place] = row
        # Norms next to the features.
        for name, order in (("l1", 1), ("l2", 2)):
            if name in records._fields:
                with np.errstate(all="ignore"):
                    size = np.linalg.norm(row, order)
                kept[records._fields.index(name)][place] = size if size < linear_terms.LARGEST_NORM else np.inf
        one = type(records)(*(a[place : place + 1] for a in kept))
        if all(not np.any(value) for value in ask(one).values()):
            out.append(type(records)(*kept))
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_in_its_place_moves_no_bit_of_another(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    slow = kind == "from_losses" or kind.startswith("meta_learning")
    for seed in range(3 if slow else 12):
        rng = np.random.default_rng([seed, len(kind)])
        d, n = (8, 5) if slow else (int(rng.choice([3, 8, 12, 17])), int(rng.choice([2, 3, 5, 8, 33])))
        problem, classes = problem_of(kind, d)
        width = 16 if kind.endswith("images") else d
        # Parts of a batch as well as whole ones.
        monkeypatch.setattr(linear_terms, "BLOCK", 4 * d if seed % 3 == 0 else 1 << 18)
        features = rng.normal(size=(n, width)) * 10.0 ** rng.integers(-2, 3, size=(n, 1))
        start = getattr(problem, "start", {}).get("x", 0.0)
        x, y, z = start + 0.3 * rng.normal(size=problem.p), *rng.normal(size=(2, problem.q))
        labels = rng.normal(size=n) if classes is None else rng.choice(classes, size=n)
        if classes is None:
            # A coefficient that is nothing but rounding.
            features *= 1.0 if kind in ("from_losses", "recordwise") else 1e17
            labels = features @ y[:width]
        records = problem.prepare(features, labels, "l2")
        records = problem.place_records(records, 0) if hasattr(problem, "place_records") else records

        def ask(some: Any, at: Any = (x, y, z), problem: Any = problem) -> dict[str, Any]:
            terms = problem.terms(*at, some, some, CLIP, TERMS)._asdict()
            matrix = np.outer(at[2], at[0])
            whole = problem.matrices(at[0], at[1], matrix, some, CLIP, tuple(MATRICES)) if problem.p < 40 else {}
            return {name: value for name, value in {**terms, **whole}.items() if value is not None}

        with np.errstate(all="ignore"):
            data_sets = [ask(some) for some in silent(problem, records, int(rng.integers(n)), ask)]
        found = max(found, len(data_sets))
        for other in data_sets[1:]:
            for name, value in data_sets[0].items():
                assert np.array_equal(value, other[name]), (name, n, d)
    assert found > 1
