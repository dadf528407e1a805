"""The training loop: pretraining as a plain PINN, then one step on omega for each lower solve."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.assembly import Data, num_columns
from ifef.features import Features, FourierFeatures, HiddenFeatures, unknown_sizes
from ifef.journal import Journal
from ifef.lower import AbstractLower
from ifef.theta import held_out_size
from ifef.upper import Task, Training, TrainState, run_epochs, split, start_state

PRETRAINING, UPPER = "pretraining", "upper"
_RECORDS = 200  # entries of history in a phase
_BREATH = 0.5  # seconds between two looks at the display, the checkpoint and Ctrl-C


@dataclass(frozen=True)
class Job:
    """What both phases share."""

    data: Data
    held: Data
    weights: dict[str, float]
    journal: Journal
    key: jax.Array


def train(
    features: FourierFeatures,
    pretraining: Training | None,
    upper: Training | None,
    lower: AbstractLower,
    job: Job,
) -> tuple[FourierFeatures, str]:
    """Train the backbone in both phases; give why it stopped early, if it did."""
    stopped = ""
    if pretraining is not None and pretraining.epochs and not job.journal.reached(PRETRAINING, (PRETRAINING, UPPER)):
        plain = HiddenFeatures(features.backbone, features.domain)
        state = start_state(pretraining, plain, job.data, _output_layer(plain, job), job.weights, True)
        state, stopped = _phase(PRETRAINING, pretraining, None, plain, state, job)
        features = eqx.tree_at(lambda one: one.backbone, features, _trained(plain, state).backbone)
    if upper is not None and upper.epochs and stopped not in ("interrupted", "out_of_budget"):
        theta = jnp.zeros(num_columns(features, job.data))
        state = start_state(upper, features, job.data, theta, job.weights, False)
        before = stopped
        state, stopped = _phase(UPPER, upper, lower, features, state, job)
        features, stopped = _trained(features, state), stopped or before
    return features, stopped


def _trained(features: Any, state: TrainState) -> Any:
    return eqx.combine(state.omega, split(features)[1])


def _output_layer(plain: HiddenFeatures, job: Job) -> jax.Array:
    """W of the plain PINN, Glorot normal."""
    size = sum(unknown_sizes(plain, job.data.problem[1]))
    return jax.random.normal(jax.random.fold_in(job.key, 1), (size,)) * np.sqrt(2.0 / (plain.size + 1))


def _phase(
    name: str, training: Training, lower: AbstractLower | None, features: Features, state: TrainState, job: Job
) -> tuple[TrainState, str]:
    """Run one phase in compiled stretches; give its last finite state and why it stopped early."""
    journal = job.journal
    weights = {condition: jnp.asarray(value) for condition, value in job.weights.items()}
    # The number of epochs is the loop's below, and no part of what is compiled.
    task = Task(replace(training, epochs=0), lower, split(features)[1], job.data, weights, job.key)
    state = journal.restore(name, state)
    every = max(training.epochs // _RECORDS, 1)
    good, stretch, epoch = state, 1, int(state.epoch)
    while epoch < training.epochs:
        # How many epochs a stretch holds changes nothing but how often we look up.
        count = min(stretch, every - epoch % every, training.epochs - epoch)
        begun = time.perf_counter()
        try:
            after = run_epochs(task, state, jnp.asarray(count))
            losses = {condition: float(value) for condition, value in after.losses.items()}
            if not all(np.isfinite(value) for value in losses.values()):
                # The losses are those before a step: `state` may be spoilt already, the one before it is not.
                return good, f"Training diverged in epoch {epoch + count} of {name}; lower the learning rate."
            good, state, epoch = state, after, epoch + count
            if epoch % every == 0 or epoch == training.epochs:
                journal.record(_entry(name, training, eqx.combine(state.seen, task.rest), state, job, losses))
            journal.tick(name, epoch, training.epochs)
            journal.save(name, state, now=epoch == training.epochs)
        except KeyboardInterrupt:
            journal.save(name, state, now=True)
            return state, "interrupted"
        if time.monotonic() > journal.deadline and epoch < training.epochs:
            journal.save(name, state, now=True)  # more time may be given later
            return state, "out_of_budget"
        stretch = max(1, int(stretch * np.clip(_BREATH / max(time.perf_counter() - begun, 1e-6), 0.5, 2.0)))
    return state, ""


def _entry(
    name: str, training: Training, features: Any, state: TrainState, job: Job, losses: dict[str, float]
) -> dict[str, Any]:
    """One record of history; no clock in it, so that a resumed run has the same."""
    duals = {key: float(value) for key, value in state.duals.items()}
    return {
        "phase": name,
        "epoch": int(state.epoch),
        "epochs": training.epochs,
        "loss": sum({**job.weights, **duals}[key] * losses[key] for key in losses),
        "losses": losses,
        "held_out": held_out_size(features, job.held, state.theta, job.weights),
        "rank": int(state.rank),
        "condition": float(state.condition),
        "duals": duals,
    }
