"""Damaged data and graph files: each is read, or refused in one line."""

from __future__ import annotations

import json
import random
import resource
import signal
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse

import decentral_dp
from decentral_dp.errors import InputError

from . import damage
from .damage import TooLongError, late
from .kills import Tally

AGENTS = 6
_MEMORY = 8 * 2**30
# Texts that replace a number or a name.
_ODD = (
    b"nan",
    b"1e308",
    b"-1e400",
    b"",
    b"9" * 400,
    b"x" * 131_072,
    b"\xff\xfe",
    b'"',
    b"\x00",
    b"0x1p1023",
    b"2147483648",
)


def damage_files(times: int, seed: int, place: Path) -> Tally:
    """Damage files of every input format, and plan a scenario that names them.

    Args:
        times: damaged files.
        seed: of which and where.
        place: an empty folder.
    """
    originals = [*_data(place), *_graphs(place)]
    draw, read, refused, wrong = random.Random(seed), 0, 0, list[str]()
    for k in range(times):
        path = draw.choice(originals)
        damaged = place / f"damaged{path.suffix}"
        damaged.write_bytes(_damaged(path.read_bytes(), draw))
        outcome = tried(partial(_plan, is_graph=path.stem == "graph"), damaged)
        read, refused = read + (outcome == "done"), refused + (outcome == "refused")
        if outcome not in ("done", "refused"):
            damaged.rename(place / f"wrong-{k}{path.suffix}")
            wrong.append(f"{k}: {path.name}: {outcome}")
    return Tally(times, read, refused, wrong)


def _plan(path: Path, is_graph: bool) -> None:
    content: dict[str, Any] = {
        "seed": 1,
        "problem": {"kind": "logistic_regularisation", "data": "breast_cancer", "normalise": "l2"},
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {"kind": "ldp_dsbo", "rounds": 2, "x": {"scale": 0.1}, "y": {"scale": 0.1}, "z": {"scale": 0.1}},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": {"y": 1.0, "z": 1.0}},
    }
    if is_graph:
        content["topology"] = {"file": str(path)}
    else:
        labelled = {"label": "label"} if path.suffix in (".csv", ".parquet") else {}
        content["problem"] |= {"data": str(path), "classes": [0, 1], **labelled}
    plan = decentral_dp.plan(content)
    epsilon = np.asarray(plan.epsilon)
    if np.isnan(epsilon).any() or (epsilon < 0.0).any():
        raise ValueError(f"a budget of {epsilon}")


def _data(place: Path) -> list[Path]:
    draw = np.random.default_rng(1)
    features, labels = draw.normal(size=(60, 3)), draw.integers(0, 2, 60)
    frame = pd.DataFrame(features, columns=["a", "b", "c"]).assign(label=labels)
    paths = [place / f"data.{suffix}" for suffix in ("csv", "npz", "parquet")]
    frame.to_csv(paths[0], index=False)
    np.savez(paths[1], X=features, y=labels)
    frame.to_parquet(paths[2], index=False)
    return paths


def _graphs(place: Path) -> list[Path]:
    graph = nx.circulant_graph(AGENTS, [1, 2])
    for k, (a, b) in enumerate(graph.edges):
        graph.edges[a, b]["weight"] = 0.1 + 0.01 * k
    paths = [place / f"graph.{suffix}" for suffix in ("graphml", "gml", "json", "csv", "npy", "npz")]
    nx.write_graphml(graph, paths[0])
    nx.write_gml(graph, paths[1], stringizer=str)
    paths[2].write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    nx.to_pandas_edgelist(graph).to_csv(paths[3], index=False)
    np.save(paths[4], nx.to_numpy_array(graph, weight=None))
    scipy.sparse.save_npz(paths[5], nx.to_scipy_sparse_array(graph, weight=None))
    return paths


def _damaged(content: bytes, draw: random.Random) -> bytes:
    """The content after one to three changes."""
    for _ in range(draw.randint(1, 3)):
        offset, length = draw.randrange(len(content) + 1), draw.randint(1, 40)
        kind = draw.choice(["bits", "cut", "gone", "twice", "noise", "word", "word"])
        if kind == "bits" and content:
            offset = min(offset, len(content) - 1)
            content = content[:offset] + bytes([content[offset] ^ (1 << draw.randrange(8))]) + content[offset + 1 :]
        elif kind == "cut":
            content = content[:offset]
        elif kind == "gone":
            content = content[:offset] + content[offset + length :]
        elif kind == "twice":
            content = content[:offset] + content[offset : offset + length] + content[offset:]
        elif kind == "noise":
            content = content[:offset] + draw.randbytes(length) + content[offset + length :]
        elif kind == "word":
            content = content[:offset] + draw.choice(_ODD) + content[offset + draw.randint(0, 6) :]
    return content


def tried(command: Callable[[Path], object], path: Path) -> str:
    """ "done", "refused", or what went wrong."""
    before, room = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
    # A read of an endless device fails at once.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, room[1]))
    signal.alarm(damage.LIMIT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            command(path)
    except InputError as error:
        return "refused" if "\n" not in str(error) else f"several lines: {error}"
    except TooLongError:
        return f"still at work after {damage.LIMIT} s"
    except Exception as error:  # noqa: BLE001 # any other error is wrong
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, room)
    return "done"
