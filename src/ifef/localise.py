"""Bases that are fine where the right-hand side sits: on coordinates stretched there, or under windows.

A narrow peak or layer has a broad spectrum, which a lattice of plane waves pays for everywhere. In coordinates that are
stretched at it (asinh), or under a window as wide as it, a small lattice is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ifef.backbones import Spots, spots
from ifef.features import FourierFeatures
from ifef.lattices import Shape, Solver, fill, widest
from ifef.sampling import sample
from ifef.trials import Trial, Trials

Spot = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Centre (n,) in the box scaled to [-1, 1], frame (n, n) of columns, and standard deviations (n,) along them."""

_PROBES = 6000  # points that energy is measured at
_MOST = 4  # spots
_LEFT = 1e-2  # part of the energy outside of the spots beyond which it sits nowhere in particular
_NARROW = 0.2  # standard deviation along an axis up to which the spot is narrow there (evenly spread: 0.58)
_ENOUGH = 3e-4  # part of the energy that is worth a spot of its own
_FIRST = 12  # points that a spot begins with
_AROUND = 0.02  # part of a spot's energy that may lie in the ring around it
_REACH = 4.0  # standard deviations that belong to a spot
_WIDTHS = ((False, 1.5), (False, 4.0), (True, 3.0))  # bell or not, and widths in standard deviations
_ACROSS, _MARGIN = 5.0, 12.0  # radius along straight axes to begin with, and the margin that periods leave
_SEEN = 0.5  # held-out residual of the first level beyond which it is left at that
_SMOOTH = 150  # frequencies of the inputs that join windows, which are zero away from their spots


def find_spots(trials: Trials) -> list[Spot]:
    """Where the right-hand side of the equations sits; none where it sits everywhere."""
    domain = trials.problem.domain
    low, high = np.array(domain.lows), np.array(domain.highs)

    def energy(points: np.ndarray) -> np.ndarray:
        places, total = low + 0.5 * (points + 1.0) * (high - low), np.zeros(len(points))
        for key in trials.few.equations:
            total += trials.weights[key] * np.abs(trials.left(key, places, None)) ** 2
        return total

    points = 2.0 * (sample(domain.interior, _PROBES, seed=trials.seed + 5) - low) / (high - low) - 1.0
    return [_zoomed(energy, spot, trials) for spot in clustered(points, energy(points))]


def _zoomed(energy: Callable[[np.ndarray], np.ndarray], spot: Spot, trials: Trials) -> Spot:
    """The same spot, measured at as many points of its own."""
    centre, frame, deviations = spot
    points = centre + (trials.rng.uniform(-_REACH, _REACH, (_PROBES // 2, len(centre))) * deviations) @ frame.T
    points = points[np.all(np.abs(points) <= 1.0, axis=1)]
    values = energy(points)
    return _moments(points, values) if values.sum() > 0 else spot


def clustered(points: np.ndarray, energy: np.ndarray) -> list[Spot]:
    """Spots of an energy at points (num, n), strongest point first; none unless they hold nearly all of it."""
    total, left, found = energy.sum(), energy.copy(), []
    while len(found) < _MOST and left.sum() > _ENOUGH * total:
        near = _isolated(points, left)
        spot = _moments(points[near], left[near])
        left[np.linalg.norm((points - spot[0]) @ spot[1] / spot[2], axis=1) < 2.0 * _REACH] = 0.0
        left[near] = 0.0
        if spot[2].min() > _NARROW:
            break
        found.append(spot)
    return found if left.sum() < _LEFT * total else []


def _isolated(points: np.ndarray, energy: np.ndarray) -> np.ndarray:
    """Points of the smallest ball about the strongest one that has next to nothing around it."""
    centre = points[np.argmax(energy)]
    distances = np.linalg.norm(points - centre, axis=1)
    for radius in np.geomspace(np.sort(distances)[_FIRST], distances.max(), 12):
        inside = distances <= radius
        held = energy[inside].sum()
        if energy[distances <= 2.0 * radius].sum() < (1.0 + _AROUND) * held:
            return inside
        centre = energy[inside] @ points[inside] / held
        distances = np.linalg.norm(points - centre, axis=1)
    return np.ones(len(points), dtype=bool)


def _moments(points: np.ndarray, energy: np.ndarray) -> Spot:
    """Mean of an energy, and standard deviations along its principal directions."""
    shares = energy / energy.sum()
    centre = shares @ points
    offsets = points - centre
    variances, frame = np.linalg.eigh(np.einsum("p,pi,pj->ij", shares, offsets, offsets))
    return centre, frame, np.sqrt(np.maximum(variances, 1e-12))


@dataclass(frozen=True)
class Local(Solver):
    """Solves over the same lattice in the coordinates of every spot, and a few frequencies of the inputs."""

    trials: Trials
    backbone: Spots
    inputs: np.ndarray

    @property
    def dimension(self) -> int:
        """Coordinates of a spot."""
        return self.trials.dimension

    def columns(self, angular: np.ndarray) -> int:
        """Number of columns that these frequencies make at all spots."""
        return self.trials.columns(angular) * len(self.backbone.bells)

    def solve(self, angular: np.ndarray) -> Trial:
        """Solve with these frequencies at every spot."""
        return self.trials.solve_over(self.features(angular))

    def energies(self, trial: Trial) -> np.ndarray:
        """Squared amplitudes by frequency, of all spots."""
        return self.trials.energies(trial)

    def features(self, angular: np.ndarray) -> FourierFeatures:
        """Features of these frequencies at every spot, the innermost of all spots first."""
        parts = [self.backbone.place(index, angular) for index in range(len(self.backbone.bells))]
        ranks = [np.arange(len(angular)) / max(len(angular), 1)] * len(parts)
        if len(self.inputs):
            parts.append(self.backbone.place(-1, self.inputs))
            ranks.append(np.arange(len(self.inputs)) / len(self.inputs))
        order = np.argsort(np.concatenate(ranks), kind="stable")
        frequencies, decays = (np.concatenate([part[which] for part in parts])[order] for which in (0, 1))
        problem, windows = self.trials.problem, decays if any(self.backbone.bells) else None
        waves = frequencies / (2.0 * np.pi)
        return FourierFeatures(self.backbone, problem.domain, waves, False, problem.basis, None, windows)


def localised(trials: Trials, where: list[Spot], most: int, going_on: Callable[[Trial], bool]) -> Iterator[Trial]:
    """Trials over bases that are fine at the spots, level by level, as long as any of them has seen the solution."""
    n = trials.dimension
    num = max(300 // (len(where) * trials.columns(np.zeros((1, n)))), 8)
    tried: list[tuple[float, int, Local, Shape]] = []
    for bell, factor in _WIDTHS:
        widths = [np.where(spot[2] > _NARROW, np.inf, factor * spot[2]) for spot in where]
        backbone = spots([(c, f, w) for (c, f, _), w in zip(where, widths, strict=True)], bell=bell)
        straight = np.all([np.isinf(one) for one in widths], axis=0)
        smooth = Shape((widest(_SMOOTH, n, 1.1),) * n, _SMOOTH).frequencies() if bell else None
        local = Local(trials, backbone, np.zeros((0, n)) if smooth is None else smooth)
        for shape in _begun(num, straight, bell):
            frequencies = shape.frequencies()
            if frequencies is None:
                continue
            trial = local.solve(frequencies)
            tried.append((trial.held_out, len(tried), local, shape))
            yield trial
    least, _, local, _ = min(tried)
    if least < _SEEN:
        shapes = [shape for _, _, one, shape in sorted(tried)[:3] if one is local]
        levels = (600, 1200, 2400, 3200)
        yield from fill(local, lambda num: [_as_many(shape, num) for shape in shapes], most, going_on, levels)


def _begun(num: int, straight: np.ndarray, bell: bool) -> list[Shape]:
    """Shapes to begin with: short along straight axes, else as wide as the period allows."""
    n, found = len(straight), []
    for power, margin in ((2.0, 0.06),) if bell else ((1.0, 0.06), (1.0, 0.3), (2.0, 0.3)):
        widest_one = widest(num, n, 1.0 + margin, power)
        if straight.any():
            # Half of the points go along the straight axes, whose periods are long.
            widest_one = widest(num, n, 1.0, power) ** n
            long = int(np.sum(~straight))
            widest_one = (widest_one / (_ACROSS + _MARGIN) ** (n - long)) ** (1.0 / long) - (0.0 if bell else _MARGIN)
        found.append(Shape(tuple(np.where(straight, _ACROSS, max(widest_one, _ACROSS))), num, power=power))
    return found


def _as_many(shape: Shape, num: int) -> Shape:
    growth = (num / shape.num) ** (1.0 / len(shape.radii))
    return Shape(tuple(r * growth for r in shape.radii), num, power=shape.power)
