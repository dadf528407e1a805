"""The search: rows by tiles, spectra, polishing, envelopes, lattices, and what the conditions determine."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import SMALL, data_of, features_of, small

import ifef
from ifef import Box, Condition, Problem, d, derived_target, laplacian
from ifef.assembly import num_columns, row_scales, system
from ifef.calculus import float64
from ifef.domain import point_type
from ifef.frequencies import around, thicken
from ifef.lattices import Shape
from ifef.portfolio import undetermined
from ifef.search import candidates, locate, polish
from ifef.spectra import peaks, unsigned
from ifef.tiles import system_of, values_of
from ifef.trials import Trials

SQUARE = Box(x=(0.0, 1.0), y=(0.0, 1.0))
EVOLUTION = Box(t=(0.0, 1.0), x=(0.0, 1.0))
NONE = np.zeros((0, 2))


def value(u, p):
    return u(p)


def helmholtz(*waves: tuple[float, float]) -> Problem:

    def exact(p):
        return sum(jnp.sin(a * p.x + b * p.y + 0.3) for a, b in waves)

    def operator(u, p):
        return laplacian(u, "x", "y")(p) + 20.0 * u(p)

    return Problem(
        SQUARE,
        equation=Condition(SQUARE.interior, operator, derived_target(operator, exact)),
        walls=Condition(SQUARE.boundary, value, exact),
        exact=exact,
    )


def decay(kappa: float = 1.5) -> Problem:
    """u_t + u_x = -kappa u: a wave with an envelope."""

    def exact(p):
        return jnp.exp(-kappa * p.t) * jnp.sin(12.0 * math.pi * (p.x - p.t))

    def ahead(p):
        return p._replace(x=p.x + 1.0)

    return Problem(
        EVOLUTION,
        equation=Condition(EVOLUTION.interior, lambda u, p: d(u, "t")(p) + d(u, "x")(p) + kappa * u(p)),
        initial=Condition(EVOLUTION.lower("t"), value, exact),
        periodic=Condition(EVOLUTION.lower("x"), lambda u, p: u(p) - u(ahead(p))),
        exact=exact,
    )


def string(**more: Any) -> Problem:
    """A string between fixed ends."""
    sides = EVOLUTION.lower("x") | EVOLUTION.upper("x")
    equation = Condition(EVOLUTION.interior, lambda u, p: d(u, "t", "t")(p) - 4.0 * d(u, "x", "x")(p))
    start = Condition(EVOLUTION.lower("t"), value, lambda p: jnp.sin(3.0 * math.pi * p.x))
    return Problem(EVOLUTION, equation=equation, start=start, walls=Condition(sides, value), **more)


# --- rows -------------------------------------------------------------------------------------------------------------

AFFINE = [name for name in SMALL if small(name).linear]


@pytest.mark.parametrize("name", AFFINE)
def test_tiles_make_the_rows_that_one_program_makes(name):
    features, (data, weights) = features_of(name), data_of(name)
    with float64():
        scales = row_scales(data, weights)
        whole = np.asarray(system(features, data, jnp.zeros(num_columns(features, data)), scales))
        tiled = system_of(features, data, {key: float(scale) for key, scale in scales.items()})
    np.testing.assert_allclose(tiled, whole, rtol=1e-12, atol=1e-12 * np.abs(whole).max())


def test_many_tiles_are_put_in_their_places():
    problem = helmholtz((3.0, 4.0))
    features = ifef.fourier_features(problem, 150, sigma=1.0, backbone=(5,), seed=0)  # two widths, and [h, x, 1]
    points = np.random.default_rng(0).uniform(0.0, 1.0, (700, 2))  # three stretches
    with float64():
        (table,) = values_of(features, problem.unknowns, points)
        make = point_type(("x", "y"))
        direct = np.stack([features(make(*map(jnp.asarray, points[index]))) for index in (0, 300, 699)])
    np.testing.assert_allclose(table[[0, 300, 699]], direct, rtol=1e-12, atol=1e-14)


# --- spectra ----------------------------------------------------------------------------------------------------------


def test_peaks_are_the_frequencies_of_a_sum_of_waves():
    x, y = np.meshgrid(*[np.linspace(-1.0, 1.0, 96)] * 2, indexing="ij")
    waves = np.array([[20.0, -7.0], [5.0, 40.0], [33.0, 33.0]])
    values = np.sum([np.cos(a * x + b * y + index) for index, (a, b) in enumerate(waves)], axis=0)
    found = peaks(values)[::2][:3]  # maxima and samples of the spectrum alternate
    for wave in waves:
        assert np.min(np.linalg.norm(found - wave, axis=1)) < 1.0


def test_a_wave_and_its_mirror_image_are_one():
    angular = np.array([[1.0, -2.0], [-1.0, 2.0], [0.0, -3.0], [0.0, 3.0], [-4.0, 1.0]])
    np.testing.assert_array_equal(unsigned(angular), [[1.0, -2.0], [0.0, 3.0], [4.0, -1.0]])


# --- waves ------------------------------------------------------------------------------------------------------------


def test_polishing_finds_the_frequencies_to_rounding():
    problem = helmholtz((31.0, -17.0), (6.0, 44.0))
    true = 0.5 * np.array([[31.0, -17.0], [6.0, 44.0]])  # a side of the box is two units of the scaled inputs
    with float64():
        trials = Trials(problem, 0)
        moved, _, left = polish(trials, true + np.array([[0.4, -0.3], [-0.2, 0.5]]), 1.0)
    for wave in true:
        assert np.min(np.linalg.norm(moved - wave, axis=1)) < 1e-9
    assert left < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_waves_that_nobody_named_are_located(seed):
    problem = helmholtz((31.0, -17.0), (6.0, 44.0), (50.0, 3.0))
    with float64():
        trials = Trials(problem, seed)
        waves, energies = locate(trials, candidates(trials, None), NONE, 1.0, 6)
        assert trials.solve(waves).held_out < 1e-12
    assert len(waves) == len(energies) <= 6


def test_a_search_repeats_by_seed():
    one, other = (ifef.solve(helmholtz((31.0, -17.0)), seed=3, progress=False) for _ in range(2))
    np.testing.assert_array_equal(one.theta, other.theta)


def test_without_the_exact_solution_theta_is_the_same_to_the_bit():
    known = helmholtz((31.0, -17.0))
    conditions: dict[str, Any] = known.conditions
    unknown = Problem(SQUARE, **conditions)
    one, other = (ifef.solve(problem, progress=False) for problem in (known, unknown))
    np.testing.assert_array_equal(one.theta, other.theta)


# --- envelopes and lattices -------------------------------------------------------------------------------------------


def test_an_envelope_is_spanned_by_near_frequencies():
    with float64():
        trials = Trials(decay(), 0)
        wave = np.array([[6.0 * math.pi, -6.0 * math.pi]])
        alone = trials.solve(wave)
        thick = thicken(trials, wave, np.ones(1), 1500, lambda _: True)
    assert alone.held_out > 1e-2
    assert thick.held_out < 1e-11


@pytest.mark.parametrize(("radii", "num"), [((20.0, 10.0), 150), ((15.0, 15.0, 15.0), 300), ((40.0,), 30)])
def test_a_lattice_fills_its_ellipsoid_with_about_as_many_as_asked(radii, num):
    shape = Shape(radii, num)
    found = shape.frequencies()
    assert found is not None
    assert 0.85 * num < len(found) < 1.2 * num
    assert np.all(np.sum(np.square(found / np.array(radii)), axis=1) < 1.0 + 1e-6)
    assert len(unsigned(found)) == len(found)


def test_a_lattice_that_the_box_does_not_fit_into_is_none():
    assert Shape((100.0, 100.0), 50).frequencies() is None


def test_around_zero_half_a_lattice_is_enough():
    centred, shifted = around(np.zeros((1, 2)), (5, 5)), around(np.array([[30.0, 0.0]]), (5, 5))
    assert len(centred) == (len(shifted) + 1) // 2


# --- what the conditions determine ------------------------------------------------------------------------------------


def test_a_few_waves_do_not_hide_a_missing_condition():
    rest = Condition(EVOLUTION.lower("t"), lambda u, p: d(u, "t")(p))
    for problem, missing in ((string(), True), (string(rest=rest), False)):
        with float64():
            trials = Trials(problem, 0)
            waves = np.array([[3.0 * math.pi, 1.5 * math.pi], [3.0 * math.pi, -1.5 * math.pi]])
            assert undetermined(trials, trials.solve(waves)) == missing
    assert ifef.solve(string(), progress=False).status == "ill_posed"
