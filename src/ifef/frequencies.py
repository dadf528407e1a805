"""Frequencies near to waves that were found: lattices around each of them.

A wave times a smooth envelope (a decay, a slow change of amplitude) is spanned by a few frequencies very near to it:
the nearer, the fewer, as long as float64 tells them apart. A broad spectrum takes a lattice as wide as it (`lattices`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ifef.sampling import sample
from ifef.spectra import unsigned
from ifef.trials import Trial, Trials

NEAR = 4.0
"""Period of the lattice around a wave, in sides of the box: of 1.25 to 4 the best (see docs/design.md)."""

_APART = 4.0  # waves nearer to each other share a lattice
_CLUSTERS = 12
_STRONG = 1e-12  # energy of a wave, relative to the strongest, below which it gets no lattice
_COUNTS = (5, 8, 11, 14, 17, 21)  # points of the lattice across an envelope
HELPS = 0.7  # a wider lattice has to lower the held-out residual to this part of it
_DONE = 3e-14
_MANY, _SLOW = 1000, 1e-6  # columns at which envelopes that leave more than this are given up


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
        if trials.columns_of(best.features) > _MANY and best.held_out > _SLOW:
            break  # no envelopes of a few waves: a broad spectrum takes fewer columns
        for moves in (axes, [[1] * trials.dimension]):  # one axis at a time, or all where no single one pays
            wider = []
            for move in moves:
                tried = [level + more for level, more in zip(levels, move, strict=True)]
                if max(tried) < len(_COUNTS) and (found := attempt(tried)) is not None:
                    wider.append((found.held_out, len(wider), tried, found))
            if wider and min(wider)[0] <= HELPS * best.held_out:
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
