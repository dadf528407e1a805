"""The problem file that `ifef new` writes."""

TEMPLATE = '''"""A problem for ifef. Solve it with `ifef solve THIS_FILE`."""

import math

import jax.numpy as jnp

from ifef import Box, Condition, Problem, d

# The domain: coordinates of your choice, each with its range. In operators they are p.t and p.x.
box = Box(t=(0.0, 1.0), x=(0.0, 1.0))
conductivity = 0.1


def heat(u, p):
    """The equation, as an operator that is zero: u_t - conductivity u_xx. Use jnp.sin, not math.sin."""
    return d(u, "t")(p) - conductivity * d(u, "x", "x")(p)


def start(p):
    """What the solution is at the beginning."""
    return jnp.sin(math.pi * p.x) + 0.5 * jnp.sin(3 * math.pi * p.x)


# Each condition has a name of your choice, a region, an operator, and a target (zero where there is none).
problem = Problem(
    box,
    equation=Condition(box.interior, heat),
    initial=Condition(box.lower("t"), lambda u, p: u(p), target=start),
    walls=Condition(box.lower("x") | box.upper("x"), lambda u, p: u(p)),
    # exact=lambda p: ...  where you know it, the report has the true error too
)
'''
