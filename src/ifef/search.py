"""Waves that a linear problem's solution is made of: proposed by spectra, chosen by pursuit, polished by Gauss-Newton.

Polishing moves the frequencies and the amplitudes together, so that a solution that is a sum of a few waves is found to
rounding. Of any other solution it finds the waves that carry most of it, to thicken (`frequencies`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.backbones import Identity
from ifef.calculus import Point
from ifef.domain import Box
from ifef.features import Features
from ifef.spectra import proposals, unsigned
from ifef.tiles import system_of
from ifef.trials import Trial, Trials

_PICKS, _ALL = 24, 250
_RANDOM = {1: 100, 2: 200, 3: 300}  # candidates over all scales beside the proposed ones; more where there are none
_MANY = 2000
_STEPS, _FEW_STEPS = 20, 5
_DAMPING, _AMPLITUDES, _PRUNING = 1e-3, 1e-12, 1e-3
_FARTHEST = 1.5  # of one step in a frequency: half a wave more or less over the box
_PAYS = 0.7  # part of the residual below which a step is worth another
_DONE = 1e-15
_STALLED = 0.9  # part of the residual that a batch has to undercut
_SAME = 0.1  # distance below which two waves are one
_FAINT = 1e-16  # energy of a wave, relative to the strongest, below which it is dropped


class Carriers(Features):
    """cos(k.x), sin(k.x) and their products with each coordinate, which are the derivatives in k, for a step on k."""

    backbone: Callable[..., jax.Array]
    domain: Box = eqx.field(static=True)
    angular: Any

    def __call__(self, p: Point) -> jax.Array:
        """Evaluate at a point, (2 (1 + dim) num,)."""
        x = self.scaled(p)
        angle = self.angular @ x
        waves = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)])
        return jnp.concatenate([waves, *(x[axis] * waves for axis in range(x.shape[0]))])

    @property
    def size(self) -> int:
        """Length of the basis, without a trace of it."""
        return 2 * (1 + self.angular.shape[1]) * self.angular.shape[0]

    def pieces(self, width: int) -> Iterator[tuple[Features, np.ndarray]]:
        """Split into parts of `width` waves, padded with constant ones."""
        num, parts = self.angular.shape[0], 2 * (1 + self.angular.shape[1])
        for start in range(0, num, width):
            some = np.asarray(self.angular[start : start + width])
            places = np.pad(np.arange(start, start + len(some)), (0, width - len(some)), constant_values=-1)
            slots = np.concatenate([np.where(places < 0, -1, places + part * num) for part in range(parts)])
            yield Carriers(self.backbone, self.domain, np.pad(some, ((0, width - len(some)), (0, 0)))), slots


class _Pursuit:
    """Candidates, and the choice of those that take most of what the chosen waves leave."""

    def __init__(self, trials: Trials, candidates: np.ndarray, temper: float):
        self.trials, self.candidates, self.temper = trials, candidates, temper
        rows = self._rows(candidates)
        self.right = rows[:, -1]
        self.groups = rows[:, trials.waves(len(candidates)).reshape(-1, len(candidates))]
        grams = np.einsum("pic,pjc->cij", self.groups, self.groups)
        sizes = np.trace(grams, axis1=1, axis2=2)[:, None, None] * np.eye(grams.shape[1])
        # A wave counts with the best amplitudes of all unknowns together: apart, they may satisfy no equation.
        self.inverses = np.linalg.inv(grams + 1e-12 * sizes + 1e-300 * (sizes == 0.0) * np.eye(grams.shape[1]))

    def _rows(self, angular: np.ndarray) -> np.ndarray:
        few = self.trials.few
        return system_of(self.trials.features(angular), few, self.trials.scales(few, self.temper))

    def more(self, chosen: np.ndarray, num: int) -> np.ndarray:
        """Choose `num` candidates one by one, each for what those before it leave."""
        basis = np.zeros((len(self.right), 0))
        if len(chosen):
            basis = _orthonormal(self._rows(chosen)[:, :-1], basis)
        left = self.right - basis @ (basis.T @ self.right)
        places: list[int] = []
        for _ in range(min(num, len(self.candidates))):
            products = np.einsum("p,pic->ci", left, self.groups)
            scores = np.einsum("ci,cij,cj->c", products, self.inverses, products)
            scores[places] = 0.0
            best = int(np.argmax(scores))
            group = _orthonormal(self.groups[:, :, best], basis)
            basis = np.concatenate([basis, group], axis=1)
            left = left - group @ (group.T @ left)
            places.append(best)
        return self.candidates[places]


def _orthonormal(group: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Basis of what the columns of `group` add to the span of `basis`."""
    for _ in range(2):  # once more, for rounding
        group = group - basis @ (basis.T @ group)
    left, values, _ = np.linalg.svd(group, full_matrices=False)
    return left[:, values > 1e-8 * max(values.max(initial=0.0), 1e-300)]


class _Polisher:
    """Gauss-Newton on amplitudes and frequencies of a fixed number of waves."""

    def __init__(self, trials: Trials, num: int, temper: float):
        self.trials, self.num, self.temper = trials, num, temper
        self.parts = 2 * (1 + trials.dimension)
        self.places = trials.waves(num, self.parts)
        self.amplitudes = np.concatenate([self.places[:, :2].reshape(-1), trials.constants(num, self.parts)])

    def rows(self, angular: np.ndarray) -> np.ndarray:
        """Rows of the waves and of their derivatives in the frequencies, and the right-hand side."""
        features = Carriers(Identity(), self.trials.problem.domain, np.asarray(angular))
        return system_of(features, self.trials.few, self.trials.scales(self.trials.few, self.temper))

    def linear(self, rows: np.ndarray, damping: float = _AMPLITUDES) -> tuple[np.ndarray, np.ndarray]:
        """Best amplitudes for these rows, slightly damped, and what they leave."""
        matrix, right = rows[:, self.amplitudes], rows[:, -1]
        norms = _norms(matrix)
        theta = _damped(matrix / norms, right, np.full(len(norms), damping))
        return theta / norms, right - (matrix / norms) @ theta

    def slopes(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Derivative of the residual's fit in each frequency, (rows, num x dim)."""
        cosines, sines = np.moveaxis(theta[: 2 * self.num * len(self.places)].reshape(-1, 2, self.num), 1, 0)
        slopes = []
        for axis in range(self.trials.dimension):
            by_cosine, by_sine = (rows[:, self.places[:, 2 + 2 * axis + part]] for part in (0, 1))
            slopes.append(np.einsum("pij,ij->pj", by_cosine, sines) - np.einsum("pij,ij->pj", by_sine, cosines))
        return np.stack(slopes, axis=2).reshape(len(rows), -1)

    def step(self, angular: np.ndarray, rows: np.ndarray, state: tuple[np.ndarray, np.ndarray], damping: float):
        """Frequencies after one damped step."""
        theta, left = state
        matrix, slopes = rows[:, self.amplitudes], self.slopes(rows, theta)
        norms = _norms(matrix)
        sizes = np.linalg.norm(slopes, axis=0) + 1e-12 * norms.max()
        both = np.concatenate([matrix / norms, slopes / sizes], axis=1)
        damped = np.concatenate([np.full(len(norms), _AMPLITUDES), np.full(len(sizes), np.sqrt(damping))])
        change = _damped(both, left, damped)[len(norms) :] / sizes
        return angular + np.clip(change.reshape(angular.shape), -_FARTHEST, _FARTHEST)


def _norms(matrix: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(matrix, axis=0)
    return np.where(norms > 0, norms, 1.0)


def _damped(matrix: np.ndarray, right: np.ndarray, damping: np.ndarray) -> np.ndarray:
    rows = np.concatenate([np.column_stack([matrix, right]), _below(damping)])
    factor = np.asarray(np.linalg.qr(rows, mode="r"))
    return np.linalg.lstsq(factor[:-1, :-1], factor[:-1, -1], rcond=None)[0]


def _below(damping: np.ndarray) -> np.ndarray:
    return np.pad(np.diag(damping), ((0, 0), (0, 1)))


def polish(
    trials: Trials, angular: np.ndarray, temper: float, steps: int = _STEPS
) -> tuple[np.ndarray, np.ndarray, float]:
    """Improve the frequencies; give them and the energy of each, strongest first, and what they leave."""
    job = _Polisher(trials, len(angular), temper)
    rows = job.rows(angular)
    state, damping = job.linear(rows), _DAMPING
    size = float(np.linalg.norm(rows[:, -1]))
    for _ in range(steps):
        before = float(np.linalg.norm(state[1]))
        for _ in range(4):
            moved = job.step(angular, rows, state, damping)
            tried = job.rows(moved)
            other = job.linear(tried)
            if np.linalg.norm(other[1]) < before:
                break
            damping *= 10.0
        else:
            break
        angular, rows, state, damping = moved, tried, other, damping * 0.1
        after = float(np.linalg.norm(state[1]))
        if after > _PAYS * before or after < _DONE * size:
            break
    amplitudes = state[0][: 2 * len(angular) * len(job.places)].reshape(-1, len(angular))
    energies = np.sum(np.square(amplitudes), axis=0)
    order = np.argsort(-energies, kind="stable")
    return angular[order], energies[order], float(np.linalg.norm(state[1])) / size


def locate(
    trials: Trials, candidates: np.ndarray, known: np.ndarray, temper: float, picks: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Waves (n, dim) and their energies: by pursuit, or (picks None) the strongest of a damped solve over all."""
    if picks is None:
        every = np.concatenate([known, candidates])[:_ALL]
        energies, _ = polish(trials, every, temper, 0)[1:]
        job = _Polisher(trials, len(every), temper)
        theta = job.linear(job.rows(every), _PRUNING)[0]
        energies = np.sum(np.square(theta[: 2 * len(every) * len(job.places)].reshape(-1, len(every))), axis=0)
        chosen = every[np.argsort(-energies, kind="stable")[:_PICKS]]
    else:
        chosen = np.concatenate([known, _Pursuit(trials, candidates, temper).more(known, picks)])
    waves, energies, _ = polish(trials, chosen, temper)
    while len(kept := _distinct(waves, energies)[0]) < len(waves):  # without the idle ones the others move freely
        waves, energies, _ = polish(trials, kept, temper)
    return waves, energies


def _distinct(waves: np.ndarray, energies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop the faint waves, and of two that are nearly the same the weaker."""
    kept: list[int] = []
    for index, wave in enumerate(waves):
        near = [min(np.linalg.norm(wave - waves[one]), np.linalg.norm(wave + waves[one])) for one in kept]
        if energies[index] > _FAINT * energies[0] and min(near, default=np.inf) > _SAME:
            kept.append(index)
    return waves[kept], energies[kept]


def candidates(trials: Trials, trial: Trial | None) -> np.ndarray:
    """Frequencies that what `trial` leaves points to, and some over all scales."""
    proposed = proposals(trials, trial)
    drawn = trials.draw(_RANDOM.get(trials.dimension, _MANY))
    if trials.dimension > max(_RANDOM):  # no spectra there: waves along one axis are the likeliest
        axes = trials.rng.integers(0, trials.dimension, len(drawn))
        alone = np.zeros_like(drawn)
        alone[np.arange(len(drawn)), axes] = np.abs(drawn[np.arange(len(drawn)), axes])
        drawn = np.concatenate([drawn, alone])
    if trial is None:
        trials.weigh(proposed if len(proposed) else drawn)
    return unsigned(np.concatenate([proposed, drawn]))
