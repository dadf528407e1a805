"""Frequencies found from the equation's own residual: locate, prune, thicken.

Locate: candidates drawn over all scales, scored by their correlation with the current residual, and improved one
axis at a time. Prune: a damped solve over all located centres keeps those with the most energy. Thicken: the
frequencies are drawn around the kept centres, solved for, and judged by held-out points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.assembly import Data, condition_rows, condition_scales, make_data, num_columns, row_scales, system, value_rows
from ifef.calculus import float64
from ifef.features import FourierFeatures, fourier_features, unknown_sizes
from ifef.frequencies import point_counts, relative_residual
from ifef.lower import LeastSquares, finish, summarise
from ifef.problem import Problem
from ifef.sampling import generator

# Frequencies here are angular and act on inputs in [-1, 1]; a box side holds k / pi wavelengths.
_LEAST, _MOST = 0.3, 300.0
_CANDIDATES, _POOLS, _PICKS = 3200, 3, 15
_VARIATIONS = 20
CENTRES, SEARCHED = 60, 400
"""Kept centres, and frequencies drawn around them."""

_SPREAD = (0.3, 6.0)
# Factors of the weights of equations and of data, for the first picks and then for every sweep over the axes. Either
# side may have to pull alone before both can: data that see one axis only are then bent towards the equation.
_COURSES = (
    ((0.0, 1.0), (0.03, 1.0), (0.3, 1.0), (1.0, 1.0)),
    ((1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0)),
    ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
)
_LOCATED = _POOLS * _PICKS  # by every course
_EQUATION_POINTS, _DATA_POINTS = 600, 400
_DAMPING = 1e-6
_WILD = 1e6  # |theta| of a solution whose residual shows its own overfitting rather than what is missing
_DONE = 1e-13
_TRUSTED = 0.3  # held-out residual below which the solution tells its own size


@dataclass(frozen=True)
class Found:
    """Frequencies B (D, dim) in cycles, as `FourierFeatures` takes them, and what they left on held-out points."""

    frequencies: np.ndarray
    held_out: float
    norm: float


@eqx.filter_jit
def _scores(features: FourierFeatures, data: Data, residual: Mapping[str, Any], scales: Mapping[str, Any]) -> jax.Array:
    """Part of the residual's square that each frequency's columns could take, one at a time."""
    theta = jnp.zeros(num_columns(features, data))
    products, squares = jnp.zeros_like(theta), jnp.zeros_like(theta)
    for key, right in residual.items():
        block = scales[key] * condition_rows(features, data, key, theta)[:, :-1]
        products += block.T @ (scales[key] * right)
        squares += jnp.sum(jnp.square(block), axis=0)
    parts = jnp.square(products) / jnp.where(squares > 0, squares, 1.0)
    return _by_frequency(features, data, parts)


def _by_frequency(features: FourierFeatures, data: Data, columns: jax.Array) -> jax.Array:
    """Sum a quantity over the columns that share a frequency, over all unknowns."""
    total, start, unknowns = jnp.zeros(features.num_frequencies), 0, data.problem[1]
    for unknown, size in zip(unknowns, unknown_sizes(features, unknowns), strict=True):
        if not unknown.scalar:
            total += jnp.sum(columns[start : start + size].reshape(-1, features.num_frequencies), axis=0)
        start += size
    return total


@eqx.filter_jit
def _pursue(features: FourierFeatures, data: Data, residual: Mapping[str, Any], scales: Mapping[str, Any]) -> jax.Array:
    """Pick frequencies one by one, each for what the ones before it leave (orthogonal matching pursuit).

    By score alone the strongest wave fills the list with its neighbours, and the others are never looked at.
    """
    theta = jnp.zeros(num_columns(features, data))
    rows = jnp.concatenate([scales[key] * condition_rows(features, data, key, theta)[:, :-1] for key in residual])
    right = jnp.concatenate([scales[key] * values for key, values in residual.items()])
    squares = jnp.sum(jnp.square(rows), axis=0)
    squares = jnp.where(squares > 0, squares, 1.0)
    columns = _columns_of(features, data)

    def pick(step: int, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        chosen, basis, left = state
        best = jnp.argmax(_by_frequency(features, data, jnp.square(left @ rows) / squares))
        group = rows[:, columns[best]]
        for _ in range(2):  # once more, for rounding
            group = group - basis @ (basis.T @ group)
        group = jnp.linalg.qr(group)[0]
        basis = jax.lax.dynamic_update_slice(basis, group, (0, step * columns.shape[1]))
        return chosen.at[step].set(best), basis, left - group @ (group.T @ left)

    basis = jnp.zeros((len(right), _PICKS * columns.shape[1]))
    return jax.lax.fori_loop(0, _PICKS, pick, (jnp.zeros(_PICKS, dtype=int), basis, right))[0]


def _columns_of(features: FourierFeatures, data: Data) -> jax.Array:
    """Columns that belong to each frequency, (frequencies, columns), over all unknowns."""
    groups, start, unknowns = [], 0, data.problem[1]
    for unknown, size in zip(unknowns, unknown_sizes(features, unknowns), strict=True):
        if not unknown.scalar:
            groups.append(np.arange(start, start + size).reshape(-1, features.num_frequencies).T)
        start += size
    return jnp.asarray(np.concatenate(groups, axis=1))


@eqx.filter_jit
def _right_hand_sides(features: FourierFeatures, data: Data, theta: jax.Array) -> dict[str, jax.Array]:
    """What is left of target - operator(u) by condition, unscaled."""
    rows = {key: condition_rows(features, data, key, theta) for key in data.points}
    return {key: block[:, -1] - block[:, :-1] @ theta for key, block in rows.items()}


@eqx.filter_jit
def _damped(features: FourierFeatures, data: Data, scales: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
    """Give a damped least-squares solution, and the energy of each frequency in it."""
    rows = system(features, data, jnp.zeros(num_columns(features, data)), scales)
    matrix, right = rows[:, :-1], rows[:, -1]
    norms = jnp.linalg.norm(matrix, axis=0)
    scaled = matrix / jnp.where(norms > 0, norms, 1.0)
    left, values, across = jnp.linalg.svd(scaled, full_matrices=False)
    theta = across.T @ (values / (jnp.square(values) + _DAMPING * jnp.square(values[0])) * (left.T @ right))
    return theta / jnp.where(norms > 0, norms, 1.0), _by_frequency(features, data, jnp.square(theta))


class _Search:
    """The state of one search: what is drawn, what is known, and the current residual."""

    def __init__(self, problem: Problem, num: int, seed: int):
        self.problem, self.num = problem, num
        self.dimension = len(problem.domain.names)
        self.rng = generator(seed, "search")
        columns = 2 * (num + CENTRES) * len(problem.unknowns)
        counts = point_counts(problem, columns)
        few = {
            key: min(count, _EQUATION_POINTS if condition.region.is_full else _DATA_POINTS)
            for (key, condition), count in zip(problem.conditions.items(), counts.values(), strict=True)
        }
        self.few = make_data(problem, problem.sample(few, seed=seed + 1))
        self.train = make_data(problem, problem.sample(counts, seed=seed))
        held = {key: count // 3 for key, count in counts.items()}
        self.held = make_data(problem, problem.sample(held, sampler="uniform", seed=seed + 2))
        self.centres = np.zeros((0, self.dimension))
        self.unit: float | None = None
        self.weights = self._weights(self.draw(CENTRES))
        empty = self.features(np.zeros((1, self.dimension)))
        self.residual = _right_hand_sides(empty, self.few, jnp.zeros(num_columns(empty, self.few)))

    def features(self, angular: np.ndarray, *, enlarged: bool = False) -> FourierFeatures:
        """Features of the inputs at these angular frequencies."""
        table = angular / (2.0 * np.pi)
        return fourier_features(self.problem, frequencies=table, backbone=(), enlarged=enlarged)

    def _weights(self, angular: np.ndarray) -> dict[str, float]:
        scales = condition_scales(self.features(angular), self.few, self.unit)
        return {key: 1.0 / scale**2 for key, scale in scales.items()}

    def magnitudes(self, num: int) -> np.ndarray:
        """One coordinate of frequencies: log-uniform, of either sign, sometimes zero."""
        sizes = np.exp(self.rng.uniform(np.log(_LEAST), np.log(_MOST), num))
        return sizes * self.rng.choice([-1.0, 1.0], num) * (self.rng.random(num) > 0.1)

    def draw(self, num: int) -> np.ndarray:
        """Frequencies over all scales, each axis by itself."""
        return np.stack([self.magnitudes(num) for _ in range(self.dimension)], axis=1)

    def _scales(self, temper: tuple[float, float] = (1.0, 1.0)) -> dict[str, Any]:
        scales = row_scales(self.few, {key: jnp.asarray(value) for key, value in self.weights.items()})
        return {key: value * temper[key not in self.few.equations] for key, value in scales.items()}

    def scores(self, angular: np.ndarray, temper: tuple[float, float]) -> np.ndarray:
        """Scores of candidates with the weights of equations and data tempered."""
        return np.asarray(_scores(self.features(angular), self.few, self.residual, self._scales(temper)))

    def locate(self) -> np.ndarray:
        """Candidates from every course, improved by coordinate search, (LOCATED, dim)."""
        candidates = self.draw(_POOLS * _CANDIDATES)
        if len(self.centres):
            half = len(candidates) // 2
            near = self.centres[self.rng.integers(0, len(self.centres), half)]
            spread = np.exp(self.rng.uniform(np.log(0.3), np.log(20.0), (half, 1)))
            candidates[:half] = near + spread * self.rng.normal(size=near.shape)
            self.rng.shuffle(candidates)
        located = []
        for first, *then in _COURSES:
            pools = np.split(candidates, _POOLS)
            current = np.concatenate([pool[self.pursue(pool, first)] for pool in pools])
            for temper in then:
                for axis in range(self.dimension):
                    current = self._improve(current, axis, temper)
            located.append(current)
        return np.concatenate(located)

    def pursue(self, angular: np.ndarray, temper: tuple[float, float]) -> np.ndarray:
        """Indices of the candidates that matching pursuit picks."""
        return np.asarray(_pursue(self.features(angular), self.few, self.residual, self._scales(temper)))

    def _improve(self, current: np.ndarray, axis: int, temper: tuple[float, float]) -> np.ndarray:
        """Try other values of one coordinate for each candidate, new ones and near ones, and keep the best."""
        tried = np.repeat(current, _VARIATIONS, axis=0)
        num = len(tried)
        spread = np.exp(self.rng.uniform(np.log(0.1), np.log(30.0), num))
        near = tried[:, axis] + spread * self.rng.normal(size=num)
        tried[:, axis] = np.where(np.arange(num) % 2 == 0, self.magnitudes(num), near)
        tried[::_VARIATIONS] = current
        scores = self.scores(tried, temper).reshape(len(current), _VARIATIONS)
        return tried.reshape(len(current), _VARIATIONS, self.dimension)[np.arange(len(current)), scores.argmax(axis=1)]

    def prune(self, located: np.ndarray) -> np.ndarray:
        """Keep the centres with the most energy; give the chance of each to be thickened."""
        every = np.concatenate([self.centres, located])
        if self.unit is None:
            # The size of u that an equation's source implies is that of the frequencies which the source contains.
            self.weights = self._weights(located[_LOCATED : _LOCATED + 5])
        else:
            self.weights = self._weights(every)
        padded = np.resize(every, (_LOCATED * len(_COURSES) + CENTRES, self.dimension))  # one shape compiles once
        features = self.features(padded)
        theta, energies = _damped(features, self.few, self._scales())
        self.calm = _right_hand_sides(features, self.few, theta)
        energies = np.asarray(energies)[: len(every)]
        order = np.argsort(-energies)[:CENTRES]
        self.centres = every[order]
        chances = np.sqrt(np.maximum(energies[order], 1e-300))
        return chances / chances.sum()

    def thicken(self, chances: np.ndarray) -> np.ndarray:
        """The centres and, around them, as many frequencies as asked for."""
        around = self.centres[self.rng.choice(len(self.centres), self.num, p=chances)]
        spread = np.exp(self.rng.uniform(np.log(_SPREAD[0]), np.log(_SPREAD[1]), (self.num, 1)))
        return np.concatenate([self.centres, around + spread * self.rng.normal(size=around.shape)])

    def solve(self, angular: np.ndarray) -> Found:
        """Solve with these frequencies, judge on held-out points, and keep the residual for the next round."""
        if self.unit is not None:
            self.weights = self._weights(angular)
        weights = {key: jnp.asarray(value) for key, value in self.weights.items()}
        features = self.features(angular, enlarged=True)
        lower = LeastSquares()
        theta = jnp.zeros(num_columns(features, self.train))
        scales = row_scales(self.train, weights)
        theta = finish(lower, summarise(lower, features, self.train, theta, scales, None)).theta
        norm = float(jnp.linalg.norm(theta))
        self.residual = _right_hand_sides(features, self.few, theta) if norm < _WILD else self.calm
        held_out = float(relative_residual(features, self.held, theta, weights))
        if held_out < _TRUSTED:
            values = value_rows(features, self.problem.unknowns, self.few.points[self.few.equations[0]]) @ theta
            self.unit = float(jnp.sqrt(jnp.mean(jnp.square(values))))
        return Found(angular / (2.0 * np.pi), held_out, norm)


def search(
    problem: Problem,
    *,
    num: int = SEARCHED,
    rounds: int = 4,
    seed: int = 0,
    going_on: Callable[[Found], bool] = lambda _: True,
) -> Found:
    """Find frequencies for a linear problem; the round with the lowest held-out residual wins."""
    with float64():
        state = _Search(problem, num, seed)
        best: Found | None = None
        for _ in range(rounds):
            chances = state.prune(state.locate())
            found = state.solve(state.thicken(chances))
            if best is None or found.held_out < best.held_out:
                best = found
            if best.held_out < _DONE or not going_on(best):
                break
        assert best is not None
        return best
