"""Bases that are fine at a few spots: where these are found, their coordinates, their solves, and files of them."""

import jax.numpy as jnp
import numpy as np
import pytest

import ifef
from ifef import Box, Condition, Problem, derived_target, laplacian
from ifef.backbones import spots
from ifef.calculus import float64
from ifef.lattices import Shape, about
from ifef.localise import Local, clustered, find_spots, localised
from ifef.trials import Trials, focused, point_counts

SQUARE = Box(x=(0.0, 1.0), y=(0.0, 1.0))
POINTS = np.random.default_rng(0).uniform(-1.0, 1.0, (6000, 2))


def bump(centre: tuple[float, float], width: float) -> np.ndarray:
    return np.exp(-np.sum(np.square(POINTS - np.array(centre)), axis=1) / (2.0 * width**2))


def peak(a: float = 800.0) -> Problem:
    def exact(p):
        return jnp.exp(-a * ((p.x - 0.3) ** 2 + (p.y - 0.6) ** 2))

    def operator(u, p):
        return laplacian(u, "x", "y")(p)

    return Problem(
        SQUARE,
        equation=Condition(SQUARE.interior, operator, derived_target(operator, exact)),
        walls=Condition(SQUARE.boundary, lambda u, p: u(p), exact),
        exact=exact,
    )


def test_an_energy_at_two_places_has_two_spots():
    found = clustered(POINTS, bump((-0.4, 0.2), 0.04) + 0.3 * bump((0.5, -0.5), 0.06))
    assert len(found) == 2
    for (centre, frame, deviations), where, width in zip(found, [(-0.4, 0.2), (0.5, -0.5)], [0.04, 0.06], strict=True):
        np.testing.assert_allclose(centre, where, atol=0.02)
        np.testing.assert_allclose(deviations, width, rtol=0.4)
        np.testing.assert_allclose(frame.T @ frame, np.eye(2), atol=1e-12)


def test_a_layer_is_one_spot_that_is_narrow_across():
    ((_, frame, deviations),) = clustered(POINTS, np.exp(-0.5 * ((POINTS[:, 0] + POINTS[:, 1]) / 0.08) ** 2))
    np.testing.assert_allclose(np.abs(frame[:, 0]), np.sqrt(0.5), atol=0.02)
    assert deviations[0] < 0.08 < 0.4 < deviations[1]


@pytest.mark.parametrize("energy", [np.ones(6000), np.sin(9.0 * POINTS[:, 0]) ** 2, np.zeros(6000)])
def test_what_is_everywhere_has_no_spots(energy):
    assert clustered(POINTS, energy) == []


def test_coordinates_of_a_spot_are_fine_at_it_and_stay_in_the_cube():
    frame = np.array([[0.8, -0.6], [0.6, 0.8]])
    where = [(np.array([0.2, -0.3]), frame, np.array([0.05, np.inf]))]
    corners = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    with float64():
        stretched, bell = spots(where, bell=False), spots(where, bell=True)
        for corner in corners:
            assert np.all(np.abs(np.asarray(stretched(jnp.asarray(corner)))) < 1.0 + 1e-12)
        here, off = (
            np.asarray(stretched(jnp.asarray([0.2, -0.3]) + jnp.asarray(frame[:, 0]) * s)) for s in (0.0, 0.01)
        )
        far = [np.asarray(stretched(jnp.asarray([0.2, -0.3]) + jnp.asarray(frame[:, 0]) * s)) for s in (0.60, 0.61)]
        assert abs(off[2] - here[2]) > 5.0 * abs(far[1][2] - far[0][2])
        assert float(bell(jnp.asarray([0.2, -0.3]))[-1]) == 0.0
        np.testing.assert_allclose(bell(jnp.asarray([0.2, -0.3]) + jnp.asarray(frame[:, 0]) * 0.05)[-1], 0.5)


def test_points_follow_the_spots_and_stay_in_their_regions():
    problem = peak()
    where = [(np.array([-0.4, 0.2]), np.eye(2), np.array([0.05, 0.05]))]
    points = focused(problem, point_counts(problem, 300), spots(where, bell=False), 0)
    for key, condition in problem.conditions.items():
        assert np.all((points[key] >= 0.0) & (points[key] <= 1.0)), condition
    near = np.linalg.norm(points["equation"] - [0.3, 0.6], axis=1) < 0.1
    assert np.mean(near) > 0.15  # evenly spread it would be 0.03
    on_walls = np.min(np.concatenate([points["walls"], 1.0 - points["walls"]], axis=1), axis=1)
    np.testing.assert_array_equal(on_walls, 0.0)


def test_a_peak_is_solved_where_it_is_and_the_answer_can_be_kept(tmp_path):
    problem = peak()
    with float64():
        trials = Trials(problem, 0)
        where = find_spots(trials)
        np.testing.assert_allclose(where[0][0], [-0.4, 0.2], atol=0.02)
        best = min((one for one in localised(trials, where, 900, lambda _: True)), key=lambda one: one.held_out)
        plain = Shape((40.0, 40.0), 450).frequencies()
        assert plain is not None
        assert best.held_out < 1e-5 < 1e-2 < trials.solve(plain).held_out
        features = best.features
        points = focused(problem, point_counts(problem, features.size), features.backbone, 3)
        solution = ifef.fit(problem, features, points, tolerance=1e-4)
    error = solution.error()
    assert isinstance(error, float)
    assert error < 1e-4
    again = ifef.load(solution.save(tmp_path / "peak"), problem)
    places = {"x": np.linspace(0.0, 1.0, 9), "y": np.full(9, 0.6)}
    np.testing.assert_array_equal(again(**places), solution(**places))


def test_the_same_lattice_is_placed_at_every_spot():
    with float64():
        trials = Trials(peak(), 0)
        where = [(np.array([x, 0.0]), np.eye(2), np.array([0.1, 0.1])) for x in (-0.5, 0.5)]
        local = Local(trials, spots(where, bell=True), np.zeros((1, 2)))
        features = local.features(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert features.num_frequencies == 5
    table = 2.0 * np.pi * np.asarray(features.frequencies)
    assert sorted(map(tuple, table[:, 2:4][np.any(table[:, 2:4] != 0, axis=1)])) == [(1.0, 2.0), (3.0, 4.0)]
    np.testing.assert_array_equal(np.sum(np.asarray(features.decays), axis=1) > 0, np.any(table != 0, axis=1))


def test_short_axes_of_a_body_have_long_periods():
    periods = Shape((100.0, 5.0), 300).periods()
    assert periods is not None
    np.testing.assert_allclose(100.0 * (periods[0] - 1.0), 5.0 * (periods[1] - 1.0), rtol=1e-6)
    even = Shape((100.0, 5.0), 300, even=True).periods()
    assert even is not None
    assert even[0] == even[1]


def test_boxes_lie_about_the_mean_of_the_waves():
    waves = np.array([[-10.0, 100.0], [-10.0, 120.0], [-10.0, 140.0]])
    for box in about(waves, np.ones(3), 400):
        found = box.frequencies()
        assert found is not None
        np.testing.assert_allclose(found.mean(axis=0), [-10.0, 120.0], atol=3.0)
        assert np.ptp(found[:, 1]) > np.ptp(found[:, 0])
