"""1-D convection: u_t + beta u_x = 0, periodic in x, u(0, x) = sin x, so that u = sin(x - beta t)."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax.tree_util import Partial

from ifef.calculus import d
from ifef.domain import Box
from ifef.problem import Condition, Problem

_LENGTH = 2.0 * math.pi


def _equation(beta: float, u: Any, p: Any) -> Any:
    return d(u, "t")(p) + beta * d(u, "x")(p)


def _value(u: Any, p: Any) -> Any:
    return u(p)


def _periodic(u: Any, p: Any) -> Any:
    return u(p) - u(p._replace(x=p.x + _LENGTH))


def _exact(beta: float, p: Any) -> Any:
    return jnp.sin(p.x - beta * p.t)


def convection(beta: float = 50) -> Problem:
    """Make the convection problem of the paper, which takes beta = 50 and 200."""
    box = Box(t=(0.0, 1.0), x=(0.0, _LENGTH))
    exact = Partial(_exact, float(beta))
    return Problem(
        box,
        equation=Condition(box.interior, Partial(_equation, float(beta))),
        initial=Condition(box.lower("t"), _value, exact),
        periodic=Condition(box.lower("x"), _periodic),
        exact=exact,
        name=f"convection({beta:.15g})",
    )
