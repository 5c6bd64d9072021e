"""Algorithms from outside the package: which setting a class is for, by what it implements, and its entry.

A gossip algorithm has `channels`; a coordinator's has `QUERIES`, or `queries`; it is for minimax problems where it says
`solves = "minimax"`, or asks for terms that only those have. Each states what it releases (`declared`), or plans it
itself (`protocol.Algorithm`, `coordinator_protocol.Coordinated`).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any

from decentral_dp.algorithms.coordinator_protocol import Coordinated
from decentral_dp.algorithms.declared import (
    MINIMAX_TERMS,
    DeclaredCoordinator,
    DeclaredGossip,
    stated_terms,
    unknown_term,
)
from decentral_dp.algorithms.entry import Entry, Setting
from decentral_dp.algorithms.options import options_of
from decentral_dp.algorithms.protocol import Algorithm
from decentral_dp.algorithms.references import AUC
from decentral_dp.errors import InputError, quoted
from decentral_dp.files.source_lines import place_in_class, place_of
from decentral_dp.problems.protocol import TERMS
from decentral_dp.user_code import untyped_options

# What an algorithm that plans its releases itself has to have, beside its channels or queries.
_GOSSIP = ("init", "step", "releases", "planned_releases", "releases_per_round", "central", "protocol")
_COORDINATED = (
    *("init", "step", "published", "releases_per_round", "protocol", "needs_constants", "needs_records"),
    *("resolve_defaults", "free_channels", "planned_releases", "printed_calibration"),
)
# What the protocols that it may inherit from leave to it.
_OPEN = ("init", "step", "releases", "planned_releases", "resolve_defaults")


def entry_of_class(algorithm: Any, kind: str, origin: str, source: str = "") -> Entry:
    """The entry of a class from outside.

    Args:
        algorithm: the class, a dataclass.
        kind: as the scenario names it.
        origin: where it comes from, for notes.
        source: what the noise root hashes beside the scenario and the files that it names.

    Raises:
        InputError: for what is no algorithm.
    """
    if not isinstance(algorithm, type):
        raise InputError(
            f"algorithm.kind: {kind} is no class{place_of(algorithm)}. Name a frozen dataclass with init and step."
        )
    try:
        options_of(algorithm)
    except InputError as error:
        raise InputError(f"algorithm.kind: {kind}: {error}") from None
    _check_typed(algorithm, kind)
    trusted = hasattr(algorithm, "QUERIES") or hasattr(algorithm, "queries")
    if not trusted and not hasattr(algorithm, "channels"):
        raise InputError(
            f"algorithm.kind: {kind} is no algorithm{place_in_class(algorithm, '')}: a gossip algorithm states its "
            "channels, and a coordinator's its "
            'QUERIES. Add one of them, for example channels = ("x", "y").'
        )
    plans = hasattr(algorithm, "planned_releases")
    _check_statements(algorithm, kind)
    _check_complete(algorithm, kind, trusted, plans)
    if not (trusted or plans):
        _check_declared_gossip(algorithm, kind)
    if trusted and not plans:
        _check_shares(algorithm, kind)
    setting = _setting(algorithm, trusted)
    return Entry(
        kind,
        algorithm,
        (),
        setting=setting,
        origin=origin,
        source=source,
        example=AUC | {"clip": "clip.x = 1.0\nclip.y = 1.0"} if setting == "coordinator_minimax" else {},
        complete=None if plans else DeclaredCoordinator if trusted else DeclaredGossip,
    )


def _check_typed(algorithm: type, kind: str) -> None:
    """Refuse what looks like an option and is none, for want of a type. Raises InputError."""
    known = {"channels", "queries", "solves", *dir(Algorithm), *dir(Coordinated)}
    untyped = next((name for name in untyped_options(algorithm) if name not in known), None)
    if untyped is not None:
        raise InputError(
            f"algorithm.kind: {kind} sets {untyped} without a type{place_in_class(algorithm, untyped)}, so it is no "
            "option. Write for example "
            f"{untyped}: float = …, or in capitals where it is none."
        )


def _check_statements(algorithm: type, kind: str) -> None:
    """Refuse what a class states of its releases in another form than it is read. Raises InputError."""
    for name, wanted, fits in _STATEMENTS:
        found = getattr(algorithm, name, None)
        # What an object works out for itself is known of the object alone.
        if found is None or isinstance(found, property) or fits(found):
            continue
        place = place_in_class(algorithm, name)
        raise InputError(f"algorithm.kind: {name} of {kind} is {found!r}{place}; wanted {wanted}. Mend it.")


def _is_names(found: Any) -> bool:
    return isinstance(found, tuple | list) and len(found) > 0 and all(isinstance(name, str) for name in found)


def _is_releases(found: Any) -> bool:
    return isinstance(found, Mapping) and len(found) > 0 and all(isinstance(terms, Mapping) for terms in found.values())


# What a class states → what it must be, in words, and whether it is that.
_STATEMENTS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("channels", 'names of variables, for example ("x", "y")', _is_names),
    (
        "RELEASES",
        'channel → term → factor of what each release carries, for example {"y": {"lower_grad_y": "y"}}',
        _is_releases,
    ),
    ("QUERIES", 'terms that are asked for, for example ("grad_x", "grad_y")', _is_names),
    (
        "SHARES",
        'term → its share of a round\'s budget, for example {"grad_x": 0.5, "grad_y": 0.5}',
        lambda found: isinstance(found, Mapping),
    ),
    ("solves", '"bilevel" or "minimax"', lambda found: found in ("bilevel", "minimax")),
    (
        "releases_per_round",
        "a whole number of at least 1",
        lambda found: isinstance(found, int) and not isinstance(found, bool) and found >= 1,
    ),
)


def _check_complete(algorithm: type, kind: str, trusted: bool, plans: bool) -> None:
    """Refuse a class that lacks what it must have, or that can be changed while it runs. Raises InputError."""
    if not getattr(getattr(algorithm, "__dataclass_params__", None), "frozen", True):
        raise InputError(
            f"algorithm.kind: {kind} is a dataclass that is not frozen{place_in_class(algorithm, '')}, so that a round "
            "could change its options after they were priced. Write @dataclass(frozen=True)."
        )
    if plans:
        needed: tuple[str, ...] = _COORDINATED if trusted else _GOSSIP
    else:
        needed = ("init", "step") if trusted else ("init", "step", "RELEASES")
    fields = getattr(algorithm, "__dataclass_fields__", {})
    missing = [name for name in needed if not _states(algorithm, name) and name not in fields]
    if missing:
        what = "a coordinator's algorithm" if trusted else "a gossip algorithm"
        why = " that plans its releases itself" if plans else ""
        place = place_in_class(algorithm, missing[0])
        raise InputError(f"algorithm.kind: {kind} lacks {', '.join(missing)}, which {what}{why} has{place}. Add it.")
    if not plans and (term := unknown_term(algorithm)) is not None:
        raise InputError(
            f"algorithm.kind: {kind} states the term {term!r}, and no problem has it"
            f"{place_in_class(algorithm, 'QUERIES' if trusted else 'RELEASES', term)}; {_terms(term, trusted)}."
        )


def _check_declared_gossip(algorithm: type, kind: str) -> None:
    """Refuse channels that metrics could not do without, and a number of exchanges that is not read."""
    channels = getattr(algorithm, "channels", ())
    missing = [c for c in ("x", "y") if isinstance(channels, tuple | list) and c not in channels]
    if missing:
        raise InputError(
            f"algorithm.kind: channels of {kind} lack {missing[0]}{place_in_class(algorithm, 'channels')}; metrics "
            "read x and y, so both are among them. Add it: a variable that is not in RELEASES is sent at the end alone."
        )
    if getattr(algorithm, "releases_per_round", 1) != 1:
        raise InputError(
            f"algorithm.kind: {kind} states releases_per_round{place_in_class(algorithm, 'releases_per_round')}, and a "
            "gossip algorithm with RELEASES makes one exchange a round. Send all channels in one Gossip, or state "
            "releases and planned_releases in the place of RELEASES."
        )


def _check_shares(algorithm: Any, kind: str) -> None:
    """Refuse a share of a term that is not asked for, one that is no positive number, and one that is not stated.

    Raises:
        InputError: for any of these.
    """
    shares = getattr(algorithm, "SHARES", {})
    for term, share in shares.items():
        place = place_in_class(algorithm, "SHARES", term)
        if term not in algorithm.QUERIES:
            near = difflib.get_close_matches(term, algorithm.QUERIES, n=1, cutoff=0.5)
            raise InputError(
                f"algorithm.kind: SHARES of {kind} names {quoted(term)}{place}, which QUERIES does not; "
                f"{f'did you mean {near[0]}, of ' if near else 'take some of '}{', '.join(algorithm.QUERIES)}."
            )
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < math.inf:
            raise InputError(
                f"algorithm.kind: SHARES of {kind} gives {term} {share!r}{place}, wanted a number above 0. Shares are "
                "in proportion to each other."
            )
    unsaid = [term for term in algorithm.QUERIES if shares and term not in shares]
    if unsaid:
        raise InputError(
            f"algorithm.kind: SHARES of {kind} gives {unsaid[0]} none{place_in_class(algorithm, 'SHARES')}; wanted one "
            "for every term of QUERIES. Add it, or leave out SHARES for equal parts."
        )


def _terms(term: str, trusted: bool) -> str:
    """The term that one comes nearest to, and all that there are."""
    known = (*TERMS, *MINIMAX_TERMS) if trusted else TERMS
    near = difflib.get_close_matches(term, known, n=1, cutoff=0.5)
    return f"{f'did you mean {near[0]}, of ' if near else 'take one of '}{', '.join(known)}"


def _states(algorithm: type, name: str) -> bool:
    """Whether a class has this, and not merely from a protocol that leaves it open."""
    found = getattr(algorithm, name, None)
    return found is not None and not (
        name in _OPEN and any(found is getattr(base, name, None) for base in (Algorithm, Coordinated))
    )


def _setting(algorithm: type, trusted: bool) -> Setting:
    if not trusted:
        return "gossip"
    terms = stated_terms(algorithm)
    asked = "minimax" if terms and set(terms) <= set(MINIMAX_TERMS) else "bilevel"
    return "coordinator_minimax" if getattr(algorithm, "solves", asked) == "minimax" else "coordinator_bilevel"
