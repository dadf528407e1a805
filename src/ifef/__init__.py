"""ifef: partial differential equations solved by networks with Fourier-enhanced features."""

from ifef import problems as problems
from ifef.calculus import d as d
from ifef.calculus import laplacian as laplacian
from ifef.domain import Box as Box
from ifef.features import fourier_features as fourier_features
from ifef.features import gaussian as gaussian
from ifef.fit import fit as fit
from ifef.lower import GaussNewton as GaussNewton
from ifef.lower import LeastSquares as LeastSquares
from ifef.lower import Ridge as Ridge
from ifef.problem import Condition as Condition
from ifef.problem import Problem as Problem
from ifef.problem import Unknown as Unknown
from ifef.problem import derived_target as derived_target
from ifef.solution import Solution as Solution
from ifef.solution import load as load
from ifef.solve import solve as solve
from ifef.upper import PrimalDual as PrimalDual
from ifef.upper import Training as Training
