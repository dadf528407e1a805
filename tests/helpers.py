"""Tables that the tests walk: a row in a table enters every test.

Nothing here turns float64 on: `jnp.exp` and the like are called by the library, which does so by itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ifef import problems
from ifef.assembly import Data, make_data
from ifef.calculus import d, laplacian
from ifef.domain import Box
from ifef.features import FourierFeatures, fourier_features
from ifef.fit import fit
from ifef.lower import AbstractLower, GaussNewton, LeastSquares, Ridge
from ifef.problem import Condition, Problem, Unknown, derived_target
from ifef.sampling import Sampler
from ifef.scales import condition_scales
from ifef.solution import Solution

SAMPLERS: tuple[Sampler, ...] = ("grid", "uniform", "latin", "sobol")

LOWERS: dict[str, AbstractLower] = {
    "least squares": LeastSquares(),
    "ridge": Ridge(1e-7),
    "gauss-newton": GaussNewton(),
}


@dataclass(frozen=True)
class Small:
    """A problem that a few hundred columns solve, the features that do it, and the error that they reach."""

    make: Callable[[], Problem]
    error: float
    """Bound on the relative L2 error of every unknown."""
    num: int = 60
    """Points of each condition."""
    features: dict[str, Any] = field(default_factory=dict)


def value(u: Any, p: Any) -> Any:
    return u(p)


def slope(u: Any, p: Any) -> Any:
    return d(u, "x")(p)


# --- one dimension ----------------------------------------------------------------------------------------------------

LINE = Box(x=(0.0, 1.0))


def growth() -> Problem:
    """u' = u, u(0) = 1: the smallest there is."""
    return Problem(
        LINE,
        ode=Condition(LINE.interior, lambda u, p: d(u, "x")(p) - u(p)),
        start=Condition(LINE.lower("x"), value, 1.0),
        exact=lambda p: jnp.exp(p.x),
    )


def riccati() -> Problem:
    """u' + u^2 = 0, u(0) = 1: nonlinear."""
    return Problem(
        LINE,
        ode=Condition(LINE.interior, lambda u, p: d(u, "x")(p) + u(p) ** 2),
        start=Condition(LINE.lower("x"), value, 1.0),
        exact=lambda p: 1.0 / (1.0 + p.x),
    )


def neumann_robin() -> Problem:
    """u'' = f with a slope given on one side and a mixture on the other."""
    exact = lambda p: jnp.sin(3.0 * p.x) + p.x**2  # noqa: E731
    robin = lambda u, p: d(u, "x")(p) + 2.0 * u(p)  # noqa: E731
    return Problem(
        LINE,
        equation=Condition(LINE.interior, lambda u, p: d(u, "x", "x")(p) + 9.0 * jnp.sin(3.0 * p.x) - 2.0),
        neumann=Condition(LINE.lower("x"), slope, 3.0),
        robin=Condition(LINE.upper("x"), robin, derived_target(robin, exact)),
        exact=exact,
    )


def beam() -> Problem:
    """u'''' = 24, clamped at both ends: a fourth order, u = x^2 (1 - x)^2."""
    return Problem(
        LINE,
        equation=Condition(LINE.interior, lambda u, p: d(u, *"xxxx")(p), 24.0),
        ends=Condition(LINE.boundary, value),
        slopes=Condition(LINE.boundary, slope),
        exact=lambda p: (p.x * (1.0 - p.x)) ** 2,
    )


def oscillator() -> Problem:
    """u' = v, v' = -4 u: a system of two unknowns."""
    box = Box(t=(0.0, 2.0))
    return Problem(
        box,
        first=Condition(box.interior, lambda u, v, p: d(u, "t")(p) - v(p)),
        second=Condition(box.interior, lambda u, v, p: d(v, "t")(p) + 4.0 * u(p)),
        position=Condition(box.lower("t"), lambda u, v, p: u(p), 1.0),
        speed=Condition(box.lower("t"), lambda u, v, p: v(p), 0.0),
        unknowns=("u", "v"),
        exact=(lambda p: jnp.cos(2.0 * p.t), lambda p: -2.0 * jnp.sin(2.0 * p.t)),
    )


def phasor() -> Problem:
    """u' = 5i u, u(0) = 1: a complex unknown."""
    return Problem(
        LINE,
        wave=Condition(LINE.interior, lambda u, p: d(u, "x")(p) - 5j * u(p)),
        start=Condition(LINE.lower("x"), value, 1.0),
        unknowns=Unknown("u", complex=True),
        exact=lambda p: jnp.exp(5j * p.x),
    )


def unknown_rate() -> Problem:
    """u' = k with u given at two points: k is an unknown number."""
    return Problem(
        LINE,
        ode=Condition(LINE.interior, lambda u, k, p: d(u, "x")(p) - k(p)),
        data=Condition(LINE.points(x=[0.25, 0.75]), lambda u, k, p: u(p), np.array([1.0, 2.5])),
        unknowns=("u", Unknown("k", scalar=True)),
        exact=(lambda p: 0.25 + 3.0 * p.x, lambda p: 3.0),
    )


def measured() -> Problem:
    """u'' + 9 u = 0 from measurements in place of boundary conditions."""
    places = np.array([0.1, 0.35, 0.6, 0.9])
    return Problem(
        LINE,
        equation=Condition(LINE.interior, lambda u, p: d(u, "x", "x")(p) + 9.0 * u(p)),
        data=Condition(LINE.points(x=places), value, np.cos(3.0 * places + 0.5)),
        exact=lambda p: jnp.cos(3.0 * p.x + 0.5),
    )


def root() -> Problem:
    """2 x u' = u, u(1) = 1, whose solution sqrt(x) joins the basis."""
    return Problem(
        LINE,
        equation=Condition(LINE.interior, lambda u, p: 2.0 * p.x * d(u, "x")(p) - u(p)),
        end=Condition(LINE.upper("x"), value, 1.0),
        basis=(lambda p: jnp.sqrt(p.x),),
        exact=lambda p: np.sqrt(p.x),
    )


# --- more dimensions --------------------------------------------------------------------------------------------------

PLANE = Box(t=(0.0, 1.0), x=(0.0, 2.0 * math.pi))


def heat() -> Problem:
    """u_t = u_xx, periodic in value and in slope."""
    around = lambda p: p._replace(x=p.x + 2.0 * math.pi)  # noqa: E731
    return Problem(
        PLANE,
        equation=Condition(PLANE.interior, lambda u, p: d(u, "t")(p) - d(u, "x", "x")(p)),
        initial=Condition(PLANE.lower("t"), value, lambda p: np.sin(p.x) + np.cos(2.0 * p.x)),
        periodic=Condition(PLANE.lower("x"), lambda u, p: u(p) - u(around(p))),
        periodic_slope=Condition(PLANE.lower("x"), lambda u, p: slope(u, p) - slope(u, around(p))),
        exact=lambda p: jnp.exp(-p.t) * jnp.sin(p.x) + jnp.exp(-4.0 * p.t) * jnp.cos(2.0 * p.x),
    )


def source_in_time() -> Problem:
    """u_t = c(x) with u given at both ends of time: an unknown function of x alone."""
    return Problem(
        PLANE,
        equation=Condition(PLANE.interior, lambda u, c, p: d(u, "t")(p) - c(p)),
        first=Condition(PLANE.lower("t"), lambda u, c, p: u(p), lambda p: np.sin(p.x)),
        last=Condition(PLANE.upper("t"), lambda u, c, p: u(p), lambda p: np.sin(p.x) + np.cos(p.x)),
        unknowns=("u", Unknown("c", over=("x",))),
        exact=(lambda p: jnp.sin(p.x) + p.t * jnp.cos(p.x), lambda p: jnp.cos(p.x)),
    )


def goursat() -> Problem:
    """u_xy = f with u on two sides: a mixed derivative."""
    box = Box(x=(0.0, 1.0), y=(0.0, 1.0))
    exact = lambda p: jnp.sin(2.0 * p.x) * jnp.exp(p.y)  # noqa: E731
    mixed = lambda u, p: d(u, "x", "y")(p)  # noqa: E731
    return Problem(
        box,
        equation=Condition(box.interior, mixed, derived_target(mixed, exact)),
        sides=Condition(box.lower("x") | box.lower("y"), value, exact),
        exact=exact,
    )


def poisson(*names: str) -> Problem:
    """Laplace's operator on a cube of any dimension, walls given."""
    box = Box(**{name: (0.0, 1.0) for name in names})
    exact = lambda p: jnp.sin(sum((0.4 + 0.2 * index) * x for index, x in enumerate(p)))  # noqa: E731
    operator = lambda u, p: laplacian(u, *names)(p)  # noqa: E731
    return Problem(
        box,
        equation=Condition(box.interior, operator, derived_target(operator, exact)),
        walls=Condition(box.boundary, value, exact),
        exact=exact,
    )


BARE: dict[str, Any] = {"num_frequencies": 12, "backbone": (), "sigma": 0.3}  # on a line, most is resolved by this
PLAIN: dict[str, Any] = {"num_frequencies": 80, "backbone": (), "sigma": 0.5}

SMALL: dict[str, Small] = {
    "growth": Small(growth, 1e-11, 40, BARE),
    "riccati": Small(riccati, 1e-8, 60, BARE),
    "neumann and robin": Small(neumann_robin, 1e-10, 60, BARE),
    "beam": Small(beam, 1e-8, 60, BARE),
    "oscillator": Small(oscillator, 1e-10, 60, BARE),
    "complex": Small(phasor, 1e-9, 60, BARE),
    "unknown number": Small(unknown_rate, 1e-11, 60, BARE),
    "measurements": Small(measured, 1e-10, 60, BARE),
    "singular basis": Small(root, 1e-11, 80, BARE),
    "heat, periodic": Small(heat, 2e-6, 600, PLAIN | {"num_frequencies": 110, "sigma": 0.6}),
    "unknown function of x": Small(source_in_time, 1e-6, 400, PLAIN),
    "mixed derivative": Small(goursat, 1e-9, 400, PLAIN),
    "poisson 3-D": Small(lambda: poisson("x", "y", "z"), 1e-6, 500, PLAIN | {"num_frequencies": 120, "sigma": 0.1}),
    "poisson 5-D": Small(lambda: poisson(*"abcde"), 5e-3, 500, PLAIN | {"num_frequencies": 150, "sigma": 0.08}),
    "helmholtz": Small(problems.helmholtz, 1e-6, 1000, {"num_frequencies": 300, "backbone": (50,), "sigma": 1.0}),
    "convection": Small(lambda: problems.convection(10), 1e-6, 800, PLAIN | {"num_frequencies": 150, "sigma": 1.0}),
}


@functools.cache
def small(name: str) -> Problem:
    """Make a problem of the table, once."""
    return SMALL[name].make()


@functools.cache
def features_of(name: str, seed: int = 0) -> FourierFeatures:
    """Make the features that go with a problem of the table."""
    return fourier_features(small(name), seed=seed, **SMALL[name].features)


@functools.cache
def points_of(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw the points that go with a problem of the table."""
    return small(name).sample(SMALL[name].num, seed=seed)


@functools.cache
def solved(name: str) -> Solution:
    """Solve a problem of the table, once for all tests."""
    return fit(small(name), features_of(name), points_of(name))


@functools.cache
def data_of(name: str) -> tuple[Data, dict[str, float]]:
    """Give what the loss of a problem needs, and the default weights."""
    data = make_data(small(name), points_of(name))
    scales = condition_scales(features_of(name), data)
    return data, {key: 1.0 / scale**2 for key, scale in scales.items()}


def conditions_of(name: str) -> dict[str, Any]:
    """Give the conditions of a problem of the table, as arguments of another `Problem`."""
    return dict(small(name).conditions)


def setting(name: str) -> Any:
    """Give a setting of JAX as the caller has it; a name that JAX makes at run time, which no type checker sees."""
    return getattr(jax.config, name)


def programs(compiled: Any) -> int:
    """Count the programs that a compiled function has compiled so far."""
    return compiled._cached._cache_size()


def errors(solution: Solution) -> dict[str, float]:
    """Give the true errors by unknown, whatever their number."""
    error = solution.error()
    return error if isinstance(error, dict) else {solution.names[0]: error}


def estimates(solution: Solution) -> dict[str, float]:
    """Give the estimated errors by unknown, whatever their number."""
    error = solution.error_estimate
    return error if isinstance(error, dict) else {solution.names[0]: error}
