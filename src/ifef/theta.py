"""theta*(omega): rows are assembled, summarised and solved; for rows that depend on theta, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.assembly import Data, condition_rows, loss, num_columns, num_rows, residuals, row_blocks, row_scales, system
from ifef.calculus import precision
from ifef.features import Features
from ifef.lower import AbstractLower, GaussNewton, LowerResult
from ifef.tiles import system_of


@eqx.filter_jit
def _whole(lower: AbstractLower, features: Features, data: Data, theta: jax.Array, scales: Any) -> jax.Array:
    return lower.first(system(features, data, theta, scales))


@eqx.filter_jit(donate="none")
def _grown(
    lower: AbstractLower, summary: jax.Array, features: Features, part: Data, theta: jax.Array, scales: Any
) -> jax.Array:
    return lower.add(summary, system(features, part, theta, scales))


@eqx.filter_jit
def _finish(lower: AbstractLower, summary: jax.Array) -> LowerResult:
    return lower.finish(summary)


def finish(lower: AbstractLower, summary: Any) -> LowerResult:
    """Solve from a summary: by LAPACK for one on the host, else compiled."""
    return lower.finish(summary) if isinstance(summary, np.ndarray) else _finish(lower, summary)


@eqx.filter_jit
def weighted_loss(features: Features, data: Data, theta: jax.Array, weights: Any) -> jax.Array:
    """Training loss at theta, compiled."""
    return loss(residuals(features, data, theta), weights)


def summarise(
    lower: AbstractLower, features: Features, data: Data, theta: jax.Array, scales: Any, block: int | None
) -> Any:
    """Assemble all rows at theta, at once or in blocks, into the lower level's summary."""
    if on_host(lower):
        return _summarise_on_host(lower, features, data, scales, block)
    if block is None or block >= num_rows(data):
        return _whole(lower, features, data, theta, scales)
    summary = jnp.zeros((num_columns(features, data) + 1,) * 2)
    for part in row_blocks(data, block):
        used = {key: scales[key] for key in part.points}
        summary = _grown(lower, summary, features, part, theta, used)
    return summary


def on_host(lower: AbstractLower) -> bool:
    """Whether rows are put together tile by tile and solved by LAPACK: on a CPU, where they do not depend on theta."""
    return jax.default_backend() == "cpu" and not isinstance(lower, GaussNewton)


def _summarise_on_host(
    lower: AbstractLower, features: Features, data: Data, scales: Mapping[str, Any], block: int | None
) -> np.ndarray:
    used = {key: float(value) for key, value in scales.items()}
    if block is None or block >= num_rows(data):
        return lower.first(system_of(features, data, used))
    summary = np.zeros((num_columns(features, data) + 1,) * 2, data.dtype)
    for part in row_blocks(data, block):
        summary = lower.add(summary, system_of(features, part, used))
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
    with precision(data.dtype):
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


@eqx.filter_jit
def residuals_at(features: Features, data: Data, theta: jax.Array) -> dict[str, jax.Array]:
    """Unscaled residuals by condition, compiled."""
    return residuals(features, data, theta)


@eqx.filter_jit
def rows_at(features: Features, data: Data, theta: jax.Array) -> dict[str, jax.Array]:
    """Unscaled rows and right-hand sides by condition, compiled."""
    return {key: condition_rows(features, data, key, theta) for key in data.points}


def held_out_size(features: Features, data: Data, theta: jax.Array, weights: Mapping[str, float]) -> float:
    """Weighted held-out residual, relative to that of zero (absolute where zero already solves everything)."""
    at, zero = (residuals_at(features, data, coefficients) for coefficients in (theta, jnp.zeros_like(theta)))
    total = sum(weights[key] * float(jnp.mean(jnp.square(values))) for key, values in at.items())
    size = sum(weights[key] * float(jnp.mean(jnp.square(values))) for key, values in zero.items())
    return float(np.sqrt(total / size if np.isfinite(size) and size > 0 else total))
