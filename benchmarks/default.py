"""`ifef.solve(problem)` on the built-in linear problems, told nothing, five seeds each.

    python benchmarks/default.py [NAME ...]

The first seed's time includes compiling. Stores every seed; README's table is made from the file.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from store import store

import ifef

SEEDS = range(5)
PAPER = {
    "helmholtz-low": 3.5e-5,
    "helmholtz-high": 9.2e-3,
    "convection-50": 4.3e-5,
    "convection-200": 2.5e-3,
    "convection-diffusion": 9e-4,
}


def main() -> None:
    """Solve, print and store."""
    runs: list[dict[str, Any]] = []
    for name in sys.argv[1:] or PAPER:
        for seed in SEEDS:
            problem = ifef.problems.BUILT_IN[name]()
            start = time.perf_counter()
            solution = ifef.solve(problem, seed=seed, progress=False)
            seconds = time.perf_counter() - start
            kept = ("held_out", "rank", "norm", "num_features", "num_rows", "stopped")
            facts = {key: solution.stats[key] for key in kept}
            run = {"problem": name, "seed": seed, "error": solution.error(), "seconds": seconds, **facts}
            runs.append({**run, "error_estimate": solution.error_estimate, "status": solution.status})
            print(f"{name} seed {seed}: {run['error']:.1e} in {seconds:.1f} s, {solution.status}", flush=True)
        errors = [run["error"] for run in runs if run["problem"] == name]
        print(f"{name}: median {np.median(errors):.1e}, worst {max(errors):.1e}", flush=True)
    store("default", "solve(problem) with default settings", runs, paper=PAPER)


if __name__ == "__main__":
    main()
