"""What is said of an answer in words: what it rests on, where it is worst, and what holds it back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.assembly import Data
from ifef.backbones import Identity
from ifef.checks import columns
from ifef.domain import Box
from ifef.features import FourierFeatures, HiddenFeatures
from ifef.problem import Problem
from ifef.sampling import sample

DEFAULT_TOLERANCE = 1e-6
"""An answer counts as converged when its estimated relative error is below this and nothing else was asked for."""

ILL_POSED = (
    "The conditions do not determine the solution (a boundary or initial condition is missing, or a constant is free): "
    "add what fixes it."
)

LIMITED = 3.0
"""An error of no more than so many times what rounding makes is rounding's."""

HeldOut = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Points and sizes of the held-out residual by condition."""

_NEAR = 0.1  # of each side: what lies no farther from a point is near it
_MOST, _DENSER = 0.5, 0.25  # part of a condition's residual that is most of it, and by how much its points' is less
_CENTRES = 200  # points with the largest residuals, around which most of it may lie
_STEEPEST = 64  # points at which a backbone's slopes are taken
_AT_ROUNDING, _ABOVE = 4.0, 30.0
"""Held-out residual in roundings: up to 4.6 in 25 solves that rounding limits, from 100 in the others."""
_CANCELLING = 1e3  # terms so many times larger than their sum are worth a sentence
_DIGITS = {"float64": 16, "float32": 7}


# --- numbers ----------------------------------------------------------------------------------------------------------


@eqx.filter_jit
def _slopes(hidden: HiddenFeatures, rows: jax.Array) -> jax.Array:
    def values(row: jax.Array) -> jax.Array:
        point = columns(hidden.domain, row[None])
        return hidden.hidden(type(point)(*(value[0] for value in point)))

    return jax.vmap(jax.jacfwd(values))(rows)


def wavenumber(features: FourierFeatures) -> float:
    """Largest angular wavenumber of the waves, on inputs in [-1, 1]; behind a backbone, where it is steepest."""
    waves, domain = 2.0 * math.pi * np.asarray(features.frequencies), features.domain
    if not len(waves):
        return 0.0
    if isinstance(features.backbone, Identity):
        return float(np.linalg.norm(waves, axis=1).max())
    rows = jnp.asarray(sample(domain.interior, _STEEPEST, seed=3))
    halves = 0.5 * (np.array(domain.highs) - np.array(domain.lows))
    slopes = np.asarray(_slopes(HiddenFeatures(features.backbone, domain), rows)) * halves
    return float(np.linalg.norm(waves @ slopes, axis=2).max())


def points_per_wavelength(features: FourierFeatures, problem: Problem, data: Data) -> dict[str, float]:
    """Points of each condition over the whole box on a line as long as the basis's shortest wave, on average."""
    largest, dimension = wavenumber(features), len(problem.domain.names)
    full = [key for key, condition in problem.conditions.items() if condition.region.is_full]
    if not (np.isfinite(largest) and largest > 0):
        return {}
    return {key: float(math.pi * len(data.points[key]) ** (1.0 / dimension) / largest) for key in full}


def _shares(stats: Mapping[str, Any], held_out: HeldOut) -> dict[str, float]:
    """Part of the held-out residual that each condition holds, squared and weighted; nothing where all is zero."""
    sizes = {key: stats["weights"][key] * float(np.mean(np.square(values))) for key, (_, values) in held_out.items()}
    total = sum(sizes.values())
    return {key: size / total for key, size in sizes.items()} if math.isfinite(total) and total > 0 else {}


def _place(domain: Box, points: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Where a condition's residual is densest: the middle of it, its part of the residual and that of the points."""
    low, high = np.array(domain.lows), np.array(domain.highs)
    scaled, squares = (points - low) / (high - low), np.square(values)
    part, nearest = 0.0, np.ones(len(points), dtype=bool)
    for centre in scaled[np.argsort(-squares, kind="stable")[:_CENTRES]]:
        near = np.max(np.abs(scaled - centre), axis=1) <= _NEAR
        if (held := float(squares[near].sum() / squares.sum())) > part:
            part, nearest = held, near
    return squares[nearest] @ points[nearest] / squares[nearest].sum(), part, float(np.mean(nearest))


# --- sentences --------------------------------------------------------------------------------------------------------


def _power(value: float) -> str:
    """Write a size as 3e-5 or 2e7."""
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _wave_sentences(stats: Mapping[str, Any]) -> list[str]:
    found = stats.get("points_per_wavelength", {}).items()
    return [
        f"The condition {key!r} has {value:.{1 if value < 10 else 0}f} points per shortest wavelength of the basis."
        for key, value in found
    ]


def _row_sentence(stats: Mapping[str, Any]) -> str:
    rows, size = stats["num_rows"], stats["num_features"]
    if rows < size:
        return (
            f"There are fewer rows ({rows}) than columns ({size}), so that many coefficients fit equally well: give "
            "more points or fewer features."
        )
    return f"There are {rows} rows for {size} columns ({rows / size:.1f} a column), of which {stats['rank']} count."


def _residual_sentence(stats: Mapping[str, Any], held_out: HeldOut, domain: Box) -> str:
    """Which condition holds most of the held-out residual, and where."""
    shares = _shares(stats, held_out)
    if not shares:
        return ""
    worst = max(shares, key=lambda key: shares[key])
    said = f"The condition {worst!r} holds {100 * shares[worst]:.0f}% of the held-out residual"
    points, values = held_out[worst]
    middle, part, crowd = _place(domain, points, values)
    if part < _MOST:
        return f"{said}, spread out."
    if part - crowd < _DENSER:  # most of the points are there too
        return f"{said}."
    at = ", ".join(f"{name}={value:.2g}" for name, value in zip(domain.names, middle, strict=True))
    return f"{said}, {100 * part:.0f}% of that near {at}."


def _rounding_sentences(stats: Mapping[str, Any], estimate: float) -> list[str]:
    """Whether rounding is the limit: by the error that it makes where that was measured, else by the residual."""
    dtype, floor, level = stats.get("dtype", "float64"), stats.get("floor"), rounding_level(stats)
    name, held, said = dtype.capitalize(), stats.get("held_out", math.nan), []
    if floor:
        verb = "is" if estimate <= LIMITED * floor else "is not"
        said.append(f"{name} {verb} the limit: its rounding makes an error of about {_power(floor)}.")
    elif held <= _AT_ROUNDING * level:
        said.append(f"{name} is the limit: rounding alone makes a held-out residual of about {_power(level)}.")
    elif held > _ABOVE * level and stats.get("amplification") is not None and _all_used(stats):
        said.append(f"{name} is not the limit: rounding makes about {_power(level)} of the held-out {_power(held)}.")
    size = stats.get("amplification") or 0.0
    if size >= _CANCELLING and math.isfinite(size):
        lost = f"costs {math.log10(size):.0f} of {dtype}'s {_DIGITS[dtype]} digits"
        said.append(f"Terms {_power(size)} times larger than their sum cancel in the rows, which {lost}.")
    return said


def _all_used(stats: Mapping[str, Any]) -> bool:
    """Whether no column depends on others to rounding: more digits would not tell more of them apart."""
    return stats["rank"] >= 0.97 * stats["num_features"]


def rounding_level(stats: Mapping[str, Any]) -> float:
    """Relative held-out residual that rounding makes, in the rows or in solving them; NaN where that is not known."""
    rows, cut, size = stats.get("rounding", math.nan), stats.get("cut", math.nan), stats.get("amplification")
    return rows if size is None or not math.isfinite(cut) else max(rows, cut * size)


def sentences(stats: Mapping[str, Any], held_out: HeldOut, domain: Box, estimate: float) -> list[str]:
    """All that the evidence says of an answer, in short sentences."""
    if not math.isfinite(stats["norm"]):
        return []
    every = [*_wave_sentences(stats), _row_sentence(stats), _residual_sentence(stats, held_out, domain)]
    return [one for one in [*every, *_rounding_sentences(stats, estimate)] if one]


def check(report: Mapping[str, Any], held_out: HeldOut, domain: Box) -> None:
    """Refuse, with a `TypeError`, a report of which nothing could be said."""
    try:
        sentences(report["stats"], held_out, domain, max(report["estimates"].values()))
    except (ValueError, IndexError, ArithmeticError) as error:
        raise TypeError(f"statistics that make sense: {error}") from error


def limit(stats: Mapping[str, Any], estimate: float, tolerance: float | None) -> str:
    """Whether float32 keeps the answer from the tolerance: "alone", "too" or not at all."""
    floor = stats["floor"]
    if not floor:  # of float64 none is measured
        return ""
    if estimate <= LIMITED * floor:
        return "alone"
    return "too" if floor > (DEFAULT_TOLERANCE if tolerance is None else tolerance) else ""


def advice(status: str, stats: Mapping[str, Any], held_out: HeldOut, domain: Box, limited: str) -> str:
    """One or two sentences on what holds the answer back; empty when nothing does."""
    if status == "nonfinite":
        return "The coefficients are not finite: raise gamma, or use LeastSquares, which survives dependent columns."
    if status == "ill_posed":
        return ILL_POSED
    if status == "converged":
        return ""
    rounding = f'Float32 rounding limits this answer to about {_power(stats["floor"] or 0.0)}: use dtype="float64".'
    if limited == "alone":
        return rounding
    said = []
    if stats["contradictory"]:
        said.append("More columns do not lower what is left: conditions contradict each other, or data are noisy.")
    if stats["num_rows"] < stats["num_features"]:
        said.append(_row_sentence(stats))
    said.append(_residual_sentence(stats, held_out, domain))
    if 10 * stats["training_residual"] < stats["held_out"]:
        said.append("The training residual is far below the held-out one (overfitting): give more points.")
    elif _all_used(stats):
        said.append("Every column is used: more features, or frequencies nearer to the solution's, would help.")
    else:
        said.append("Frequencies nearer to the solution's (another sigma) would help.")
    return " ".join(filter(None, [*said, rounding] if limited else said))


def unsaid(said: str, more: list[str]) -> list[str]:
    """Sentences that the advice does not hold already, after it."""
    return [one for one in (said, *(sentence for sentence in more if sentence not in said)) if one]


def listed(value: Any) -> str:
    """Write one number, or several by name."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {one:.2e}" for name, one in value.items())
    return f"{value:.2e}"
