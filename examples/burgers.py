"""A nonlinear equation: viscous Burgers, whose solution steepens to a front that nothing in its statement shows.

    u_t + u u_x = nu u_xx,    u(0, x) = -sin(pi x),    u(t, -1) = u(t, 1) = 0.

An operator that multiplies unknowns is written like any other; that it is nonlinear is found out, and the coefficients
by Gauss-Newton. At nu = 0.01 / pi the front is a few thousandths wide, and so few columns that know nothing of it
resolve it only roughly. The answer says so: its status is not "converged".
"""

import math

import jax.numpy as jnp
import numpy as np

import ifef
from ifef import Box, Condition, Problem, d

box = Box(t=(0.0, 1.0), x=(-1.0, 1.0))  # named coordinates; p.t, p.x below
nu = 0.01 / math.pi

problem = Problem(
    box,
    equation=Condition(box.interior, lambda u, p: d(u, "t")(p) + u(p) * d(u, "x")(p) - nu * d(u, "x", "x")(p)),
    initial=Condition(box.lower("t"), lambda u, p: u(p), target=lambda p: -jnp.sin(math.pi * p.x)),
    walls=Condition(box.lower("x") | box.upper("x"), lambda u, p: u(p)),
)


def main(seed: int = 0) -> float:
    """Solve with a small budget of columns, and give the relative error against the Cole-Hopf solution."""
    solution = ifef.solve(problem, seed=seed, max_features=120, progress=False)
    print(solution)
    t, x = np.linspace(0.0, 1.0, 41), np.linspace(-1.0, 1.0, 201)
    rows = np.stack([one.reshape(-1) for one in np.meshgrid(t, x, indexing="ij")], axis=1)
    exact = ifef.problems.burgers(nu).exact_values(rows)["u"]
    return float(np.linalg.norm(solution.at(rows)["u"] - exact) / np.linalg.norm(exact))


if __name__ == "__main__":
    print(f"relative error {main():.2e}")
