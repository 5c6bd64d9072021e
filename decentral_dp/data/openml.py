"""Data sets of OpenML, which scikit-learn downloads, verifies and caches."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import NamedTuple

from decentral_dp.data.dataset import Dataset
from decentral_dp.data.tables import DeclaredColumns, frame_dataset
from decentral_dp.errors import InputError, quoted

PREFIX = "openml:"
_NAME = re.compile(r"openml:([A-Za-z0-9][\w.()-]{0,99})")


class Images(NamedTuple):
    """Public facts of images: (height, width, channels), and how many records at the end are for testing."""

    image: tuple[int, int, int]
    own_test: int


# Name on OpenML → facts. All have the classes 0 to 9, and pixels from 0 to 255.
IMAGES = {
    "mnist_784": Images((28, 28, 1), 10_000),
    "Fashion-MNIST": Images((28, 28, 1), 10_000),
    "CIFAR_10": Images((32, 32, 3), 10_000),
}
# Names by which these are known elsewhere.
USUAL_NAMES = {"mnist": "mnist_784", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR_10"}


def load_openml(data: str, declared: DeclaredColumns) -> Dataset:
    """Load a data set of OpenML, from the cache of scikit-learn or the network.

    Args:
        data: "openml:NAME", the first version of that name, or "openml:NUMBER", one version.
        declared: the facts that the scenario declares about its columns; without a label, the one that OpenML names.

    Returns:
        The records. Those of `IMAGES` are images, and the last ones are held out.

    Raises:
        InputError: no such data set, no network, or columns that are not numbers.
    """
    name = _NAME.fullmatch(data)
    if name is None:
        raise InputError(f'problem.data: got {quoted(data)}, expected a name or a number, as in "openml:mnist_784".')
    chosen = {"data_id": int(name[1])} if name[1].isdecimal() else {"name": name[1], "version": 1}
    # Slow to import.
    from sklearn.datasets import fetch_openml

    try:
        with warnings.catch_warnings():
            # What it warns of while it tries again is in the refusal.
            warnings.simplefilter("ignore", UserWarning)
            fetched = fetch_openml(**chosen, as_frame=True, n_retries=1)
    except (OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "reason", None) or error).split())[:200]
        raise InputError(
            f"problem.data: {data} is not in scikit-learn's cache, and could not be downloaded ({reason}). Fix: run "
            "once with a network, copy the folder that SCIKIT_LEARN_DATA names, or save the records as CSV or NPZ."
        ) from None
    if declared.label is None and len(fetched.target_names) != 1:
        raise InputError(f"problem.label: {data} names {len(fetched.target_names)} label columns; name one.")
    facts = IMAGES.get(name[1])
    classes = tuple(range(10)) if facts is not None and declared.classes is None else declared.classes
    declared = declared._replace(label=declared.label or str(fetched.target_names[0]), classes=classes)
    dataset = frame_dataset(fetched.frame.set_axis(fetched.frame.columns.map(str), axis=1), data, declared)
    if facts is None:
        return dataset
    return replace(dataset, image=facts.image, bounds=(0.0, 255.0), own_test=facts.own_test)
