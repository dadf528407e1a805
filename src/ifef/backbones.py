"""Backbones h_omega: tanh networks, the inputs themselves, and coordinates that are stretched where much happens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.calculus import float64
from ifef.sampling import generator

Initialisation = Literal["glorot", "torch"]

_REACH = 4.0  # widths of a window within which it counts


class MLP(eqx.Module):
    """The hidden layers h_omega: tanh after every affine map; the last hidden layer is the output."""

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]

    def __call__(self, x: jax.Array) -> jax.Array:
        """Evaluate h at one scaled point (n,), giving (p,)."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = jnp.tanh(weight @ x + bias)
        return x

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(weight.shape[0] for weight in self.weights)


class Identity(eqx.Module):
    """No backbone: h(x) = x, Fourier features of the scaled inputs themselves."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Give the point back."""
        return x


def mlp(
    dimension: int, widths: Sequence[int], *, seed: int = 0, initialisation: Initialisation = "glorot"
) -> MLP | Identity:
    """Make a tanh network by seed. "torch" is PyTorch's default, uniform in 1/sqrt(fan in), biases too.

    Plain NumPy draws, so that a seed means the same network on every machine and JAX version.
    """
    for width in widths:
        if isinstance(width, bool) or not isinstance(width, (int, np.integer)) or width < 1:
            raise ValueError(f"widths={tuple(widths)!r}: every hidden width must be a whole number of at least 1.")
    if initialisation not in ("glorot", "torch"):
        raise ValueError(f"initialisation={initialisation!r}: choose 'glorot' or 'torch'.")
    if not widths:
        return Identity()
    rng = generator(seed, "backbone", initialisation)
    weights, biases = [], []
    for fan_in, fan_out in zip((dimension, *widths), widths, strict=False):
        if initialisation == "glorot":
            weights.append(rng.normal(0.0, math.sqrt(2.0 / (fan_in + fan_out)), (fan_out, fan_in)))
            biases.append(np.zeros(fan_out))
        else:
            bound = 1.0 / math.sqrt(fan_in)
            weights.append(rng.uniform(-bound, bound, (fan_out, fan_in)))
            biases.append(rng.uniform(-bound, bound, fan_out))
    with float64():
        return MLP(tuple(map(jnp.asarray, weights)), tuple(map(jnp.asarray, biases)))


class Spots(eqx.Module):
    """h = [x, then for each spot its own coordinates s and its bell q]: see `spots`.

    In the frame of a spot, y = F^T (x - c). A stretched one has s = asinh(y / w), as fine as w at the spot and coarser
    away from it, and q = 0. A bell has s = y / (4 w) and q = |y / w|^2 / 2, so that exp(-q) is a window. An axis of
    infinite width is straight in both. s lies in [-1, 1] wherever the box (or the window) does.
    """

    centres: jax.Array
    frames: jax.Array
    slopes: jax.Array
    middles: jax.Array
    halves: jax.Array
    bells: tuple[bool, ...] = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Evaluate h at one scaled point (n,), giving (n + m (n + 1),)."""
        parts = [x]
        for index, bell in enumerate(self.bells):
            y = self.frames[index].T @ (x - self.centres[index])
            s = (_stretched(y, self.slopes[index], bell) - self.middles[index]) / self.halves[index]
            q = 0.5 * jnp.sum(jnp.square(self.slopes[index] * y))
            parts += [s, q[None] if bell else jnp.zeros_like(q)[None]]
        return jnp.concatenate(parts)

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.centres.shape[1]

    def place(self, index: int, frequencies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Frequencies (D, n) in the coordinates of a spot (-1: of the inputs), and their decays, as they act on h."""
        n, num = self.dimension, len(frequencies)
        placed, decays = (np.zeros((num, n + len(self.bells) * (n + 1))) for _ in range(2))
        start = 0 if index < 0 else n + index * (n + 1)
        placed[:, start : start + n] = frequencies
        if index >= 0 and self.bells[index]:
            decays[:, start + n] = 1.0
        return placed, decays

    def draw(self, index: int, num: int, rng: np.random.Generator) -> np.ndarray:
        """Points (num, n) of the scaled box, about evenly in the coordinates of a spot."""
        centre, frame, slopes = (np.asarray(one[index]) for one in (self.centres, self.frames, self.slopes))
        low, high = _range(centre, frame, slopes, bell=False)
        found: list[np.ndarray] = []
        while sum(map(len, found)) < num:
            s = rng.uniform(low, high, (2 * num, len(low)))
            # Slope 1 at the spot, so that a straight axis needs no case of its own.
            y = np.where(slopes > 0, np.sinh(s * slopes) / np.where(slopes > 0, slopes, 1.0), s)
            x = centre + y @ frame.T
            found.append(x[np.all(np.abs(x) <= 1.0, axis=1)])
        return np.concatenate(found)[:num]


def _stretched(y: jax.Array, slopes: jax.Array, bell: bool) -> jax.Array:
    safe = jnp.where(slopes > 0, slopes, 1.0)
    return jnp.where(slopes > 0, y / (_REACH / safe) if bell else jnp.arcsinh(y * safe) / safe, y)


def _range(centre: np.ndarray, frame: np.ndarray, slopes: np.ndarray, bell: bool) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest values of a spot's coordinates over the box; of a window, those of the window."""
    corners = np.stack(np.meshgrid(*[[-1.0, 1.0]] * len(centre), indexing="ij"), axis=-1).reshape(-1, len(centre))
    y = (corners - centre) @ frame
    safe = np.where(slopes > 0, slopes, 1.0)
    s = np.where(slopes > 0, np.arcsinh(y * safe) / safe, y)
    low, high = s.min(axis=0), s.max(axis=0)
    windowed = bell & (slopes > 0)
    return np.where(windowed, -1.0, low), np.where(windowed, 1.0, high)


def spots(where: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], *, bell: bool) -> Spots:
    """Make the backbone of spots (centre (n,), frame (n, n) of columns, widths (n,)) in the box scaled to [-1, 1]."""
    slopes = [1.0 / np.asarray(widths) for _, _, widths in where]
    ranges = [_range(centre, frame, slope, bell) for (centre, frame, _), slope in zip(where, slopes, strict=True)]
    parts = [
        [centre for centre, _, _ in where],
        [frame for _, frame, _ in where],
        slopes,
        [0.5 * (low + high) for low, high in ranges],
        [0.5 * (high - low) for low, high in ranges],
    ]
    with float64():
        return Spots(*(jnp.asarray(np.array(part)) for part in parts), bells=(bell,) * len(where))
