"""The lower level's strategies: rank-revealing least squares, the paper's ridge, and Gauss-Newton on top of either.

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
import numpy as np
import scipy.linalg

from ifef.checks import is_real

_CERTAIN = 1e-12  # singular value, of columns of unit norm, that is no rounding; asked in float64 only
_BARE = 1e-13  # the same for Gram matrices, where it is squared
_DEPENDENT = {8: 3e-15, 4: 8e-7}
"""Pivot, of columns of unit norm, that rounding alone makes, by bytes of a number: of a column twice, up to 5 units of
it. In float32, where few columns are independent, the 13 units of float64 would drop some that matter."""
_LEAST = {8: 1e-17, 4: 2.5e-7}
"""Least cut: of nothing, with which the second factorisation has full rank; in float32, of what rounding fills."""


class LowerResult(eqx.Module):
    """Coefficients and what is known of the system that gave them."""

    theta: Any
    rank: Any
    condition: Any
    residual: Any
    """|A theta - b|, the square root of the training loss."""
    factor: Any
    """Upper triangular T with T^T T the matrix of the (scaled, damped) normal equations."""
    norms: Any

    def inverse(self, gradient: Any) -> Any:
        """Apply the inverse of half the Hessian, (A^T A)^-1, to a vector (n,)."""
        inner = _solve_triangular(self.factor, gradient / self.norms, transposed=True)
        return _solve_triangular(self.factor, inner) / self.norms


class AbstractLower(eqx.Module):
    """How theta is found for fixed features. `weights` overrides the shared weights below (the paper's lambda_LL)."""

    weights: eqx.AbstractVar[Mapping[str, float] | None]

    @abc.abstractmethod
    def add(self, summary: Any, block: Any) -> Any:
        """Add a block of rows [A b] to the summary."""

    @abc.abstractmethod
    def first(self, block: Any) -> Any:
        """Summarise a first block: the same as adding it to nothing, at less cost."""

    @abc.abstractmethod
    def restrict(self, summary: Any, keep: Any) -> Any:
        """Give the summary of the same rows with some of the columns only."""

    @abc.abstractmethod
    def response(self, summary: Any, values: np.ndarray) -> np.ndarray:
        """Change of `values @ theta` by residuals of unit size (n, k), also where only rounding fixes theta."""

    @abc.abstractmethod
    def finish(self, summary: Any) -> LowerResult:
        """Solve."""


def _of(array: Any) -> Any:
    """NumPy for an array on the host, where nothing is to compile, and JAX for any other: one algorithm for both."""
    return np if isinstance(array, np.ndarray) else jnp


def _triangle(block: Any) -> Any:
    """Triangular factor (n + 1, n + 1) of a block of rows, with zero rows where there are fewer rows."""
    if isinstance(block, np.ndarray):
        full: Any = scipy.linalg.qr(block, mode="r", overwrite_a=True, check_finite=False)[0]
        factor = full[: block.shape[1]]
    else:
        factor = jnp.linalg.qr(block, mode="r")
    return _of(block).pad(factor, ((0, max(block.shape[1] - factor.shape[0], 0)), (0, 0)))


def _damped(triangle: Any, cut: float) -> Any:
    """Triangular factor of an upper triangle and a column (n, n + 1) over `cut` times the identity."""
    columns = triangle.shape[0]
    if isinstance(triangle, np.ndarray):  # LAPACK's routine for two triangles takes a fifth of the time
        above = np.asfortranarray(np.pad(triangle, ((0, 1), (0, 0))))
        below = np.asfortranarray(cut * np.eye(columns, columns + 1, dtype=triangle.dtype))
        (two_triangles,) = scipy.linalg.get_lapack_funcs(("tpqrt",), (above, below))
        return two_triangles(columns, min(columns, 32), above, below, overwrite_a=1, overwrite_b=1)[0]
    return _triangle(jnp.concatenate([triangle, cut * jnp.eye(columns, columns + 1, dtype=triangle.dtype)]))


def _solve_triangular(factor: Any, right: Any, *, transposed: bool = False) -> Any:
    if isinstance(factor, np.ndarray):
        return scipy.linalg.solve_triangular(factor, right, trans=int(transposed), check_finite=False)
    return jax.scipy.linalg.solve_triangular(factor, right, trans=int(transposed))


class LeastSquares(AbstractLower):
    """Rank-revealing orthogonal least squares: the condition number is never squared.

    Columns are scaled to unit norm after the factorisation, which Householder's is indifferent to. The scaled triangle
    is factored once more with `cut` times the identity below it: directions whose singular value is below the cut,
    which rounding has filled, are damped out, and the number of the others is the rank. Against a pivoted
    factorisation it was as accurate, at less cost.
    """

    cut: float = 1e-15
    weights: Mapping[str, float] | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        if not (is_real(self.cut) and 0 <= self.cut < 1):
            raise ValueError(f"LeastSquares(cut={self.cut!r}): the cut must be at least 0 and below 1, such as 1e-15.")

    def used_cut(self, summary: Any) -> float:
        """The cut for a summary of its precision."""
        return max(self.cut, _LEAST[summary.dtype.itemsize])

    def add(self, summary: Any, block: Any) -> Any:
        """Refactor the triangle with the block below it."""
        return _triangle(_of(block).concatenate([_of(block).asarray(summary), block]))

    def first(self, block: Any) -> Any:
        """Factor the block."""
        return _triangle(block)

    def restrict(self, summary: Any, keep: Any) -> Any:
        """Factor the remaining columns anew."""
        return _triangle(summary[:, _of(summary).append(keep, summary.shape[1] - 1)])

    def response(self, summary: Any, values: np.ndarray) -> np.ndarray:
        """By the damped triangle, with no column left out."""
        matrix = np.asarray(summary)[:-1, :-1]
        norms = np.linalg.norm(matrix, axis=0)
        norms = np.where(norms > 0, norms, 1.0)
        factor = _damped(np.pad(matrix / norms, ((0, 0), (0, 1))), _CERTAIN)[:-1, :-1]
        return _solve_triangular(factor, (values / norms).T, transposed=True)

    def finish(self, summary: Any) -> LowerResult:
        """Damp the scaled triangle, and solve by back substitution."""
        xp = _of(summary)
        matrix, right = summary[:-1, :-1], summary[:-1, -1:]
        columns, cut = len(right), self.used_cut(summary)
        norms = xp.linalg.norm(matrix, axis=0)
        norms = xp.where(norms > 0, norms, 1.0)
        # A column that depends on those before it leaves a direction of pure rounding, in which the right-hand side may
        # be large: damping would not be enough, the column goes.
        norms = xp.where(xp.abs(xp.diagonal(matrix)) > _DEPENDENT[matrix.dtype.itemsize] * norms, norms, xp.inf)
        matrix = matrix / norms[None]
        again = _damped(xp.concatenate([matrix, right], axis=1), cut)
        factor = again[:-1, :-1]
        theta = _solve_triangular(factor, again[:-1, -1])
        inverse = _solve_triangular(factor, xp.eye(columns, dtype=factor.dtype))
        # The sum of s^2 / (s^2 + cut^2) over the singular values s.
        rank = xp.round(columns - xp.sum(xp.square(cut * inverse)))
        condition = xp.linalg.norm(factor) * xp.linalg.norm(inverse) / columns
        left = matrix @ theta - right[:, 0]
        residual = xp.sqrt(xp.square(summary[-1, -1]) + xp.sum(xp.square(left)))
        return LowerResult(theta / norms, xp.nan_to_num(rank).astype(int), condition, residual, factor, norms)


class Ridge(AbstractLower):
    """The paper's lower level: theta = -(Q + gamma I)^-1 c by Cholesky, with Q = 2 A^T A and c = -2 A^T b."""

    gamma: float = 1e-7
    weights: Mapping[str, float] | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        if not (is_real(self.gamma) and self.gamma >= 0):
            raise ValueError(f"Ridge(gamma={self.gamma!r}): gamma must be a number of at least 0, such as 1e-7.")

    def add(self, summary: Any, block: Any) -> Any:
        """Add the block's Gram matrix."""
        return summary + block.T @ block

    def first(self, block: Any) -> Any:
        """Form the block's Gram matrix."""
        return block.T @ block

    def restrict(self, summary: Any, keep: Any) -> Any:
        """Pick the remaining rows and columns."""
        both = jnp.append(keep, summary.shape[1] - 1)
        return summary[both][:, both]

    def response(self, summary: Any, values: np.ndarray) -> np.ndarray:
        """With the least ridge that Cholesky's factorisation survives: gamma itself would hide what is undetermined."""
        gram = np.asarray(summary)[:-1, :-1]
        norms = np.sqrt(np.diagonal(gram))
        norms = np.where(norms > 0, norms, 1.0)
        factor = np.linalg.cholesky(gram / norms / norms[:, None] + _BARE * np.eye(len(gram))).T
        return _solve_triangular(factor, (values / norms).T, transposed=True)

    def finish(self, summary: Any) -> LowerResult:
        """Solve the regularised normal equations; a failed Cholesky gives NaN and rank 0, which a status reports."""
        gram, right = jnp.asarray(summary[:-1, :-1]), jnp.asarray(summary[:-1, -1])
        columns = len(right)
        regular = gram + 0.5 * self.gamma * jnp.eye(columns, dtype=gram.dtype)  # half of the paper's Q + gamma I
        factor = jnp.linalg.cholesky(regular).T
        theta = jax.scipy.linalg.cho_solve((factor, False), right)
        value = theta @ gram @ theta - 2.0 * theta @ right + summary[-1, -1]
        pivots = jnp.diagonal(factor)
        rank = jnp.where(jnp.all(jnp.isfinite(pivots)), columns, 0)
        condition = jnp.square(jnp.max(pivots) / jnp.min(pivots))
        residual = jnp.sqrt(jnp.maximum(value, 0.0))
        return LowerResult(theta, rank, condition, residual, factor, jnp.ones(columns, dtype=gram.dtype))


class GaussNewton(AbstractLower):
    """Gauss-Newton for rows that depend on theta: a linear lower level on the rows at theta, with step halving."""

    inner: AbstractLower = LeastSquares()
    max_steps: int = 30
    tolerance: float = 1e-10
    """Stop when a step lowers the loss by less than this part."""
    weights: Mapping[str, float] | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        if not isinstance(self.inner, AbstractLower) or isinstance(self.inner, GaussNewton):
            raise TypeError(f"GaussNewton(inner=...): give LeastSquares() or Ridge(), not {type(self.inner).__name__}.")
        if self.inner.weights is not None:
            raise ValueError(
                "GaussNewton(inner=...): `inner` takes no weights here; give them as GaussNewton(weights=)."
            )
        if isinstance(self.max_steps, bool) or not isinstance(self.max_steps, int) or self.max_steps < 1:
            raise ValueError(f"GaussNewton(max_steps={self.max_steps!r}): give a whole number of at least 1.")
        if not (is_real(self.tolerance) and self.tolerance >= 0):
            raise ValueError(f"GaussNewton(tolerance={self.tolerance!r}): give a number of at least 0, such as 1e-10.")

    def add(self, summary: Any, block: Any) -> Any:
        """As the linear strategy."""
        return self.inner.add(summary, block)

    def first(self, block: Any) -> Any:
        """As the linear strategy."""
        return self.inner.first(block)

    def restrict(self, summary: Any, keep: Any) -> Any:
        """As the linear strategy."""
        return self.inner.restrict(summary, keep)

    def response(self, summary: Any, values: np.ndarray) -> np.ndarray:
        """As the linear strategy."""
        return self.inner.response(summary, values)

    def finish(self, summary: Any) -> LowerResult:
        """As the linear strategy."""
        return self.inner.finish(summary)
