"""Fields on a tensor grid as files for other programs.

Every function takes `axes`, the coordinates by name in the order of the arrays' dimensions, and `fields`, one array of
shape `(len(axis 1), len(axis 2), …)` by name.
"""

from __future__ import annotations

import base64
import csv
import io
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np

from .storage import write_atomic

if TYPE_CHECKING:
    import xarray

Arrays = Mapping[str, np.ndarray]
Attributes = Mapping[str, str | float]
FilePath = str | os.PathLike[str]


def _checked(axes: Arrays, fields: Arrays) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    grid = {name: np.asarray(axis, dtype=np.float64) for name, axis in axes.items()}
    for name, axis in grid.items():
        if axis.ndim != 1 or axis.size == 0:
            raise ValueError(f"Axis {name!r} has shape {axis.shape}: pass a list of at least one coordinate.")
    if not grid or not fields:
        raise ValueError("There is nothing to export: pass at least one axis and one field.")
    shape = tuple(axis.size for axis in grid.values())
    values: dict[str, np.ndarray] = {}
    for name, field in fields.items():
        values[name] = np.asarray(field, dtype=np.complex128 if np.iscomplexobj(field) else np.float64)
        if values[name].shape != shape:
            sides = ", ".join(f"{axis}: {size}" for axis, size in zip(grid, shape, strict=True))
            raise ValueError(f"Field {name!r} has shape {values[name].shape}, but the axes have {shape} ({sides}).")
        if name in grid:
            raise ValueError(f"{name!r} names a field and an axis: rename one of them.")
    return grid, values


def _real(grid: Arrays, fields: Arrays) -> dict[str, np.ndarray]:
    """A complex field as two real ones, for formats that know no complex numbers."""
    parts: dict[str, np.ndarray] = {}
    for name, field in fields.items():
        split = (
            {f"{name}_real": np.real(field), f"{name}_imag": np.imag(field)}
            if np.iscomplexobj(field)
            else {name: field}
        )
        for part, values in split.items():
            if part in parts or part in grid or (part != name and part in fields):
                raise ValueError(f"The complex field {name!r} is written as {list(split)}: rename the other {part!r}.")
            parts[part] = values
    return parts


def to_dataset(axes: Arrays, fields: Arrays, attributes: Attributes | None = None) -> xarray.Dataset:
    """Fields as an `xarray.Dataset`; a complex field stays complex."""
    import xarray

    grid, values = _checked(axes, fields)
    variables = {name: (tuple(grid), field) for name, field in values.items()}
    return xarray.Dataset(variables, coords=grid, attrs=dict(attributes or {}))


def write_netcdf(path: FilePath, axes: Arrays, fields: Arrays, attributes: Attributes | None = None) -> None:
    """Write netCDF 4, which `xarray.open_dataset` and most of Earth science read."""
    missing = [name for name in ("xarray", "h5netcdf", "h5py") if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(f"netCDF needs {', '.join(missing)}: run `pip install {' '.join(missing)}`.")
    grid, values = _checked(axes, fields)
    # Made in memory, because the library that writes HDF5 writes to a path step by step.
    raw = to_dataset(grid, _real(grid, values), attributes).to_netcdf(engine="h5netcdf")
    write_atomic(path, raw)


def _vtk_array(name: str, values: np.ndarray) -> str:
    raw = np.asarray(values, dtype="<f8").ravel(order="F").tobytes()  # "F": VTK wants x to run fastest
    # Without compression VTK takes the length and the values as one run of base64, not as two.
    text = base64.b64encode(len(raw).to_bytes(8, "little") + raw).decode()
    return f'<DataArray type="Float64" Name={quoteattr(name)} NumberOfComponents="1" format="binary">{text}</DataArray>'


def write_vtk(path: FilePath, axes: Arrays, fields: Arrays) -> None:
    """Write a VTK rectilinear grid (`.vtr`), which ParaView and VisIt read; two or three dimensions.

    The axes become x, y and z in their order, whatever their names; with two, z is zero.
    """
    grid, values = _checked(axes, fields)
    if len(grid) not in (2, 3):
        raise ValueError(
            f"VTK holds 2 or 3 dimensions and this grid has {len(grid)} ({', '.join(grid)}): use netcdf or csv."
        )
    for name, axis in grid.items():
        if not np.all(np.diff(axis) > 0):
            raise ValueError(
                f"Axis {name!r} does not increase everywhere, as VTK demands: sort it, or use netcdf or csv."
            )
    parts = _real(grid, values)
    axes_xyz = [*grid.items(), ("z", np.zeros(1))][:3]
    extent = " ".join(f"0 {axis.size - 1}" for _, axis in axes_xyz)
    lines = [
        '<?xml version="1.0"?>',
        '<VTKFile type="RectilinearGrid" version="1.0" byte_order="LittleEndian" header_type="UInt64">',
        f'<RectilinearGrid WholeExtent="{extent}"><Piece Extent="{extent}">',
        f"<PointData Scalars={quoteattr(next(iter(parts)))}>",
        *(_vtk_array(name, field) for name, field in parts.items()),
        "</PointData><Coordinates>",
        *(_vtk_array(name, axis) for name, axis in axes_xyz),
        "</Coordinates></Piece></RectilinearGrid></VTKFile>\n",
    ]
    write_atomic(path, "\n".join(lines).encode())


def write_csv(path: FilePath, axes: Arrays, fields: Arrays) -> None:
    """Write one line a grid point, coordinates first, the last axis fastest; numbers read back exactly."""
    grid, values = _checked(axes, fields)
    parts = _real(grid, values)
    coordinates = np.meshgrid(*grid.values(), indexing="ij")
    columns = [column.ravel().tolist() for column in (*coordinates, *parts.values())]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*grid, *parts])
    writer.writerows(zip(*columns, strict=True))
    write_atomic(path, text.getvalue().encode())


class Exporter(NamedTuple):
    """A format: the suffix of its files, and what writes them from (path, axes, fields, attributes)."""

    suffix: str
    write: Callable[[FilePath, Arrays, Arrays, Attributes | None], None]


# Only netCDF has a place for attributes.
EXPORTERS: Mapping[str, Exporter] = MappingProxyType(
    {
        "netcdf": Exporter(".nc", write_netcdf),
        "vtk": Exporter(".vtr", lambda path, axes, fields, _attributes=None: write_vtk(path, axes, fields)),
        "csv": Exporter(".csv", lambda path, axes, fields, _attributes=None: write_csv(path, axes, fields)),
    }
)
