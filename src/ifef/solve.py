"""The automatic path: find frequencies, solve, judge by held-out points, enlarge; stop at tolerance or stall."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ifef import display
from ifef.arguments import checked_dtype
from ifef.backbones import Spots
from ifef.calculus import float64
from ifef.checks import is_real
from ifef.domain import shown
from ifef.features import fourier_features
from ifef.fit import fit
from ifef.journal import Progress
from ifef.portfolio import bases, undetermined
from ifef.presets import paper
from ifef.problem import Problem
from ifef.sampling import generator
from ifef.solution import Solution
from ifef.trials import Trial, Trials, focused, point_counts
from ifef.verdict import restate

PRESETS = ("paper", "paper-pd")
_MAX_FEATURES = 3300  # columns
_FIRST, _SIGMA = 800, 1.0  # columns and bandwidth to begin with where rows depend on theta
_MARGIN = 0.1  # the held-out residual to reach, as a part of the tolerance on the error
_ROUNDING = 1e-12  # estimated error at which float64, not the basis, is the limit
_LIMITED = 2.0  # times its floor, at which float32 is
_PAYS = 0.5  # more columns pay when they lower the held-out residual to this part of it at least
_FINAL = 3.0  # rows a column of the final solve


@dataclass(frozen=True)
class _Budget:
    """What a solve may use."""

    tolerance: float | None
    max_features: int
    deadline: float
    dtype: str = "float64"

    def has_time(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.deadline


def solve(
    problem: Problem,
    *,
    seed: int = 0,
    tolerance: float | None = None,
    max_features: int | None = None,
    max_seconds: float | None = None,
    preset: str | None = None,
    progress: bool | Progress = True,
    epochs: int | None = None,
    checkpoint: str | Path | None = None,
    dtype: str = "float64",
) -> Solution:
    """Solve a problem, told nothing else.

    `tolerance` is the relative error to reach (none: until the held-out residual stops falling), `max_features`
    bounds the columns and `max_seconds` the time. `preset="paper"` runs the paper's own algorithm and numbers on a
    built-in problem, "paper-pd" with primal-dual weights; `epochs` shortens it and `checkpoint` names a file from
    which a killed one goes on. `progress` shows a display, or is called with each record. `dtype="float32"` is for
    machines without a fast float64: rows are made and factored in it, and `stats["floor"]` is the error this costs.
    """
    _check(problem, seed, tolerance, max_features, max_seconds, preset, epochs)
    dtype = checked_dtype(dtype, "solve")
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"solve(progress={shown(progress)}): give True, False or a function of a record.")
    with _shown(progress, problem.name or "solve") as report:
        if preset is not None:
            features, points, options = paper(problem, seed=seed, epochs=epochs, primal_dual=preset == "paper-pd")
            if tolerance is not None:
                options["tolerance"] = tolerance
            options |= {"progress": report, "checkpoint": checkpoint, "max_seconds": max_seconds, "dtype": dtype}
            return fit(problem, features, points, **options)
        deadline = math.inf if max_seconds is None else time.monotonic() + max_seconds
        budget = _Budget(tolerance, _MAX_FEATURES if max_features is None else max_features, deadline, dtype)
        return _automatic(problem, seed, budget, report)


def _check(
    problem: Problem,
    seed: int,
    tolerance: float | None,
    max_features: int | None,
    max_seconds: float | None,
    preset: str | None,
    epochs: int | None,
) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"solve(problem): give a Problem, not {type(problem).__name__}.")
    generator(seed)  # refuses what cannot seed one
    for name, value in (("tolerance", tolerance), ("max_seconds", max_seconds)):
        if value is not None and not (is_real(value) and value > 0):
            raise ValueError(f"solve({name}={shown(value)}): give a positive number.")
    for name, value, least in (("max_features", max_features, 10), ("epochs", epochs, 0)):
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if value is not None and not (whole and value >= least):
            raise ValueError(f"solve({name}={shown(value)}): give a whole number of at least {least}.")
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"solve(preset={shown(preset)}): the presets are: {', '.join(PRESETS)}.")
    if max_features is not None and preset is not None:
        raise ValueError("solve(max_features=...): a preset has its own number of features; leave one of them out.")
    if epochs is not None and preset is None:
        raise ValueError("solve(epochs=...): epochs belong to a preset; give preset='paper' too.")


@contextlib.contextmanager
def _shown(progress: bool | Progress, title: str) -> Iterator[Progress | None]:
    if callable(progress):
        yield progress
    elif progress:
        with display.live(title) as report:
            yield report
    else:
        yield None


def _automatic(problem: Problem, seed: int, budget: _Budget, report: Progress | None) -> Solution:
    """Try one basis after the other, keep the best by held-out residual, and solve over it once more."""
    started = time.perf_counter()
    path = _linear if problem.linear else _nonlinear
    best, stopped = path(problem, seed, budget, report)
    if stopped == "interrupted" and best.status in ("converged", "stalled"):
        best.status = stopped
    best.stats["seconds"] = time.perf_counter() - started
    best.stats["stopped"] = stopped
    if best.status == "stalled" and stopped in ("time", "features"):
        best.status = "out_of_budget"
        more = "max_seconds" if stopped == "time" else "max_features"
        best.advice = f"The budget of {stopped} was used up: a larger {more} may help. {best.advice}"
    return best


def _linear(problem: Problem, seed: int, budget: _Budget, report: Progress | None) -> tuple[Solution, str]:
    """Bases from the search, until the error that was asked for is reached, or rounding, or there are no more."""
    goal = 0.0 if budget.tolerance is None else _MARGIN * budget.tolerance
    with float64():
        trials = Trials(problem, seed, budget.dtype)
        best, stopped, solution = None, "stall", None

        def going_on(trial: Trial) -> bool:
            return budget.has_time() and trial.held_out > max(goal, trial.rounding)

        try:
            for trial in bases(trials, budget.max_features, going_on):
                if report is not None:
                    columns = trials.columns_of(trial.features)
                    report({"phase": "search", "held_out": trial.held_out, "num_features": columns})
                if best is None or trial.held_out < best.held_out:
                    best, solution = trial, None
                if best.held_out <= max(goal, best.rounding):
                    solution = solution or _final(trials, best, budget, report)
                    if budget.tolerance is not None and solution.status == "converged":
                        return solution, "tolerance"
                    if best.held_out <= best.rounding:
                        return solution, budget.dtype
                    goal *= _MARGIN
                if not budget.has_time():
                    stopped = "time"
                    break
        except KeyboardInterrupt:
            if best is None:
                raise
            stopped = "interrupted"
        assert best is not None
        return solution or _final(trials, best, budget, report), stopped


def _final(trials: Trials, best: Trial, budget: _Budget, report: Progress | None) -> Solution:
    """Solve over the best frequencies on points of their own."""
    problem, seed, features = trials.problem, trials.seed, best.features
    counts = point_counts(problem, trials.columns_of(features), _FINAL)
    points = focused(problem, counts, features.backbone, seed + 2)
    options: dict[str, Any] = {"tolerance": budget.tolerance, "weights": trials.weights, "seed": seed}
    options["dtype"] = budget.dtype
    if isinstance(features.backbone, Spots):  # small: it takes many points to hit them
        options["held_out"] = problem.sample({k: 2 * n for k, n in counts.items()}, sampler="uniform", seed=seed + 3)
    solution = fit(problem, features, points, **options)
    restate(solution, budget.tolerance, undetermined=undetermined(trials, best))
    _show(report, solution)
    return solution


def _nonlinear(problem: Problem, seed: int, budget: _Budget, report: Progress | None) -> tuple[Solution, str]:
    """Gauss-Newton over random frequencies, twice as many as long as that pays."""
    best: Solution | None = None
    weights: dict[str, float] | None = None
    columns, unknowns = min(_FIRST, budget.max_features), len(problem.unknowns)
    while True:
        num = max((columns // unknowns - len(problem.domain.names) - 1) // 2, 1)
        features = fourier_features(problem, num, sigma=_SIGMA, backbone=(), seed=seed)
        points = problem.sample(point_counts(problem, columns, _FINAL), seed=seed)
        try:
            options = {"tolerance": budget.tolerance, "weights": weights, "seed": seed, "dtype": budget.dtype}
            solution = fit(problem, features, points, **options)
        except KeyboardInterrupt:
            if best is None:
                raise
            return best, "interrupted"
        weights = solution.stats["weights"] if weights is None else weights  # residuals compare under one set only
        _show(report, solution)
        pays = best is None or solution.stats["held_out"] < _PAYS * best.stats["held_out"]
        if best is None or solution.stats["held_out"] < best.stats["held_out"]:
            best = solution
        if stopped := _reason(best, pays, columns, budget):
            return best, stopped
        columns = min(2 * columns, budget.max_features)


def _show(report: Progress | None, solution: Solution) -> None:
    if report is not None:
        shown = {key: solution.stats[key] for key in ("held_out", "rank", "condition", "num_features")}
        report({"phase": "solve", **shown, "losses": {k: v**2 for k, v in solution.residuals.items()}})


def _reason(best: Solution, pays: bool, columns: int, budget: _Budget) -> str:
    """Why to stop here, or nothing."""
    if best.status in ("ill_posed", "nonfinite"):
        return best.status
    if budget.tolerance is not None and best.status == "converged":
        return "tolerance"
    least = _ROUNDING if budget.dtype == "float64" else _LIMITED * best.stats["floor"]
    if max(best.estimates.values()) < least:
        return budget.dtype
    if not pays and columns >= 2 * _FIRST:
        return "stall"
    if columns >= budget.max_features:
        return "features"
    return "" if budget.has_time() else "time"
