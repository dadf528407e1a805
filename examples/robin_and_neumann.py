"""Three kinds of wall: given values (Dirichlet), a given slope (Neumann), and a mixture of both (Robin).

Heat conduction in a plate with sources inside, -(u_xx + u_yy) = f. Two edges are held at given temperatures, one is
insulated, and one gives its heat to cool air: what flows out there is proportional to the temperature.

A boundary condition is an operator on a face, written as in the book; there are no classes for its kinds.
"""

import jax.numpy as jnp

import ifef
from ifef import Box, Condition, Problem, d, derived_target, laplacian

plate = Box(x=(0.0, 1.0), y=(0.0, 1.0))
cooling = 2.0  # heat transfer coefficient over conductivity


def exact(p):
    """A temperature that we know, so that the error can be measured: the source is derived from it."""
    return jnp.exp(-cooling * p.x) * jnp.cos(12.0 * p.y)


def conduction(u, p):
    """What flows out of a point: the source."""
    return -laplacian(u, "x", "y")(p)


problem = Problem(
    plate,
    equation=Condition(plate.interior, conduction, derived_target(conduction, exact)),
    held=Condition(plate.lower("x") | plate.upper("y"), lambda u, p: u(p), exact),
    insulated=Condition(plate.lower("y"), lambda u, p: d(u, "y")(p)),  # the target is zero where none is given
    cooled=Condition(plate.upper("x"), lambda u, p: d(u, "x")(p) + cooling * u(p)),
    exact=exact,
)


def main(seed: int = 0) -> float:
    """Solve with everything chosen automatically, told when to stop, and give the relative error."""
    solution = ifef.solve(problem, seed=seed, tolerance=1e-8, max_features=300, progress=False)
    print(solution)  # residual by condition, so that one sees which wall is worst
    print(f"temperature in the middle: {solution(x=0.5, y=0.5):.6f}")
    return solution.error()


if __name__ == "__main__":
    main()
