"""Sets of frequencies: lattices around the waves that were found, and lattices in an ellipsoid around zero.

A wave times a smooth envelope (a decay, a slow change of amplitude) is spanned by a few frequencies very near to it:
the nearer, the fewer, as long as float64 tells them apart. A broad spectrum takes a lattice as wide as it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ifef.sampling import generator, sample
from ifef.spectra import unsigned
from ifef.trials import Trial, Trials

NEAR = 4.0
"""Period of the lattice around a wave, in sides of the box: of 1.25 to 4 the best (see docs/design.md)."""

_LEAST_PERIOD = 1.03  # a lattice repeats after its period, the box has to fit into it
_LATTICES = 3  # coordinates up to which frequencies are on lattices
_APART = 4.0  # waves nearer to each other share a lattice
_CLUSTERS = 12
_STRONG = 1e-12  # energy of a wave, relative to the strongest, below which it gets no lattice
_COUNTS = (5, 8, 11, 14, 17, 21)  # points of the lattice across an envelope
_HELPS = 0.7  # a wider lattice has to lower the held-out residual to this part of it
_DONE = 3e-14


def around(centres: np.ndarray, counts: tuple[int, ...], period: float = NEAR) -> np.ndarray:
    """Frequencies of a lattice in an ellipsoid around each centre, `counts` points across it along each axis."""
    spacing = math.pi / period
    radii = np.array([0.5 * count * spacing for count in counts])
    axes = [spacing * np.arange(-(count // 2), count // 2 + 1) for count in counts]
    offsets = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(counts))
    offsets = offsets[np.sum(np.square(offsets / radii), axis=1) <= 1.0 + 1e-9]
    near_zero = np.linalg.norm(centres, axis=1) < 1e-9
    halves = [unsigned(offsets) if zero else offsets for zero in near_zero]
    order = np.argsort(np.linalg.norm(np.concatenate(halves), axis=1), kind="stable")
    # Nearest first, so that the first part of them is a coarser set for the same waves.
    return np.concatenate([centre + half for centre, half in zip(centres, halves, strict=True)])[order]


def clusters(waves: np.ndarray, energies: np.ndarray) -> np.ndarray:
    """Centres of envelopes: zero, and the strongest waves that are apart from each other and from it."""
    centres = [np.zeros(waves.shape[1])]
    for wave, energy in zip(waves, energies, strict=True):
        far = min(min(np.linalg.norm(wave - one), np.linalg.norm(wave + one)) for one in centres) > _APART
        if far and energy > _STRONG * energies.max() and len(centres) <= _CLUSTERS:
            centres.append(wave)
    return np.array(centres)


def thicken(
    trials: Trials, waves: np.ndarray, energies: np.ndarray, most: int, going_on: Callable[[Trial], bool]
) -> Trial:
    """Give the waves envelopes, widened along the axis where it pays; the best trial by held-out residual."""
    centres = clusters(waves, energies)
    levels = [0] * trials.dimension

    def attempt(levels: list[int]) -> Trial | None:
        frequencies = np.concatenate([waves, around(centres, tuple(_COUNTS[level] for level in levels))])
        return None if trials.columns(frequencies) > most else trials.solve(frequencies)

    first = attempt(levels)
    if first is None:
        return trials.solve(waves)
    best = first
    centres = _needed(trials, best, centres)
    axes = [[int(index == axis) for index in range(trials.dimension)] for axis in range(trials.dimension)]
    while best.held_out > _DONE and going_on(best):
        for moves in (axes, [[1] * trials.dimension]):  # one axis at a time, or all where no single one pays
            wider = []
            for move in moves:
                tried = [level + more for level, more in zip(levels, move, strict=True)]
                if max(tried) < len(_COUNTS) and (found := attempt(tried)) is not None:
                    wider.append((found.held_out, len(wider), tried, found))
            if wider and min(wider)[0] <= _HELPS * best.held_out:
                break
        else:
            break
        _, _, levels, best = min(wider)
    return best


def _needed(trials: Trials, trial: Trial, centres: np.ndarray) -> np.ndarray:
    """Centres whose envelope carries anything: a wave that was found for want of a better one may carry nothing."""
    points = sample(trials.problem.domain.interior, 200, seed=7)
    low, high = np.array(trials.problem.domain.lows), np.array(trials.problem.domain.highs)
    angle = ((2.0 * points - low - high) / (high - low)) @ trial.frequencies.T
    table = np.stack([np.cos(angle), np.sin(angle)], axis=1) / math.sqrt(len(trial.frequencies))
    theta = trial.theta[trials.waves(len(trial.frequencies))]  # (components, 2, num)
    nearest = np.argmin(np.linalg.norm(np.abs(trial.frequencies[:, None] - centres[None]), axis=2), axis=1)
    sizes = []
    for index in range(len(centres)):
        mine = nearest == index
        sizes.append(np.linalg.norm(np.einsum("pan,ian->pi", table[:, :, mine], theta[:, :, mine])))
    sizes = np.array(sizes)
    kept = sizes > 0.01 * trial.held_out * sizes.max()
    kept[0] = True
    return centres[kept]


@dataclass(frozen=True)
class Shape:
    """An ellipsoid of frequencies: radii along the columns of `frame`, and how many frequencies are to lie in it."""

    radii: tuple[float, ...]
    num: int
    frame: tuple[tuple[float, ...], ...] | None = None

    def period(self) -> float:
        """Period of the lattice that has `num` points, of k and -k one, in the ellipsoid."""
        dimension = len(self.radii)
        ball = math.pi ** (0.5 * dimension) / math.gamma(0.5 * dimension + 1.0)
        return math.pi * (2.0 * self.num / (ball * math.prod(self.radii))) ** (1.0 / dimension)

    def frequencies(self) -> np.ndarray | None:
        """The lattice in the ellipsoid, from its middle outwards, or None where it would be too coarse for the box."""
        dimension = len(self.radii)
        frame = np.eye(dimension) if self.frame is None else np.array(self.frame)
        if dimension > _LATTICES:  # too few points for a lattice: as many at random
            rng = generator(0, "ball")
            inside = rng.normal(size=(self.num, dimension))
            inside *= (rng.random((self.num, 1)) ** (1.0 / dimension)) / np.linalg.norm(inside, axis=1, keepdims=True)
            angular = unsigned((inside * np.array(self.radii)) @ frame.T)
        else:
            period = self.period()
            if period < _LEAST_PERIOD:
                return None
            spacing = math.pi / period
            reach = np.sqrt(np.sum(np.square(frame * np.array(self.radii)), axis=1))  # along each axis
            axes = [spacing * np.arange(-int(far / spacing), int(far / spacing) + 1) for far in reach]
            lattice = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dimension)
            inside = np.sum(np.square(lattice @ frame / np.array(self.radii)), axis=1) <= 1.0 + 1e-9
            angular = unsigned(lattice[inside])
        return angular[np.argsort(np.linalg.norm(angular @ frame / np.array(self.radii), axis=1), kind="stable")]


_RADII = (5.0, 12.0, 30.0)
_FACTORS = {300: (1.6, 1.25), 600: (1.25,), 1200: (1.25,), 2400: (1.15,), 3200: (1.15,)}
"""Columns of each level, and factors of the moves that are tried there."""

_MOVES = {300: 14, 600: 8, 1200: 4, 2400: 2, 3200: 1}
_BLIND = 0.5  # held-out residual beyond which a level tells shapes from each other by chance
_REACHES = (1.5, 2.5)  # radii, in root mean squares of the frequencies of the waves that were found
_EQUAL = 2.0  # per-axis radii have to beat equal ones by this: they fit the points rather than the solution


def fill(
    trials: Trials, frame: np.ndarray | None, reach: np.ndarray, most: int, going_on: Callable[[Trial], bool]
) -> Iterator[Trial]:
    """Widen an ellipsoid, found by held-out residual, level by level; each level's best trial.

    `reach` are the root mean squares of the frequencies that were found, along the columns of `frame`.
    """
    best: tuple[Shape, Trial] | None = None
    turned = None if frame is None else tuple(map(tuple, frame))
    for columns in _FACTORS:
        if columns > most or (best is not None and not going_on(best[1])):
            return
        num = max(columns // trials.columns(np.zeros((1, trials.dimension))), 8)
        shapes = [Shape(tuple(reach * factor + 6.0), num, turned) for factor in _REACHES]
        found = _tuned(trials, shapes + _grown(trials.dimension, num, turned, best), columns, going_on)
        if found is None:
            continue
        yield found[1]
        if best is not None and found[1].held_out > _HELPS * best[1].held_out and columns > 1200:
            return
        if best is None or found[1].held_out < best[1].held_out:
            best = found


def _grown(dimension: int, num: int, frame: Any, best: tuple[Shape, Trial] | None) -> list[Shape]:
    """Shapes to begin a level with: a grid of radii at first, then the best one of the level before, scaled up."""
    if best is None:
        radii = itertools.product(_RADII, repeat=dimension) if dimension <= 2 else ((r,) * dimension for r in _RADII)
        return [Shape(tuple(one), num, frame) for one in radii]
    shape, growth = best[0], num / best[0].num
    powers = (1.0 / dimension, 0.0)
    grown = [Shape(tuple(r * growth**power for r in shape.radii), num, frame) for power in powers]
    mean = math.prod(grown[0].radii) ** (1.0 / dimension)
    return grown if max(shape.radii) < 1.3 * min(shape.radii) else [*grown, Shape((mean,) * dimension, num, frame)]


def _tuned(
    trials: Trials, shapes: list[Shape], columns: int, going_on: Callable[[Trial], bool]
) -> tuple[Shape, Trial] | None:
    """Best of the shapes, moved along one axis or all at once while that lowers the held-out residual."""
    tried = [(shape, found) for shape in shapes if (found := _solved(trials, shape)) is not None]
    if not tried:
        return None

    def cost(pair: tuple[Shape, Trial]) -> float:
        return pair[1].held_out * (_EQUAL if max(pair[0].radii) > 1.01 * min(pair[0].radii) else 1.0)

    best = min(tried, key=cost)
    left = _MOVES[columns] if best[1].held_out < _BLIND else 2
    axes = range(trials.dimension)
    moves = [tuple(True for _ in axes), *(tuple(index == axis for index in axes) for axis in axes)]
    for factor in _FACTORS[columns]:
        failed = 0
        for move in itertools.cycle(moves):
            if failed >= len(moves) or left <= 0 or not going_on(best[1]):
                break
            failed += 1
            for ratio in (factor, 1.0 / factor):
                radii = tuple(r * ratio if moved else r for r, moved in zip(best[0].radii, move, strict=True))
                moved = Shape(radii, best[0].num, best[0].frame)
                found = _solved(trials, moved)
                left -= found is not None
                if found is not None and cost((moved, found)) < 0.97 * cost(best):
                    best, failed = (moved, found), 0
                    break
    return best


def _solved(trials: Trials, shape: Shape) -> Trial | None:
    frequencies = shape.frequencies()
    return None if frequencies is None else trials.solve(frequencies)
