"""Two unknown fields: sound in a closed tube, as pressure and velocity.

In units where density and speed of sound are one,

    pressure_t + velocity_x = 0,    velocity_t + pressure_x = 0,

with both known at the start and no velocity at the closed ends. With several unknowns an operator takes all of them,
in the order of `unknowns`, and the point last; what comes back is a dictionary by name.
"""

import math

import jax.numpy as jnp
import numpy as np

from ifef import Box, Condition, Problem, d, fit, fourier_features

tube = Box(t=(0.0, 1.0), x=(0.0, 1.0))
modes = ((1.0, 2.0 * math.pi), (0.5, 6.0 * math.pi))  # amplitude, wavenumber


def exact_pressure(p):
    """Standing waves."""
    return sum(a * jnp.cos(k * p.x) * jnp.cos(k * p.t) for a, k in modes)


def exact_velocity(p):
    """Standing waves, a quarter of a period later."""
    return sum(a * jnp.sin(k * p.x) * jnp.sin(k * p.t) for a, k in modes)


problem = Problem(
    tube,
    mass=Condition(tube.interior, lambda pressure, velocity, p: d(pressure, "t")(p) + d(velocity, "x")(p)),
    momentum=Condition(tube.interior, lambda pressure, velocity, p: d(velocity, "t")(p) + d(pressure, "x")(p)),
    start=Condition(tube.lower("t"), lambda pressure, velocity, p: pressure(p), exact_pressure),
    rest=Condition(tube.lower("t"), lambda pressure, velocity, p: velocity(p)),
    ends=Condition(tube.lower("x") | tube.upper("x"), lambda pressure, velocity, p: velocity(p)),
    unknowns=("pressure", "velocity"),
    exact=(exact_pressure, exact_velocity),
)


def main(seed: int = 0) -> float:
    """Solve with Fourier features of the coordinates, and give the larger of the two relative errors."""
    # Three wavelengths along the tube are 1.5 cycles per unit of a coordinate that is scaled to [-1, 1].
    features = fourier_features(problem, 250, sigma=1.2, backbone=(), seed=seed)
    points = problem.sample({"mass": 1200, "momentum": 1200, "start": 100, "rest": 100, "ends": 200}, seed=seed)
    solution = fit(problem, features, points, seed=seed)
    print(solution)
    along = solution(t=0.25, x=np.linspace(0.0, 1.0, 5))
    print("pressure at t = 0.25:", np.round(along["pressure"], 6))
    return max(solution.error().values())


if __name__ == "__main__":
    main()
