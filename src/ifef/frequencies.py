"""Where B comes from when nobody says: bandwidths per axis, found by held-out residual at few columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.assembly import Data, condition_scales, make_data, num_columns, residuals, row_scales, system
from ifef.calculus import float64
from ifef.features import FourierFeatures, fourier_features, gaussian
from ifef.lower import LeastSquares
from ifef.problem import Problem

_START = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # bandwidths of the first sweep, cycles per half side of the box
_FACTORS = (2.0, 1.4)  # coordinate moves after it, coarse then fine
_RESOLVED = 0.3  # held-out residual above which a trial says nothing of the bandwidth: more columns are needed


def point_counts(problem: Problem, num_columns: int, rows_per_column: float = 3.0) -> dict[str, int]:
    """Points for every condition: full-dimensional ones share the rows, faces get many a side.

    A face is cheap, and what happens on it (eighty periods of an initial condition) has to be seen.
    """
    dimension = len(problem.domain.names)
    full = sum(condition.region.dimension == dimension for condition in problem.conditions.values())
    counts = {}
    for key, condition in problem.conditions.items():
        part = condition.region.dimension / dimension
        many = rows_per_column * num_columns / max(full, 1)
        counts[key] = 50 + int(many if part == 1 else min(12.0 * num_columns**part, num_columns))
    return counts


@eqx.filter_jit
def _trial(features: FourierFeatures, data: Data, held: Data, weights: Mapping[str, Any]) -> jax.Array:
    """Held-out residual of the least-squares solution, relative to that of zero."""
    lower = LeastSquares()
    zero = jnp.zeros(num_columns(features, data))
    theta = lower.finish(lower.first(system(features, data, zero, row_scales(data, weights)))).theta
    return relative_residual(features, held, theta, weights)


@eqx.filter_jit
def relative_residual(features: FourierFeatures, data: Data, theta: jax.Array, weights: Mapping[str, Any]) -> jax.Array:
    """Weighted residual relative to that of zero."""

    def size(coefficients: jax.Array) -> jax.Array:
        values = residuals(features, data, coefficients)
        return sum((weights[key] * jnp.mean(jnp.square(one)) for key, one in values.items()), jnp.zeros(()))

    return jnp.sqrt(size(theta) / size(jnp.zeros_like(theta)))


class _Trials:
    """Held-out residual as a function of the bandwidths, at a fixed number of frequencies and fixed weights."""

    def __init__(self, problem: Problem, num: int, seed: int):
        self.problem, self.num, self.seed = problem, num, seed
        columns = 2 * num * len(problem.unknowns)
        dimension = len(problem.domain.names)
        self.data = make_data(problem, problem.sample(point_counts(problem, columns), seed=seed))
        fewer = {key: count // 2 for key, count in point_counts(problem, columns).items()}
        self.held = make_data(problem, problem.sample(fewer, sampler="uniform", seed=seed + 1))
        middle = fourier_features(problem, num, sigma=2.0, backbone=(), seed=seed)
        # Residuals compare only under one set of weights, so these are found once, at a middling bandwidth.
        self.weights = {key: 1.0 / scale**2 for key, scale in condition_scales(middle, self.data).items()}
        self.unit = gaussian(num, dimension, 1.0, seed=seed)
        self.features = middle
        self.known: dict[tuple[float, ...], float] = {}

    def __call__(self, sigma: tuple[float, ...]) -> float:
        """Held-out residual at these bandwidths, infinite where it is not finite."""
        rounded = tuple(round(one, 6) for one in sigma)
        if rounded not in self.known:
            with float64():
                table = jnp.asarray(self.unit * np.array(sigma))
                features = eqx.tree_at(lambda one: one.frequencies, self.features, table)
                weights = {key: jnp.asarray(value) for key, value in self.weights.items()}
                value = float(_trial(features, self.data, self.held, weights))
            self.known[rounded] = value if np.isfinite(value) else np.inf
        return self.known[rounded]


def find_bandwidths(
    problem: Problem,
    *,
    seed: int = 0,
    num: int = 150,
    largest: int = 600,
    going_on: Callable[[], bool] = lambda: True,
) -> tuple[float, ...]:
    """Bandwidth per axis for a linear problem: a sweep of equal ones, then coordinate moves, while they pay.

    Where no bandwidth leaves less than most of the residual, the trial is repeated with twice the frequencies.
    """
    dimension = len(problem.domain.names)
    while True:
        trials = _Trials(problem, num, seed)
        best = min(((sigma,) * dimension for sigma in _START), key=trials)
        best = _moved(trials, best, going_on)
        if trials(best) < _RESOLVED or 2 * num > largest or not going_on():
            return best
        num *= 2


def _moved(trials: _Trials, best: tuple[float, ...], going_on: Callable[[], bool]) -> tuple[float, ...]:
    """Improve one axis at a time by the factors, until a whole round changes nothing."""
    for factor in _FACTORS:
        changed = True
        while changed and going_on():
            changed = False
            for axis in range(len(best)):
                for ratio in (factor, 1.0 / factor):
                    other = tuple(one * ratio if index == axis else one for index, one in enumerate(best))
                    if 0.02 <= other[axis] <= 200.0 and trials(other) < 0.97 * trials(best):
                        best, changed = other, True
                        break
    return best
