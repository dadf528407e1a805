"""The built-in problems: one PDE a file, each knowing nothing of features or solvers."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from ifef.problem import Problem
from ifef.problems.burgers import burgers as burgers
from ifef.problems.convection import convection as convection
from ifef.problems.convection_diffusion import convection_diffusion as convection_diffusion
from ifef.problems.helmholtz import helmholtz as helmholtz
from ifef.problems.multi_sine import multi_sine as multi_sine

BUILT_IN: Mapping[str, Callable[[], Problem]] = MappingProxyType(
    {
        "helmholtz-low": helmholtz,
        "helmholtz-high": partial(helmholtz, 100, 100, 0.0, 0.2),
        "convection-50": partial(convection, 50),
        "convection-200": partial(convection, 200),
        "convection-diffusion": convection_diffusion,
        "burgers": burgers,
        "multi-sine": multi_sine,
    }
)
"""The names that the command line knows, in the paper's order."""
