"""Trial solves of a linear problem: any frequencies, points by their number, judged on held-out points of their own.

Frequencies are angular here and act on inputs in [-1, 1]; a side of the box holds k / pi wavelengths.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ifef.assembly import Data, make_data
from ifef.backbones import Spots
from ifef.domain import Face
from ifef.features import FourierFeatures, fourier_features, unknown_sizes
from ifef.judged import cancellation, noise
from ifef.lower import LeastSquares
from ifef.problem import Problem
from ifef.sampling import generator, sample
from ifef.scales import condition_scales
from ifef.tiles import rows_of, system_of, values_of

_SPREAD = 64  # frequencies that typical rows are measured with
_UNIFORM = 2.0  # uniform held-out points, in parts of the training points, where a spot is small
_ROUNDING = 1e-13  # held-out residual at which float64, not the basis, is the limit
_LEAST, _NOISY = 1e-6, 4.0  # in float32 it is this, or so many times what rounding was seen to change in it,
_CANCELLING = 3.0  # unless terms so many times larger than their sum cancel, which those of another basis may not
_FEW = 200  # points that this is seen on
_OVERSAMPLING = 2.6  # rows a column; with 1.3 one to two orders of accuracy are lost


@dataclass(frozen=True)
class Trial:
    """Features, the solution over them, and what it left on held-out points, relative to zero's."""

    features: FourierFeatures
    theta: np.ndarray
    held_out: float
    rounding: float = _ROUNDING
    """Held-out residual below which there is nothing but rounding."""

    @property
    def frequencies(self) -> np.ndarray:
        """Angular frequencies (D, p), as they act on the hidden layer."""
        return 2.0 * np.pi * np.asarray(self.features.frequencies)

    @property
    def norm(self) -> float:
        """Size of the coefficients: large ones cancel, and what they leave is rounding."""
        return float(np.linalg.norm(self.theta))


def point_counts(problem: Problem, columns: int, oversampling: float = _OVERSAMPLING) -> dict[str, int]:
    """Points for every condition: full-dimensional ones share the rows, faces get many a side.

    A face is cheap, and what happens on it (eighty periods of an initial condition) has to be seen.
    """
    dimension = len(problem.domain.names)
    full = sum(condition.region.dimension == dimension for condition in problem.conditions.values())
    counts = {}
    for key, condition in problem.conditions.items():
        part = condition.region.dimension / dimension
        many = oversampling * columns / max(full, 1)
        counts[key] = 100 + int(many if part == 1 else min(8.0 * columns**part, columns))
    return counts


def focused(problem: Problem, counts: Mapping[str, int], backbone: Any, seed: int) -> dict[str, np.ndarray]:
    """Points by condition; half of those inside and on faces near to the spots of the backbone, where it has any."""
    if not isinstance(backbone, Spots):
        return problem.sample(dict(counts), seed=seed)
    near = [max(count // (2 * len(backbone.bells)), 1) for count in counts.values()]
    points = problem.sample({key: max(count // 2, 1) for key, count in counts.items()}, seed=seed)
    low, high = np.array(problem.domain.lows), np.array(problem.domain.highs)
    rng = generator(seed, "spots")
    for (key, condition), num in zip(problem.conditions.items(), near, strict=True):
        faces = [piece for piece in condition.region.pieces if isinstance(piece, Face) and piece.dimension > 0]
        for index, face in itertools.product(range(len(backbone.bells)), faces):
            unit = 0.5 * (backbone.draw(index, max(num // len(faces), 1), rng) + 1.0)
            free = [problem.domain.names.index(name) for name in face.free]
            points[key] = np.concatenate([points[key], np.clip(face.place(unit[:, free]), low, high)])
    return points


class Trials:
    """Solves under one set of weights, so that their held-out residuals compare."""

    def __init__(self, problem: Problem, seed: int, dtype: str = "float64"):
        self.problem, self.seed, self.dtype = problem, seed, dtype
        self.dimension = len(problem.domain.names)
        self.rng = generator(seed, "search")
        few = {key: min(count, 800) for key, count in point_counts(problem, 300, 5.0).items()}
        self.few = make_data(problem, problem.sample(few, seed=seed))  # in float64: few
        held = problem.sample(few, sampler="uniform", seed=seed + 1)
        # What rounding changes is measured there; in float64 it is known well enough.
        self.pair = [make_data(problem, held, dtype, moved=one) for one in (False, True) if dtype != "float64"]
        self.weights: dict[str, float] = {}
        self.weigh(self.draw(_SPREAD))

    def features(self, angular: np.ndarray) -> FourierFeatures:
        """Features of the inputs at these angular frequencies."""
        return fourier_features(self.problem, frequencies=angular / (2.0 * np.pi), backbone=(), enlarged=False)

    def columns(self, angular: np.ndarray) -> int:
        """Number of columns that these frequencies make."""
        return self.waves(len(angular)).size + len(self.constants(len(angular)))

    def columns_of(self, features: FourierFeatures) -> int:
        """Number of columns that these features make."""
        return sum(unknown_sizes(features, self.problem.unknowns))

    def waves(self, num: int, parts: int = 2) -> np.ndarray:
        """Columns of `num` waves, (components, parts, num): cosine and sine, by real component of the unknowns."""
        found, start = [], 0
        for unknown in self.problem.unknowns:
            for _ in range(2 if unknown.complex else 1):
                if not unknown.scalar:
                    found.append(np.arange(start, start + parts * num).reshape(parts, num))
                start += 1 if unknown.scalar else parts * num
        return np.array(found, dtype=int).reshape(len(found), parts, num)

    def constants(self, num: int, parts: int = 2) -> np.ndarray:
        """Columns of the unknowns that are numbers and no fields."""
        found, start = [], 0
        for unknown in self.problem.unknowns:
            for _ in range(2 if unknown.complex else 1):
                found += [start] if unknown.scalar else []
                start += 1 if unknown.scalar else parts * num
        return np.array(found, dtype=int)

    def draw(self, num: int, least: float = 0.3, most: float = 300.0) -> np.ndarray:
        """Frequencies over all scales, each axis by itself: log-uniform, of either sign, sometimes zero."""
        shape = num, self.dimension
        sizes = np.exp(self.rng.uniform(math.log(least), math.log(most), shape))
        return sizes * self.rng.choice([-1.0, 1.0], shape) * (self.rng.random(shape) > 0.1)

    def weigh(self, angular: np.ndarray) -> None:
        """Set the weights by the rows of waves as long as these.

        Their directions are scrambled, because the rows of waves that satisfy an equation are no measure of its terms.
        """
        chosen = angular[self.rng.integers(0, len(angular), _SPREAD)]
        turned = chosen * self.rng.uniform(0.5, 1.5, chosen.shape) * self.rng.choice([-1.0, 1.0], chosen.shape)
        self.weights = {key: 1.0 / scale**2 for key, scale in condition_scales(self.features(turned), self.few).items()}

    def scales(self, data: Data, temper: float = 1.0) -> dict[str, float]:
        """sqrt(weight / rows) by condition, those of equations times `temper`."""
        factors = {key: temper if key in data.equations else 1.0 for key in data.points}
        return {key: factor * math.sqrt(self.weights[key] / data.count(key)) for key, factor in factors.items()}

    def points(self, columns: int, backbone: Any = None) -> tuple[Data, Data]:
        """Points to solve on and to judge on; where the backbone has spots, half of the former are near to them."""
        counts = point_counts(self.problem, columns)
        part = _UNIFORM if isinstance(backbone, Spots) else 1 / 3
        fewer = {key: max(int(count * part), 30) for key, count in counts.items()}
        return (
            make_data(self.problem, focused(self.problem, counts, backbone, self.seed), self.dtype),
            make_data(self.problem, self.problem.sample(fewer, sampler="uniform", seed=self.seed + 1), self.dtype),
        )

    def solve(self, angular: np.ndarray) -> Trial:
        """Solve with these frequencies of the inputs, and judge on held-out points."""
        return self.solve_over(self.features(angular))

    def solve_over(self, features: FourierFeatures) -> Trial:
        """Solve over any features, and judge on held-out points."""
        train, held = self.points(self.columns_of(features), features.backbone)
        lower = LeastSquares()
        summary = lower.first(system_of(features, train, self.scales(train)))
        theta = np.asarray(lower.finish(summary).theta, dtype=np.float64)
        left = self.judge(features, theta, held)
        return Trial(features, theta, left, self.rounding(features, theta, left))

    def judge(self, features: FourierFeatures, theta: np.ndarray, held: Data) -> float:
        """Held-out residual, relative to that of zero."""
        rows = system_of(features, held, self.scales(held))
        size = np.linalg.norm(rows[:, -1])
        left = float(np.linalg.norm(rows[:, :-1] @ theta - rows[:, -1]))
        return left / float(size) if size > 0 else left

    def energies(self, trial: Trial) -> np.ndarray:
        """Squared amplitudes by frequency."""
        return np.sum(np.square(trial.theta[self.waves(len(trial.frequencies))]), axis=(0, 1))

    def rounding(self, features: FourierFeatures, theta: np.ndarray, held_out: float) -> float:
        """Held-out residual, relative to that of zero, below which there is nothing but rounding."""
        if self.dtype == "float64":
            return _ROUNDING
        level = max(_LEAST, _NOISY * noise(features, (self.pair[0], self.pair[1]), theta, self.weights, linear=True))
        if held_out > level:
            return level
        points = sample(self.problem.domain.interior, _FEW, seed=self.seed)
        terms = cancellation(values_of(features, self.problem.unknowns, points), theta)
        return level * min(1.0, _CANCELLING / max(terms, 1.0))

    def left(self, key: str, points: np.ndarray, trial: Trial | None) -> np.ndarray:
        """Target - operator(u) of one condition at points (n, dim), complex where the rows are."""
        data = make_data(self.problem, {key: points})
        none = np.zeros((1, self.dimension))
        rows = rows_of(self.features(none) if trial is None else trial.features, data, key)
        values = rows[:, -1] if trial is None else rows[:, -1] - rows[:, :-1] @ trial.theta
        return values[::2] + 1j * values[1::2] if len(values) == 2 * len(points) else values
