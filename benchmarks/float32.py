"""`solve(problem, dtype="float32")` on the suite: what rounding costs, what is said of it, and what it spares.

    python benchmarks/float32.py run [--cases NAME ...] [--seeds 0 1 ...]
    python benchmarks/float32.py check      what holds of the table, from what is stored

Every case is solved in float32 and compared with its exact solution; the same basis on the same points is then solved
in float64 too, and the change of the values is what rounding really costs. Runs merge into results/float32.json.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
from store import RESULTS, store
from suite import CALIBRATION, SCORED, TABLE

import ifef
from ifef.runs.environment import environment
from ifef.sampling import sample
from ifef.solution import Solution
from ifef.trials import point_counts

CASES = {**TABLE, **CALIBRATION, **SCORED}
CHOSEN = (
    "helmholtz-low", "helmholtz-high", "convection-50", "wave", "radial-20", "acoustics", "poisson-5d", "multi-sine",
    "heat", "convection-diffusion", "peak-200", "pulse", "chirp", "boundary-layer", "varying-diffusion", "stokes",
    "runge", "biharmonic",
)  # fmt: skip
FLOOR = 1e-7  # errors and estimates are floored at about a unit of rounding before they are compared
FILE = "float32"


def worst(value: Any) -> float:
    """One number for several unknowns."""
    return max(value.values()) if isinstance(value, dict) else float(value)


def cost_of_rounding(solution: Solution, seed: int) -> float:
    """Relative change of the values from rows in float32 to rows in float64, all else the same."""
    problem = solution.problem
    assert problem is not None
    counts = point_counts(problem, solution.stats["num_features"], 3.0)
    given = {"weights": solution.stats["weights"], "seed": seed}
    both = [
        ifef.fit(problem, solution.features, problem.sample(counts, seed=seed + 2), dtype=dtype, **given)
        for dtype in ("float32", "float64")
    ]
    places = sample(problem.domain.interior, 4000, sampler="sobol", seed=5)
    rough, exact = (one.at(places) for one in both)
    return max(float(np.linalg.norm(rough[key] - exact[key]) / np.linalg.norm(exact[key])) for key in exact)


def one(name: str, seed: int) -> dict[str, Any]:
    """Solve one case with one seed."""
    problem = CASES[name].make()
    start = time.perf_counter()
    solution = ifef.solve(problem, seed=seed, dtype="float32", progress=False)
    result = {"case": name, "seed": seed, "commit": environment([])["commit"], "seconds": time.perf_counter() - start}
    kept = ("floor", "rounding", "held_out", "rank", "norm", "num_features", "num_rows", "stopped", "stability")
    result |= {key: solution.stats[key] for key in kept}
    result |= {"error": worst(solution.error()), "error_estimate": worst(solution.error_estimate)}
    return {**result, "cost": cost_of_rounding(solution, seed), "status": solution.status, "advice": solution.advice}


def stored() -> list[dict[str, Any]]:
    """What is stored so far."""
    path = RESULTS / f"{FILE}.json"
    return json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []


def run(cases: list[str], seeds: list[int]) -> None:
    """Solve the cases, and store them as they come."""
    for name in cases:
        for seed in seeds:
            found = one(name, seed)
            print(f"{name} seed {seed}: error {found['error']:.1e}, estimate {found['error_estimate']:.1e}, floor "
                  f"{found['floor']:.1e}, really {found['cost']:.1e}; {found['status']}", flush=True)  # fmt: skip
            runs = {(old["case"], old["seed"]): old for old in stored()} | {(name, seed): found}
            claim = 'solve(problem, dtype="float32"), told nothing: the floor is what rounding costs'
            store(FILE, claim, list(runs.values()), quiet=True)


def check() -> None:
    """Assert what is said of float32: an honest floor, an honest estimate, and no false convergence."""
    failed, floors, ratios = [], [], []
    for found in stored():
        label = f"{found['case']} seed {found['seed']}"
        floors.append(max(found["floor"], FLOOR) / max(found["cost"], FLOOR))
        ratios.append(max(found["error_estimate"], FLOOR) / max(found["error"], FLOOR))
        said = f"{found['num_features']} columns; {found['stopped']}, {found['status']}"
        print(f"{label:26} error {found['error']:.1e}, estimate / error {ratios[-1]:5.2f}, "
              f"floor / cost {floors[-1]:5.2f}, {said}")  # fmt: skip
        if found["status"] == "converged" and found["error"] > 1e-5:
            failed.append(f"{label} is converged at {found['error']:.1e}")
        if found["error_estimate"] < found["floor"]:
            failed.append(f"{label}: the estimate is below the floor")
    for what, values in (("estimate", ratios), ("floor", floors)):
        within = float(np.mean([0.1 <= value <= 10.0 for value in values]))
        print(f"{what} within a factor of ten: {within:.1%} of {len(values)} runs")
        failed += [f"{what} within ten in {within:.1%}, asked 95%"] * (within < 0.95)
    assert not failed, "\n" + "\n".join(failed)


def main() -> None:
    """Carry out one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "check"])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CHOSEN))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    if options.command == "run":
        run(options.cases, options.seeds)
    else:
        check()


if __name__ == "__main__":
    main()
