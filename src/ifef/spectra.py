"""Where the frequencies of a solution may be: peaks in the spectrum of what is left, on every face and inside.

A source shows the frequencies of the solution itself. Data on a face show those along the face; the one across it is
then where a wave leaves the least in the equations (for a constant-coefficient equation, its dispersion relation).
"""

from __future__ import annotations

import numpy as np

from ifef.assembly import Data
from ifef.domain import Face
from ifef.tiles import rows_of
from ifef.trials import Trial, Trials

_SIDE = {1: 1024, 2: 192, 3: 40}  # points a side of the grids that spectra are taken on
_TAPER = 10.0  # Kaiser's beta: leakage below 1e-7, at the price of peaks two bins wide
_FAINT, _BROAD = 1e-7, 1e-3  # parts of the strongest: of a peak, and of what counts as a broad spectrum
_NUM = 24  # peaks of one face
_ACROSS = np.arange(-300.0, 301.0)  # frequencies that are tried across a face
_LEFT = 4  # of them, how many are kept for each along it
_PROBES = 32  # points at which waves are tried in the equations


def peaks(values: np.ndarray, num: int = _NUM) -> np.ndarray:
    """Angular frequencies (n, m), on [-1, 1]^m, of the strongest peaks in the spectrum of values on a grid.

    Between them stand samples of the spectrum where it is strong: a broad one has no peaks but at zero.
    """
    dimension, side = values.ndim, values.shape[0]
    taper = np.kaiser(side, _TAPER)
    for axis in range(dimension):
        values = values * taper.reshape([-1 if index == axis else 1 for index in range(dimension)])
    length = 2 * side
    sizes = np.abs(np.fft.fftn(values, [length] * dimension, range(dimension)))
    highest = np.ones(sizes.shape, dtype=bool)
    for axis in range(dimension):
        for step in (-2, -1, 1, 2):
            highest &= sizes >= np.roll(sizes, step, axis)
    strongest = sizes.max(initial=0.0)
    coarse = np.zeros(sizes.shape, dtype=bool)
    coarse[(slice(None, None, 2),) * dimension] = True
    parts = []
    for chosen in (highest & (sizes > _FAINT * strongest), coarse & (sizes > _BROAD * strongest)):
        places = np.argwhere(chosen)[np.argsort(-sizes[chosen], kind="stable")]
        parts.append(unsigned(2.0 * np.pi * np.fft.fftfreq(length, d=2.0 / (side - 1))[places])[:num])
    least = min(map(len, parts))
    mixed = np.stack([part[:least] for part in parts], axis=1).reshape(-1, dimension)
    return np.concatenate([mixed, *(part[least:] for part in parts)])


def unsigned(angular: np.ndarray) -> np.ndarray:
    """Of k and -k, which make the same waves, keep the one whose first entry that is not zero is positive."""
    first = np.argmax(np.abs(angular) > 1e-9, axis=1)
    sign = np.where(angular[np.arange(len(angular)), first] < 0, -1.0, 1.0)
    turned = angular * sign[:, None]
    _, order = np.unique(np.round(turned, 6), axis=0, return_index=True)
    return turned[np.sort(order)]


def proposals(trials: Trials, trial: Trial | None) -> np.ndarray:
    """Frequencies (n, dim) that what `trial` leaves points to."""
    found = [np.zeros((0, trials.dimension))]
    names = trials.problem.domain.names
    for key, condition in trials.problem.conditions.items():
        for face in condition.region.pieces:
            if not isinstance(face, Face) or face.dimension not in _SIDE:
                continue
            free = [names.index(name) for name in face.free]
            along = np.zeros((0, trials.dimension))
            values = _on_grid(trials, key, face, trial)
            if np.sqrt(trials.weights[key] * np.mean(np.abs(values) ** 2)) > 1e-13:
                some = peaks(values)
                along = np.zeros((len(some), trials.dimension))
                along[:, free] = some
            found.append(along)
            for axis in set(range(trials.dimension)) - set(free):
                found.append(_across(trials, along[:_NUM], axis))
    return np.concatenate(found)


def _on_grid(trials: Trials, key: str, face: Face, trial: Trial | None) -> np.ndarray:
    side = _SIDE[face.dimension] if trial is None else _SIDE[face.dimension] // 2
    axes = np.meshgrid(*[np.linspace(0.0, 1.0, side)] * face.dimension, indexing="ij")
    points = face.place(np.stack([axis.reshape(-1) for axis in axes], axis=1))
    return trials.left(key, points, trial).reshape([side] * face.dimension)


def _across(trials: Trials, along: np.ndarray, axis: int) -> np.ndarray:
    """Complete frequencies along a face by those across it with which waves leave least in the equations."""
    if not len(along):
        return along
    tried = np.repeat(along, len(_ACROSS), axis=0)
    tried[:, axis] = np.tile(_ACROSS, len(along))
    least = np.sqrt(np.maximum(_misfits(trials, tried), 0.0)).reshape(len(along), -1)
    found = []
    for wave, sizes in zip(along, least, strict=True):
        lower = (sizes <= np.roll(sizes, 1)) & (sizes <= np.roll(sizes, -1))
        places = np.flatnonzero(lower)
        for place in places[np.argsort(sizes[places], kind="stable")][:_LEFT]:
            shift = 0.0
            if 0 < place < len(sizes) - 1:  # where a parabola through the squares has its minimum
                before, here, after = np.square(sizes[place - 1 : place + 2])
                bend = before - 2.0 * here + after
                shift = 0.5 * (before - after) / bend if bend > 0 else 0.0
            complete = wave.copy()
            complete[axis] = _ACROSS[place] + np.clip(shift, -1.0, 1.0)
            found.append(complete)
    return np.array(found)


def _misfits(trials: Trials, angular: np.ndarray) -> np.ndarray:
    """Least that a wave of each frequency, with any amplitudes of the unknowns, leaves in the equations."""
    few, features = trials.few, trials.features(angular)
    gram: np.ndarray | None = None
    for key in few.equations:
        part = {key: few.points[key][:_PROBES]}, {key: few.targets[key][:_PROBES]}
        data = Data(few.problem, few.equations, {key: few.operators[key]}, *part)
        rows = np.sqrt(trials.weights[key]) * rows_of(features, data, key)
        waves = rows[:, trials.waves(len(angular))].reshape(len(rows), -1, len(angular))
        products = np.einsum("pin,pjn->nij", waves, waves)
        gram = products if gram is None else gram + products
    return np.zeros(len(angular)) if gram is None else np.linalg.eigvalsh(gram)[:, 0]
