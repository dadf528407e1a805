"""The order in which bases are tried on a linear problem: waves alone, waves with envelopes, broad lattices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from ifef.assembly import cast
from ifef.frequencies import around, clusters, fill, thicken
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
_NARROW = 3e-2  # held-out residual over the narrowest envelopes beyond which the spectrum is taken for broad
_ENVELOPES = 3  # coordinates up to which waves are given envelopes
_OBLIQUE = 3.0  # ratio of the reaches of the located waves from which a turned frame is tried
_PAYS, _NEARLY = 1e-9, 3.0  # held-out residual of envelopes at which no broad lattice is tried; or in roundings of it

_SMOOTH = {1: 14, 2: 11, 3: 6}  # points across the lattice of smooth functions, by dimension
_GROWTH = 8.0  # of the response there from fewer to more columns: up to 4 where the conditions do, from 27 where not
_OWN = 100  # of the solution's frequencies that join them


def bases(trials: Trials, most: int, going_on: Callable[[Trial], bool]) -> Iterator[Trial]:
    """Trials of one basis after the other, of at most `most` columns, while `going_on`."""
    found: list[tuple[float, np.ndarray, np.ndarray]] = []
    proposed = candidates(trials, None)
    none = np.zeros((0, trials.dimension))
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
    _, waves, energies = found[0]
    yield from _broad(trials, waves, energies, most, going_on)


def _broad(
    trials: Trials, waves: np.ndarray, energies: np.ndarray, most: int, going_on: Callable[[Trial], bool]
) -> Iterator[Trial]:
    """Lattices in an ellipsoid along the axes and, where the waves lie in oblique directions, along those."""
    shares = energies / energies.sum()
    reach = np.sqrt(shares @ np.square(waves))
    spread, frame = np.linalg.eigh(np.einsum("n,ni,nj->ij", shares, waves, waves))
    turned = np.sqrt(np.maximum(spread, 0.0))
    straight = fill(trials, None, reach, most, going_on)
    if turned.max() < _OBLIQUE * max(turned.min(), 1.0) or np.max(np.abs(frame), axis=0).min() > 0.98:
        yield from straight
        return
    oblique = fill(trials, frame, turned, most, going_on)
    one, other = next(straight, None), next(oblique, None)
    yield from (trial for trial in (one, other) if trial is not None)
    better = other is not None and (one is None or other.held_out < one.held_out)
    yield from oblique if better else straight


def undetermined(trials: Trials, best: Trial) -> bool:
    """Whether something smooth could be added to the solution that no condition would notice.

    Asked in a space beside the solution's own: over the few waves of a solution even half of the conditions are enough.
    """
    fine, coarse = response(trials, LeastSquares(), best.frequencies[:_OWN])
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
