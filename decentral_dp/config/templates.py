"""Example tables [algorithm] and [privacy] for an algorithm, with every key that it requires."""

from __future__ import annotations

import tomllib
from typing import cast

from decentral_dp.algorithms import Entry
from decentral_dp.algorithms.options import Option
from decentral_dp.algorithms.protocol import ONE_LEVEL, Algorithm, StepSize
from decentral_dp.data import ENVIRONMENTS
from decentral_dp.problems import TYPES
from decentral_dp.problems.protocol import CLIP_OF_TERM


def algorithm_tables(entry: Entry) -> str:
    """Write the tables [algorithm] and [privacy] for a certified run of an algorithm."""
    if entry.trusts_coordinator:
        return _trusted_tables(entry)
    required_options = [option for option in entry.keys if option.required]
    lines = ["[algorithm]", f'kind = "{entry.kind}"', "rounds = 100", *(o.line for o in required_options)]
    terms = channel_terms(entry)
    clip_channels = {CLIP_OF_TERM[term] for term in terms}
    notes = TYPES[entry.solves].clip_notes
    clips = [f"clip.{family} = 1.0{notes.get(family, '')}" for family in sorted(clip_channels)]
    if terms <= set(ONE_LEVEL):
        clips = ["clip = 1.0"]
    privacy = ["[privacy]", 'mechanism = "gaussian"', "epsilon = 4.0", "delta = 1e-5", *clips]
    return "\n".join([*lines, "", *privacy])


def _trusted_tables(entry: Entry) -> str:
    def example_text(option: Option) -> str:
        return f"{option.key} = {entry.example.get(option.key, option.example)}"

    problem = entry.example.get("problem", '"logistic_regularisation"')
    data = entry.example.get("data", '"breast_cancer"')
    lines = ["[problem]", f"kind = {problem}", f"data = {data}"]
    is_environment = data.strip('"') in ENVIRONMENTS
    lines += [] if is_environment else ['scale = "public_ranges"', 'normalise = "l2"']
    lines += _several(entry, "problem_keys")
    # Only the number of agents is used.
    lines += ["", "[topology]", 'kind = "star"', "agents = 10", ""]
    lines += ["[algorithm]", f'kind = "{entry.kind}"', f"rounds = {entry.example.get('rounds', '20')}"]
    lines += [example_text(option) for option in entry.keys if option.required]
    # Defaults follow from constants on a bounded domain.
    fields = ("domain", *entry.example)
    lines += [f"{'' if o.key in fields else '# '}{example_text(o)}" for o in entry.keys if not o.required]
    privacy = [f"guarantee = {entry.example['guarantee']}"] if "guarantee" in entry.example else []
    return "\n".join([*lines, "", "[privacy]", *privacy, "epsilon = 1.0", "delta = 1e-5", *_several(entry, "clip")])


def _several(entry: Entry, key: str) -> list[str]:
    """Return the lines of an example entry."""
    return entry.example[key].splitlines() if key in entry.example else []


def channel_terms(entry: Entry) -> set[str]:
    """Return the terms that a gossip algorithm releases."""
    required_options = [option for option in entry.keys if option.required]
    examples = {o.key: tomllib.loads(o.line)[o.key] for o in required_options}
    values = {o.key: StepSize(1.0) if o.type is StepSize else examples[o.key] for o in required_options}
    algorithm = cast(Algorithm, entry.build(values, {}, "certified"))
    return {term for channel in algorithm.releases(1, 1).values() for term in channel.terms}
