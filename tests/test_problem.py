"""What a problem finds out about its conditions, and how it evaluates them. Refusals are in test_bad_input.py."""

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import LINE, PLANE, setting, slope, small, value
from jax.tree_util import Partial
from scipy.integrate import quad
from scipy.special import erf

from ifef.calculus import d, laplacian
from ifef.domain import Box
from ifef.problem import Condition, Problem, Unknown, derived_target

SQUARE = Box(x=(0.0, 2.0), y=(-1.0, 1.0))


def around(p: Any) -> Any:
    return p._replace(y=p.y + 2.0)


def scaled(factor: float, u: Any, p: Any) -> Any:
    return factor * slope(u, p)


AFFINE = {
    "value": value,
    "derivative": slope,
    "high order": lambda u, p: d(u, *"xxyy")(p),
    "source inside": lambda u, p: laplacian(u, "x", "y")(p) + 100.0 * u(p) - jnp.sin(30.0 * p.x) * 1e3,
    "variable coefficient": lambda u, p: jnp.exp(p.x) * slope(u, p) + jnp.where(p.y > 0, 1.0, -2.0) * u(p),
    "product rule": lambda u, p: d(lambda q: q.x**2 * d(u, "x")(q), "x")(p),
    "tiny": lambda u, p: 1e-9 * d(u, "x", "x")(p) + d(u, "y")(p),
    "huge": lambda u, p: 1e12 * (slope(u, p) - 1.0),
    "number in a Partial": Partial(scaled, 3.0),
    "shifted": lambda u, p: u(p._replace(x=0.5 * p.x)) - 0.5 * u(p),
}
NONLINEAR = {
    "square": lambda u, p: slope(u, p) + u(p) * u(p),
    "small square": lambda u, p: slope(u, p) + 1e-4 * u(p) ** 2,
    "u |u|": lambda u, p: u(p) * jnp.abs(u(p)),
    "sine": lambda u, p: slope(u, p) - jnp.sin(u(p)),
    "advection": lambda u, p: u(p) * slope(u, p),
    "switch": lambda u, p: slope(u, p) + jnp.where(u(p) > 50.0, u(p), 0.0),
    "switch below": lambda u, p: slope(u, p) + jnp.where(u(p) < -50.0, 1.0, 0.0),
    "modulus": lambda u, p: slope(u, p) + jnp.abs(u(p)),
    "exponential": lambda u, p: laplacian(u, "x", "y")(p) - jnp.exp(0.1 * u(p)),
    "logarithm": lambda u, p: slope(u, p) + jnp.log(u(p)),
    "gradient": lambda u, p: slope(u, p) ** 2 + d(u, "y")(p) ** 2 - 1.0,
}


@pytest.mark.parametrize("name", [*AFFINE, *NONLINEAR])
def test_affine_operators_are_told_from_nonlinear_ones(name):
    operator = {**AFFINE, **NONLINEAR}[name]
    region = SQUARE.lower("y") if name == "shifted" else SQUARE.interior
    problem = Problem(SQUARE, equation=Condition(region, operator))
    assert problem.linear == (name in AFFINE)


def test_one_nonlinear_condition_makes_the_problem_nonlinear_and_is_named():
    problem = Problem(
        LINE,
        ode=Condition(LINE.interior, lambda u, p: slope(u, p) + u(p)),
        start=Condition(LINE.lower("x"), lambda u, p: u(p) ** 3, 8.0),
    )
    assert not problem.linear
    assert problem.affine == {"ode": True, "start": False}


def test_a_product_of_two_unknowns_is_nonlinear_and_their_sum_is_not():
    both = lambda operator: Problem(LINE, ode=Condition(LINE.interior, operator), unknowns=("u", "v"))  # noqa: E731
    assert not both(lambda u, v, p: u(p) * v(p)).linear
    assert both(lambda u, v, p: d(u, "x")(p) - p.x * v(p)).linear


def test_conjugates_and_real_parts_of_complex_unknowns_are_linear():
    # theta holds real and imaginary parts apart, in which these are linear
    unknown = Unknown("u", complex=True)
    operator = lambda u, p: slope(u, p) + jnp.conj(u(p)) + 2j * jnp.real(u(p))  # noqa: E731
    assert Problem(LINE, ode=Condition(LINE.interior, operator), unknowns=unknown).linear
    modulus = lambda u, p: slope(u, p) + jnp.abs(u(p)) ** 2  # noqa: E731
    assert not Problem(LINE, ode=Condition(LINE.interior, modulus), unknowns=unknown).linear


def scipy_only(p: Any) -> float:
    return quad(lambda s: math.exp(-(s**2)), 0.0, p.x)[0]


def decides(p: Any) -> float:
    if p.x > 0.5:
        return 1.0
    return math.sin(p.x)


TARGETS = {
    "number": (2.5, lambda x: np.full_like(x, 2.5)),
    "integer": (3, lambda x: np.full_like(x, 3.0)),
    "JAX": (lambda p: jnp.sin(p.x), np.sin),
    "NumPy": (lambda p: np.sin(p.x), np.sin),
    "constant function": (lambda p: 1.5, lambda x: np.full_like(x, 1.5)),
    "SciPy on arrays": (lambda p: erf(p.x), erf),
    "SciPy on numbers": (scipy_only, lambda x: 0.5 * math.sqrt(math.pi) * erf(x)),
    "if": (decides, lambda x: np.where(x > 0.5, 1.0, np.sin(x))),
    "math": (lambda p: math.exp(p.x), np.exp),
    # right at a point, wrong for all points at once: a sum over them
    "reduction": (lambda p: np.sum([p.x, 1.0]) if np.ndim(p.x) == 0 else np.sum(p.x), lambda x: x + 1.0),
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_evaluated_outside_of_tracing_in_float64(name):
    target, expected = TARGETS[name]
    problem = Problem(LINE, data=Condition(LINE.interior, value, target))
    rows = problem.sample(33, seed=2)
    values = problem.targets(rows)["data"]
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, expected(rows["data"][:, 0]), rtol=1e-13, atol=1e-15)


def test_array_targets_stay_with_their_points():
    places, measured = np.array([0.9, 0.1, 0.5]), np.array([9.0, 1.0, 5.0])
    problem = Problem(LINE, data=Condition(LINE.points(x=places), value, measured))
    rows = problem.sample(100)
    np.testing.assert_array_equal(rows["data"][:, 0], places)
    np.testing.assert_array_equal(problem.targets(rows)["data"], measured)


def test_complex_targets_keep_their_imaginary_part():
    unknown = Unknown("u", complex=True)
    problem = Problem(LINE, data=Condition(LINE.interior, value, lambda p: np.exp(1j * p.x)), unknowns=unknown)
    rows = problem.sample(5)
    np.testing.assert_allclose(problem.targets(rows)["data"], np.exp(1j * rows["data"][:, 0]), rtol=1e-14)


def test_a_derived_target_is_the_operator_of_the_exact_solution():
    exact = lambda p: jnp.sin(p.x) * jnp.exp(p.y)  # noqa: E731
    operator = lambda u, p: laplacian(u, "x", "y")(p) + 3.0 * u(p) ** 2  # noqa: E731
    problem = Problem(SQUARE, equation=Condition(SQUARE.interior, operator, derived_target(operator, exact)))
    rows = problem.sample(50)
    x, y = rows["equation"].T
    np.testing.assert_allclose(
        problem.targets(rows)["equation"], 3.0 * (np.sin(x) * np.exp(y)) ** 2, rtol=1e-12, atol=1e-14
    )


def test_a_derived_target_of_several_unknowns():
    first, second = (lambda p: jnp.sin(p.x)), (lambda p: jnp.cos(p.x))
    operator = lambda u, v, p: slope(u, p) * v(p)  # noqa: E731
    target = derived_target(operator, first, second)
    problem = Problem(LINE, ode=Condition(LINE.interior, operator, target), unknowns=("u", "v"))
    rows = problem.sample(9)
    np.testing.assert_allclose(problem.targets(rows)["ode"], np.cos(rows["ode"][:, 0]) ** 2, rtol=1e-14)


def test_equations_have_the_domains_dimension_and_may_be_declared():
    def kind(region, **how):
        return Condition(region, value, **how).is_equation

    assert kind(PLANE.interior)
    assert not kind(PLANE.lower("t"))
    assert not kind(PLANE.points(t=0.5, x=1.0))
    assert not kind(PLANE.interior, equation=False)
    assert kind(PLANE.lower("t"), equation=True)


def test_points_are_drawn_by_condition():
    problem = small("oscillator")
    rows = problem.sample({"first": 10, "second": 20, "position": 3, "speed": 3}, sampler="latin", seed=1)
    assert {key: len(value) for key, value in rows.items()} == {"first": 10, "second": 20, "position": 1, "speed": 1}
    same = problem.sample(20, seed=1)
    assert not np.any(same["first"] == same["second"])  # two equations in one region do not share points


def test_points_do_not_depend_on_the_names_of_conditions():
    problem = small("oscillator")
    renamed: dict[str, Any] = dict(zip("zyxw", problem.conditions.values(), strict=True))
    other = Problem(problem.domain, unknowns=problem.unknowns, **renamed)
    pairs = zip(problem.sample(20).values(), other.sample(20).values(), strict=True)
    assert all(np.array_equal(rows, same) for rows, same in pairs)


def test_a_periodic_shift_that_misses_the_far_face_by_rounding_is_inside():
    box = Box(x=(0.1, 0.1 + 2 * math.pi))
    Problem(box, periodic=Condition(box.lower("x"), lambda u, p: u(p) - u(p._replace(x=p.x + 2 * math.pi))))


def test_a_single_precision_constant_is_warned_of():
    held = jnp.asarray(0.1, dtype=jnp.float32)
    narrow = np.float32(0.1)
    for operator in (
        lambda u, p: slope(u, p) - held * u(p),
        lambda u, p: slope(u, p) - narrow * u(p),
        lambda u, p, c=held: slope(u, p) - c * u(p),
        Partial(scaled, held),
    ):
        with pytest.warns(UserWarning, match="'ode'.* float32 constant"):
            Problem(LINE, ode=Condition(LINE.interior, operator))


def test_double_precision_and_python_constants_are_not_warned_of():
    wide = np.float64(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Problem(LINE, ode=Condition(LINE.interior, lambda u, p: slope(u, p) - wide * u(p) + 0.1 * math.pi))
        Problem(LINE, ode=Condition(LINE.interior, Partial(scaled, 0.1)))


def test_integer_and_numpy_constants_in_operators_are_fine():
    problem = Problem(
        LINE, ode=Condition(LINE.interior, Partial(scaled, 2)), start=Condition(LINE.lower("x"), value, 1)
    )
    assert problem.linear


def test_a_problem_remembers_what_it_was_given():
    problem = small("oscillator")
    assert problem.names == ("u", "v")
    assert list(problem.conditions) == ["first", "second", "position", "speed"]
    assert problem.linear
    assert not small("riccati").linear


def test_the_order_of_exact_is_the_order_of_the_unknowns():
    values = small("oscillator").exact_values(np.array([[0.0], [0.25 * math.pi]]))
    np.testing.assert_allclose(values["u"], [1.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(values["v"], [0.0, -2.0], atol=1e-15)


def test_making_a_problem_leaves_the_settings_of_jax_alone():
    for x64 in (False, True):
        with jax.enable_x64(x64), jax.default_matmul_precision("default"):
            Problem(LINE, ode=Condition(LINE.interior, lambda u, p: slope(u, p), lambda p: jnp.sin(p.x)))
            assert setting("jax_enable_x64") == x64
            assert setting("jax_default_matmul_precision") == "default"
