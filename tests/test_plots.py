"""Pictures: that they can be drawn from any data, and that they change nothing outside themselves."""

import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from ifef.plots import history_figure, residual_figure, residual_map_figure, save_figure, solution_figure

CONTENTS = ["waves", "zero", "some nan", "all nan", "infinite", "huge", "complex"]
# What three and four dimensions add is the slice, which does not look at the values.
CASES = [(n, content) for n in (1, 2) for content in CONTENTS] + [
    (n, content) for n in (3, 4) for content in ("zero", "some nan")
]


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def filled(content: str, *shape: int) -> np.ndarray:
    values = np.sin(np.arange(np.prod(shape), dtype=np.float64)).reshape(shape)
    if content == "zero":
        values[:] = 0
    elif content == "all nan":
        values[:] = np.nan
    elif content in ("some nan", "infinite"):
        values.flat[::3] = np.nan if content == "some nan" else np.inf
    elif content == "huge":
        values *= 1e300
    return values * (1 + 2j) if content == "complex" else values


def drawn(figure, tmp_path: Path) -> bytes:
    figure.set_dpi(60)  # fewer pixels, for speed
    save_figure(figure, tmp_path / "figure.png")
    raw = (tmp_path / "figure.png").read_bytes()
    assert raw.startswith(b"\x89PNG")
    return raw


@pytest.mark.parametrize(("dimension", "content"), CASES)
def test_solutions_of_every_dimension(tmp_path: Path, dimension: int, content: str):
    axes = {name: np.linspace(0, 1, 5 + number) for number, name in enumerate("txyz"[:dimension])}
    values = filled(content, *(axis.size for axis in axes.values()))
    exact = {"u": np.zeros_like(values)} if dimension % 2 else {"u": 0.5 * values}
    drawn(solution_figure(axes, {"u": values}, exact=exact, title="a title"), tmp_path)


def test_a_slice_says_where_it_is():
    axes = {name: np.linspace(0, 1, 5) for name in "txyz"}
    figure = solution_figure(axes, {"u": np.zeros((5, 5, 5, 5)), "v": np.ones((5, 5, 5, 5))}, title="waves")
    assert figure.get_suptitle() == "waves; slice at y = 0.5, z = 0.5"
    assert len(figure.axes) == 4


def test_a_map_has_the_first_axis_across_and_the_slice_in_the_middle():
    axes = {"t": np.arange(3.0), "x": np.arange(4.0), "y": np.arange(5.0)}
    values = np.arange(60.0).reshape(3, 4, 5)
    panel = solution_figure(axes, {"u": values}).axes[0]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("t", "x")
    np.testing.assert_array_equal(np.reshape(np.asarray(panel.collections[0].get_array()), (4, 3)), values[:, :, 2].T)


def test_fields_without_an_exact_one_beside_those_with(tmp_path: Path):
    fields = {"u": np.zeros((4, 3)), "_v$": np.ones((4, 3))}
    axes = {"t": np.arange(4.0), "x_1": np.arange(3.0)}
    drawn(solution_figure(axes, fields, exact={"u": np.ones((4, 3))}, title="costs 5$ or $"), tmp_path)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 5), (5, 1)])
def test_axes_with_a_single_point(tmp_path: Path, shape):
    axes = {name: np.arange(float(size)) for name, size in zip("tx", shape, strict=False)}
    drawn(solution_figure(axes, {"u": filled("waves", *shape)}, exact={"u": np.zeros(shape)}), tmp_path)


def test_fields_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"'u' has shape \(3, 4\)"):
        solution_figure({"t": np.arange(4.0), "x": np.arange(3.0)}, {"u": np.zeros((3, 4))})
    with pytest.raises(ValueError, match="at least one"):
        solution_figure({"t": np.arange(4.0)}, {})
    with pytest.raises(ValueError, match="one column a name"):
        residual_map_figure(["t", "x"], np.zeros((5, 1)), np.zeros(5))


@pytest.mark.parametrize("content", CONTENTS)
def test_residuals(tmp_path: Path, content: str):
    residuals = {"equation": filled(content, 100), "_walls$": filled("waves", 20, 2), "none": np.zeros(0)}
    drawn(residual_figure(residuals), tmp_path)
    drawn(residual_figure({"only": filled(content, 1)}), tmp_path)


def test_no_residuals(tmp_path: Path):
    drawn(residual_figure({}), tmp_path)


@pytest.mark.parametrize(("dimension", "content"), CASES)
def test_residual_maps(tmp_path: Path, dimension: int, content: str):
    points = np.random.default_rng(0).random((50, dimension))
    drawn(residual_map_figure(["t", "x", "y", "z"][:dimension], points, filled(content, 50)), tmp_path)


@pytest.mark.parametrize(
    "records",
    [
        [],
        [{}],
        [{"phase": "fit", "epoch": 0, "loss": 1.0, "held_out": 2.0, "losses": {"equation": 0.5}, "rank": 3}],
        [{"phase": "fit", "epoch": 290, "loss": 1.0}],
        [{"loss": 0.0, "losses": {"equation": 0.0}}, {"loss": float("nan"), "held_out": None, "losses": None}],
        [{"phase": "pretrain", "epoch": e, "loss": 2.0**-e} for e in range(40)]
        + [{"phase": "fit", "epoch": e, "held_out": 2.0**-e, "rank": e} for e in range(40)],
    ],
    ids=["none", "empty", "single", "late", "zero and nan", "two phases"],
)
def test_histories(tmp_path: Path, records):
    drawn(history_figure(records), tmp_path)


def test_phases_follow_one_another():
    records = [{"phase": phase, "epoch": epoch, "loss": 1.0} for phase in ("pretrain", "fit") for epoch in range(4)]
    figure = history_figure(records)
    assert list(np.asarray(figure.axes[0].lines[0].get_xdata())) == [0, 1, 2, 3, 3, 4, 5, 6]
    assert [text.get_text().strip() for text in figure.axes[0].texts] == ["pretrain", "fit"]


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("PDF", b"%PDF"), ("svg", b"<?xml")])
def test_formats(tmp_path: Path, suffix: str, start: bytes):
    save_figure(residual_figure({"equation": np.ones(3)}), tmp_path / f"figure.{suffix}")
    assert (tmp_path / f"figure.{suffix}").read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["figure", "figure.jpg", "figure.", ".png"])
def test_an_unknown_format_lists_the_known_ones(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match=r"\.png, \.pdf, \.svg"):
        save_figure(residual_figure({}), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_nothing_global_changes(tmp_path: Path):
    before = dict(mpl.rcParams)
    drawn(solution_figure({"x": np.arange(4.0)}, {"u": np.ones(4)}), tmp_path)
    assert dict(mpl.rcParams) == before


def test_matplotlib_is_imported_when_called_and_pyplot_never():
    code = (
        "import sys, ifef.plots as p, ifef.export;"
        "print({'matplotlib', 'xarray', 'h5netcdf'} & set(sys.modules));"
        "p.history_figure([{'loss': 1.0}]); p.solution_figure({'x': [0, 1]}, {'u': [0, 1]});"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    environment = {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert found.stdout.split() == ["set()", "False"], found.stderr
