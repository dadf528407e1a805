"""A box with named coordinates, its faces, and data points. Regions of one domain join with `|`."""

from __future__ import annotations

import functools
import keyword
import math
import reprlib
from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

RESERVED_COORDINATES = ("normal",)
"""Names that a coordinate cannot have: a point on a shaped boundary carries its outward normal under this name."""


@functools.cache
def point_type(names: tuple[str, ...]) -> type:
    """Give the named-tuple type of a point, one per tuple of names: a second type would compile everything anew."""
    return namedtuple("Point", names)


def shown(value: Any) -> str:
    """Write whatever a user gave in one short line, for a message."""
    return " ".join(reprlib.repr(value).split())


@dataclass(frozen=True)
class Face:
    """The part of a box where the `fixed` coordinates have the given values; with none fixed it is the interior."""

    domain: Box
    fixed: tuple[tuple[str, float], ...] = ()

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the coordinates that vary on this face."""
        fixed = dict(self.fixed)
        return tuple(name for name in self.domain.names if name not in fixed)

    @property
    def dimension(self) -> int:
        """Number of coordinates that vary."""
        return len(self.free)

    @property
    def measure(self) -> float:
        """Length, area or volume; 1 for a single point."""
        return math.prod(self.domain.width(name) for name in self.free)

    def place(self, unit: np.ndarray) -> np.ndarray:
        """Map unit-cube points (n, dimension) to points of the domain (n, dim), never outside by rounding."""
        fixed = dict(self.fixed)
        columns = []
        position = 0
        for name, low, high in zip(self.domain.names, self.domain.lows, self.domain.highs, strict=True):
            if name in fixed:
                columns.append(np.full(len(unit), fixed[name]))
            else:
                columns.append(np.clip(low + (high - low) * unit[:, position], low, high))
                position += 1
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Cloud:
    """Given points of the domain, as an array (n, dim): the place of measurements."""

    domain: Box
    coordinates: np.ndarray

    dimension = 0

    @property
    def measure(self) -> float:
        """Number of points."""
        return float(len(self.coordinates))


@dataclass(frozen=True, eq=False)
class Region:
    """Where a condition holds: faces of one box (joined by measure), or given points."""

    domain: Box
    pieces: tuple[Face | Cloud, ...]

    @property
    def dimension(self) -> int:
        """Dimension of the pieces, which all agree."""
        return self.pieces[0].dimension

    @property
    def is_cloud(self) -> bool:
        """Whether this region is a set of given points."""
        return isinstance(self.pieces[0], Cloud)

    @property
    def is_full(self) -> bool:
        """Whether the region has the domain's own dimension: a condition on it is an equation."""
        return not self.is_cloud and self.dimension == len(self.domain.names)

    @property
    def cloud(self) -> np.ndarray:
        """The given points (n, dim) of a cloud region."""
        return np.concatenate([piece.coordinates for piece in self.pieces if isinstance(piece, Cloud)])

    def __or__(self, other: Region) -> Region:
        """Join two regions of one domain: a disjoint union by measure, or all points of two clouds."""
        if not isinstance(other, Region):
            raise TypeError(f"region | ...: a region joins with another region, not with {type(other).__name__}.")
        if other.domain != self.domain:
            raise ValueError(f"region | region: both must belong to one domain, got {self.domain} and {other.domain}.")
        if self.is_cloud != other.is_cloud:
            raise ValueError("region | region: given points join with given points only; make a Condition for each.")
        if self.dimension != other.dimension:
            raise ValueError(
                f"region | region: a region of dimension {self.dimension} does not join with one of dimension "
                f"{other.dimension}, for their measures do not compare; make a Condition for each."
            )
        extra = tuple(piece for piece in other.pieces if piece not in self.pieces)
        return Region(self.domain, self.pieces + extra)


@dataclass(frozen=True, init=False, repr=False)
class Box:
    """A box with named coordinates: `Box(t=(0.0, 1.0), x=(-1.0, 1.0))`."""

    names: tuple[str, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    _bounds: dict[str, tuple[float, float]] = field(hash=False, compare=False)

    def __init__(self, **coordinates: Sequence[float]):
        if not coordinates:
            raise ValueError("Box(...): give at least one coordinate, for instance Box(x=(0.0, 1.0)).")
        bounds = {name: _checked_bounds(name, pair) for name, pair in coordinates.items()}
        object.__setattr__(self, "names", tuple(bounds))
        object.__setattr__(self, "lows", tuple(low for low, _ in bounds.values()))
        object.__setattr__(self, "highs", tuple(high for _, high in bounds.values()))
        object.__setattr__(self, "_bounds", bounds)

    def __repr__(self) -> str:
        return "Box(" + ", ".join(f"{name}=({low:g}, {high:g})" for name, (low, high) in self._bounds.items()) + ")"

    def __hash__(self) -> int:
        return hash((self.names, self.lows, self.highs))

    def _known(self, name: str, verb: str) -> tuple[float, float]:
        if name not in self.names:
            raise ValueError(
                f"{verb}: there is no coordinate {name!r} in this box; its coordinates are: {', '.join(self.names)}."
            )
        return self._bounds[name]

    def width(self, name: str) -> float:
        """Length of the box along a coordinate."""
        low, high = self._known(name, f"width({name!r})")
        return high - low

    @property
    def interior(self) -> Region:
        """The whole box."""
        return Region(self, (Face(self),))

    @property
    def boundary(self) -> Region:
        """All faces of the box."""
        ends = [(name, end) for name, pair in self._bounds.items() for end in pair]
        return Region(self, tuple(Face(self, (pair,)) for pair in ends))

    def lower(self, name: str) -> Region:
        """Give the face where the coordinate has its lowest value."""
        return Region(self, (Face(self, ((name, self._known(name, f"lower({name!r})")[0]),)),))

    def upper(self, name: str) -> Region:
        """Give the face where the coordinate has its highest value."""
        return Region(self, (Face(self, ((name, self._known(name, f"upper({name!r})")[1]),)),))

    def points(self, **arrays: Any) -> Region:
        """Make a region of given points, for data: `box.points(t=times, x=places)`; arrays broadcast."""
        stacked = stack_coordinates(self.names, arrays, "points(...)")
        if len(stacked) == 0:
            raise ValueError("points(...): at least one point is needed, got none.")
        for index, name in enumerate(self.names):
            low, high = self._bounds[name]
            slack = 1e-9 * (high - low)
            wrong = np.flatnonzero((stacked[:, index] < low - slack) | (stacked[:, index] > high + slack))
            if len(wrong):
                raise ValueError(
                    f"points(...): point number {wrong[0]} has {name}={stacked[wrong[0], index]:g}, "
                    f"outside of the box ({low:g}, {high:g})."
                )
        return Region(self, (Cloud(self, stacked),))


def _checked_bounds(name: str, pair: Sequence[float]) -> tuple[float, float]:
    """Check one coordinate's name and bounds."""
    usable = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
    if not usable or name in RESERVED_COORDINATES:
        raise ValueError(f"Box({name}=...): {name!r} cannot name a coordinate; choose another name.")
    try:
        low, high = real_array(pair).tolist()
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"Box({name}={shown(pair)}): give two numbers, {name}=(low, high).") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"Box({name}=({low:g}, {high:g})): both ends must be finite.")
    if not math.isfinite(high - low):
        raise ValueError(f"Box({name}=({low:g}, {high:g})): its length overflows; use smaller units.")
    if low >= high:
        hint = "swap them" if low > high else "they are equal"
        raise ValueError(f"Box({name}=({low:g}, {high:g})): the low end must be below the high end; {hint}.")
    if high - low < 1e-12 * max(abs(low), abs(high)):  # a few thousand numbers of float64 in all
        raise ValueError(f"Box({name}=({low!r}, {high!r})): the ends differ by little but rounding; shift the origin.")
    return low, high


def real_array(values: Any) -> np.ndarray:
    """Make a float64 array; complex numbers and text are a `TypeError` rather than cut down or parsed.

    What is masked becomes NaN, which every caller refuses: below a mask stands a number that means nothing.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "biufO" or (array.dtype.kind == "O" and any(isinstance(one, str) for one in array.flat)):
        raise TypeError(f"real numbers are needed, not {array.dtype}")
    array = array.astype(np.float64, copy=False)
    return np.where(np.ma.getmaskarray(values), np.nan, array) if np.ma.is_masked(values) else array


def stack_coordinates(names: tuple[str, ...], arrays: Mapping[str, Any], verb: str) -> np.ndarray:
    """Broadcast named coordinate arrays to one array (n, dim), or say which name is wrong."""
    for name in arrays:
        if name not in names:
            raise ValueError(f"{verb}: unknown coordinate {name!r}; the coordinates are: {', '.join(names)}.")
    for name in names:
        if name not in arrays:
            raise ValueError(f"{verb}: the coordinate {name!r} is missing; the coordinates are: {', '.join(names)}.")
    columns = []
    for name in names:
        try:
            columns.append(real_array(arrays[name]))
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"{verb}: {name!r} must be a number or an array of numbers.") from None
        if not np.all(np.isfinite(columns[-1])):
            raise ValueError(f"{verb}: {name!r} holds NaN, infinity or masked values; leave those points out.")
    try:
        columns = np.broadcast_arrays(*columns)
    except ValueError:
        shapes = ", ".join(f"{name} {column.shape}" for name, column in zip(names, columns, strict=True))
        raise ValueError(f"{verb}: the coordinate arrays do not broadcast together: {shapes}.") from None
    return np.stack([column.reshape(-1) for column in columns], axis=1)
