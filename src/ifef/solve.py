"""The automatic path: find frequencies, solve, judge by held-out points, enlarge; stop at tolerance or stall."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ifef import display
from ifef.features import FourierFeatures, fourier_features
from ifef.fit import fit
from ifef.frequencies import find_bandwidths, point_counts
from ifef.journal import Progress
from ifef.presets import paper
from ifef.problem import Problem
from ifef.search import CENTRES, SEARCHED, Found, search
from ifef.solution import Solution

PRESETS = ("paper", "paper-pd")
_FIRST, _MAX_FEATURES = 800, 3200  # columns
_NONLINEAR_SIGMA = 1.0
_FEWEST = 40  # frequencies below which a search is not worth its time
_GOOD = 1e-9  # held-out residual at which the found frequencies need no comparison with a wide basis
_MARGIN = 0.1  # the held-out residual to reach, as a part of the tolerance on the error
_ROUNDING = 1e-12  # estimated error at which float64, not the basis, is the limit
_PAYS = 0.5  # more columns pay when they lower the held-out residual to this part of it at least


@dataclass(frozen=True)
class _Budget:
    """What a solve may use."""

    tolerance: float | None
    max_features: int
    deadline: float

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
) -> Solution:
    """Solve a problem, told nothing else.

    `tolerance` is the relative error to reach (none: until the held-out residual stops falling), `max_features`
    bounds the columns and `max_seconds` the time. `preset="paper"` runs the paper's own algorithm and numbers on a
    built-in problem, "paper-pd" with primal-dual weights; `epochs` shortens it and `checkpoint` names a file from
    which a killed one goes on. `progress` shows a display, or is called with each record.
    """
    _check(problem, seed, tolerance, max_features, max_seconds, preset, epochs)
    with _shown(progress, problem.name or "solve") as report:
        if preset is not None:
            features, points, options = paper(problem, seed=seed, epochs=epochs, primal_dual=preset == "paper-pd")
            if tolerance is not None:
                options["tolerance"] = tolerance
            return fit(
                problem, features, points, progress=report, checkpoint=checkpoint, max_seconds=max_seconds, **options
            )
        deadline = math.inf if max_seconds is None else time.monotonic() + max_seconds
        budget = _Budget(tolerance, _MAX_FEATURES if max_features is None else max_features, deadline)
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
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"solve(seed={seed!r}): give a whole number, 0 or more.")
    for name, value in (("tolerance", tolerance), ("max_seconds", max_seconds)):
        if value is not None and not (isinstance(value, (int, float)) and 0 < value < math.inf):
            raise ValueError(f"solve({name}={value!r}): give a positive number.")
    for name, value, least in (("max_features", max_features, 10), ("epochs", epochs, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"solve({name}={value!r}): give a whole number of at least {least}.")
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"solve(preset={preset!r}): the presets are: {', '.join(PRESETS)}.")
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
    """Search for frequencies; where they leave much, widen a zero-centred basis while it pays; keep the best."""
    started = time.perf_counter()
    best: Solution | None = None
    weights: dict[str, float] | None = None
    stopped = ""
    try:
        for features, points, columns in _attempts(problem, seed, budget, report):
            solution = fit(problem, features, points, tolerance=budget.tolerance, weights=weights, seed=seed)
            # Residuals compare only under one set of weights.
            weights = solution.stats["weights"] if weights is None else weights
            _show(report, solution)
            pays = best is None or solution.stats["held_out"] < _PAYS * best.stats["held_out"]
            if best is None or solution.stats["held_out"] < best.stats["held_out"]:
                best = solution
            stopped = _reason(best, pays, columns, budget)
            if stopped:
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        best.status = stopped = "interrupted"
    assert best is not None
    best.stats["seconds"] = time.perf_counter() - started
    best.stats["stopped"] = stopped or "stall"
    if best.status == "stalled" and stopped in ("time", "features"):
        best.status = "out_of_budget"
        more = "max_seconds" if stopped == "time" else "max_features"
        best.advice = f"The budget of {stopped} was used up: a larger {more} may help. {best.advice}"
    return best


def _show(report: Progress | None, solution: Solution) -> None:
    if report is not None:
        shown = {key: solution.stats[key] for key in ("held_out", "rank", "condition", "num_features")}
        report({"phase": "solve", **shown, "losses": {k: v**2 for k, v in solution.residuals.items()}})


def _attempts(
    problem: Problem, seed: int, budget: _Budget, report: Progress | None
) -> Iterator[tuple[FourierFeatures, dict[str, np.ndarray], int]]:
    """Features and points to try, one after the other, with the columns that they use."""
    unknowns, dimension = len(problem.unknowns), len(problem.domain.names)
    sigma: float | tuple[float, ...] = _NONLINEAR_SIGMA
    if problem.linear:
        num = min(SEARCHED, budget.max_features // (2 * unknowns) - CENTRES - dimension)
        if num >= _FEWEST:

            def going_on(found: Found) -> bool:
                if report is not None:
                    columns = 2 * unknowns * len(found.frequencies)
                    report({"phase": "search", "held_out": found.held_out, "num_features": columns})
                return budget.has_time() and found.held_out > (budget.tolerance or 0.0) * _MARGIN

            found = search(problem, num=num, seed=seed, going_on=going_on)
            features = fourier_features(problem, frequencies=found.frequencies, backbone=())
            columns = features.size * unknowns
            yield features, problem.sample(point_counts(problem, columns), seed=seed), columns
            if found.held_out < _GOOD:
                return
        sigma = find_bandwidths(problem, seed=seed, going_on=budget.has_time)
    columns = min(_FIRST, budget.max_features)
    while True:
        num = max((columns // unknowns - dimension - 1) // 2, 1)
        features = fourier_features(problem, num, sigma=sigma, backbone=(), seed=seed)
        yield features, problem.sample(point_counts(problem, columns), seed=seed), columns
        columns = min(2 * columns, budget.max_features)


def _reason(best: Solution, pays: bool, columns: int, budget: _Budget) -> str:
    """Why to stop here, or nothing."""
    if best.status in ("ill_posed", "nonfinite"):
        return best.status
    if budget.tolerance is not None and best.status == "converged":
        return "tolerance"
    if max(best.estimates.values()) < _ROUNDING:
        return "float64"
    if not pays and columns >= 2 * _FIRST:
        return "stall"
    if columns >= budget.max_features:
        return "features"
    return "" if budget.has_time() else "time"
