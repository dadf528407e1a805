"""Algorithms 1 and 2 with every part explicit: pretraining, the loop over both levels, one final lower solve."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.arguments import check_numbers, checked_dtype, checked_lower, checked_points, checked_weights
from ifef.assembly import (
    CHUNK,
    Data,
    available_memory,
    cast,
    condition_rows,
    make_data,
    num_columns,
    num_rows,
    plan_block,
    residuals,
    row_blocks,
)
from ifef.calculus import precision
from ifef.checks import describe
from ifef.domain import Box, shown
from ifef.features import FourierFeatures
from ifef.journal import Journal, Progress, fingerprint
from ifef.lower import AbstractLower, LowerResult
from ifef.packing import pack_features
from ifef.problem import Problem
from ifef.sampling import generator
from ifef.scales import condition_scales
from ifef.solution import Solution
from ifef.theta import solve_lower
from ifef.training import Job, train
from ifef.upper import Training, split
from ifef.verdict import Answer, judge

_MARKED = 16  # points at which operators are told from others, for a checkpoint

HeldOut = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Points and residuals by condition."""


def fit(
    problem: Problem,
    features: FourierFeatures,
    points: Mapping[str, np.ndarray],
    *,
    lower: AbstractLower | None = None,
    upper: Training | None = None,
    weights: Mapping[str, float] | None = None,
    pretraining: Training | None = None,
    held_out: Mapping[str, np.ndarray] | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    memory: int | None = None,
    max_seconds: float | None = None,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    dtype: str = "float64",
) -> Solution:
    """Solve with given features and points: Algorithm 1, or 2 where the rows depend on theta.

    `lower` defaults to `LeastSquares()` (in `GaussNewton` for a nonlinear problem). `upper` trains the backbone,
    one step for each lower solve; without it theta*(omega) is found once. `weights` are the shared lambda by
    condition, by default the inverse squares of the conditions' scales. `held_out` points judge the answer and are
    drawn where not given. A `checkpoint` file that exists is continued; a run that was killed ends bit-identical.
    `memory` is in bytes, by default most of what is free. After `max_seconds` training stops where it is.
    `dtype="float32"` makes and factors the rows in float32, twice, to see what rounding does.
    """
    started = time.perf_counter()
    _check(problem, features, seed, progress, {"upper": upper, "pretraining": pretraining})
    check_numbers(tolerance=tolerance, memory=memory, max_seconds=max_seconds, checkpoint_seconds=checkpoint_seconds)
    lower, dtype = checked_lower(problem, lower, upper), checked_dtype(dtype, "fit")
    data, held = _data(problem, points, held_out, seed, dtype)
    # Numbers that go wrong are refused with their point, or are a status: not a warning of NumPy's.
    with precision(dtype), np.errstate(all="ignore"):
        # By data in float64: in float32 a target that vanishes does so to rounding only.
        used = _weights(problem, weights, features, data if dtype == "float64" else held[-1])
        features = features if dtype == "float64" else cast(features, dtype)
        block = _planned(features, data, memory, upper)
        mark = "" if checkpoint is None else _mark(problem, features, data, seed, used, [lower, pretraining, upper])
        journal = Journal(mark, progress, checkpoint, checkpoint_seconds, max_seconds)
        job = Job(data, held[0], used, journal, jax.random.key(seed))
        features, stopped = train(features, pretraining, upper, lower, job)
        answer = _solved(problem, lower, features, data, used, block)
        report, left = judge(problem, answer, data, held, used, tolerance)
        _refuse_undefined(problem, features, data, answer.result, left)
    report["stats"]["seconds"] = time.perf_counter() - started
    _note_stop(report, stopped)
    extras = {"report": report, "held_out": left, "history": journal.history, "problem": problem}
    return Solution(answer.features, problem.unknowns, answer.theta, **extras)


def _data(
    problem: Problem, points: Mapping[str, Any], held_out: Mapping[str, Any] | None, seed: int, dtype: str
) -> tuple[Data, tuple[Data, Data, Data]]:
    """Data to solve on, and to judge on: in this precision, moved, and in float64."""
    rows = checked_points(problem, points, "points")
    judged = _held_out_points(problem, rows, seed) if held_out is None else held_out
    judged = checked_points(problem, judged, "held_out")
    held, moved = (make_data(problem, judged, dtype, moved=one) for one in (False, True))
    exact = held if dtype == "float64" else make_data(problem, judged)
    return make_data(problem, rows, dtype), (held, moved, exact)


def _weights(
    problem: Problem, weights: Mapping[str, float] | None, features: FourierFeatures, data: Data
) -> dict[str, float]:
    """Give the weights by condition: the given ones, or those that follow from its scale."""
    return checked_weights(problem, weights, condition_scales(features, data) if weights is None else {})


def _solved(
    problem: Problem,
    lower: AbstractLower,
    features: FourierFeatures,
    data: Data,
    weights: Mapping[str, float],
    block: int | None,
) -> Answer:
    """Solve; in float32 once more where everything rounds otherwise."""
    result, summary = solve_lower(lower, features, data, weights, block=block)
    if data.dtype == np.float64:
        return Answer(features, lower, result, summary)
    moved = make_data(problem, {key: np.asarray(rows) for key, rows in data.points.items()}, data.dtype, moved=True)
    again, _ = solve_lower(lower, features, moved, weights, block=block)
    # Values are taken in float64: the frequencies are those that the rows were made of.
    return Answer(cast(features, "float64"), lower, result, summary, np.asarray(again.theta, dtype=np.float64))


def _check(
    problem: Problem,
    features: FourierFeatures,
    seed: int,
    progress: Progress | None,
    phases: Mapping[str, Training | None],
) -> None:
    for name, value, kind in (("problem", problem, Problem), ("features", features, FourierFeatures)):
        if not isinstance(value, kind):
            raise TypeError(f"fit(problem, features, ...): {name} is a {type(value).__name__}; give {kind.__name__}.")
    if features.domain != problem.domain:
        raise ValueError(
            f"fit(problem, features, ...): the features are for {features.domain}, the problem lives in "
            f"{problem.domain}; make them with fourier_features(problem)."
        )
    if features.basis != problem.basis:
        raise ValueError(
            "fit(problem, features, ...): the features hold other basis functions than the problem; make them with "
            "fourier_features(problem)."
        )
    generator(seed)  # refuses what cannot seed one
    if not (progress is None or callable(progress)):
        raise TypeError(f"fit(progress={shown(progress)}): give a function of a record, or None.")
    for name, value in phases.items():
        if not (value is None or isinstance(value, Training)):
            raise TypeError(f"fit({name}={shown(value)}): give Training(epochs), or None to do without.")
        if value is not None and value.epochs and not jax.tree.leaves(split(features)[0]):
            raise ValueError(f"fit({name}=...): this backbone has nothing to train; give widths, or leave {name} out.")


def _planned(features: FourierFeatures, data: Data, memory: int | None, upper: Training | None) -> int | None:
    """Rows to assemble at once, or None for all of them; training needs all."""
    rows, columns = num_rows(data), num_columns(features, data)
    limit = int(0.8 * available_memory()) if memory is None else int(memory)
    block = plan_block(rows, columns, limit, data.dtype.itemsize)
    if upper is not None and upper.epochs and block is not None:
        raise ValueError(
            f"fit(upper=...): to train, {rows} rows x {columns} columns must fit at once into {limit / 2**30:.3g} GiB; "
            "take fewer points or features."
        )
    return block


def _refuse_undefined(
    problem: Problem, features: FourierFeatures, data: Data, result: LowerResult, held_out: HeldOut
) -> None:
    """Refuse an operator that is not finite at a point, with the point: `Problem` tries only a few of them."""
    if problem.linear and int(result.rank) == 0:
        for part in row_blocks(data, CHUNK):
            for key, points in part.points.items():
                rows = np.asarray(condition_rows(features, part, key, jnp.zeros_like(result.theta)))
                _refuse_nan(
                    problem.domain, {key: (np.asarray(points), rows.reshape(len(points), -1).sum(axis=1))}, "points"
                )
    elif problem.linear and np.all(np.isfinite(result.theta)):
        _refuse_nan(problem.domain, held_out, "held_out")


def _refuse_nan(domain: Box, found: HeldOut, argument: str) -> None:
    for key, (points, values) in found.items():
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise ValueError(
                f"{argument}[{key!r}]: the operator or its derivative in u is NaN or infinite at "
                f"{describe(domain, points[wrong[0]])}; mend it there (in jnp.where, the branch that is not taken has "
                "to be finite too) or move the region."
            )


@eqx.filter_jit
def _marks(features: FourierFeatures, data: Data, theta: jax.Array) -> dict[str, jax.Array]:
    return residuals(features, data, theta)


def _note_stop(report: dict[str, Any], stopped: str) -> None:
    """Let the report say that training ended early."""
    if stopped in ("interrupted", "out_of_budget") and report["status"] in ("converged", "stalled"):
        report["status"] = stopped
    elif stopped:
        report["advice"] = f"{stopped} {report['advice']}".strip()


def _held_out_points(problem: Problem, rows: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Uniform points that are independent of the training points of the same seed."""
    other = int(generator(seed, "held-out").integers(0, 2**31))
    counts = {key: max(200, len(value) // 4) for key, value in rows.items()}
    return problem.sample(counts, sampler="uniform", seed=other)


def _mark(
    problem: Problem, features: FourierFeatures, data: Data, seed: int, weights: Mapping[str, float], phases: list[Any]
) -> str:
    """Fingerprint of a run: settings, points, targets, operators and first features."""
    described, arrays = pack_features(features)
    said = [repr(one).split(" at 0x")[0] for one in phases]
    settings = {"seed": seed, "weights": weights, "phases": said, "problem": problem.name, "features": described}
    settings |= {"dtype": data.dtype.name}
    # A function shows in its values alone: in single precision, as they may round otherwise when a run goes on.
    few = [{key: one[:_MARKED] for key, one in parts.items()} for parts in (data.points, data.targets)]
    theta = jnp.cos(jnp.arange(num_columns(features, data)))
    values = _marks(features, Data(data.problem, data.equations, data.operators, *few), theta)
    asked = {"points": data.points, "targets": data.targets}
    asked |= {"numbers": dict(enumerate(leaf for leaf in jax.tree.leaves(data.operators) if not callable(leaf)))}
    asked |= {"operators": {key: np.asarray(one, dtype=np.float32) for key, one in values.items()}}
    arrays |= {f"{kind}.{key}": np.asarray(one) for kind, parts in asked.items() for key, one in parts.items()}
    return fingerprint(settings, arrays)
