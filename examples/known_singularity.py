"""A known singularity in one line: functions of one's own in the basis.

Steady heat in a plate whose lower edge is cold for x > 0 and insulated for x < 0. Where the two meet, the heat flow is
infinite: the temperature behaves like sqrt(r) sin(phi / 2) there, and smooth features come near it only slowly. That
function is in every textbook; `Problem(basis=...)` puts it into the basis, and its strength is found with the rest.
"""

import jax.numpy as jnp

from ifef import Box, Condition, Problem, d, fit, fourier_features, laplacian

plate = Box(x=(-1.0, 1.0), y=(0.0, 1.0))


def singular(p):
    """Harmonic, zero ahead of the origin on y = 0 and without slope behind it."""
    return (p.x**2 + p.y**2) ** 0.25 * jnp.sin(0.5 * jnp.arctan2(p.y, p.x))


def smooth(p):
    """Another harmonic function, to be found by the features."""
    return jnp.exp(2.0 * p.y) * jnp.sin(2.0 * p.x + 0.3)


def exact(p):
    """The temperature."""
    return 1.7 * singular(p) + smooth(p)


def lower_edge(u, p):
    """Temperature for x > 0, heat flow for x < 0: an operator may differ from place to place."""
    return jnp.where(p.x > 0.0, u(p), d(u, "y")(p))


def make(basis=()) -> Problem:
    """Make the problem with functions of one's own in the basis."""
    others = plate.lower("x") | plate.upper("x") | plate.upper("y")
    return Problem(
        plate,
        equation=Condition(plate.interior, lambda u, p: laplacian(u, "x", "y")(p)),
        edge=Condition(plate.lower("y"), lower_edge, lambda p: lower_edge(smooth, p)),
        others=Condition(others, lambda u, p: u(p), exact),
        basis=basis,
        exact=exact,
    )


problem = make(basis=[singular])


def main(seed: int = 0) -> float:
    """Solve without and with the singular function, and give the error with it."""
    errors = []
    for name, one in (("without", make()), ("with", problem)):
        features = fourier_features(one, 150, sigma=0.5, backbone=(), seed=seed)
        points = one.sample({"equation": 1000, "edge": 200, "others": 300}, seed=seed)
        errors.append(fit(one, features, points, seed=seed).error())
        print(f"{name:8} relative error {errors[-1]:.1e}")
    return errors[-1]


if __name__ == "__main__":
    main()
