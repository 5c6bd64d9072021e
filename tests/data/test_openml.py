"""Data sets of OpenML: versions, public facts of images, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from decentral_dp.data import Dataset, load_dataset, make_shards
from decentral_dp.data.loaders import IMAGES
from decentral_dp.data.scaling import scale
from decentral_dp.errors import InputError
from tests.support.fake_openml import offer, offer_images


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [True, False], "kind": ["x", "y"]})
    return offer(monkeypatch, frame, ("kind",))


def loaded(data: str, **more: Any) -> Dataset:
    return load_dataset(data, n_agents=2, seed=0, **more)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ("openml:61", {"data_id": 61}),
        ("openml:iris", {"name": "iris", "version": 1}),
        ("openml:Fashion-MNIST", {"name": "Fashion-MNIST", "version": 1}),
    ],
)
def test_a_number_or_a_name_is_one_version_of_one_set(data: str, wanted: dict[str, Any], asked: dict[str, Any]) -> None:
    if data.endswith("MNIST"):
        asked["error"] = OSError("no route")
        with pytest.raises(InputError, match="no route"):
            loaded(data)
    else:
        found = loaded(data, classes=["x", "y"])
        assert (found.features.tolist(), found.labels.tolist()) == ([[1.0, 1.0], [2.0, 0.0]], [0, 1])
        assert (found.feature_names, found.source) == (("a", "b"), data)
    assert {key: asked["given"][key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("data", "change", "options", "said"),
    [
        ("openml:", {}, {}, r"expected a name or a number"),
        ("openml:61", {}, {"label": "a", "classes": [1, 2]}, "row 1, column 3 does not hold a finite number"),
        ("openml:61", {"target_names": ()}, {}, "has 0 label columns"),
        ("openml:61", {"error": OSError("no route")}, {}, r"could not be downloaded \(no route\)"),
        (
            "openml:61",
            {"frame": pd.DataFrame({"a": [1.0, 2.0], "kind": ["x", None]})},
            {},
            "row 2, column 'kind' does not hold a value",
        ),
    ],
)
def test_sets_that_cannot_be_used_are_refused(
    data: str, change: dict[str, Any], options: dict[str, Any], said: str, asked: dict[str, Any]
) -> None:
    asked |= change
    with pytest.raises(InputError, match=said):
        loaded(data, **{"classes": ["x", "y"], **options})


@pytest.mark.parametrize("name", ["mnist_784", "CIFAR_10"])
def test_pictures_have_public_facts_and_a_test_set_of_their_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.arange(40) % 10
    pixels = offer_images(monkeypatch, name, labels, own_test=10)
    data = loaded(f"openml:{name}")
    assert (data.classes, data.image, data.own_test) == (tuple(range(10)), IMAGES[name], 10)
    assert np.array_equal(data.labels, labels)
    assert np.array_equal(data.features, pixels)
    assert np.abs(scale(data, "public_ranges").features - (2 * pixels / 255 - 1)).max() < 1e-15
    shards = make_shards(data, 3, seed=1, validation=0.4)
    assert shards.test.tolist() == list(range(30, 40))
    with pytest.raises(InputError, match=r"problem\.test: the data have a test set"):
        make_shards(data, 3, seed=1, test=0.2)
