"""The basis at one point: a backbone, Fourier features on its last hidden layer, and psi = fourier after backbone."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.backbones import Identity, Initialisation, mlp
from ifef.calculus import Field, Point, float64
from ifef.checks import sentence
from ifef.domain import Box, point_type, real_array, shown
from ifef.problem import Problem, Unknown
from ifef.sampling import generator

_MOST = 10**6  # frequencies: the triangle of their columns alone takes more memory than any machine has


class Features(eqx.Module):
    """A basis psi at one point, shared by all unknowns: functions of the last hidden layer h of a backbone.

    h is taken at the point scaled to [-1, 1] per axis. The trainable part omega is the backbone.
    """

    backbone: eqx.AbstractVar[Callable[[Any], jax.Array]]
    domain: eqx.AbstractVar[Box]

    @abc.abstractmethod
    def __call__(self, p: Point) -> jax.Array:
        """Evaluate psi at a point, (size,)."""

    def pieces(self, width: int) -> Iterator[tuple[Features, np.ndarray]]:  # noqa: ARG002
        """Split the basis into parts of fixed size, each with the places of its entries in the whole (-1: padding)."""
        yield self, np.arange(self.size)

    def scaled(self, p: Point) -> jax.Array:
        """Scale the point to [-1, 1] per axis: conditioning and the meaning of sigma do not depend on units."""
        lows, highs = np.array(self.domain.lows), np.array(self.domain.highs)
        x = jnp.stack([jnp.asarray(value, dtype=jnp.result_type(float)) for value in p])
        return (2.0 * x - (lows + highs)) / (highs - lows)

    def hidden(self, p: Point) -> jax.Array:
        """Last hidden layer h at a point, (p,)."""
        return self.backbone(self.scaled(p) if isinstance(self.backbone, eqx.Module) else p)

    @property
    def size(self) -> int:
        """Length of psi."""
        with float64():
            point = point_type(self.domain.names)(*(jnp.asarray(low) for low in self.domain.lows))
            return int(jax.eval_shape(self.__call__, point).shape[0])


class HiddenFeatures(Features):
    """The last hidden layer itself, psi = h: a plain PINN's output layer has these as its basis (H_f)."""

    backbone: Callable[[Any], jax.Array]
    domain: Box = eqx.field(static=True)

    def __call__(self, p: Point) -> jax.Array:
        """Evaluate h at a point, (p,)."""
        return self.hidden(p)


class FourierFeatures(Features):
    """psi = [cos(2 pi B h), sin(2 pi B h)] / sqrt(D), and, where `enlarged`, also [h, x, 1].

    The problem's own `basis` functions join at the end.
    """

    backbone: Callable[[Any], jax.Array]
    domain: Box = eqx.field(static=True)
    frequencies: Any
    enlarged: bool = eqx.field(static=True, default=True)
    basis: tuple[Callable[..., Any], ...] = eqx.field(static=True, default=())
    norm: Any = None
    """Factor of the waves, 1/sqrt(D) where it is not given."""
    decays: Any = None
    """C (D, p): waves are multiplied by exp(-C h), as if frequencies had an imaginary part. None: they are not."""

    def __call__(self, p: Point) -> jax.Array:
        """Evaluate psi at a point, (size,)."""
        h = self.hidden(p)
        angle = 2.0 * math.pi * (self.frequencies @ h)
        norm = 1.0 / math.sqrt(max(self.num_frequencies, 1)) if self.norm is None else self.norm
        if self.decays is not None:
            norm = norm * jnp.exp(-(self.decays @ h))
        parts = [norm * jnp.cos(angle), norm * jnp.sin(angle)]
        if self.enlarged:
            # The warm start W h is then exactly representable, and H_f is inside H_RFF at every D, not in the limit.
            x = self.scaled(p)
            parts += [h] if isinstance(self.backbone, Identity) else [h, x]
            parts.append(jnp.ones_like(x[:1]))
        if self.basis:
            parts.append(jnp.stack([jnp.asarray(function(p), dtype=h.dtype) for function in self.basis]))
        return jnp.concatenate(parts)

    def pieces(self, width: int) -> Iterator[tuple[Features, np.ndarray]]:
        """Split the waves into parts of `width` frequencies, padded with zero ones; then come h, x, 1 and the basis."""
        num = self.num_frequencies
        norm = np.asarray(1.0 / math.sqrt(max(num, 1))) if self.norm is None else self.norm
        for start in range(0, num, width):
            some = np.asarray(self.frequencies[start : start + width])
            places = np.pad(np.arange(start, start + len(some)), (0, width - len(some)), constant_values=-1)
            padding = ((0, width - len(some)), (0, 0))
            waves = np.pad(some, padding)
            slots = np.concatenate([places, np.where(places < 0, -1, places + num)])
            decays = None if self.decays is None else np.pad(self.decays[start : start + width], padding)
            yield FourierFeatures(self.backbone, self.domain, waves, False, (), norm, decays), slots
        if self.enlarged or self.basis:
            rest = FourierFeatures(self.backbone, self.domain, self.frequencies[:0], self.enlarged, self.basis)
            yield rest, 2 * num + np.arange(rest.size)

    @property
    def size(self) -> int:
        """Length of psi, without a trace of it: a search asks hundreds of times."""
        hidden = self.frequencies.shape[1]
        more = hidden + (0 if isinstance(self.backbone, Identity) else len(self.domain.names)) + 1
        return 2 * self.num_frequencies + (more if self.enlarged else 0) + len(self.basis)

    @property
    def num_frequencies(self) -> int:
        """Number D of rows of B."""
        return self.frequencies.shape[0]


def gaussian(num: int, dimension: int, sigma: float | Sequence[float] = 1.0, *, seed: int = 0) -> np.ndarray:
    """Draw B ~ N(0, sigma^2), (num, dimension). Rows of a smaller B are the first rows of a larger one (nested)."""
    for name, value, least in (("num_frequencies", num, 0), ("dimension", dimension, 1)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= _MOST:
            raise ValueError(f"{name}={shown(value)}: give a whole number from {least} to {_MOST}.")
    scale = _numbers(sigma)
    fine = np.all(np.isfinite(scale)) and np.all(scale >= 0) and np.any(scale > 0)
    if scale.shape not in ((), (dimension,)) or not fine:
        raise ValueError(
            f"sigma={shown(sigma)}: give one positive number, or one for each of the {dimension} hidden coordinates."
        )
    return scale * generator(seed, "frequencies").normal(size=(num, dimension))


def fourier_features(
    problem: Problem,
    num_frequencies: int = 800,
    *,
    sigma: float | Sequence[float] = 1.0,
    backbone: Sequence[int] | Callable[..., Any] = (64, 64),
    frequencies: np.ndarray | None = None,
    enlarged: bool = True,
    initialisation: Initialisation = "glorot",
    seed: int = 0,
) -> FourierFeatures:
    """Make the features of a problem.

    `backbone` is a sequence of hidden widths (empty: Fourier features of the inputs), an Equinox module that maps the
    scaled point (n,) to (p,), or a function of a point. `frequencies` gives B itself instead of D and sigma.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"fourier_features(problem, ...): give a Problem, not a {type(problem).__name__}.")
    if not isinstance(enlarged, bool):
        raise TypeError(f"fourier_features(enlarged={shown(enlarged)}): give True or False.")
    domain = problem.domain
    if not callable(backbone):
        if not isinstance(backbone, Iterable):
            raise TypeError(f"backbone={shown(backbone)}: give hidden widths such as (64, 64), a module or a function.")
        backbone = mlp(len(domain.names), tuple(backbone), seed=seed, initialisation=initialisation)
    with float64():
        hidden = _hidden_size(backbone, domain)
        if frequencies is None:
            frequencies = gaussian(num_frequencies, hidden, sigma, seed=seed)
        table = _numbers(frequencies)
        if table.ndim != 2 or table.shape[1] != hidden or not np.all(np.isfinite(table)):
            got = shown(frequencies)
            raise ValueError(f"frequencies={got}: give finite numbers (D, {hidden}), one column a hidden coordinate.")
        if len(table) == 0 and not (enlarged or problem.basis):
            raise ValueError("fourier_features(num_frequencies=0, enlarged=False): the basis would be empty.")
        return FourierFeatures(backbone, domain, jnp.asarray(table), enlarged, problem.basis)


def _numbers(values: Any) -> np.ndarray:
    """Make a float64 array, of NaN where these are no real numbers."""
    try:
        return real_array(values)
    except (TypeError, ValueError, OverflowError):
        return np.array(np.nan)


def _hidden_size(backbone: Any, domain: Box) -> int:
    """Try the backbone at the middle of the box, and give the length of its output."""
    middle = [0.5 * (low + high) for low, high in zip(domain.lows, domain.highs, strict=True)]
    point = point_type(domain.names)(*map(jnp.asarray, middle))
    argument: Any = jnp.zeros(len(domain.names)) if isinstance(backbone, eqx.Module) else point
    kind = "the scaled point" if isinstance(backbone, eqx.Module) else "a point"
    evaluate: Any = backbone
    try:
        jax.eval_shape(evaluate, argument)  # in every use of it JAX has to see through it
        given = evaluate(argument)
        hidden = np.asarray(jnp.asarray(given))
    except Exception as error:  # whatever a user's module raises becomes one sentence
        raise sentence(f"backbone on {kind} of {domain}", error, domain) from error
    if not isinstance(given, (jax.Array, np.ndarray)) or hidden.ndim != 1 or hidden.size == 0:
        got = f"a {type(given).__name__} of shape {hidden.shape}"
        raise ValueError(f"backbone must map {kind} to an array (p,), not to {got}; use jnp.stack or jnp.concatenate.")
    if hidden.dtype.kind not in "iuf" or not np.all(np.isfinite(hidden)):
        raise ValueError(f"backbone must map {kind} to finite real values, not to {shown(hidden)}.")
    return int(hidden.shape[0])


def unknown_sizes(features: Features, unknowns: Sequence[Unknown]) -> tuple[int, ...]:
    """Give the number of coefficients of each unknown: real and imaginary parts count apart, a scalar has one."""
    size = features.size
    return tuple((1 if unknown.scalar else size) * (2 if unknown.complex else 1) for unknown in unknowns)


def make_fields(features: Features, unknowns: Sequence[Unknown], theta: jax.Array) -> tuple[Field, ...]:
    """Turn coefficients (num_columns,) into the unknown fields, in order."""
    parts, start = [], 0
    for unknown, size in zip(unknowns, unknown_sizes(features, unknowns), strict=True):
        parts.append(_one_field(features, unknown, theta[start : start + size]))
        start += size
    return tuple(parts)


def _one_field(features: Features, unknown: Unknown, theta: jax.Array) -> Field:
    half = theta.shape[0] // 2
    coefficients = theta[:half] + 1j * theta[half:] if unknown.complex else theta
    if unknown.scalar:
        return lambda p: coefficients[0]
    domain = features.domain
    kept = unknown.coordinates(domain.names)
    middles = zip(domain.names, domain.lows, domain.highs, strict=True)
    held = {name: 0.5 * (low + high) for name, low, high in middles if name not in kept}

    def field(p: Point) -> Any:
        return features(p._replace(**held) if held else p) @ coefficients

    return field
