"""Held-out residuals of any coefficients, and the part of them that rounding alone makes."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from ifef.assembly import Data, cast, num_columns
from ifef.calculus import precision
from ifef.features import Features
from ifef.theta import residuals_at, rows_at
from ifef.tiles import POINTS, rows_of

MOST = 4 * POINTS
"""Points of each condition at which anything is asked in float64 where the rows are in float32."""


class Judged:
    """Held-out residuals of any theta: by one matrix where rows do not depend on theta, else by the operators."""

    def __init__(self, features: Features, data: Data, weights: Mapping[str, float], *, linear: bool):
        self.features, self.data = features, data
        self.weights = {key: float(weights[key]) for key in data.points}
        self.rows = {key: rows_of(features, data, key) for key in data.points} if linear else {}
        self.zero = self.size(np.zeros(num_columns(features, data)))

    def residuals(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Unscaled residuals by condition, (rows,)."""
        if self.rows:
            return {key: rows[:, :-1] @ theta - rows[:, -1] for key, rows in self.rows.items()}
        dtype = self.data.dtype
        with precision(dtype):
            found = residuals_at(cast(self.features, dtype), self.data, jnp.asarray(theta, dtype=dtype))
            return {key: np.asarray(values) for key, values in jax.device_get(found).items()}

    def total(self, left: Mapping[str, np.ndarray]) -> float:
        """Weighted root mean square over the conditions."""
        return float(np.sqrt(sum(self.weights[key] * np.mean(np.square(values)) for key, values in left.items())))

    def size(self, theta: np.ndarray) -> float:
        """Weighted root mean square of the residual."""
        return self.total(self.residuals(theta))

    def relative(self, theta: np.ndarray) -> float:
        """The same relative to that of zero (absolute where zero already solves everything)."""
        return self.size(theta) / self.unit

    @property
    def unit(self) -> float:
        """Size of the residual of zero, or 1."""
        return self.zero if np.isfinite(self.zero) and self.zero > 0 else 1.0


def exact_rows(
    features: Features, data: Data, theta: np.ndarray, weights: Mapping[str, float], *, linear: bool
) -> dict[str, np.ndarray]:
    """Scaled rows and right-hand sides in float64 by condition, at the first points; of nonlinear ones at theta."""
    few = cast(_first(data, MOST), np.float64)
    if linear:
        found = {key: rows_of(features, few, key) for key in few.points}
    else:
        found = {key: np.asarray(rows) for key, rows in rows_at(features, few, jnp.asarray(theta)).items()}
    return {key: np.sqrt(weights[key] / len(rows)) * rows for key, rows in found.items()}


def noise(
    features: Features, pair: tuple[Data, Data], theta: np.ndarray, weights: Mapping[str, float], *, linear: bool
) -> float:
    """Relative residual that rounding alone makes: half of what changes (in squares) from points to moved ones."""
    if linear:  # a few rows are enough, and every number of points has the same programs
        pair = _first(pair[0], POINTS), _first(pair[1], POINTS)
    one, other = (Judged(features, data, weights, linear=linear) for data in pair)
    here, there = one.residuals(theta), other.residuals(theta)
    return one.total({key: (here[key] - there[key]) / np.sqrt(2.0) for key in here}) / one.unit


def _first(data: Data, num: int) -> Data:
    points, targets = ({key: rows[:num] for key, rows in parts.items()} for parts in (data.points, data.targets))
    return Data(data.problem, data.equations, data.operators, points, targets)


def cancellation(tables: list[np.ndarray], theta: np.ndarray) -> float:
    """Size of the terms of each unknown against that of their sum, of the worst: about 1 where nothing cancels."""
    worst = 0.0
    for table in tables:
        terms, total = np.linalg.norm(np.linalg.norm(table, axis=0) * theta), np.linalg.norm(table @ theta)
        worst = max(worst, float(terms / total) if total > 0 else 0.0)
    return worst


def by_point(held: Data, left: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Points and sizes of the residual by condition, one size a point for a complex one too."""
    found = {}
    for key, rows in held.points.items():
        parts = left[key].reshape(len(rows), -1)
        found[key] = np.asarray(rows), np.sqrt(np.sum(np.square(parts), axis=1))
    return found
