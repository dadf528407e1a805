"""The basis at a point: what it holds, against formulas in NumPy."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import LINE, value

from ifef.backbones import MLP, Identity, mlp
from ifef.calculus import d, float64
from ifef.domain import Box, point_type
from ifef.features import FourierFeatures, HiddenFeatures, fourier_features, gaussian, make_fields, unknown_sizes
from ifef.problem import Condition, Problem, Unknown

BOX = Box(t=(0.0, 4.0), x=(-3.0, 1.0))
PROBLEM = Problem(BOX, equation=Condition(BOX.interior, value))
MIDDLE = {"t": 3.0, "x": -0.5}  # scaled: 0.5, 0.25


def evaluate(features: Any, **coordinates: float) -> np.ndarray:
    with float64():
        names = features.domain.names
        return np.asarray(features(point_type(names)(*(jnp.asarray(coordinates[name]) for name in names))))


def hidden_by_hand(backbone: MLP, x: np.ndarray) -> np.ndarray:
    for weight, bias in zip(backbone.weights, backbone.biases, strict=True):
        x = np.tanh(np.asarray(weight) @ x + np.asarray(bias))
    return x


@pytest.mark.parametrize("widths", [(), (7,), (7, 5)])
@pytest.mark.parametrize("enlarged", [True, False])
def test_psi_is_the_papers_formula_on_the_last_hidden_layer(widths, enlarged):
    features = fourier_features(PROBLEM, 6, sigma=0.8, backbone=widths, enlarged=enlarged, initialisation="torch")
    x = np.array([0.5, 0.25])
    h = hidden_by_hand(features.backbone, x) if isinstance(features.backbone, MLP) else x
    angle = 2.0 * math.pi * np.asarray(features.frequencies) @ h
    expected = [np.cos(angle) / math.sqrt(6), np.sin(angle) / math.sqrt(6)]
    if enlarged:  # [h, x, 1]; without a backbone h is x, which is there once
        expected += ([h, x] if widths else [x]) + [np.ones(1)]
    values = evaluate(features, **MIDDLE)
    np.testing.assert_allclose(values, np.concatenate(expected), rtol=1e-13, atol=1e-15)
    assert features.size == len(values)
    assert features.num_frequencies == 6
    assert values.dtype == np.float64


def test_the_fourier_part_has_unit_length_everywhere():
    features = fourier_features(PROBLEM, 50, sigma=3.0, enlarged=False)
    assert np.sum(np.square(evaluate(features, t=0.3, x=0.9))) == pytest.approx(1.0, rel=1e-13)


def test_the_warm_start_of_a_plain_network_is_in_the_enlarged_basis():
    features = fourier_features(PROBLEM, 8, backbone=(9, 5))
    plain = HiddenFeatures(features.backbone, BOX)
    hidden = evaluate(plain, **MIDDLE)
    assert plain.size == 5
    np.testing.assert_array_equal(evaluate(features, **MIDDLE)[16:21], hidden)


@pytest.mark.parametrize("sigma", [1.5, (1.0, 2.0, 5.0)])
def test_a_smaller_table_of_frequencies_is_the_beginning_of_a_larger_one(sigma):
    large = gaussian(40, 3, sigma, seed=7)
    for num in (0, 1, 17, 40):
        np.testing.assert_array_equal(gaussian(num, 3, sigma, seed=7), large[:num])
    assert not np.any(gaussian(40, 3, sigma, seed=8) == large)


def test_frequencies_have_the_standard_deviation_sigma_per_coordinate():
    table = gaussian(20_000, 3, (0.5, 2.0, 7.0))
    np.testing.assert_allclose(table.std(axis=0), [0.5, 2.0, 7.0], rtol=0.03)
    np.testing.assert_allclose(table.mean(axis=0) / [0.5, 2.0, 7.0], 0.0, atol=0.03)
    np.testing.assert_allclose(np.corrcoef(table.T), np.eye(3), atol=0.03)


def test_more_features_keep_the_backbone_and_the_first_frequencies():
    few, many = fourier_features(PROBLEM, 5, seed=3), fourier_features(PROBLEM, 9, seed=3)
    np.testing.assert_array_equal(few.frequencies, many.frequencies[:5])
    for one, other in zip(jax.tree.leaves(few.backbone), jax.tree.leaves(many.backbone), strict=True):
        np.testing.assert_array_equal(one, other)


def test_given_frequencies_are_used_as_they_are():
    table = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    features = fourier_features(PROBLEM, 800, backbone=(), frequencies=table)
    np.testing.assert_array_equal(features.frequencies, table)
    assert features.num_frequencies == 3


@pytest.mark.parametrize("initialisation", ["glorot", "torch"])
def test_a_network_repeats_by_seed_in_float64(initialisation):
    first, same, other = (mlp(2, (30, 40), seed=seed, initialisation=initialisation) for seed in (1, 1, 2))
    assert isinstance(first, MLP)
    assert first.widths == (30, 40)
    for one, two, three in zip(jax.tree.leaves(first), jax.tree.leaves(same), jax.tree.leaves(other), strict=True):
        one, two, three = (np.asarray(leaf) for leaf in (one, two, three))
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, two)
        assert not np.any(one) or not np.any(one == three)


def test_initialisations_have_the_spread_that_their_names_stand_for():
    glorot, torch = mlp(3, (200, 100), initialisation="glorot"), mlp(3, (200, 100), initialisation="torch")
    assert isinstance(glorot, MLP)
    assert isinstance(torch, MLP)
    for index, (fan_in, fan_out) in enumerate([(3, 200), (200, 100)]):
        assert np.std(np.asarray(glorot.weights[index])) == pytest.approx(math.sqrt(2 / (fan_in + fan_out)), rel=0.1)
        assert not np.any(np.asarray(glorot.biases[index]))
        for drawn in (torch.weights[index], torch.biases[index]):
            bound = 1 / math.sqrt(fan_in)
            assert np.max(np.abs(np.asarray(drawn))) <= bound
            assert np.max(np.abs(np.asarray(drawn))) > 0.95 * bound
            assert np.std(np.asarray(drawn)) == pytest.approx(bound / math.sqrt(3), rel=0.12)


def test_features_do_not_depend_on_units():
    # the same point of a box in other units: the same values, the same meaning of sigma
    scaled = Box(t=(10.0, 10.0 + 4e-6), x=(-3e3, 1e3))
    other = Problem(scaled, equation=Condition(scaled.interior, value))
    here, there = fourier_features(PROBLEM, 20), fourier_features(other, 20)
    np.testing.assert_allclose(evaluate(there, t=10.0 + 3e-6, x=-0.5e3), evaluate(here, **MIDDLE), rtol=1e-7, atol=1e-8)


def test_an_equinox_module_is_a_backbone_on_the_scaled_point():
    with jax.enable_x64(True):
        own = eqx.nn.MLP(2, 6, 10, 1, activation=jnp.sin, key=jax.random.key(0))
        expected = np.asarray(own(jnp.array([0.5, 0.25])))
    features = fourier_features(PROBLEM, 4, backbone=own)
    assert features.frequencies.shape == (4, 6)
    np.testing.assert_allclose(evaluate(features, **MIDDLE)[8:14], expected, rtol=1e-14)


def test_a_function_of_a_point_is_a_backbone_in_the_problems_own_coordinates():
    features = fourier_features(PROBLEM, 4, backbone=lambda p: jnp.stack([p.t * p.x, p.x**2, jnp.sin(p.t)]))
    assert features.frequencies.shape == (4, 3)
    np.testing.assert_allclose(evaluate(features, **MIDDLE)[8:11], [-1.5, 0.25, math.sin(3.0)], rtol=1e-14)


def test_the_problems_own_basis_comes_last():
    problem = Problem(
        BOX, equation=Condition(BOX.interior, value), basis=(lambda p: jnp.abs(p.x) ** 0.5, lambda p: 7.0)
    )
    features = fourier_features(problem, 3, backbone=(4,))
    np.testing.assert_allclose(evaluate(features, **MIDDLE)[-3:], [1.0, math.sqrt(0.5), 7.0])
    assert features.size == 6 + 4 + 2 + 1 + 2


def test_no_frequencies_leave_a_plain_network():
    assert fourier_features(PROBLEM, 0, backbone=(4,)).size == 4 + 2 + 1


def test_coefficients_become_fields_by_kind_of_unknown():
    features = fourier_features(PROBLEM, 2, backbone=())  # 4 + 2 + 1 columns
    unknowns = (Unknown("u"), Unknown("k", scalar=True), Unknown("c", over=("x",)), Unknown("w", complex=True))
    assert unknown_sizes(features, unknowns) == (7, 1, 7, 14)
    psi = evaluate(features, **MIDDLE)
    with float64():
        theta = jnp.linspace(-1.0, 2.0, 29)
        u, k, c, w = make_fields(features, unknowns, theta)
        p = point_type(BOX.names)(3.0, -0.5)
        np.testing.assert_allclose(u(p), psi @ theta[:7], rtol=1e-13)
        assert float(k(p)) == float(theta[7])
        np.testing.assert_allclose(w(p), psi @ theta[15:22] + 1j * (psi @ theta[22:]), rtol=1e-13)
        assert float(c(p)) == float(c(p._replace(t=0.1)))
        assert float(c(p)) != float(c(p._replace(x=0.1)))
        assert float(d(c, "t")(p)) == 0.0
        assert float(d(c, "x")(p)) != 0.0


def test_features_are_pytrees_of_their_backbone_and_frequencies():
    features = fourier_features(Problem(LINE, ode=Condition(LINE.interior, value)), 3, backbone=(4, 2))
    assert isinstance(features, FourierFeatures)
    shapes = sorted(leaf.shape for leaf in jax.tree.leaves(features))
    assert shapes == [(2,), (2, 4), (3, 2), (4,), (4, 1)]
    bare = fourier_features(PROBLEM, 3, backbone=())
    assert isinstance(bare.backbone, Identity)
    assert len(jax.tree.leaves(bare)) == 1
