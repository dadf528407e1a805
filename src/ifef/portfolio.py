"""The order in which bases are tried on a linear problem: waves alone, waves with envelopes, broad lattices."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np

from ifef.assembly import cast
from ifef.backbones import Identity
from ifef.frequencies import around, clusters, thicken
from ifef.lattices import Shape, about, fill
from ifef.localise import find_spots, localised
from ifef.lower import LeastSquares
from ifef.sampling import sample
from ifef.search import candidates, locate
from ifef.tiles import system_of, values_of
from ifef.trials import Trial, Trials
from ifef.verdict import coarse_columns, is_undetermined, stability

_PICKS = (6, 24, 12)  # waves to pick: a few are found at once, many need the others
_TEMPERS = (100.0, 1.0)
"""Factors of the equations against the data. Where only data have a target, equations have to pull first, or waves that
satisfy none of them are found; where there is a source, both together."""

_PICKS_DRAWN = (8, 6, 12, 8, 24)
"""The same in many dimensions, where candidates are drawn, and drawn anew each time."""

_NEAR, _TRIED = 1e-13, 2  # held-out residual over the narrowest envelopes at which no other waves are looked for
_WAVES_DO = 1e-12  # held-out residual at which waves alone are the answer
_UNLIKE = 0.1  # held-out residual over a few waves beyond which the source may sit at a few spots
_NARROW = 3e-2  # held-out residual over the narrowest envelopes beyond which the spectrum is taken for broad
_ENVELOPES = 3  # coordinates up to which waves are given envelopes
_RADII = (5.0, 12.0, 30.0)
_REACHES = (1.5, 2.5)  # radii, in root mean squares of the frequencies of the waves that were found
_RING = 1.05  # radius, in root mean squares of their lengths, of a ball: where waves have one length in all directions
_OFFSET = 1.5  # distance of the waves' mean from zero, in their deviations, from which a body about it is tried
_APART, _KINDS = 3.0, 5  # distance of means from which bodies about them are two, and kinds of bodies in all
_BLIND, _FOLLOWED = 0.5, 2  # held-out residual that says nothing of a kind, and kinds that are followed to their end
_OBLIQUE = 3.0  # ratio of the reaches of the located waves from which a turned frame is tried
_PAYS, _NEARLY = 1e-11, 3.0  # held-out residual of envelopes at which no broad lattice is tried; or in roundings of it

_SMOOTH = {1: 14, 2: 11, 3: 6}  # points across the lattice of smooth functions, by dimension
_GROWTH = 8.0  # of the response there from fewer to more columns: up to 4 where the conditions do, from 27 where not
_OWN = 100  # of the solution's frequencies that join them


def bases(trials: Trials, most: int, going_on: Callable[[Trial], bool]) -> Iterator[Trial]:
    """Trials of one basis after the other, of at most `most` columns, while `going_on`."""
    found: list[tuple[float, np.ndarray, np.ndarray]] = []
    proposed = candidates(trials, None)
    none, least = np.zeros((0, trials.dimension)), np.inf
    driven = any(np.any(np.asarray(trials.few.targets[key])) for key in trials.few.equations)
    tempers = sorted(_TEMPERS, reverse=not driven)
    for picks, temper in itertools.product(_PICKS if trials.dimension <= _ENVELOPES else _PICKS_DRAWN, tempers):
        if found and trials.dimension > _ENVELOPES:
            proposed = candidates(trials, None)
        waves, energies = locate(trials, proposed, none, temper, min(picks, max(most // 16, 1)))
        alone = trials.solve(waves)
        yield alone
        if alone.held_out < _WAVES_DO or not going_on(alone):
            return
        thick = alone
        if trials.dimension <= _ENVELOPES:
            near = np.concatenate([waves, around(clusters(waves, energies), (5,) * trials.dimension)])
            if trials.columns(near) <= most:
                thick = trials.solve(near)
                yield thick
        if not found and driven and thick.held_out > _UNLIKE:
            where = find_spots(trials) if trials.dimension <= _ENVELOPES else []
            for local in localised(trials, where, most, going_on) if where else ():
                yield local
                if not going_on(local):
                    return
                least = min(least, local.held_out)
            if least < _PAYS:
                return
        found.append((thick.held_out, waves, energies))
        if thick.held_out < _NEAR:
            break
    found.sort(key=lambda one: one[0])
    if trials.dimension <= _ENVELOPES and found[0][0] < _NARROW:
        least, enough = np.inf, _PAYS
        # Waves that were picked otherwise may lack what these lack not.
        for _, waves, energies in found[:_TRIED]:
            thick = thicken(trials, waves, energies, most, going_on)
            yield thick
            least, enough = min(least, thick.held_out), max(_PAYS, _NEARLY * thick.rounding)
            if least < _WAVES_DO or not going_on(thick):
                return
        if least < enough:
            return
    yield from _broad(trials, [one[1:] for one in found], most, going_on)


def _broad(
    trials: Trials, found: list[tuple[np.ndarray, np.ndarray]], most: int, going_on: Callable[[Trial], bool]
) -> Iterator[Trial]:
    """Lattices in bodies of several kinds: a first level of each, then the best one goes on; others where it fails."""
    kinds = [fill(trials, first, most, going_on) for first in shapes_of(found)]
    begun = []
    for index, kind in enumerate(kinds):
        if (first := next(kind, None)) is not None:
            yield first
            # Where none has seen the solution, the plain one, which is the first, is the least arbitrary.
            begun.append((min(first.held_out, _BLIND), index))
    for _, index in sorted(begun)[:_FOLLOWED]:
        least = np.inf
        for trial in kinds[index]:
            yield trial
            least = min(least, trial.held_out)
        if least < _NARROW:
            return


def shapes_of(found: list[tuple[np.ndarray, np.ndarray]]) -> list[Callable[[int], list[Shape]]]:
    """Bodies to begin with, by kind: along the axes, along the waves' own directions, and about their mean."""
    waves, energies = found[0]
    n, shares = waves.shape[1], energies / energies.sum()
    reach = np.sqrt(shares @ np.square(waves))
    spread, frame = np.linalg.eigh(np.einsum("n,ni,nj->ij", shares, waves, waves))
    turned = np.sqrt(np.maximum(spread, 0.0))
    grid = [(r,) * n for r in _RADII] if n > 2 else list(itertools.product(_RADII, repeat=n))

    def bodies(reach: np.ndarray, frame: np.ndarray | None, num: int) -> list[Shape]:
        columns = None if frame is None else tuple(map(tuple, frame))
        ring = (_RING * np.linalg.norm(reach) + 6.0,) * n
        radii = [ring, *(tuple(reach * factor + 6.0) for factor in _REACHES), *grid]
        return [Shape(one, num, columns) for one in radii]

    kinds = [functools.partial(bodies, reach, None)]
    if turned.max() > _OBLIQUE * max(turned.min(), 1.0) and np.max(np.abs(frame), axis=0).min() < 0.98:
        kinds.append(functools.partial(bodies, turned, frame))
    means: list[np.ndarray] = []
    for waves, energies in found:  # what is picked otherwise lies elsewhere
        mean, facing = _mean(waves, energies)
        if mean is not None and min((np.linalg.norm(mean - one) for one in means), default=np.inf) > _APART:
            means.append(mean)
            kinds.append(functools.partial(about, facing, energies))
    return kinds[:_KINDS]


def _mean(waves: np.ndarray, energies: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Mean of the waves, each of k and -k turned to the main direction, where it is off zero; and those."""
    shares = energies / energies.sum()
    main = np.linalg.eigh(np.einsum("n,ni,nj->ij", shares, waves, waves))[1][:, -1]
    facing = waves * np.where(waves @ main < 0, -1.0, 1.0)[:, None]
    mean = shares @ facing
    off = np.linalg.norm(mean) > _OFFSET * np.sqrt(np.sum(shares @ np.square(facing - mean)))
    return (mean if off else None), facing


def undetermined(trials: Trials, best: Trial) -> bool:
    """Whether something smooth could be added to the solution that no condition would notice.

    Asked in a space beside the solution's own: over the few waves of a solution even half of the conditions are enough.
    """
    own = best.frequencies[:_OWN] if isinstance(best.features.backbone, Identity) else np.zeros((0, trials.dimension))
    fine, coarse = response(trials, LeastSquares(), own)
    return is_undetermined(fine, coarse, growth=_GROWTH)


def response(trials: Trials, lower: LeastSquares, waves: np.ndarray) -> tuple[float, float]:
    """Response to a residual over some waves and smooth functions, and over fewer of the latter."""
    counts = (_SMOOTH.get(trials.dimension, 3),) * trials.dimension
    frequencies = np.concatenate([waves, around(np.zeros((1, trials.dimension)), counts)])
    features = trials.features(frequencies)
    # In float32 rounding would hide what is undetermined; the space is small.
    train = cast(trials.points(trials.columns(frequencies))[0], np.float64)
    summary = lower.first(system_of(features, train, trials.scales(train)))
    points = sample(trials.problem.domain.interior, 200, seed=99)
    tables = values_of(features, trials.problem.unknowns, points)
    keep = coarse_columns(features, trials.problem)
    fewer = [table[:, keep] for table in tables]
    return stability(lower, summary, tables), stability(lower, lower.restrict(summary, keep), fewer)
