"""Convection at speed 1 on [0, 1]^2 of a sum of sines: the paper's spectrum experiment."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax.tree_util import Partial

from ifef.calculus import d
from ifef.domain import Box
from ifef.problem import Condition, Problem

FREQUENCIES = (1, 2, 5, 10, 30, 40, 50, 60, 70, 80)


def _equation(u: Any, p: Any) -> Any:
    return d(u, "t")(p) + d(u, "x")(p)


def _value(u: Any, p: Any) -> Any:
    return u(p)


def _periodic(u: Any, p: Any) -> Any:
    return u(p) - u(p._replace(x=p.x + 1.0))


def _exact(frequencies: tuple[float, ...], p: Any) -> Any:
    return sum(jnp.sin(2.0 * math.pi * frequency * (p.x - p.t)) for frequency in frequencies)


def multi_sine(frequencies: tuple[float, ...] = FREQUENCIES) -> Problem:
    """Make the ten-sine problem. The data are at t = 0: the paper's text has t = 1, an evident slip."""
    box = Box(t=(0.0, 1.0), x=(0.0, 1.0))
    exact = Partial(_exact, tuple(map(float, frequencies)))
    return Problem(
        box,
        equation=Condition(box.interior, _equation),
        initial=Condition(box.lower("t"), _value, exact),
        periodic=Condition(box.lower("x"), _periodic),
        exact=exact,
        name="multi_sine(" + ", ".join(f"{one:.15g}" for one in frequencies) + ")",
    )
