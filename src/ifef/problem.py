"""Conditions and problems: what a user states, checked at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ifef.checks import check_operator, check_traced, evaluate, is_number
from ifef.domain import Box, Region, shown
from ifef.sampling import Sampler, sample

RESERVED = ("domain", "exact", "unknowns", "basis", "name")
_PROBES = 16  # sample points at which an operator is tried


@dataclass(frozen=True)
class Unknown:
    """An unknown field: a function of all coordinates, or of those in `over` only, or one number (`scalar`).

    `complex=True` gives a complex-valued field. `region` is the door for one unknown per material; a box has one.
    """

    name: str
    over: tuple[str, ...] | None = None
    complex: bool = False
    scalar: bool = False
    region: Region | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without a domain."""
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"Unknown({self.name!r}): the name must be an identifier such as 'u'.")
        for key, flag in (("complex", self.complex), ("scalar", self.scalar)):
            if not isinstance(flag, bool):
                raise TypeError(f"Unknown({self.name!r}, {key}={shown(flag)}): give True or False.")
        if self.region is not None:
            raise ValueError(f"Unknown({self.name!r}, region=...): a box has one material; leave `region` out.")
        if self.scalar and self.over is not None:
            raise ValueError(f"Unknown({self.name!r}): a scalar depends on no coordinate; leave `over` out.")
        if isinstance(self.over, str):
            object.__setattr__(self, "over", (self.over,))
        if self.over is not None:
            if not isinstance(self.over, Sequence) or not self.over:
                raise ValueError(f"Unknown({self.name!r}, over={shown(self.over)}): name coordinates, such as ('x',).")
            object.__setattr__(self, "over", tuple(self.over))

    def coordinates(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Give the coordinates that the unknown depends on."""
        if self.scalar:
            return ()
        return names if self.over is None else tuple(self.over)


@dataclass(frozen=True, eq=False)
class Condition:
    """`operator(u, p) = target` on a region; with several unknowns `operator(u, v, ..., p)`.

    A condition on a region of full dimension is an equation, any other is data; `equation` overrides that.
    """

    region: Region
    operator: Callable[..., Any]
    target: Any = 0.0
    equation: bool | None = None

    def __post_init__(self) -> None:
        """Check the types; the operator itself is tried when a `Problem` knows the unknowns."""
        if not isinstance(self.region, Region):
            kind, hint = type(self.region).__name__, "box.interior, box.boundary, box.lower(name), box.upper(name)"
            raise TypeError(f"Condition(region, ...): the region is a {kind}; give {hint} or box.points(...).")
        if not callable(self.operator):
            raise TypeError(
                f"Condition(region, operator): the operator is a {type(self.operator).__name__}; "
                "give a function of the unknown and a point, such as lambda u, p: u(p)."
            )
        if not (self.equation is None or isinstance(self.equation, bool)):
            raise TypeError(f"Condition(equation={shown(self.equation)}): give True, False or None; weights go to fit.")
        if callable(self.target) or is_number(self.target):
            return
        try:
            array = np.asarray(self.target)
        except ValueError:
            array = np.asarray(None)
        if array.dtype.kind not in "fiuc":
            raise TypeError("Condition(target=...): give a number, a function of a point, or an array of numbers.")
        if not self.region.is_cloud:
            if array.shape == ():
                raise ValueError(f"Condition(target={self.target!r}): the target must be a finite Python number.")
            raise ValueError("Condition(target=array): an array needs a region of given points, box.points(...).")
        if array.shape != (len(self.region.cloud),):
            num = len(self.region.cloud)
            raise ValueError(f"Condition(target=array): {array.shape} values for {num} points; give one value a point.")
        wrong = np.flatnonzero(~np.isfinite(array) | np.ma.getmaskarray(self.target))
        if len(wrong):
            raise ValueError(
                f"Condition(target=array): value number {wrong[0]} is NaN, infinite or masked; leave it out."
            )
        object.__setattr__(self, "target", array)

    @property
    def is_equation(self) -> bool:
        """Whether this is an equation (as opposed to data)."""
        return self.region.is_full if self.equation is None else self.equation

    def targets(self, coordinates: np.ndarray, label: str = "target") -> np.ndarray:
        """Target values at points (n, dim) of the region."""
        return evaluate(label, self.target, self.region.domain, coordinates)


class Problem:
    """A domain, the unknown fields, and the conditions that they satisfy.

    `exact` is only ever used by `Solution.error()`; `basis` holds functions of a point that join every unknown's basis.
    """

    def __init__(
        self,
        domain: Box,
        *,
        exact: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        unknowns: str | Unknown | Sequence[str | Unknown] = ("u",),
        basis: Sequence[Callable[..., Any]] = (),
        name: str = "",
        **conditions: Condition,
    ):
        if not isinstance(domain, Box):
            raise TypeError(f"Problem(domain, ...): the domain is a {type(domain).__name__}; give a Box.")
        _check_reserved({"exact": exact, "unknowns": unknowns, "basis": basis, "name": name})
        self.domain = domain
        self.name = name
        self.unknowns = _checked_unknowns(unknowns, domain)
        self.conditions = _checked_conditions(conditions, domain)
        self.basis = _checked_basis(basis, domain)
        self.exact = _checked_exact(exact, self.unknowns, domain)
        self.affine: dict[str, bool] = {}
        used = np.zeros(len(self.unknowns), dtype=bool)
        for key, condition in self.conditions.items():
            label = f"condition {key!r}: the operator"
            rows = sample(condition.region, _PROBES, sampler="uniform", seed=1)[:_PROBES]
            self.affine[key], depends = check_operator(label, condition.operator, domain, self.unknowns, rows)
            label = _target_label(key)
            values = condition.targets(rows if not condition.region.is_cloud else condition.region.cloud, label)
            _refuse_complex(label, values, self.unknowns)
            used |= depends
        if not used.all():
            missing = self.unknowns[int(np.flatnonzero(~used)[0])].name
            raise ValueError(f"Problem(...): the unknown {missing!r} occurs in no condition.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the unknowns."""
        return tuple(unknown.name for unknown in self.unknowns)

    @property
    def linear(self) -> bool:
        """Whether every condition is affine in the unknowns, as tested numerically."""
        return all(self.affine.values())

    def sample(
        self,
        num: int | Mapping[str, int],
        *,
        sampler: Sampler | Mapping[str, Sampler] = "sobol",
        seed: int = 0,
    ) -> dict[str, np.ndarray]:
        """Draw points (n, dim) for every condition; one number for all, or a number by condition."""
        points = {}
        for index, (key, condition) in enumerate(self.conditions.items()):
            count = _by_name(num, key, "num", self.conditions)
            chosen = _by_name(sampler, key, "sampler", self.conditions)
            # By place, not by name: a condition under another name has the same points.
            points[key] = sample(condition.region, count, sampler=chosen, seed=seed, label=str(index))
        return points

    def targets(self, points: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Target values at the points of every condition."""
        return {key: self.conditions[key].targets(rows, _target_label(key)) for key, rows in points.items()}

    def exact_values(self, coordinates: np.ndarray) -> dict[str, np.ndarray]:
        """Exact solution at points (n, dim), by unknown."""
        if self.exact is None:
            raise ValueError("error(): this problem has no exact solution; use error_estimate and residuals.")
        return {
            name: evaluate(f"exact solution of {name!r}", function, self.domain, coordinates)
            for name, function in zip(self.names, self.exact, strict=True)
        }


def _target_label(key: str) -> str:
    return f"condition {key!r}: the target"


def _by_name(value: Any, key: str, argument: str, conditions: Mapping[str, Any]) -> Any:
    """Look up a per-condition setting that may be given once for all."""
    if not isinstance(value, Mapping):
        return value
    for given in value:
        if given not in conditions:
            known = ", ".join(conditions)
            raise ValueError(f"{argument}: there is no condition {given!r}; the conditions are: {known}.")
    if key not in value:
        raise ValueError(f"{argument}: the condition {key!r} is missing.")
    return value[key]


def _check_reserved(given: Mapping[str, Any]) -> None:
    for key, value in given.items():
        if isinstance(value, Condition):
            taken = ", ".join(RESERVED)
            raise TypeError(f"Problem({key}=Condition(...)): {taken} cannot name a condition; choose another name.")
    if not isinstance(given["name"], str):
        raise TypeError(f"Problem(name={shown(given['name'])}): the name is text for reports; give a string.")


def _checked_unknowns(unknowns: Any, domain: Box) -> tuple[Unknown, ...]:
    if isinstance(unknowns, (str, Unknown)):
        unknowns = (unknowns,)
    if not isinstance(unknowns, Sequence):
        raise TypeError(f"Problem(unknowns={shown(unknowns)}): give names, such as ('u', 'v').")
    result = tuple(Unknown(item) if isinstance(item, str) else item for item in unknowns)
    if not result:
        raise ValueError("Problem(unknowns=()): name at least one unknown.")
    for item in result:
        if not isinstance(item, Unknown):
            raise TypeError(f"Problem(unknowns=...): give names or Unknown(...), not {type(item).__name__}.")
        known = ", ".join(domain.names)
        if item.name in domain.names:
            raise ValueError(f"Unknown({item.name!r}): a coordinate has this name ({known}); choose another name.")
        for name in item.coordinates(domain.names):
            if name not in domain.names:
                raise ValueError(f"Unknown({item.name!r}, over=...): no coordinate is {name!r}; there are: {known}.")
    names = [item.name for item in result]
    if len(set(names)) != len(names):
        raise ValueError(f"Problem(unknowns={names}): a name occurs twice.")
    return result


def _checked_conditions(conditions: Mapping[str, Any], domain: Box) -> dict[str, Condition]:
    if not conditions:
        raise ValueError("Problem(...): give at least one condition, such as equation=Condition(box.interior, ...).")
    for key, condition in conditions.items():
        if not isinstance(condition, Condition):
            raise TypeError(f"Problem({key}=...): it is a {type(condition).__name__}; give a Condition.")
        if condition.region.domain != domain:
            other = condition.region.domain
            raise ValueError(f"condition {key!r}: its region belongs to {other}, the problem to {domain}.")
    return dict(conditions)


def _checked_basis(basis: Any, domain: Box) -> tuple[Callable[..., Any], ...]:
    if not isinstance(basis, Sequence):
        raise TypeError(f"Problem(basis=...): give a tuple of functions of a point, not a {type(basis).__name__}.")
    functions = tuple(basis)
    rows = sample(domain.interior, _PROBES, sampler="uniform", seed=1)
    for index, function in enumerate(functions):
        if not callable(function):
            kind = type(function).__name__
            raise TypeError(f"Problem(basis=...): entry {index} is a {kind}; give functions of a point.")
        check_traced(f"basis function {index}", function, domain)
        if np.iscomplexobj(evaluate(f"basis function {index}", function, domain, rows)):
            raise ValueError(f"basis function {index} is complex; give its real and imaginary parts as two functions.")
    return functions


def _checked_exact(exact: Any, unknowns: tuple[Unknown, ...], domain: Box) -> tuple[Callable[..., Any], ...] | None:
    if exact is None:
        return None
    functions = tuple(exact) if isinstance(exact, (tuple, list)) else (exact,)
    if not all(callable(function) for function in functions):
        raise TypeError(
            "Problem(exact=...): `exact` is the exact solution, a function of a point, or a tuple of them for several "
            "unknowns; a condition needs another name."
        )
    if (num := len(functions)) != len(unknowns):
        raise ValueError(f"Problem(exact=...): {num} functions for {len(unknowns)} unknowns; give one for each.")
    rows = sample(domain.interior, 4, sampler="uniform", seed=1)
    for unknown, function in zip(unknowns, functions, strict=True):
        label = f"exact solution of {unknown.name!r}"
        _refuse_complex(label, evaluate(label, function, domain, rows), (unknown,))
    return functions


def _refuse_complex(label: str, values: np.ndarray, unknowns: Sequence[Unknown]) -> None:
    if np.iscomplexobj(values) and not any(unknown.complex for unknown in unknowns):
        raise ValueError(f"{label} is complex and no unknown is; take its real part, or Unknown(complex=True).")


def derived_target(operator: Callable[..., Any], *exact: Callable[..., Any]) -> Callable[[Any], Any]:
    """Manufacture a target: the operator applied to the exact solution, so that no source is written by hand."""
    if not exact or not all(map(callable, (operator, *exact))):
        raise TypeError("derived_target(operator, exact): give an operator and, by unknown, functions of a point.")
    return jax.tree_util.Partial(_manufactured, operator, exact)


def _manufactured(operator: Callable[..., Any], exact: tuple[Callable[..., Any], ...], p: Any) -> Any:
    return operator(*exact, p)
