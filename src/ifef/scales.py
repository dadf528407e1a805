"""Scales of the conditions, from which their default weights follow."""

from __future__ import annotations

import numpy as np

from ifef.assembly import CHUNK, Data
from ifef.calculus import float64
from ifef.features import Features
from ifef.tiles import POINTS, rows_of, values_of


def condition_scales(features: Features, data: Data, unit: float | None = None) -> dict[str, float]:
    """Size of each condition: that of target - operator(0), or of a typical row where that is zero.

    The rest of an affine operator counts as source, so that a source behaves the same on either side of the equation.
    A typical row is taken for a solution of size `unit`, by default the one that the nonzero targets imply (of data
    rather than of equations, where derivatives blur it), so that the units of u do not matter.
    """
    few = {key: np.linspace(0, len(rows) - 1, min(len(rows), CHUNK)).astype(int) for key, rows in data.points.items()}
    points = {key: np.asarray(data.points[key])[chosen] for key, chosen in few.items()}
    targets = {key: np.asarray(data.targets[key])[chosen] for key, chosen in few.items()}
    few = Data(data.problem, data.equations, data.operators, points, targets)
    sources, typical = {}, {}
    with float64(), np.errstate(invalid="ignore", divide="ignore"):
        everywhere = np.concatenate(list(points.values()))
        tables = values_of(features, data.problem[1], everywhere[:: max(len(everywhere) // POINTS, 1)])
        values = np.sqrt(sum(np.mean(np.square(table), axis=0) for table in tables))
        for key in points:
            rows = rows_of(features, few, key)
            sizes = np.sqrt(np.mean(np.square(rows[:, :-1]), axis=0)) / np.where(values > 0, values, np.nan)
            row, source = np.median(sizes[sizes > 0]) if np.any(sizes > 0) else 1.0, np.sqrt(np.mean(rows[:, -1] ** 2))
            typical[key] = float(row) if np.isfinite(row) else 1.0
            sources[key] = float(source) if np.isfinite(source) else 0.0
    implied = {key: sources[key] / typical[key] for key in sources if sources[key] > 0}
    largest = max(implied.values(), default=0.0)
    implied = {key: size for key, size in implied.items() if size > 1e-6 * largest}
    telling = [size for key, size in implied.items() if key not in data.equations] or list(implied.values()) or [1.0]
    unit = float(np.median(telling)) if unit is None else unit
    return {key: sources[key] if key in implied else typical[key] * unit for key in sources}
