"""Pictures of arrays; the only file that imports matplotlib, and only when one of its functions is called.

Figures are made here and never by `pyplot`: a caller's figures, backend and settings stay as they were.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .storage import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arrays = Mapping[str, np.ndarray]
FilePath = str | os.PathLike[str]
# Dates would make two saves of the same figure differ.
_METADATA: dict[str, dict[str, Any]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
_ERROR, _RESIDUAL = r"$\log_{10}$ |error|", r"$\log_{10}$ |residual|"
_DPI = 130
_RED = "#d55e00"  # with the next ones, colours that the colour-blind can tell apart (Okabe and Ito)
_COLOURS = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
_FEW = 30  # up to this many points a line also shows its points; a single one would be invisible


def _figure(width: float, height: float, title: str = "") -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(_text(title), fontsize=11)
    return figure


def _text(name: str) -> str:
    # A dollar sign starts mathematics, and a legend leaves out what starts with an underscore.
    return (" " + name if name.startswith("_") else name).replace("$", r"\$")


def _floor(size: np.ndarray) -> float:
    """Where zeros are drawn on a logarithmic scale: at the smallest magnitude that is not zero, or else at 1e-18."""
    positive = size[(size > 0) & np.isfinite(size)]
    return float(positive.min()) if positive.size else 1e-18


def _logarithm(values: np.ndarray) -> np.ndarray:
    size = np.where(np.isfinite(values), np.abs(values), np.nan)
    return np.log10(np.maximum(size, _floor(size)))


def _scale(panel: Axes, values: np.ndarray) -> None:
    """A logarithmic y axis, with limits of its own: matplotlib's would overflow where a run has diverged."""
    positive = values[(values > 0) & np.isfinite(values)]
    high = float(positive.max()) if positive.size else 1.0
    panel.set_ylim(*np.clip([0.5 * _floor(values), min(high, 1e300) * 2], 1e-250, 1e250) * [1, 1.01])
    panel.set_yscale("log")


def _limits(*arrays: np.ndarray, spared: float = 0.0) -> tuple[float, float]:
    """Smallest and largest finite value, the lowest `spared` percent aside; they differ, as a colour bar demands."""
    finite = np.concatenate([array[np.isfinite(array)] for array in arrays])
    low, high = (float(np.percentile(finite, spared)), float(finite.max())) if finite.size else (0.0, 1.0)
    margin = 0.0 if high - low > 1e-12 * max(abs(low), abs(high)) else max(1e-3 * abs(low), 1e-3)
    return low - margin, high + margin


def _parts(fields: Arrays) -> dict[str, np.ndarray]:
    """A complex field as two real ones; infinities become NaN, which is left blank and survives a difference."""
    parts: dict[str, np.ndarray] = {}
    for name, field in fields.items():
        values = np.asarray(field)
        split = {f"Re {name}": np.real(values), f"Im {name}": np.imag(values)}
        parts |= split if np.iscomplexobj(values) else {name: values.astype(np.float64)}
    return {name: np.where(np.isfinite(part), part, np.nan) for name, part in parts.items()}


def solution_figure(axes: Arrays, fields: Arrays, exact: Arrays | None = None, title: str = "") -> Figure:
    """Predicted fields on a grid, one row each, beside the exact ones and the error where those are given.

    Lines in one dimension and maps in two; with more, the plane through the middle of the remaining axes, which the
    title names. A complex field takes two rows.
    """
    grid = {name: np.asarray(axis, dtype=np.float64) for name, axis in axes.items()}
    shape = tuple(axis.size for axis in grid.values())
    predicted, known = _parts(fields), _parts(exact or {})
    if not grid or not predicted:
        raise ValueError("There is nothing to draw: pass at least one axis and one field.")
    for name, values in [*predicted.items(), *known.items()]:
        if values.shape != shape:
            raise ValueError(f"Field {name!r} has shape {values.shape}, but the axes have {shape}.")
    names, middle = list(grid), tuple(size // 2 for size in shape[2:])
    slices = ", ".join(f"{name} = {grid[name][at]:.4g}" for name, at in zip(names[2:], middle, strict=True))
    title = "; ".join(part for part in (title, f"slice at {slices}" if slices else "") if part)
    columns = 1 if not known else 2 if len(shape) == 1 else 3
    figure = _figure(1.0 + 4.2 * columns, 0.5 + 3.4 * len(predicted), title)
    panels = figure.subplots(len(predicted), columns, squeeze=False)
    for row, (name, values) in zip(panels, predicted.items(), strict=True):
        if len(shape) == 1:
            _lines(row, names[0], grid[names[0]], (name, values, known.get(name)))
        else:
            at = (slice(None), slice(None), *middle)
            reference = known[name][at] if name in known else None
            _maps(row, {key: grid[key] for key in names[:2]}, (name, values[at], reference))
    return figure


def _lines(row: np.ndarray, axis_name: str, axis: np.ndarray, field: tuple[str, np.ndarray, np.ndarray | None]) -> None:
    name, values, reference = field
    marker = "o" if axis.size == 1 else ""
    row[0].plot(axis, values, color=_COLOURS[0], linewidth=1.6, marker=marker, label="predicted")
    row[0].set(xlabel=_text(axis_name), ylabel=_text(name), title=_text(name))
    row[0].margins(x=0)
    if reference is None:
        for panel in row[1:]:
            panel.set_axis_off()
        return
    row[0].plot(axis, reference, color="black", linewidth=1.2, linestyle="--", marker=marker, label="exact")
    row[0].legend(fontsize=8)
    row[1].plot(axis, _logarithm(values - reference), color=_RED, linewidth=1.0, marker=marker)
    row[1].set(xlabel=_text(axis_name), ylabel=_ERROR, title=_text(f"{name}: error"))
    row[1].margins(x=0)


def _maps(row: np.ndarray, axes: Arrays, field: tuple[str, np.ndarray, np.ndarray | None]) -> None:
    name, values, reference = field
    both = _limits(values) if reference is None else _limits(values, reference)
    _map(row[0], axes, values, both, _text(name if reference is None else f"{name}: predicted"))
    if reference is None:
        for panel in row[1:]:
            panel.set_axis_off()
        return
    _map(row[1], axes, reference, both, _text(f"{name}: exact"))
    error = _logarithm(values - reference)
    # An error changes sign somewhere, and the few points where it almost vanishes would take most of the colours.
    label = "error: zero everywhere" if np.all(values == reference) else _ERROR
    _map(row[2], axes, error, _limits(error, spared=1), label, "magma")


def _map(
    panel: Axes, axes: Arrays, values: np.ndarray, limits: tuple[float, float], title: str, colours: str = "viridis"
) -> None:
    from matplotlib import colormaps

    (first, horizontal), (second, vertical) = axes.items()
    # What is not a number is grey, a colour that neither map has. An image inside a PDF keeps the file small.
    look = {"cmap": colormaps[colours].with_extremes(bad="0.75"), "vmin": limits[0], "vmax": limits[1]}
    shown = np.ma.masked_invalid(values.T)
    image = panel.pcolormesh(horizontal, vertical, shown, shading="nearest", rasterized=True, **look)
    panel.set(xlabel=_text(first), ylabel=_text(second))
    panel.set_title(title, fontsize=10)
    panel.figure.colorbar(image, ax=panel, extend="min" if np.any(values < limits[0]) else "neither")


def residual_figure(residuals: Arrays) -> Figure:
    """How |residual| is distributed over held-out points, one curve a condition, from its best points to its worst."""
    figure = _figure(6.4, 4.2)
    panel = figure.subplots()
    everything = [np.abs(np.ravel(values)) for values in residuals.values()]
    together = np.concatenate([np.zeros(1), *everything])
    _scale(panel, together)
    for name, size, colour in zip(residuals, everything, cycle(_COLOURS), strict=False):
        finite = np.sort(size[np.isfinite(size)])
        label = f"{_text(name)}: {_rms(finite)}"
        if finite.size < size.size:
            label += f", {size.size - finite.size} not finite"
        share = 100 * (np.arange(finite.size) + 0.5) / max(finite.size, 1)
        marker = "o" if finite.size <= _FEW else ""
        panel.plot(share, np.maximum(finite, _floor(together)), color=colour, label=label, marker=marker, markersize=3)
    panel.set(xlim=(0, 100), xlabel="held-out points with a smaller residual, %", ylabel="|residual|")
    panel.set_title("Residuals on held-out points", fontsize=11)
    panel.grid(alpha=0.3)
    if residuals:
        panel.legend(fontsize=8)
    return figure


def _rms(size: np.ndarray) -> str:
    largest = np.max(size, initial=0.0)
    if largest == 0:
        return "zero everywhere" if size.size else "no value"
    return f"rms {largest * np.sqrt(np.mean((size / largest) ** 2)):.1e}"


def residual_map_figure(names: Sequence[str], points: np.ndarray, values: np.ndarray) -> Figure:
    """Where |residual| is large: points over their first two coordinates, or over the only one."""
    points, size = np.asarray(points, dtype=np.float64), _logarithm(np.asarray(values).ravel())
    if points.ndim != 2 or points.shape != (size.size, len(names)):
        raise ValueError(f"points have shape {points.shape}: pass one row a value ({size.size}) and one column a name.")
    figure = _figure(6.4, 4.6)
    panel = figure.subplots()
    order = np.argsort(np.where(np.isnan(size), -np.inf, size), kind="stable")  # the worst drawn last, on top
    points, size = points[order], size[order]
    if len(names) == 1:
        panel.scatter(points[:, 0], size, s=6, color=_COLOURS[0], linewidths=0)
        panel.set(xlabel=_text(names[0]), ylabel=_RESIDUAL)
    else:
        low, high = _limits(size, spared=1)
        known = np.isfinite(size)
        panel.set_facecolor("0.2")  # the brightest points are the worst, and white would hide them
        panel.scatter(*points[~known, :2].T, s=14, color="cyan", marker="x", linewidths=0.8)
        dots = panel.scatter(
            *points[known, :2].T, c=size[known], s=6, cmap="magma", vmin=low, vmax=high, linewidths=0, rasterized=True
        )
        figure.colorbar(dots, ax=panel, label=_RESIDUAL, extend="min" if np.any(size < low) else "neither")
        panel.set(xlabel=_text(names[0]), ylabel=_text(names[1]))
    others = f", seen along {', '.join(map(_text, names[2:]))}" if len(names) > 2 else ""
    lost = int(np.sum(np.isnan(size)))
    panel.set_title(f"Residual at {size.size} points{others}{f'; {lost} not finite' if lost else ''}", fontsize=10)
    return figure


def history_figure(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Loss and held-out loss over training, with one thin line a condition, and the rank where it was recorded.

    Records are dicts with "phase", "epoch", "loss", "held_out", "losses" (a dict by condition) and "rank"; any of
    them may be missing.
    """
    steps, borders = _timeline(records)
    conditions = list(dict.fromkeys(name for record in records for name in record.get("losses") or {}))
    ranks = _column(record.get("rank") for record in records)
    with_rank = bool(np.isfinite(ranks).any())
    figure = _figure(6.8, 5.4 if with_rank else 4.2)
    ratios = [3, 1] if with_rank else [1]
    panels = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    style = {"marker": "o" if len(records) <= _FEW else "", "markersize": 3}
    loss, held_out = (_column(record.get(key) for record in records) for key in ("loss", "held_out"))
    curves = [("loss", loss, {"color": "black", "linewidth": 1.6})]
    curves.append(("held-out", held_out, {"color": _RED, "linewidth": 1.6, "linestyle": "--"}))
    for name, colour in zip(conditions, cycle(_COLOURS), strict=False):
        losses = _column((record.get("losses") or {}).get(name) for record in records)
        curves.append((_text(name), losses, {"color": colour, "linewidth": 0.8}))
    _scale(panels[0], np.concatenate([values for _, values, _ in curves]))
    for label, values, look in curves:
        positive = np.where(values > 0, values, np.nan)  # a logarithmic axis has no place for zero
        if np.isfinite(positive).any():
            panels[0].plot(steps, positive, label=label, **style | look)
    panels[0].set_ylabel("loss")
    only = borders[0][1] if len(borders) == 1 else ""
    panels[0].set_title(f"Training: {_text(only)}" if only else "Training", fontsize=11, pad=16)
    if panels[0].lines:
        panels[0].legend(fontsize=8)
    if with_rank:
        panels[1].plot(steps, ranks, color=_COLOURS[0], **style)
        panels[1].set(ylabel="rank")
    panels[-1].set(xlabel="epoch, phases one after another" if len(borders) > 1 else "epoch")
    for panel in panels:
        panel.grid(alpha=0.3)
    if len(borders) > 1:
        _mark_phases(panels, borders)
    return figure


def _column(values: Any) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _timeline(records: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """Epochs counted on over phases, since each phase counts its own from the start; and where each phase begins."""
    steps: list[float] = []
    borders: list[tuple[float, str]] = []
    offset, phase = 0.0, None
    for record in records:
        last, epoch = (steps[-1] if steps else 0.0), record.get("epoch")
        starts = not borders or record.get("phase") != phase
        if starts:
            offset, phase = last, record.get("phase")
        steps.append(last + 1.0 if epoch is None else offset + float(epoch))
        if starts:
            borders.append((steps[-1], str(phase or "")))
    return np.array(steps), borders


def _mark_phases(panels: np.ndarray, borders: list[tuple[float, str]]) -> None:
    for start, name in borders:
        for panel in panels:
            panel.axvline(start, color="0.5", linewidth=0.8, linestyle=":")
        place = panels[0].get_xaxis_transform()
        words = panels[0].text(start, 1.01, _text(name), transform=place, fontsize=8, color="0.35", va="bottom")
        words.set_in_layout(False)  # a long name at the right would otherwise squeeze the axes


def save_figure(figure: Figure, path: FilePath) -> None:
    """Write a figure, atomically, as the suffix of `path` says: png, pdf or svg."""
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in _METADATA:
        raise ValueError(f"Cannot save a figure as {str(path)!r}: end the name in .{', .'.join(_METADATA)}.")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, metadata=_METADATA[suffix])
    write_atomic(path, buffer.getvalue())
