"""Claims of the foundation: accuracy and time of one lower solve over untrained features, memory, row blocks, import.

    python benchmarks/foundation.py [accuracy] [solvers] [memory] [blocks] [import]

Each claim is asserted after its evidence is stored in benchmarks/results/.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from store import store

import ifef

SEEDS = range(5)


def _low(seed: int, lower: Any = None, num: int = 800, **options: Any) -> ifef.Solution:
    problem = ifef.problems.helmholtz()
    features = ifef.fourier_features(problem, num, sigma=2.0, backbone=(50, 50, 20), seed=seed)
    points = problem.sample({"equation": 71 * 71, "walls": 1000}, sampler="grid", seed=seed)
    return ifef.fit(problem, features, points, lower=lower, seed=seed, **options)


def _high(seed: int) -> ifef.Solution:
    problem = ifef.problems.helmholtz(100, 100, 0.0, 0.2)
    features = ifef.fourier_features(problem, 2400, sigma=5.0, backbone=(64, 64), seed=seed)
    return ifef.fit(problem, features, problem.sample({"equation": 11_000, "walls": 1500}, seed=seed), seed=seed)


def _facts(solution: ifef.Solution, seconds: float) -> dict[str, Any]:
    kept = ("held_out", "rank", "condition", "norm", "num_features", "num_rows", "stability")
    facts = {key: solution.stats[key] for key in kept}
    return {"error": solution.error(), "error_estimate": solution.error_estimate, "seconds": seconds, **facts}


def accuracy() -> None:
    """Errors and warm times of the two Helmholtz problems, five seeds each."""
    cases = (("helmholtz-low, [50,50,20], D=800, sigma=2", _low, 1e-9, 5.0),)
    cases += (("helmholtz-high, [64,64], D=2400, sigma=5", _high, 1e-7, 120.0),)
    runs = []
    for name, solve, error, seconds in cases:
        solve(100)  # compiles
        for seed in SEEDS:
            start = time.perf_counter()
            solution = solve(seed)
            run = {"case": name, "seed": seed, **_facts(solution, time.perf_counter() - start)}
            runs.append({**run, "error_allowed": error, "seconds_allowed": seconds})
            print(f"{name} seed {seed}: {run['error']:.1e} in {run['seconds']:.1f} s", flush=True)
    store("foundation-accuracy", "untrained backbone, rank-revealing lower level, warm", runs)
    assert all(run["error"] <= run["error_allowed"] for run in runs)
    assert all(run["seconds"] <= run["seconds_allowed"] for run in runs)


def solvers() -> None:
    """The lower level decides: the same rows by rank-revealing least squares and by the paper's ridge."""
    choices = [("least squares", ifef.LeastSquares())]
    choices += [(f"ridge {gamma:g}", ifef.Ridge(gamma)) for gamma in (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)]
    choices += [(f"cut {cut:g}", ifef.LeastSquares(cut)) for cut in (1e-13, 1e-14, 1e-15, 1e-16)]
    runs = []
    for name, lower in choices:
        for seed in SEEDS:
            start = time.perf_counter()
            solution = _low(seed, lower)
            runs.append({"lower": name, "seed": seed, **_facts(solution, time.perf_counter() - start)})
        errors = [run["error"] for run in runs if run["lower"] == name]
        print(f"{name}: median {np.median(errors):.1e}, worst {max(errors):.1e}", flush=True)
    store("foundation-solvers", "helmholtz-low, [50,50,20], D=800, sigma=2, by lower level", runs)
    worst = {name: max(run["error"] for run in runs if run["lower"] == name) for name, _ in choices}
    assert worst["least squares"] < 1e-4 * min(worst[name] for name in worst if name.startswith("ridge"))


def memory() -> None:
    """Peak memory beyond the runtime's own, in units of the matrix; each in a process of its own."""
    runs = []
    for lower in ("LeastSquares()", "Ridge(1e-6)"):
        done = subprocess.run([sys.executable, __file__, "peak", lower], capture_output=True, text=True, check=True)
        base, peak, matrix = map(float, done.stdout.split()[-3:])
        run = {"lower": lower, "seed": 0, "base": base, "peak": peak, "matrix": matrix}
        runs.append({**run, "matrices": (peak - base) / matrix})
        print(f"{lower}: {runs[-1]['matrices']:.2f} matrices")
    store("foundation-memory", "assembling and solving takes at most 3 matrices of memory", runs, unit="bytes")
    assert all(run["matrices"] <= 3.0 for run in runs)


def _high_water() -> int:
    """Most memory that this process has had; the kernel's `ru_maxrss` would count what its parent had."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _peak(lower: str) -> None:
    choice = {"LeastSquares()": ifef.LeastSquares(), "Ridge(1e-6)": ifef.Ridge(1e-6)}[lower]
    problem = ifef.problems.helmholtz()

    def run(num: int, interior: int, walls: int) -> ifef.Solution:
        features = ifef.fourier_features(problem, num, sigma=2.0, backbone=(50, 50, 20))
        return ifef.fit(problem, features, problem.sample({"equation": interior, "walls": walls}), lower=choice)

    run(100, 500, 100)
    base = _high_water()
    stats = run(1500, 9000, 600).stats
    peak = _high_water()
    print(base, peak, 8 * stats["num_rows"] * stats["num_features"])


def blocks() -> None:
    """Row blocks of a fixed size give the values that one block gives."""
    columns = 1623
    small = 8 * (columns + 1) ** 2 * 5 + 3 * 8 * (columns + 1) * 1500
    grid = np.random.default_rng(0).uniform(-1, 1, (4000, 2))
    runs = []
    for seed in SEEDS:
        whole, parts = _low(seed), _low(seed, memory=small)
        one, other = whole.at(grid)["u"], parts.at(grid)["u"]
        change = float(np.linalg.norm(one - other) / np.linalg.norm(one))
        runs.append({"seed": seed, "change": change, "error": whole.error(), "error_blocks": parts.error()})
        print(f"seed {seed}: values differ by {change:.1e}", flush=True)
    store("foundation-blocks", "1500 rows at a time against all at once", runs, memory=small)
    assert all(run["change"] < 1e-9 for run in runs)


def imports() -> None:
    """Importing ifef against importing jax and equinox, alternating, medians of nine."""
    runs = []
    for index in range(9):
        seconds = {}
        for name, statement in (("ifef", "import ifef"), ("jax", "import jax, equinox")):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            seconds[name] = time.perf_counter() - start
        runs.append({"seed": index, **seconds})
    ratio = float(np.median([run["ifef"] for run in runs]) / np.median([run["jax"] for run in runs]))
    print(f"import ifef / import jax, equinox = {ratio:.2f}")
    store(
        "foundation-import", "import ifef takes at most twice the time of importing jax and equinox", runs, ratio=ratio
    )
    assert ratio <= 2.0


CLAIMS = {"accuracy": accuracy, "solvers": solvers, "memory": memory, "blocks": blocks, "import": imports}

if __name__ == "__main__":
    if sys.argv[1:2] == ["peak"]:
        _peak(sys.argv[2])
    else:
        for claim in sys.argv[1:] or CLAIMS:
            CLAIMS[claim]()
