"""What a solution says of itself in words: every sentence from its evidence, and none that the evidence denies."""

import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BARE, LINE, features_of, points_of, slope, small, solved, value

import ifef
from ifef import storage
from ifef.diagnosis import sentences, unsaid
from ifef.domain import Box
from ifef.features import fourier_features
from ifef.fit import fit
from ifef.lower import LeastSquares, Ridge
from ifef.problem import Condition, Problem
from ifef.runs import report
from ifef.runs.folder import RunConfig

SQUARE = Box(x=(0.0, 1.0), y=(0.0, 2.0))
STATS: dict[str, Any] = {
    "norm": 1.0,
    "num_rows": 90,
    "num_features": 30,
    "rank": 28,
    "weights": {"inside": 1.0, "walls": 2.0},
}


def said(solution: ifef.Solution, word: str) -> list[str]:
    return [one for one in solution.diagnosis if word in one]


def of(values: Any, points: np.ndarray | None = None, **stats: Any) -> list[str]:
    """Sentences on made-up residuals inside, and smaller ones on the walls."""
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(600, 2)) * [1.0, 2.0] if points is None else points
    size = np.asarray(values(points) if callable(values) else values) * np.ones(len(points))
    walls = np.column_stack([np.zeros(20), np.linspace(0, 2, 20)])
    held_out = {"inside": (points, size), "walls": (walls, 1e-3 * np.ones(20))}
    return sentences(STATS | stats, held_out, SQUARE, 1e-3)


# --- points per wavelength --------------------------------------------------------------------------------------------


def test_points_per_shortest_wavelength_of_waves_on_the_inputs():
    problem = small("growth")  # the line is [-1, 1] to the features: 2 cycles a unit are 4 wavelengths
    features = fourier_features(problem, frequencies=np.array([[0.3], [-2.0], [1.0]]), backbone=())
    solution = fit(problem, features, problem.sample(100))
    assert solution.stats["points"] == {"ode": 100, "start": 1}
    assert solution.stats["points_per_wavelength"] == {"ode": pytest.approx(25.0)}
    assert said(solution, "wavelength") == ["The condition 'ode' has 25 points per shortest wavelength of the basis."]


def test_in_two_dimensions_it_is_points_on_a_line():
    problem = small("mixed derivative")  # a wave of 10 cycles a unit across both axes: sqrt(2) 20 of them on a side
    features = fourier_features(problem, frequencies=np.array([[10.0, 10.0]]), backbone=())
    solution = fit(problem, features, problem.sample(400))
    assert solution.stats["points_per_wavelength"] == {"equation": pytest.approx(20 / (20 * math.sqrt(2)))}
    (sentence,) = said(solution, "wavelength")
    assert sentence.startswith("The condition 'equation' has 0.7 points")


class Stretched(eqx.Module):
    """h = 3 x + x^3 / 3, at most four times as steep as x."""

    def __call__(self, x: Any) -> Any:
        return 3.0 * x + x**3 / 3.0


def test_behind_a_backbone_the_steepest_place_counts():
    problem = small("growth")
    features = fourier_features(problem, frequencies=np.array([[0.5]]), backbone=Stretched())
    solution = fit(problem, features, problem.sample(100))
    assert solution.stats["points_per_wavelength"]["ode"] == pytest.approx(25.0, rel=0.05)


def test_every_equation_has_its_own_and_a_basis_without_waves_has_none():
    assert len(said(solved("oscillator"), "wavelength")) == 2
    problem = small("growth")
    solution = fit(problem, fourier_features(problem, 0, backbone=(8,)), problem.sample(100))
    assert said(solution, "wavelength") == []


# --- rows against columns ---------------------------------------------------------------------------------------------


def test_rows_against_columns():
    stats = solved("oscillator").stats
    rank = stats["rank"]
    assert said(solved("oscillator"), "rows for") == [
        f"There are 122 rows for 52 columns (2.3 a column), of which {rank} count."
    ]


def test_fewer_rows_than_columns_are_said_once():
    problem = small("growth")
    poor: dict[str, Any] = BARE | {"sigma": 3.0}
    solution = fit(problem, fourier_features(problem, **poor), problem.sample(12))
    assert said(solution, "fewer rows (13) than columns (26)")
    assert repr(solution).count("fewer rows") == 1


# --- where the residual is --------------------------------------------------------------------------------------------


def test_the_condition_and_the_place_of_most_of_the_residual():
    peak = lambda p: np.exp(-200.0 * ((p[:, 0] - 0.9) ** 2 + (p[:, 1] - 0.2) ** 2)) + 0.01  # noqa: E731
    (sentence,) = (one for one in of(peak) if "held-out residual" in one)
    assert sentence.startswith("The condition 'inside' holds 100% of the held-out residual, 9")
    at = sentence.rstrip(".").split(" near ")[1]
    x, y = (float(part.split("=")[1]) for part in at.split(", "))
    assert abs(x - 0.9) < 0.03
    assert abs(y - 0.2) < 0.03


def test_a_residual_that_is_everywhere_is_said_to_be():
    assert "The condition 'inside' holds 100% of the held-out residual, spread out." in of(1.0)


def test_of_one_place_no_place_is_said():
    assert "The condition 'inside' holds 100% of the held-out residual." in of(1.0, np.full((30, 2), 0.5))


def test_a_solve_finds_the_corner_that_it_misses():
    box = Box(x=(0.0, 1.0), y=(0.0, 1.0))
    hidden = lambda p: jnp.exp(-60.0 * ((p.x - 0.8) ** 2 + (p.y - 0.3) ** 2))  # noqa: E731
    problem = Problem(box, data=Condition(box.interior, value, hidden))
    few = fourier_features(problem, 6, backbone=(), sigma=0.3)
    (sentence,) = said(fit(problem, few, problem.sample(400)), "held-out residual, ")
    assert "near x=0.8" in sentence or "near x=0.7" in sentence


def test_a_residual_of_zero_is_nowhere():
    problem = Problem(LINE, equation=Condition(LINE.interior, slope), start=Condition(LINE.lower("x"), value))
    solution = fit(problem, fourier_features(problem, **BARE), problem.sample(60))
    assert said(solution, "holds") == []


# --- rounding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["growth", "neumann and robin", "complex", "unknown number", "oscillator"])
def test_float64_is_the_limit_where_nothing_but_rounding_is_left(name):
    (sentence,) = said(solved(name), "loat64 is")
    assert sentence.startswith("Float64 is the limit: rounding alone makes a held-out residual of about ")


def test_float64_is_not_the_limit_where_the_basis_is():
    problem = small("growth")
    solution = fit(problem, fourier_features(problem, 2, backbone=(), sigma=0.3), problem.sample(60))
    (sentence,) = said(solution, "loat64 is")
    assert sentence.startswith("Float64 is not the limit: rounding makes about ")
    more = fit(problem, features_of("growth"), points_of("growth"))
    assert more.stats["held_out"] < 1e-3 * solution.stats["held_out"]


def test_float32_is_or_is_not_the_limit_by_its_floor():
    problem = small("growth")
    good = fit(problem, features_of("growth"), points_of("growth"), dtype="float32")
    poor = fit(problem, fourier_features(problem, 2, backbone=(), sigma=0.3), problem.sample(60), dtype="float32")
    assert said(good, "Float32 is the limit: its rounding makes an error of about ")
    assert said(poor, "Float32 is not the limit: its rounding makes an error of about ")


def test_cancellation_is_counted_in_digits():
    problem = small("growth")
    # One wave, and one next to it: their difference is what solves, with coefficients of opposite sign.
    near = fourier_features(problem, frequencies=0.1 + 1e-6 * np.arange(3.0)[:, None], backbone=(), enlarged=False)
    solution = fit(problem, near, problem.sample(60))
    (sentence,) = said(solution, "cancel")
    size = solution.stats["amplification"]
    assert size > 1e3
    assert f"costs {math.log10(size):.0f} of float64's 16 digits" in sentence
    assert said(solved("unknown number"), "cancel") == []


def test_nothing_is_said_of_what_a_ridge_takes():
    problem = small("growth")
    solution = fit(problem, features_of("growth"), points_of("growth"), lower=Ridge(1e-4))
    assert said(solution, "loat64") == []


def test_dependent_columns_are_not_blamed_on_the_basis():
    assert not [
        one for one in of(1.0, held_out=1e-3, rounding=1e-15, cut=1e-15, amplification=1.0) if "loat64 is" in one
    ]
    full = of(1.0, held_out=1e-3, rounding=1e-15, cut=1e-15, amplification=1.0, rank=30)
    assert "Float64 is not the limit: rounding makes about 1e-15 of the held-out 1e-3." in full


# --- where it is shown ------------------------------------------------------------------------------------------------


def test_the_text_the_report_and_the_summary_show_it():
    solution = solved("poisson 5-D")
    result = report.result_of(RunConfig(problem="burgers"), {}, solution)
    for text in (repr(solution), report.summary(result), report.markdown(result)):
        assert all(sentence in text for sentence in solution.diagnosis)
    assert repr(solution).count("of the held-out residual") == 1  # the advice has this sentence already


def test_a_result_of_before_is_shown_without():
    result = report.result_of(RunConfig(problem="burgers"), {}, solved("growth"))
    del result["diagnosis"]
    assert "shortest wavelength" not in report.summary(result) + report.markdown(result)
    kept = ("norm", "num_rows", "num_features", "rank", "weights")
    old = {key: solved("growth").stats[key] for key in kept}
    assert len(sentences(old, solved("growth").held_out, LINE, 1.0)) == 2


def test_what_the_advice_says_is_not_said_again():
    assert unsaid("One. Two.", ["Two.", "Three."]) == ["One. Two.", "Three."]
    assert unsaid("", ["Three."]) == ["Three."]


def test_of_coefficients_that_are_not_finite_nothing_is_said():
    problem = small("growth")
    solution = fit(
        problem, fourier_features(problem, 200, backbone=(), sigma=0.1), problem.sample(30), lower=Ridge(0.0)
    )
    assert solution.status == "nonfinite"
    assert solution.diagnosis == []


def test_a_saved_solution_says_the_same(tmp_path: Path):
    solution = solved("mixed derivative")
    assert ifef.load(solution.save(tmp_path / "answer")).diagnosis == solution.diagnosis


@pytest.mark.parametrize("wrong", [{"num_features": 0}, {"points_per_wavelength": {"ode": "many"}}, {"weights": {}}])
def test_a_file_with_statistics_that_make_no_sense_is_refused(tmp_path: Path, wrong):
    solution = fit(small("growth"), features_of("growth"), points_of("growth"), lower=LeastSquares())
    solution.stats |= wrong
    path = solution.save(tmp_path / "answer")
    with pytest.raises(storage.StorageError, match="is not a whole solution"):
        ifef.load(path)
