"""Fields and their derivatives. A field is a function of one point; `d` maps a field to a field."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Point = Any
"""A named tuple of coordinates (see `ifef.domain.point_type`): `p.x`, `p._replace(x=p.x + 1)`."""

Field = Callable[[Point], Any]
"""A function of one point that returns a number."""


@contextlib.contextmanager
def precision(dtype: Any) -> Iterator[None]:
    """Compute in float64 or float32 and at full matrix-product precision, and leave the caller's JAX settings alone."""
    with jax.enable_x64(np.dtype(dtype) == np.float64), jax.default_matmul_precision("highest"):
        yield


def float64() -> contextlib.AbstractContextManager[None]:
    """Compute in float64."""
    return precision("float64")


def _along(field: Field, name: str) -> Field:
    def derivative(p: Point) -> Any:
        names = getattr(p, "_fields", ())
        if name not in names:
            known = ", ".join(names) or "none"
            raise ValueError(f"d(u, {name!r}): there is no coordinate {name!r} here; the coordinates are: {known}.")
        # Forward mode: the cost does not grow with the number of unknown coefficients, complex fields work as
        # they are, and an array-valued point is differentiated elementwise. A coordinate is real, so an integer
        # given by hand is a float here.
        coordinate = jnp.asarray(getattr(p, name))
        if not jnp.issubdtype(coordinate.dtype, jnp.floating):
            coordinate = coordinate.astype(jnp.result_type(float))
        one = jnp.ones_like(coordinate)
        return jax.jvp(lambda value: field(p._replace(**{name: value})), (coordinate,), (one,))[1]

    return derivative


def d(field: Field, *names: str) -> Field:
    """Mixed partial derivative of a field along the named coordinates, as a field.

    `d(u, "t")(p)` is u_t at p and `d(u, "x", "x")(p)` is u_xx. Any order, any mixture.
    """
    if not callable(field):
        raise TypeError(
            f"d(u, ...): the first argument is a field (a function of a point), not {type(field).__name__}; "
            "write d(u, 'x')(p), not d(u(p), 'x')."
        )
    if not names:
        raise ValueError("d(u, ...): name at least one coordinate, for instance d(u, 'x').")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"d(u, ...): coordinates are given by name, not as {type(name).__name__} ({name!r}).")
        field = _along(field, name)
    return field


def laplacian(field: Field, *names: str) -> Field:
    """Sum of the second derivatives along the named coordinates, as a field: `laplacian(u, "x", "y")(p)`."""
    if not names:
        raise ValueError("laplacian(u, ...): name the coordinates it runs over, for instance laplacian(u, 'x', 'y').")
    if len(set(names)) != len(names):
        raise ValueError(f"laplacian(u, ...): each coordinate counts once, got {', '.join(map(repr, names))}.")
    seconds = [d(field, name, name) for name in names]

    def total(p: Point) -> Any:
        return sum(second(p) for second in seconds)

    return total
