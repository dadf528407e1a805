"""The paper's settings for each built-in problem, as data (appendices E and F), corrected readings included.

Not stated in the paper, and chosen here: inputs scaled to [-1, 1]; PyTorch's default initialisation; the upper weight
equal to lambda_LL; 5,000 epochs of pretraining ("several thousand"); the epochs of the upper level, which follow from
its cost tables (total time over time per epoch); gamma = 1e-4 for convection 200, where it prints two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ifef.features import FourierFeatures, fourier_features
from ifef.lower import Ridge
from ifef.problem import Problem
from ifef.sampling import Sampler
from ifef.upper import PrimalDual, Training

TOLERANCE = 1e-2
"""The paper's errors are of this order at best on its harder problems: what counts as converged under a preset."""

LEARNING_RATE, DUAL_RATE = 1e-3, 1e-4


@dataclass(frozen=True)
class Setting:
    """One row of the paper's tables of architectures, data sets and hyperparameters."""

    widths: tuple[int, ...]
    num_frequencies: int
    equation_weight: float
    gamma: float
    epochs: int
    points: Mapping[str, int]
    sampler: Sampler = "grid"
    pretraining: int = 0
    sigma: float = 1.0
    upper_weight: float | None = None
    """lambda of the upper level and of pretraining; None: lambda_LL."""


_DEEP = (64,) * 6

SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "helmholtz(1, 4, -1, 1)": Setting((50, 50, 20), 800, 1e-2, 1e-6, 25_000, {"equation": 71 * 71, "walls": 1000}),
        "helmholtz(100, 100, 0, 0.2)": Setting(
            _DEEP, 2400, 1e-7, 1e-4, 10_000, {"equation": 23_000, "walls": 3000}, "latin"
        ),
        "convection(50)": Setting(
            _DEEP, 800, 1e-2, 1e-7, 4000, {"equation": 51 * 51, "initial": 51, "periodic": 51}, pretraining=5000
        ),
        "convection(200)": Setting(
            _DEEP, 1600, 1e-2, 1e-4, 10_000, {"equation": 101 * 101, "initial": 101, "periodic": 101}, pretraining=5000
        ),
        "convection_diffusion(1, 5e-05)": Setting(
            _DEEP,
            800,
            1e-2,
            1e-7,
            2000,
            {"equation": 101 * 101, "initial": 101, "periodic": 101, "periodic_slope": 101},
            pretraining=5000,
        ),
        "multi_sine(1, 2, 5, 10, 30, 40, 50, 60, 70, 80)": Setting(
            (64,) * 8, 4000, 1e-2, 1e-7, 0, {"equation": 201 * 201, "initial": 201, "periodic": 201}, pretraining=40_000
        ),
    }
)


def paper(
    problem: Problem, *, seed: int = 0, epochs: int | None = None, primal_dual: bool = False
) -> tuple[FourierFeatures, dict[str, np.ndarray], dict[str, Any]]:
    """Features, points and options of `fit` as the paper has them; `epochs` shortens both stages to so many."""
    if problem.name not in SETTINGS:
        raise ValueError(
            f"preset='paper': it has no settings for {problem.name or 'a problem of your own'}; "
            f"it knows: {', '.join(SETTINGS)}."
        )
    setting = SETTINGS[problem.name]
    features = fourier_features(
        problem,
        setting.num_frequencies,
        sigma=setting.sigma,
        backbone=setting.widths,
        enlarged=False,
        initialisation="torch",
        seed=seed,
    )
    points = problem.sample(setting.points, sampler=setting.sampler, seed=seed)
    below = paper_weights(problem, points, setting.equation_weight)
    above = setting.equation_weight if setting.upper_weight is None else setting.upper_weight
    first, then = (count if epochs is None else min(count, epochs) for count in (setting.pretraining, setting.epochs))
    dual = PrimalDual(DUAL_RATE) if primal_dual else None
    options = {
        "lower": Ridge(setting.gamma, weights=below),
        "upper": Training(then, LEARNING_RATE, dual=dual),
        "pretraining": Training(first, LEARNING_RATE),
        "weights": paper_weights(problem, points, above),
        "tolerance": TOLERANCE,
        "seed": seed,
    }
    return features, points, options


def paper_weights(problem: Problem, points: Mapping[str, np.ndarray], equation_weight: float) -> dict[str, float]:
    """Weights under which the loss is one mean over all N_u data rows plus lambda times one over the N_f equations'."""
    weights = {}
    for equation in (True, False):
        keys = [key for key, condition in problem.conditions.items() if condition.is_equation == equation]
        total = sum(len(points[key]) for key in keys)
        for key in keys:
            weights[key] = (equation_weight if equation else 1.0) * len(points[key]) / total
    return weights
