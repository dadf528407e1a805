"""Exports, read back by something else than what wrote them."""

import base64
import csv
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import xarray

from ifef.export import EXPORTERS, to_dataset, write_csv, write_netcdf, write_vtk

T, X, Y = np.linspace(0, 1, 4), np.array([-1.0, 0.1, 0.5, 2.0, 7.0]), np.linspace(3, 4, 3)


def grid(*names: str) -> dict[str, np.ndarray]:
    return {name: {"t": T, "x": X, "y": Y, "w": np.array([5.0, 6.0])}[name] for name in names}


def field(axes: dict[str, np.ndarray]) -> np.ndarray:
    """A function that tells every coordinate from every other."""
    meshes = np.meshgrid(*axes.values(), indexing="ij")
    return np.asarray(sum(10.0**power * mesh / 3 for power, mesh in enumerate(meshes)))


def read_vtk(path: Path) -> tuple[list[int], dict[str, np.ndarray], list[np.ndarray]]:
    root = ElementTree.parse(path).getroot()
    assert root.attrib["type"] == "RectilinearGrid"
    assert root.attrib["byte_order"] == "LittleEndian"
    assert root.attrib["header_type"] == "UInt64"

    def values(element: ElementTree.Element) -> np.ndarray:
        assert element.attrib["type"] == "Float64"
        raw = base64.b64decode(element.text or "", validate=True)
        assert int.from_bytes(raw[:8], "little") == len(raw) - 8
        return np.frombuffer(raw[8:], "<f8")

    whole, piece = root.find("RectilinearGrid"), root.find("RectilinearGrid/Piece")
    assert whole is not None
    assert piece is not None
    assert whole.attrib["WholeExtent"] == piece.attrib["Extent"]
    fields = {element.attrib["Name"]: values(element) for element in piece.findall("PointData/DataArray")}
    coordinates = [values(element) for element in piece.findall("Coordinates/DataArray")]
    return [int(number) for number in piece.attrib["Extent"].split()], fields, coordinates


@pytest.mark.parametrize("names", [("x", "y"), ("t", "x", "y")])
def test_vtk_puts_every_value_at_its_point(tmp_path: Path, names):
    axes = grid(*names)
    values = field(axes)
    write_vtk(tmp_path / "u.vtr", axes, {"u": values, "v": -values, "w": 1j * values})
    extent, fields, coordinates = read_vtk(tmp_path / "u.vtr")
    sizes = [axis.size for axis in coordinates]
    assert extent == [number for size in sizes for number in (0, size - 1)]
    for axis, read in zip(axes.values(), coordinates, strict=False):
        np.testing.assert_array_equal(read, axis)
    assert len(coordinates) == 3
    assert set(fields) == {"u", "v", "w_real", "w_imag"}
    for index in np.ndindex(*values.shape):
        # VTK's own rule for the point (i, j, k): i + j nx + k nx ny
        i, j, k = (*index, 0)[:3]
        point = i + j * sizes[0] + k * sizes[0] * sizes[1]
        assert fields["u"][point] == values[index]
        assert fields["v"][point] == -values[index]
        assert fields["w_imag"][point] == values[index]


def test_vtk_at_a_known_point(tmp_path: Path):
    write_vtk(
        tmp_path / "u.vtr",
        {"x": np.array([0.0, 1, 3]), "y": np.array([0.0, 5])},
        {"u": np.array([[1, 2], [3, 4], [5, 6]])},
    )
    _, fields, _ = read_vtk(tmp_path / "u.vtr")
    assert fields["u"].tolist() == [1, 3, 5, 2, 4, 6]


@pytest.mark.parametrize("names", [("x",), ("t", "x", "y", "w")])
def test_vtk_refuses_other_dimensions(tmp_path: Path, names):
    axes = grid(*names)
    with pytest.raises(ValueError, match="netcdf or csv"):
        write_vtk(tmp_path / "u.vtr", axes, {"u": field(axes)})


def test_vtk_refuses_an_axis_that_turns_back(tmp_path: Path):
    with pytest.raises(ValueError, match="'x' does not increase"):
        write_vtk(tmp_path / "u.vtr", {"x": X[::-1], "y": Y}, {"u": np.zeros((5, 3))})


def test_vtk_names_are_escaped(tmp_path: Path):
    write_vtk(tmp_path / "u.vtr", grid("x", "y"), {'a<"&>': np.zeros((5, 3))})
    assert set(read_vtk(tmp_path / "u.vtr")[1]) == {'a<"&>'}


@pytest.mark.parametrize("names", [("x",), ("t", "x"), ("t", "x", "y"), ("t", "x", "y", "w")])
def test_csv_reads_back_exactly(tmp_path: Path, names):
    axes = grid(*names)
    values = field(axes)
    values.flat[1] = np.nan
    write_csv(tmp_path / "u.csv", axes, {"u": values, "a, b": values + 1j / 3})
    with open(tmp_path / "u.csv", newline="") as stream:
        head, *rows = csv.reader(stream)
    assert head == [*names, "u", "a, b_real", "a, b_imag"]
    table = np.array(rows, dtype=np.float64).reshape(*values.shape, len(head))
    for number, mesh in enumerate(np.meshgrid(*axes.values(), indexing="ij")):
        np.testing.assert_array_equal(table[..., number], mesh)
    np.testing.assert_array_equal(table[..., -3], values)
    np.testing.assert_array_equal(table[..., -1], 1 / 3)


def test_dataset():
    axes = grid("t", "x")
    dataset = to_dataset(axes, {"u": field(axes), "v": 1j * field(axes)}, {"problem": "waves", "error": 1e-9})
    assert dataset["u"].dims == ("t", "x")
    assert float(dataset["u"].sel(t=1.0, x=0.5)) == pytest.approx(1 / 3 + 10 * 0.5 / 3)
    assert dataset["v"].dtype == np.complex128
    assert dataset.attrs == {"problem": "waves", "error": 1e-9}


@pytest.mark.parametrize("names", [("x",), ("t", "x"), ("t", "x", "y", "w")])
def test_netcdf_reads_back(tmp_path: Path, names):
    pytest.importorskip("h5py", reason="h5netcdf writes by h5py")
    axes = grid(*names)
    write_netcdf(
        tmp_path / "u.nc", axes, {"u": field(axes), "v": 1j * field(axes)}, {"problem": "waves", "error": 1e-9}
    )
    with xarray.open_dataset(tmp_path / "u.nc", engine="h5netcdf") as dataset:
        assert dataset["u"].dims == names
        np.testing.assert_array_equal(dataset["u"], field(axes))
        np.testing.assert_array_equal(dataset["v_imag"], field(axes))
        np.testing.assert_array_equal(dataset["x"], X)
        assert dataset.attrs["problem"] == "waves"
        assert dataset.attrs["error"] == 1e-9


def test_netcdf_contents_by_an_engine_that_is_always_there(tmp_path: Path, monkeypatch):
    # Everything but HDF5 itself, where h5py is not installed: SciPy writes netCDF 3.
    write = xarray.Dataset.to_netcdf
    monkeypatch.setattr("ifef.export.find_spec", lambda _: object())
    monkeypatch.setattr(xarray.Dataset, "to_netcdf", lambda dataset, engine: write(dataset, engine="scipy"))
    axes = grid("t", "x")
    write_netcdf(
        tmp_path / "u.nc", axes, {"u": field(axes), "v": 1j * field(axes)}, {"problem": "waves", "error": 1e-9}
    )
    monkeypatch.undo()
    with xarray.open_dataset(tmp_path / "u.nc", engine="scipy") as dataset:
        assert dataset["u"].dims == ("t", "x")
        np.testing.assert_array_equal(dataset["u"], field(axes))
        np.testing.assert_array_equal(dataset["v_imag"], field(axes))
        assert dataset.attrs == {"problem": "waves", "error": 1e-9}


def test_netcdf_without_its_libraries_says_what_to_install(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("ifef.export.find_spec", lambda name: None if name == "h5py" else object())
    with pytest.raises(ModuleNotFoundError, match="pip install h5py"):
        write_netcdf(tmp_path / "u.nc", grid("x"), {"u": X})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["vtk", "csv"])
def test_exporters_share_one_signature(tmp_path: Path, name: str):
    exporter = EXPORTERS[name]
    axes = grid("x", "y")
    exporter.write(tmp_path / f"u{exporter.suffix}", axes, {"u": field(axes)}, {"problem": "waves"})
    assert [entry.suffix for entry in tmp_path.iterdir()] == [exporter.suffix]


@pytest.mark.parametrize("write", [write_csv, write_vtk, lambda _, axes, fields: to_dataset(axes, fields)])
@pytest.mark.parametrize(
    ("axes", "fields", "reason"),
    [
        ({"x": X, "y": Y}, {"u": np.zeros((3, 5))}, "x: 5, y: 3"),
        ({"x": X, "y": Y}, {"x": np.zeros((5, 3))}, "rename"),
        ({"x": X[:, None], "y": Y}, {"u": np.zeros((5, 3))}, "Axis 'x'"),
        ({"x": X[:0], "y": Y}, {"u": np.zeros((0, 3))}, "Axis 'x'"),
        ({"x": X, "y": Y}, {}, "at least one"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, write, axes, fields, reason):
    with pytest.raises(ValueError, match=reason):
        write(tmp_path / "file", axes, fields)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [write_csv, write_vtk])
@pytest.mark.parametrize("order", [("u", "u_real"), ("u_real", "u")])
def test_a_part_that_would_hide_another_field_is_refused(tmp_path: Path, write, order):
    fields = {name: np.zeros((5, 3), complex if name == "u" else float) for name in order}
    with pytest.raises(ValueError, match="rename the other 'u_real'"):
        write(tmp_path / "file", {"x": X, "y": Y}, fields)
