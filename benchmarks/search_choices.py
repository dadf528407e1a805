"""Experiments behind the choices of the search: period of envelopes, weight of the equations, responses.

    python benchmarks/search_choices.py [period] [temper] [responses]

Each stores what it found in benchmarks/results/; docs/design.md says what was decided by it.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
from store import store
from suite import EVOLUTION, TABLE, UNIT, Case, laplace, value

from ifef import Condition, Problem, d
from ifef.calculus import float64
from ifef.frequencies import around, clusters
from ifef.lower import LeastSquares
from ifef.portfolio import response
from ifef.search import candidates, locate
from ifef.trials import Trial, Trials

NONE = np.zeros((0, 2))


def true_error(trials: Trials, trial: Trial) -> float:
    """Relative L2 error on a grid, for one real unknown."""
    problem = trials.problem
    sides = zip(problem.domain.lows, problem.domain.highs, strict=True)
    axes = np.meshgrid(*[np.linspace(low, high, 101) for low, high in sides], indexing="ij")
    points = np.stack([axis.reshape(-1) for axis in axes], axis=1)
    low, high = np.array(problem.domain.lows), np.array(problem.domain.highs)
    angle = ((2.0 * points - low - high) / (high - low)) @ trial.frequencies.T
    values = np.concatenate([np.cos(angle), np.sin(angle)], axis=1) @ trial.theta / math.sqrt(len(trial.frequencies))
    exact = problem.exact_values(points)["u"]
    return float(np.linalg.norm(values - exact) / np.linalg.norm(exact))


def period() -> None:
    """Envelopes of the same waves by lattices of several periods, counts across them alike."""
    runs = []
    for name in ("convection-diffusion", "wave", "heat"):
        with float64():
            trials = Trials(TABLE[name].make(), 0)
            waves, energies = locate(trials, candidates(trials, None), NONE, 1.0, 12)
            centres = clusters(waves, energies)[:5]
            for length in (1.25, 2.0, 3.0, 4.0, 6.0):
                for count in (5, 8, 11, 14):
                    found = trials.solve(around(centres, (count, count), length))
                    run = {"case": name, "seed": 0, "period": length, "count": count, "norm": found.norm}
                    run |= {"columns": len(found.theta), "held_out": found.held_out, "error": true_error(trials, found)}
                    runs.append(run)
                    print(f"{name} period {length} count {count}: {run['columns']} columns, {run['error']:.1e}")
    store("search-period", "period of the lattice around a wave, in sides of the box", runs)
    widest = {(run["case"], run["period"]): run["error"] for run in runs if run["count"] == 14}
    assert all(widest[name, 4.0] < 1e-2 * widest[name, 1.25] for name in ("convection-diffusion", "wave", "heat"))


def temper() -> None:
    """The weight of the equations while waves are found, and how many are picked: held-out residual of waves alone."""
    runs = []
    for name in ("helmholtz-low", "convection-200", "multi-sine", "wave", "acoustics"):
        for seed in range(3):
            with float64():
                trials = Trials(TABLE[name].make(), seed)
                proposed = candidates(trials, None)
                for factor in (1.0, 10.0, 100.0):
                    for picks in (8, 24):
                        waves, _ = locate(trials, proposed, NONE, factor, picks)
                        left = trials.solve(waves).held_out
                        run = {"case": name, "seed": seed, "factor": factor, "picks": picks, "held_out": left}
                        runs.append({**run, "waves": len(waves)})
                        print(f"{name} seed {seed} factor {factor} picks {picks}: {len(waves)} waves, {left:.1e}")
    store("search-temper", "factor of the equations' rows, and waves to pick at once", runs)


def undetermined() -> dict[str, Case]:
    """Problems that lack a condition."""
    sides = EVOLUTION.lower("x") | EVOLUTION.upper("x")
    start = Condition(EVOLUTION.lower("t"), value, lambda p: jnp.sin(2 * math.pi * p.x))
    end = Condition(EVOLUTION.upper("t"), value, lambda p: jnp.sin(2 * math.pi * p.x))
    walls = Condition(sides, value)
    inside = lambda operator, *target: Condition(EVOLUTION.interior, operator, *target)  # noqa: E731
    poisson = Condition(UNIT.interior, laplace, lambda p: jnp.cos(math.pi * p.x))
    slopes = {
        name: Condition(UNIT.lower(name) | UNIT.upper(name), lambda u, p, name=name: d(u, name)(p)) for name in "xy"
    }
    slopes = {f"slope_{name}": one for name, one in slopes.items()}
    problems: dict[str, Any] = {
        "Poisson, slopes only": Problem(UNIT, equation=poisson, **slopes),
        "Poisson, a wall without": Problem(
            UNIT, equation=poisson, walls=Condition(UNIT.lower("x") | UNIT.upper("x") | UNIT.lower("y"), value)
        ),
        "advection, no inflow": Problem(
            EVOLUTION, equation=inside(lambda u, p: d(u, "t")(p) + d(u, "x")(p)), start=start
        ),
        "wave, no velocity": Problem(
            EVOLUTION,
            equation=inside(lambda u, p: d(u, "t", "t")(p) - 4.0 * d(u, "x", "x")(p)),
            start=start,
            walls=walls,
        ),
        "heat, backwards": Problem(
            EVOLUTION, equation=inside(lambda u, p: d(u, "t")(p) - 0.1 * d(u, "x", "x")(p)), end=end, walls=walls
        ),
    }
    return {name: Case(lambda problem=problem: problem) for name, problem in problems.items()}


def responses() -> None:
    """Response to a residual, over smooth functions, where the conditions determine u and where not."""
    runs = []
    for posed, cases in ((True, TABLE), (False, undetermined())):
        for name, case in cases.items():
            with float64():
                trials = Trials(case.make(), 0)
                fine, coarse = response(trials, LeastSquares(), trials.draw(12))
            runs.append({"case": name, "seed": 0, "posed": posed, "response": fine, "coarse": coarse})
            print(f"{name}: {fine:.1e}, with fewer columns {coarse:.1e}")
    store("search-responses", "response to a residual where a condition is missing and where none is", runs)
    assert max(run["response"] for run in runs if run["posed"]) < 5e3


CHOICES = {"period": period, "temper": temper, "responses": responses}

if __name__ == "__main__":
    for choice in sys.argv[1:] or CHOICES:
        CHOICES[choice]()
