"""Reading the folder of a run that is not complete, and whether that run can go on here with the same draws."""

from __future__ import annotations

import contextlib
import io
import json
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from decentral_dp.config.algorithm_components import is_coordinated
from decentral_dp.engines.protocol import Saved
from decentral_dp.errors import InputError
from decentral_dp.files.regular import permitted, regular
from decentral_dp.models.devices import described
from decentral_dp.privacy.randomness import GENERATORS, PHILOX, Root, key_of, root_of
from decentral_dp.privacy.released_again import Window
from decentral_dp.simulation.agent_records import states_are_elsewhere
from decentral_dp.simulation.in_progress_files import BEGUN, JOURNAL, ROOT, digest, intact, locked
from decentral_dp.simulation.jobs import Job
from decentral_dp.simulation.kept_releases import Digests, first_index, whole_until
from decentral_dp.simulation.metrics import Row
from decentral_dp.simulation.noise_root import noise_root
from decentral_dp.simulation.result import IN_PROGRESS, is_complete
from decentral_dp.simulation.run_folder import versions
from decentral_dp.simulation.saved_values import UnreadableError, from_bytes, home_of


@dataclass(frozen=True)
class Found:
    """What a folder says of a run that is not complete.

    Args:
        root: of its noise; None where it was not kept.
        given: digest of the scenario and of the records that it was drawn for.
        versions: of what computed it.
        leased: rounds that may have been released.
        in_flight: rounds that may have been released since the root was last another, or since the run was begun.
        saved: the last state that can be read; None for the start.
        kept: number of that state's file; 0 for the start.
        rows: what was measured up to there.
        extended: rounds of the run, where they are more than it was begun with.
        windows: rounds that are charged once more, because their root was not kept.
        states: of the journal, those of this course of the run.
        releases: digests of the parts of what it released, as they were written.
    """

    root: Root | None
    given: str
    versions: dict[str, str]
    leased: int
    in_flight: int
    saved: tuple[int, bytes] | None
    kept: int
    rows: list[Row]
    extended: int | None = None
    windows: tuple[Window, ...] = ()
    states: Sequence[dict[str, Any]] = ()
    releases: Digests = field(default_factory=dict)

    def state(self, job: Job) -> Saved | None:
        """Where the run goes on; None where it starts anew, with the same draws.

        Raises:
            InputError: the state is of another version of the algorithm, or of other blocks of agents.
        """
        if self.saved is None:
            return None
        t, content = self.saved
        try:
            parts = tuple(from_bytes(content, home_of(job.algorithm)))
        except UnreadableError as error:
            raise InputError(
                f"resume: the state after round {t} cannot be read ({error}); go on with the versions of "
                "decentral_dp and of the algorithm's file that the run was begun with."
            ) from error
        blocks = 1 if is_coordinated(job.scenario) else len(job.sizes())
        if len(parts) != blocks:
            raise InputError(
                f"resume: agents were hosted in {len(parts)} blocks, and are in {blocks} now. Put run.blocks, "
                "run.engine and run.agents_per_actor back to what they were."
            )
        return Saved(t, parts)


def find(folder: Path) -> tuple[Found, IO[bytes]]:
    """Read the folder of a run that is not complete, and take its lock.

    Raises:
        InputError: there is none, it is under way, or its files are damaged or may not be read.
    """
    place = folder / IN_PROGRESS
    with permitted("resume"):
        if not place.is_dir():
            state = "is complete" if (folder / "result.json").is_file() else "is no run folder"
            raise InputError(f"resume: {folder} {state}; give the folder of a run that was interrupted.")
        lock = locked(folder)
        try:
            if is_complete(folder):
                # It was killed between its result and the end of its tidying up.
                shutil.rmtree(place)
                raise InputError(f"resume: {folder} is complete; give the folder of a run that was interrupted.")
            return _read(folder), lock
        except BaseException:
            lock.close()
            raise


def _read(folder: Path) -> Found:
    place = folder / IN_PROGRESS
    try:
        kept = json.loads(regular(place / ROOT, "resume").read_text())
        root = _read_root(kept, folder)
        scenario = regular(scenario_begun(folder), "resume").read_text(encoding="utf-8")
        if not scenario.endswith(str(kept.get("ends", ""))):
            raise ValueError(f"the last line of {BEGUN} is missing")
        drawn_for, computed_by = str(kept["given"]), {str(k): str(v) for k, v in kept["versions"].items()}
        entries = _entries(place / JOURNAL)
        leased = max((int(e["leased"]) for e in entries if "leased" in e), default=0)
        windows, in_flight = _charged_again(entries)
        extended = max((int(e["extended"]) for e in entries if "extended" in e), default=None)
        states = _states(entries)
        saved, number, rows = _last_state(place, states)
        # A part that was made once more has the name of the one before.
        releases = {(int(e["part"][0]), int(e["part"][1])): str(e["digest"]) for e in entries if "part" in e}
    except (InputError, PermissionError):
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"resume: {place} is damaged ({error}), and the run cannot go on. What it may have released is in the "
            'ledger of "decentral-dp plan" with its scenario.toml; run the scenario again in another folder.'
        ) from error
    of_course = (saved, number, rows, extended, windows, states, releases)
    return Found(root, drawn_for, computed_by, leased, in_flight, *of_course)


def scenario_begun(folder: Path) -> Path:
    """The scenario that the run in a folder was begun with."""
    kept = folder / IN_PROGRESS / BEGUN
    return kept if kept.is_file() else folder / BEGUN


def continued(found: Found, job: Job, folder: Path) -> Root | None:
    """The root of a run that goes on; None where it was not kept, so that nothing can be drawn again.

    Raises:
        InputError: it would not make the same draws, or not on the same records.
    """
    if given(job) != found.given:
        raise InputError(
            f"resume: the records, or a file that {folder}/scenario.toml names, are others than when the run was "
            "begun, and on them its noise would be drawn twice. Put them back, or run the scenario again in another "
            "folder."
        )
    here = machine() | computed_on(job)
    others = [f"{k} {v} (here {here.get(k, 'none')})" for k, v in found.versions.items() if here.get(k) != v]
    # Agents that have lost the last of their own states go on from an earlier one.
    certain = found.saved[0] if found.saved and not states_are_elsewhere(job.scenario, job.shards) else 0
    if others and found.leased > certain:
        raise InputError(
            f"resume: the run was begun with {', '.join(others)}. What is under way would be released again with other "
            "last bits, which is a second release. Go on where it was begun, or with the same versions."
        )
    return found.root


def before_damage(found: Found, job: Job, folder: Path) -> Found:
    """What a folder says of a run, up to the last state before the first value that is not on disk as it was released.

    From there the same draws give the same values.
    """
    if not job.scenario.run.keep_releases or found.saved is None:
        return found
    place = folder / IN_PROGRESS
    with permitted("resume"):
        end = whole_until(place, job, found.releases)
    if end >= first_index(job, found.saved[0]):
        return found
    saved, number, rows = _last_state(place, [e for e in found.states if first_index(job, int(e["round"])) <= end])
    return replace(found, saved=saved, kept=number, rows=rows)


def written_root(key: bytes | None, generator: str) -> dict[str, Any]:
    """What a folder says of the root of its noise.

    Args:
        key: of the root; None where it is not kept.
        generator: that its noise comes from.
    """
    root = None if key is None else key.hex()
    return {"root": root, "generator": generator, "check": _check_of(root, generator)}


def _read_root(kept: dict[str, Any], folder: Path) -> Root | None:
    # Folders from before secret noise had a generator of its own name none.
    root, generator = kept["root"], kept.get("generator")
    if kept["check"] != _check_of(root, generator):
        raise ValueError(f"{ROOT} is not what was written")
    known = generator or PHILOX
    if known not in GENERATORS:
        raise InputError(
            f"resume: the noise of {folder} comes from the generator {known!r}, and this version has "
            f"{' and '.join(GENERATORS)}; go on with the version of decentral_dp that the run was begun with."
        )
    return None if root is None else root_of(bytes.fromhex(root), known)


def _check_of(root: str | None, generator: str | None) -> str:
    return digest((f"{root}" if generator is None else f"{generator} {root}").encode())


def _entries(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; a last line that was cut off was never acted on."""
    lines = regular(path, "resume").read_bytes().split(b"\n")
    entries = [json.loads(line) for line in lines[:-1]]
    if not all(isinstance(e, dict) for e in entries):
        raise ValueError(f"{path.name} has a line that is no object")
    return entries


def _charged_again(entries: Sequence[dict[str, Any]]) -> tuple[tuple[Window, ...], int]:
    """The rounds that are charged once more, and those that may be out under the root that the run had last."""
    windows: list[Window] = []
    in_flight = 0
    for entry in entries:
        if "charged_again" in entry:
            first, last = entry["charged_again"]
            windows.append(Window(int(first), int(last)))
            # Of a new root the first release is that of the state that it goes on from.
            in_flight = windows[-1].first
        in_flight = max(in_flight, int(entry.get("leased", 0)))
    return tuple(windows), in_flight


def _states(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The states that belong to one course of the run: going on from one voids what was kept after it."""
    states: list[dict[str, Any]] = []
    for entry in entries:
        if "resumed" in entry:
            states = [e for e in states if int(e["saved"]) <= int(entry["resumed"])]
        elif "saved" in entry:
            states.append(entry)
    return states


def _last_state(place: Path, entries: Sequence[dict[str, Any]]) -> tuple[tuple[int, bytes] | None, int, list[Row]]:
    """The last state of which everything is as it was written: (round, content), its number, and what was measured.

    Damaged ones are passed over: an earlier state, or the start, leads to the same releases, only later.
    """
    import pandas as pd

    parts: list[list[Row]] = []
    for entry in entries:
        content = intact(place / f"metrics-{int(entry['saved'])}.parquet", entry["metrics"])
        if content is None:
            break
        parts.append(list(pd.read_parquet(io.BytesIO(content)).itertuples(index=False, name=None)))
    for n in range(len(parts), 0, -1):
        number = int(entries[n - 1]["saved"])
        content = intact(place / f"saved-{number}.npz", entries[n - 1]["digest"])
        if content is not None:
            return (int(entries[n - 1]["round"]), content), number, [row for part in parts[:n] for row in part]
    return None, 0, []


def given(job: Job) -> str:
    """A digest of everything that the noise of a job was drawn for, whether or not its root is secret."""
    if job.scenario.seed is not None:
        # The root is that digest already; files are not read a second time.
        return digest(key_of(job.root))
    seeded = job.scenario.model_copy(update={"seed": 0})
    return key_of(noise_root(seeded, job.shards, job.mechanism)).hex()


def computed_on(job: Job) -> dict[str, str]:
    """What they depend on besides, where the problem computes on another device than the processor."""
    device = getattr(job.problem, "device", job.scenario.run.device)
    found = described(device)
    return {"device": found} if found else {}


def machine() -> dict[str, str]:
    """What the last bits of a state depend on."""
    processor = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), processor)
    return {**versions(), "processor": processor}
