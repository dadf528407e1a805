"""What users get wrong, as tables: each malformed use has one sentence of its own, and loses nothing on disk.

In Python the sentence is that of a precise exception, raised before anything is computed wherever that can be. On the
command line it is the only line on stderr, with exit status 2 and no traceback.
"""

# What is wrong in many of the rows is a type.
# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false

import contextlib
import functools
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import LINE, PLANE, conditions_of, features_of, points_of, small, solved, value

import ifef
from ifef import cli, export, problems, storage
from ifef.calculus import d, laplacian
from ifef.domain import Box, point_type
from ifef.features import fourier_features, gaussian
from ifef.fit import fit
from ifef.lower import GaussNewton, LeastSquares, Ridge
from ifef.problem import Condition, Problem, Unknown, derived_target
from ifef.solution import load
from ifef.solve import solve
from ifef.storage import StorageError
from ifef.upper import PrimalDual, Training

HELD = np.array([1.0, 2.0])
CLOUD = LINE.points(x=[0.1, 0.2])
NINE = Box(**{name: (0.0, 1.0) for name in "abcdefghi"})


class Bad(NamedTuple):
    """A malformed use: what is done, what is raised, and a part of the sentence that no other row has."""

    use: Callable[[], Any]
    raised: type[Exception]
    said: str


# --- ways to write the rows shortly -----------------------------------------------------------------------------------


def on_line(operator: Any = value, target: Any = 0.0, region: Any = None, **more: Any) -> Problem:
    return Problem(LINE, wave=Condition(LINE.interior if region is None else region, operator, target), **more)


def rows(**changed: Any) -> Any:
    return lambda: fit(small("growth"), features_of("growth"), {**points_of("growth"), **changed})


def fitted(**options: Any) -> Any:
    return lambda: fit(small("growth"), features_of("growth"), points_of("growth"), **options)


def featured(*given: Any, **options: Any) -> Any:
    return lambda: fourier_features(small("growth"), *given, **options)


def solving(problem: Any = None, **options: Any) -> Any:
    return lambda: solve(small("growth") if problem is None else problem, progress=False, **options)


@functools.cache
def measured() -> Problem:
    return Problem(LINE, ode=small("growth").conditions["ode"], data=Condition(CLOUD, value, [1.1, 1.2]))


@functools.cache
def enriched() -> Problem:
    return Problem(LINE, basis=(lambda p: jnp.exp(p.x),), **conditions_of("growth"))


@functools.cache
def unexplained() -> Any:
    return fit(Problem(LINE, **conditions_of("growth")), features_of("growth"), points_of("growth"))


def nonlinear(**options: Any) -> Any:
    return lambda: fit(small("riccati"), features_of("riccati"), points_of("riccati"), **options)


def pole(u: Any, p: Any) -> Any:
    return u(p) / (p.x - 0.125)


def at_the_pole(**places: Any) -> Any:
    """The operator is not a number at x = 0.125, which none of the few points meets at which it is tried."""
    problem = on_line(pole, 1.0)
    good = {"wave": np.linspace(0.5, 1.0, 30)[:, None]}
    bad = {"wave": np.array([[0.5], [0.125]])}
    features = fourier_features(problem, 4, sigma=0.3, backbone=())
    return fit(problem, features, **{"points": good, "held_out": good, **dict.fromkeys(places, bad)})


def changed(name: str, change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Any:
    """Load a solution whose file is sound and whose contents are not."""

    def use() -> Any:
        settings, arrays = storage.load_archive("answer.ifef")
        arrays = {key: np.array(one) for key, one in arrays.items()}
        change(settings, arrays)
        storage.save_archive(name, settings, arrays)
        return load(name)

    return use


def trained_on_a_square() -> Any:
    features = fourier_features(small("riccati"), 4, backbone=(4,))
    return fit(small("riccati"), features, points_of("riccati"), upper=Training(3))


def swapped(p: Any, u: Any) -> Any:
    return u(p)


def forgets_to_return(u: Any, p: Any) -> Any:
    u(p)


def yields(u: Any, p: Any) -> Any:
    yield u(p)


def table(*entries: Any) -> np.ndarray:
    return np.array(entries, dtype=float)[:, None]


# --- the table for Python ---------------------------------------------------------------------------------------------

STATING: dict[str, Bad] = {
    # derivatives
    "d of no coordinate": Bad(lambda: d(value), ValueError, "d(u, ...): name at least one coordinate"),
    "d of a number": Bad(lambda: d(3.0, "x"), TypeError, "is a field (a function of a point), not float; write"),
    "d by index": Bad(lambda: d(value, 0), TypeError, "given by name, not as int (0)"),
    "d at a bare tuple": Bad(lambda: d(lambda p: p[0], "x")((1.0,)), ValueError, "the coordinates are: none."),
    "d by an unknown name": Bad(
        lambda: on_line(lambda u, p: d(u, "z")(p)), ValueError, "there is no coordinate 'z' here"
    ),
    "d by names run together": Bad(lambda: on_line(lambda u, p: d(u, "xx")(p)), ValueError, "no coordinate 'xx' here"),
    "laplacian of all": Bad(lambda: laplacian(value), ValueError, "name the coordinates it runs over"),
    "laplacian twice along x": Bad(lambda: laplacian(value, "x", "x"), ValueError, "each coordinate counts once"),
    # boxes and regions
    "a box of nothing": Bad(lambda: Box(), ValueError, "Box(...): give at least one coordinate"),
    "reversed bounds": Bad(lambda: Box(x=(1.0, 0.0)), ValueError, "below the high end; swap them."),
    "equal bounds": Bad(lambda: Box(x=(1.0, 1.0)), ValueError, "below the high end; they are equal."),
    "bounds apart by rounding": Bad(lambda: Box(x=(1.0, 1.0 + 1e-15)), ValueError, "differ by little but rounding"),
    "a NaN bound": Bad(lambda: Box(x=(0.0, math.nan)), ValueError, "Box(x=(0, nan)): both ends must be finite."),
    "an infinite bound": Bad(lambda: Box(x=(0.0, math.inf)), ValueError, "Box(x=(0, inf)): both ends must be finite."),
    "bounds too far apart": Bad(lambda: Box(x=(-1.7e308, 1.7e308)), ValueError, "its length overflows"),
    "one bound": Bad(lambda: Box(x=1.0), ValueError, "Box(x=1.0): give two numbers"),
    "three bounds": Bad(lambda: Box(x=(0, 1, 2)), ValueError, "Box(x=(0, 1, 2)): give two numbers"),
    "bounds as text": Bad(lambda: Box(x=("0", "1")), ValueError, "Box(x=('0', '1')): give two numbers"),
    "bounds as digits": Bad(lambda: Box(x="01"), ValueError, "Box(x='01'): give two numbers"),
    "bounds as a set": Bad(lambda: Box(x={0.0, 1.0}), ValueError, "Box(x={0.0, 1.0}): give two numbers"),
    "complex bounds": Bad(lambda: Box(x=(0, 1j)), ValueError, "Box(x=(0, 1j)): give two numbers"),
    "a reserved coordinate": Bad(lambda: Box(normal=(0, 1)), ValueError, "'normal' cannot name a coordinate"),
    "a keyword for a coordinate": Bad(lambda: Box(**{"lambda": (0, 1)}), ValueError, "'lambda' cannot name a"),
    "a hidden coordinate": Bad(lambda: Box(_x=(0, 1)), ValueError, "'_x' cannot name a coordinate"),
    "a face that does not exist": Bad(lambda: LINE.lower("y"), ValueError, "lower('y'): there is no coordinate 'y'"),
    "a periodic face that does not": Bad(lambda: PLANE.upper("y"), ValueError, "upper('y'): there is no coordinate"),
    "a region and a number": Bad(lambda: LINE.interior | 3, TypeError, "joins with another region, not with int"),
    "regions of two boxes": Bad(
        lambda: LINE.lower("x") | PLANE.lower("x"), ValueError, "both must belong to one domain"
    ),
    "an area and a line": Bad(
        lambda: PLANE.interior | PLANE.lower("x"), ValueError, "does not join with one of dimension"
    ),
    "a face and points": Bad(lambda: LINE.lower("x") | CLOUD, ValueError, "given points join with given points only"),
    "points of unknown name": Bad(lambda: PLANE.points(t=0, y=0), ValueError, "points(...): unknown coordinate 'y'"),
    "points without x": Bad(lambda: PLANE.points(t=0), ValueError, "points(...): the coordinate 'x' is missing"),
    "NaN points": Bad(lambda: PLANE.points(t=math.nan, x=0), ValueError, "points(...): 't' holds NaN, infinity or"),
    "masked points": Bad(
        lambda: LINE.points(x=np.ma.array([0.1, 0.2], mask=[0, 1])),
        ValueError,
        "points(...): 'x' holds NaN, infinity or",
    ),
    "points as text": Bad(lambda: LINE.points(x=["0.1"]), TypeError, "points(...): 'x' must be a number or an array"),
    "points as text among others": Bad(
        lambda: PLANE.points(t=np.array(["0.1", 0.2], dtype=object), x=0.0),
        TypeError,
        "points(...): 't' must be a number",
    ),
    "points of two lengths": Bad(lambda: PLANE.points(t=[0, 1, 0], x=[0, 1]), ValueError, "t (3,), x (2,)."),
    "no points": Bad(lambda: LINE.points(x=[]), ValueError, "at least one point is needed, got none"),
    "points outside": Bad(
        lambda: LINE.points(x=[0.5, 1.5]), ValueError, "point number 1 has x=1.5, outside of the box"
    ),
    # conditions
    "a box for a region": Bad(lambda: Condition(LINE, value), TypeError, "the region is a Box; give box.interior"),
    "an operator and then a region": Bad(
        lambda: Condition(value, LINE.interior), TypeError, "the region is a function"
    ),
    "an operator as text": Bad(lambda: Condition(LINE.interior, "u_xx"), TypeError, "the operator is a str"),
    "a weight for a kind": Bad(
        lambda: Condition(LINE.interior, value, 0.0, 2.0),
        TypeError,
        "Condition(equation=2.0): give True, False or None",
    ),
    "a target as text": Bad(lambda: on_line(target="sin(x)"), TypeError, "Condition(target=...): give a number, a"),
    "a NaN target": Bad(
        lambda: on_line(target=math.nan), ValueError, "Condition(target=nan): the target must be a finite"
    ),
    "an array of one for a target": Bad(
        lambda: on_line(target=np.array(1.0)), ValueError, "Condition(target=array(1.))"
    ),
    "an array on the interior": Bad(lambda: on_line(target=[1.0, 2.0]), ValueError, "an array needs a region of given"),
    "a target too few": Bad(lambda: on_line(target=[1.0], region=CLOUD), ValueError, "(1,) values for 2 points"),
    "targets in a column": Bad(lambda: on_line(target=[[1.0], [2.0]], region=CLOUD), ValueError, "(2, 1) values for 2"),
    "NaN among targets": Bad(lambda: on_line(target=[1, math.nan], region=CLOUD), ValueError, "value number 1 is NaN"),
    "a masked target": Bad(
        lambda: on_line(target=np.ma.array([1.0, 2.0], mask=[1, 0]), region=CLOUD), ValueError, "value number 0 is NaN"
    ),
    # problems
    "a domain as a dict": Bad(lambda: Problem({"x": (0, 1)}), TypeError, "the domain is a dict; give a Box"),
    "a problem without conditions": Bad(lambda: Problem(LINE), ValueError, "give at least one condition, such as"),
    "a function for a condition": Bad(lambda: Problem(LINE, a=value), TypeError, "Problem(a=...): it is a function"),
    "a region from another box": Bad(
        lambda: Problem(PLANE, heat=Condition(LINE.interior, value)),
        ValueError,
        "condition 'heat': its region belongs to",
    ),
    "a condition called exact": Bad(
        lambda: on_line(exact=Condition(LINE.interior, value)),
        TypeError,
        "Problem(exact=Condition(...)): domain, exact",
    ),
    "a condition called name": Bad(
        lambda: on_line(name=Condition(LINE.interior, value)), TypeError, "Problem(name=Condition(...)): domain, exact"
    ),
    "a number for a name": Bad(lambda: on_line(name=3), TypeError, "Problem(name=3): the name is text"),
    "an exact number": Bad(
        lambda: on_line(exact=1.0), TypeError, "`exact` is the exact solution, a function of a point"
    ),
    "an exact solution too many": Bad(lambda: on_line(exact=(abs, abs)), ValueError, "2 functions for 1 unknowns"),
    "an exact solution that is NaN": Bad(
        lambda: on_line(exact=lambda p: p.x * math.nan), ValueError, "exact solution of 'u' is NaN or infinite at x="
    ),
    "an exact solution of u and p": Bad(
        lambda: on_line(exact=lambda u, p: p.x), TypeError, "exact solution of 'u' takes one argument, the point"
    ),
    "a complex exact solution": Bad(
        lambda: on_line(exact=lambda p: 1j * p.x), ValueError, "exact solution of 'u' is complex and no unknown is"
    ),
    "a number of unknowns": Bad(lambda: on_line(unknowns=2), TypeError, "Problem(unknowns=2): give names"),
    "no unknowns": Bad(lambda: on_line(unknowns=()), ValueError, "name at least one unknown"),
    "an unknown twice": Bad(lambda: on_line(unknowns=("u", "u")), ValueError, "a name occurs twice"),
    "a number among unknowns": Bad(lambda: on_line(unknowns=("u", 3)), TypeError, "names or Unknown(...), not int"),
    "unknowns in one text": Bad(
        lambda: on_line(unknowns="u v"), ValueError, "Unknown('u v'): the name must be an identifier"
    ),
    "an unknown named like a coordinate": Bad(
        lambda: on_line(unknowns="x"), ValueError, "a coordinate has this name (x)"
    ),
    "an unknown that is nowhere": Bad(
        lambda: on_line(lambda u, v, p: u(p), unknowns=("u", "v")), ValueError, "the unknown 'v' occurs in no condition"
    ),
    "a scalar over x": Bad(
        lambda: Unknown("k", over="x", scalar=True), ValueError, "a scalar depends on no coordinate"
    ),
    "an unknown over nothing": Bad(
        lambda: Unknown("k", over=()), ValueError, "Unknown('k', over=()): name coordinates"
    ),
    "an unknown over z": Bad(lambda: on_line(unknowns=Unknown("u", over=("z",))), ValueError, "no coordinate is 'z'"),
    "complex as text": Bad(lambda: Unknown("u", complex="no"), TypeError, "complex='no'): give True or False"),
    "a material": Bad(lambda: Unknown("u", region=LINE.interior), ValueError, "a box has one material"),
    "a bare basis function": Bad(lambda: on_line(basis=abs), TypeError, "give a tuple of functions of a point, not a"),
    "a number in the basis": Bad(lambda: on_line(basis=(3,)), TypeError, "entry 0 is a int; give functions"),
    "a basis of math": Bad(
        lambda: on_line(basis=(lambda p: math.sqrt(p.x),)), TypeError, "basis function 0 uses a function of `math`"
    ),
    "a basis that is NaN somewhere": Bad(
        lambda: on_line(basis=(lambda p: jnp.log(p.x - 0.25),)), ValueError, "basis function 0 is NaN or infinite at x="
    ),
    "a complex basis": Bad(lambda: on_line(basis=(lambda p: 1j * p.x,)), ValueError, "basis function 0 is complex"),
    "a source of no solution": Bad(
        lambda: derived_target(value), TypeError, "derived_target(operator, exact): give an"
    ),
    "a viscosity of zero": Bad(lambda: problems.burgers(0.0), ValueError, "burgers(nu=0.0): the viscosity must be"),
    # sampling
    "no points to draw": Bad(lambda: small("growth").sample(0), ValueError, "sample(num=0): give a whole number"),
    "half a point": Bad(lambda: small("growth").sample(1.5), ValueError, "sample(num=1.5): give a whole number"),
    "more points than memory": Bad(lambda: small("growth").sample(10**13), ValueError, "sample(num=10000000000000)"),
    "points for one condition": Bad(
        lambda: small("growth").sample({"ode": 3}), ValueError, "num: the condition 'start' is missing"
    ),
    "points for another condition": Bad(
        lambda: small("growth").sample({"ode": 3, "strt": 1}), ValueError, "num: there is no condition 'strt'"
    ),
    "a sampler that is none": Bad(
        lambda: small("growth").sample(3, sampler="random"),
        ValueError,
        "sampler='random': choose one of grid",
    ),
    "a negative seed for points": Bad(lambda: small("growth").sample(3, seed=-1), ValueError, "seed=-1: give a whole"),
    "sobol in nine dimensions": Bad(
        lambda: Problem(NINE, a=Condition(NINE.interior, value)).sample(8),
        ValueError,
        "'sobol' knows up to 8 coordinates, got 9",
    ),
}

OPERATORS: dict[str, Bad] = {
    "returns nothing": Bad(
        lambda: on_line(forgets_to_return), ValueError, "returns nothing; a `return` may be missing"
    ),
    "returns a vector": Bad(lambda: on_line(lambda u, p: u(p) * HELD), ValueError, "returns an array of shape (2,)"),
    "returns a tuple": Bad(lambda: on_line(lambda u, p: (u(p), u(p))), ValueError, "the operator returns a tuple"),
    "returns text": Bad(lambda: on_line(lambda u, p: "u(p)"), ValueError, "the operator returns a str"),
    "forgets the point": Bad(lambda: on_line(lambda u, p: d(u, "x")), ValueError, "the operator returns a function"),
    "yields": Bad(lambda: on_line(yields), ValueError, "the operator returns a generator"),
    "depends on nothing": Bad(lambda: on_line(lambda u, p: p.x), ValueError, "does not depend on any unknown"),
    "gives a field a number": Bad(
        lambda: on_line(lambda u, p: u(p.x)), TypeError, "a field takes a point, not a Batch"
    ),
    "gives a field a bare tuple": Bad(
        lambda: on_line(lambda u, p: u((p.x,))), TypeError, "a field takes a point, not a tuple"
    ),
    "gives a field another's point": Bad(
        lambda: on_line(lambda u, p: u(point_type(("t", "x"))(0.0, p.x))),
        TypeError,
        "a field takes a point, not a Point",
    ),
    "gives a field a keyword": Bad(
        lambda: on_line(lambda u, p: u(x=p.x)), TypeError, "unexpected keyword argument 'x'"
    ),
    "subtracts from a field": Bad(lambda: on_line(lambda u, p: u - 1.0), TypeError, "for -: 'function' and 'float'"),
    "squares a field": Bad(lambda: on_line(lambda u, p: u**2), TypeError, "pow(): 'function' and 'int'"),
    "derives a number": Bad(
        lambda: on_line(lambda u, p: d(u(p), "x")), TypeError, "is a field (a function of a point), not BatchTracer"
    ),
    "math.sin": Bad(
        lambda: on_line(lambda u, p: u(p) * math.sin(p.x)), TypeError, "operator uses a function of `math`"
    ),
    "if p.x > 0": Bad(
        lambda: on_line(lambda u, p: u(p) if p.x > 0.5 else -u(p)),
        ValueError,
        "decides by a coordinate's or field's value",
    ),
    "of the point alone": Bad(
        lambda: on_line(lambda p: p.x), TypeError, "takes 1 positional argument but 2 were given"
    ),
    "of two unknowns for one": Bad(
        lambda: on_line(lambda u, v, p: u(p)),
        TypeError,
        "takes the unknowns and then the point: <lambda>.<locals>.<lambda>() missing",
    ),
    "of one unknown for two": Bad(lambda: on_line(value, unknowns=("u", "v")), TypeError, "value() takes 2 positional"),
    "of the point and then u": Bad(lambda: on_line(swapped), TypeError, "'Point' object is not callable"),
    "asks for p.y": Bad(
        lambda: on_line(lambda u, p: u(p) + p.y),
        ValueError,
        "the operator asks a point for a coordinate that it does not have ('Point'",
    ),
    "moves along y": Bad(
        lambda: on_line(lambda u, p: u(p._replace(y=1.0))), ValueError, "unexpected field names: ['y']"
    ),
    "indexes by name": Bad(lambda: on_line(lambda u, p: p["x"] * u(p)), TypeError, "tuple indices must be integers"),
    "a name that is not there": Bad(lambda: on_line(lambda u, p: nu * u(p)), ValueError, "name 'nu' is not defined"),  # noqa: F821 # pyright: ignore[reportUndefinedVariable]
    "leaves the box": Bad(
        lambda: on_line(lambda u, p: u(p) - u(p._replace(x=p.x + 1.0))),
        ValueError,
        "evaluates u outside of Box(x=(0, 1))",
    ),
    "is NaN": Bad(
        lambda: on_line(lambda u, p: u(p) * jnp.sqrt(-p.x)),
        ValueError,
        "condition 'wave': the operator is NaN or infinite at x=",
    ),
    "is complex": Bad(lambda: on_line(lambda u, p: 1j * u(p)), ValueError, "the operator is complex and no unknown is"),
    "raises": Bad(lambda: on_line(lambda u, p: {}["k"]), ValueError, "the operator fails: KeyError: 'k'"),
    "raises an essay": Bad(lambda: on_line(essay), ValueError, "the operator fails: RuntimeError: one"),
    "never ends": Bad(lambda: on_line(endless), ValueError, "the operator fails: RecursionError"),
    "a target of u and p": Bad(lambda: on_line(target=lambda u, p: p.x), TypeError, "the target takes one argument"),
    "a target that is a tuple": Bad(
        lambda: on_line(target=lambda p: (p.x, p.x)), ValueError, "it gives an array of shape (2,)"
    ),
    "a target that is nothing": Bad(lambda: on_line(target=lambda p: None), ValueError, "it gives nothing"),
    "a target that is a dict": Bad(lambda: on_line(target=lambda p: {"u": 1.0}), ValueError, "it gives a dict"),
    "a target that is NaN": Bad(
        lambda: on_line(target=lambda p: jnp.log(-p.x)), ValueError, "the target is NaN or infinite"
    ),
    "a complex target": Bad(lambda: on_line(target=1j), ValueError, "the target is complex and no unknown is"),
    "a target that raises": Bad(
        lambda: on_line(target=lambda p: 1 / 0), ValueError, "the target fails: ZeroDivisionError"
    ),
    "a target that asks for p.y": Bad(
        lambda: on_line(target=lambda p: p.y), ValueError, "the target asks a point for a"
    ),
    "a source through NumPy": Bad(
        lambda: on_line(d_of, derived_target(d_of, lambda p: np.sin(p.x))),
        TypeError,
        "the target uses a function of `math`",
    ),
}


def d_of(u: Any, p: Any) -> Any:
    return d(u, "x")(p)


def essay(u: Any, p: Any) -> Any:
    raise RuntimeError("one\ntwo\nthree")


def endless(u: Any, p: Any) -> Any:
    return endless(u, p)


CHOOSING: dict[str, Bad] = {
    # features
    "features of a box": Bad(
        lambda: fourier_features(LINE), TypeError, "fourier_features(problem, ...): give a Problem"
    ),
    "frequencies below zero": Bad(featured(-1), ValueError, "num_frequencies=-1: give a whole"),
    "frequencies as a float": Bad(featured(10.0), ValueError, "num_frequencies=10.0: give a whole"),
    "frequencies beyond memory": Bad(featured(10**12), ValueError, "num_frequencies=1000000000000: give a whole"),
    "no features at all": Bad(featured(0, enlarged=False), ValueError, "the basis would be empty"),
    "frequencies in no dimension": Bad(lambda: gaussian(3, 0), ValueError, "dimension=0: give a whole number from 1"),
    "a negative sigma": Bad(featured(3, sigma=-1.0), ValueError, "sigma=-1.0: give one positive number"),
    "a sigma of zero": Bad(featured(3, sigma=0.0), ValueError, "sigma=0.0: give one positive number"),
    "a sigma an axis too many": Bad(
        featured(3, sigma=(1.0, 2.0), backbone=()), ValueError, "sigma=(1.0, 2.0): give one"
    ),
    "a layer of nothing": Bad(featured(3, backbone=(0,)), ValueError, "widths=(0,): every hidden width"),
    "widths as text": Bad(featured(3, backbone="64"), ValueError, "widths=('6', '4'): every hidden width"),
    "one width": Bad(featured(3, backbone=64), TypeError, "backbone=64: give hidden widths"),
    "an unknown initialisation": Bad(featured(3, initialisation="he"), ValueError, "initialisation='he': choose"),
    "a table of two columns": Bad(
        featured(frequencies=np.zeros((3, 2)), backbone=()),
        ValueError,
        "give finite numbers (D, 1), one column a hidden",
    ),
    "enlarged as text": Bad(featured(3, enlarged="no"), TypeError, "enlarged='no'): give True or False"),
    "a backbone to a number": Bad(featured(3, backbone=lambda p: p.x), ValueError, "not to a ArrayImpl of shape ()"),
    "a backbone to a list": Bad(featured(3, backbone=lambda p: [p.x]), ValueError, "not to a list of shape (1,)"),
    "a complex backbone": Bad(
        featured(3, backbone=lambda p: jnp.stack([1j * p.x])), ValueError, "finite real values, not to"
    ),
    "a backbone of math": Bad(
        featured(3, backbone=lambda p: [math.sin(p.x)]),
        TypeError,
        "backbone on a point of Box(x=(0, 1)) uses a function",
    ),
    "a backbone for two inputs": Bad(
        featured(3, backbone=eqx.nn.Linear(2, 3, key=jax.random.key(0))), TypeError, "dot_general requires contracting"
    ),
    # lower and upper
    "a cut of two": Bad(lambda: LeastSquares(cut=2.0), ValueError, "LeastSquares(cut=2.0): the cut must be"),
    "a negative gamma": Bad(lambda: Ridge(-1.0), ValueError, "Ridge(gamma=-1.0): gamma must be"),
    "a gamma as text": Bad(lambda: Ridge("1e-7"), ValueError, "Ridge(gamma='1e-7'): gamma must be"),
    "no steps": Bad(lambda: GaussNewton(max_steps=0), ValueError, "GaussNewton(max_steps=0): give"),
    "a tolerance of steps": Bad(lambda: GaussNewton(tolerance=-1.0), ValueError, "GaussNewton(tolerance=-1.0): give"),
    "Gauss-Newton in itself": Bad(
        lambda: GaussNewton(GaussNewton()), TypeError, "LeastSquares() or Ridge(), not GaussNewton"
    ),
    "weights that nobody reads": Bad(
        lambda: GaussNewton(LeastSquares(weights={"ode": 1.0})), ValueError, "`inner` takes no weights here"
    ),
    "epochs as a float": Bad(lambda: Training(1e3), ValueError, "Training(epochs=1000.0): give"),
    "epochs below zero": Bad(lambda: Training(-1), ValueError, "Training(epochs=-1): give"),
    "a learning rate of zero": Bad(lambda: Training(1, 0.0), ValueError, "Training(learning_rate=0.0): it must be"),
    "another gradient": Bad(lambda: Training(1, gradient="full"), ValueError, "Training(gradient='full'): choose"),
    "batches of nothing": Bad(lambda: Training(1, batch=0), ValueError, "Training(batch=0): give a whole"),
    "batches of True": Bad(lambda: Training(1, batch=True), ValueError, "Training(batch=True): give a whole"),
    "duals of True": Bad(lambda: Training(1, dual=True), TypeError, "give PrimalDual() or None, not a bool"),
    "an optimiser by name": Bad(lambda: Training(1, optimiser="adam"), TypeError, "optax.adam(1e-3), not 'adam'"),
    "an optimiser that searches": Bad(
        lambda: Training(1, optimiser=optax.lbfgs()),
        ValueError,
        "Training(optimiser=...): it needs more than gradients",
    ),
    "a dual rate of zero": Bad(lambda: PrimalDual(0.0), ValueError, "PrimalDual(learning_rate=0.0): it"),
    "a negative first weight": Bad(lambda: PrimalDual(initial=-1.0), ValueError, "PrimalDual(initial=-1.0): the first"),
    # fit: problem, features, points
    "fit of a box": Bad(
        lambda: fit(LINE, features_of("growth"), {}),
        TypeError,
        "problem is a Box; give Problem",
    ),
    "a number of features": Bad(
        lambda: fit(small("growth"), 800, {}), TypeError, "features is a int; give FourierFeatures"
    ),
    "features of another box": Bad(
        lambda: fit(small("oscillator"), features_of("growth"), {}),
        ValueError,
        "the features are for Box(x=(0, 1)), the",
    ),
    "features without the basis": Bad(
        lambda: fit(enriched(), features_of("growth"), {}), ValueError, "the features hold other basis functions"
    ),
    "a number of points": Bad(
        lambda: fit(small("growth"), features_of("growth"), 1000),
        TypeError,
        "points: give arrays by condition, as problem.sample(1000) does, not 1000",
    ),
    "points for one of two": Bad(
        lambda: fit(small("growth"), features_of("growth"), {"ode": table(0.5)}),
        ValueError,
        "points: there are no points for the condition 'start'",
    ),
    "points for a stranger": Bad(rows(end=table(1.0)), ValueError, "points: there is no condition 'end'"),
    "points in a row": Bad(rows(ode=np.linspace(0, 1, 5)), ValueError, "(n, 1), n at least 1, not array([0. , .."),
    "points of the plane": Bad(rows(ode=np.zeros((1, 2))), ValueError, "(n, 1), n at least 1, not array([[0., 0.]])"),
    "points from a generator": Bad(rows(ode=(one for one in "a")), ValueError, "n at least 1, not <generator"),
    "points of text": Bad(rows(ode=[["0.5"]]), ValueError, "(n, 1), n at least 1, not [['0.5']]"),
    "points of NaN": Bad(rows(ode=table(0.1, math.nan)), ValueError, "points['ode']: point number 1 is NaN"),
    "points out of the box": Bad(rows(ode=table(0.1, 1.5)), ValueError, "points['ode']: the point x=1.5 is not in"),
    "points off the face": Bad(rows(start=table(0.5)), ValueError, "points['start']: the point x=0.5 is not in"),
    "other points than the data's": Bad(
        lambda: fit(measured(), features_of("growth"), {"ode": table(0.5), "data": table(0.2, 0.1)}),
        ValueError,
        "points['data']: the condition is on given points; pass exactly those",
    ),
    "an operator's pole": Bad(lambda: at_the_pole(points=True), ValueError, "points['wave']: the operator or"),
    "an operator's pole, held out": Bad(
        lambda: at_the_pole(held_out=True), ValueError, "held_out['wave']: the operator or"
    ),
    "held-out points for one": Bad(fitted(held_out={"ode": table(0.5)}), ValueError, "held_out: there are no points"),
    # fit: strategies, weights, numbers
    "a class for a lower level": Bad(fitted(lower=LeastSquares), TypeError, "GaussNewton(), not <class"),
    "a lower level by name": Bad(fitted(lower="ridge"), TypeError, "GaussNewton(), not 'ridge'"),
    "a linear solve of u^2": Bad(
        nonlinear(lower=Ridge()), ValueError, "fit(lower=Ridge): the condition 'ode' is nonlinear"
    ),
    "training on u^2": Bad(trained_on_a_square, ValueError, "training the backbone needs a linear problem"),
    "a number for training": Bad(fitted(upper=100), TypeError, "fit(upper=100): give Training"),
    "nothing to train": Bad(
        fitted(upper=Training(3)), ValueError, "fit(upper=...): this backbone has nothing to train"
    ),
    "one weight": Bad(fitted(weights=1.0), TypeError, "weights: give one number for each condition, by name, not 1.0"),
    "a weight missing": Bad(fitted(weights={"ode": 1.0}), ValueError, "weights: the condition 'start' is missing"),
    "a weight misspelt": Bad(
        fitted(weights={"odee": 1, "start": 1}), ValueError, "weights: there is no condition 'odee'"
    ),
    "a negative weight": Bad(fitted(weights={"ode": -1, "start": 1}), ValueError, "weights['ode']=-1: a weight must"),
    "a NaN weight": Bad(fitted(weights={"ode": math.nan, "start": 1}), ValueError, "weights['ode']=nan: a weight"),
    "a weight beyond floats": Bad(
        fitted(weights={"ode": 1, "start": 10**400}),
        ValueError,
        "weights['start']=100000000000000000...0",
    ),
    "a weight as text": Bad(fitted(weights={"ode": "1", "start": 1}), ValueError, "weights['ode']='1': a weight"),
    "weights of zero": Bad(fitted(weights={"ode": 0, "start": 0}), ValueError, "weights: all of them are 0"),
    "weights below of a stranger": Bad(
        fitted(lower=Ridge(weights={"x": 1.0})), ValueError, "weights: there is no condition 'x'"
    ),
    "a tolerance of zero": Bad(fitted(tolerance=0), ValueError, "fit(tolerance=0): give a positive number"),
    "a tolerance of True": Bad(fitted(tolerance=True), ValueError, "fit(tolerance=True): give a positive number"),
    "memory as text": Bad(fitted(memory="1GB"), ValueError, "fit(memory='1GB'): give a positive number"),
    "too much memory": Bad(fitted(memory=1000), ValueError, "GiB may be used; take fewer features, or give memory="),
    "too much memory to train": Bad(
        lambda: fit(small("growth"), network(), small("growth").sample(2000), upper=Training(1), memory=500_000),
        ValueError,
        "fit(upper=...): to train, 2001 rows",
    ),
    "negative seconds": Bad(fitted(max_seconds=-1), ValueError, "fit(max_seconds=-1): give a positive number"),
    "a seed as a fraction": Bad(fitted(seed=0.5), ValueError, "seed=0.5: give a whole number, 0 or more"),
    "a seed as text": Bad(fitted(seed="1"), ValueError, "seed='1': give a whole number, 0 or more"),
    "a progress of True": Bad(fitted(progress=True), TypeError, "fit(progress=True): give a function of a record"),
    "a checkpoint nowhere": Bad(
        fitted(checkpoint="nowhere/run.ifef"),
        FileNotFoundError,
        "Cannot write 'nowhere/run.ifef': its folder does not exist",
    ),
    "a checkpoint that is a number": Bad(
        fitted(checkpoint=3), TypeError, "checkpoint: give the path of a file, as text"
    ),
    "a checkpoint that is a folder": Bad(
        fitted(checkpoint="folder"), StorageError, "Cannot read 'folder': it is a folder"
    ),
    "a checkpoint that is a note": Bad(
        fitted(checkpoint="mine.txt"), StorageError, "'mine.txt' is not an ifef archive"
    ),
    "a checkpoint that is a solution": Bad(
        fitted(checkpoint="answer.ifef"), StorageError, "answer.ifef holds a 'ifef solution', not a checkpoint"
    ),
    "a checkpoint of another run": Bad(
        fitted(checkpoint="other.ifef"), StorageError, "other.ifef belongs to a run with other settings"
    ),
    "a checkpoint cut short": Bad(fitted(checkpoint="torn.ifef"), StorageError, "'torn.ifef' is damaged (its checksum"),
    # solve
    "a problem by name": Bad(solving("burgers"), TypeError, "solve(problem): give a Problem, not str"),
    "a function that makes one": Bad(solving(problems.burgers), TypeError, "give a Problem, not function"),
    "a negative seed": Bad(solving(seed=-2), ValueError, "seed=-2: give a whole number, 0 or more"),
    "a huge seed": Bad(solving(seed=2**64), ValueError, "seed=18446744073709551616: give a whole number"),
    "an infinite tolerance": Bad(solving(tolerance=math.inf), ValueError, "solve(tolerance=inf): give a positive"),
    "a tolerance as text": Bad(solving(tolerance="1e-3"), ValueError, "solve(tolerance='1e-3'): give a positive"),
    "a tolerance that is True": Bad(solving(tolerance=True), ValueError, "solve(tolerance=True): give a positive"),
    "no time": Bad(solving(max_seconds=0), ValueError, "solve(max_seconds=0): give a positive"),
    "five features": Bad(
        solving(max_features=5), ValueError, "solve(max_features=5): give a whole number of at least 10"
    ),
    "features as a float": Bad(solving(max_features=1e3), ValueError, "solve(max_features=1000.0): give a whole"),
    "a misspelt preset": Bad(solving(preset="papers"), ValueError, "solve(preset='papers'): the presets are"),
    "a preset of one's own": Bad(solving(preset="paper"), ValueError, "it has no settings for a problem of your own"),
    "epochs of no preset": Bad(solving(epochs=3), ValueError, "solve(epochs=...): epochs belong to a preset"),
    "negative epochs": Bad(solving(preset="paper", epochs=-3), ValueError, "solve(epochs=-3): give a whole number"),
    "a preset of other features": Bad(
        solving(preset="paper", max_features=50), ValueError, "solve(max_features=...): a preset has its own number"
    ),
    "progress as text": Bad(
        lambda: solve(small("growth"), progress="bar"), TypeError, "solve(progress='bar'): give True"
    ),
}


@functools.cache
def network() -> Any:
    return fourier_features(small("growth"), 4, backbone=(4,), sigma=0.3)


ANSWERING: dict[str, Bad] = {
    "outside": Bad(lambda: solved("growth")(x=1.5), ValueError, "solution(...): x leaves the domain (0, 1)"),
    "of no coordinate": Bad(lambda: solved("growth")(), ValueError, "solution(...): the coordinate 'x' is missing"),
    "of an unknown coordinate": Bad(
        lambda: solved("growth")(y=0.5), ValueError, "solution(...): unknown coordinate 'y'"
    ),
    "of NaN": Bad(lambda: solved("growth")(x=math.nan), ValueError, "solution(...): 'x' holds NaN, infinity or"),
    "of text": Bad(lambda: solved("growth")(x="0.5"), TypeError, "solution(...): 'x' must be a number or an array"),
    "at a row": Bad(lambda: solved("growth").at(np.zeros(5)), ValueError, "at(...): give an array (n, 1), not (5,)"),
    "at text": Bad(lambda: solved("growth").at(np.array([["a"]])), TypeError, "at(...): give an array of real numbers"),
    "error without exact": Bad(
        lambda: unexplained().error(), ValueError, "error(): this problem has no exact solution"
    ),
    "error without a problem": Bad(lambda: load("answer.ifef").error(), ValueError, "loaded without its problem; use"),
    "a grid of nothing": Bad(
        lambda: solved("growth").grid(0), ValueError, "grid(num=0): give a whole number of points"
    ),
    "a grid beyond memory": Bad(
        lambda: solved("growth").to_xarray(10**13), ValueError, "grid(num=10000000000000): give"
    ),
    "a figure for a word processor": Bad(
        lambda: solved("growth").plot("figure.doc"), ValueError, "'figure.doc': end the name in .png, .pdf, .svg"
    ),
    "a figure nowhere": Bad(
        lambda: solved("growth").plot(None), TypeError, "plot(path): give the path of a file, as text"
    ),
    "a figure into no folder": Bad(
        lambda: solved("growth").plot("nowhere/a.png"), FileNotFoundError, "nowhere/a.png': its folder does not exist"
    ),
    "saved into no folder": Bad(
        lambda: solved("growth").save("nowhere/a"), FileNotFoundError, "nowhere/a.ifef': its folder does not exist"
    ),
    "saved over a folder": Bad(
        lambda: solved("growth").save("chest"), IsADirectoryError, "chest': it is a folder; pass the path of a file"
    ),
    "saved below a file": Bad(
        lambda: solved("growth").save("mine.txt/a"), NotADirectoryError, "a part of the path before the last is a file"
    ),
    "saved under too long a name": Bad(lambda: solved("growth").save("a" * 256), OSError, "File name too long; check"),
    "saved as a number": Bad(
        lambda: solved("growth").save(3), TypeError, "save(path): give the path of a file, as text"
    ),
    "loaded from nowhere": Bad(lambda: load("gone.ifef"), FileNotFoundError, "There is no file 'gone.ifef'"),
    "loaded from a solution": Bad(lambda: load(solved("growth")), TypeError, "load(path): give the path of a file, as"),
    "loaded from a pickle": Bad(lambda: load("pickle.ifef"), StorageError, "'pickle.ifef' is not an ifef archive"),
    "loaded from half a file": Bad(lambda: load("half.ifef"), StorageError, "'half.ifef' is damaged (its checksum is"),
    "loaded from its first bytes": Bad(
        lambda: load("start.ifef"), StorageError, "'start.ifef' is damaged (it ends too early)"
    ),
    "loaded with a bit turned": Bad(
        lambda: load("turned.ifef"), StorageError, "'turned.ifef' is damaged (its checksum"
    ),
    "loaded from the future": Bad(lambda: load("future.ifef"), StorageError, "it has format 9 and this ifef reads 1"),
    "loaded from a checkpoint": Bad(
        lambda: load("other.ifef"), StorageError, "other.ifef holds a 'ifef checkpoint', not a solution"
    ),
    "loaded with a problem by name": Bad(
        lambda: load("answer.ifef", "burgers"),
        TypeError,
        "load(path, problem): give a Problem or leave it out, not a str",
    ),
    "loaded with another box": Bad(
        lambda: load("answer.ifef", small("oscillator")), ValueError, "the problem has another domain or other unknowns"
    ),
    "loaded with other conditions": Bad(
        lambda: load("answer.ifef", measured()),
        ValueError,
        "the file solves another problem, with the conditions ode, start",
    ),
    "loaded without its basis": Bad(lambda: load("enriched.ifef"), ValueError, "has 1 own basis functions; give its"),
    "no coefficients": Bad(
        changed("a.ifef", lambda settings, arrays: arrays.pop("theta")), StorageError, "it lacks 'theta'"
    ),
    "complex coefficients": Bad(
        changed("b.ifef", lambda settings, arrays: arrays.update(theta=1j * arrays["theta"])),
        StorageError,
        "that fit the features, not complex128",
    ),
    "coefficients too few": Bad(
        changed("c.ifef", lambda settings, arrays: arrays.update(theta=np.zeros(3))), StorageError, "not float64 (3,)"
    ),
    "a flat table": Bad(
        changed("d.ifef", lambda settings, arrays: arrays.update(frequencies=np.zeros(6))),
        StorageError,
        "a table of frequencies, not float64 (6,)",
    ),
    "a hostile domain": Bad(
        changed("e.ifef", lambda settings, arrays: settings["features"].update(domain={"__class__": [0, 1]})),
        StorageError,
        "a domain that makes sense: Box(__class__=...)",
    ),
    "a hostile backbone": Bad(
        changed("f.ifef", lambda settings, arrays: settings["features"].update(kind="os.system")),
        StorageError,
        "a backbone of a known kind, not 'os.system'",
    ),
    "a hostile unknown": Bad(
        changed("g.ifef", lambda settings, arrays: settings["unknowns"][0].update(name="a b")),
        StorageError,
        "an unknown that makes sense: Unknown('a b')",
    ),
    "a status of one's own": Bad(
        changed("h.ifef", lambda settings, arrays: settings.update(status="great")), StorageError, "it lacks 'great'"
    ),
    "no statistics": Bad(
        changed("i.ifef", lambda settings, arrays: settings.update(stats={})), StorageError, "it lacks 'rank'"
    ),
    "a rank as text": Bad(
        changed("j.ifef", lambda settings, arrays: settings["stats"].update(rank="full")),
        StorageError,
        "a number in the place of 'full'",
    ),
    "no estimate": Bad(
        changed("k.ifef", lambda settings, arrays: settings.update(estimates={})), StorageError, "it lacks 'u'"
    ),
    "a history of numbers": Bad(
        changed("l.ifef", lambda settings, arrays: settings.update(history=[3])),
        StorageError,
        "it lacks a list of records",
    ),
    "residuals of other points": Bad(
        changed("m.ifef", lambda settings, arrays: arrays.update({"held_out.ode.values": np.zeros((3, 3))})),
        StorageError,
        "it lacks one residual a point of 'ode'",
    ),
    "exported without fields": Bad(lambda: export.write_csv("a.csv", {"x": HELD}, {}), ValueError, "nothing to export"),
    "exported in another shape": Bad(
        lambda: export.write_netcdf("a.nc", {"x": HELD}, {"u": np.zeros(4)}),
        ValueError,
        "shape (4,), but the axes have (2,)",
    ),
    "exported on a line for ParaView": Bad(
        lambda: export.write_vtk("a.vtr", {"x": HELD}, {"u": HELD}), ValueError, "VTK holds 2 or 3 dimensions and this"
    ),
    "exported where x is u": Bad(
        lambda: export.write_csv("a.csv", {"x": HELD}, {"x": HELD}), ValueError, "'x' names a field and an axis"
    ),
    "exported into no folder": Bad(
        lambda: export.write_csv("nowhere/a.csv", {"x": HELD}, {"u": HELD}),
        FileNotFoundError,
        "nowhere/a.csv': its folder",
    ),
}

PYTHON: dict[str, Bad] = {
    f"{part}: {name}": row
    for part, group in (
        ("stating", STATING),
        ("operator", OPERATORS),
        ("choosing", CHOOSING),
        ("answering", ANSWERING),
    )
    for name, row in group.items()
}


# --- the tests of it --------------------------------------------------------------------------------------------------


def everything() -> dict[str, bytes]:
    """All files below this folder but for locks, which are empty."""
    files = (path for path in Path().rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a user may have in one."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "folder").mkdir()
    (folder / "chest").mkdir()
    (folder / "mine.txt").write_text("mine")
    (folder / "pickle.ifef").write_bytes(pickle.dumps({"kind": "ifef solution"}))
    whole = solved("growth").save(folder / "answer").read_bytes()
    (folder / "half.ifef").write_bytes(whole[: len(whole) // 2])
    (folder / "start.ifef").write_bytes(whole[:12])
    (folder / "turned.ifef").write_bytes(whole[:300] + bytes([whole[300] ^ 1]) + whole[301:])
    (folder / "future.ifef").write_bytes(whole[:8] + b"\x09" + whole[9:])
    own = fourier_features(enriched(), 4, sigma=0.3, backbone=())
    fit(enriched(), own, points_of("growth")).save(folder / "enriched")
    storage.save_archive(folder / "other.ifef", {"kind": "ifef checkpoint", "mark": "another"}, {})
    (folder / "torn.ifef").write_bytes((folder / "other.ifef").read_bytes()[:-7])
    return folder


@pytest.fixture(scope="module")
def refusal(desk: Path) -> Callable[[str], Exception]:
    """What a row raises; done once, and what was on the desk before is there afterwards, byte for byte."""

    @functools.cache
    def raised(name: str) -> Exception:
        with contextlib.chdir(desk):
            before = everything()
            with pytest.raises(Exception) as caught:  # noqa: PT011
                PYTHON[name].use()
            after = everything()
        assert {path: after.get(path) for path in before} == before
        assert all(path.endswith(".ifef") and len(path) == 6 for path in after.keys() - before.keys()), "a file is left"
        return caught.value

    return raised


@pytest.mark.parametrize("name", PYTHON)
def test_a_malformed_use_is_one_sentence(name: str, refusal: Callable[[str], Exception]) -> None:
    error, row = refusal(name), PYTHON[name]
    assert type(error) is row.raised
    assert row.said in str(error)
    assert "\n" not in str(error)
    assert 20 < len(str(error)) < 400
    assert str(error).rstrip()[-1] in ".…"


def test_no_sentence_is_another_ones(refusal: Callable[[str], Exception]) -> None:
    said = {name: str(refusal(name)) for name in PYTHON}
    assert not [(name, other) for name in said for other in said if name != other and PYTHON[name].said in said[other]]


# --- the table for the command line -----------------------------------------------------------------------------------


class Typed(NamedTuple):
    """A malformed command, a part of its sentence that no other row has, and what lies there before."""

    argv: str
    said: str
    files: Mapping[str, bytes | str] = MappingProxyType({})


def problem_file(operator: str = "u(p)", more: str = "") -> str:
    """A problem of one's own; the operator stands on line 4."""
    return (
        "import math\nfrom ifef import Box, Condition, Problem, d\nbox = Box(x=(0.0, 1.0))\n"
        f"operator = lambda u, p: {operator}\n"
        f"problem = Problem(box, wave=Condition(box.interior, operator, 1.0){more})\n"
    )


def run_folder(*, problem: str = '"problem": "burgers"', **files: bytes | str) -> dict[str, bytes | str]:
    """An unfinished run 1 of a problem, with more files given as `checkpoint_ifef=...`."""
    there = {f"runs/x/1/{name.replace('_', '.')}": text for name, text in files.items()}
    return {"runs/x/1/config.json": f"{{{problem}}}", "runs/x/1/environment.json": "{}", **there}


PICKLED = pickle.dumps({"kind": "ifef checkpoint"})
TORN = b"\x93IFEF\r\n\x1a\x01\0\0\0"

COMMANDS: tuple[Typed, ...] = (
    Typed("slove burgers", 'Unknown command "slove". Did you mean "solve"?'),
    Typed("solve helmholtz-hgih", "There is no problem 'helmholtz-hgih': did you mean helmholtz-high?"),
    Typed("solve schroedinger", "There is no problem 'schroedinger': `ifef list` names those there are"),
    Typed("solve gone.py", "There is no file 'gone.py': check the path, or make it with `ifef new`"),
    Typed("solve mt_problem.py", "did you mean my_problem.py?", {"my_problem.py": ""}),
    Typed("solve work", "'work' is a folder: give the problem file in it", {"work/a.py": "mine"}),
    Typed("solve bare.py", "bare.py defines no variable `problem`", {"bare.py": "x = 1\n"}),
    Typed("solve other.py", "rename 'wave' to it", {"other.py": problem_file().replace("problem =", "wave =")}),
    Typed("solve number.py", "`problem` is a int; set it to an ifef.Problem", {"number.py": "problem = 3\n"}),
    Typed("solve torn.py", "torn.py:2: '(' was never closed", {"torn.py": "x = 1\nproblem = Problem(\n"}),
    Typed("solve raises.py", "raises.py:2: ZeroDivisionError: division by zero", {"raises.py": "x = 1\nx / 0\n"}),
    Typed("solve module.py", "module.py:1: ModuleNotFoundError: No module named", {"module.py": "import no_such"}),
    Typed(
        "solve leaves.py", "leaves.py calls exit(0) before it is read to its end", {"leaves.py": "raise SystemExit(0)"}
    ),
    Typed("solve binary.py", "binary.py: source code string cannot contain null bytes", {"binary.py": b"x = 1\0"}),
    Typed(
        "solve sine.py",
        "sine.py:5: TypeError: condition 'wave': the operator uses a function of `math`",
        {"sine.py": problem_file("math.sin(p.x) * u(p)")},
    ),
    Typed(
        "solve vector.py",
        "vector.py:5: ValueError: condition 'wave': the operator returns a tuple",
        {"vector.py": problem_file("(u(p), u(p))")},
    ),
    Typed(
        "solve far.py",
        "far.py:5: ValueError: condition 'wave': the operator evaluates u outside of Box",
        {"far.py": problem_file("u(p) - u(p._replace(x=p.x + 1))")},
    ),
    Typed(
        "solve exact.py",
        "exact.py:5: ValueError: exact solution of 'u' is NaN or infinite",
        {"exact.py": problem_file(more=", exact=lambda p: p.x * math.nan")},
    ),
    Typed("solve burgers --seed -1", "--seed -1: it must be greater than or equal to 0"),
    Typed("solve burgers --seed 0.5", "'0.5' is not a whole number"),
    Typed("solve burgers --seed 4294967296", "--seed 4294967296: it must be"),
    Typed("solve burgers --tolerance 0", "--tolerance 0.0: it must be greater than 0"),
    Typed("solve burgers --tolerance nan", "--tolerance nan: it must be"),
    Typed("solve burgers --tolerance 1e-3x", "1e-3x"),
    Typed("solve burgers --max-features 3", "--max-features 3: it must be"),
    Typed("solve burgers --max-seconds inf", "--max-seconds inf: it must be"),
    Typed("solve burgers --tolerence 1", "Unknown option: --tolerence. Did you mean --tolerance?"),
    Typed("solve convection-50 --preset papers", 'Did you mean "paper"?'),
    Typed("solve convection-50 --epochs 5", "--epochs shortens a preset"),
    Typed("solve convection-50 --preset paper --epochs -5", "--epochs -5: it must be"),
    Typed("solve convection-50 --preset paper --max-features 90", "--max-features: a preset has its own number"),
    Typed("solve burgers --preset paper", "the paper has no settings for 'burgers'"),
    Typed(
        "solve own.py --preset paper",
        "--preset paper: the paper has no settings for a problem of",
        {"own.py": problem_file()},
    ),
    Typed("solve burgers --out taken", "Cannot put a run into 'taken/burgers': 'taken' is a file", {"taken": "mine"}),
    Typed("solve burgers --out taken/runs", "Cannot put a run into 'taken/runs/burgers'", {"taken": "mine"}),
    Typed("resume 2027", "There is no run '2027': the newest in 'runs' is", run_folder()),
    Typed("resume last", "There is no run 'last': there are no runs in 'runs' yet"),
    Typed("resume notes", "'notes' is not a run (a folder with config.json)", {"notes/a.txt": "mine"}),
    Typed(
        "resume 1",
        "checkpoint.ifef' is damaged (it ends too early): restore a copy, or remove it",
        run_folder(checkpoint_ifef=TORN),
    ),
    Typed("resume 1", "checkpoint.ifef' is not an ifef archive", run_folder(checkpoint_ifef=PICKLED)),
    Typed("resume 1", "config.json' is damaged (it is not JSON)", {"runs/x/1/config.json": "{"}),
    Typed("resume 1", "config.json' is damaged (--seed -3:", run_folder(problem='"problem": "burgers", "seed": -3')),
    Typed("resume 1", "has lost its problem.py", run_folder(problem='"problem": "file", "file": "a.py"')),
    Typed("resume 1", "environment.json' is damaged", {**run_folder(), "runs/x/1/environment.json": "{"}),
    Typed("show 1", "result.json' is damaged (it is not JSON)", run_folder(result_json="[1")),
    Typed("show 1", "result.json' is damaged: remove it and", run_folder(result_json="{}")),
    Typed("show 1", "metrics.jsonl' is damaged (line 1 is no record)", run_folder(metrics_jsonl="what\n")),
    Typed("export 1 --to csv", "has no solution yet: `ifef resume", run_folder()),
    Typed("export 1 --to csv", "solution.ifef' is not an ifef archive", run_folder(solution_ifef=PICKLED)),
    Typed("export 1 --to netcdf", "solution.ifef' is damaged (it ends too early)", run_folder(solution_ifef=TORN)),
    Typed("export 1 --to cvs", 'Did you mean "csv"?', run_folder()),
    Typed("export 1 --to csv --points 0", "--points 0: give a whole number from 1", run_folder()),
    Typed(
        "export 1 --to csv --out mine.csv", "'mine.csv' exists already: remove it", {**run_folder(), "mine.csv": "mine"}
    ),
    Typed("new mine.py", "'mine.py' exists already: name another file", {"mine.py": "mine"}),
    Typed("new mine.txt", "'mine.txt' must end in .py"),
    Typed("new nowhere/mine.py", "nowhere/mine.py': its folder does not exist"),
    Typed("list everything", "too many: everything"),
)


def plant(files: Mapping[str, bytes | str]) -> dict[str, bytes]:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return everything()


def assert_one_line(status: int, out: str, err: str) -> None:
    assert status == cli.BAD_INPUT, err
    assert err.startswith("ifef: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert err.rstrip()[-1] in ".?`"
    assert out == ""
    assert "Traceback" not in out + err


@pytest.fixture(autouse=True)
def _a_cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def sentences() -> dict[int, str]:
    """What was said so far, by row."""
    return {}


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=lambda number: f"{number}: {COMMANDS[number].argv}")
def test_a_malformed_command_is_one_line(
    number: int, sentences: dict[int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    typed = COMMANDS[number]
    before = plant(typed.files)
    status = cli.main(typed.argv.split())
    said = capsys.readouterr()
    assert_one_line(status, said.out, said.err)
    assert typed.said in said.err
    assert everything() == before
    sentences[number] = said.err


def test_no_line_is_another_ones(sentences: dict[int, str]) -> None:
    others = [(one, number) for one in range(len(COMMANDS)) for number in range(len(COMMANDS)) if one != number]
    assert not [(one, other) for one, other in others if COMMANDS[one].said in COMMANDS[other].said]
    assert not [(one, other) for one, other in others if COMMANDS[one].said in sentences.get(other, "")]


@pytest.mark.parametrize("number", [1, 14, 38])
def test_and_so_it_is_in_a_process_of_its_own(number: int) -> None:
    typed = COMMANDS[number]
    before = plant(typed.files)
    source = os.pathsep.join([str(Path(ifef.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "ifef", *typed.argv.split()]
    surroundings = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert_one_line(done.returncode, done.stdout, done.stderr)
    assert typed.said in done.stderr
    assert everything() == before
