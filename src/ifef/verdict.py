"""What is said of a solution without an exact one: held-out residuals, an error estimate, a status and advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.assembly import Data, num_columns, num_rows, residuals, value_rows
from ifef.features import FourierFeatures, unknown_sizes
from ifef.lower import AbstractLower, GaussNewton, LeastSquares, LowerResult
from ifef.problem import Problem
from ifef.sampling import sample

DEFAULT_TOLERANCE = 1e-6
"""An answer counts as converged when its estimated relative error is below this and nothing else was asked for."""

UNSTABLE = 1e9
"""Response of the solution to its (scaled) residual beyond which the conditions do not determine it in float64."""

SUSPECT, GROWTH = 1e3, 3.0
"""Response beyond which they do not where, besides, more columns raise it by so much. Measured: up to 260, and a growth
of 1 to 1.5, where the conditions determine the solution and the columns resolve it; where one is missing, 1e4 to 1e14
and 5 to 400."""

_STAGNANT = 1e-7  # a residual above this, far above rounding, that more columns hardly lower: the conditions disagree

_COARSE = 0.6  # part of the frequencies in the coarser solution that the estimate compares with
_SAMPLES = 400


@eqx.filter_jit
def _residuals(features: FourierFeatures, data: Data, theta: jax.Array) -> dict[str, jax.Array]:
    return residuals(features, data, theta)


@eqx.filter_jit
def _coarser(lower: AbstractLower, summary: jax.Array, keep: jax.Array) -> tuple[jax.Array, LowerResult]:
    result = lower.finish(lower.restrict(summary, keep))
    return jnp.zeros(summary.shape[0] - 1).at[keep].set(result.theta), result


@eqx.filter_jit
def _responses(
    features: FourierFeatures, unknowns: Any, results: tuple[LowerResult, LowerResult], keep: jax.Array, rows: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Greatest root-mean-square value that a residual of unit size can give rise to, in the fine and coarse space."""

    def greatest(gain: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.max(jnp.linalg.eigvalsh(gain.T @ gain)))

    table = value_rows(features, unknowns, rows) / np.sqrt(len(rows))
    return greatest(results[0].gain(table)), greatest(results[1].gain(table[:, keep]))


def held_out_size(features: FourierFeatures, data: Data, theta: jax.Array, weights: Mapping[str, float]) -> float:
    """Weighted held-out residual, relative to that of zero (absolute where zero already solves everything)."""
    at, zero = (_residuals(features, data, coefficients) for coefficients in (theta, jnp.zeros_like(theta)))
    total = sum(weights[key] * float(jnp.mean(jnp.square(values))) for key, values in at.items())
    size = sum(weights[key] * float(jnp.mean(jnp.square(values))) for key, values in zero.items())
    return float(np.sqrt(total / size if np.isfinite(size) and size > 0 else total))


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
    features: FourierFeatures,
    problem: Problem,
    held: Data,
    weights: Mapping[str, float],
    thetas: tuple[jax.Array, jax.Array],
) -> dict[str, float]:
    """Relative L2 error by unknown, from a coarser solution: their difference is the coarser one's error.

    The finer one's is smaller in proportion to the held-out residuals.
    """
    fine, coarse = thetas
    rows = jnp.asarray(sample(problem.domain.interior, _SAMPLES, sampler="sobol", seed=4321))
    table = _value_table(features, problem.unknowns, rows)
    sizes = (held_out_size(features, held, theta, weights) for theta in (fine, coarse))
    finer, coarser = sizes
    # Around a linearisation the coarser solution says less than it seems to.
    better = min(finer / max(coarser, 1e-300), 1.0) if problem.linear else 1.0
    least = finer if not problem.linear or (finer > _STAGNANT and finer > 0.5 * coarser) else 0.0
    values, others = np.asarray(table @ fine), np.asarray(table @ coarse)
    estimates, start = {}, 0
    for unknown in problem.unknowns:
        stop = start + _SAMPLES * (2 if unknown.complex else 1)
        size = np.linalg.norm(values[start:stop]) or np.sqrt(_SAMPLES)  # of zero there is no relative error
        change = np.linalg.norm(values[start:stop] - others[start:stop])
        # Values carry rounding of the coefficients' own size, whatever the two solutions agree on.
        change = max(change * better, 1e-16 * np.sqrt(_SAMPLES))
        estimates[unknown.name] = float(max(change / max(size, 1e-300), least))
        start = stop
    return estimates


@eqx.filter_jit
def _value_table(features: FourierFeatures, unknowns: Any, rows: jax.Array) -> jax.Array:
    return value_rows(features, unknowns, rows)


def _held_out(features: FourierFeatures, held: Data, theta: jax.Array) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Points and sizes of the residual by condition, one size a point for a complex one too."""
    values = jax.device_get(_residuals(features, held, theta))
    found = {}
    for key, rows in held.points.items():
        parts = values[key].reshape(len(rows), -1)
        found[key] = np.asarray(rows), np.sqrt(np.sum(np.square(parts), axis=1))
    return found


def judge(
    features: FourierFeatures,
    problem: Problem,
    lower: AbstractLower,
    solved: tuple[LowerResult, jax.Array],
    data: tuple[Data, Data],
    weights: Mapping[str, float],
    tolerance: float | None,
) -> tuple[dict[str, Any], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Report of a solution, and its held-out residuals by condition. `data` is (training, held out)."""
    result, summary = solved
    train, held = data
    theta = result.theta
    held_out = _held_out(features, held, theta)
    stats: dict[str, Any] = {
        "rank": int(result.rank),
        "condition": float(result.condition),
        "norm": float(jnp.linalg.norm(theta)),
        "training_residual": float(result.residual),
        "num_features": num_columns(features, train),
        "num_frequencies": features.num_frequencies,
        "num_rows": num_rows(train),
        "linear": problem.linear,
        "weights": {key: float(value) for key, value in weights.items()},
        "stability": float("nan"),
        "coarse_stability": float("nan"),
        "fitted_only": [key for key, one in problem.conditions.items() if one.region.is_cloud],
    }
    if not np.all(np.isfinite(theta)):
        stats["held_out"] = float("nan")
        estimates = {name: float("inf") for name in problem.names}
    else:
        stats["held_out"] = held_out_size(features, held, theta, weights)
        keep = jnp.asarray(coarse_columns(features, problem))
        coarse, coarser = _coarser(lower, summary, keep)
        estimates = estimate_errors(features, problem, held, weights, (theta, coarse))
        linear = lower.inner if isinstance(lower, GaussNewton) else lower
        if isinstance(linear, LeastSquares):  # a ridge hides what is undetermined
            rows = jnp.asarray(sample(problem.domain.interior, _SAMPLES // 2, sampler="sobol", seed=99))
            responses = _responses(features, problem.unknowns, (result, coarser), keep, rows)
            stats["stability"], stats["coarse_stability"] = map(float, responses)
    status = _status(stats, max(estimates.values()), tolerance)
    report = {
        "status": status,
        "advice": _advice(status, stats, held_out, weights),
        "stats": stats,
        "estimates": estimates,
        "problem": problem.name,
    }
    return report, held_out


def _status(stats: Mapping[str, Any], estimate: float, tolerance: float | None) -> str:
    if not np.isfinite(stats["held_out"]):
        return "nonfinite"
    response, coarse = stats["stability"], stats["coarse_stability"]
    close = estimate <= (DEFAULT_TOLERANCE if tolerance is None else tolerance)
    if response > UNSTABLE or (close and response > max(SUSPECT, GROWTH * coarse)):
        return "ill_posed"
    return "converged" if close else "stalled"


def _advice(
    status: str, stats: Mapping[str, Any], held_out: Mapping[str, tuple[np.ndarray, np.ndarray]], weights: Any
) -> str:
    """One or two sentences on what holds the answer back; empty when nothing does."""
    if status == "nonfinite":
        return "The coefficients are not finite: raise gamma, or use LeastSquares, which survives dependent columns."
    if status == "ill_posed":
        return (
            "The conditions do not determine the solution (a boundary or initial condition is missing, or a constant "
            "is free): add what fixes it."
        )
    if status == "converged":
        return ""
    sentences = []
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
