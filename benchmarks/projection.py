"""Backbones of few parameters, and their training by variable projection, for `trained_backbone.py`.

theta is solved for by orthogonal factorisation; a step on the backbone is Levenberg-Marquardt's on the residual that is
left, with Kaufman's approximation of its derivative: that of the residual at fixed theta, projected.
"""

from __future__ import annotations

import math
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.flatten_util import ravel_pytree

from ifef import Problem
from ifef.assembly import Data, make_data, residuals
from ifef.features import MLP, FourierFeatures
from ifef.lower import LeastSquares
from ifef.spectra import unsigned
from ifef.tiles import system_of, values_of
from ifef.trials import Trials, point_counts


class Level(eqx.Module):
    """h = (asinh phi(x), x), phi in Chebyshev polynomials up to a degree; its size is the inverse width."""

    table: jax.Array
    degree: jax.Array
    scale: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        """Evaluate at a scaled point (2,), giving (3,)."""
        order = jnp.arange(len(self.table))
        waves = _chebyshev(x, len(order))
        table = jnp.where(jax.lax.stop_gradient(order[:, None] + order <= self.degree), self.table, 0.0)
        level = jnp.arcsinh(waves[:, 0] @ table @ waves[:, 1])
        return jnp.concatenate([jax.lax.stop_gradient(self.scale) * level[None], x])


def _chebyshev(x: jax.Array, num: int) -> jax.Array:
    rows = [jnp.ones_like(x), x]
    while len(rows) < num:
        rows.append(2.0 * x * rows[-1] - rows[-2])
    return jnp.stack(rows)


class Axes(eqx.Module):
    """h = asinh(M x + b) for each of several peaks: a frame, a centre and widths apiece."""

    matrix: jax.Array
    offset: jax.Array
    scale: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        """Evaluate at a scaled point (n,), giving (peaks n,)."""
        return jax.lax.stop_gradient(self.scale) * jnp.arcsinh(self.matrix @ x + self.offset).reshape(-1)


def normalised(backbone: Any) -> Any:
    """Scale the warped coordinates to [-1, 1], so that periods mean what they do for the inputs."""
    dimension = 2 if isinstance(backbone, Level) else backbone.matrix.shape[-1]
    sides = np.meshgrid(*[np.linspace(-1.0, 1.0, 41)] * dimension)
    bare = eqx.tree_at(lambda one: one.scale, backbone, jnp.ones_like(backbone.scale))
    sizes = jnp.max(jnp.abs(jax.vmap(bare)(jnp.stack([side.ravel() for side in sides], axis=1))), axis=0)
    return eqx.tree_at(lambda one: one.scale, backbone, 1.0 / (sizes[0] if isinstance(backbone, Level) else sizes))


def lattice(radii: tuple[float, ...], period: float, power: float = 2.0, peaks: int = 1) -> np.ndarray:
    """Frequencies in an ellipsoid (power 2) or a diamond (1), of each peak's coordinates by themselves."""
    spacing = math.pi / period
    axes = [spacing * np.arange(-int(r / spacing), int(r / spacing) + 1) for r in radii]
    table = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(radii))
    table = unsigned(table[np.sum(np.abs(table / np.array(radii)) ** power, axis=1) <= 1.0 + 1e-9])
    n = len(radii)
    return np.concatenate([np.pad(table, ((0, 0), (n * j, n * (peaks - 1 - j)))) for j in range(peaks)])


@eqx.filter_jit
def _density(backbone: Any, x: jax.Array) -> jax.Array:
    slopes = jax.vmap(jax.jacfwd(backbone))(x)
    return jnp.sqrt(jnp.linalg.det(jnp.einsum("pij,pik->pjk", slopes, slopes)))


@eqx.filter_jit
def _slopes(features: FourierFeatures, data: Data, theta: jax.Array, scales: dict[str, float]) -> dict[str, jax.Array]:
    """Derivative of the scaled residuals in the backbone at fixed theta: one reverse pass a point, however many."""
    numbers, rest = eqx.partition(features.backbone, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(numbers)
    blocks = {}
    for key, operator in data.operators.items():

        def one(pair: Any, key: str = key, operator: Any = operator) -> jax.Array:
            here = {key: pair[0][None]}, {key: pair[1][None]}

            def residual(omega: jax.Array) -> jax.Array:
                moved = eqx.tree_at(lambda f: f.backbone, features, eqx.combine(unravel(omega), rest))
                return residuals(moved, Data(data.problem, (), {key: operator}, *here), theta)[key][0]

            return jax.grad(residual)(flat)

        blocks[key] = scales[key] * jax.lax.map(one, (data.points[key], data.targets[key]), batch_size=128)
    return blocks


class Bench:
    """One problem, one seed: solves and training by variable projection, judged on the same uniform points.

    The clock begins with empty caches of compiled programs.
    """

    def __init__(self, case: str, problem: Problem, seed: int):
        jax.clear_caches()
        self.began, self.case, self.problem, self.seed = time.perf_counter(), case, problem, seed
        self.runs: list[dict[str, Any]] = []
        self.trials = Trials(problem, seed)
        self.dimension = self.trials.dimension
        full = {key: one.region.dimension == self.dimension for key, one in self.problem.conditions.items()}
        counts = {key: 3000 if inside else 600 for key, inside in full.items()}
        self.held = make_data(self.problem, self.problem.sample(counts, sampler="uniform", seed=seed + 1))

    def features(self, backbone: Any, angular: np.ndarray) -> FourierFeatures:
        """Waves of the backbone's output; of tanh units, these themselves too."""
        norm = np.asarray(1.0 / math.sqrt(len(angular)))
        units = isinstance(backbone, MLP)
        return FourierFeatures(backbone, self.problem.domain, angular / (2.0 * np.pi), units, (), norm)

    def scaled(self, points: np.ndarray) -> np.ndarray:
        """Points in [-1, 1] per axis."""
        low, high = np.array(self.problem.domain.lows), np.array(self.problem.domain.highs)
        return (2.0 * points - low - high) / (high - low)

    def data(self, backbone: Any, columns: int, oversampling: float, draw: int) -> Data:
        """Points, half of them as dense as the backbone's output is."""
        counts = point_counts(self.problem, columns, oversampling)
        pool = self.problem.sample({key: 8 * count for key, count in counts.items()}, seed=self.seed + draw)
        rng, points = np.random.default_rng(self.seed + draw), {}
        for key, count in counts.items():
            dense = np.asarray(_density(backbone, jnp.asarray(self.scaled(pool[key]))))
            chance = 0.5 + 0.5 * dense / dense.mean()
            chosen = rng.choice(len(dense), min(count, len(dense)), replace=False, p=chance / chance.sum())
            points[key] = pool[key][chosen]
        return make_data(self.problem, points)

    def solve(self, backbone: Any, angular: np.ndarray, method: str = "", **facts: Any) -> dict[str, Any]:
        """A solve as a run to store; its error is taken beside the clock."""
        started, lower, features = time.perf_counter(), LeastSquares(), self.features(backbone, angular)
        data = self.data(backbone, features.size, 2.6, 0)
        theta = np.asarray(lower.finish(lower.first(system_of(features, data, self.trials.scales(data)))).theta)
        run = {"case": self.case, "method": method, "seed": self.seed, "columns": features.size, **facts}
        run["held_out"] = self.trials.judge(features, theta, self.held)
        now = time.perf_counter()
        run |= {"seconds": now - self.began, "solve_seconds": now - started}
        if method:
            sides = zip(self.problem.domain.lows, self.problem.domain.highs, strict=True)
            grid = np.meshgrid(*[np.linspace(*side, 101) for side in sides], indexing="ij")
            points = np.stack([axis.ravel() for axis in grid], axis=1)
            exact = self.problem.exact_values(points)["u"]
            values = values_of(features, self.problem.unknowns, points)[0] @ theta
            run["error"] = float(np.linalg.norm(values - exact) / np.linalg.norm(exact))
            self.runs.append(run)
            print(" ".join(f"{v:.2g}" if isinstance(v, float) else str(v) for v in run.values()), flush=True)
            self.began += time.perf_counter() - now
        return run

    def project(self, backbone: Any, angular: np.ndarray, data: Data) -> tuple[Any, ...]:
        """Basis of the columns' span, theta, what is left, and its part; damped, so that none of it is rounding."""
        rows = system_of(self.features(backbone, angular), data, self.trials.scales(data))
        matrix, right = rows[:, :-1], rows[:, -1]
        norms = np.linalg.norm(matrix, axis=0)
        norms = np.where(norms > 0, norms, 1.0)
        stacked = np.concatenate([matrix / norms, 1e-9 * np.eye(len(norms))])
        basis, factor = np.linalg.qr(stacked)
        basis = basis[: len(right)]
        theta = scipy.linalg.solve_triangular(factor, basis.T @ right) / norms
        left = right - basis @ (basis.T @ right)
        return basis, theta, left, float(np.linalg.norm(left) / np.linalg.norm(right))

    def train(self, backbone: Any, angular: np.ndarray, steps: int, draw: int, oversampling: float = 5.0) -> Any:
        """Levenberg-Marquardt on the backbone, theta projected out."""
        numbers, rest = eqx.partition(backbone, eqx.is_inexact_array)
        omega, unravel = ravel_pytree(numbers)
        data = self.data(backbone, self.features(backbone, angular).size, oversampling, draw)
        state, damping = self.project(backbone, angular, data), 1e-2
        for _ in range(steps):
            basis, theta, left, cost = state
            features = self.features(backbone, angular)
            blocks = _slopes(features, data, jnp.asarray(theta), self.trials.scales(data))
            slopes = np.concatenate([blocks[key] for key in data.points])  # a program sorts the names
            slopes = slopes - basis @ (basis.T @ slopes)
            sizes = np.linalg.norm(slopes, axis=0)
            sizes = np.where(sizes > 0, sizes, 1.0)
            for _ in range(6):
                damped = np.concatenate([slopes / sizes, math.sqrt(damping) * np.eye(len(sizes))])
                change = np.linalg.lstsq(damped, np.pad(left, (0, len(sizes))), rcond=None)[0] / sizes
                moved = eqx.combine(unravel(omega + change), rest)
                state = self.project(moved, angular, data)
                if state[-1] < cost:
                    break
                damping *= 4.0
            else:
                break
            backbone, omega, damping = moved, omega + change, max(damping / 4.0, 1e-9)
            if state[-1] > 0.98 * cost:
                break
        return backbone
