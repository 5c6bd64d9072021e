"""Replace scikit-learn's fetch_openml by a version without network access."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import fetch_openml as fetch_openml_of_sklearn
from sklearn.utils._param_validation import validate_parameter_constraints

from decentral_dp.data import loaders


def offer(monkeypatch: pytest.MonkeyPatch, frame: pd.DataFrame, target_names: tuple[str, ...]) -> dict[str, Any]:
    """Let every download give this table. In the result: the arguments of the last one, and changes that tests make."""
    asked: dict[str, Any] = {}
    constraints = fetch_openml_of_sklearn._skl_parameter_constraints

    def fetch_openml(**given: Any) -> Any:
        # scikit-learn rejects wrong arguments, so this replacement must reject them too.
        validate_parameter_constraints({k: constraints[k] for k in given}, given, caller_name="fetch_openml")
        asked["given"] = given
        if "error" in asked:
            raise asked["error"]
        return SimpleNamespace(frame=asked.get("frame", frame), target_names=asked.get("target_names", target_names))

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    return asked


def offer_images(monkeypatch: pytest.MonkeyPatch, name: str, labels: np.ndarray, own_test: int) -> np.ndarray:
    """Let a download return images with these labels, the last `own_test` for testing; return their pixels, (n, d)."""
    monkeypatch.setattr(loaders, "TEST_IMAGES", own_test)
    pixels = np.random.default_rng(7).integers(0, 256, (labels.size, int(np.prod(loaders.IMAGES[name]))))
    frame = pd.DataFrame(pixels, columns=[f"pixel{k + 1}" for k in range(pixels.shape[1])])
    frame["class"] = pd.Categorical(labels.astype(str))
    offer(monkeypatch, frame, ("class",))
    return pixels
