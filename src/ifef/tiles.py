"""Rows of any number of points and frequencies from programs of one fixed size.

A compiled program is bound to its shapes, and compiling costs more than most solves: here rows are made tile by tile
and put together on the host, so that each condition compiles once whatever the numbers of points and frequencies are.
Only for affine conditions, whose rows do not depend on theta.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.assembly import Data, cast, condition_rows, num_columns
from ifef.calculus import precision
from ifef.features import Features, unknown_sizes
from ifef.problem import Unknown

POINTS, FEW, WIDTH = 256, 64, 128
"""Points (where there are many, where there are few) and frequencies of a tile: its derivatives fit into the cache."""

# XLA runs a tile on one core; the others take the next ones.
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
_WORKERS = ThreadPoolExecutor(_CORES, thread_name_prefix="ifef-tiles")


@eqx.filter_jit
def _tile(features: Features, data: Data) -> jax.Array:
    (key,) = data.points
    return condition_rows(features, data, key, jnp.zeros(num_columns(features, data)))


def _places(piece: Features, slots: np.ndarray, size: int, unknowns: tuple[Unknown, ...]) -> np.ndarray:
    """Column of the whole that each column of a piece belongs to, over all unknowns; -1 where it is padding."""
    places, start = [], 0
    for unknown, length in zip(unknowns, unknown_sizes(piece, unknowns), strict=True):
        if unknown.scalar:
            places.append(start + np.arange(length))
            start += length
        else:
            for _ in range(length // len(slots)):
                places.append(np.where(slots < 0, -1, start + slots))
                start += size
    return np.concatenate(places)


def _runs(places: np.ndarray) -> list[tuple[int, int, int]]:
    """Stretches (first, last, place) of columns that lie side by side in the whole too: copied at once."""
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    ends = np.concatenate([[0], breaks, [len(places)]])
    return [(int(a), int(b), int(places[a])) for a, b in itertools.pairwise(ends) if places[a] >= 0]


def rows_of(features: Features, data: Data, key: str) -> np.ndarray:
    """Unscaled rows and right-hand side of one affine condition, (rows, columns + 1), in Fortran's order."""
    out = np.empty((data.count(key), num_columns(features, data) + 1), data.dtype, order="F")
    _fill(out, features, data, key)
    return out


def system_of(features: Features, data: Data, scales: Mapping[str, float]) -> np.ndarray:
    """All rows of an affine problem, scaled, with the right-hand side as last column: [A b], in Fortran's order."""
    counts = [data.count(key) for key in data.points]
    out = np.empty((sum(counts), num_columns(features, data) + 1), data.dtype, order="F")
    start = 0
    for key, count in zip(data.points, counts, strict=True):
        part = out[start : start + count]
        _fill(part, features, data, key)
        part *= scales[key]
        start += count
    return out


def _fill(out: np.ndarray, features: Features, data: Data, key: str) -> None:
    points, targets = np.asarray(data.points[key]), np.asarray(data.targets[key])
    parts, side = len(out) // len(points), POINTS if len(points) > FEW else FEW
    padded = np.pad(points, ((0, -len(points) % side), (0, 0)), mode="edge")
    wanted = np.pad(targets, (0, -len(points) % side), mode="edge")
    for piece, slots in features.pieces(WIDTH):
        runs = _runs(_places(piece, slots, features.size, data.problem[1]))
        if out.dtype != np.float64:
            piece = cast(piece, out.dtype)

        def make(start: int, piece: Features = piece, runs: list[tuple[int, int, int]] = runs) -> None:
            tile = {key: padded[start : start + side]}, {key: wanted[start : start + side]}
            with precision(out.dtype):  # a thread has settings of its own
                operators = {key: data.operators[key]}
                block = np.asarray(_tile(piece, Data(data.problem, data.equations, operators, *tile)))
            where = out[start * parts : (start + side) * parts]
            for first, last, place in runs:
                where[:, place : place + last - first] = block[: len(where), first:last]
            where[:, -1] = block[: len(where), -1]

        starts = range(0, len(padded), side)
        make(0)  # compiles
        list(_WORKERS.map(make, starts[1:]))


def values_of(features: Features, unknowns: tuple[Unknown, ...], coordinates: np.ndarray) -> list[np.ndarray]:
    """Rows that give each unknown's values at points (n, dim): (n, columns), or (2 n, columns) for a complex one."""
    tables = []
    for index, unknown in enumerate(unknowns):
        kind = np.result_type(coordinates, np.complex64 if any(one.complex for one in unknowns) else np.float32)
        zeros = np.zeros(len(coordinates), dtype=kind)
        pick = {"value": jax.tree_util.Partial(_pick, index)}
        data = Data((features.domain, unknowns), (), pick, {"value": np.asarray(coordinates)}, {"value": zeros})
        rows = rows_of(features, data, "value")[:, :-1]
        tables.append(rows if unknown.complex or not np.iscomplexobj(zeros) else rows[::2])
    return tables


def _pick(index: int, *arguments: Any) -> Any:
    return arguments[index](arguments[-1])
