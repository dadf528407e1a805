"""The lower level: against dense linear algebra in NumPy, on matrices of every shape and on rows of problems."""

import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import LOWERS, data_of, errors, features_of, points_of, poisson, small, solved

from ifef.assembly import available_memory, loss, make_data, num_rows, plan_block, residuals, row_scales, system
from ifef.calculus import float64
from ifef.features import fourier_features
from ifef.fit import fit
from ifef.lower import AbstractLower, GaussNewton, LeastSquares, LowerResult, Ridge
from ifef.theta import finish, solve_lower
from ifef.tiles import values_of

TALL = (40, 12)  # one shape for most, because every shape compiles anew


def matrix(rows: int, columns: int, decades: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """A matrix with singular values over so many decades, and a right-hand side out of its range."""
    rng = np.random.default_rng(rows * 1000 + columns)
    left, _ = np.linalg.qr(rng.normal(size=(rows, min(rows, columns))))
    right, _ = np.linalg.qr(rng.normal(size=(columns, min(rows, columns))))
    return left * np.logspace(0, -decades, min(rows, columns)) @ right.T, rng.normal(size=rows)


def solve(lower: AbstractLower, a: np.ndarray, b: np.ndarray, block: int | None = None) -> LowerResult:
    """Solve for theta from rows [A b], added at once or in blocks."""
    with float64():
        table = jnp.asarray(np.column_stack([a, b]))
        summary = lower.first(table) if block is None else jnp.zeros((a.shape[1] + 1,) * 2)
        for start in range(0, len(table) if block else 0, block or 1):
            summary = lower.add(summary, table[start : start + (block or 0)])
        return jax.device_get(finish(lower, summary))


def objective(lower: AbstractLower, a: np.ndarray, b: np.ndarray, theta: np.ndarray) -> float:
    penalty = 0.5 * lower.gamma * theta @ theta if isinstance(lower, Ridge) else 0.0
    return float(np.sum(np.square(a @ theta - b)) + penalty)


# --- on matrices ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOWERS)
@pytest.mark.parametrize("shape", [TALL, (5, 1)])
def test_the_solution_beats_any_perturbation(name, shape):
    lower, (a, b) = LOWERS[name], matrix(*shape)
    theta = np.asarray(solve(lower, a, b).theta)
    best = objective(lower, a, b, theta)
    rng = np.random.default_rng(0)
    for size in 10.0 ** np.arange(-4, 3):
        for direction in rng.normal(size=(10, len(theta))):
            worse = objective(lower, a, b, theta + size * direction) - best
            assert worse > (-1e-14 if size < 1 else 1e-9)


@pytest.mark.parametrize("decades", [1, 6, 11])
def test_orthogonal_least_squares_agrees_with_numpy(decades):
    a, b = matrix(*TALL, decades)
    b = a @ np.ones(12) + 1e-3 * b
    expected, *_ = np.linalg.lstsq(a, b, rcond=None)
    result = solve(LeastSquares(), a, b)
    np.testing.assert_allclose(a @ result.theta, a @ expected, atol=1e-15 * 10.0 ** max(decades - 3, 2))
    if decades <= 6:  # beyond, the residual times the square of the condition blurs theta, though not its values
        np.testing.assert_allclose(result.theta, expected, rtol=1e-14 * 10.0 ** (1.5 * decades))
    assert int(result.rank) == 12
    assert float(result.residual) == pytest.approx(float(np.linalg.norm(a @ expected - b)), rel=1e-6)


def test_columns_of_any_units_are_solved_alike():
    a, b = matrix(*TALL)
    units = 10.0 ** np.linspace(-120, 120, 12)
    plain, scaled = solve(LeastSquares(), a, b), solve(LeastSquares(), a * units, b)
    np.testing.assert_allclose(np.asarray(scaled.theta) * units, plain.theta, rtol=1e-11)
    assert int(scaled.rank) == 12
    assert float(scaled.condition) == pytest.approx(float(plain.condition), rel=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 1e-7, 1e-2, 10.0])
def test_ridge_is_the_regularised_normal_equations(gamma):
    a, b = matrix(*TALL)
    q, c = 2 * a.T @ a, -2 * a.T @ b
    expected = -np.linalg.solve(q + gamma * np.eye(12), c)
    result = solve(Ridge(gamma), a, b)
    np.testing.assert_allclose(result.theta, expected, rtol=1e-9, atol=1e-10)
    assert float(result.residual) == pytest.approx(float(np.linalg.norm(a @ expected - b)), rel=1e-9)


@pytest.mark.parametrize("name", LOWERS)
@pytest.mark.parametrize("block", [1, 7, 40])
def test_blocks_of_rows_give_what_all_rows_give(name, block):
    a, b = matrix(*TALL)
    whole, parts = solve(LOWERS[name], a, b), solve(LOWERS[name], a, b, block)
    np.testing.assert_allclose(parts.theta, whole.theta, rtol=1e-9, atol=1e-11)
    assert float(parts.residual) == pytest.approx(float(whole.residual), rel=1e-10)


def test_dependent_columns_are_left_out_and_counted():
    whole, b = matrix(*TALL)
    a = np.concatenate([whole[:, :7], whole[:, :4], whole[:, 4:5] + whole[:, 5:6]], axis=1)
    result = solve(LeastSquares(), a, b)
    assert int(result.rank) == 7
    assert np.sum(result.theta == 0.0) == 5  # a basic solution
    np.testing.assert_allclose(a @ result.theta, a @ np.linalg.lstsq(a, b, rcond=None)[0], atol=1e-11)


def test_zero_columns_have_coefficient_zero():
    a, b = matrix(*TALL)
    a[:, 3] = 0.0
    result = solve(LeastSquares(), a, b)
    assert float(result.theta[3]) == 0.0
    assert int(result.rank) == 11
    np.testing.assert_allclose(a @ result.theta, a @ np.linalg.lstsq(a, b, rcond=None)[0], atol=1e-11)


def test_nothing_but_zeros_has_rank_zero():
    result = solve(LeastSquares(), np.zeros(TALL), np.ones(40))
    assert int(result.rank) == 0
    np.testing.assert_array_equal(result.theta, np.zeros(12))
    assert float(result.residual) == pytest.approx(math.sqrt(40))


@pytest.mark.parametrize("block", [None, 2])
def test_fewer_rows_than_columns_are_fitted_exactly(block):
    a, b = matrix(6, 12)
    result = solve(LeastSquares(), a, b, block)
    assert int(result.rank) == 6
    np.testing.assert_allclose(a @ result.theta, b, atol=1e-11)
    assert float(result.residual) < 1e-11


def test_the_cut_leaves_out_what_is_below_it():
    a, b = matrix(*TALL, 12)
    results = [solve(LeastSquares(cut), a, b) for cut in (0.0, 1e-9, 1e-5, 1e-2)]
    ranks = [int(result.rank) for result in results]
    assert ranks[0] == 12
    assert ranks[0] > ranks[1] > ranks[2] > ranks[3] >= 1
    assert [float(result.condition) < limit for result, limit in zip(results[1:], (1e9, 1e5, 1e2), strict=True)]


@pytest.mark.parametrize(("lower", "gamma"), [(LeastSquares(), 0.0), (Ridge(0.0), 0.0), (Ridge(0.3), 0.3)])
def test_the_inverse_is_that_of_half_the_hessian(lower, gamma):
    a, b = matrix(*TALL)
    result = solve(lower, a, b)
    dense = np.linalg.inv(a.T @ a + 0.5 * gamma * np.eye(12))
    with float64():
        for vector in np.random.default_rng(1).normal(size=(3, 12)):
            np.testing.assert_allclose(result.inverse(jnp.asarray(vector)), dense @ vector, rtol=1e-9)


@pytest.mark.parametrize("lower", [LeastSquares(), Ridge(0.3)])
def test_the_response_is_that_of_the_rows_alone_whatever_gamma_is(lower):
    a, b = matrix(*TALL)
    summary = lower.first(np.asfortranarray(np.column_stack([a, b])))
    rows = np.random.default_rng(2).normal(size=(5, 12))
    gain = lower.response(summary, rows)
    np.testing.assert_allclose(gain.T @ gain, rows @ np.linalg.inv(a.T @ a) @ rows.T, rtol=1e-8)


@pytest.mark.parametrize("lower", [LeastSquares(), Ridge(0.3)])
def test_the_response_shows_what_no_row_sees(lower):
    a, b = matrix(*TALL)
    a[:, 3] = a[:, 5]
    summary = lower.first(np.asfortranarray(np.column_stack([a, b])))
    seen, unseen = np.zeros((1, 12)), np.zeros((1, 12))
    seen[0, [3, 5]], unseen[0, 3], unseen[0, 5] = 1.0, 1.0, -1.0
    assert np.linalg.norm(lower.response(summary, seen)) < 1e3
    assert np.linalg.norm(lower.response(summary, unseen)) > 1e5


def test_the_inverse_of_a_deficient_system_acts_on_the_kept_columns():
    a, b = matrix(*TALL)
    a[:, 8:] = a[:, :4]
    result = solve(LeastSquares(), a, b)
    kept = np.flatnonzero(result.theta)
    assert len(kept) == 8
    vector, expected = np.zeros(12), np.zeros(12)
    vector[kept] = np.arange(1.0, 9.0)
    expected[kept] = np.linalg.solve(a[:, kept].T @ a[:, kept], vector[kept])
    with float64():
        np.testing.assert_allclose(result.inverse(jnp.asarray(vector)), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", LOWERS)
def test_a_restricted_summary_is_that_of_fewer_columns(name):
    a, b = matrix(*TALL)
    keep = np.array([0, 3, 4, 11])
    with float64():
        summary = LOWERS[name].first(jnp.asarray(np.column_stack([a, b])))
        few = finish(LOWERS[name], LOWERS[name].restrict(summary, jnp.asarray(keep)))
    np.testing.assert_allclose(few.theta, solve(LOWERS[name], a[:, keep], b).theta, rtol=1e-9)


def test_a_failed_cholesky_has_rank_zero():
    a, b = matrix(3, 8)
    assert int(solve(Ridge(0.0), a, b).rank) in (0, 8)  # rounding may save it
    a[:, 1] = a[:, 0] = 0.0
    assert int(solve(Ridge(0.0), a, b).rank) == 0


# --- on problems ------------------------------------------------------------------------------------------------------


def test_ridge_is_the_papers_formula_literally():
    # appendix B: Q = 2/N_u B_u' B_u + 2 lambda/N_f R_f' R_f, c = -2/N_u B_u' G_u - 2 lambda/N_f R_f' F_f
    problem, gamma, lam = poisson("x", "y"), 1e-3, 0.25
    features = fourier_features(problem, 6, backbone=(), sigma=0.4, enlarged=False)
    points = problem.sample({"equation": 50, "walls": 24})
    data = make_data(problem, points)
    scale = 2.0  # d(scaled x) / dx on [0, 1]
    table = 2 * math.pi * np.asarray(features.frequencies)

    def psi(rows: np.ndarray) -> np.ndarray:
        angle = (2 * rows - 1) @ table.T
        return np.concatenate([np.cos(angle), np.sin(angle)], axis=1) / math.sqrt(6)

    b_u, g_u = psi(points["walls"]), np.asarray(data.targets["walls"])
    squares = scale**2 * np.sum(np.square(table), axis=1)
    r_f, f_f = -np.tile(squares, 2) * psi(points["equation"]), np.asarray(data.targets["equation"])
    n_u, n_f = len(b_u), len(r_f)
    q = 2 / n_u * b_u.T @ b_u + 2 * lam / n_f * r_f.T @ r_f
    c = -2 / n_u * b_u.T @ g_u - 2 * lam / n_f * r_f.T @ f_f
    expected = -np.linalg.solve(q + gamma * np.eye(12), c)
    result, _ = solve_lower(Ridge(gamma), features, data, {"equation": lam, "walls": 1.0})
    np.testing.assert_allclose(result.theta, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", LOWERS)
def test_rows_in_blocks_give_the_same_values(name):
    lower, (data, weights), features = LOWERS[name], data_of("growth"), features_of("growth")
    whole, _ = solve_lower(lower, features, data, weights)
    parts, _ = solve_lower(lower, features, data, weights, block=20)
    assert num_rows(data) > 20
    with float64():
        first, second = (eqx.filter_jit(residuals)(features, data, one.theta) for one in (whole, parts))
        for key in first:
            np.testing.assert_allclose(first[key], second[key], atol=1e-9 if name != "ridge" else 1e-6)


@pytest.mark.parametrize("name", ["oscillator", "complex"])
def test_the_reported_residual_is_the_root_of_the_training_loss(name):
    data, weights = data_of(name)
    features = fourier_features(small(name), 3, backbone=(), sigma=0.2)
    result, _ = solve_lower(LeastSquares(), features, data, weights)
    with float64():
        expected = math.sqrt(float(loss(residuals(features, data, result.theta), weights)))
    assert expected > 1e-9
    assert float(result.residual) == pytest.approx(expected, rel=1e-5)


def test_own_weights_of_the_lower_level_override_the_shared_ones():
    data, weights = data_of("measurements")
    features = fourier_features(small("measurements"), 1, backbone=(), sigma=0.2)
    other = {"equation": 3.0, "data": 20.0}
    plain, _ = solve_lower(LeastSquares(), features, data, weights)
    given, _ = solve_lower(LeastSquares(weights=other), features, data, weights)
    expected, _ = solve_lower(LeastSquares(), features, data, other)
    np.testing.assert_array_equal(given.theta, expected.theta)
    assert not np.allclose(given.theta, plain.theta, rtol=1e-3)
    with float64():
        a = np.asarray(system(features, data, jnp.zeros(len(given.theta)), row_scales(data, other)))
    dense, *_ = np.linalg.lstsq(a[:, :-1], a[:, -1], rcond=None)
    np.testing.assert_allclose(a[:, :-1] @ np.asarray(given.theta), a[:, :-1] @ dense, atol=1e-10)


def test_gauss_newton_solves_a_nonlinear_equation():
    solution = solved("riccati")
    assert errors(solution)["u"] < 1e-8
    assert not solution.stats["linear"]


def test_gauss_newton_takes_one_step_on_a_linear_problem():
    data, weights = data_of("neumann and robin")
    features = features_of("neumann and robin")
    linear, _ = solve_lower(LeastSquares(), features, data, weights)
    steps, _ = solve_lower(GaussNewton(max_steps=1), features, data, weights)
    # Other programs round otherwise: coefficients of an ill-conditioned basis feel it, the field does not.
    (table,) = values_of(features, small("neumann and robin").unknowns, np.linspace(0.0, 1.0, 50)[:, None])
    np.testing.assert_allclose(
        table @ np.asarray(steps.theta), table @ np.asarray(linear.theta), rtol=1e-12, atol=1e-14
    )


def test_gauss_newton_never_ends_above_its_start():
    data, weights = data_of("riccati")
    features = features_of("riccati")
    with float64():
        start = jnp.asarray(np.random.default_rng(0).normal(size=features.size)) * 3.0
        before = float(loss(residuals(features, data, start), weights))
        for steps in (1, 3):
            result, _ = solve_lower(GaussNewton(max_steps=steps), features, data, weights, theta=start)
            after = float(loss(residuals(features, data, result.theta), weights))
            assert float(result.residual) == pytest.approx(math.sqrt(after), rel=1e-9)
            assert after < before
            before = after


# --- memory -----------------------------------------------------------------------------------------------------------


def test_what_fits_is_assembled_at_once_and_what_does_not_in_blocks():
    assert plan_block(1000, 100, 10**9) is None
    block = plan_block(1_000_000, 100, 10**8)
    assert block is not None
    assert 256 <= block < 1_000_000
    assert 3 * 8 * (block + 1) * 101 < 10**8
    assert 0 < available_memory() < 2**60


def test_memory_is_what_the_system_would_give_and_not_only_what_lies_idle(monkeypatch: pytest.MonkeyPatch):
    # SC_AVPHYS_PAGES leaves the file cache out, and a Mac does not have it: every fit there would fail
    def sysconf(name: str) -> int:
        if name == "SC_AVPHYS_PAGES":
            raise ValueError("unrecognized configuration name")
        return {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**22}[name]

    def no_file(*_: Any, **__: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr("os.sysconf", sysconf)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "MemFree: 1000 kB\nMemAvailable: 7000000 kB\n")
    assert available_memory() == 7_000_000 * 1024
    monkeypatch.setattr(Path, "read_text", no_file)
    assert available_memory() == 2**34


def test_a_small_memory_changes_the_blocks_and_not_the_answer():
    problem, features, points = small("growth"), features_of("growth"), points_of("growth")
    many = {key: np.repeat(rows, 32, axis=0) for key, rows in points.items()}  # weights are means: nothing changes
    memory = 400_000
    block = plan_block(41 * 32, features.size, memory)
    assert block is not None
    assert block < 41 * 32
    solution, x = fit(problem, features, many, memory=memory), np.linspace(0, 1, 7)
    np.testing.assert_allclose(solution(x=x), solved("growth")(x=x), atol=1e-11)
