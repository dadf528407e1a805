"""What `fit` is given, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ifef.checks import describe, is_real
from ifef.domain import Face, real_array, shown
from ifef.lower import AbstractLower, GaussNewton, LeastSquares
from ifef.problem import Problem
from ifef.upper import Training

DTYPES = ("float64", "float32")


def checked_dtype(dtype: Any, verb: str) -> str:
    """Give the name of the precision of the rows."""
    try:
        name = "" if dtype is None else np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in DTYPES:
        raise ValueError(f"{verb}(dtype={shown(dtype)}): give 'float64' or 'float32'.")
    return name


def check_numbers(**given: float | None) -> None:
    """Check numbers that may be left out."""
    for name, value in given.items():
        fine = value is None or (is_real(value) and (value > 0 or (value == 0 and name.endswith("seconds"))))
        if not fine:
            raise ValueError(f"fit({name}={shown(value)}): give a positive number.")


def checked_lower(problem: Problem, lower: AbstractLower | None, upper: Training | None) -> AbstractLower:
    """Give the lower level's strategy: the given one, where it fits, or the default."""
    if lower is None:
        lower = LeastSquares() if problem.linear else GaussNewton()
    if not isinstance(lower, AbstractLower):
        raise TypeError(f"fit(lower=...): give LeastSquares(), Ridge(gamma) or GaussNewton(), not {shown(lower)}.")
    if not problem.linear and not isinstance(lower, GaussNewton):
        nonlinear = [key for key, affine in problem.affine.items() if not affine]
        raise ValueError(
            f"fit(lower={type(lower).__name__}): the condition {nonlinear[0]!r} is nonlinear; use GaussNewton()."
        )
    if lower.weights is not None:
        checked_weights(problem, lower.weights, {})
    if upper is not None and upper.epochs and not problem.linear:
        raise ValueError("fit(upper=...): training the backbone needs a linear problem; leave `upper` out.")
    return lower


def checked_points(problem: Problem, points: Mapping[str, Any], argument: str) -> dict[str, np.ndarray]:
    """Check that there are points (n, dim) for every condition and that they lie in its region."""
    if not isinstance(points, Mapping):
        raise TypeError(f"{argument}: give arrays by condition, as problem.sample(1000) does, not {shown(points)}.")
    _check_names(problem, points, argument)
    checked = {}
    dimension = len(problem.domain.names)
    for key, condition in problem.conditions.items():
        if key not in points:
            raise ValueError(f"{argument}: there are no points for the condition {key!r}.")
        rows: np.ndarray
        try:
            rows = real_array(points[key])
        except (TypeError, ValueError, OverflowError):
            rows = np.zeros(0)
        if rows.ndim != 2 or rows.shape[1] != dimension or len(rows) == 0:
            wanted, got = f"an array of real numbers (n, {dimension}), n at least 1", shown(points[key])
            raise ValueError(f"{argument}[{key!r}]: give {wanted}, not {got}.")
        if not np.all(np.isfinite(rows)):
            first = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
            raise ValueError(f"{argument}[{key!r}]: point number {first} is NaN, infinite or masked; leave it out.")
        region = condition.region
        if region.is_cloud:
            if not np.array_equal(rows, region.cloud):
                raise ValueError(f"{argument}[{key!r}]: the condition is on given points; pass exactly those.")
        else:
            inside = np.any([_on_face(piece, rows) for piece in region.pieces if isinstance(piece, Face)], axis=0)
            if not inside.all():
                at = describe(problem.domain, rows[int(np.flatnonzero(~inside)[0])])
                raise ValueError(f"{argument}[{key!r}]: the point {at} is not in the condition's region.")
        checked[key] = rows
    return checked


def _check_names(problem: Problem, given: Mapping[str, Any], argument: str) -> None:
    for key in given:
        if key not in problem.conditions:
            known = ", ".join(problem.conditions)
            raise ValueError(f"{argument}: there is no condition {key!r}; the conditions are: {known}.")


def _on_face(face: Face, rows: np.ndarray) -> np.ndarray:
    domain, fixed = face.domain, dict(face.fixed)
    inside = np.ones(len(rows), dtype=bool)
    for index, (name, low, high) in enumerate(zip(domain.names, domain.lows, domain.highs, strict=True)):
        first, last = (fixed[name], fixed[name]) if name in fixed else (low, high)
        slack = 1e-9 * (high - low)
        inside &= (rows[:, index] >= first - slack) & (rows[:, index] <= last + slack)
    return inside


def checked_weights(problem: Problem, weights: Any, scales: Mapping[str, float]) -> dict[str, float]:
    """Give the weights by condition: the given ones, or those that follow from the scales."""
    if weights is None:
        return {key: 1.0 / scale**2 for key, scale in scales.items()}
    if not isinstance(weights, Mapping):
        raise TypeError(f"weights: give one number for each condition, by name, not {shown(weights)}.")
    _check_names(problem, weights, "weights")
    checked = {}
    for key in problem.conditions:
        if key not in weights:
            raise ValueError(f"weights: the condition {key!r} is missing.")
        value = weights[key]
        if isinstance(value, (np.ndarray, jax.Array)) and value.ndim == 0:
            value = value.item()
        if not (is_real(value) and value >= 0):
            raise ValueError(f"weights[{key!r}]={shown(value)}: a weight must be a finite number of at least 0.")
        checked[key] = float(value)
    if not any(checked.values()):
        raise ValueError("weights: all of them are 0, so that nothing would be solved; give a positive one.")
    return checked
