"""Linear problems for `no_tuning.py`: the table of the claim, problems to calibrate on, and problems to score on.

Each function makes a `Problem` with an exact solution, which only `.error()` sees. Sources are derived from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp

from ifef import Box, Condition, Problem, Unknown, d, derived_target, laplacian, problems

UNIT = Box(x=(0.0, 1.0), y=(0.0, 1.0))
SQUARE = Box(x=(-1.0, 1.0), y=(-1.0, 1.0))
EVOLUTION = Box(t=(0.0, 1.0), x=(0.0, 1.0))


def value(u: Any, p: Any) -> Any:
    """The field itself: Dirichlet."""
    return u(p)


def dirichlet(box: Box, operator: Callable[..., Any], exact: Callable[..., Any]) -> Problem:
    """A boundary-value problem with a manufactured source."""
    return Problem(
        box,
        equation=Condition(box.interior, operator, derived_target(operator, exact)),
        walls=Condition(box.boundary, value, exact),
        exact=exact,
    )


def around(length: float) -> Callable[[Any], Any]:
    """The point one period further in x."""
    return lambda p: p._replace(x=p.x + length)


# --- the table --------------------------------------------------------------------------------------------------------


def heat() -> Problem:
    """Modes 20 pi and 100 pi that decay by 1/25 and 1."""
    kappa = 1.0 / (100.0 * math.pi) ** 2
    waves = ((1.0, 20.0 * math.pi), (1.0, 100.0 * math.pi))
    exact = lambda p: sum(a * jnp.exp(-kappa * k**2 * p.t) * jnp.sin(k * p.x) for a, k in waves)  # noqa: E731
    return Problem(
        EVOLUTION,
        equation=Condition(EVOLUTION.interior, lambda u, p: d(u, "t")(p) - kappa * d(u, "x", "x")(p)),
        initial=Condition(EVOLUTION.lower("t"), value, exact),
        walls=Condition(EVOLUTION.lower("x") | EVOLUTION.upper("x"), value),
        exact=exact,
    )


def advection(m: float) -> Problem:
    """Speed 1 / (2 + sin x), periodic."""
    box = Box(t=(0.0, 1.0), x=(0.0, 2.0 * math.pi))
    exact = lambda p: jnp.sin(0.5 * m * (2.0 * p.x - jnp.cos(p.x) - p.t))  # noqa: E731
    return Problem(
        box,
        equation=Condition(box.interior, lambda u, p: d(u, "t")(p) + d(u, "x")(p) / (2.0 + jnp.sin(p.x))),
        initial=Condition(box.lower("t"), value, exact),
        periodic=Condition(box.lower("x"), lambda u, p: u(p) - u(around(2.0 * math.pi)(p))),
        exact=exact,
    )


def wave() -> Problem:
    """u_tt = 4 u_xx with modes 1 and 20."""
    modes = ((1.0, math.pi), (0.3, 20.0 * math.pi))
    exact = lambda p: sum(a * jnp.sin(k * p.x) * jnp.cos(2.0 * k * p.t) for a, k in modes)  # noqa: E731
    return Problem(
        EVOLUTION,
        equation=Condition(EVOLUTION.interior, lambda u, p: d(u, "t", "t")(p) - 4.0 * d(u, "x", "x")(p)),
        initial=Condition(EVOLUTION.lower("t"), value, exact),
        rest=Condition(EVOLUTION.lower("t"), lambda u, p: d(u, "t")(p)),
        walls=Condition(EVOLUTION.lower("x") | EVOLUTION.upper("x"), value),
        exact=exact,
    )


def radial(k: float) -> Problem:
    """Circular waves about the middle."""
    exact = lambda p: jnp.cos(k * jnp.sqrt(p.x**2 + p.y**2 + 0.1))  # noqa: E731
    return dirichlet(SQUARE, lambda u, p: laplacian(u, "x", "y")(p) + k**2 * u(p), exact)


def peaks(*where: tuple[float, float, float, float]) -> Problem:
    """Poisson with Gaussian peaks: (amplitude, sharpness, x, y)."""
    exact = lambda p: sum(c * jnp.exp(-a * ((p.x - x) ** 2 + (p.y - y) ** 2)) for c, a, x, y in where)  # noqa: E731
    return dirichlet(UNIT, laplace, exact)


def laplace(u: Any, p: Any) -> Any:
    """Laplace's operator in x and y."""
    return laplacian(u, "x", "y")(p)


def layer(k: float = 20.0) -> Problem:
    """An oblique layer."""
    return dirichlet(UNIT, laplace, lambda p: jnp.tanh(k * (p.x + p.y - 1.0)))


def pulse(a: float = 200.0) -> Problem:
    """A Gaussian pulse, transported once around."""
    exact = lambda p: sum(jnp.exp(-a * (p.x - p.t - j - 0.5) ** 2) for j in range(-3, 4))  # noqa: E731
    return Problem(
        EVOLUTION,
        equation=Condition(EVOLUTION.interior, lambda u, p: d(u, "t")(p) + d(u, "x")(p)),
        initial=Condition(EVOLUTION.lower("t"), value, exact),
        periodic=Condition(EVOLUTION.lower("x"), lambda u, p: u(p) - u(around(1.0)(p))),
        exact=exact,
    )


def helmholtz_3d() -> Problem:
    """Four, five and six wavelengths a side."""
    box = Box(x=(0.0, 1.0), y=(0.0, 1.0), z=(0.0, 1.0))
    tau = 2.0 * math.pi
    exact = lambda p: jnp.sin(4 * tau * p.x) * jnp.sin(5 * tau * p.y) * jnp.sin(6 * tau * p.z)  # noqa: E731
    return dirichlet(box, lambda u, p: laplacian(u, "x", "y", "z")(p) + u(p), exact)


def acoustics() -> Problem:
    """p_t + v_x = 0, v_t + p_x = 0 with modes 2 pi and 20 pi between hard walls."""
    modes = ((1.0, 2.0 * math.pi), (0.5, 20.0 * math.pi))
    pressure = lambda p: sum(a * jnp.cos(k * p.x) * jnp.cos(k * p.t) for a, k in modes)  # noqa: E731
    velocity = lambda p: sum(a * jnp.sin(k * p.x) * jnp.sin(k * p.t) for a, k in modes)  # noqa: E731
    return Problem(
        EVOLUTION,
        mass=Condition(EVOLUTION.interior, lambda q, v, p: d(q, "t")(p) + d(v, "x")(p)),
        momentum=Condition(EVOLUTION.interior, lambda q, v, p: d(v, "t")(p) + d(q, "x")(p)),
        pressure=Condition(EVOLUTION.lower("t"), lambda q, v, p: q(p), pressure),
        rest=Condition(EVOLUTION.lower("t"), lambda q, v, p: v(p)),
        walls=Condition(EVOLUTION.lower("x") | EVOLUTION.upper("x"), lambda q, v, p: v(p)),
        unknowns=("q", "v"),
        exact=(pressure, velocity),
    )


def poisson_5d() -> Problem:
    """A sum of sines, one an axis."""
    names = ("a", "b", "c", "d", "e")
    box = Box(**{name: (0.0, 1.0) for name in names})
    exact = lambda p: sum(jnp.sin(0.5 * math.pi * x) for x in tuple(p)[:5])  # noqa: E731
    return dirichlet(box, lambda u, p: laplacian(u, *names)(p), exact)


# --- our own choice: half to calibrate the estimate on, half to score it -------------------------------------------


def chirp() -> Problem:
    """A frequency that grows along the line: u'' + (80 x)^2 u = f with u = sin(40 x^2)."""
    box = Box(x=(0.0, 1.0))
    return dirichlet(box, lambda u, p: d(u, "x", "x")(p) + (80.0 * p.x) ** 2 * u(p), lambda p: jnp.sin(40.0 * p.x**2))


def runge() -> Problem:
    """Runge's function from u' + u = f."""
    box = Box(x=(-1.0, 1.0))
    exact = lambda p: 1.0 / (1.0 + 25.0 * p.x**2)  # noqa: E731
    operator = lambda u, p: d(u, "x")(p) + u(p)  # noqa: E731
    return Problem(
        box,
        equation=Condition(box.interior, operator, derived_target(operator, exact)),
        start=Condition(box.lower("x"), value, exact),
        exact=exact,
    )


def boundary_layer(eps: float = 1e-2) -> Problem:
    """-eps u'' + u' = 1 with zero ends."""
    box = Box(x=(0.0, 1.0))
    return Problem(
        box,
        equation=Condition(box.interior, lambda u, p: d(u, "x")(p) - eps * d(u, "x", "x")(p), 1.0),
        ends=Condition(box.boundary, value),
        exact=lambda p: p.x - jnp.expm1(p.x / eps) / math.expm1(1.0 / eps),
    )


def multiscale_line() -> Problem:
    """Poisson on a line with frequencies 2 and 50 pi."""
    box = Box(x=(0.0, 1.0))
    exact = lambda p: jnp.sin(2.0 * math.pi * p.x) + 0.1 * jnp.sin(50.0 * math.pi * p.x)  # noqa: E731
    return dirichlet(box, lambda u, p: d(u, "x", "x")(p), exact)


def varying_diffusion() -> Problem:
    """div(a grad u) = f with a = 2 + sin(6 x) cos(5 y)."""
    conductivity = lambda p: 2.0 + jnp.sin(6.0 * p.x) * jnp.cos(5.0 * p.y)  # noqa: E731

    def operator(u: Any, p: Any) -> Any:
        flow = lambda name: lambda q: conductivity(q) * d(u, name)(q)  # noqa: E731
        return d(flow("x"), "x")(p) + d(flow("y"), "y")(p)

    return dirichlet(UNIT, operator, lambda p: jnp.sin(7.0 * p.x + 3.0 * p.y) * jnp.exp(-p.x * p.y))


def schroedinger() -> Problem:
    """A Gaussian packet of momentum 10 that spreads, i u_t + u_xx / 2 = 0."""
    box = Box(t=(0.0, 0.5), x=(-6.0, 10.0))

    def exact(p: Any) -> Any:
        spread = 1.0 + 2.0j * p.t
        return jnp.exp(-((p.x - 10.0 * p.t) ** 2) / spread + 10.0j * (p.x - 5.0 * p.t)) / jnp.sqrt(spread)

    return Problem(
        box,
        equation=Condition(box.interior, lambda u, p: 1j * d(u, "t")(p) + 0.5 * d(u, "x", "x")(p)),
        initial=Condition(box.lower("t"), value, exact),
        walls=Condition(box.lower("x") | box.upper("x"), value, exact),
        unknowns=Unknown("u", complex=True),
        exact=exact,
    )


def klein_gordon() -> Problem:
    """Linear Klein-Gordon with two modes, one of them fast."""
    modes = ((1.0, 2.0 * math.pi), (0.2, 30.0 * math.pi))
    mass = 10.0
    exact = lambda p: sum(a * jnp.cos(jnp.sqrt(k**2 + mass**2) * p.t) * jnp.sin(k * p.x) for a, k in modes)  # noqa: E731
    return Problem(
        EVOLUTION,
        equation=Condition(EVOLUTION.interior, lambda u, p: d(u, "t", "t")(p) - d(u, "x", "x")(p) + mass**2 * u(p)),
        initial=Condition(EVOLUTION.lower("t"), value, exact),
        rest=Condition(EVOLUTION.lower("t"), lambda u, p: d(u, "t")(p)),
        walls=Condition(EVOLUTION.lower("x") | EVOLUTION.upper("x"), value),
        exact=exact,
    )


def biharmonic() -> Problem:
    """A clamped plate, fourth order."""
    exact = lambda p: (jnp.sin(2 * math.pi * p.x) * jnp.sin(3 * math.pi * p.y)) ** 2  # noqa: E731
    operator = lambda u, p: laplacian(laplacian(u, "x", "y"), "x", "y")(p)  # noqa: E731
    return Problem(
        UNIT,
        equation=Condition(UNIT.interior, operator, derived_target(operator, exact)),
        walls=Condition(UNIT.boundary, value),
        slope_x=Condition(UNIT.lower("x") | UNIT.upper("x"), lambda u, p: d(u, "x")(p)),
        slope_y=Condition(UNIT.lower("y") | UNIT.upper("y"), lambda u, p: d(u, "y")(p)),
        exact=exact,
    )


def robin() -> Problem:
    """Helmholtz with Robin walls and an oblique wave of 8 wavelengths."""
    exact = lambda p: jnp.cos(40.0 * p.x + 30.0 * p.y)  # noqa: E731
    operator = lambda u, p: laplacian(u, "x", "y")(p) + 100.0 * u(p)  # noqa: E731
    mixed = {name: (lambda u, p, name=name: d(u, name)(p) + 3.0 * u(p)) for name in ("x", "y")}
    sides = {"x": UNIT.lower("x") | UNIT.upper("x"), "y": UNIT.lower("y") | UNIT.upper("y")}
    conditions: dict[str, Any] = {
        f"robin_{name}": Condition(sides[name], mixed[name], derived_target(mixed[name], exact)) for name in sides
    }
    source = derived_target(operator, exact)
    return Problem(UNIT, equation=Condition(UNIT.interior, operator, source), **conditions, exact=exact)


def heat_3d() -> Problem:
    """Heat on a square in time, three coordinates, smooth."""
    box = Box(t=(0.0, 1.0), x=(0.0, 1.0), y=(0.0, 1.0))
    exact = lambda p: jnp.exp(-0.5 * p.t) * jnp.sin(5.0 * p.x + 2.0 * p.y + p.t)  # noqa: E731
    operator = lambda u, p: d(u, "t")(p) - 0.1 * laplacian(u, "x", "y")(p)  # noqa: E731
    walls = box.lower("x") | box.upper("x") | box.lower("y") | box.upper("y")
    return Problem(
        box,
        equation=Condition(box.interior, operator, derived_target(operator, exact)),
        initial=Condition(box.lower("t"), value, exact),
        walls=Condition(walls, value, exact),
        exact=exact,
    )


def stokes() -> Problem:
    """Stokes flow of a stream function, three unknowns; the pressure is fixed at one point."""
    tau = 2.0 * math.pi
    u_exact = lambda p: jnp.sin(tau * p.x) * jnp.cos(tau * p.y)  # noqa: E731
    v_exact = lambda p: -jnp.cos(tau * p.x) * jnp.sin(tau * p.y)  # noqa: E731
    pressure = lambda p: jnp.cos(3.0 * p.x) * jnp.sin(2.0 * p.y)  # noqa: E731
    exact = (u_exact, v_exact, pressure)
    first = lambda u, v, q, p: laplacian(u, "x", "y")(p) - d(q, "x")(p)  # noqa: E731
    second = lambda u, v, q, p: laplacian(v, "x", "y")(p) - d(q, "y")(p)  # noqa: E731
    return Problem(
        UNIT,
        first=Condition(UNIT.interior, first, derived_target(first, *exact)),
        second=Condition(UNIT.interior, second, derived_target(second, *exact)),
        mass=Condition(UNIT.interior, lambda u, v, q, p: d(u, "x")(p) + d(v, "y")(p)),
        walls_u=Condition(UNIT.boundary, lambda u, v, q, p: u(p), u_exact),
        walls_v=Condition(UNIT.boundary, lambda u, v, q, p: v(p), v_exact),
        level=Condition(UNIT.points(x=0.5, y=0.5), lambda u, v, q, p: q(p), [float(pressure_at(0.5, 0.5))]),
        unknowns=("u", "v", "q"),
        exact=exact,
    )


def pressure_at(x: float, y: float) -> float:
    """The pressure of `stokes` at a point."""
    return math.cos(3.0 * x) * math.sin(2.0 * y)


def two_scales() -> Problem:
    """Poisson with a smooth part and a small oscillation in one corner only."""
    exact = lambda p: jnp.sin(3.0 * p.x) * p.y + 0.05 * jnp.exp(-30.0 * (p.x**2 + p.y**2)) * jnp.sin(60.0 * p.x)  # noqa: E731
    return dirichlet(UNIT, laplace, exact)


@dataclass(frozen=True)
class Case:
    """A problem, and the worst error and median time asked of it (none where it is ours to choose)."""

    make: Callable[[], Problem]
    error: float | None = None
    seconds: float | None = None


built_in = problems.BUILT_IN
TABLE: dict[str, Case] = {
    "helmholtz-low": Case(built_in["helmholtz-low"], 1e-12, 5),
    "helmholtz-high": Case(built_in["helmholtz-high"], 1e-12, 8),
    "convection-50": Case(built_in["convection-50"], 1e-12, 5),
    "convection-200": Case(built_in["convection-200"], 1e-12, 5),
    "convection-diffusion": Case(built_in["convection-diffusion"], 1e-11, 15),
    "multi-sine": Case(built_in["multi-sine"], 1e-9, 30),
    "helmholtz-240": Case(partial(problems.helmholtz, 240, 240, 0.0, 0.2), 1e-9, 30),
    "heat": Case(heat, 1e-9, 30),
    "advection-10": Case(partial(advection, 10.0), 1e-9, 30),
    "advection-40": Case(partial(advection, 40.0), 1e-6, 60),
    "wave": Case(wave, 1e-9, 30),
    "radial-20": Case(partial(radial, 20.0), 1e-11, 60),
    "radial-60": Case(partial(radial, 60.0), 1e-5, 60),
    "peak-200": Case(partial(peaks, (1.0, 200.0, 0.45, 0.45)), 1e-10, 60),
    "peak-1000": Case(partial(peaks, (1.0, 1000.0, 0.45, 0.45)), 1e-8, 60),
    "two-peaks": Case(partial(peaks, (1.0, 1000.0, 0.3, 0.6), (0.7, 300.0, 0.7, 0.35)), 1e-7, 60),
    "layer": Case(layer, 1e-7, 60),
    "pulse": Case(pulse, 1e-7, 60),
    "helmholtz-3d": Case(helmholtz_3d, 1e-8, 60),
    "acoustics": Case(acoustics, 1e-9, 30),
    "poisson-5d": Case(poisson_5d, 1e-8, 60),
}
CALIBRATION: dict[str, Case] = {
    "chirp": Case(chirp),
    "boundary-layer": Case(boundary_layer),
    "varying-diffusion": Case(varying_diffusion),
    "klein-gordon": Case(klein_gordon),
    "robin": Case(robin),
    "stokes": Case(stokes),
}
SCORED: dict[str, Case] = {
    "runge": Case(runge),
    "multiscale-line": Case(multiscale_line),
    "schroedinger": Case(schroedinger),
    "biharmonic": Case(biharmonic),
    "heat-3d": Case(heat_3d),
    "two-scales": Case(two_scales),
}
