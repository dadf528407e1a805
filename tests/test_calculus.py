"""Derivatives of fields against values by hand, and the caller's JAX settings, which nothing here may change."""

import cmath
import math
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import setting
from hypothesis import given, settings
from hypothesis import strategies as st

from ifef.calculus import d, float64, laplacian
from ifef.domain import point_type

NAMES = ("t", "x", "y", "z", "w")
RATES = dict(zip(NAMES, (0.7, -1.3, 0.4, 1.1, -0.6), strict=True))


def point(*values: Any) -> Any:
    return point_type(NAMES[: len(values)])(*values)


def exponential(p: Any) -> Any:
    """Every derivative is the field itself times the rates of the coordinates."""
    return jnp.exp(sum(RATES[name] * getattr(p, name) for name in p._fields))


def wave(p: Any) -> Any:
    return jnp.exp(1j * sum(RATES[name] * getattr(p, name) for name in p._fields))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.sampled_from(NAMES[:n]), max_size=4))))
def test_any_mixture_of_derivatives_in_up_to_five_dimensions(drawn):
    dimension, names = drawn
    with float64():
        p = point(*np.linspace(-0.4, 0.9, dimension))
        value = (d(exponential, *names) if names else exponential)(p)
        expected = math.prod(RATES[name] for name in names) * exponential(p)
        np.testing.assert_allclose(value, expected, rtol=1e-13)


@pytest.mark.parametrize("order", range(1, 8))
def test_order_of_a_derivative_counts_its_names(order):
    # (x^7)^(k) = 7!/(7-k)! x^(7-k): a derivative too few or too many is far off
    with float64():
        value = d(lambda p: p.x**7, *["x"] * order)(point_type(("x",))(1.5))
        np.testing.assert_allclose(value, math.perm(7, order) * 1.5 ** (7 - order), rtol=1e-14)


@pytest.mark.parametrize("names", [("t", "x", "x"), ("x", "t", "x"), ("x", "x", "t")])
def test_mixed_derivatives_commute(names):
    with float64():
        field = lambda p: jnp.sin(p.t * p.x) * p.x**3  # noqa: E731
        t, x = 0.3, 0.8
        # u = sin(tx) x^3: u_t = x^4 cos(tx), then twice in x
        second = 12 * x**2 * math.cos(t * x) - 8 * x**3 * t * math.sin(t * x) - x**4 * t**2 * math.cos(t * x)
        np.testing.assert_allclose(d(field, *names)(point(t, x)), second, rtol=1e-13)


@pytest.mark.parametrize("dimension", range(1, 6))
def test_laplacian_is_the_sum_of_the_named_second_derivatives(dimension):
    names = NAMES[:dimension]
    with float64():
        p = point(*np.linspace(0.2, 0.5, dimension))
        expected = sum(RATES[name] ** 2 for name in names) * exponential(p)
        np.testing.assert_allclose(laplacian(exponential, *names)(p), expected, rtol=1e-13)
        np.testing.assert_allclose(laplacian(exponential, "t")(p), RATES["t"] ** 2 * exponential(p), rtol=1e-13)


@pytest.mark.parametrize("x", [3, np.int32(3), jnp.asarray(3), True])
def test_an_integer_coordinate_is_a_number_like_any_other(x):
    with float64():
        value = d(lambda p: p.x**3, "x", "x")(point_type(("x",))(x))
        np.testing.assert_allclose(value, 6.0 * float(x), rtol=1e-14)


def test_a_point_of_arrays_is_differentiated_elementwise():
    with float64():
        t, x = np.linspace(0, 1, 5), np.linspace(-1, 2, 5)
        values = d(exponential, "t", "x", "x")(point(t, x))
        assert values.shape == (5,)
        np.testing.assert_allclose(
            values, RATES["t"] * RATES["x"] ** 2 * np.asarray(exponential(point(t, x))), rtol=1e-13
        )


@given(st.lists(st.sampled_from(NAMES[:2]), min_size=1, max_size=3))
@settings(max_examples=10, deadline=None)
def test_complex_fields(names):
    with float64():
        value = complex(d(wave, *names)(point(0.3, -0.8)))
        phase = RATES["t"] * 0.3 - RATES["x"] * 0.8
        expected = math.prod((1j * RATES[name]) ** count for name, count in Counter(names).items())
        assert abs(value - expected * cmath.exp(1j * phase)) < 1e-14


def test_what_does_not_depend_on_the_coordinate_has_derivative_zero():
    assert float(d(lambda p: 2.5, "x")(point(0.1, 0.2))) == 0.0
    assert float(d(lambda p: p.t, "x", "x")(point(0.1, 0.2))) == 0.0


def test_derivatives_are_fields_for_compilation_batching_and_further_derivatives():
    with float64():
        points = point(jnp.linspace(0.0, 1.0, 4), jnp.linspace(0.0, 1.0, 4))
        mapped = jax.jit(jax.vmap(d(d(exponential, "t"), "x")))(points)
        np.testing.assert_allclose(mapped, RATES["t"] * RATES["x"] * np.asarray(exponential(points)), rtol=1e-13)
        slope = jax.grad(lambda a: d(lambda p: a * p.x**2, "x")(point(0.0, 3.0)))(2.0)
        assert float(slope) == 6.0


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("precision", [None, "default", "high"])
def test_float64_leaves_the_settings_as_they_were(x64, precision):
    with jax.enable_x64(x64), jax.default_matmul_precision(precision):
        with float64():
            assert setting("jax_enable_x64")
            assert setting("jax_default_matmul_precision") == "highest"
            assert jnp.zeros(1).dtype == np.float64
        assert setting("jax_enable_x64") == x64
        assert setting("jax_default_matmul_precision") == precision
        with pytest.raises(KeyError), float64():
            raise KeyError("an exception leaves no trace either")
        assert setting("jax_enable_x64") == x64
        assert setting("jax_default_matmul_precision") == precision
