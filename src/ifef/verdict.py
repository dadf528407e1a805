"""What is said of a solution without an exact one: held-out residuals, an error estimate, a status and advice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ifef.assembly import Data, num_columns, num_rows
from ifef.backbones import Spots
from ifef.features import Features, FourierFeatures, unknown_sizes
from ifef.lower import AbstractLower, LowerResult, Ridge
from ifef.problem import Problem
from ifef.sampling import sample
from ifef.solution import Solution
from ifef.theta import finish, residuals_at
from ifef.tiles import rows_of, values_of

DEFAULT_TOLERANCE = 1e-6
"""An answer counts as converged when its estimated relative error is below this and nothing else was asked for."""

UNDETERMINED = 1e9
"""Response of the solution to its residual, both relative, beyond which the conditions do not determine it."""

SUSPECT, GROWTH = 1e3, 3.0
"""Response beyond which they do not where, besides, more columns raise it by so much. Measured: up to 260, and a growth
of 1 to 1.5, where the conditions determine the solution and the columns resolve it; where one is missing, 1e4 to 1e14
and 5 to 400."""

_PLAIN = 1e6  # response, of a solution that is not resolved, from which a growth counts too

ILL_POSED = (
    "The conditions do not determine the solution (a boundary or initial condition is missing, or a constant is free): "
    "add what fixes it."
)

_ROUNDING = 1e-11  # a residual of this part of the right-hand side may be rounding
_STAGNANT_RESIDUAL = 1e-7  # far above rounding: more columns that hardly lower it say that conditions disagree
_STAGNANT = 0.9  # columns that lower the training residual to no less than this part of it do not lower it
_UNRESOLVED = 0.1  # nor does this of a residual of this part of the right-hand side: the columns miss the solution
_COARSE = 0.6  # part of the frequencies in the coarser solution that the estimate compares with
_SAMPLES = 400


class Judged:
    """Held-out residuals of any theta: by one matrix where rows do not depend on theta, else by the operators."""

    def __init__(self, features: Features, data: Data, weights: Mapping[str, float], *, linear: bool):
        self.features, self.data = features, data
        self.weights = {key: float(weights[key]) for key in data.points}
        self.rows = {key: rows_of(features, data, key) for key in data.points} if linear else {}
        self.zero = self.size(np.zeros(num_columns(features, data)))

    def residuals(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Unscaled residuals by condition, (rows,)."""
        if self.rows:
            return {key: rows[:, :-1] @ theta - rows[:, -1] for key, rows in self.rows.items()}
        found = residuals_at(self.features, self.data, jnp.asarray(theta))
        return {key: np.asarray(values) for key, values in jax.device_get(found).items()}

    def size(self, theta: np.ndarray) -> float:
        """Weighted root mean square of the residual."""
        left = self.residuals(theta)
        return float(np.sqrt(sum(self.weights[key] * np.mean(np.square(values)) for key, values in left.items())))

    def relative(self, theta: np.ndarray) -> float:
        """The same relative to that of zero (absolute where zero already solves everything)."""
        return self.size(theta) / (self.zero if np.isfinite(self.zero) and self.zero > 0 else 1.0)


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
    problem: Problem, tables: list[np.ndarray], thetas: tuple[np.ndarray, np.ndarray], sizes: tuple[float, float]
) -> dict[str, float]:
    """Relative L2 error by unknown, from a coarser solution: their difference is the coarser one's error.

    The finer one's is smaller in proportion to the held-out residuals `sizes`. `tables` give the unknowns' values.
    """
    fine, coarse = thetas
    finer, coarser = sizes
    # Around a linearisation the coarser solution says less than it seems to.
    better = min(finer / max(coarser, 1e-300), 1.0) if problem.linear else 1.0
    disagreeing = finer > _STAGNANT_RESIDUAL and finer > 0.5 * coarser
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
    features: FourierFeatures,
    problem: Problem,
    lower: AbstractLower,
    solved: tuple[LowerResult, Any],
    data: tuple[Data, Data],
    weights: Mapping[str, float],
    tolerance: float | None,
) -> tuple[dict[str, Any], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Report of a solution, and its held-out residuals by condition. `data` is (training, held out)."""
    result, _ = solved
    train, held = data
    theta = np.asarray(result.theta)
    judged = Judged(features, held, weights, linear=problem.linear)
    held_out = _by_point(held, judged.residuals(theta))
    stats: dict[str, Any] = {
        "rank": int(result.rank),
        "condition": float(result.condition),
        "norm": float(np.linalg.norm(theta)),
        "training_residual": float(result.residual),
        "cut": float(getattr(lower, "cut", math.nan)),
        "num_features": num_columns(features, train),
        "num_frequencies": features.num_frequencies,
        "num_rows": num_rows(train),
        "linear": problem.linear,
        "weights": {key: float(value) for key, value in weights.items()},
        "held_out": judged.relative(theta),
        "stability": float("nan"),
        "coarse_stability": float("nan"),
        "contradictory": False,
        "fitted_only": [key for key, one in problem.conditions.items() if one.region.is_cloud],
    }
    estimates = {name: float("inf") for name in problem.names}
    if np.all(np.isfinite(theta)):
        found, estimates = _compared(features, problem, lower, solved, judged)
        stats |= found
    status = _status(stats, max(estimates.values()), tolerance)
    report = {
        "status": status,
        "advice": _advice(status, stats, held_out, weights),
        "stats": stats,
        "estimates": estimates,
        "problem": problem.name,
    }
    return report, held_out


def _compared(
    features: FourierFeatures,
    problem: Problem,
    lower: AbstractLower,
    solved: tuple[LowerResult, Any],
    judged: Judged,
) -> tuple[dict[str, Any], dict[str, float]]:
    """What a coarser solution, over a part of the frequencies, says of this one: statistics and error estimates."""
    result, summary = solved
    theta = np.asarray(result.theta)
    keep = coarse_columns(features, problem)
    restricted = lower.restrict(summary, keep)
    coarser = finish(lower, restricted)
    coarse = np.zeros(len(theta))
    coarse[keep] = np.asarray(coarser.theta)
    # What sits at a spot shows at few of the points that are spread evenly.
    samples = _SAMPLES * (10 if isinstance(features.backbone, Spots) else 1)
    tables = values_of(features, problem.unknowns, sample(problem.domain.interior, samples, seed=4321))
    sizes = judged.relative(theta), judged.relative(coarse)
    few = [table[: _SAMPLES // 2] for table in tables]
    left, before = float(result.residual), float(coarser.residual)
    # More columns always lower the training residual, unless what is left contradicts itself.
    given = 0.0 if isinstance(lower, Ridge) else float(np.linalg.norm(summary[:, -1]))
    fitted = _ROUNDING * given < left < _UNRESOLVED * given
    found = {
        "stability": stability(lower, summary, few),
        "coarse_stability": stability(lower, restricted, [table[:, keep] for table in few]),
        "contradictory": bool(problem.linear and fitted and left > _STAGNANT * before),
    }
    return found, estimate_errors(problem, tables, (theta, coarse), sizes)


def _by_point(held: Data, left: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Points and sizes of the residual by condition, one size a point for a complex one too."""
    found = {}
    for key, rows in held.points.items():
        parts = left[key].reshape(len(rows), -1)
        found[key] = np.asarray(rows), np.sqrt(np.sum(np.square(parts), axis=1))
    return found


def is_undetermined(response: float, coarse: float, *, close: bool = True, growth: float = GROWTH) -> bool:
    """Whether these responses mean that the conditions do not determine the solution; `close`: it is resolved."""
    grows = response > growth * coarse
    return response > UNDETERMINED or (grows and response > (SUSPECT if close else _PLAIN))


def restate(solution: Solution, tolerance: float | None, *, undetermined: bool) -> None:
    """State anew what a solution is, where more is known of its conditions than its own columns show."""
    solution.status = _status(solution.stats, max(solution.estimates.values()), tolerance, undetermined)
    solution.advice = _advice(solution.status, solution.stats, solution.held_out, solution.stats["weights"])


def _status(
    stats: Mapping[str, Any], estimate: float, tolerance: float | None, undetermined: bool | None = None
) -> str:
    if not np.isfinite(stats["held_out"]):
        return "nonfinite"
    response, coarse = stats["stability"], stats["coarse_stability"]
    close = estimate <= (DEFAULT_TOLERANCE if tolerance is None else tolerance)
    if is_undetermined(response, coarse, close=close) if undetermined is None else undetermined:
        return "ill_posed"
    return "converged" if close and not stats["contradictory"] else "stalled"


def _advice(
    status: str, stats: Mapping[str, Any], held_out: Mapping[str, tuple[np.ndarray, np.ndarray]], weights: Any
) -> str:
    """One or two sentences on what holds the answer back; empty when nothing does."""
    if status == "nonfinite":
        return "The coefficients are not finite: raise gamma, or use LeastSquares, which survives dependent columns."
    if status == "ill_posed":
        return ILL_POSED
    if status == "converged":
        return ""
    sentences = []
    if stats["contradictory"]:
        sentences.append("More columns do not lower what is left: conditions contradict each other, or data are noisy.")
    if stats["num_rows"] < stats["num_features"]:
        sentences.append(
            f"There are fewer rows ({stats['num_rows']}) than columns ({stats['num_features']}), so that many "
            "coefficients fit equally well: give more points or fewer features."
        )
    shares = {key: weights[key] * float(np.mean(np.square(values))) for key, (_, values) in held_out.items()}
    worst = max(shares, key=lambda key: shares[key])
    part = shares[worst] / max(sum(shares.values()), 1e-300)
    sentences.append(f"The condition {worst!r} holds {100 * part:.0f}% of the held-out residual.")
    if 10 * stats["training_residual"] < stats["held_out"]:
        sentences.append("The training residual is far below the held-out one (overfitting): give more points.")
    elif stats["rank"] >= 0.97 * stats["num_features"]:
        sentences.append("Every column is used: more features, or frequencies nearer to the solution's, would help.")
    else:
        sentences.append("Frequencies nearer to the solution's (another sigma) would help.")
    return " ".join(sentences)
