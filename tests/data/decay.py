"""A small problem of one's own, u' = -2 u with u(0) = 1."""

import jax.numpy as jnp

from ifef import Box, Condition, Problem, d

box = Box(x=(0.0, 1.0))
problem = Problem(
    box,
    equation=Condition(box.interior, lambda u, p: d(u, "x")(p) + 2.0 * u(p)),
    start=Condition(box.lower("x"), lambda u, p: u(p), target=1.0),
    exact=lambda p: jnp.exp(-2.0 * p.x),
)
