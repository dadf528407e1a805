"""The upper level: a backbone of one's own, trained to find where the solution is steep.

-u'' = f on a line, where u has a steep front whose place and width are not told. Fourier features of x alone resolve
it badly. The backbone adds a second hidden coordinate, a soft step of trainable place and width, and Algorithm 1
trains the two numbers: each epoch solves for the coefficients theta, then takes one step on the backbone's parameters.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from ifef import Box, Condition, Problem, Training, d, derived_target, fit, fourier_features

line = Box(x=(0.0, 1.0))


def exact(p):
    """A front at x = 0.62 on a gentle background."""
    return jnp.tanh(60.0 * (p.x - 0.62)) + jnp.sin(3.0 * p.x)


def operator(u, p):
    """The left side of the equation."""
    return -d(u, "x", "x")(p)


problem = Problem(
    line,
    equation=Condition(line.interior, operator, derived_target(operator, exact)),
    ends=Condition(line.boundary, lambda u, p: u(p), exact),
    exact=exact,
)


class Step(eqx.Module):
    """Hidden layer h = (x, soft step): any Equinox module will do that maps the scaled point (n,) to (p,)."""

    place: jax.Array
    log_steepness: jax.Array

    def __call__(self, x):
        """Evaluate h at a point that is scaled to [-1, 1] per axis."""
        return jnp.concatenate([x, jnp.tanh(jnp.exp(self.log_steepness) * (x - self.place))])


def main(seed: int = 0) -> float:
    """Solve with the backbone as it starts and as trained, and give the ratio of the held-out residuals."""
    step = Step(place=jnp.array(0.0), log_steepness=jnp.array(1.5))  # a gentle step in the middle
    # Few columns: with more, the Fourier features fit the front where it is, and nothing pulls the step towards it.
    features = fourier_features(problem, 10, sigma=0.5, backbone=step, seed=seed)
    points = problem.sample({"equation": 300, "ends": 2}, seed=seed)
    before = fit(problem, features, points, seed=seed)
    after = fit(problem, features, points, upper=Training(epochs=300, learning_rate=0.05), seed=seed)
    for name, solution in (("before", before), ("after", after)):
        print(f"{name:7} held-out residual {solution.stats['held_out']:.1e}   error {solution.error():.1e}")
    found = after.features.backbone
    print(f"front found at x = {0.5 + 0.5 * float(found.place):.3f}, steepness {2 * jnp.exp(found.log_steepness):.1f}")
    return after.stats["held_out"] / before.stats["held_out"]


if __name__ == "__main__":
    main()
