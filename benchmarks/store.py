"""Where a benchmark's evidence goes: one JSON a claim, with the seed of every run and what it ran on."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

from ifef.runs.environment import environment, speed
from ifef.storage import write_json

RESULTS = Path(__file__).resolve().parent / "results"


@functools.cache
def _rates() -> tuple[float, float]:
    return speed()


def store(name: str, claim: str, runs: list[dict[str, Any]], *, quiet: bool = False, **facts: Any) -> Path:
    """Write `results/<name>.json`: the claim, every run (failures too), and the machine with its rates."""
    product, factorisation = _rates()
    machine = {
        **environment([Path(word).name for word in sys.argv]),
        "matmul_gflops": product,
        "qr_gflops": factorisation,
    }
    # A copy of the tree on a machine without its history is told what it is a copy of.
    machine["commit"] = machine["commit"] or os.environ.get("IFEF_COMMIT")
    path = RESULTS / f"{name}.json"
    RESULTS.mkdir(exist_ok=True)
    write_json(path, {"claim": claim, **facts, "machine": machine, "runs": runs})
    if not quiet:
        print(f"{path.relative_to(RESULTS.parents[1])}: {len(runs)} runs")
    return path
