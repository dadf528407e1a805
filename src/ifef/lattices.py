"""Lattices of frequencies in a body around a centre, for spectra that are broad: found by held-out residual."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ifef.frequencies import HELPS
from ifef.sampling import generator
from ifef.spectra import unsigned
from ifef.trials import Trial

_LEAST_PERIOD = 1.03  # a lattice repeats after its period, the box has to fit into it
_MOST_PERIOD = 6.0  # nearer frequencies than this gives are one to float64
_EXCESS = 1.1  # of what a number asks for, by rounding the sides of a box
_LATTICES = 3  # coordinates up to which frequencies are on lattices


class Solver(Protocol):
    """Whatever solves over frequencies: on the inputs (`Trials`), or on the coordinates of spots."""

    @property
    def dimension(self) -> int:
        """Coordinates that the frequencies act on."""
        ...

    def columns(self, angular: np.ndarray) -> int:
        """Number of columns that these frequencies make."""
        ...

    def solve(self, angular: np.ndarray) -> Trial:
        """Solve with these frequencies, and judge on held-out points."""
        ...

    def energies(self, trial: Trial) -> np.ndarray:
        """Squared amplitudes by frequency."""
        ...


@dataclass(frozen=True)
class Shape:
    """A body of `num` frequencies with radii along the columns of `frame`, |k / radii|_power <= 1 about a centre.

    The power is 2 for an ellipsoid, 1 for a diamond (spectra that decay exponentially along each axis, as those of
    products do), infinite for a box. The lattice is that of
    the frame.
    """

    radii: tuple[float, ...]
    num: int
    frame: tuple[tuple[float, ...], ...] | None = None
    power: float = 2.0
    centre: tuple[float, ...] | None = None
    even: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is an ellipsoid about zero."""
        return self.power == 2.0 and self.centre is None

    def volume(self) -> float:
        """Volume of the body."""
        n, p = len(self.radii), self.power
        ball = 2.0**n if math.isinf(p) else (2.0 * math.gamma(1.0 + 1.0 / p)) ** n / math.gamma(1.0 + n / p)
        return ball * math.prod(self.radii)

    def periods(self) -> np.ndarray | None:
        """Periods of the lattice along each axis of the frame, in sides of the box, or None where too short for it.

        What does not end with a period is spanned the better the longer radius x (period - 1) is, so that this margin
        is the same along all axes, and short axes have long periods; or the periods are the same (`even`).
        """
        n, radii = len(self.radii), np.array(self.radii)
        radii = np.full(n, math.prod(self.radii) ** (1.0 / n)) if self.even else radii
        cells = (1.0 if self.centre is not None else 2.0) * self.num * math.pi**n / self.volume()

        def excess(margin: float) -> float:
            return float(np.sum(np.log1p(margin / radii)) - math.log(cells))

        low, high = 0.0, 1e4
        if excess(low) > 0:
            return None
        for _ in range(80):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if excess(middle) < 0 else (low, middle)
        periods = 1.0 + low / radii
        return None if periods.min() < _LEAST_PERIOD else np.minimum(periods, _MOST_PERIOD)

    def frequencies(self) -> np.ndarray | None:
        """The lattice in the body, from its middle outwards, or None where it would be too coarse for the box."""
        n, radii = len(self.radii), np.array(self.radii)
        frame = np.eye(n) if self.frame is None else np.array(self.frame)
        if n > _LATTICES:  # too few points for a lattice: as many at random
            rng = generator(0, "ball")
            inside = rng.normal(size=(self.num, n))
            inside *= radii * (rng.random((self.num, 1)) ** (1.0 / n)) / np.linalg.norm(inside, axis=1, keepdims=True)
        else:
            periods = self.periods()
            if periods is None:
                return None
            spacing = math.pi / (periods * np.sum(np.abs(frame), axis=0))  # a turned box is longer
            axes = [
                step * np.arange(-int(far / step), int(far / step) + 1)
                for far, step in zip(radii, spacing, strict=True)
            ]
            lattice = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, n)
            inside = lattice[self._sizes(lattice) <= 1.0 + 1e-9]
        inside = unsigned(inside) if self.centre is None else inside
        ordered = inside[np.argsort(self._sizes(inside), kind="stable")][: int(_EXCESS * self.num) + 1] @ frame.T
        return ordered if self.centre is None else ordered + np.array(self.centre)

    def _sizes(self, inside: np.ndarray) -> np.ndarray:
        return np.linalg.norm(inside / np.array(self.radii), ord=self.power, axis=1)


def widest(num: int, dimension: int, period: float, power: float = 2.0) -> float:
    """Radius, the same along all axes, of the body about zero whose lattice has this many points and this period."""
    unit = Shape((1.0,) * dimension, num, power=power)
    return math.pi * (2.0 * num / unit.volume()) ** (1.0 / dimension) / period


def about(waves: np.ndarray, energies: np.ndarray, num: int) -> list[Shape]:
    """Boxes about the mean of these waves, along their principal directions."""
    shares = energies / energies.sum()
    mean = shares @ waves
    variances, frame = np.linalg.eigh(np.einsum("n,ni,nj->ij", shares, waves - mean, waves - mean))
    spread, columns = np.sqrt(np.maximum(variances, 0.0)), tuple(map(tuple, frame))
    boxes = []
    for factor, more in _AROUND:
        box = Shape(tuple(spread * factor + more), num, columns, math.inf, tuple(mean))
        most = num * (math.pi / _TIGHT) ** len(mean) / box.volume()  # of the volume, for these to be near enough
        shrunk = min(most, 1.0) ** (1.0 / len(mean))
        box = replace(box, radii=tuple(r * shrunk for r in box.radii))
        boxes += [box, replace(box, even=True)]
    return boxes


_AROUND = ((1.7, 3.0), (1.7, 6.0), (2.2, 6.0))  # radii of boxes in deviations, and more
_TIGHT = 1.1  # least period of a box, on an average over its axes
_TRUSTED = 1e4  # size of the amplitudes up to which they are no cancelling ones
_REFITTED = 1200  # columns up to which the amplitudes of one level say where the next one's box is
_FACTORS = {300: (1.6, 1.25), 600: (1.25,), 1200: (1.25,), 2400: (1.15,), 3200: (1.15,)}
"""Columns of each level, and factors of the moves that are tried there."""

_MOVES = {300: 14, 600: 8, 1200: 4, 2400: 2, 3200: 1}
_ENOUGH = 2e-12  # held-out residual at which the next level would cost more than the digit that it may gain
_FAST = 0.01  # part of the last level's held-out residual that is good enough to go up another level
_SURE = 3  # shapes that are tried of many columns when few have shown nothing: those of the waves' own reach
_BLIND = 0.5  # held-out residual beyond which a level tells shapes from each other by chance
_VAGUE = 0.05  # the same of a body whose centre has to be found too
_EQUAL = 2.0  # per-axis radii have to beat equal ones by this: they fit the points rather than the solution


def fill(
    trials: Solver,
    first: Callable[[int], list[Shape]],
    most: int,
    going_on: Callable[[Trial], bool],
    levels: tuple[int, ...] = tuple(_FACTORS),
) -> Iterator[Trial]:
    """Widen a body of frequencies, found by held-out residual, level by level; each level's best trial.

    Where a level lowers the residual fast, as far as it was tried, the next one is worth more than tuning it.

    `first` makes the shapes to begin with, of a number of frequencies; later levels scale up the best one.
    """
    best: tuple[Shape, Trial] | None = None
    alone = trials.columns(np.zeros((1, trials.dimension)))
    for columns in levels:
        if columns > most or (best is not None and (best[1].held_out < _ENOUGH or not going_on(best[1]))):
            return
        num = max(columns // alone, 8)
        before = math.inf if best is None else best[1].held_out
        vague = _BLIND if best is None or best[0].centre is None else _VAGUE
        if best is None or before > vague:  # nothing to learn from yet
            shapes = first(num) if columns <= (600 if vague == _BLIND else 1200) else first(num)[:_SURE]
        else:
            shapes = _grown(num, best)

        def poor(trial: Trial, fast: float = _FAST * min(before, 1.0)) -> bool:
            return trial.held_out > fast and going_on(trial)

        found = _tuned(trials, shapes, columns, poor)
        if found is None:
            continue
        if found[0].centre is not None and columns <= _REFITTED and found[1].norm < _TRUSTED and poor(found[1]):
            better = _tuned(trials, about(found[1].frequencies, trials.energies(found[1]), num), columns, poor)
            found = better if better is not None and better[1].held_out < found[1].held_out else found
        yield found[1]
        if before < _BLIND and found[1].held_out > HELPS * before and columns > 1200:
            return
        if found[1].held_out < before:
            best = found


def _grown(num: int, best: tuple[Shape, Trial]) -> list[Shape]:
    """Shapes to begin a level with: the best one of the level before, scaled up."""
    shape, growth, n = best[0], num / best[0].num, len(best[0].radii)
    grown = [replace(shape, radii=tuple(r * growth**power for r in shape.radii), num=num) for power in (1.0 / n, 0.0)]
    grown += [replace(grown[0], even=not shape.even)] if max(shape.radii) > 1.3 * min(shape.radii) else []
    mean = math.prod(grown[0].radii) ** (1.0 / n)
    if max(shape.radii) < 1.3 * min(shape.radii):
        return grown
    if not shape.plain:  # a body that is long by nature may have to grow along one axis alone
        longest = max(shape.radii)
        return [*grown, replace(grown[1], radii=tuple(r * (growth if r == longest else 1.0) for r in shape.radii))]
    return [*grown, replace(grown[0], radii=(mean,) * n)]


def _tuned(
    trials: Solver, shapes: list[Shape], columns: int, going_on: Callable[[Trial], bool]
) -> tuple[Shape, Trial] | None:
    """Best of the shapes, moved along one axis or all at once while that lowers the held-out residual."""
    tried = []
    for shape in shapes:
        if (found := _solved(trials, shape)) is not None:
            tried.append((shape, found))
            if not going_on(found):
                break
    if not tried:
        return None

    def cost(pair: tuple[Shape, Trial]) -> float:
        unequal = pair[0].plain and max(pair[0].radii) > 1.01 * min(pair[0].radii)
        return pair[1].held_out * (_EQUAL if unequal else 1.0)

    best = min(tried, key=cost)
    left = _MOVES[columns] if best[1].held_out < _BLIND else 2
    for factor in _FACTORS[columns]:
        failed, kinds = 0, trials.dimension + 1 + (0 if best[0].centre is None else trials.dimension)
        for kind in itertools.cycle(range(kinds)):
            if failed >= kinds or left <= 0 or not going_on(best[1]):
                break
            failed += 1
            for ratio in (factor, 1.0 / factor):
                moved = _moved(best[0], kind, ratio)
                found = _solved(trials, moved)
                left -= found is not None
                if found is not None and cost((moved, found)) < 0.97 * cost(best):
                    best, failed = (moved, found), 0
                    break
    return best


def _moved(shape: Shape, kind: int, ratio: float) -> Shape:
    """The shape with one radius, or all of them, times a ratio; or its centre moved along one axis."""
    n = len(shape.radii)
    if kind <= n:
        radii = tuple(r * (ratio if kind in (n, axis) else 1.0) for axis, r in enumerate(shape.radii))
        return replace(shape, radii=radii)
    axis, frame = kind - n - 1, np.eye(n) if shape.frame is None else np.array(shape.frame)
    step = (ratio - 1.0) * shape.radii[axis] * frame[:, axis]
    return replace(shape, centre=tuple(np.array(shape.centre) + step))


def _solved(trials: Solver, shape: Shape) -> Trial | None:
    frequencies = shape.frequencies()
    return None if frequencies is None else trials.solve(frequencies)
