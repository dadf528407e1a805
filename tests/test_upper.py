"""One step on omega: both gradients against finite differences, primal-dual against Adam by hand, and compilations."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import LINE, neumann_robin, programs, slope, value
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial

from ifef import tiles
from ifef.assembly import Data, loss, make_data, num_columns, residuals
from ifef.calculus import d, float64
from ifef.domain import point_type
from ifef.features import FourierFeatures, fourier_features
from ifef.lower import AbstractLower, LeastSquares, Ridge
from ifef.problem import Condition, Problem
from ifef.theta import solve_lower
from ifef.upper import PrimalDual, Task, Training, TrainState, _batch, run_epochs, split, start_state

SHARED = {"equation": 0.05, "neumann": 1.0, "robin": 0.7}
BELOW = {"equation": 0.4, "neumann": 0.2, "robin": 3.0}
RATE = 1e-3
SGD = optax.sgd(RATE)  # once: a second one would be another function, and compile anew
# Primal-dual on batches, in one setting for all that is said of them.
DUAL = Training(8, 1e-3, dual=PrimalDual(0.05, initial=0.01), batch=5)


@functools.cache
def case() -> tuple[FourierFeatures, Data]:
    """A small system of full rank whose residual is far from zero."""
    problem = neumann_robin()
    features = fourier_features(problem, 1, backbone=(3,), sigma=0.5, initialisation="torch", enlarged=False)
    return features, make_data(problem, problem.sample(24))


def epochs(
    training: Training, lower: AbstractLower | None, count: int = 1, weights: dict[str, float] = SHARED
) -> tuple[TrainState, TrainState]:
    """State before and after `count` epochs."""
    features, data = case()
    with float64():
        theta = jnp.zeros(num_columns(features, data))
        state = start_state(training, features, data, theta, weights, lower is None)
        traced = {key: jnp.asarray(one) for key, one in weights.items()}
        task = Task(training, lower, split(features)[1], data, traced, jax.random.key(0))
        return state, run_epochs(task, state, jnp.asarray(count))


@eqx.filter_jit
def _loss(features: FourierFeatures, data: Data, theta: jax.Array, weights: Any) -> jax.Array:
    return loss(residuals(features, data, theta), weights)


def moved(flat: np.ndarray) -> FourierFeatures:
    """The features of the case with omega from a vector."""
    features, _ = case()
    omega, rest = split(features)
    return eqx.combine(ravel_pytree(omega)[1](jnp.asarray(flat)), rest)


def start() -> np.ndarray:
    return np.asarray(ravel_pytree(split(case()[0])[0])[0])


def differences(function: Any, step: float = 1e-4) -> np.ndarray:
    """Gradient by central differences of fourth order."""
    x = start()
    slopes = []
    for unit in np.eye(len(x)):
        values = [function(x + k * step * unit) for k in (-2, -1, 1, 2)]
        slopes.append((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step))
    return np.array(slopes)


def descent(gradient: Any, dual: PrimalDual | None = None) -> Training:
    """Plain descent: a step is the gradient times the rate."""
    return Training(1, gradient=gradient, dual=dual, optimiser=SGD)


def gradient_taken(training: Training, lower: AbstractLower) -> np.ndarray:
    """The gradient that an epoch uses."""
    before, after = epochs(training, lower)
    with float64():
        return (np.asarray(ravel_pytree(before.omega)[0]) - np.asarray(ravel_pytree(after.omega)[0])) / RATE


def test_the_frozen_gradient_is_that_of_the_loss_at_fixed_theta():
    # with weights of its own below, and above where primal-dual starts from another weight than the shared one
    features, data = case()
    lower = LeastSquares(weights=BELOW)
    theta = solve_lower(lower, features, data, SHARED)[0].theta
    above = {**SHARED, "equation": 0.3}
    with float64():
        expected = differences(lambda flat: float(_loss(moved(flat), data, theta, above)))
    found = gradient_taken(descent("frozen", PrimalDual(initial=0.3)), lower)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("lower", [LeastSquares(weights=BELOW), Ridge(1e-3, weights=BELOW)], ids=["exact", "ridge"])
def test_the_gradient_through_the_lower_level_is_that_of_the_whole_map(lower):
    _, data = case()

    def through(flat: np.ndarray) -> float:
        features = moved(flat)
        theta = solve_lower(lower, features, data, SHARED)[0].theta
        return float(_loss(features, data, theta, SHARED))

    with float64():
        expected = differences(through)
    found = gradient_taken(descent("through"), lower)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.max(np.abs(expected)))
    # the choice matters: with other weights below, the frozen gradient is another vector
    theta = solve_lower(lower, case()[0], data, SHARED)[0].theta
    with float64():
        frozen = differences(lambda flat: float(_loss(moved(flat), data, theta, SHARED)))
    assert np.linalg.norm(frozen - expected) > 0.05 * np.linalg.norm(expected)


def test_both_gradients_agree_where_the_levels_share_one_loss_and_nothing_is_regularised():
    frozen, through = (gradient_taken(descent(way), LeastSquares()) for way in ("frozen", "through"))
    np.testing.assert_allclose(frozen, through, rtol=1e-6, atol=1e-8)
    assert np.linalg.norm(frozen) > 0.1


def test_the_last_epochs_mean_squares_are_recorded():
    features, data = case()
    _, state = epochs(descent("frozen"), LeastSquares())
    result, _ = solve_lower(LeastSquares(), features, data, SHARED)
    np.testing.assert_allclose(state.theta, result.theta, rtol=1e-9)
    with float64():
        values = eqx.filter_jit(residuals)(features, data, result.theta)
        for key in SHARED:
            assert float(state.losses[key]) == pytest.approx(float(np.mean(np.square(values[key]))), rel=1e-9)
    assert int(state.rank) == num_columns(features, data)


@pytest.mark.parametrize(("gradient", "count"), [("frozen", 1), ("through", 1), ("frozen", 25)])
def test_small_steps_lower_the_loss(gradient, count):
    features, data = case()
    _, after = epochs(descent(gradient), LeastSquares(), count)
    with float64():
        trained = eqx.combine(after.omega, split(features)[1])
        before, now = (solve_lower(LeastSquares(), one, data, SHARED)[0].residual for one in (features, trained))
    assert 0 < float(now) < float(before) * (1 - 1e-5 * count)
    assert int(after.epoch) == count


def test_epochs_do_not_depend_on_how_they_are_cut_into_stretches():
    features, data = case()
    lower = LeastSquares(weights=BELOW)
    _, whole = epochs(DUAL, lower, 6)
    with float64():
        state = start_state(DUAL, features, data, jnp.zeros(num_columns(features, data)), SHARED, False)
        traced = {key: jnp.asarray(one) for key, one in SHARED.items()}
        task = Task(DUAL, lower, split(features)[1], data, traced, jax.random.key(0))
        for count in (1, 3, 2):
            state = run_epochs(task, state, jnp.asarray(count))
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_plain_training_moves_omega_and_theta_together():
    before, after = epochs(descent("frozen"), None)
    features, data = case()
    with float64():
        theta = np.asarray(before.theta)
        step = 1e-5
        expected = [
            float(_loss(features, data, jnp.asarray(theta + step * unit), SHARED))
            - float(_loss(features, data, jnp.asarray(theta - step * unit), SHARED))
            for unit in np.eye(len(theta))
        ]
    np.testing.assert_allclose((theta - np.asarray(after.theta)) / RATE, np.array(expected) / (2 * step), rtol=1e-6)


# --- primal-dual ------------------------------------------------------------------------------------------------------


def test_dual_weights_follow_adams_ascent_by_hand_and_only_grow():
    lower, rate = LeastSquares(weights=BELOW), 0.05
    weight, mean, square = 0.01, 0.0, 0.0
    for step in range(1, 7):
        _, state = epochs(DUAL, lower, step)
        upward = float(state.losses["equation"])  # the derivative of the loss in the weight, at the last epoch
        mean = 0.9 * mean + 0.1 * upward
        square = 0.999 * square + 0.001 * upward**2
        before = weight
        weight += rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        assert set(state.duals) == {"equation"}  # those of data stay
        assert float(state.duals["equation"]) == pytest.approx(weight, rel=1e-12)
        assert weight > before


def test_dual_weights_start_from_the_shared_ones_where_nothing_else_is_said():
    features, data = case()
    with float64():
        state = start_state(
            Training(1, dual=PrimalDual()), features, data, jnp.zeros(features.size), SHARED, joint=False
        )
    assert float(state.duals["equation"]) == SHARED["equation"]


def test_the_lower_level_keeps_its_weights_and_all_points_while_dual_weights_grow():
    lower, (features, data) = LeastSquares(weights=BELOW), case()
    earlier, last = (epochs(DUAL, lower, count)[1] for count in (4, 5))
    with float64():
        at = eqx.combine(earlier.omega, split(features)[1])  # theta is that of the features before the last step
        expected = solve_lower(LeastSquares(), at, data, BELOW)[0].theta
    np.testing.assert_allclose(last.theta, expected, rtol=1e-8)


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_is_a_random_part_of_each_condition_with_its_targets():
    problem = Problem(
        LINE,
        ode=Condition(LINE.interior, slope, lambda p: np.exp(p.x)),
        start=Condition(LINE.lower("x"), value, 1.0),
    )
    data = make_data(problem, problem.sample(50))
    with float64():
        parts = [_batch(data, 8, jax.random.key(seed)) for seed in (0, 0, 1)]
        for part in parts:
            x = np.asarray(part.points["ode"])[:, 0]
            assert len(np.unique(x)) == 8
            assert set(x) <= set(np.asarray(data.points["ode"])[:, 0])
            np.testing.assert_allclose(part.targets["ode"], np.exp(x), rtol=1e-14)
            assert part.points["start"].shape == (1, 1)
        np.testing.assert_array_equal(parts[0].points["ode"], parts[1].points["ode"])
        assert not np.array_equal(parts[0].points["ode"], parts[2].points["ode"])
        assert _batch(data, None, jax.random.key(0)) is data


def test_minibatches_are_new_every_epoch():
    features, data = case()
    first, second = (epochs(DUAL, LeastSquares(weights=BELOW), count)[1] for count in (1, 2))
    theta = solve_lower(LeastSquares(), features, data, BELOW)[0].theta
    with float64():
        every = np.square(eqx.filter_jit(residuals)(features, data, theta)["equation"])
    # a mean of five of the squares, and of other five in the next epoch, where omega has hardly moved
    assert float(first.losses["equation"]) != pytest.approx(float(np.mean(every)), rel=1e-3)
    assert np.sort(every)[:5].mean() < float(first.losses["equation"]) < np.sort(every)[-5:].mean()
    assert float(second.losses["equation"]) != pytest.approx(float(first.losses["equation"]), rel=1e-2)


# --- compilation ------------------------------------------------------------------------------------------------------


def test_other_counts_and_weights_do_not_compile_anew():
    epochs(DUAL, LeastSquares(weights=BELOW))
    size = programs(run_epochs)
    assert size > 0
    for count in (2, 3):
        epochs(DUAL, LeastSquares(weights=BELOW), count, {key: 2.0 * one for key, one in SHARED.items()})
    assert programs(run_epochs) == size


def decay(rate: float, u: Any, p: Any) -> Any:
    return d(u, "x")(p) + rate * u(p)


def test_a_sweep_over_a_number_inside_an_operator_compiles_once():
    def solve(rate: float) -> tuple[int, float]:
        problem = Problem(
            LINE,
            ode=Condition(LINE.interior, Partial(decay, rate)),
            start=Condition(LINE.lower("x"), value, 1.0),
        )
        features = fourier_features(problem, 6, backbone=(), sigma=0.3)
        data = make_data(problem, problem.sample(20))
        theta = solve_lower(LeastSquares(), features, data, {"ode": 1.0, "start": 1.0})[0].theta
        with float64():
            middle = features(point_type(("x",))(jnp.asarray(0.5))) @ theta
        return programs(tiles._tile), float(middle)

    first, value_at_one = solve(1.0)
    for rate in (2.0, 0.3):
        size, at = solve(rate)
        assert size == first
        assert at == pytest.approx(np.exp(-0.5 * rate), abs=1e-7)
    assert value_at_one == pytest.approx(np.exp(-0.5), abs=1e-7)
