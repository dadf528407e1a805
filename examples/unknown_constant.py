"""An inverse problem: two unknown numbers, found along with the field from a few measurements.

A plate is heated by a source of known shape and unknown strength, and its boundary has one unknown temperature:

    -(u_xx + u_yy) = strength * shape   inside,        u = edge   on the boundary.

Four thermometers are read. `strength` and `edge` are unknowns beside u, with one coefficient each: the problem stays
linear, and one solve finds all three, with no loop around it.
"""

import math

import jax.numpy as jnp
import numpy as np

from ifef import Box, Condition, Problem, Unknown, fit, fourier_features, laplacian

TRUE_STRENGTH, TRUE_EDGE = 30.0, 20.0  # to be found; used only to make the readings and to measure the error


def shape(p):
    """Where the heat comes in (negative: where it is taken out)."""
    return jnp.sin(math.pi * p.x) * jnp.sin(2.0 * math.pi * p.y)


def temperature(p):
    """The true field."""
    return TRUE_EDGE + TRUE_STRENGTH / (5.0 * math.pi**2) * shape(p)


plate = Box(x=(0.0, 1.0), y=(0.0, 1.0))
thermometers = plate.points(x=[0.2, 0.5, 0.7, 0.4], y=[0.3, 0.4, 0.8, 0.9])
readings = np.array([20.33985437, 20.35733136, 19.53222784, 19.66015304])  # one a thermometer, in this order

problem = Problem(
    plate,
    heat=Condition(plate.interior, lambda u, strength, edge, p: laplacian(u, "x", "y")(p) + strength(p) * shape(p)),
    boundary=Condition(plate.boundary, lambda u, strength, edge, p: u(p) - edge(p)),
    data=Condition(thermometers, lambda u, strength, edge, p: u(p), readings),
    unknowns=("u", Unknown("strength", scalar=True), Unknown("edge", scalar=True)),
    exact=(temperature, lambda p: TRUE_STRENGTH, lambda p: TRUE_EDGE),
)


def main(seed: int = 0) -> float:
    """Solve, and give the relative error of the strength."""
    features = fourier_features(problem, 150, sigma=0.5, backbone=(), seed=seed)
    points = problem.sample({"heat": 1000, "boundary": 200, "data": 4}, seed=seed)
    solution = fit(problem, features, points, seed=seed)
    print(solution)
    middle = solution(x=0.5, y=0.5)  # a dictionary by name; the numbers are the same everywhere
    print(f"strength {middle['strength']:.6f}, edge {middle['edge']:.6f}")
    return solution.error()["strength"]


if __name__ == "__main__":
    main()
