"""The table [run] of a scenario: where it runs, and what is evaluated and kept."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from decentral_dp.config.table_types import Count, Seconds, Table, optional


class RecoveryTable(Table):
    """How lost actors are noticed and started again. What they release again are the same draws."""

    heartbeat: Seconds = Field(
        default=1.0, description="Seconds after which actors are asked whether they are there. Read by ray."
    )
    save_every: Seconds = Field(
        default=5.0,
        description="Seconds after which the driver keeps the states that actors would go on from. Read by ray.",
    )
    restarts: Annotated[int, Field(ge=0, le=10**6)] = Field(
        default=3, description="Starts after a loss, without a round more done, before a run gives up. Read by ray."
    )
    pause: Seconds = Field(
        default=0.25, description="Seconds before the first of these starts, doubled each time. Read by ray."
    )
    longest_pause: Seconds = Field(default=5.0, description="The most that it is doubled to, in seconds. Read by ray.")


class RunTable(Table):
    """Where it runs and what is evaluated."""

    engine: Literal["local", "ray"] = Field(
        default="local",
        description='"local": one process; "ray": agents in actors of a Ray cluster. Both release the same values.',
    )
    address: str | None = optional(
        'A Ray cluster, "auto" or "host:port"; one is started here if left out. Read by ray.'
    )
    place: Annotated[str, Field(min_length=1, max_length=100)] | None = optional(
        'Resource of the machine that an agent\'s actor is to be on, such as "site-{agent}". Read by ray.'
    )
    recovery: RecoveryTable | None = optional(
        "What happens where an actor is lost; its defaults if left out. Read by ray."
    )
    agents_per_actor: Count | Literal["auto"] = Field(
        default=1,
        description=(
            'Agents of one actor; "auto": so many that every core of the cluster has one actor, or 1 where `place` is '
            "given. Read by ray."
        ),
    )
    blocks: Count = Field(default=1, description="Blocks that agents are computed in. Read by local.")
    evaluate_every: Count = Field(
        default=10, description="Rounds from one evaluation to the next; the first and the last are always evaluated."
    )
    average: Count = Field(
        default=1,
        description=(
            "The mean of the last so many released values is evaluated and published. Read by gossip algorithms."
        ),
    )
    keep_releases: bool = Field(
        default=False,
        description="Whether released values are written, as releases.parquet. Read where a run has a folder.",
    )
    agent_scores: bool = Field(
        default=False,
        description=(
            "Whether agents send scores of their own records, which nothing protects; else such scores are left out. "
            "Read beside problem.manifest."
        ),
    )
    log: Annotated[list[Literal["tensorboard", "mlflow"]], Field(max_length=2)] | None = optional(
        'Where progress is written besides: "tensorboard" or "mlflow", each an extra. Read where a run has a folder.'
    )
    device: Literal["cpu", "cuda"] = Field(
        default="cpu",
        description=(
            'Where torch computes: "cpu" or "cuda". Read by from_losses and by models of minimax problems; clips of '
            "bilevel problems and all noise stay on the processor."
        ),
    )

    @property
    def agents_per_block(self) -> int | None:
        """Agents of one actor; None where `blocks` says how they are hosted."""
        return self.agents_per_actor if self.engine == "ray" and self.agents_per_actor != "auto" else None
