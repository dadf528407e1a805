"""`ifef.solve(problem)`, told nothing, on the suite: every seed in a process of its own, compiling included.

    python benchmarks/no_tuning.py run [--cases NAME ...] [--seeds 0 1 ...] [--workers N]
    python benchmarks/no_tuning.py rival [--cases NAME ...]     one-shot random frequencies, best of nine bandwidths
    python benchmarks/no_tuning.py check                        what holds of the table, from what is stored
    python benchmarks/no_tuning.py plot                         error against time

Runs made at different times merge into results/no-tuning.json by case and seed. Each worker has two cores of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from store import RESULTS, store
from suite import CALIBRATION, SCORED, TABLE

import ifef
from ifef.runs.environment import environment

CASES = {**TABLE, **CALIBRATION, **SCORED}
CORES = 2
FLOOR = 1e-13  # errors and estimates are floored here before they are compared
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
FILE = "no-tuning"


def commit() -> str | None:
    """What a run was made with: runs made at different times stand in one file."""
    return os.environ.get("IFEF_COMMIT") or environment([])["commit"]


def worst(value: Any) -> float:
    """One number for several unknowns."""
    return max(value.values()) if isinstance(value, dict) else float(value)


def one(name: str, seed: int) -> dict[str, Any]:
    """Solve one case with one seed; a failure is a result too."""
    problem = CASES[name].make()
    result: dict[str, Any] = {"case": name, "seed": seed, "commit": commit()}
    start = time.perf_counter()
    try:
        solution = ifef.solve(problem, seed=seed, progress=False)
    except Exception as error:
        return {**result, "error": None, "failure": f"{type(error).__name__}: {error}"}
    result["seconds"] = time.perf_counter() - start
    kept = ("held_out", "rank", "norm", "num_features", "num_rows", "stopped", "stability")
    result |= {key: solution.stats[key] for key in kept}
    result |= {"error": worst(solution.error()), "error_estimate": worst(solution.error_estimate)}
    return {**result, "status": solution.status}


def rival(name: str, seed: int) -> dict[str, Any]:
    """2,000 columns of random frequencies, the bandwidth with the lowest true error: an oracle's choice."""
    problem = CASES[name].make()
    parts = sum(2 if unknown.complex else 1 for unknown in problem.unknowns)
    tried = []
    for sigma in BANDWIDTHS:
        features = ifef.fourier_features(problem, 1000 // parts, sigma=sigma, backbone=(), seed=seed)
        points = problem.sample(
            {key: 6000 if c.is_equation else 600 for key, c in problem.conditions.items()}, seed=seed
        )
        start = time.perf_counter()
        solution = ifef.fit(problem, features, points, seed=seed)
        tried.append((worst(solution.error()), sigma, time.perf_counter() - start))
    error, sigma, seconds = min(tried)
    return {"case": name, "seed": seed, "rival": True, "error": error, "sigma": sigma, "seconds": seconds}


def run_all(mode: str, options: argparse.Namespace) -> None:
    """Run every case and seed in a process of its own, each worker on two cores, and store as they come."""
    free: queue.Queue[list[int]] = queue.Queue()
    cores = sorted(os.sched_getaffinity(0))
    for index in range(options.workers):
        free.put(cores[CORES * index : CORES * (index + 1)] or cores)

    def child(job: tuple[str, int]) -> dict[str, Any]:
        mine = free.get()
        try:
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(len(mine)), "OMP_NUM_THREADS": str(len(mine))}
            command = ["taskset", "-c", ",".join(map(str, mine)), sys.executable, __file__, mode, job[0], str(job[1])]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        finally:
            free.put(mine)
        if done.returncode:
            return {"case": job[0], "seed": job[1], "error": None, "failure": done.stderr[-300:]}
        return json.loads(done.stdout.splitlines()[-1])

    jobs = [(name, seed) for seed in options.seeds for name in options.cases or CASES]
    with ThreadPoolExecutor(options.workers) as pool:
        for result in pool.map(child, jobs):
            shown = "failed" if result["error"] is None else f"{result['error']:.1e} in {result['seconds']:.1f} s"
            print(f"{result['case']} seed {result['seed']}: {shown} {result.get('status', '')}", flush=True)
            keep([result])


def stored() -> dict[str, Any]:
    """What is stored so far."""
    path = RESULTS / f"{FILE}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"runs": []}


def keep(new: list[dict[str, Any]]) -> None:
    """Merge runs into the file, by case, seed and kind."""
    runs = {(run["case"], run["seed"], run.get("rival", False)): run for run in stored()["runs"]}
    runs |= {(run["case"], run["seed"], run.get("rival", False)): run for run in new}
    store(
        FILE, "solve(problem) with default settings, told nothing, in a fresh process", list(runs.values()), quiet=True
    )


def tables() -> dict[str, list[dict[str, Any]]]:
    """The runs by case."""
    runs = [run for run in stored()["runs"] if not run.get("rival")]
    return {name: [run for run in runs if run["case"] == name] for name in CASES}


def check() -> None:
    """Print every case, and assert what the table and the error estimate are to reach."""
    failed, ratios, false, missed, near = [], [], [], 0, 0
    for name, runs in tables().items():
        errors = [math.inf if run["error"] is None else run["error"] for run in runs]
        if not errors:
            failed.append(f"{name}: not run")
            continue
        seconds = float(np.median([run.get("seconds", math.inf) for run in runs]))
        case = CASES[name]
        asked = "" if case.error is None else f"asked {case.error:.0e} in {case.seconds} s"
        said = ", ".join(sorted({run.get("status", "failed") for run in runs}))
        print(f"{name:22} {len(errors):2} seeds: median {np.median(errors):.1e}, worst {max(errors):.1e}, "
              f"{seconds:5.1f} s; {said}; {asked}")  # fmt: skip
        if case.error is not None and max(errors) > case.error:
            failed.append(f"{name}: worst error {max(errors):.1e}, asked {case.error:.0e}")
        if case.seconds is not None and seconds > case.seconds:
            failed.append(f"{name}: {seconds:.1f} s, asked {case.seconds} s")
        for run in runs:
            if run["error"] is None:
                continue
            ratios.append(max(run["error_estimate"], FLOOR) / max(run["error"], FLOOR))
            if run["status"] == "converged" and run["error"] > 1e-5:
                false.append(f"{name} seed {run['seed']} is converged at {run['error']:.1e}")
            near += run["error"] < 1e-7
            missed += run["error"] < 1e-7 and run["status"] != "converged"
    within = float(np.mean([0.1 <= ratio <= 10.0 for ratio in ratios]))
    print(f"estimate within a factor of ten of the error: {within:.1%} of {len(ratios)} runs")
    print(f"converged where the error is below a tenth of the tolerance: {1.0 - missed / max(near, 1):.1%}")
    failed += [f"estimate within ten in {within:.1%}, asked 95%"] * (within < 0.95) + false
    failed += [f"converged in {1.0 - missed / near:.1%}, asked 90%"] * (near > 0 and missed > 0.1 * near)
    assert not failed, "\n" + "\n".join(failed)


def plot() -> Path:
    """Error against time: this method, the rival, the paper."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 6), constrained_layout=True)
    by_case = tables()
    rivals = {run["case"]: run for run in stored()["runs"] if run.get("rival")}
    for name in TABLE:
        errors = [run["error"] for run in by_case[name] if run["error"] is not None]
        if not errors:
            continue
        seconds = [run["seconds"] for run in by_case[name] if run["error"] is not None]
        axes.loglog(seconds, errors, "o", color="tab:blue", markersize=3)
        axes.annotate(name, (np.median(seconds), max(errors)), fontsize=7, color="tab:blue")
        if name in rivals:
            axes.loglog(rivals[name]["seconds"], rivals[name]["error"], "s", color="tab:orange", markersize=4)
            axes.annotate(name, (rivals[name]["seconds"], rivals[name]["error"]), fontsize=6, color="tab:orange")
    paper = {"helmholtz-low": (448, 3.5e-5), "helmholtz-high": (1960, 9.2e-3), "convection-50": (108, 4.3e-5)}
    paper |= {"convection-200": (610, 2.5e-3), "convection-diffusion": (110, 9e-4)}
    for name, (seconds, error) in paper.items():
        axes.loglog(seconds, error, "^", color="tab:red")
        axes.annotate(name, (seconds, error), fontsize=7, color="tab:red")
    for colour, label in (("blue", "ifef.solve, every seed"), ("red", "the paper (RTX 4090)")):
        axes.plot([], [], "o", color=f"tab:{colour}", label=label)
    axes.plot([], [], "s", color="tab:orange", label="random frequencies, best of nine bandwidths by an oracle")
    axes.set(xlabel="seconds, compiling included", ylabel="relative L2 error")
    axes.legend(fontsize=8)
    path = RESULTS.parents[1] / "docs" / "images" / "no-tuning.png"
    figure.savefig(path, dpi=120)
    return path


def main() -> None:
    """Carry out one of the commands."""
    if sys.argv[1:2] in (["one"], ["one-rival"]):
        print(json.dumps((one if sys.argv[1] == "one" else rival)(sys.argv[2], int(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "rival", "check", "plot"])
    parser.add_argument("--cases", nargs="+", choices=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    if options.command in ("run", "rival"):
        run_all("one" if options.command == "run" else "one-rival", options)
    elif options.command == "check":
        check()
    else:
        print(plot())


if __name__ == "__main__":
    main()
