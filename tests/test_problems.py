"""Built-in problems: their exact solutions against their own conditions, and against values from elsewhere."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from ifef import problems
from ifef.calculus import float64
from ifef.checks import columns
from ifef.problem import Problem
from ifef.problems import BUILT_IN

# The size of the largest term of each condition, to which rounding is relative; 1 where not named.
SIZES = {
    "helmholtz-low": {"equation": 17 * math.pi**2},
    "helmholtz-high": {"equation": 2e4 * math.pi**2},
    "convection-50": {"equation": 50.0},
    "convection-200": {"equation": 200.0},
    "convection-diffusion": {"equation": 10 * math.pi, "periodic_slope": 10 * math.pi},
    "multi-sine": {"equation": 2 * math.pi * 408, "initial": 10.0, "periodic": 10.0},
}
NU = 0.01 / math.pi


@functools.cache
def made(name: str) -> Problem:
    return BUILT_IN[name]()


def burgers(t: Any, x: Any) -> np.ndarray:
    t, x = np.broadcast_arrays(np.asarray(t, float), np.asarray(x, float))
    return made("burgers").exact_values(np.stack([t.ravel(), x.ravel()], axis=1))["u"].reshape(t.shape)


def mismatch(problem: Problem, key: str, exact: Any) -> np.ndarray:
    """Operator of a field minus target, at random points of a condition."""
    rows = problem.sample(200, sampler="uniform", seed=11)[key]
    operator = problem.conditions[key].operator
    with float64():
        values = jax.vmap(lambda p: operator(exact, p))(columns(problem.domain, jnp.asarray(rows)))
        return np.abs(np.asarray(values) - problem.targets({key: rows})[key])


@pytest.mark.parametrize("name", SIZES)
def test_the_exact_solution_satisfies_every_condition_to_rounding(name):
    problem = made(name)
    assert problem.exact is not None
    for key in problem.conditions:
        size = SIZES[name].get(key, 1.0)
        assert np.max(mismatch(problem, key, problem.exact[0])) < 1e-13 * size * max(1.0, size**0.5)
        # and what differs from it by a millionth does not
        other = lambda p, u=problem.exact[0]: u(p) + 1e-6 * jnp.exp(0.3 * sum(p))  # noqa: E731
        assert np.max(mismatch(problem, key, other)) > 1e-7


def test_the_table_of_built_in_problems_is_whole():
    assert set(SIZES) | {"burgers"} == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_linearity_is_found_out(name):
    assert made(name).linear == (name != "burgers")


def test_names_tell_problems_apart_and_repeat():
    names = [made(name).name for name in BUILT_IN]
    assert len(set(names)) == len(names)
    assert all(names)
    assert problems.convection(50).name == made("convection-50").name
    assert problems.burgers(NU).name == made("burgers").name != problems.burgers(NU * (1 + 1e-15)).name
    for close in (problems.convection(50 + 1e-7), problems.helmholtz(1 + 1e-7, 4)):
        assert close.name not in names


VALUES = [
    ("helmholtz-low", (0.5, 0.125), 1.0),
    ("helmholtz-low", (-0.5, 0.125), -1.0),
    ("helmholtz-high", (0.005, 0.015), -1.0),
    ("convection-50", (0.0, 0.5), math.sin(0.5)),
    ("convection-50", (math.pi / 100, math.pi), 1.0),
    ("convection-200", (math.pi / 400, math.pi), 1.0),
    ("convection-diffusion", (0.0, 0.125), 1.0 - 0.1),
    ("convection-diffusion", (1.0, 0.125), math.exp(-8e-4 * math.pi**2) - 0.1 * math.exp(-0.18 * math.pi**2)),
    ("multi-sine", (0.0, 0.25), 0.0 + 1 + 0 + 1 + 0 + 0 + 0 + 0 + 0 + 0),
    ("multi-sine", (0.3, 0.3), 0.0),
]


@pytest.mark.parametrize(("name", "at", "expected"), VALUES)
def test_values_by_hand(name, at, expected):
    values = made(name).exact_values(np.array([at]))["u"]
    assert values[0] == pytest.approx(expected, abs=1e-11)


def test_domains_are_the_papers():
    assert str(made("helmholtz-low").domain) == "Box(x=(-1, 1), y=(-1, 1))"
    assert str(made("helmholtz-high").domain) == "Box(x=(0, 0.2), y=(0, 0.2))"
    assert made("convection-50").domain.highs == (1.0, 2 * math.pi)
    assert str(made("burgers").domain) == "Box(t=(0, 1), x=(-1, 1))"


def test_helmholtz_off_its_zeros_has_walls_that_are_not_zero():
    # the exact solution is the wall's target: with a1 = 0.5 the sine is 1 at x = 1
    problem = problems.helmholtz(0.5, 1)
    rows = {"walls": np.array([[1.0, 0.5], [1.0, -0.5]])}
    np.testing.assert_allclose(problem.targets(rows)["walls"], [1.0, -1.0])


# --- Burgers ----------------------------------------------------------------------------------------------------------


def test_burgers_initial_and_wall_values_and_symmetry():
    x = np.linspace(-1, 1, 41)
    np.testing.assert_allclose(burgers(0.0, x), -np.sin(np.pi * x), atol=1e-15)
    t = np.linspace(0, 1, 21)
    for wall in (-1.0, 0.0, 1.0):
        np.testing.assert_allclose(burgers(t, wall), 0.0, atol=1e-13)
    np.testing.assert_allclose(burgers(t[:, None], -x), -burgers(t[:, None], x), atol=1e-13)
    assert np.max(np.abs(burgers(t[:, None], x))) <= 1.0  # the maximum principle


@pytest.mark.parametrize("t", [0.05, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("x", [0.02, 0.3, -0.7])
def test_burgers_agrees_with_an_adaptive_quadrature(t, x):
    # Cole and Hopf in the form of Basdevant et al. (1986), with Gauss-Kronrod in place of the trapezoidal rule
    exponent = lambda eta: -math.cos(math.pi * (x - eta)) / (2 * math.pi * NU) - eta**2 / (4 * NU * t)  # noqa: E731
    grid = np.linspace(-3, 3, 6001)
    heights = np.array([exponent(eta) for eta in grid])
    top, near = heights.max(), grid[heights > heights.max() - 40.0]
    integrate = functools.partial(quad, points=near[:: max(len(near) // 50, 1)], limit=800, epsabs=0, epsrel=1e-13)
    above = integrate(lambda eta: math.sin(math.pi * (x - eta)) * math.exp(exponent(eta) - top), -3.0, 3.0)
    below = integrate(lambda eta: math.exp(exponent(eta) - top), -3.0, 3.0)
    assert burgers(t, x) == pytest.approx(-above[0] / below[0], rel=1e-10, abs=1e-12)


def test_burgers_satisfies_its_equation_by_finite_differences():
    rng = np.random.default_rng(3)
    t, x = rng.uniform(0.05, 0.95, 60), rng.uniform(-0.95, 0.95, 60)
    steep = 0.02 if np.min(np.abs(x)) > 0.02 else np.min(np.abs(x))
    assert steep > 0.005  # differences do not resolve the middle of the shock
    weights = np.array([-1, 9, -45, 0, 45, -9, 1]) / 60
    second = np.array([2, -27, 270, -490, 270, -27, 2]) / 180
    step = 2e-4
    offsets = step * np.arange(-3, 4)
    u_t = weights @ burgers(t + offsets[:, None], x) / step
    along = burgers(t, x + offsets[:, None])
    u_x, u_xx = weights @ along / step, second @ along / step**2
    size = np.abs(u_t) + np.abs(burgers(t, x) * u_x) + 1.0
    assert np.max(np.abs(u_t + burgers(t, x) * u_x - NU * u_xx) / size) < 1e-6


def test_burgers_has_the_slope_that_the_literature_gives():
    # Basdevant et al., Computers & Fluids 14 (1986): |u_x| at x = 0 is greatest at pi t = 1.6037, and is 152.00516
    step = 1e-4
    slope = lambda t: -(8 * burgers(t, step) - burgers(t, 2 * step)) / (6 * step)  # noqa: E731
    assert slope(1.6037 / math.pi) == pytest.approx(152.00516, abs=2e-3)
    times = np.linspace(0.4, 0.6, 201)
    assert math.pi * times[np.argmax([slope(t) for t in times])] == pytest.approx(1.6037, abs=5e-3)


@pytest.mark.parametrize("nu", [NU / 10, NU, 0.05, 0.5])
def test_burgers_decays_and_is_finite_for_any_viscosity(nu):
    x = np.linspace(-1, 1, 9)
    problem = problems.burgers(nu)
    sizes = []
    for t in (0.0, 1e-9, 0.25, 0.5, 1.0):
        values = problem.exact_values(np.stack([np.full(9, t), x], axis=1))["u"]
        assert np.all(np.isfinite(values))
        sizes.append(np.max(np.abs(values)))
    assert np.all(np.diff(sizes) <= 1e-12)
    if nu == 0.5:  # strongly damped: the first mode alone, exp(-nu pi^2 t) with a known amplitude of 1 to 1 % by t = 1
        assert sizes[-1] == pytest.approx(sizes[-2] * math.exp(-0.25 * math.pi**2), rel=0.02)
