"""theta*(omega): the lower level. Rank-revealing least squares, the paper's ridge, and Gauss-Newton on top of either.

A strategy sees the rows [A b] only through a summary of fixed size, (n + 1) x (n + 1), to which blocks of rows are
added one by one: a triangular factor for least squares, the Gram matrix for the ridge.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ifef.assembly import Data, loss, num_columns, num_rows, residuals, row_blocks, row_scales, system
from ifef.calculus import float64
from ifef.checks import is_real
from ifef.features import Features


class LowerResult(eqx.Module):
    """Coefficients and what is known of the system that gave them."""

    theta: jax.Array
    rank: jax.Array
    condition: jax.Array
    residual: jax.Array
    """|A theta - b|, the square root of the training loss."""
    factor: jax.Array
    """Upper triangular T with T^T T the (scaled, permuted, truncated) matrix of the normal equations."""
    order: jax.Array
    norms: jax.Array
    kept: jax.Array

    def gain(self, values: jax.Array) -> jax.Array:
        """Rows of `values` (k, n) times the inverse of the factor: the response of values to unit residuals."""
        scaled = (values / self.norms[None])[:, self.order] * self.kept[None]
        return jax.scipy.linalg.solve_triangular(self.factor, scaled.T, trans="T") * self.kept[:, None]

    def inverse(self, gradient: jax.Array) -> jax.Array:
        """Apply the inverse of half the Hessian, (A^T A)^-1 on the kept columns, to a vector (n,)."""
        inner = self.gain(gradient[None])[:, 0]
        outer = jax.scipy.linalg.solve_triangular(self.factor, inner) * self.kept
        return jnp.zeros_like(gradient).at[self.order].set(outer) / self.norms


class AbstractLower(eqx.Module):
    """How theta is found for fixed features. `weights` overrides the shared weights below (the paper's lambda_LL)."""

    weights: eqx.AbstractVar[Mapping[str, float] | None]

    @abc.abstractmethod
    def start(self, columns: int) -> jax.Array:
        """Give the summary of no rows, (columns + 1, columns + 1)."""

    @abc.abstractmethod
    def add(self, summary: jax.Array, block: jax.Array) -> jax.Array:
        """Add a block of rows [A b] to the summary."""

    @abc.abstractmethod
    def first(self, block: jax.Array) -> jax.Array:
        """Summarise a first block: the same as adding it to nothing, at less cost."""

    @abc.abstractmethod
    def restrict(self, summary: jax.Array, keep: jax.Array) -> jax.Array:
        """Give the summary of the same rows with some of the columns only."""

    @abc.abstractmethod
    def finish(self, summary: jax.Array) -> LowerResult:
        """Solve."""


def _triangle(block: jax.Array) -> jax.Array:
    """Triangular factor (n + 1, n + 1) of a block of rows, with zero rows where there are fewer rows."""
    factor = jnp.linalg.qr(block, mode="r")
    missing = block.shape[1] - factor.shape[0]
    return jnp.pad(factor, ((0, max(missing, 0)), (0, 0)))


class LeastSquares(AbstractLower):
    """Rank-revealing orthogonal least squares: the condition number is never squared.

    Columns are scaled to unit norm after the factorisation, which Householder's is indifferent to. Columns whose
    pivot is below `cut` times the first are left out (a basic solution: it was as accurate as the least-norm one).
    """

    cut: float = 3e-15
    weights: Mapping[str, float] | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        if not (is_real(self.cut) and 0 <= self.cut < 1):
            raise ValueError(f"LeastSquares(cut={self.cut!r}): the cut must be at least 0 and below 1, such as 3e-15.")

    def start(self, columns: int) -> jax.Array:
        """Give an empty triangle."""
        return jnp.zeros((columns + 1, columns + 1))

    def add(self, summary: jax.Array, block: jax.Array) -> jax.Array:
        """Refactor the triangle with the block below it."""
        return _triangle(jnp.concatenate([summary, block]))

    def first(self, block: jax.Array) -> jax.Array:
        """Factor the block."""
        return _triangle(block)

    def restrict(self, summary: jax.Array, keep: jax.Array) -> jax.Array:
        """Factor the remaining columns anew."""
        return _triangle(summary[:, jnp.append(keep, summary.shape[1] - 1)])

    def finish(self, summary: jax.Array) -> LowerResult:
        """Pivot the scaled triangle, cut, and solve by back substitution."""
        matrix, right = summary[:-1, :-1], summary[:-1, -1]
        norms = jnp.linalg.norm(matrix, axis=0)
        norms = jnp.where(norms > 0, norms, 1.0)
        _, pivoted, order = jax.scipy.linalg.qr(matrix / norms[None], mode="economic", pivoting=True)
        # A second, unpivoted factorisation carries the right-hand side along: cheaper than forming Q.
        again = jnp.linalg.qr(jnp.concatenate([(matrix / norms[None])[:, order], right[:, None]], axis=1), mode="r")
        pivots = jnp.abs(jnp.diagonal(pivoted))
        kept = (pivots > self.cut * pivots[0]) & (pivots > 0)
        kept = jnp.cumprod(kept).astype(bool)
        factor = jnp.where(kept[:, None] & kept[None, :], again[:, :-1], jnp.eye(len(kept)))
        solved = jax.scipy.linalg.solve_triangular(factor, jnp.where(kept, again[:, -1], 0.0))
        theta = jnp.zeros_like(solved).at[order].set(jnp.where(kept, solved, 0.0)) / norms
        left_out = jnp.where(kept, 0.0, again[:, -1])
        residual = jnp.sqrt(jnp.square(summary[-1, -1]) + jnp.sum(jnp.square(left_out)))
        smallest = jnp.min(jnp.where(kept, pivots, jnp.inf))
        return LowerResult(theta, jnp.sum(kept), pivots[0] / smallest, residual, factor, order, norms, kept * 1.0)


class Ridge(AbstractLower):
    """The paper's lower level: theta = -(Q + gamma I)^-1 c by Cholesky, with Q = 2 A^T A and c = -2 A^T b."""

    gamma: float = 1e-7
    weights: Mapping[str, float] | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        if not (is_real(self.gamma) and self.gamma >= 0):
            raise ValueError(f"Ridge(gamma={self.gamma!r}): gamma must be a number of at least 0, such as 1e-7.")

    def start(self, columns: int) -> jax.Array:
        """Give an empty Gram matrix."""
        return jnp.zeros((columns + 1, columns + 1))

    def add(self, summary: jax.Array, block: jax.Array) -> jax.Array:
        """Add the block's Gram matrix."""
        return summary + block.T @ block

    def first(self, block: jax.Array) -> jax.Array:
        """Form the block's Gram matrix."""
        return block.T @ block

    def restrict(self, summary: jax.Array, keep: jax.Array) -> jax.Array:
        """Pick the remaining rows and columns."""
        both = jnp.append(keep, summary.shape[1] - 1)
        return summary[both][:, both]

    def finish(self, summary: jax.Array) -> LowerResult:
        """Solve the regularised normal equations; a failed Cholesky gives NaN and rank 0, which a status reports."""
        gram, right = summary[:-1, :-1], summary[:-1, -1]
        columns = len(right)
        regular = gram + 0.5 * self.gamma * jnp.eye(columns)  # half of the paper's Q + gamma I
        factor = jnp.linalg.cholesky(regular).T
        theta = jax.scipy.linalg.cho_solve((factor, False), right)
        value = theta @ gram @ theta - 2.0 * theta @ right + summary[-1, -1]
        pivots = jnp.diagonal(factor)
        rank = jnp.where(jnp.all(jnp.isfinite(pivots)), columns, 0)
        condition = jnp.square(jnp.max(pivots) / jnp.min(pivots))
        residual = jnp.sqrt(jnp.maximum(value, 0.0))
        ones = jnp.ones(columns)
        return LowerResult(theta, rank, condition, residual, factor, jnp.arange(columns), ones, ones)


class GaussNewton(AbstractLower):
    """Gauss-Newton for rows that depend on theta: a linear lower level on the rows at theta, with step halving."""

    inner: AbstractLower = LeastSquares()
    max_steps: int = 30
    tolerance: float = 1e-10
    """Stop when a step lowers the loss by less than this part."""
    weights: Mapping[str, float] | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        if not isinstance(self.inner, AbstractLower):
            raise TypeError(f"GaussNewton(inner=...): give LeastSquares() or Ridge(), not {type(self.inner).__name__}.")
        if isinstance(self.max_steps, bool) or not isinstance(self.max_steps, int) or self.max_steps < 1:
            raise ValueError(f"GaussNewton(max_steps={self.max_steps!r}): give a whole number of at least 1.")
        if not (is_real(self.tolerance) and self.tolerance >= 0):
            raise ValueError(f"GaussNewton(tolerance={self.tolerance!r}): give a number of at least 0, such as 1e-10.")

    def start(self, columns: int) -> jax.Array:
        """As the linear strategy."""
        return self.inner.start(columns)

    def add(self, summary: jax.Array, block: jax.Array) -> jax.Array:
        """As the linear strategy."""
        return self.inner.add(summary, block)

    def first(self, block: jax.Array) -> jax.Array:
        """As the linear strategy."""
        return self.inner.first(block)

    def restrict(self, summary: jax.Array, keep: jax.Array) -> jax.Array:
        """As the linear strategy."""
        return self.inner.restrict(summary, keep)

    def finish(self, summary: jax.Array) -> LowerResult:
        """As the linear strategy."""
        return self.inner.finish(summary)


@eqx.filter_jit
def _whole(lower: AbstractLower, features: Features, data: Data, theta: jax.Array, scales: Any) -> jax.Array:
    return lower.first(system(features, data, theta, scales))


@eqx.filter_jit(donate="none")
def _grown(
    lower: AbstractLower, summary: jax.Array, features: Features, part: Data, theta: jax.Array, scales: Any
) -> jax.Array:
    return lower.add(summary, system(features, part, theta, scales))


@eqx.filter_jit
def finish(lower: AbstractLower, summary: jax.Array) -> LowerResult:
    """Solve from a summary, compiled."""
    return lower.finish(summary)


@eqx.filter_jit
def weighted_loss(features: Features, data: Data, theta: jax.Array, weights: Any) -> jax.Array:
    """Training loss at theta, compiled."""
    return loss(residuals(features, data, theta), weights)


def summarise(
    lower: AbstractLower, features: Features, data: Data, theta: jax.Array, scales: Any, block: int | None
) -> jax.Array:
    """Assemble all rows at theta, at once or in blocks, into the lower level's summary."""
    if block is None or block >= num_rows(data):
        return _whole(lower, features, data, theta, scales)
    summary = lower.start(num_columns(features, data))
    for part in row_blocks(data, block):
        used = {key: scales[key] for key in part.points}
        summary = _grown(lower, summary, features, part, theta, used)
    return summary


def solve_lower(
    lower: AbstractLower,
    features: Features,
    data: Data,
    weights: Mapping[str, float],
    *,
    theta: jax.Array | None = None,
    block: int | None = None,
) -> tuple[LowerResult, jax.Array]:
    """Find theta*(omega); give the result and the summary of the rows at (or, if nonlinear, near) it."""
    with float64():
        used = {key: jnp.asarray(float(value)) for key, value in (lower.weights or weights).items()}
        scales = row_scales(data, used)
        start = jnp.zeros(num_columns(features, data)) if theta is None else theta
        if not isinstance(lower, GaussNewton):
            summary = summarise(lower, features, data, start, scales, block)
            return finish(lower, summary), summary
        return _gauss_newton(lower, features, data, start, used, block)


def _gauss_newton(
    lower: GaussNewton, features: Features, data: Data, theta: jax.Array, weights: Any, block: int | None
) -> tuple[LowerResult, jax.Array]:
    scales = row_scales(data, weights)
    value = float(weighted_loss(features, data, theta, weights))
    summary = summarise(lower, features, data, theta, scales, block)
    result = finish(lower, summary)
    for _ in range(lower.max_steps):
        step, part, best = result.theta - theta, 1.0, value
        while part > 1e-4:
            best = float(weighted_loss(features, data, theta + part * step, weights))
            if best < value:
                break
            part *= 0.5
        if not best < value:
            break
        theta, gained, value = theta + part * step, value - best, best
        # The rows at the last theta are wanted too: what is said of the answer rests on them.
        summary = summarise(lower, features, data, theta, scales, block)
        result = finish(lower, summary)
        if gained <= lower.tolerance * (value + gained):
            break
    return eqx.tree_at(lambda one: (one.theta, one.residual), result, (theta, jnp.sqrt(value))), summary
