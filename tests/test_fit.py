"""Fit: accuracy at small size, Algorithm 1, resuming bit for bit, and what must change nothing."""

import functools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    BARE,
    LINE,
    PLAIN,
    PLANE,
    SMALL,
    conditions_of,
    errors,
    features_of,
    points_of,
    programs,
    setting,
    slope,
    small,
    solved,
    value,
)
from jax.tree_util import Partial

from ifef.backbones import MLP
from ifef.calculus import d
from ifef.domain import Box
from ifef.features import fourier_features
from ifef.fit import fit
from ifef.lower import LeastSquares, Ridge
from ifef.problem import Condition, Problem
from ifef.solution import Solution
from ifef.storage import StorageError
from ifef.upper import PrimalDual, Training, run_epochs


def curved(u: Any, p: Any) -> Any:
    return d(u, "x", "x")(p)


# --- accuracy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_small_problems_are_solved_to_their_bound(name):
    solution = solved(name)
    assert max(errors(solution).values()) < SMALL[name].error
    assert solution.status == ("converged" if SMALL[name].error < 1e-4 else "stalled")


def test_a_singular_function_in_the_basis_makes_a_poor_answer_good():
    equation = Condition(LINE.interior, lambda u, p: 2.0 * p.x * d(u, "x")(p) - u(p))
    end = Condition(LINE.upper("x"), value, 1.0)
    problem = Problem(LINE, equation=equation, end=end, exact=lambda p: np.sqrt(p.x))
    without = fit(problem, fourier_features(problem, **BARE), points_of("singular basis"))
    assert without.error() > 1e-3
    assert without.status != "converged"
    assert errors(solved("singular basis"))["u"] < 1e-11


def test_an_unknown_number_is_found():
    assert solved("unknown number")(x=0.3)["k"] == pytest.approx(3.0, rel=1e-12)


def test_nonlinear_and_complex_problems_say_so():
    assert not solved("riccati").stats["linear"]
    assert solved("complex").stats["linear"]
    assert solved("complex")(x=[0.5]).dtype == np.complex128


# --- training ---------------------------------------------------------------------------------------------------------


def wave(**options: Any) -> Problem:
    """u'' = f with more waves than the features at hand."""
    return Problem(
        LINE,
        equation=Condition(LINE.interior, curved, lambda p: -400.0 * np.sin(20.0 * p.x)),
        ends=Condition(LINE.boundary, value, lambda p: np.sin(20.0 * p.x)),
        **options,
    )


@functools.cache
def waves() -> tuple[Problem, dict[str, np.ndarray]]:
    problem = wave(exact=lambda p: np.sin(20.0 * p.x))
    return problem, problem.sample(40)


def trained(**how: Any) -> Solution:
    problem, points = waves()
    features = fourier_features(problem, 3, backbone=(6,), seed=1, initialisation="torch", enlarged=False)
    return fit(problem, features, points, **how)


PHASES: dict[str, Any] = {
    "pretraining": Training(12, 1e-2, batch=16),
    "upper": Training(12, 1e-2, dual=PrimalDual(1e-2), batch=16),
}


@functools.cache
def reference() -> Solution:
    """A run of both phases without interruption."""
    return trained(**PHASES)


def same(one: Solution, other: Solution) -> bool:
    leaves = zip(jax.tree.leaves(one.features), jax.tree.leaves(other.features), strict=True)
    return bool(np.array_equal(one.theta, other.theta) and all(np.array_equal(a, b) for a, b in leaves))


def test_algorithm_1_lowers_the_held_out_residual_and_the_error():
    plain, better = trained(), trained(upper=Training(800, 1e-2))
    assert better.stats["held_out"] < 0.1 * plain.stats["held_out"]
    assert better.error() < 0.2 * plain.error()


def test_a_record_is_of_the_features_that_its_theta_was_found_for():
    plain, better = trained(), trained(upper=Training(200, 2e-2))
    assert [record["epoch"] for record in better.history] == list(range(1, 201))
    # a record is of the features that its theta was found for, or it would be off by any factor
    held_out = [record["held_out"] for record in better.history]
    assert held_out[0] == pytest.approx(plain.stats["held_out"], rel=1e-2)
    assert held_out[-1] == pytest.approx(better.stats["held_out"], rel=0.2)


def test_pretraining_trains_the_backbone_and_nothing_else():
    solution, plain = trained(pretraining=Training(60, 1e-2)), trained()
    losses = [record["loss"] for record in solution.history]
    assert losses[-1] < 0.9 * losses[0]
    np.testing.assert_array_equal(solution.features.frequencies, plain.features.frequencies)
    assert isinstance(solution.features.backbone, MLP)
    assert isinstance(plain.features.backbone, MLP)
    assert not np.any(solution.features.backbone.weights[0] == plain.features.backbone.weights[0])


def test_records_of_history_name_phase_epoch_loss_and_held_out_residual():
    shown: list[dict[str, Any]] = []
    solution = trained(**PHASES, progress=shown.append)
    records = [entry for entry in shown if not entry.get("tick")]
    assert records == solution.history
    assert [(record["phase"], record["epoch"]) for record in records] == [
        (phase, epoch) for phase in ("pretraining", "upper") for epoch in range(1, 13)
    ]
    for record in records:
        assert set(record["losses"]) == {"equation", "ends"}
        assert record["loss"] > 0
        assert record["held_out"] > 0
        assert record["epochs"] == 12
        assert set(record["duals"]) == ({"equation"} if record["phase"] == "upper" else set())
    assert any(entry.get("tick") for entry in shown)
    assert np.all(np.diff([record["duals"]["equation"] for record in records[12:]]) > 0)


def test_a_seed_repeats_bit_for_bit_and_another_does_not():
    assert same(trained(**PHASES), reference())
    assert not same(trained(**PHASES, seed=1), reference())


def test_divergence_is_reported_and_the_last_good_backbone_is_kept():
    solution = trained(upper=Training(5, 1e200))
    assert "diverged" in solution.advice
    assert solution.status != "nonfinite"
    assert np.all(np.isfinite(solution.theta))


def test_divergence_of_pretraining_is_reported_after_the_upper_level_too():
    solution = trained(pretraining=Training(30, 1e200), upper=Training(2, 1e-3))
    assert "diverged in epoch" in solution.advice
    assert "of pretraining" in solution.advice
    assert np.all(np.isfinite(solution.theta))


def test_another_number_of_epochs_does_not_compile_anew():
    trained(upper=Training(3, 2e-2))
    size = programs(run_epochs)
    trained(upper=Training(5, 2e-2))
    assert programs(run_epochs) == size


def test_a_budget_of_no_time_stops_training_and_still_answers():
    solution = trained(upper=Training(200, 2e-2), max_seconds=0.0)
    assert solution.status == "out_of_budget"
    assert np.all(np.isfinite(solution.theta))
    assert len(solution.history) == 1


# --- checkpoints ------------------------------------------------------------------------------------------------------


class Crash(Exception):
    """What a machine does to a run."""


def stopping(phase: str, epoch: int, error: type[BaseException]) -> Any:
    """A progress callback that raises when a phase reaches an epoch."""

    def progress(entry: dict[str, Any]) -> None:
        if entry.get("tick") and entry["phase"] == phase and entry["epoch"] >= epoch:
            raise error

    return progress


@pytest.mark.parametrize(("phase", "epoch"), [("pretraining", 1), ("pretraining", 7), ("upper", 5), ("upper", 12)])
def test_a_run_that_crashed_goes_on_bit_for_bit(tmp_path: Path, phase, epoch):
    how = {**PHASES, "checkpoint": tmp_path / "run", "checkpoint_seconds": 0.0}
    with pytest.raises(Crash):
        trained(**how, progress=stopping(phase, epoch, Crash))
    shown: list[dict[str, Any]] = []
    solution = trained(**how, progress=shown.append)
    assert same(solution, reference())
    assert solution.history == reference().history
    first = shown[0]  # what was done is not done again
    expected = (phase, epoch) if epoch > 1 else (phase, 1)
    assert (first["phase"], first["epoch"]) == expected


def test_two_crashes_are_as_good_as_one(tmp_path: Path):
    how = {**PHASES, "checkpoint": tmp_path / "run", "checkpoint_seconds": 0.0}
    for phase, epoch in (("pretraining", 5), ("upper", 6)):
        with pytest.raises(Crash):
            trained(**how, progress=stopping(phase, epoch, Crash))
    assert same(trained(**how), reference())


def test_ctrl_c_gives_the_best_so_far_and_the_run_can_go_on(tmp_path: Path):
    how = {**PHASES, "checkpoint": tmp_path / "run", "checkpoint_seconds": 0.0}
    solution = trained(**how, progress=stopping("upper", 6, KeyboardInterrupt))
    assert solution.status == "interrupted"
    assert np.all(np.isfinite(solution(x=[0.0, 0.5])))
    assert len(solution.history) == 12 + 6
    assert same(trained(**how), reference())


def test_ctrl_c_in_pretraining_skips_the_rest_of_training():
    solution = trained(**PHASES, progress=stopping("pretraining", 3, KeyboardInterrupt))
    assert solution.status == "interrupted"
    assert {record["phase"] for record in solution.history} == {"pretraining"}


def test_a_finished_run_is_not_trained_again(tmp_path: Path):
    how = {**PHASES, "checkpoint": tmp_path / "run"}
    first = trained(**how)
    shown: list[dict[str, Any]] = []
    again = trained(**how, progress=shown.append)
    assert shown == []
    assert same(first, again)
    assert again.history == first.history


def other_settings() -> dict[str, dict[str, Any]]:
    problem, points = waves()
    moved = {key: rows.copy() for key, rows in points.items()}
    moved["equation"][3] += 1e-9
    return {
        "seed": {"seed": 5},
        "weights": {"weights": {"equation": 1.0, "ends": 1.0}},
        "lower": {"lower": Ridge(1e-5)},
        "rate": {"upper": Training(12, 2e-2, dual=PrimalDual(1e-2), batch=16)},
        "epochs": {"pretraining": Training(13, 1e-2, batch=16)},
        "points": {"points": moved},
        "features": {"features": fourier_features(problem, 4, backbone=(6,), sigma=0.7, seed=3)},
        "targets": {
            "problem": Problem(
                LINE,
                equation=problem.conditions["equation"],
                ends=Condition(LINE.boundary, value, lambda p: np.sin(20.0 * p.x) + 1e-6),
            ),
            "weights": None,
        },
        "operators": {
            "problem": Problem(
                LINE,
                equation=Condition(
                    LINE.interior, lambda u, p: 1.01 * curved(u, p), problem.conditions["equation"].target
                ),
                ends=problem.conditions["ends"],
            ),
        },
    }


@pytest.mark.parametrize("changed", other_settings())
def test_the_checkpoint_of_another_run_is_refused(tmp_path: Path, changed):
    problem, points = waves()
    features = fourier_features(problem, 4, backbone=(6,), sigma=0.7, seed=2)
    how = {"problem": problem, "features": features, "points": points, **PHASES, "checkpoint": tmp_path / "run"}
    with pytest.raises(Crash):
        fit(**how, checkpoint_seconds=0.0, progress=stopping("pretraining", 1, Crash))
    # the crash came before the first checkpoint was written, and it is written after the second look
    with pytest.raises(Crash):
        fit(**how, checkpoint_seconds=0.0, progress=stopping("pretraining", 2, Crash))
    with pytest.raises(StorageError, match="belongs to a run with other settings, points or seed"):
        fit(**{**how, **other_settings()[changed]})


# --- what must change nothing -----------------------------------------------------------------------------------------


def twice(length: float, factor: float, v: Any, p: Any) -> Any:
    return factor * (length**2 * d(v, p._fields[0], p._fields[0])(p) - 4.0 * v(p))


def mixture(length: float, v: Any, p: Any) -> Any:
    return length * d(v, p._fields[0])(p) + v(p)


def robin(x: float = 1.0, shift: float = 0.0, u: float = 1.0, equation: float = 1.0, names: str = "xab") -> Problem:
    """u'' - 4 u = f, u(0) = 2, u'(1) + u(1) = 0, with x and u in other units, a scaled equation, and other names."""
    name, first, last = names
    box = Box(**{name: (shift, shift + x)})
    source = lambda p: equation * u * np.cos(7.0 * (p[0] - shift) / x)  # noqa: E731
    conditions: dict[str, Any] = {
        first: Condition(box.interior, Partial(twice, x, equation), source),
        last: Condition(box.lower(name), value, 2.0 * u),
        "end": Condition(box.upper(name), Partial(mixture, x)),
    }
    return Problem(box, **conditions)


def poorly_solved(problem: Problem) -> np.ndarray:
    """Values at fixed places, with so few columns that every weight shows in them."""
    features = fourier_features(problem, 3, backbone=(5,), sigma=0.7, initialisation="torch", enlarged=False)
    low, high = problem.domain.lows[0], problem.domain.highs[0]
    # the same points in every unit
    rows = [low + (high - low) * np.linspace(0.0, 1.0, 31)[:, None], np.array([[low]]), np.array([[high]])]
    solution = fit(problem, features, dict(zip(problem.conditions, rows, strict=True)))
    assert solution.stats["training_residual"] > 1e-4
    return np.asarray(solution(**{problem.domain.names[0]: low + (high - low) * np.linspace(0.0, 1.0, 9)}))


@functools.cache
def plainly() -> np.ndarray:
    return poorly_solved(robin())


CHANGES: dict[str, tuple[dict[str, Any], float]] = {
    "u in other units": ({"u": 1e6}, 1e6),
    "a scaled equation": ({"equation": 1e-5}, 1.0),
    "x in other units": ({"x": 1e-3, "shift": 5.0}, 1.0),
    "everything at once": ({"x": 20.0, "shift": -7.0, "u": 1e-4, "equation": 300.0}, 1e-4),
    "other names": ({"names": "rza"}, 1.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_units_and_names_change_nothing(change):
    how, unit = CHANGES[change]
    np.testing.assert_allclose(poorly_solved(robin(**how)) / unit, plainly(), rtol=1e-7, atol=1e-8)


def test_weights_do_change_what_is_poorly_solved():
    # or the test above would say nothing of the default weights
    problem = robin()
    features = fourier_features(problem, 3, backbone=(5,), sigma=0.7, initialisation="torch", enlarged=False)
    weights = dict(zip(problem.conditions, (1e-4, 1.0, 1.0), strict=True))
    values = fit(problem, features, problem.sample(31), weights=weights)(x=np.linspace(0, 1, 9))
    assert np.max(np.abs(values - plainly())) > 1e-3


def test_the_exact_solution_is_never_used():
    with_exact, without = (
        fit(problem, features_of("growth"), points_of("growth"))
        for problem in (small("growth"), Problem(LINE, **conditions_of("growth")))
    )
    np.testing.assert_array_equal(with_exact.theta, without.theta)
    assert with_exact.stats | {"seconds": 0} == without.stats | {"seconds": 0}


def test_held_out_points_are_not_training_points():
    for name in ("oscillator", "heat, periodic"):
        solution, points = solved(name), points_of(name)
        for key, (held, values) in solution.held_out.items():
            assert len(held) == len(values)
            if len(points[key]) > 1:  # the one point of a face of dimension zero is both
                assert len(held) >= 200
                assert not {tuple(row) for row in held} & {tuple(row) for row in points[key]}


def test_given_held_out_points_are_used():
    held = {"ode": np.array([[0.25], [0.5]]), "start": np.array([[0.0]])}
    solution = fit(small("growth"), features_of("growth"), points_of("growth"), held_out=held)
    np.testing.assert_array_equal(solution.held_out["ode"][0], held["ode"])


def test_settings_of_jax_are_the_callers_afterwards_and_results_are_float64():
    for x64 in (False, True):
        with jax.enable_x64(x64), jax.default_matmul_precision("default"):
            solution = fit(small("growth"), features_of("growth"), points_of("growth"))
            assert setting("jax_enable_x64") == x64
            assert setting("jax_default_matmul_precision") == "default"
            assert solution.theta.dtype == np.float64
            assert solution(x=0.5).dtype == np.float64
            assert jnp.zeros(1).dtype == (np.float64 if x64 else np.float32)
            np.testing.assert_array_equal(solution.theta, solved("growth").theta)


@pytest.mark.parametrize(
    ("operator", "where", "place"),
    [
        (lambda u, p: curved(u, p) + jnp.sqrt(p.x - 0.01) * u(p), 0.005, "points"),  # undefined in a corner
        (lambda u, p: curved(u, p) + jnp.sqrt(p.x - 0.01) * u(p), 0.005, "held_out"),
        (lambda u, p: curved(u, p) + jnp.where(p.x > 0, slope(u, p) / p.x, 0.0), 0.0, "points"),  # 0 times infinity
    ],
)
def test_an_operator_that_is_nan_at_one_point_of_many_is_refused_with_the_point(operator, where, place):
    problem = Problem(LINE, ode=Condition(LINE.interior, operator, 1.0), ends=Condition(LINE.boundary, value))
    fine = {"ode": np.linspace(0.1, 1.0, 30)[:, None], "ends": np.array([[0.0], [1.0]])}
    spoilt = {**fine, "ode": np.array([[0.5], [where], [1.0]])}
    points, held_out = (spoilt if place == name else fine for name in ("points", "held_out"))
    with pytest.raises(ValueError, match=rf"{place}\['ode'\]: .* NaN or infinite at x={where:g}; mend it"):
        fit(problem, fourier_features(problem, **BARE), points, held_out=held_out)


# --- what must never count as converged -------------------------------------------------------------------------------


def on_a_line(**conditions: Any) -> Problem:
    return Problem(LINE, equation=Condition(LINE.interior, curved, lambda p: np.sin(3.0 * p.x)), **conditions)


def on_a_plane(operator: Any, **conditions: Any) -> Problem:
    return Problem(PLANE, equation=Condition(PLANE.interior, operator), **conditions)


START = Condition(PLANE.lower("t"), value, lambda p: np.sin(p.x))
UNDETERMINED: dict[str, Problem] = {
    "no condition but the equation": on_a_line(),
    "one end missing": on_a_line(left=Condition(LINE.lower("x"), value, 1.0)),
    "pure Neumann": Problem(
        LINE,
        equation=Condition(LINE.interior, curved, lambda p: np.cos(math.pi * p.x)),
        ends=Condition(LINE.boundary, slope),
    ),
    "pure Neumann, incompatible": Problem(
        LINE, equation=Condition(LINE.interior, curved, 1.0), ends=Condition(LINE.boundary, slope)
    ),
    "an eigenvalue": Problem(
        LINE,
        equation=Condition(LINE.interior, lambda u, p: curved(u, p) + math.pi**2 * u(p)),
        ends=Condition(LINE.boundary, value),
    ),
    "two unknowns, one equation": Problem(
        LINE,
        equation=Condition(LINE.interior, lambda u, v, p: d(u, "x")(p) - v(p)),
        start=Condition(LINE.lower("x"), lambda u, v, p: u(p), 1.0),
        unknowns=("u", "v"),
    ),
    "nonlinear without a start": Problem(
        LINE, equation=Condition(LINE.interior, lambda u, p: slope(u, p) + u(p) ** 2 - 1.0)
    ),
    "heat without walls": on_a_plane(lambda u, p: d(u, "t")(p) - curved(u, p), start=START),
    "Laplace without two of the walls": on_a_plane(
        lambda u, p: d(u, "t", "t")(p) + curved(u, p), start=START, end=Condition(PLANE.upper("t"), value)
    ),
}


@pytest.mark.parametrize("name", UNDETERMINED)
def test_missing_conditions_are_ill_posed(name):
    problem = UNDETERMINED[name]
    line = problem.domain is LINE
    how = BARE if line else PLAIN | {"num_frequencies": 110, "sigma": 0.6}
    solution = fit(problem, fourier_features(problem, **how), problem.sample(60 if line else 500))
    assert solution.status == "ill_posed"
    assert "do not determine the solution" in solution.advice


@pytest.mark.parametrize("name", ["no condition but the equation", "one end missing", "pure Neumann"])
def test_a_ridge_does_not_hide_missing_conditions(name):
    problem = UNDETERMINED[name]
    solution = fit(problem, fourier_features(problem, **BARE), problem.sample(60), lower=Ridge(1e-7))
    assert solution.status != "converged"


@pytest.mark.parametrize("lower", [LeastSquares(), Ridge(1e-7)], ids=["least squares", "ridge"])
@pytest.mark.parametrize("gap", [1.0, 1e-2, 1e-4])
def test_contradictory_data_never_converge(lower, gap):
    ends, again = Condition(LINE.boundary, value, 1.0), Condition(LINE.lower("x"), value, 1.0 + gap)
    problem = on_a_line(ends=ends, again=again)
    solution = fit(problem, fourier_features(problem, **BARE), problem.sample(60), lower=lower)
    assert solution.status == "stalled"
    assert "'ends'" in solution.advice or "'again'" in solution.advice


def test_an_overdetermined_problem_never_converges():
    ends, again = Condition(LINE.boundary, value, 1.0), Condition(LINE.lower("x"), slope, 5.0)
    problem = on_a_line(ends=ends, again=again)
    assert fit(problem, fourier_features(problem, **BARE), problem.sample(60)).status == "stalled"


def test_a_redundant_condition_is_no_contradiction():
    problem = Problem(LINE, **conditions_of("growth"), end=Condition(LINE.upper("x"), value, math.e))
    assert fit(problem, features_of("growth"), {**points_of("growth"), "end": np.array([[1.0]])}).status == "converged"


def test_zero_is_a_solution_like_any_other():
    problem = Problem(LINE, equation=Condition(LINE.interior, curved), ends=Condition(LINE.boundary, value))
    solution = fit(problem, fourier_features(problem, **BARE), problem.sample(60))
    assert solution.status == "converged"
    assert np.max(np.abs(solution(x=np.linspace(0, 1, 9)))) < 1e-14


def test_fewer_rows_than_columns_are_not_converged_and_say_so():
    problem = wave()
    other: dict[str, Any] = BARE | {"sigma": 2.0}
    solution = fit(problem, fourier_features(problem, **other), problem.sample(12))
    assert solution.status != "converged"
    assert "fewer rows (14) than columns (26)" in solution.advice or solution.status == "ill_posed"
