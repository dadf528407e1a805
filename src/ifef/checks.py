"""What is checked of an operator, a target and an exact solution before anything runs."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.calculus import Field, Point, float64
from ifef.domain import Box, point_type, shown

_LINEAR_TOLERANCE = 1e-9
# Sizes of the two fields that are added. Of opposite signs, so that |u| and a switch in u, wherever between the two
# it lies, show; of several sizes, so that a faint one does too; of both signs, for log(-u).
_AMPLITUDES = ((1.0, 0.7), (100.0, -70.0), (1e5, -7e4))
_STRETCH = 1024  # points at which a target is evaluated at once
_NO_POINT = "a field takes a point,"
_INSIDE_SLACK = 1e-9  # of a side: p.x + 1 may miss the far face by rounding, not by more


def columns(domain: Box, coordinates: Any) -> Point:
    """Turn an array (n, dim) into one point whose coordinates are arrays (n,)."""
    return point_type(domain.names)(*(coordinates[:, index] for index in range(len(domain.names))))


def describe(domain: Box, row: np.ndarray) -> str:
    """Write a point the way a user reads it."""
    return ", ".join(f"{name}={value:.6g}" for name, value in zip(domain.names, row, strict=True))


def _probe(domain: Box, unknown: Any, amplitude: float, number: int) -> Field:
    """Make a smooth positive field with every derivative nonzero; positive, so that log(u) and sqrt(u) stay defined."""

    def field(p: Point) -> Any:
        if getattr(p, "_fields", None) != domain.names:
            raise TypeError(f"{_NO_POINT} not a {type(p).__name__}")
        total = 0.0
        for index, (name, low, high) in enumerate(zip(domain.names, domain.lows, domain.highs, strict=True)):
            if name in unknown.coordinates(domain.names):
                scaled = (getattr(p, name) - low) / (high - low)
                total = total + jnp.sin((0.9 + 0.37 * index + 0.23 * number) * scaled + 0.4 + 0.7 * number)
        value = amplitude * jnp.exp(0.4 * total + 0.1 * number)
        return value * (1.0 + 0.3j) if unknown.complex else value

    return field


def _fenced(field: Field, domain: Box) -> Field:
    """Make the field NaN, derivatives too, outside of the box."""

    def fenced(p: Point) -> Any:
        inside = True
        for name, low, high in zip(domain.names, domain.lows, domain.highs, strict=True):
            slack = _INSIDE_SLACK * (high - low)
            value = getattr(p, name)
            inside = inside & (value >= low - slack) & (value <= high + slack)
        return field(p) * jnp.where(inside, 1.0, jnp.nan)

    return fenced


def _sum(first: Field, second: Field) -> Field:
    return lambda p: first(p) + second(p)


@eqx.filter_jit
def _answers(operator: Callable[..., Any], domain: Box, unknowns: tuple[Any, ...], points: Point) -> tuple[Any, ...]:
    """Apply the operator to probe fields: zero, several sizes, sums of two, and fenced ones."""

    def at(p: Point) -> tuple[Any, ...]:
        def answer(make: Callable[[Any], Field]) -> Any:
            value = operator(*(make(unknown) for unknown in unknowns), p)
            if value is None:
                raise ValueError("returns nothing; a `return` may be missing")
            if not isinstance(value, (int, float, complex, np.ndarray, np.generic, jax.Array)):
                raise ValueError(f"returns a {type(value).__name__}; it must return one number")
            value = jnp.asarray(value)
            if value.shape != ():
                raise ValueError(
                    f"returns an array of shape {value.shape}; it must return one number: "
                    "make a condition for each component"
                )
            return value

        values = [answer(lambda unknown: _probe(domain, unknown, 0.0, 0))]
        for first, second in _AMPLITUDES:
            one = lambda unknown, size=first: _probe(domain, unknown, size, 0)  # noqa: E731
            two = lambda unknown, size=second: _probe(domain, unknown, size, 1)  # noqa: E731
            both = lambda unknown, a=one, b=two: _sum(a(unknown), b(unknown))  # noqa: E731
            values += [answer(one), answer(two), answer(both)]
        fenced = answer(lambda unknown: _fenced(_probe(domain, unknown, 1.0, 0), domain))
        changed = []
        for index in range(len(unknowns)):
            numbers = [int(index == k) for k in range(len(unknowns))]
            fields = [_probe(domain, unknown, 1.0, k) for unknown, k in zip(unknowns, numbers, strict=True)]
            changed.append(jnp.asarray(operator(*fields, p)) != values[1])
        dtype = jnp.result_type(*values)
        return jnp.stack([value.astype(dtype) for value in values]), fenced, jnp.stack(changed)

    return jax.vmap(at)(points)


def sentence(label: str, error: Exception, domain: Box) -> Exception:
    """Turn what an operator raised into one clear sentence."""
    text = (str(error).splitlines()[0] if str(error) else type(error).__name__).rstrip(".")
    arguments = "the unknowns and then the point" if label.endswith("operator") else "one argument, the point"
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return ValueError(f"{label} decides by a coordinate's or field's value (`if`, `and`, `max`); use jnp.where.")
    if isinstance(error, (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)) or (
        isinstance(error, TypeError) and "real number" in text
    ):
        return TypeError(f"{label} uses a function of `math` or NumPy on a point or field; use jnp.sin, jnp.exp, ….")
    if "_probe.<locals>.field() " in text or text.startswith(_NO_POINT):
        return TypeError(f"{label} gives a field coordinates; evaluate fields at a point, u(p), d(u, 'x')(p): {text}.")
    if (isinstance(error, AttributeError) and "Point" in text) or "unexpected field names" in text:
        return ValueError(
            f"{label} asks a point for a coordinate that it does not have ({text}); "
            f"the coordinates are: {', '.join(domain.names)}."
        )
    if isinstance(error, TypeError) and "positional argument" in text:
        return TypeError(f"{label} takes {arguments}: {text}.")
    if isinstance(error, TypeError) and ("function" in text or "callable" in text or "unsupported operand" in text):
        return TypeError(f"{label} mixes a field with numbers; evaluate fields at a point, u(p), d(u, 'x')(p): {text}.")
    if isinstance(error, ValueError) and text.startswith("returns "):
        return ValueError(f"{label} {text}.")
    known = type(error) in (TypeError, ValueError)
    what = text if known or text == type(error).__name__ else f"{type(error).__name__}: {text}"
    return (type(error) if known else ValueError)(f"{label} fails: {what}.")


def check_operator(
    label: str, operator: Callable[..., Any], domain: Box, unknowns: Sequence[Any], rows: np.ndarray
) -> tuple[bool, tuple[bool, ...]]:
    """Try an operator at sample points; give whether it is affine and which unknowns it depends on.

    Refuses, with the reason and the point, an operator that raises, returns anything but a number, is NaN, leaves the
    domain, or depends on no unknown.
    """
    points = columns(domain, rows)
    with float64():
        try:
            values, fenced, changed = jax.device_get(_answers(operator, domain, tuple(unknowns), points))
        except Exception as error:  # whatever a user's function raises becomes one sentence
            raise sentence(label, error, domain) from error
    depends = tuple(bool(one) for one in changed.any(axis=0))
    _warn_of_float32(label, operator)
    finite = np.isfinite(values[:, 1:]).any(axis=1)
    if not finite.all():
        at = describe(domain, rows[np.flatnonzero(~finite)[0]])
        raise ValueError(f"{label} is NaN or infinite at {at}, whatever u is; mend it there or move the region.")
    outside = np.isnan(fenced) & np.isfinite(values[:, 1])
    if outside.any():
        at = describe(domain, rows[np.flatnonzero(outside)[0]])
        raise ValueError(f"{label} evaluates u outside of {domain} when it is at {at}; check the shift.")
    if np.iscomplexobj(values) and not any(unknown.complex for unknown in unknowns):
        raise ValueError(f"{label} is complex and no unknown is; declare one as Unknown(name, complex=True).")
    if not any(depends):
        raise ValueError(f"{label} does not depend on any unknown; it would constrain nothing.")
    return _affine(values), depends


def _affine(values: np.ndarray) -> bool:
    """Whether operator(a + b) + operator(0) = operator(a) + operator(b) at all sizes, to rounding."""
    zero = values[:, 0]
    for start in range(1, 3 * len(_AMPLITUDES), 3):
        one, two, both = values[:, start], values[:, start + 1], values[:, start + 2]
        size = np.abs(one) + np.abs(two) + np.abs(both) + np.abs(zero)
        with np.errstate(invalid="ignore"):
            if not np.all(np.abs(both + zero - one - two) <= _LINEAR_TOLERANCE * size):
                return False
    return True


def _warn_of_float32(label: str, operator: Any) -> None:
    """Warn of a single-precision constant that an operator holds: it caps the accuracy at about 1e-8.

    JAX widens such a constant before any trace shows it, so it is looked for where the function keeps it.
    """
    held = list(jax.tree_util.tree_leaves(operator))
    for function in [leaf for leaf in held if inspect.isfunction(leaf)] + [getattr(operator, "func", None)]:
        if inspect.isfunction(function):
            held += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
            held += [function.__globals__.get(name) for name in function.__code__.co_names]
            held += list(function.__defaults__ or ())
    if any(getattr(item, "dtype", None) in (np.float32, np.complex64) for item in held):
        warnings.warn(
            f"{label} holds a float32 constant, which caps the accuracy at about 1e-8; "
            "make it a Python number or a float64 array.",
            stacklevel=4,
        )


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a cell that is assigned later
        return False


def evaluate(label: str, function: Any, domain: Box, coordinates: np.ndarray) -> np.ndarray:
    """Values of a number, an array or a function of a point at points (n, dim), once and outside of tracing.

    A function is tried on all points at once; where that fails or disagrees with single points it is called
    point by point, so that NumPy, SciPy quadrature and `if p.x > 0` work here.
    """
    num = len(coordinates)
    with float64():
        if not callable(function):
            values = np.broadcast_to(np.asarray(function), (num,))
        else:
            values = _all_at_once(function, domain, coordinates)
            if values is None:
                values = _one_by_one(label, function, domain, coordinates)
    values = np.array(values, dtype=np.complex128 if np.iscomplexobj(values) else np.float64)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(f"{label} is NaN or infinite at {describe(domain, coordinates[wrong[0]])}.")
    return values


def _all_at_once(function: Any, domain: Box, coordinates: np.ndarray) -> np.ndarray | None:
    """Values at all points, in stretches of one length: every other number of points would compile JAX anew."""
    num = len(coordinates)
    padded = np.pad(coordinates, ((0, -num % _STRETCH), (0, 0)), mode="edge")
    chosen = np.unique(np.linspace(0, num - 1, 3).astype(int))
    try:
        parts = []
        for start in range(0, num, _STRETCH):
            part = np.asarray(function(columns(domain, padded[start : start + _STRETCH])))
            if part.dtype.kind not in "biufc" or part.shape not in ((), (_STRETCH,)):
                return None
            parts.append(np.broadcast_to(part, (_STRETCH,)))
        values = np.concatenate(parts)[:num]
        single = [np.asarray(function(point_type(domain.names)(*coordinates[index]))) for index in chosen]
        if any(one.shape != () for one in single):
            return None
        scale = 1e-12 * (np.max(np.abs(values), initial=0.0, where=np.isfinite(values)) + 1e-300)
        agree = np.allclose(values[chosen], np.stack(single), rtol=1e-9, atol=scale, equal_nan=True)
    except Exception:  # the point-by-point way will say what is wrong
        return None
    return values if agree else None


def _one_by_one(label: str, function: Any, domain: Box, coordinates: np.ndarray) -> np.ndarray:
    make = point_type(domain.names)
    values = []
    for row in coordinates:
        try:
            answer = function(make(*(np.float64(x) for x in row)))
            value = np.asarray(answer)
        except Exception as error:  # whatever a user's function raises becomes one sentence
            raise sentence(label, error, domain) from error
        if value.shape != () or value.dtype.kind not in "biufc":
            kind = f"an array of shape {value.shape}" if value.shape else f"a {type(answer).__name__}"
            got = "nothing" if answer is None else kind
            raise ValueError(f"{label} must return one number at a point; at {describe(domain, row)} it gives {got}.")
        values.append(value)
    return np.stack(values)


def check_traced(label: str, function: Callable[..., Any], domain: Box) -> None:
    """Refuse a function of a point that works on numbers and not in JAX, which is to differentiate it."""
    with float64():
        try:
            jax.eval_shape(function, point_type(domain.names)(*map(jnp.asarray, domain.lows)))
        except Exception as error:  # whatever a user's function raises becomes one sentence
            raise sentence(label, error, domain) from error


def is_real(value: Any) -> bool:
    """Whether a value is a finite real number."""
    return is_number(value) and not isinstance(value, (complex, np.complexfloating))


def is_number(value: Any) -> bool:
    """Whether a value is a finite real or complex number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, complex, np.number)):
        return False
    try:
        return math.isfinite(abs(value))
    except OverflowError:  # an integer beyond all floats
        return False


def file_path(path: object, argument: str) -> Path:
    """Give a user's path; what cannot be one is refused by the name of its argument."""
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
        raise TypeError(f"{argument}: give the path of a file, as text or a Path, not {shown(path)}.")
    return Path(path)
