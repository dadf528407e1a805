"""1-D convection-diffusion with two scales: u_t + c u_x = d u_xx, periodic in value and in derivative."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax.tree_util import Partial

from ifef.calculus import d
from ifef.domain import Box
from ifef.problem import Condition, Problem

_WAVES = ((1.0, 4.0 * math.pi), (0.1, 60.0 * math.pi))  # amplitude and wavenumber, low and high


def _equation(speed: float, diffusion: float, u: Any, p: Any) -> Any:
    return d(u, "t")(p) + speed * d(u, "x")(p) - diffusion * d(u, "x", "x")(p)


def _value(u: Any, p: Any) -> Any:
    return u(p)


def _periodic_value(u: Any, p: Any) -> Any:
    return u(p) - u(p._replace(x=p.x + 1.0))


def _periodic_slope(u: Any, p: Any) -> Any:
    return d(u, "x")(p) - d(u, "x")(p._replace(x=p.x + 1.0))


def _exact(speed: float, diffusion: float, p: Any) -> Any:
    waves = (a * jnp.exp(-diffusion * k**2 * p.t) * jnp.sin(k * (p.x - speed * p.t)) for a, k in _WAVES)
    return sum(waves)


def convection_diffusion(speed: float = 1.0, diffusion: float = 5e-5) -> Problem:
    """Make the two-scale problem of the paper: wavenumbers 4 pi and 60 pi with amplitudes 1 and 0.1."""
    box = Box(t=(0.0, 1.0), x=(0.0, 1.0))
    exact = Partial(_exact, float(speed), float(diffusion))
    return Problem(
        box,
        equation=Condition(box.interior, Partial(_equation, float(speed), float(diffusion))),
        initial=Condition(box.lower("t"), _value, exact),
        periodic=Condition(box.lower("x"), _periodic_value),
        periodic_slope=Condition(box.lower("x"), _periodic_slope),
        exact=exact,
        name=f"convection_diffusion({speed:.15g}, {diffusion:.15g})",
    )
