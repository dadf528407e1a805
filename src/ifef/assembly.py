"""Residuals and blocks of rows: the only place that batches.

A row is the gradient of a condition's residual in theta. Rows are scaled by sqrt(weight / n), so that
|A theta - b|^2 is the weighted sum of mean squares, and one definition of the loss serves both levels.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.calculus import precision
from ifef.checks import columns
from ifef.domain import Box
from ifef.features import Features, make_fields, unknown_sizes
from ifef.problem import Problem
from ifef.sampling import generator

CHUNK = 256
"""Points differentiated at once on a CPU: derivatives of all features live only for one chunk."""

_UNKNOWN_MEMORY = 2**33  # bytes, on a machine that does not say
_FARTHEST = 2.0  # units of rounding that points are moved by
_WIDE = 4096  # on an accelerator, where a small chunk leaves most of it idle


class Data(eqx.Module):
    """What a loss needs: per condition an operator, points (n, dim), targets (n,), and whether it is an equation.

    Operators travel as pytrees, so that numbers inside a `Partial` are traced and not compiled in.
    """

    problem: Any = eqx.field(static=True)
    equations: tuple[str, ...] = eqx.field(static=True)
    operators: Mapping[str, Any]
    points: Mapping[str, Any]
    targets: Mapping[str, Any]

    def count(self, key: str) -> int:
        """Return the number of real rows of a condition: a complex one has two a point."""
        return self.points[key].shape[0] * (2 if jnp.iscomplexobj(self.targets[key]) else 1)

    @property
    def dtype(self) -> np.dtype:
        """Precision of the points, in which rows are made and factored."""
        return np.dtype(next(iter(self.points.values())).dtype)


def make_data(
    problem: Problem, points: Mapping[str, np.ndarray], dtype: Any = "float64", *, moved: bool = False
) -> Data:
    """Evaluate the targets, outside of tracing, and move everything to the device in `dtype`.

    Targets are taken in float64 at the points as rounded: else they would belong to other points than the rows.
    `moved` shifts the points by about a unit of rounding: exact numbers stay the same, and all of them round otherwise.
    """
    points = {key: np.asarray(rows, dtype=np.float64) for key, rows in points.items()}
    if moved:
        points = {key: _moved(rows, problem.domain, dtype) for key, rows in points.items()}
    points = {key: _representable(rows, problem.domain, dtype) for key, rows in points.items()}
    targets = problem.targets({key: rows.astype(np.float64) for key, rows in points.items()})
    complex_rows = any(unknown.complex for unknown in problem.unknowns)
    with precision(dtype):
        return Data(
            (problem.domain, problem.unknowns),
            tuple(key for key, condition in problem.conditions.items() if condition.is_equation),
            {key: cast(_traced(problem.conditions[key].operator), dtype) for key in points},
            {key: jnp.asarray(rows) for key, rows in points.items()},
            {key: jnp.asarray(values, dtype=complex if complex_rows else None) for key, values in targets.items()},
        )


def _representable(rows: np.ndarray, domain: Box, dtype: Any) -> np.ndarray:
    """Round points to `dtype`, never out of the box: a target may be defined on this side of a face only."""
    near = rows.astype(dtype)
    if near.dtype == np.float64:
        return near
    low, high = np.minimum(rows, domain.lows), np.maximum(rows, domain.highs)
    near = np.where(near < low, np.nextafter(near, np.inf, dtype=dtype), near)
    return np.where(near > high, np.nextafter(near, -np.inf, dtype=dtype), near)


def _moved(rows: np.ndarray, domain: Box, dtype: Any) -> np.ndarray:
    """Move points along the coordinates in which they are not on a face; not out of the box."""
    lows, highs = np.array(domain.lows), np.array(domain.highs)
    unit = float(np.finfo(dtype).eps) * np.maximum(np.abs(lows), np.abs(highs))
    shifts = generator(0, "rounding").uniform(-_FARTHEST, _FARTHEST, rows.shape) * unit
    inside = (rows > lows) & (rows < highs)
    return np.where(inside, np.clip(rows + shifts, lows, highs), rows)


def cast(tree: Any, dtype: Any) -> Any:
    """Take the floating-point arrays of a tree to float32 or float64, complex ones to as many digits."""

    def one(leaf: Any) -> Any:
        if not (eqx.is_inexact_array(leaf) or isinstance(leaf, np.inexact)):
            return leaf
        return jnp.asarray(np.asarray(leaf, np.result_type(dtype, np.complex64) if jnp.iscomplexobj(leaf) else dtype))

    with precision(dtype):
        return jax.tree_util.tree_map(one, tree)


def _traced(operator: Any) -> Any:
    """Make the numbers held by an operator arrays, so that another value does not compile anew."""
    floating = lambda leaf: isinstance(leaf, (float, complex, np.floating, np.ndarray))  # noqa: E731
    return jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf) if floating(leaf) else leaf, operator)


def _lanes(rows: int) -> int:
    """Points to differentiate at once."""
    return min(CHUNK if jax.default_backend() == "cpu" else _WIDE, rows)


def _components(value: jax.Array, is_complex: bool) -> jax.Array:
    """Give real and imaginary parts as separate rows."""
    return jnp.stack([jnp.real(value), jnp.imag(value)]) if is_complex else jnp.real(value)[None]


def _residual_at(features: Features, data: Data, key: str, theta: jax.Array, row: jax.Array, target: Any) -> jax.Array:
    """Residual of one condition at one point, (1,) or (2,)."""
    domain, unknowns = data.problem
    fields = make_fields(features, unknowns, theta)
    point = columns(domain, row[None])
    point = type(point)(*(value[0] for value in point))
    value = jnp.asarray(data.operators[key](*fields, point)) - target
    return _components(value, jnp.iscomplexobj(data.targets[key]))


def residuals(features: Features, data: Data, theta: jax.Array, *, remat: bool = False) -> dict[str, jax.Array]:
    """Unscaled residuals operator(u) - target by condition, (rows,).

    `remat` recomputes each chunk in the backward pass: the upper level's gradient then needs memory for one chunk.
    """
    result = {}
    for key, rows in data.points.items():

        def one(pair: tuple[jax.Array, jax.Array], key: str = key) -> jax.Array:
            return _residual_at(features, data, key, theta, *pair)

        body = jax.checkpoint(one) if remat else one
        values = jax.lax.map(body, (rows, data.targets[key]), batch_size=_lanes(rows.shape[0]))
        result[key] = values.reshape(-1)
    return result


def loss(residual: Mapping[str, jax.Array], weights: Mapping[str, Any]) -> jax.Array:
    """Weighted sum over the conditions of the mean squared residual."""
    return sum((weights[key] * jnp.mean(jnp.square(values)) for key, values in residual.items()), jnp.zeros(()))


def condition_rows(features: Features, data: Data, key: str, theta: jax.Array) -> jax.Array:
    """Unscaled rows and right-hand side of one condition at theta, (rows, columns + 1).

    For an affine condition the right-hand side is target - operator(0) whatever theta is; for a nonlinear one the
    rows are Gauss-Newton's, in terms of the new theta itself rather than of a step.
    """

    def one(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        def residual(coefficients: jax.Array) -> jax.Array:
            return _residual_at(features, data, key, coefficients, *pair)

        value, pullback = jax.vjp(residual, theta)
        gradient = jax.vmap(lambda unit: pullback(unit)[0])(jnp.eye(value.shape[0], dtype=value.dtype))
        return jnp.concatenate([gradient, (gradient @ theta - value)[:, None]], axis=1)

    rows = data.points[key]
    block = jax.lax.map(one, (rows, data.targets[key]), batch_size=_lanes(rows.shape[0]))
    return block.reshape(-1, block.shape[-1])


def row_scales(data: Data, weights: Mapping[str, Any]) -> dict[str, Any]:
    """Give sqrt(weight / n) by condition."""
    return {key: jnp.sqrt(jnp.asarray(weights[key]) / data.count(key)) for key in data.points}


def system(features: Features, data: Data, theta: jax.Array, scales: Mapping[str, Any]) -> jax.Array:
    """All rows, scaled, with the right-hand side as last column: [A b]."""
    return jnp.concatenate([scales[key] * condition_rows(features, data, key, theta) for key in data.points])


def num_columns(features: Features, data: Data) -> int:
    """Return the number of coefficients."""
    return sum(unknown_sizes(features, data.problem[1]))


def num_rows(data: Data) -> int:
    """Return the number of real rows."""
    return sum(data.count(key) for key in data.points)


def row_blocks(data: Data, block: int) -> Iterator[Data]:
    """Split the points of every condition into parts of at most `block` real rows."""
    for key, rows in data.points.items():
        count = max(block * rows.shape[0] // data.count(key), 1)
        for start in range(0, rows.shape[0], count):
            part = slice(start, start + count)
            operators = {key: data.operators[key]}
            yield Data(data.problem, data.equations, operators, {key: rows[part]}, {key: data.targets[key][part]})


def available_memory() -> int:
    """Memory in bytes that rows may take, for planning: of the accelerator where there is one, else of this machine."""
    device = jax.devices()[0]
    if device.platform != "cpu" and (stats := device.memory_stats() or {}).get("bytes_limit"):
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    # Not SC_AVPHYS_PAGES: it leaves out what the file cache would give back, and macOS does not have it.
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        return 1024 * int(sizes["MemAvailable"].split()[0])
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _UNKNOWN_MEMORY


def plan_block(rows: int, columns: int, memory: int, size: int = 8) -> int | None:
    """Rows to assemble at once: None for all of them; refuses what cannot fit, with the numbers and a way out.

    `size` is that of a number in bytes.
    """
    matrix = size * (rows + 1) * (columns + 1)
    summary = size * (columns + 1) ** 2
    if 3 * matrix <= memory or rows <= columns + 1:
        if 3 * matrix > memory:
            raise ValueError(_too_much(rows, columns, 3 * matrix, memory))
        return None
    # Beside the block itself stand the old and the new triangle and the factorisation's copy of both.
    room = memory - 5 * summary
    block = room // (3 * size * (columns + 1))
    if block < 256:
        raise ValueError(_too_much(rows, columns, 5 * summary + 3 * 256 * size * (columns + 1), memory))
    return int(block)


def _too_much(rows: int, columns: int, need: int, memory: int) -> str:
    return (
        f"{rows} rows x {columns} columns need at least {need / 2**30:.3g} GiB and {memory / 2**30:.3g} GiB may be "
        "used; take fewer features, or give memory= in bytes where more is free."
    )
