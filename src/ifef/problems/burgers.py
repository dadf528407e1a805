"""Viscous Burgers equation: u_t + u u_x = nu u_xx on [0, 1] x [-1, 1], u(0, x) = -sin(pi x), zero walls."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from ifef.calculus import d
from ifef.domain import Box
from ifef.problem import Condition, Problem

# The trapezoidal rule is spectrally accurate for integrands that vanish at both ends; where the peak has moved, by at
# most 1 / sqrt(4 nu t), this window still holds it.
_NODES = np.linspace(-16.0, 16.0, 641)


def _equation(nu: float, u: Any, p: Any) -> Any:
    return d(u, "t")(p) + u(p) * d(u, "x")(p) - nu * d(u, "x", "x")(p)


def _value(u: Any, p: Any) -> Any:
    return u(p)


def _initial(p: Any) -> Any:
    return -jnp.sin(math.pi * p.x)


def _cole_hopf(nu: float, p: Any) -> Any:
    """Quadrature of the Cole-Hopf transform: published reference files are off by up to 4e-5, this by rounding."""
    x, t = np.asarray(p.x)[..., None], np.asarray(p.t)[..., None]
    shifted = x - np.sqrt(4.0 * nu * t) * _NODES
    exponent = -np.cos(math.pi * shifted) / (2.0 * math.pi * nu) - np.square(_NODES)
    heights = np.exp(exponent - exponent.max(axis=-1, keepdims=True))
    return -np.sum(np.sin(math.pi * shifted) * heights, axis=-1) / np.sum(heights, axis=-1)


def burgers(nu: float = 0.01 / math.pi) -> Problem:
    """Make the Burgers problem of the paper, nu = 0.01 / pi."""
    if not 0.0 < nu < math.inf:
        raise ValueError(f"burgers(nu={nu!r}): the viscosity must be positive and finite.")
    box = Box(t=(0.0, 1.0), x=(-1.0, 1.0))
    return Problem(
        box,
        equation=Condition(box.interior, Partial(_equation, float(nu))),
        initial=Condition(box.lower("t"), _value, _initial),
        walls=Condition(box.lower("x") | box.upper("x"), _value),
        exact=Partial(_cole_hopf, float(nu)),
        name=f"burgers({nu:.17g})",
    )
