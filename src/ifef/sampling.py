"""Points of a region: grid, uniform, Latin hypercube, Sobol; by seed, repeatable, always inside."""

from __future__ import annotations

import zlib
from typing import Literal, get_args

import numpy as np

from ifef.domain import Cloud, Face, Region, shown

Sampler = Literal["grid", "uniform", "latin", "sobol"]

# Primitive polynomials and initial direction numbers of Joe and Kuo (2008) for dimensions 2 to 8; dimension 1 is van
# der Corput's sequence. Written out because importing SciPy's statistics doubles the time that `import ifef` takes.
_SOBOL = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
)
_MOST = 10**8  # points: more than memory holds, with a row of a few hundred columns for each
_BITS = 52  # as many as a float64 holds exactly


def generator(seed: int, *labels: str) -> np.random.Generator:
    """Make a random generator that depends on the seed and on labels alone: one stream per purpose."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise ValueError(f"seed={shown(seed)}: give a whole number, 0 or more and below 2**63.")
    return np.random.default_rng([seed, *(zlib.crc32(label.encode()) for label in labels)])


def _directions(axis: int) -> np.ndarray:
    """Direction numbers of one Sobol axis, scaled to integers of `_BITS` bits."""
    if axis == 0:
        return np.array([1 << (_BITS - 1 - bit) for bit in range(_BITS)], dtype=np.uint64)
    degree, coefficients, initial = _SOBOL[axis - 1]
    numbers = list(initial)
    for index in range(degree, _BITS):
        value = numbers[index - degree] ^ (numbers[index - degree] << degree)
        for step in range(1, degree):
            if (coefficients >> (degree - 1 - step)) & 1:
                value ^= numbers[index - step] << step
        numbers.append(value)
    return np.array([number << (_BITS - 1 - bit) for bit, number in enumerate(numbers[:_BITS])], dtype=np.uint64)


def _sobol(num: int, dimension: int, rng: np.random.Generator) -> np.ndarray:
    """Sobol points with a random digital shift: the net keeps its stratification and differs by seed."""
    if dimension > len(_SOBOL) + 1:
        raise ValueError(f"sampler 'sobol' knows up to {len(_SOBOL) + 1} coordinates, got {dimension}; use 'latin'.")
    indices = np.arange(num, dtype=np.uint64)
    gray = indices ^ (indices >> np.uint64(1))
    points = np.zeros((num, dimension), dtype=np.uint64)
    for axis in range(dimension):
        directions = _directions(axis)
        for bit in range(max(int(num).bit_length(), 1)):
            used = ((gray >> np.uint64(bit)) & np.uint64(1)).astype(bool)
            points[used, axis] ^= directions[bit]
    shift = rng.integers(0, 1 << _BITS, size=dimension, dtype=np.uint64)
    return ((points ^ shift).astype(np.float64) + 0.5) / float(1 << _BITS)


def _latin(num: int, dimension: int, rng: np.random.Generator) -> np.ndarray:
    """Latin hypercube: exactly one point in each of `num` strata along every axis."""
    strata = np.stack([rng.permutation(num) for _ in range(dimension)], axis=1)
    return (strata + rng.random((num, dimension))) / num


def _grid(num: int, dimension: int) -> np.ndarray:
    """Tensor grid with its end points, as many per axis as come nearest to `num` in all."""
    side = max(round(num ** (1.0 / dimension)), 1)
    axis = np.linspace(0.0, 1.0, side) if side > 1 else np.array([0.5])
    return np.stack([mesh.reshape(-1) for mesh in np.meshgrid(*[axis] * dimension, indexing="ij")], axis=1)


def _unit(num: int, dimension: int, sampler: Sampler, rng: np.random.Generator) -> np.ndarray:
    if sampler == "grid":
        return _grid(num, dimension)
    if sampler == "uniform":
        return rng.random((num, dimension))
    if sampler == "latin":
        return _latin(num, dimension, rng)
    return _sobol(num, dimension, rng)


def _shares(num: int, pieces: tuple[Face | Cloud, ...]) -> list[int]:
    """Split `num` points over pieces by measure, every piece getting one at least (largest remainders)."""
    if len(pieces) == 1:
        return [num]
    measures = np.array([piece.measure for piece in pieces])
    measures = measures / measures.max()  # a sum of huge ones would overflow
    exact = num * measures / measures.sum()
    shares = np.maximum(np.floor(exact).astype(int), 1)
    order = np.argsort(-(exact - np.floor(exact)), kind="stable")
    for index in order[: max(num - shares.sum(), 0)]:
        shares[index] += 1
    while shares.sum() > num and shares.max() > 1:  # small pieces were rounded up: the most favoured gives back
        shares[np.argmax(np.where(shares > 1, shares - exact, -np.inf))] -= 1
    return shares.tolist()


def sample(region: Region, num: int, *, sampler: Sampler = "sobol", seed: int = 0, label: str = "") -> np.ndarray:
    """Draw `num` points (num, dim) of a region. Given points come back whole, a single point comes back once."""
    if sampler not in get_args(Sampler):
        raise ValueError(f"sampler={shown(sampler)}: choose one of {', '.join(get_args(Sampler))}.")
    if not isinstance(region, Region):
        raise TypeError(f"sample(region, num): the region is a {type(region).__name__}; give one such as box.interior.")
    if region.is_cloud:
        return region.cloud
    if isinstance(num, bool) or not isinstance(num, (int, np.integer)) or not 1 <= num <= _MOST:
        raise ValueError(f"sample(num={shown(num)}): give a whole number of points, from 1 to {_MOST}.")
    parts = []
    for index, (piece, share) in enumerate(zip(region.pieces, _shares(int(num), region.pieces), strict=True)):
        assert isinstance(piece, Face)
        if piece.dimension == 0:
            parts.append(piece.place(np.zeros((1, 0))))
        else:
            rng = generator(seed, sampler, label, str(index))
            parts.append(piece.place(_unit(share, piece.dimension, sampler, rng)))
    return np.concatenate(parts)
