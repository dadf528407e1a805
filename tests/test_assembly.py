"""Rows: the Jacobian of the residuals, whatever the problem; and one loss for both levels."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import LINE, small, value

from ifef import problems
from ifef.assembly import (
    CHUNK,
    Data,
    condition_rows,
    loss,
    make_data,
    num_columns,
    num_rows,
    residuals,
    row_blocks,
    row_scales,
    system,
)
from ifef.calculus import d, float64
from ifef.domain import point_type
from ifef.features import FourierFeatures, fourier_features, make_fields
from ifef.problem import Condition, Problem
from ifef.scales import condition_scales
from ifef.tiles import values_of

LINEAR = ("growth", "oscillator", "complex", "unknown number", "heat, periodic", "unknown function of x")
NONLINEAR = ("riccati", "burgers")


def case(name: str, num: int = 7) -> tuple[FourierFeatures, Data, Problem]:
    problem = problems.burgers() if name == "burgers" else small(name)
    features = fourier_features(problem, 5, backbone=(6,), initialisation="torch")
    return features, make_data(problem, problem.sample(num)), problem


def some_theta(features: FourierFeatures, data: Data) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=num_columns(features, data)))


@eqx.filter_jit
def _everything(features: FourierFeatures, data: Data, theta: jax.Array, weights: dict[str, float]) -> dict[str, Any]:
    values = residuals(features, data, theta)
    return {
        "residuals": values,
        "jacobian": jax.jacfwd(lambda one: residuals(features, data, one))(theta),
        "rows": {key: condition_rows(features, data, key, theta) for key in data.points},
        "rows at zero": {key: condition_rows(features, data, key, 0 * theta) for key in data.points},
        "system": system(features, data, theta, row_scales(data, weights)),
        "loss": loss(values, weights),
    }


@functools.cache
def assembled(name: str) -> dict[str, Any]:
    """Every quantity of a case at one theta, compiled once."""
    features, data, problem = case(name)
    with float64():
        theta = some_theta(features, data)
        weights = {key: 0.3 + index for index, key in enumerate(problem.conditions)}
        found = jax.device_get(_everything(features, data, theta, weights))
        counts = {key: data.count(key) for key in data.points}
        return found | {"theta": np.asarray(theta), "weights": weights, "counts": counts, "num": num_rows(data)}


def close(first: Any, second: Any) -> None:
    size = float(np.max(np.abs(second)))
    np.testing.assert_allclose(first, second, rtol=1e-11, atol=1e-12 * size)


@pytest.mark.parametrize("name", [*LINEAR, *NONLINEAR])
def test_rows_are_the_jacobian_of_the_residuals(name):
    found = assembled(name)
    for key, count in found["counts"].items():
        assert found["rows"][key].shape == (count, len(found["theta"]) + 1)
        close(found["rows"][key][:, :-1], found["jacobian"][key])


@pytest.mark.parametrize("name", [*LINEAR, *NONLINEAR])
def test_residuals_are_rows_times_theta_minus_right_hand_side(name):
    # for a linear problem with the rows of any theta; for a nonlinear one Gauss-Newton's model at theta itself
    found = assembled(name)
    for key, rows in found["rows"].items():
        close(rows[:, :-1] @ found["theta"] - rows[:, -1], found["residuals"][key])
        if name in LINEAR:
            close(rows, found["rows at zero"][key])
    if name in NONLINEAR:
        assert any(not np.allclose(rows, found["rows at zero"][key]) for key, rows in found["rows"].items())


@pytest.mark.parametrize("name", [*LINEAR, *NONLINEAR])
def test_the_squared_length_of_the_scaled_rows_is_the_weighted_loss(name):
    found = assembled(name)
    rows, weights = found["system"], found["weights"]
    assert len(rows) == found["num"] == sum(found["counts"].values())
    length = np.sum(np.square(rows[:, :-1] @ found["theta"] - rows[:, -1]))
    by_hand = sum(weights[key] * np.mean(np.square(values)) for key, values in found["residuals"].items())
    np.testing.assert_allclose(length, by_hand, rtol=1e-12)
    np.testing.assert_allclose(found["loss"], by_hand, rtol=1e-13)


def test_residuals_are_operator_minus_target():
    problem = Problem(LINE, ode=Condition(LINE.interior, lambda u, p: d(u, "x")(p) + 2.0, lambda p: np.exp(p.x)))
    features = fourier_features(problem, 0, backbone=())  # columns x and 1, x scaled to [-1, 1]
    data = make_data(problem, {"ode": np.array([[0.0], [0.5]])})
    with float64():
        values = residuals(features, data, jnp.array([3.0, 4.0]))["ode"]
    np.testing.assert_allclose(values, 6.0 + 2.0 - np.exp([0.0, 0.5]), rtol=1e-14)


@pytest.mark.parametrize("remat", [False, True])
def test_values_do_not_depend_on_chunks_or_on_recomputation(remat):
    problem = small("growth")
    features = fourier_features(problem, 5, backbone=(6,), initialisation="torch")
    x = np.linspace(0.0, 1.0, 2 * CHUNK + 3)
    data = make_data(problem, {"ode": x[:, None]})
    with float64():
        theta = some_theta(features, data)
        (u,) = make_fields(features, problem.unknowns, theta)
        points = point_type(("x",))(jnp.asarray(x))
        expected = jax.vmap(lambda p: d(u, "x")(p) - u(p))(points)
        found = eqx.filter_jit(residuals)(features, data, theta, remat=remat)["ode"]
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_blocks_of_rows_are_all_rows_once():
    _, data, _ = case("oscillator", 10)
    for block in (1, 3, 10, 100):
        parts = list(row_blocks(data, block))
        assert all(len(part.points) == 1 for part in parts)
        assert max(num_rows(part) for part in parts) <= block
        for key, rows in data.points.items():
            np.testing.assert_array_equal(np.concatenate([p.points[key] for p in parts if key in p.points]), rows)
            targets = np.concatenate([part.targets[key] for part in parts if key in part.targets])
            np.testing.assert_array_equal(targets, data.targets[key])


def test_blocks_count_both_rows_of_a_complex_point():
    _, data, _ = case("complex", 10)
    assert max(num_rows(part) for part in row_blocks(data, 8)) == 8


def test_rows_of_values_give_the_unknowns_at_points():
    features, data, problem = case("complex")
    x = np.linspace(0.1, 0.9, 4)
    with float64():
        theta = some_theta(features, data)
        table = np.concatenate(values_of(features, problem.unknowns, x[:, None]))
        values = (table @ theta).reshape(4, 2)
        psi = jax.vmap(features)(point_type(("x",))(jnp.asarray(x)))
        half = len(theta) // 2
        np.testing.assert_allclose(values[:, 0], psi @ theta[:half], rtol=1e-12)
        np.testing.assert_allclose(values[:, 1], psi @ theta[half:], rtol=1e-12)


def test_a_scale_is_the_same_whichever_side_the_source_stands_on():
    source = lambda p: 40.0 * jnp.sin(p.x)  # noqa: E731
    left = Problem(LINE, ode=Condition(LINE.interior, lambda u, p: d(u, "x", "x")(p) - source(p)))
    right = Problem(LINE, ode=Condition(LINE.interior, lambda u, p: d(u, "x", "x")(p), source))
    rows = left.sample(50)
    features = fourier_features(left, 5, backbone=(6,))
    one, other = (condition_scales(features, make_data(problem, rows))["ode"] for problem in (left, right))
    assert one == pytest.approx(other, rel=1e-12)
    assert one == pytest.approx(float(np.sqrt(np.mean(np.square(40.0 * np.sin(rows["ode"]))))), rel=1e-12)


def test_the_scale_of_a_condition_without_source_follows_its_operator():
    many = lambda factor: Problem(LINE, ode=Condition(LINE.interior, lambda u, p: factor * value(u, p)))  # noqa: E731
    features = fourier_features(many(1.0), 5, backbone=(6,), initialisation="torch")
    rows = many(1.0).sample(50)
    one, large = (condition_scales(features, make_data(many(factor), rows))["ode"] for factor in (1.0, 1e5))
    assert large == pytest.approx(1e5 * one, rel=1e-12)
