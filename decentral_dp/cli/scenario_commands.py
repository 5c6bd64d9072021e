"""Commands on what scenarios are made of: list, show, new, shards, schema. Heavy imports wait."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from decentral_dp.cli.arguments import Name, Set


class Listing(StrEnum):
    """What `list` can list."""

    algorithms = "algorithms"
    problems = "problems"
    topologies = "topologies"
    scenarios = "scenarios"
    studies = "studies"
    experiments = "experiments"
    data = "data"
    weights = "weights"
    mechanisms = "mechanisms"
    partitions = "partitions"


def list_(what: Annotated[Listing | None, typer.Argument(help="Leave out to list everything.")] = None) -> None:
    """List what a scenario can name."""
    from decentral_dp.cli.catalogue import print_list

    print_list([what.value] if what else [w.value for w in Listing])


Shown = Annotated[
    str,
    typer.Argument(
        metavar="NAME_OR_FILE", help='A name of "list", a file, file.py:Name, a key: privacy.share, or measures.'
    ),
]


def show(name: Shown) -> None:
    """Print a scenario, or what a registered algorithm, problem, topology, weight rule, data set or a key is.

    `show measures` lists what a study can measure.
    """
    from decentral_dp.cli.catalogue import print_entry

    print_entry(name)


def new(
    out: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The scenario to write; named for the CSV file by default.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Your records: numbers, with one header line.")] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The label column of the CSV file.")] = None,
    classes: Annotated[str, typer.Option(help="All labels that there may be, e.g. no,yes.")] = "",
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="COLUMN=LOW:HIGH", help="Public range of a column; repeatable."),
    ] = None,
    label_range: Annotated[
        str | None, typer.Option(metavar="LOW:HIGH", help="Public range of a label that is a number to predict.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Bundled records instead of a CSV file.")] = None,
    problem: Annotated[str | None, typer.Option(metavar="KIND", help="By default one that fits the algorithm.")] = None,
    algorithm: Annotated[str | None, typer.Option(metavar="KIND", help="ldp_dsbo by default.")] = None,
    topology: Annotated[str | None, typer.Option(metavar="KIND", help="A generator of graphs, such as ring.")] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Target ε of every agent, for the whole run.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of that.")] = None,
    out_option: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The scenario to write, as the argument FILE.")
    ] = None,
) -> None:
    """Write a commented scenario that plan and run accept; on a terminal what is not given is asked for.

    Of a CSV file only the names of its columns are read. Labels and ranges are public facts that you declare: taken
    from the records they would tell of them. What you do not give is a placeholder, and said.
    """
    from decentral_dp.cli import new_command as inside
    from decentral_dp.cli.new_text import parsed_classes, parsed_ends, parsed_ranges

    out = inside.one_file(out, out_option)
    features = [] if csv is None else inside.features_of(inside.columns_of(csv), label)
    wishes = inside.Wishes(
        csv=csv,
        data=data,
        label=label,
        classes=parsed_classes(classes),
        ranges=parsed_ranges(ranges or [], features),
        label_range=None if label_range is None else parsed_ends(label_range, "--label-range"),
        agents=agents,
        topology=topology,
        problem=problem,
        algorithm=algorithm,
        rounds=rounds,
        epsilon=epsilon,
        delta=delta,
    )
    if out is not None:
        inside.require_new(out)
    if sys.stdin.isatty():
        from decentral_dp.cli.new_questions import asked

        wishes = asked(wishes)
    inside.carry_out(out, wishes)


def shards(
    scenario: Name,
    out: Annotated[Path, typer.Option(help="A new folder, for a file of each agent and a public manifest.")],
    override: Set = None,
) -> None:
    """Write a gossip scenario's records as its agents would have them: a file each, and a public manifest.

    A run of the scenario beside them reads every file where its agent runs, and the driver reads the manifest alone.
    """
    from decentral_dp.cli.shards_command import carry_out

    carry_out(scenario, out, override or [])


def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    import json

    from decentral_dp.config.schema import Scenario

    typer.echo(json.dumps(Scenario.model_json_schema(), indent=2))
