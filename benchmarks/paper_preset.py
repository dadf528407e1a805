"""The paper's own algorithm and numbers on its own problems, full size; made for a GPU.

    python benchmarks/paper_preset.py helmholtz-low --seeds 0 1 2 3 4 [--preset paper-pd] [--epochs N] [--workers N]

Stores the error, the time of each phase and the history of every seed; a seed that fails stays in.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from store import store

import ifef


def run(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Solve one problem with one seed; checkpoints let a call that was cut off go on."""
    checkpoint = Path(options.out) / f"{name}-{options.preset}-{options.epochs}-{seed}.checkpoint"
    problem = ifef.problems.BUILT_IN[name]()
    shown: dict[str, float] = {}

    def progress(record: dict[str, Any]) -> None:
        if not record.get("tick") and time.monotonic() - shown.get("last", 0.0) > 20.0:
            shown["last"] = time.monotonic()
            print(f"  {record['phase']} {record['epoch']}/{record['epochs']} loss {record['loss']:.2e}", flush=True)

    start = time.perf_counter()
    result: dict[str, Any] = {"problem": name, "preset": options.preset, "seed": seed, "epochs": options.epochs}
    try:
        solution = ifef.solve(
            problem,
            seed=seed,
            preset=options.preset,
            epochs=options.epochs,
            progress=progress,
            checkpoint=checkpoint,
        )
        result |= {"error": solution.error(), "error_estimate": solution.error_estimate, "status": solution.status}
        result |= {"stats": solution.stats, "history": solution.history[:: max(len(solution.history) // 20, 1)]}
    except Exception as error:  # a failed seed is a result too
        result |= {"error": None, "failure": f"{type(error).__name__}: {error}"}
    result["seconds"] = time.perf_counter() - start
    print(f"{name} seed {seed}: {result['error']} in {result['seconds']:.0f} s", flush=True)
    return result


def main() -> None:
    """Run the problems named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=list(ifef.problems.BUILT_IN))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--out", default=".", help="folder of the checkpoints")
    parser.add_argument("--workers", type=int, default=1, help="seeds run side by side, which share the device")
    options = parser.parse_args()
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # or the first worker takes most of the memory
    for name in options.names:
        with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
            runs = list(pool.map(run, *zip(*[(name, seed, options) for seed in options.seeds], strict=True)))
        short = "" if options.epochs is None else f"-{options.epochs}-epochs"
        facts = {"workers": options.workers}
        store(f"{options.preset}-{name}{short}", "the paper's algorithm and settings", runs, **facts)


if __name__ == "__main__":
    main()
