"""One step on omega, with theta frozen or differentiated through the lower solve; fixed or primal-dual weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from ifef.assembly import Data, loss, num_columns, residuals, row_scales, system
from ifef.checks import is_real
from ifef.domain import shown
from ifef.features import Features
from ifef.lower import AbstractLower, LowerResult


class PrimalDual(eqx.Module):
    """Adam ascent on the weights of the equations, one step an epoch: the paper's IFeF-PD.

    The derivative of the loss in a weight is that equation's mean square, never negative, so weights only grow from
    `initial` (None: from the shared weights). The lower level keeps its own weights.
    """

    learning_rate: float = 1e-4
    initial: float | None = None

    def __check_init__(self) -> None:
        if not (is_real(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"PrimalDual(learning_rate={self.learning_rate!r}): it must be positive.")
        if self.initial is not None and not (is_real(self.initial) and self.initial >= 0):
            raise ValueError(f"PrimalDual(initial={self.initial!r}): the first weight must be at least 0.")


def _wants_more(optimiser: optax.GradientTransformation) -> bool:
    """Whether an update asks for more than a gradient, as a line search does; its type does not tell."""
    try:
        one = jnp.ones(1)
        jax.eval_shape(lambda gradient: optimiser.update(gradient, optimiser.init(one), one), one)
    except TypeError as error:
        return "keyword-only argument" in str(error)
    except Exception:  # made for parameters of another structure
        return False
    return False


class Training(eqx.Module):
    """Epochs of an optimiser on the basis.

    `gradient="frozen"` holds theta as Algorithm 1 does; "through" differentiates through the lower solve (appendix
    C.1). The two agree only where upper and lower losses are the same and nothing is regularised; elsewhere the frozen
    one can even have the wrong sign. `batch` takes at most so many points of each condition, anew each epoch, for the
    gradient; the lower level always sees all of them.
    """

    epochs: int
    learning_rate: float = 1e-3
    gradient: Literal["frozen", "through"] = "frozen"
    dual: PrimalDual | None = None
    batch: int | None = None
    optimiser: optax.GradientTransformation | None = None

    def __check_init__(self) -> None:
        if isinstance(self.epochs, bool) or not isinstance(self.epochs, int) or self.epochs < 0:
            raise ValueError(f"Training(epochs={self.epochs!r}): give a whole number, 0 or more.")
        if not (is_real(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"Training(learning_rate={self.learning_rate!r}): it must be positive.")
        if self.gradient not in ("frozen", "through"):
            raise ValueError(f"Training(gradient={self.gradient!r}): choose 'frozen' or 'through'.")
        whole = isinstance(self.batch, int) and not isinstance(self.batch, bool)
        if self.batch is not None and not (whole and self.batch >= 1):
            raise ValueError(f"Training(batch={self.batch!r}): give a whole number of at least 1, or None for all.")
        if not (self.dual is None or isinstance(self.dual, PrimalDual)):
            raise TypeError(f"Training(dual=...): give PrimalDual() or None, not a {type(self.dual).__name__}.")
        if not (self.optimiser is None or isinstance(self.optimiser, optax.GradientTransformation)):
            raise TypeError(f"Training(optimiser=...): give one such as optax.adam(1e-3), not {shown(self.optimiser)}.")
        if self.optimiser is not None and _wants_more(self.optimiser):
            raise ValueError(
                "Training(optimiser=...): it needs more than gradients; give one such as optax.adam(1e-3)."
            )

    def transformation(self) -> optax.GradientTransformation:
        """Give the optimiser: the given one, or Adam as in the paper."""
        return optax.adam(self.learning_rate) if self.optimiser is None else self.optimiser


class TrainState(eqx.Module):
    """Everything that a step changes."""

    # Updated every epoch
    omega: Any
    theta: jax.Array
    optimiser: Any
    epoch: jax.Array
    # Updated every epoch where the weights are primal-dual
    duals: dict[str, jax.Array]
    dual_optimiser: Any
    # What the last epoch saw
    losses: dict[str, jax.Array]
    rank: jax.Array
    condition: jax.Array
    seen: Any
    """The omega that theta was found for: with dependent columns, theta means nothing for the omega one step on."""


def split(features: Features) -> tuple[Any, Any]:
    """Part features into omega, the floating-point arrays of the backbone, and the rest."""
    inexact = jax.tree_util.tree_map(eqx.is_inexact_array, features.backbone)
    nothing = jax.tree_util.tree_map(lambda _: False, features)
    return eqx.partition(features, eqx.tree_at(lambda tree: tree.backbone, nothing, inexact))


def start_state(
    training: Training, features: Features, data: Data, theta: jax.Array, weights: Mapping[str, float], joint: bool
) -> TrainState:
    """State before the first epoch; `joint` trains theta along with omega."""
    omega, _ = split(features)
    trained = (omega, theta) if joint else omega
    first = {} if training.dual is None else _first_duals(training.dual, data, weights)
    zeros = {key: jnp.zeros(()) for key in data.points}
    return TrainState(
        omega,
        theta,
        training.transformation().init(trained),
        jnp.zeros((), dtype=int),
        first,
        optax.adam(1.0).init(first),
        zeros,
        jnp.zeros((), dtype=int),
        jnp.ones(()),
        omega,
    )


def _first_duals(dual: PrimalDual, data: Data, weights: Mapping[str, float]) -> dict[str, jax.Array]:
    return {key: jnp.asarray(weights[key] if dual.initial is None else dual.initial) for key in data.equations}


def _batch(data: Data, batch: int | None, key: jax.Array) -> Data:
    """At most `batch` points of each condition, without repetition."""
    if batch is None:
        return data
    points, targets = dict(data.points), dict(data.targets)
    for index, (name, rows) in enumerate(data.points.items()):
        if rows.shape[0] > batch:
            chosen = jax.random.permutation(jax.random.fold_in(key, index), rows.shape[0])[:batch]
            points[name], targets[name] = rows[chosen], data.targets[name][chosen]
    return Data(data.problem, data.equations, data.operators, points, targets)


def _mean_squares(features: Features, data: Data, theta: jax.Array) -> dict[str, jax.Array]:
    values = residuals(features, data, theta, remat=True)
    return {key: jnp.mean(jnp.square(value)) for key, value in values.items()}


def _weighted(squares: Mapping[str, jax.Array], weights: Mapping[str, Any]) -> jax.Array:
    return sum((weights[key] * square for key, square in squares.items()), jnp.zeros(()))


def _ascend(training: Training, state: TrainState, squares: Mapping[str, jax.Array]) -> tuple[Any, Any]:
    """One dual step: the gradient of the loss in a weight is that equation's mean square."""
    if training.dual is None:
        return state.duals, state.dual_optimiser
    upward = {key: -squares[key] for key in state.duals}
    updates, optimiser = optax.adam(training.dual.learning_rate).update(upward, state.dual_optimiser)
    return jax.tree_util.tree_map(lambda a, b: a + b, state.duals, updates), optimiser


def hypergradient(
    parts: tuple[Any, Any],
    data: Data,
    result: LowerResult,
    weights: tuple[Mapping[str, Any], Mapping[str, Any]],
    batch: Data,
) -> tuple[dict[str, jax.Array], Any]:
    """Mean squares, and the gradient of the upper loss through theta*(omega) (appendix C.1).

    `parts` are omega and the rest of the features, `weights` those above and below. With J half the lower loss and H
    its Hessian in theta, grad = d_omega L - d_omega (grad_theta J . H^-1 grad_theta L).
    """
    omega, rest = parts
    above, below = weights

    def upper(omega: Any, theta: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        squares = _mean_squares(eqx.combine(omega, rest), batch, theta)
        return _weighted(squares, above), squares

    (partial, by_theta), squares = jax.grad(upper, argnums=(0, 1), has_aux=True)(omega, result.theta)
    direction = result.inverse(by_theta)

    def along(omega: Any) -> jax.Array:
        features = eqx.combine(omega, rest)

        def half(theta: jax.Array) -> jax.Array:
            return 0.5 * loss(residuals(features, data, theta, remat=True), below)

        return jax.jvp(half, (result.theta,), (direction,))[1]

    correction = jax.grad(along)(omega)
    return squares, jax.tree_util.tree_map(lambda a, b: a - b, partial, correction)


class Task(eqx.Module):
    """What stays the same from epoch to epoch. Without a `lower` level theta is trained along with omega."""

    training: Training
    lower: AbstractLower | None
    rest: Any
    data: Data
    weights: dict[str, jax.Array]
    key: jax.Array


def two_level_epoch(task: Task, lower: AbstractLower, state: TrainState) -> TrainState:
    """One epoch of Algorithm 1: solve for theta, then one step on omega."""
    training, data = task.training, task.data
    features = eqx.combine(state.omega, task.rest)
    below = task.weights if lower.weights is None else {name: jnp.asarray(lower.weights[name]) for name in data.points}
    start = jnp.zeros(num_columns(features, data))
    result = lower.finish(lower.first(system(features, data, start, row_scales(data, below))))
    batch = _batch(data, training.batch, jax.random.fold_in(task.key, state.epoch))
    above = {**task.weights, **state.duals}
    if training.gradient == "through":
        squares, gradient = hypergradient((state.omega, task.rest), data, result, (above, below), batch)
    else:

        def upper(omega: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
            squares = _mean_squares(eqx.combine(omega, task.rest), batch, result.theta)
            return _weighted(squares, above), squares

        gradient, squares = jax.grad(upper, has_aux=True)(state.omega)
    updates, optimiser = training.transformation().update(gradient, state.optimiser, state.omega)
    duals, dual_optimiser = _ascend(training, state, squares)
    return TrainState(
        optax.apply_updates(state.omega, updates),
        result.theta,
        optimiser,
        state.epoch + 1,
        duals,
        dual_optimiser,
        squares,
        result.rank.astype(int),
        result.condition,
        state.omega,
    )


def joint_epoch(task: Task, state: TrainState) -> TrainState:
    """One epoch of plain training: omega and theta together, as a PINN is trained."""
    training = task.training
    batch = _batch(task.data, training.batch, jax.random.fold_in(task.key, state.epoch))
    above = {**task.weights, **state.duals}

    def upper(both: tuple[Any, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        squares = _mean_squares(eqx.combine(both[0], task.rest), batch, both[1])
        return _weighted(squares, above), squares

    both: Any = (state.omega, state.theta)
    gradient, squares = jax.grad(upper, has_aux=True)(both)
    updates, optimiser = training.transformation().update(gradient, state.optimiser, both)
    both = optax.apply_updates(both, updates)
    omega, theta = both
    duals, dual_optimiser = _ascend(training, state, squares)
    return TrainState(
        omega, theta, optimiser, state.epoch + 1, duals, dual_optimiser, squares, state.rank, state.condition, omega
    )


@eqx.filter_jit
def run_epochs(task: Task, state: TrainState, count: jax.Array) -> TrainState:
    """Run `count` epochs in one compiled loop; `count` is traced, so any number of epochs compiles once."""

    def body(_: int, state: TrainState) -> TrainState:
        return joint_epoch(task, state) if task.lower is None else two_level_epoch(task, task.lower, state)

    return jax.lax.fori_loop(0, count, body, state)
