"""A complex unknown: a sound wave of one frequency in a duct with an open end.

Pressure is Re(u exp(-i omega t)), and the complex amplitude u obeys u_xx + u_yy + k^2 u = 0. The wave comes in on the
left, the walls below and above are hard, and the right end is an impedance condition that lets the wave out without
reflection: u_x = i kx u. It needs complex numbers, and they are written as such.
"""

import math

import jax.numpy as jnp

from ifef import Box, Condition, Problem, Unknown, d, fit, fourier_features, laplacian

duct = Box(x=(0.0, 2.0), y=(0.0, 1.0))
k = 20.0  # wavenumber: six wavelengths along the duct
kx = math.sqrt(k**2 - math.pi**2)  # its part along the duct, for a wave with one node across

problem = Problem(
    duct,
    equation=Condition(duct.interior, lambda u, p: laplacian(u, "x", "y")(p) + k**2 * u(p)),
    inlet=Condition(duct.lower("x"), lambda u, p: u(p), lambda p: jnp.cos(math.pi * p.y)),
    hard=Condition(duct.lower("y") | duct.upper("y"), lambda u, p: d(u, "y")(p)),
    outlet=Condition(duct.upper("x"), lambda u, p: d(u, "x")(p) - 1j * kx * u(p)),
    unknowns=Unknown("u", complex=True),
    exact=lambda p: jnp.cos(math.pi * p.y) * jnp.exp(1j * kx * p.x),
)


def main(seed: int = 0) -> float:
    """Solve with Fourier features of the coordinates themselves, and give the relative error."""
    # No network (backbone=()): the features are plane waves in x and y, each scaled to [-1, 1]. There the wave has
    # kx / (2 pi) = 3.2 cycles per unit in x and a quarter in y, which is what sigma (one number an axis) should span.
    features = fourier_features(problem, 200, sigma=(2.5, 0.5), backbone=(), seed=seed)
    points = problem.sample({"equation": 1200, "inlet": 60, "hard": 240, "outlet": 60}, seed=seed)
    solution = fit(problem, features, points, seed=seed)
    print(solution)
    print(f"amplitude at the outlet: {solution(x=2.0, y=0.0):.6f}")  # a complex number
    return solution.error()


if __name__ == "__main__":
    main()
