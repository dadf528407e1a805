"""2-D Helmholtz equation: u_xx + u_yy + u = f with zero walls, u = sin(a1 pi x) sin(a2 pi y)."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax.tree_util import Partial

from ifef.calculus import laplacian
from ifef.domain import Box
from ifef.problem import Condition, Problem, derived_target


def _equation(u: Any, p: Any) -> Any:
    return laplacian(u, "x", "y")(p) + u(p)


def _value(u: Any, p: Any) -> Any:
    return u(p)


def _exact(a1: float, a2: float, p: Any) -> Any:
    return jnp.sin(a1 * math.pi * p.x) * jnp.sin(a2 * math.pi * p.y)


def helmholtz(a1: float = 1, a2: float = 4, low: float = -1.0, high: float = 1.0) -> Problem:
    """Make the Helmholtz problem of the paper; `helmholtz(100, 100, 0.0, 0.2)` is its high-frequency case.

    The source is derived from the exact solution: as the paper prints it, its sign is wrong. The walls' targets are
    the exact values, which are zero where a1 and a2 times the corners are whole numbers, as in the paper.
    """
    box = Box(x=(low, high), y=(low, high))
    exact = Partial(_exact, float(a1), float(a2))
    return Problem(
        box,
        equation=Condition(box.interior, _equation, derived_target(_equation, exact)),
        walls=Condition(box.boundary, _value, exact),
        exact=exact,
        name=f"helmholtz({a1:.15g}, {a2:.15g}, {low:.15g}, {high:.15g})",
    )
