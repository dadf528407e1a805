"""float32 on request: rows and factorisations are in it, and what that costs is measured and said."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BARE, LINE, errors, estimates, features_of, points_of, setting, slope, small, solved, value

import ifef
from ifef import cli, lower, theta
from ifef.arguments import checked_dtype
from ifef.assembly import make_data
from ifef.calculus import d
from ifef.domain import Box
from ifef.features import fourier_features
from ifef.fit import fit
from ifef.lower import GaussNewton, LeastSquares
from ifef.problem import Condition, Problem
from ifef.tiles import rows_of
from ifef.trials import Trials


def single(name: str, **options: Any) -> ifef.Solution:
    return fit(small(name), features_of(name), points_of(name), dtype="float32", **options)


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [True, False], ids=["LAPACK", "JAX"])
def test_every_tall_factorisation_is_in_float32(host, monkeypatch: pytest.MonkeyPatch):
    seen = []
    plain = lower._triangle

    def triangle(block: Any) -> Any:
        seen.append((block.shape[0], np.dtype(block.dtype)))
        return plain(block)

    monkeypatch.setattr(lower, "_triangle", triangle)
    monkeypatch.setattr(theta, "on_host", lambda lower: host)
    problem = small("growth")
    # Another size than other tests have: what JAX has compiled already would not be seen.
    solution = fit(problem, fourier_features(problem, **BARE), problem.sample(2000 + host), dtype="float32")
    tall = [dtype for rows, dtype in seen if rows > 2000]  # what float64 checks are few rows
    assert len(tall) >= 1
    assert set(tall) == {np.dtype("float32")}
    assert solution.stats["dtype"] == "float32"
    assert solution.theta.dtype == np.float64
    assert max(errors(solution).values()) < 1e-6


def test_rows_follow_the_precision_of_the_points():
    problem, features = small("growth"), features_of("growth")
    exact, rounded = (make_data(problem, points_of("growth"), dtype) for dtype in ("float64", "float32"))
    one, other = (rows_of(features, data, "ode") for data in (exact, rounded))
    assert (one.dtype, other.dtype) == (np.float64, np.float32)
    assert 1e-9 < np.max(np.abs(one - other)) / np.max(np.abs(one)) < 1e-5


@pytest.mark.parametrize("moved", [False, True], ids=["rounded", "moved"])
def test_points_stay_in_the_box_and_on_their_faces(moved):
    box = Box(x=(0.1, 0.7), y=(-0.3, 0.9))
    inside = Condition(box.interior, value, lambda p: np.sqrt(p.x - 0.1) + np.sqrt(0.7 - p.x))
    problem = Problem(box, inside=inside, walls=Condition(box.upper("x"), value, lambda p: np.log(1.0 + 0.7 - p.x)))
    points = problem.sample({"inside": 4096, "walls": 64})
    points["inside"][:2, 0] = 0.1, 0.7
    data = make_data(problem, points, "float32", moved=moved)
    for key, rows in data.points.items():
        near = np.asarray(rows, dtype=np.float64)
        assert np.all((near >= box.lows) & (near <= box.highs))
        assert np.max(np.abs(near - points[key])) < 5e-7
    assert len(np.unique(np.asarray(data.points["walls"])[:, 0])) == 1
    assert np.all(np.isfinite(np.asarray(data.targets["inside"])))


def test_a_column_twice_is_left_out_and_others_are_not():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(400, 80))
    a[:, 40:60] = a[:, :20] * rng.uniform(0.1, 10.0, 20)
    both = np.asfortranarray(np.column_stack([a, rng.normal(size=400)]), dtype=np.float32)
    result = LeastSquares().finish(LeastSquares().first(both.copy(order="F")))
    assert int(result.rank) == 60
    assert np.linalg.norm(result.theta) < 3.0
    expected = a @ np.linalg.lstsq(a, both[:, -1], rcond=1e-10)[0]
    assert np.linalg.norm(a @ result.theta - expected) < 1e-5 * np.linalg.norm(expected)


def test_the_cut_is_that_of_the_rows():
    assert single("growth").stats["cut"] == 2.5e-7
    assert single("growth", lower=LeastSquares(1e-4)).stats["cut"] == 1e-4
    assert solved("growth").stats["cut"] == 1e-15


# --- what rounding costs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["growth", "mixed derivative"])
def test_the_floor_is_what_rounding_costs(name):
    solution, exact = single(name), solved(name)
    places = small(name).sample(300, sampler="uniform", seed=8)
    rows = next(iter(places.values()))
    there, here = exact.at(rows)["u"], solution.at(rows)["u"]
    cost = np.linalg.norm(here - there) / np.linalg.norm(there)
    assert 0.1 < solution.stats["floor"] / cost < 10.0
    error, estimate = max(errors(solution).values()), max(estimates(solution).values())
    assert 0.1 < estimate / error < 10.0
    assert estimate >= solution.stats["floor"] > 0
    assert exact.stats["floor"] is None  # nothing is measured where little is lost


def test_points_that_float32_rounds_far_have_the_targets_of_where_they_are():
    box = Box(x=(1000.0, 1001.0))
    problem = Problem(
        box,
        ode=Condition(box.interior, lambda u, p: d(u, "x")(p), lambda p: 5.0 * np.cos(5.0 * (p.x - 1000.0))),
        start=Condition(box.lower("x"), value),
        exact=lambda p: jnp.sin(5.0 * (p.x - 1000.0)),
    )
    solution = fit(problem, fourier_features(problem, **BARE), problem.sample(60), dtype="float32")
    assert solution.error() < 1e-5
    assert 0.1 < solution.error_estimate / solution.error() < 10.0


def test_rounding_that_is_alike_at_all_points_counts_too():
    problem = Problem(
        LINE,
        equation=Condition(LINE.interior, lambda u, p: d(u, "x", "x")(p) + 9.0 * u(p)),
        ends=Condition(LINE.boundary, value, lambda p: np.cos(3.0 * p.x)),
        exact=lambda p: jnp.cos(3.0 * p.x),
    )
    wave = fourier_features(problem, frequencies=np.array([[1.5 / (2.0 * math.pi)]]), backbone=(), enlarged=False)
    solution = fit(problem, wave, problem.sample(60), dtype="float32")
    assert 0.1 < solution.stats["floor"] / solution.error() < 10.0


def test_a_tolerance_below_the_floor_is_never_converged_and_the_advice_says_why():
    loose, tight = single("growth", tolerance=1e-5), single("growth", tolerance=1e-9)
    assert (loose.status, loose.advice) == ("converged", "")
    assert tight.status == "stalled"
    assert tight.advice.startswith("Float32 rounding limits this answer to about ")
    assert tight.advice.endswith('e-8: use dtype="float64".') or tight.advice.endswith('e-7: use dtype="float64".')


def test_a_poor_basis_is_not_blamed_on_float32_alone():
    problem = small("growth")
    few = fourier_features(problem, 1, backbone=(), sigma=0.3, enlarged=False)
    solution = fit(problem, few, problem.sample(60), dtype="float32", tolerance=1e-12)
    assert solution.error_estimate > 1e-3
    assert "holds" in solution.advice
    assert solution.advice.endswith('use dtype="float64".')


def test_contradictions_and_missing_conditions_are_found_in_float32_too():
    curved = Condition(LINE.interior, lambda u, p: d(u, "x", "x")(p), lambda p: np.sin(3.0 * p.x))
    free = Problem(LINE, equation=curved, ends=Condition(LINE.boundary, slope))
    again = Condition(LINE.lower("x"), value, 1.01)
    torn = Problem(LINE, equation=curved, ends=Condition(LINE.boundary, value, 1.0), again=again)
    said = [fit(one, fourier_features(one, **BARE), one.sample(60), dtype="float32") for one in (free, torn)]
    assert [one.status for one in said] == ["ill_posed", "stalled"]
    assert "contradict" in said[1].advice


def test_nonlinear_problems_are_solved_in_float32():
    solution = single("riccati", lower=GaussNewton())
    assert solution.stats["dtype"] == "float32"
    assert 0.1 < solution.error_estimate / solution.error() < 10.0
    assert solution.error() < 1e-5


def test_the_search_knows_what_rounding_leaves():
    trials = [Trials(small("growth"), 0, dtype) for dtype in ("float64", "float32")]
    exact, rounded = (one.solve(0.3 * np.arange(12.0)[:, None]) for one in trials)
    assert exact.rounding == 1e-13
    assert exact.held_out < 1e-12 < 1e-8 < rounded.held_out < 1e-5
    assert 0.1 * rounded.held_out < rounded.rounding < 1e-5


# --- asking for it ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["float16", "single precision", 32, None, np.complex64, [1, 2]], ids=str)
@pytest.mark.parametrize("verb", ["solve", "fit"])
def test_another_dtype_is_refused_in_one_sentence(verb, wrong):
    problem = small("growth")
    given = (problem,) if verb == "solve" else (problem, features_of("growth"), points_of("growth"))
    with pytest.raises(ValueError, match=rf"^{verb}\(dtype=.*\): give 'float64' or 'float32'\.$"):
        getattr(ifef, verb)(*given, dtype=wrong)


def test_a_dtype_is_known_by_any_of_its_names():
    given = (np.float32, jnp.float32, np.dtype("float32"), "f4", np.float64)
    assert [checked_dtype(one, "fit") for one in given] == ["float32"] * 4 + ["float64"]


def test_settings_of_jax_are_the_callers_afterwards():
    before = setting("jax_enable_x64")
    single("growth")
    assert setting("jax_enable_x64") == before
    with jax.enable_x64(True):
        single("growth")
        assert jnp.zeros(1).dtype == np.float64


def test_a_saved_solution_keeps_it(tmp_path: Path):
    solution = single("growth")
    again = ifef.load(solution.save(tmp_path / "answer"), small("growth"))
    assert (again.stats["dtype"], again.stats["floor"]) == ("float32", solution.stats["floor"])
    np.testing.assert_array_equal(again(x=np.linspace(0, 1, 5)), solution(x=np.linspace(0, 1, 5)))


def test_the_command_takes_it_and_stops_where_float32_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("line.py").write_text(
        "import math\nfrom ifef import Box, Condition, Problem, d\nbox = Box(x=(0.0, 1.0))\n"
        'problem = Problem(box, equation=Condition(box.interior, lambda u, p: d(u, "x", "x")(p) + 9.0 * u(p)),\n'
        "    ends=Condition(box.boundary, lambda u, p: u(p), lambda p: math.cos(3.0 * p.x)))\n"
    )
    assert cli.main(["solve", "line.py", "--dtype", "float32", "--tolerance", "1e-9", "--no-plot", "--quiet"]) == 1
    (result,) = (json.loads(path.read_text()) for path in Path("runs").glob("line/*/result.json"))
    assert (result["dtype"], result["settings"]["dtype"], result["stats"]["dtype"]) == ("float32",) * 3
    assert (result["status"], result["stats"]["stopped"]) == ("stalled", "float32")
    assert "Float32 rounding limits" in result["advice"]
