"""The answer: how it is called, what it says of itself, and what comes back from disk."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    BARE,
    LINE,
    SMALL,
    conditions_of,
    errors,
    estimates,
    features_of,
    points_of,
    programs,
    setting,
    small,
    solved,
    value,
)

from ifef.features import fourier_features
from ifef.fit import fit
from ifef.problem import Condition, Problem
from ifef.solution import STATUSES, _values, load

X = np.linspace(0.0, 1.0, 7)

# --- calling ----------------------------------------------------------------------------------------------------------


def test_a_number_gives_a_number_and_arrays_broadcast():
    solution = solved("heat, periodic")
    exact = lambda t, x: np.exp(-t) * np.sin(x) + np.exp(-4 * t) * np.cos(2 * x)  # noqa: E731
    t, x = np.linspace(0, 1, 4), np.linspace(0, 6, 5)
    for given in (
        {"t": 0.5, "x": 1},
        {"t": t, "x": 1.0},
        {"t": 0.25, "x": x.tolist()},
        {"t": t[:, None], "x": x},
        {"x": x[None, :, None], "t": t[:, None, None]},
    ):
        values = solution(**given)
        wanted = exact(np.asarray(given["t"]), np.asarray(given["x"]))
        assert np.shape(values) == np.shape(wanted)
        assert values.dtype == np.float64
        np.testing.assert_allclose(values, wanted, atol=1e-5)
    assert isinstance(solution(t=0.5, x=1.0), np.float64)


def test_no_points_give_no_values():
    assert solved("growth")(x=[]).shape == (0,)
    assert solved("growth")(x=np.zeros((3, 0))).shape == (3, 0)
    assert solved("oscillator")(t=[])["u"].shape == (0,)


def test_many_points_are_as_good_as_few():
    solution, many = solved("growth"), np.linspace(0, 1, 5003)
    values = solution(x=many)
    for index in (0, 511, 512, 5002):
        assert values[index] == pytest.approx(float(solution(x=many[index])), rel=1e-13)


def test_another_number_of_points_does_not_compile_anew():
    solution, places = solved("growth"), np.linspace(0, 1, 200)
    whole, sizes = solution(x=places), set()
    for number in range(130, 160):
        np.testing.assert_allclose(solution(x=places[:number]), whole[:number], rtol=1e-13)
        sizes.add(programs(_values))
    assert len(sizes) == 1  # those of 129 to 160 points share one program


def test_several_unknowns_come_by_name():
    values = solved("oscillator")(t=X)
    assert list(values) == ["u", "v"]
    np.testing.assert_allclose(values["u"], np.cos(2 * X), atol=1e-11)
    np.testing.assert_allclose(values["v"], -2 * np.sin(2 * X), atol=1e-11)
    assert set(solved("oscillator").error()) == set(solved("oscillator").error_estimate) == {"u", "v"}


def test_an_unknown_number_and_a_complex_field_keep_their_kind():
    values = solved("unknown number")(x=X)
    np.testing.assert_allclose(values["k"], np.full(7, 3.0), rtol=1e-12)
    np.testing.assert_allclose(solved("complex")(x=X), np.exp(5j * X), atol=1e-9)


def test_the_ends_of_the_domain_belong_to_it():
    solution = solved("growth")
    assert solution(x=0.0) == pytest.approx(1.0, abs=1e-12)
    assert solution(x=1.0 + 1e-12) == pytest.approx(np.e, abs=1e-9)


# --- what it says of itself -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_the_error_estimate_is_near_the_error(name):
    # both are floored where rounding is all that is left; a high derivative lifts that floor
    floor = 1e-12 if name == "beam" else 1e-13
    for unknown, error in errors(solved(name)).items():
        estimate = max(estimates(solved(name))[unknown], floor)
        assert max(error, floor) / 30 < estimate < 30 * max(error, floor)


def test_the_error_is_relative_to_the_exact_solution():
    problem = Problem(LINE, **conditions_of("growth"), exact=lambda p: 2.0 * np.exp(p.x))
    assert fit(problem, features_of("growth"), points_of("growth")).error() == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize("name", ["growth", "oscillator", "riccati", "poisson 5-D"])
def test_the_text_names_status_conditions_error_and_rank(name):
    solution = solved(name)
    text = repr(solution)
    assert STATUSES[solution.status] in text
    for key in small(name).conditions:
        assert any(line.split()[-1] == key for line in text.splitlines() if "residual" in line)
    for fact in ("error estimate", f"rank             {solution.stats['rank']} of", "time", " rows"):
        assert fact in text
    assert solution.advice in text
    assert (solution.advice == "") == (solution.status == "converged")


def test_statistics_are_whole_and_plain_numbers():
    stats = solved("oscillator").stats
    assert stats["num_features"] == 52
    assert stats["num_rows"] == 122
    assert stats["linear"] is True
    for key in ("rank", "condition", "seconds", "held_out", "training_residual", "norm", "stability"):
        assert isinstance(stats[key], (int, float))
    assert 1 <= stats["rank"] <= 52


def test_residuals_are_root_mean_squares_on_held_out_points():
    solution = solved("poisson 5-D")
    points, sizes = solution.held_out["walls"]
    problem = small("poisson 5-D")
    values = solution(**dict(zip(problem.domain.names, points.T, strict=True)))
    np.testing.assert_allclose(sizes, np.abs(values - problem.targets({"walls": points})["walls"]), atol=1e-9)
    assert solution.residuals["walls"] == pytest.approx(float(np.sqrt(np.mean(sizes**2))), rel=1e-12)


def test_a_complex_residual_counts_once_a_point():
    points, sizes = solved("complex").held_out["wave"]
    assert sizes.shape == (len(points),)
    assert np.all(sizes >= 0)


def test_values_on_a_grid_have_named_coordinates():
    solution = solved("heat, periodic")
    dataset = solution.to_xarray(100)
    assert dataset["u"].dims == ("t", "x")
    assert dataset["u"].shape == (10, 10)
    at = dataset.sel(t=dataset.t[3], x=dataset.x[4])
    rounding = 1e-15 * solution.stats["norm"]  # sums of large terms, in another order
    assert float(at["u"]) == pytest.approx(float(solution(t=float(at.t), x=float(at.x))), abs=rounding)
    assert dataset.attrs["status"] == "converged"


def test_the_exact_solution_on_the_grid_stands_beside_the_answer():
    solution = solved("heat, periodic")
    exact, (_, fields) = solution.exact_grid(100), solution.grid(100)
    assert exact is not None
    np.testing.assert_allclose(fields["u"], exact["u"], atol=1e-5)
    assert (
        fit(Problem(LINE, **conditions_of("growth")), features_of("growth"), points_of("growth")).exact_grid() is None
    )


@pytest.mark.parametrize("name", ["growth", "oscillator", "complex", "poisson 3-D"])
def test_a_figure_is_written(tmp_path: Path, name):
    path = solved(name).plot(tmp_path / "figure.png")
    assert path.read_bytes().startswith(b"\x89PNG")


# --- disk -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["growth", "oscillator", "complex", "unknown number", "unknown function of x"])
@pytest.mark.parametrize("with_problem", [False, True])
def test_a_solution_comes_back_as_it_was(tmp_path: Path, name, with_problem):
    solution = solved(name)
    path = solution.save(tmp_path / "answer")
    again = load(path, small(name) if with_problem else None)
    rows = small(name).sample(9)[next(iter(small(name).conditions))]
    for unknown, values in solution.at(rows).items():
        np.testing.assert_array_equal(again.at(rows)[unknown], values)
    assert again.stats == solution.stats
    assert again.residuals == solution.residuals
    assert again.status == solution.status
    assert again.advice == solution.advice
    assert again.error_estimate == solution.error_estimate
    assert again.history == solution.history
    assert again.unknowns == solution.unknowns
    if with_problem:
        assert errors(again) == errors(solution)
        assert repr(again) == repr(solution)


def test_statistics_that_are_not_numbers_survive(tmp_path: Path):
    stats = load(solved("growth").save(tmp_path / "answer")).stats
    assert stats["weights"] == solved("growth").stats["weights"]
    assert solved("unknown number").stats["fitted_only"] == ["data"]


def test_a_name_without_suffix_finds_the_file(tmp_path: Path):
    path = solved("growth").save(tmp_path / "answer")
    assert path == tmp_path / "answer.ifef"
    assert load(tmp_path / "answer").status == "converged"
    assert solved("growth").save(tmp_path / "other.bin") == tmp_path / "other.bin"


@pytest.mark.parametrize("widths", [(), (5, 4)])
def test_features_come_back_whatever_the_backbone(tmp_path: Path, widths):
    features = fourier_features(small("growth"), 6, backbone=widths, sigma=0.3)
    solution = fit(small("growth"), features, points_of("growth"))
    again = load(solution.save(tmp_path / "answer"))
    np.testing.assert_array_equal(again(x=X), solution(x=X))
    for one, other in zip(jax.tree.leaves(again.features), jax.tree.leaves(features), strict=True):
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, other)


def test_an_own_backbone_is_given_again_to_be_filled(tmp_path: Path):
    with jax.enable_x64(True):
        own, blank = (eqx.nn.MLP(1, 4, 5, 1, activation=jnp.sin, key=jax.random.key(seed)) for seed in (0, 1))
    solution = fit(small("growth"), fourier_features(small("growth"), 8, backbone=own), points_of("growth"))
    again = load(solution.save(tmp_path / "answer"), backbone=blank)
    np.testing.assert_array_equal(again(x=X), solution(x=X))


def test_own_basis_functions_come_from_the_problem(tmp_path: Path):
    again = load(solved("singular basis").save(tmp_path / "answer"), small("singular basis"))
    np.testing.assert_array_equal(again(x=X), solved("singular basis")(x=X))


def test_an_ill_posed_solution_can_be_saved_too(tmp_path: Path):
    problem = Problem(LINE, equation=Condition(LINE.interior, value, 1.0))
    features = fourier_features(problem, **BARE)
    solution = fit(problem, features, {"equation": np.array([[0.5]])})
    again = load(solution.save(tmp_path / "answer"))
    assert again.status == solution.status != "converged"


def test_loading_and_calling_leave_the_settings_of_jax_alone(tmp_path: Path):
    path = solved("growth").save(tmp_path / "answer")
    for x64 in (False, True):
        with jax.enable_x64(x64), jax.default_matmul_precision("default"):
            again = load(path, small("growth"))
            assert again(x=X).dtype == np.float64
            np.testing.assert_array_equal(again(x=X), solved("growth")(x=X))
            assert again.error() == solved("growth").error()
            assert setting("jax_enable_x64") == x64
            assert setting("jax_default_matmul_precision") == "default"
