"""What is said of a solution without an exact one: held-out residuals, an error estimate, a status and advice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ifef.assembly import Data, num_columns, num_rows
from ifef.backbones import Spots
from ifef.calculus import float64
from ifef.diagnosis import DEFAULT_TOLERANCE, LIMITED, advice, limit, points_per_wavelength
from ifef.features import FourierFeatures, unknown_sizes
from ifef.judged import MOST, Judged, by_point, exact_rows, noise
from ifef.lower import AbstractLower, LeastSquares, LowerResult, Ridge
from ifef.problem import Problem
from ifef.sampling import sample
from ifef.solution import Solution
from ifef.theta import finish
from ifef.tiles import values_of

UNDETERMINED = 1e9
"""Response of the solution to its residual, both relative, beyond which the conditions do not determine it."""

SUSPECT, GROWTH = 1e3, 3.0
"""Response beyond which they do not where, besides, more columns raise it by so much. Measured: up to 260, and a growth
of 1 to 1.5, where the conditions determine the solution and the columns resolve it; where one is missing, 1e4 to 1e14
and 5 to 400."""

_PLAIN = 1e6  # response, of a solution that is not resolved, from which a growth counts too

_ROUNDING = 1e-11  # a residual of this part of the right-hand side may be rounding
_NOISY, _UNITS = 10.0, 100.0  # and so may one of so many times what rounding was seen to change, or of its units
_STAGNANT_RESIDUAL = 1e-7  # far above rounding: more columns that hardly lower it say that conditions disagree
_STAGNANT = 0.9  # columns that lower the training residual to no less than this part of it do not lower it
_UNRESOLVED = 0.1  # nor does this of a residual of this part of the right-hand side: the columns miss the solution
_COARSE = 0.6  # part of the frequencies in the coarser solution that the estimate compares with
_SAMPLES = 400
_TRIED = 300  # columns over which float32 is checked by float64
_ROWS = 2.6  # rows of equations for each of them at least


@dataclass(frozen=True)
class Answer:
    """What was solved: features in float64, and the lower level's result and summary in the precision of the rows.

    `again` are the coefficients from points that differ by rounding alone, where rounding matters (in float32).
    """

    features: FourierFeatures
    lower: AbstractLower
    result: LowerResult
    summary: Any
    again: np.ndarray | None = None

    @property
    def theta(self) -> np.ndarray:
        """The coefficients."""
        return np.asarray(self.result.theta, dtype=np.float64)

    @property
    def cut(self) -> float:
        """The cut that was used, where there is one."""
        inner = getattr(self.lower, "inner", self.lower)
        return inner.used_cut(self.summary) if isinstance(inner, LeastSquares) else math.nan

    @property
    def amplification(self) -> float | None:
        """Size of the rows' terms against that of their sum, the right-hand side; None where nothing says."""
        norms = np.asarray(self.result.norms, dtype=np.float64)
        given = float(np.linalg.norm(np.asarray(self.summary)[:, -1]))
        if math.isnan(self.cut) or not given > 0:
            return None
        return float(np.linalg.norm(np.where(np.isfinite(norms), norms, 0.0) * self.theta)) / given


def coarse_columns(features: FourierFeatures, problem: Problem, part: float = _COARSE) -> np.ndarray:
    """Columns that remain when only the first frequencies are kept: an independent, coarser space."""
    num, size = features.num_frequencies, features.size
    kept = np.ones(size, dtype=bool)
    few = int(np.ceil(part * num))
    kept[few:num] = False
    kept[num + few : 2 * num] = False
    masks = [
        np.ones(length, dtype=bool) if unknown.scalar else np.tile(kept, length // size)
        for unknown, length in zip(problem.unknowns, unknown_sizes(features, problem.unknowns), strict=True)
    ]
    return np.flatnonzero(np.concatenate(masks))


def estimate_errors(
    problem: Problem,
    tables: list[np.ndarray],
    thetas: tuple[np.ndarray, np.ndarray],
    sizes: tuple[float, float],
    rounding: float,
) -> dict[str, float]:
    """Relative L2 error by unknown, from a coarser solution: their difference is the coarser one's error.

    The finer one's is smaller in proportion to the held-out residuals `sizes`, of which `rounding` may be nothing but
    rounding. `tables` give the unknowns' values.
    """
    fine, coarse = thetas
    finer, coarser = sizes
    # Around a linearisation the coarser solution says less than it seems to.
    better = min(finer / max(coarser, 1e-300), 1.0) if problem.linear else 1.0
    disagreeing = finer > max(_STAGNANT_RESIDUAL, rounding) and finer > 0.5 * coarser
    least = finer if disagreeing or not problem.linear else 0.0
    estimates = {}
    for unknown, table in zip(problem.unknowns, tables, strict=True):
        values = table @ fine
        size = np.linalg.norm(values)
        change = better * np.linalg.norm(values - table @ coarse)
        # Values carry rounding of their own size, whatever the two solutions agree on. Of zero there is no relative.
        relative = max(change / size, 1e-16) if size > 0 else float(change / np.sqrt(len(table)))
        estimates[unknown.name] = float(max(relative, least))
    return estimates


def stability(lower: AbstractLower, summary: Any, tables: list[np.ndarray]) -> float:
    """Greatest value that a residual of unit size can cause, against that of a typical column: of no unit.

    Neither the solution nor the right-hand side enters: where a condition is missing, both may be anything.
    """
    matrix = np.asarray(summary)[:-1, :-1]
    rows = np.sqrt(np.diagonal(matrix)) if isinstance(lower, Ridge) else np.linalg.norm(matrix, axis=0)
    greatest = 0.0
    for table in tables:
        values = np.linalg.norm(table, axis=0)
        used = (values > 0) & (rows > 0)
        typical = float(np.median(rows[used] / values[used])) if used.any() else 0.0
        gain = lower.response(summary, table)
        greatest = max(greatest, typical * float(np.sqrt(max(np.linalg.eigvalsh(gain.T @ gain)[-1], 0.0))))
    return greatest


def judge(
    problem: Problem,
    answer: Answer,
    data: Data,
    held: tuple[Data, Data, Data],
    weights: Mapping[str, float],
    tolerance: float | None,
) -> tuple[dict[str, Any], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Report of a solution, and its held-out residuals by condition.

    `held` are the held-out points as the rows of `data` have them, moved, and in float64, in which they are judged.
    """
    near, moved, exact = held
    theta, estimates = answer.theta, {name: float("inf") for name in problem.names}
    with float64():
        judged = Judged(answer.features, exact, weights, linear=problem.linear)
        held_out = by_point(exact, judged.residuals(theta))
        stats = _facts(problem, answer, data, weights) | {"held_out": judged.relative(theta)}
        if np.all(np.isfinite(theta)):
            stats["rounding"] = noise(answer.features, (near, moved), theta, weights, linear=problem.linear)
            found, estimates = _compared(problem, answer, data, judged, stats["rounding"])
            stats |= found
    worst = max(estimates.values())
    status = _status(stats, worst, tolerance)
    report = {
        "status": status,
        "advice": advice(status, stats, held_out, problem.domain, limit(stats, worst, tolerance)),
        "stats": stats,
        "estimates": estimates,
        "problem": problem.name,
    }
    return report, held_out


def _facts(problem: Problem, answer: Answer, data: Data, weights: Mapping[str, float]) -> dict[str, Any]:
    """Statistics that need no other solution; what does is not known yet."""
    result = answer.result
    return {
        "rank": int(result.rank),
        "condition": float(result.condition),
        "norm": float(np.linalg.norm(answer.theta)),
        "training_residual": float(result.residual),
        "cut": answer.cut,
        "num_features": num_columns(answer.features, data),
        "num_frequencies": answer.features.num_frequencies,
        "num_rows": num_rows(data),
        "points": {key: len(rows) for key, rows in data.points.items()},
        "points_per_wavelength": points_per_wavelength(answer.features, problem, data),
        "amplification": answer.amplification,
        "linear": problem.linear,
        "dtype": data.dtype.name,
        "weights": {key: float(value) for key, value in weights.items()},
        "rounding": math.nan,
        "floor": None,
        "stability": math.nan,
        "coarse_stability": math.nan,
        "contradictory": False,
        "fitted_only": [key for key, one in problem.conditions.items() if one.region.is_cloud],
    }


def _compared(
    problem: Problem, answer: Answer, data: Data, judged: Judged, rounding: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """What other solutions say of this one, over a part of the frequencies and by other roundings."""
    features, lower, summary, theta = answer.features, answer.lower, answer.summary, answer.theta
    rounding = max(_NOISY * rounding, _UNITS * float(np.finfo(summary.dtype).eps))
    keep = coarse_columns(features, problem)
    restricted = lower.restrict(summary, keep)
    coarser = finish(lower, restricted)
    coarse = np.zeros(len(theta))
    coarse[keep] = np.asarray(coarser.theta)
    # What sits at a spot shows at few of the points that are spread evenly.
    samples = _SAMPLES * (10 if isinstance(features.backbone, Spots) else 1)
    tables = values_of(features, problem.unknowns, sample(problem.domain.interior, samples, seed=4321))
    sizes = judged.relative(theta), judged.relative(coarse)
    left, before = float(answer.result.residual), float(coarser.residual)
    # More columns always lower the training residual, unless what is left contradicts itself.
    given = 0.0 if isinstance(lower, Ridge) else float(np.linalg.norm(summary[:, -1]))
    fitted = max(_ROUNDING, rounding) * given < left < _UNRESOLVED * given
    estimates = estimate_errors(problem, tables, (theta, coarse), sizes, rounding)
    found: dict[str, Any] = {"contradictory": bool(problem.linear and fitted and left > _STAGNANT * before)}
    few = [table[: _SAMPLES // 2] for table in tables]
    if answer.again is None:
        found["stability"] = stability(lower, summary, few)
        found["coarse_stability"] = stability(lower, restricted, [table[:, keep] for table in few])
        return found, estimates
    responses, exact = _in_float64(problem, answer, data, judged.weights, few)
    floors = _changes(problem, tables, theta, answer.again)
    if exact is not None:  # what every point has, a wall's coordinate say, rounds alike wherever the points are moved
        floors = {name: max(floors[name], change) for name, change in _changes(problem, tables, theta, exact).items()}
    estimates = {name: max(estimate, floors[name]) for name, estimate in estimates.items()}
    return found | responses | {"floor": max(floors.values())}, estimates


def _changes(problem: Problem, tables: list[np.ndarray], theta: np.ndarray, again: np.ndarray) -> dict[str, float]:
    """Relative change of each unknown from one theta to the other; of zero, as it is."""
    changes = {}
    for unknown, table in zip(problem.unknowns, tables, strict=True):
        size, change = np.linalg.norm(table @ theta), np.linalg.norm(table @ (theta - again))
        changes[unknown.name] = float(change / size if size > 0 else change / np.sqrt(len(table)))
    return changes


def _in_float64(
    problem: Problem, answer: Answer, data: Data, weights: Mapping[str, float], tables: list[np.ndarray]
) -> tuple[dict[str, float], np.ndarray | None]:
    """Responses, which float32 would hide, over a few of the columns; and where there are no more of them, theta."""
    blocks = exact_rows(answer.features, data, answer.theta, weights, linear=problem.linear)
    rows = np.concatenate(list(blocks.values()))
    full = [len(blocks[key]) for key, one in problem.conditions.items() if one.region.is_full] or [len(rows)]
    columns = rows.shape[1] - 1
    part = min(1.0, _TRIED / columns, sum(full) / _ROWS / columns)
    kept = coarse_columns(answer.features, problem, part)
    lower, keep = answer.lower, np.flatnonzero(np.isin(kept, coarse_columns(answer.features, problem, _COARSE * part)))
    summary = lower.first(np.asfortranarray(rows[:, [*kept, columns]]))
    tables = [table[:, kept] for table in tables]
    fewer = stability(lower, lower.restrict(summary, keep), [table[:, keep] for table in tables])
    responses = {"stability": stability(lower, summary, tables), "coarse_stability": fewer}
    whole = len(kept) == columns <= _TRIED and all(len(points) <= MOST for points in data.points.values())
    return responses, np.asarray(finish(lower, summary).theta) if whole else None


def is_undetermined(response: float, coarse: float, *, close: bool = True, growth: float = GROWTH) -> bool:
    """Whether these responses mean that the conditions do not determine the solution; `close`: it is resolved."""
    grows = response > growth * coarse
    return response > UNDETERMINED or (grows and response > (SUSPECT if close else _PLAIN))


def restate(solution: Solution, tolerance: float | None, *, undetermined: bool) -> None:
    """State anew what a solution is, where more is known of its conditions than its own columns show."""
    stats, estimate = solution.stats, max(solution.estimates.values())
    solution.status = _status(stats, estimate, tolerance, undetermined)
    limited = limit(stats, estimate, tolerance)
    solution.advice = advice(solution.status, stats, solution.held_out, solution.domain, limited)


def _status(
    stats: Mapping[str, Any], estimate: float, tolerance: float | None, undetermined: bool | None = None
) -> str:
    if not np.isfinite(stats["held_out"]):
        return "nonfinite"
    response, coarse = stats["stability"], stats["coarse_stability"]
    close = estimate <= (DEFAULT_TOLERANCE if tolerance is None else tolerance)
    resolved = close or estimate <= LIMITED * (stats["floor"] or 0.0)
    if is_undetermined(response, coarse, close=resolved) if undetermined is None else undetermined:
        return "ill_posed"
    return "converged" if close and not stats["contradictory"] else "stalled"
