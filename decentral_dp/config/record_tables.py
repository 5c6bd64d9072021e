"""Tables of a scenario's [problem] that say which records there are, and which agent holds them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from decentral_dp.config.table_types import Count, NonNegative, Positive, Share, Table, optional, require_keys


class Partition(Table):
    """How records are dealt to agents: iid, by_class (share), dirichlet (alpha), or column (name)."""

    kind: Literal["iid", "by_class", "dirichlet", "column"] = Field(
        description=(
            'The rule: "iid" at random; "by_class" (share), "dirichlet" (alpha), both by labels; "column" '
            "(name), as the data say."
        )
    )
    share: Annotated[float, Field(ge=0, le=1)] | None = optional(
        "Of by_class: the share of a class that goes to its home agent, from 0 to 1; the rest is dealt evenly."
    )
    alpha: Positive | None = optional(
        "Of dirichlet: concentration, from 1e-6 to 1e6; a small one gives each agent few classes."
    )
    name: str | None = optional(
        "Of column: the column of the data file with the agent of each record, numbered from 0."
    )

    @model_validator(mode="after")
    def _needs(self) -> Partition:
        needed = {"by_class": ("share",), "dirichlet": ("alpha",), "column": ("name",)}.get(self.kind, ())
        require_keys(self, " partition", needed, needed, ("share", "alpha", "name"))
        return self


class Column(Table):
    """A column of the data file."""

    column: str = Field(description="Name of a column of the data file.")


class Synthetic(Table):
    """Sizes of records that are made up."""

    dimension: Count | None = optional("Features of each record; 200 if left out. Read by the synthetic families.")
    records: Count | None = optional(
        "Records per agent, train and validation together (200 if left out); of environments trajectories per agent."
    )
    test_records: Count | None = optional("Held-out records in all; 2000 if left out. Of environments trajectories.")
    separation: NonNegative | None = optional(
        "Distance of the two class means, in standard deviations; 2 if left out. Read by synthetic_classification."
    )
    relevant: Count | None = optional(
        "Features in which the class means differ, chosen at random; all if left out. Read by synthetic_classification."
    )
    steps: Count | None = optional("Steps after which a trajectory is cut off. Read by environments.")


class ImageFiles(Table):
    """Where the files of a collection of images are: a folder, or each by path or URL."""

    folder: str | None = optional("Folder with the files under their usual names.")
    images: str | None = optional("Train images: a path or URL. Read by mnist and fashion_mnist.")
    labels: str | None = optional("Train labels: a path or URL. Read by mnist and fashion_mnist.")
    test_images: str | None = optional("Test images: a path or URL. Read by mnist and fashion_mnist.")
    test_labels: str | None = optional("Test labels: a path or URL. Read by mnist and fashion_mnist.")
    archive: str | None = optional("The binary archive: a path or URL. Read by cifar10.")
    attributes: str | None = optional("Path of celeba's list of attributes.")
    features: str | None = optional("Path of a file with features of your own for the photographs of celeba.")
    partition: str | None = optional("Path of celeba's list of train, validation and test photographs.")
    published: Literal[True] | None = optional(
        "true: the files that the publisher of mnist, fashion_mnist or cifar10 offers, fetched once and verified by "
        "SHA-256."
    )
    sha256: dict[str, str] = Field(
        default={},
        description=(
            "Key of this table, or file name of a folder → SHA-256 that the file must have; required for a URL."
        ),
    )


class ConstructionTable(Table):
    """Other records made of the data's own, by their labels, after test records are held out.

    One of share, keep and tail at most.
    """

    positive: list[int | float | str] | None = optional("Labels that become class 1; the others become class 0.")
    share: Share | None = optional(
        "So many positive train records are kept that they are this share of all train records."
    )
    keep: dict[str, Count] | None = optional(
        "Class → how many of its train records are kept, the last ones; of other classes all."
    )
    tail: Share | None = optional("Train records of the k-th of K classes, from 0, are kept to a share tail^(k/(K−1)).")
