"""Print the verdict on each planted error (python -m tests.planted [name …]); exit with 1 unless all are caught."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from .mutations import MUTATIONS
from .planting import Copy


def main(names: list[str]) -> int:
    unknown = set(names) - {m.name for m in MUTATIONS}
    if unknown:
        print(f"no such mutation: {', '.join(sorted(unknown))}")
        return 2
    chosen = [m for m in MUTATIONS if not names or m.name in names]
    counts = {"caught": 0, "survived": 0, "broken": 0}
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for mutation in chosen:
            begin = time.perf_counter()
            verdict = copy.verdict(mutation)
            counts[verdict.word] += 1
            seconds = time.perf_counter() - begin
            print(f"{verdict.word:8} {seconds:5.1f} s  {mutation.name}: {verdict.evidence}", flush=True)
    print(", ".join(f"{n} {word}" for word, n in counts.items()))
    return 0 if counts["caught"] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
