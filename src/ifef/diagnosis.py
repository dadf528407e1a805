"""What is said of an answer in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

DEFAULT_TOLERANCE = 1e-6
"""An answer counts as converged when its estimated relative error is below this and nothing else was asked for."""

ILL_POSED = (
    "The conditions do not determine the solution (a boundary or initial condition is missing, or a constant is free): "
    "add what fixes it."
)

LIMITED = 3.0
"""An error of no more than so many times what rounding makes is rounding's."""


def limit(stats: Mapping[str, Any], estimate: float, tolerance: float | None) -> str:
    """Whether float32 keeps the answer from the tolerance: "alone", "too" or not at all."""
    floor = stats["floor"]
    if not floor:  # of float64 none is measured
        return ""
    if estimate <= LIMITED * floor:
        return "alone"
    return "too" if floor > (DEFAULT_TOLERANCE if tolerance is None else tolerance) else ""


def advice(
    status: str, stats: Mapping[str, Any], held_out: Mapping[str, tuple[np.ndarray, np.ndarray]], limited: str
) -> str:
    """One or two sentences on what holds the answer back; empty when nothing does."""
    if status == "nonfinite":
        return "The coefficients are not finite: raise gamma, or use LeastSquares, which survives dependent columns."
    if status == "ill_posed":
        return ILL_POSED
    if status == "converged":
        return ""
    floor = f"{stats['floor'] or 0.0:.0e}".replace("e-0", "e-")
    rounding = f'Float32 rounding limits this answer to about {floor}: use dtype="float64".'
    if limited == "alone":
        return rounding
    weights, sentences = stats["weights"], []
    if stats["contradictory"]:
        sentences.append("More columns do not lower what is left: conditions contradict each other, or data are noisy.")
    if stats["num_rows"] < stats["num_features"]:
        sentences.append(
            f"There are fewer rows ({stats['num_rows']}) than columns ({stats['num_features']}), so that many "
            "coefficients fit equally well: give more points or fewer features."
        )
    shares = {key: weights[key] * float(np.mean(np.square(values))) for key, (_, values) in held_out.items()}
    worst = max(shares, key=lambda key: shares[key])
    part = shares[worst] / max(sum(shares.values()), 1e-300)
    sentences.append(f"The condition {worst!r} holds {100 * part:.0f}% of the held-out residual.")
    if 10 * stats["training_residual"] < stats["held_out"]:
        sentences.append("The training residual is far below the held-out one (overfitting): give more points.")
    elif stats["rank"] >= 0.97 * stats["num_features"]:
        sentences.append("Every column is used: more features, or frequencies nearer to the solution's, would help.")
    else:
        sentences.append("Frequencies nearer to the solution's (another sigma) would help.")
    return " ".join([*sentences, rounding] if limited else sentences)
