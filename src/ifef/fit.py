"""Algorithms 1 and 2 with every part explicit: pretraining, the loop over both levels, one final lower solve."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.assembly import Data, condition_scales, make_data, num_columns, num_rows
from ifef.calculus import float64
from ifef.checks import describe
from ifef.domain import Face
from ifef.features import Features, FourierFeatures, HiddenFeatures, unknown_sizes
from ifef.journal import Journal, Progress, fingerprint
from ifef.lower import (
    AbstractLower,
    GaussNewton,
    LeastSquares,
    available_memory,
    plan_block,
    solve_lower,
)
from ifef.problem import Problem
from ifef.sampling import generator
from ifef.solution import Solution, pack_features
from ifef.upper import Training, TrainState, run_epochs, split, start_state
from ifef.verdict import held_out_size, judge

PRETRAINING, UPPER = "pretraining", "upper"
_RECORDS = 200  # entries of history in a phase
_BREATH = 0.5  # seconds between two looks at the display, the checkpoint and Ctrl-C


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
) -> Solution:
    """Solve with given features and points: Algorithm 1, or 2 where the rows depend on theta.

    `lower` defaults to `LeastSquares()` (in `GaussNewton` for a nonlinear problem). `upper` trains the backbone,
    one step for each lower solve; without it theta*(omega) is found once. `weights` are the shared lambda by
    condition, by default the inverse squares of the conditions' scales. `held_out` points judge the answer and are
    drawn where not given. A `checkpoint` file that exists is continued; a run that was killed ends bit-identical.
    `memory` is in bytes, by default most of what is free. After `max_seconds` training stops where it is.
    """
    started = time.perf_counter()
    lower = _checked_lower(problem, lower, upper)
    rows = checked_points(problem, points, "points")
    if held_out is None:
        counts = {key: max(200, len(value) // 4) for key, value in rows.items()}
        held_out = problem.sample(counts, sampler="uniform", seed=_held_out_seed(seed))
    judged = checked_points(problem, held_out, "held_out")
    data, held = make_data(problem, rows), make_data(problem, judged)
    with float64():
        weights = _checked_weights(problem, weights, condition_scales(features, data))
        if lower.weights is not None:
            _checked_weights(problem, lower.weights, {})
        limit = int(0.8 * available_memory()) if memory is None else memory
        block = plan_block(num_rows(data), num_columns(features, data), limit)
        if upper is not None and upper.epochs and block is not None:
            raise ValueError("fit(upper=...): the rows do not fit into memory at once; take fewer points or features.")
        settings = {"problem": problem.name, "seed": seed, "weights": weights, "lower": repr(lower)}
        settings |= {"upper": repr(upper), "pretraining": repr(pretraining), "features": pack_features(features)[0]}
        mark = fingerprint(_plain(settings), {**rows, **pack_features(features)[1]})
        journal = Journal(mark, progress, checkpoint, checkpoint_seconds)
        journal.deadline = math.inf if max_seconds is None else time.monotonic() + max_seconds
        key = jax.random.key(seed)
        features, stopped = _train(problem, features, (data, held), weights, (pretraining, upper), lower, journal, key)
        solved = solve_lower(lower, features, data, weights, block=block)
        report, residuals = judge(features, problem, lower, solved, (data, held), weights, tolerance)
    report["stats"]["seconds"] = time.perf_counter() - started
    if stopped in ("interrupted", "out_of_budget"):
        report["status"] = stopped
    elif stopped:
        report["advice"] = f"{stopped} {report['advice']}".strip()
    theta = np.asarray(solved[0].theta)
    return Solution(
        features,
        problem.unknowns,
        theta,
        report=report,
        held_out=residuals,
        history=journal.history,
        problem=problem,
    )


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without addresses of functions, which differ between processes."""
    return {key: value.split(" at 0x")[0] if isinstance(value, str) else value for key, value in settings.items()}


def _held_out_seed(seed: int) -> int:
    """Give a seed whose points are independent of the training points of the same seed."""
    return int(generator(seed, "held-out").integers(0, 2**31))


def _checked_lower(problem: Problem, lower: AbstractLower | None, upper: Training | None) -> AbstractLower:
    if lower is None:
        lower = LeastSquares() if problem.linear else GaussNewton()
    if not isinstance(lower, AbstractLower):
        raise TypeError(f"fit(lower=...): give LeastSquares(), Ridge(gamma) or GaussNewton(), not {lower!r}.")
    if not problem.linear and not isinstance(lower, GaussNewton):
        nonlinear = [key for key, affine in problem.affine.items() if not affine]
        raise ValueError(
            f"fit(lower={type(lower).__name__}): the condition {nonlinear[0]!r} is nonlinear; use GaussNewton()."
        )
    if upper is not None and upper.epochs and not problem.linear:
        raise ValueError("fit(upper=...): training the backbone needs a linear problem; leave `upper` out.")
    return lower


def checked_points(problem: Problem, points: Mapping[str, Any], argument: str) -> dict[str, np.ndarray]:
    """Check that there are points (n, dim) for every condition and that they lie in its region."""
    for key in points:
        if key not in problem.conditions:
            known = ", ".join(problem.conditions)
            raise ValueError(f"{argument}: there is no condition {key!r}; the conditions are: {known}.")
    checked = {}
    dimension = len(problem.domain.names)
    for key, condition in problem.conditions.items():
        if key not in points:
            raise ValueError(f"{argument}: there are no points for the condition {key!r}.")
        try:
            rows = np.asarray(points[key], dtype=np.float64)
        except (TypeError, ValueError):
            rows = np.zeros(0)
        if rows.ndim != 2 or rows.shape[1] != dimension or len(rows) == 0:
            raise ValueError(f"{argument}[{key!r}]: give an array (n, {dimension}) with n of at least 1.")
        if not np.all(np.isfinite(rows)):
            raise ValueError(f"{argument}[{key!r}]: point number {int(np.argwhere(~np.isfinite(rows))[0, 0])} is NaN.")
        region = condition.region
        if region.is_cloud:
            if not np.array_equal(rows, region.cloud):
                raise ValueError(f"{argument}[{key!r}]: the condition is on given points; pass exactly those.")
        else:
            inside = np.any([_on_face(piece, rows) for piece in region.pieces if isinstance(piece, Face)], axis=0)
            if not inside.all():
                at = describe(problem.domain, rows[int(np.flatnonzero(~inside)[0])])
                raise ValueError(f"{argument}[{key!r}]: the point {at} is not in the condition's region.")
        checked[key] = rows
    return checked


def _on_face(face: Face, rows: np.ndarray) -> np.ndarray:
    domain, fixed = face.domain, dict(face.fixed)
    inside = np.ones(len(rows), dtype=bool)
    for index, (name, low, high) in enumerate(zip(domain.names, domain.lows, domain.highs, strict=True)):
        first, last = (fixed[name], fixed[name]) if name in fixed else (low, high)
        slack = 1e-9 * (high - low)
        inside &= (rows[:, index] >= first - slack) & (rows[:, index] <= last + slack)
    return inside


def _checked_weights(problem: Problem, weights: Any, scales: Mapping[str, float]) -> dict[str, float]:
    if weights is None:
        return {key: 1.0 / scale**2 for key, scale in scales.items()}
    for key in weights:
        if key not in problem.conditions:
            known = ", ".join(problem.conditions)
            raise ValueError(f"weights: there is no condition {key!r}; the conditions are: {known}.")
    checked = {}
    for key in problem.conditions:
        if key not in weights:
            raise ValueError(f"weights: the condition {key!r} is missing.")
        value = float(weights[key])
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"weights[{key!r}]={value:g}: a weight must be finite and at least 0.")
        checked[key] = value
    return checked


def _train(
    problem: Problem,
    features: FourierFeatures,
    data: tuple[Data, Data],
    weights: Mapping[str, float],
    phases: tuple[Training | None, Training | None],
    lower: AbstractLower,
    journal: Journal,
    key: jax.Array,
) -> tuple[FourierFeatures, str]:
    """Pretrain the backbone as a plain PINN, then train it over the lower level; give why it stopped early."""
    pretraining, upper = phases
    order = (PRETRAINING, UPPER)
    stopped = ""
    if pretraining is not None and pretraining.epochs and not journal.reached(PRETRAINING, order):
        plain = HiddenFeatures(features.backbone, features.domain)
        output = _output_layer(problem, plain, key)
        state = start_state(pretraining, plain, data[0], output, weights, True)
        state, stopped = _phase(PRETRAINING, pretraining, None, plain, state, data, weights, journal, key)
        features = eqx.tree_at(lambda one: one.backbone, features, _backbone(plain, state))
    if upper is not None and upper.epochs and stopped not in ("interrupted", "out_of_budget"):
        theta = jnp.zeros(num_columns(features, data[0]))
        state = start_state(upper, features, data[0], theta, weights, False)
        state, stopped = _phase(UPPER, upper, lower, features, state, data, weights, journal, key)
        features = eqx.tree_at(lambda one: one.backbone, features, _backbone(features, state))
    return features, stopped


def _backbone(features: Features, state: TrainState) -> Any:
    return eqx.combine(state.omega, split(features)[1]).backbone


def _output_layer(problem: Problem, plain: HiddenFeatures, key: jax.Array) -> jax.Array:
    """W of the plain PINN, Glorot normal."""
    size = sum(unknown_sizes(plain, problem.unknowns))
    width = plain.size
    return jax.random.normal(jax.random.fold_in(key, 1), (size,)) * np.sqrt(2.0 / (width + 1))


def _phase(
    name: str,
    training: Training,
    lower: AbstractLower | None,
    features: Features,
    state: TrainState,
    data: tuple[Data, Data],
    weights: Mapping[str, float],
    journal: Journal,
    key: jax.Array,
) -> tuple[TrainState, str]:
    """Run one phase in compiled stretches; give its last finite state and why it stopped early."""
    rest = split(features)[1]
    state = journal.restore(name, state)
    every = max(training.epochs // _RECORDS, 1)
    traced = {condition: jnp.asarray(value) for condition, value in weights.items()}
    stretch, epoch = 1, int(state.epoch)
    while epoch < training.epochs:
        count = min(stretch, every - epoch % every, training.epochs - epoch)
        begun = time.perf_counter()
        try:
            after = run_epochs(training, lower, rest, state, data[0], traced, key, jnp.asarray(count))
            values = {condition: float(value) for condition, value in after.losses.items()}
        except KeyboardInterrupt:
            return state, "interrupted"
        if not all(np.isfinite(value) for value in values.values()):
            return state, f"Training diverged in epoch {epoch + count} of {name}; lower the learning rate."
        state, epoch = after, epoch + count
        if epoch % every == 0 or epoch == training.epochs:
            journal.record(_entry(name, training, features, rest, state, data[1], weights, values))
        journal.tick(name, epoch, training.epochs)
        journal.save(name, state, now=epoch == training.epochs)
        if time.monotonic() > journal.deadline and epoch < training.epochs:
            return state, "out_of_budget"
        stretch = max(1, int(stretch * np.clip(_BREATH / max(time.perf_counter() - begun, 1e-6), 0.5, 2.0)))
    return state, ""


def _entry(
    name: str,
    training: Training,
    features: Features,
    rest: Any,
    state: TrainState,
    held: Data,
    weights: Mapping[str, float],
    losses: dict[str, float],
) -> dict[str, Any]:
    """One record of history; no clock in it, so that a resumed run has the same."""
    shown = eqx.combine(state.omega, rest)
    total = sum((float(state.duals[key]) if key in state.duals else weights[key]) * losses[key] for key in losses)
    return {
        "phase": name,
        "epoch": int(state.epoch),
        "epochs": training.epochs,
        "loss": float(total),
        "losses": losses,
        "held_out": held_out_size(shown, held, state.theta, weights),
        "rank": int(state.rank),
        "condition": float(state.condition),
        "duals": {key: float(value) for key, value in state.duals.items()},
    }
