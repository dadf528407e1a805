"""The result of a solve: a callable, with its statistics, its status and advice."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef import diagnosis, export, metrics, plots, storage
from ifef.calculus import float64
from ifef.checks import columns, file_path
from ifef.domain import Box, real_array, shown, stack_coordinates
from ifef.features import FourierFeatures, make_fields, unknown_sizes
from ifef.packing import pack_features, unpack_features
from ifef.problem import Problem, Unknown
from ifef.sampling import sample

STATUSES = {
    "converged": "converged",
    "stalled": "not converged",
    "ill_posed": "ill-posed: the conditions do not determine the solution",
    "nonfinite": "numbers went wrong",
    "out_of_budget": "stopped at its budget",
    "interrupted": "interrupted",
}
_KIND = "ifef solution"
_GRID = 40_000  # points on which errors and figures are taken
_MOST = 10**8  # points of a grid: about a gigabyte an unknown


@eqx.filter_jit
def _values(features: FourierFeatures, unknowns: tuple[Unknown, ...], theta: jax.Array, rows: jax.Array) -> list[Any]:
    def one(row: jax.Array) -> list[Any]:
        point = columns(features.domain, row[None])
        point = type(point)(*(value[0] for value in point))
        return [jnp.asarray(field(point)) for field in make_fields(features, unknowns, theta)]

    return jax.lax.map(one, rows, batch_size=min(512, rows.shape[0]))


def _padded(rows: np.ndarray) -> np.ndarray:
    """Repeat the last row up to one of four sizes an octave: every number of points would compile anew."""
    step = 2 ** max(len(rows).bit_length() - 3, 0)
    return np.pad(rows, ((0, -len(rows) % step), (0, 0)), mode="edge")


class Solution:
    """A solved problem: call it with coordinates, ask it how far to trust it, plot it, save it."""

    def __init__(
        self,
        features: FourierFeatures,
        unknowns: tuple[Unknown, ...],
        theta: np.ndarray,
        *,
        report: Mapping[str, Any],
        held_out: Mapping[str, tuple[np.ndarray, np.ndarray]],
        history: list[dict[str, Any]],
        problem: Problem | None = None,
    ):
        self.features = features
        self.unknowns = unknowns
        self.theta = np.asarray(theta, dtype=np.float64)
        self.problem = problem
        self.held_out = dict(held_out)
        self.history = list(history)
        self.status: str = report["status"]
        self.advice: str = report["advice"]
        self.stats: dict[str, Any] = dict(report["stats"])
        self.estimates: dict[str, float] = dict(report["estimates"])
        self.problem_name: str = report.get("problem", "")

    @property
    def domain(self) -> Box:
        """The box that the problem lives in."""
        return self.features.domain

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the unknowns."""
        return tuple(unknown.name for unknown in self.unknowns)

    @property
    def residuals(self) -> dict[str, float]:
        """Root mean square of each condition's residual on held-out points (on its own points for given data)."""
        return {key: float(np.sqrt(np.mean(np.square(values)))) for key, (_, values) in self.held_out.items()}

    @property
    def error_estimate(self) -> Any:
        """Relative L2 error as estimated without an exact solution; a dict by name for several unknowns."""
        return self._single(self.estimates)

    @property
    def diagnosis(self) -> list[str]:
        """Short sentences on what the answer rests on, where it is worst and what limits it, from its evidence."""
        return diagnosis.sentences(self.stats, self.held_out, self.domain, max(self.estimates.values()))

    def _single(self, by_name: dict[str, Any]) -> Any:
        return by_name if len(self.unknowns) > 1 else by_name[self.names[0]]

    def at(self, coordinates: np.ndarray) -> dict[str, np.ndarray]:
        """Values at points (n, dim), by unknown."""
        dimension = len(self.domain.names)
        try:
            rows = real_array(coordinates)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"at(...): give an array of real numbers (n, {dimension}).") from None
        if rows.ndim != 2 or rows.shape[1] != dimension:
            raise ValueError(f"at(...): give an array (n, {dimension}), not {rows.shape}.")
        for name, low, high, values in zip(self.domain.names, self.domain.lows, self.domain.highs, rows.T, strict=True):
            slack = 1e-9 * (high - low)
            if not np.all((values >= low - slack) & (values <= high + slack)):
                raise ValueError(f"solution(...): {name} leaves the domain ({low:g}, {high:g}); it is not known there.")
        with float64():
            values = _values(self.features, self.unknowns, jnp.asarray(self.theta), jnp.asarray(_padded(rows)))
            return {name: np.asarray(value)[: len(rows)] for name, value in zip(self.names, values, strict=True)}

    def __call__(self, **coordinates: Any) -> Any:
        """Evaluate at named coordinates, scalars or arrays that broadcast: NumPy float64, a dict for several."""
        stacked = stack_coordinates(self.domain.names, coordinates, "solution(...)")
        shape = np.broadcast_shapes(*(np.shape(value) for value in coordinates.values()))
        values = self.at(stacked) if len(stacked) else {name: np.zeros(0) for name in self.names}
        return self._single({name: value.reshape(shape)[()] for name, value in values.items()})

    def error(self) -> Any:
        """Relative L2 error against the problem's exact solution; a dict by name for several unknowns."""
        if self.problem is None:
            raise ValueError("error(): this solution was loaded without its problem; use load(path, problem).")
        points = self._test_points()
        exact = self.problem.exact_values(points)
        values = self.at(points)
        return self._single({name: metrics.relative_l2(values[name], exact[name]) for name in self.names})

    def _test_points(self) -> np.ndarray:
        """A tensor grid in up to two dimensions; beyond, Sobol points, which no symmetry of the solution meets."""
        if len(self.domain.names) <= 2:
            return sample(self.domain.interior, _GRID, sampler="grid")
        return sample(self.domain.interior, _GRID, sampler="sobol", seed=12345, label="error")

    def _side(self, num: int | None) -> int:
        """Points along each axis of a grid of about `num` in all."""
        whole = isinstance(num, (int, np.integer)) and not isinstance(num, bool)
        if num is not None and not (whole and 1 <= num <= _MOST):
            raise ValueError(f"grid(num={shown(num)}): give a whole number of points, from 1 to {_MOST}.")
        return max(round((_GRID if num is None else num) ** (1.0 / len(self.domain.names))), 2)

    def grid(self, num: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Axes and values on a tensor grid of about `num` points in all, for export and figures."""
        dimension, side = len(self.domain.names), self._side(num)
        axes = {
            name: np.linspace(low, high, side)
            for name, low, high in zip(self.domain.names, self.domain.lows, self.domain.highs, strict=True)
        }
        rows = sample(self.domain.interior, side**dimension, sampler="grid")
        shape = (side,) * dimension
        return axes, {name: value.reshape(shape) for name, value in self.at(rows).items()}

    def exact_grid(self, num: int | None = None) -> dict[str, np.ndarray] | None:
        """Exact values on the grid of `grid`, where the exact solution is known."""
        if self.problem is None or self.problem.exact is None:
            return None
        dimension, side = len(self.domain.names), self._side(num)
        rows = sample(self.domain.interior, side**dimension, sampler="grid")
        shape = (side,) * dimension
        return {name: value.reshape(shape) for name, value in self.problem.exact_values(rows).items()}

    def to_xarray(self, num: int | None = None) -> Any:
        """Values on a grid as an xarray dataset with named coordinates."""
        axes, fields = self.grid(num)
        return export.to_dataset(axes, fields, self.attributes())

    def attributes(self) -> dict[str, Any]:
        """Facts that travel with exported values."""
        estimate = max(self.estimates.values(), default=math.nan)
        return {"problem": self.problem_name, "status": self.status, "error_estimate": estimate}

    def plot(self, path: str | Path) -> Path:
        """Draw the solution (and the error where an exact solution exists) to a png, pdf or svg file."""
        target = file_path(path, "plot(path)")
        axes, fields = self.grid()
        title = self.problem_name or "solution"
        plots.save_figure(plots.solution_figure(axes, fields, self.exact_grid(), title=title), target)
        return target

    def save(self, path: str | Path) -> Path:
        """Write the solution to one file that `load` reads back; nothing in it is executed on reading."""
        target = _with_suffix(file_path(path, "save(path)"))
        settings, arrays = _pack(self)
        storage.save_archive(target, settings, arrays)
        return target

    def __repr__(self) -> str:
        lines = [f"{self.problem_name or 'solution'}: {STATUSES[self.status]}"]
        if self.problem is not None and self.problem.exact is not None:
            lines.append("  error            " + diagnosis.listed(self.error()))
        lines.append("  error estimate   " + diagnosis.listed(self.error_estimate))
        for key, value in self.residuals.items():
            lines.append(f"  residual         {value:.2e}  {key}")
        stats = self.stats
        rank = f"{stats['rank']} of {stats['num_features']} columns, {stats['num_rows']} rows"
        lines.append(f"  rank             {rank}; condition {stats['condition']:.1e}; |theta| {stats['norm']:.1e}")
        lines.append(f"  time             {stats['seconds']:.1f} s")
        return "\n".join(lines + [f"  {one}" for one in diagnosis.unsaid(self.advice, self.diagnosis)])


def _with_suffix(path: Path) -> Path:
    # Not `Path.is_dir`, which raises where a name is longer than the file system takes.
    return path if path.suffix or os.path.isdir(path) else path.with_name(path.name + ".ifef")


def _pack(solution: Solution) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    features, arrays = pack_features(solution.features)
    arrays["theta"] = solution.theta
    for key, (points, values) in solution.held_out.items():
        arrays[f"held_out.{key}.points"], arrays[f"held_out.{key}.values"] = points, values
    unknowns = [
        {"name": one.name, "over": one.over, "complex": one.complex, "scalar": one.scalar} for one in solution.unknowns
    ]
    settings = {
        "kind": _KIND,
        "problem": solution.problem_name,
        "features": features,
        "unknowns": unknowns,
        "status": solution.status,
        "advice": solution.advice,
        "stats": solution.stats,
        "estimates": solution.estimates,
        "held_out": list(solution.held_out),
        "history": solution.history,
    }
    return settings, arrays


def _unpack_unknown(one: Mapping[str, Any]) -> Unknown:
    try:
        return Unknown(one["name"], tuple(one["over"]) if one["over"] else None, one["complex"], one["scalar"])
    except ValueError as error:
        raise TypeError(f"an unknown that makes sense: {error}") from error


def _check_report(report: Mapping[str, Any], unknowns: tuple[Unknown, ...], history: Any) -> None:
    """Refuse, with a `KeyError` or `TypeError`, a report that a `Solution` could not be printed with."""
    STATUSES[report["status"]]
    text, numbers = (str, report["advice"]), ("rank", "num_features", "num_rows", "condition", "norm", "seconds")
    for kind, given in (text, (str, report["problem"]), (dict, report["stats"]), (dict, report["estimates"])):
        if not isinstance(given, kind):
            raise TypeError(f"a {kind.__name__} in the place of {shown(given)}")
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise TypeError("a list of records")
    given = [report["stats"][key] for key in numbers] + [report["estimates"][one.name] for one in unknowns]
    for value in given:
        if not isinstance(value, (int, float)):  # NaN is among what it may be
            raise TypeError(f"a number in the place of {shown(value)}")


def load(path: str | Path, problem: Problem | None = None, *, backbone: Any = None) -> Solution:
    """Read a saved solution: values and statistics without the problem; `.error()` needs it."""
    path = file_path(path, "load(path)")
    if not (problem is None or isinstance(problem, Problem)):
        raise TypeError(f"load(path, problem): give a Problem or leave it out, not a {type(problem).__name__}.")
    if not os.path.exists(path) and os.path.exists(_with_suffix(path)):
        path = _with_suffix(path)
    settings, arrays = storage.load_archive(path)
    if settings.get("kind") != _KIND:
        raise storage.StorageError(f"{path} holds a {settings.get('kind', 'file')!r}, not a solution.")
    try:
        unknowns = tuple(_unpack_unknown(one) for one in settings["unknowns"])
        held_out = {
            key: (arrays[f"held_out.{key}.points"], arrays[f"held_out.{key}.values"]) for key in settings["held_out"]
        }
        with float64():
            basis = () if problem is None else problem.basis
            features = unpack_features(settings["features"], arrays, basis, backbone)
        history, theta = settings["history"], arrays["theta"]
        report = {key: settings[key] for key in ("status", "advice", "stats", "estimates", "problem")}
        _check_report(report, unknowns, history)
        if theta.shape != (sum(unknown_sizes(features, unknowns)),) or theta.dtype != np.float64:
            raise TypeError(f"coefficients that fit the features, not {theta.dtype} {theta.shape}")
        for key, (points, values) in held_out.items():
            if points.ndim != 2 or values.shape != points.shape[:1]:
                raise TypeError(f"one residual a point of {key!r}")
        diagnosis.check(report, held_out, features.domain)
    except (KeyError, TypeError, AttributeError) as error:
        raise storage.StorageError(f"{path} is not a whole solution (it lacks {error}); solve again.") from error
    if problem is not None and (problem.domain != features.domain or problem.unknowns != unknowns):
        raise ValueError(f"load({str(path)!r}, problem): the problem has another domain or other unknowns.")
    other = problem is not None and problem.name and report["problem"] and problem.name != report["problem"]
    if problem is not None and (other or set(problem.conditions) != set(held_out)):
        solved = f"{report['problem']} with the conditions {', '.join(held_out)}".strip()
        raise ValueError(f"load({str(path)!r}, problem): the file solves another problem, {solved}; give that one.")
    return Solution(features, unknowns, theta, report=report, held_out=held_out, history=history, problem=problem)
