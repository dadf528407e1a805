"""Does a trained backbone earn its place? Backbones trained by variable projection against the best untrained basis.

    OPENBLAS_NUM_THREADS=1 python benchmarks/trained_backbone.py [case ...] [method ...]

Untrained, every radius and width tried and the best by held-out residual taken as if it had been known: lattices
(`lattice`, `rotated`), a straight warp placed by moments of the squared source (`located`) and a conic fitted to it
(`conic`). Trained (`projection.py`): twelve tanh units (`units`), or a warp of few parameters (`trained`): for peaks
asinh on each axis of affine frames, for layers asinh of a level set phi, a polynomial whose degree grows from one, and
points that follow. Decides whether `solve` should train a backbone, and which. Held-out points are uniform, the same
for all methods; seconds are those of a method from empty caches, `solve_seconds` those of the one solve.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from projection import Axes, Bench, Level, lattice, normalised
from store import RESULTS, store
from suite import CALIBRATION, TABLE, UNIT, dirichlet, laplace, value

from ifef import Condition, Problem, d
from ifef.calculus import float64
from ifef.features import MLP, Identity, gaussian
from ifef.frequencies import Shape
from ifef.storage import read_json

DEGREE, PERIOD = 6, 1.3
SMALL, MIDDLE = (20.0, 5.0, 5.0), (40.0, 6.0, 6.0)  # radii along (asinh phi, x, y) to train with, and to polish with
RADII = ((40.0, 4.0, 4.0), (60.0, 8.0, 8.0), (90.0, 8.0, 8.0), (60.0, 12.0, 12.0))
REACHES = (20.0, 30.0, 45.0, 60.0, 80.0)  # of the diamond of frequencies on the warped axes of a peak


def curved(k: float = 20.0) -> Problem:
    """A layer along a circle: its level set is a polynomial of degree two."""
    return dirichlet(UNIT, laplace, lambda p: jnp.tanh(k * (jnp.sqrt((p.x - 0.2) ** 2 + (p.y - 0.3) ** 2) - 0.5)))


def wavy(k: float = 20.0) -> Problem:
    """A layer along a sine: no polynomial."""
    return dirichlet(UNIT, laplace, lambda p: jnp.tanh(k * (p.y - 0.5 - 0.15 * jnp.sin(2.0 * math.pi * p.x))))


def front(k: float = 30.0) -> Problem:
    """A front that turns with the flow about a corner: no source, and nothing but the inflow shows it."""
    exact = lambda p: jnp.tanh(k * (jnp.sqrt(p.x**2 + p.y**2) - 0.6))  # noqa: E731
    turn = Condition(UNIT.interior, lambda u, p: p.x * d(u, "y")(p) - p.y * d(u, "x")(p))
    return Problem(UNIT, turn=turn, inflow=Condition(UNIT.lower("y") | UNIT.upper("x"), value, exact), exact=exact)


CASES: dict[str, tuple[Callable[[], Problem], int]] = {  # and the number of peaks; 0: a level set
    "peak-1000": (TABLE["peak-1000"].make, 1),
    "two-peaks": (TABLE["two-peaks"].make, 2),
    "boundary-layer": (CALIBRATION["boundary-layer"].make, 1),
    "layer": (TABLE["layer"].make, 0),
    "curved-layer": (curved, 0),
    "wavy-layer": (wavy, 0),
    "curved-front": (front, 0),
}
WON = ("curved-layer", "wavy-layer", "curved-front")
CLAIM = "a trained level set beats every untrained basis tenfold on curved layers"
UNTRAINED = ("lattice", "rotated", "located", "conic")


def located(bench: Bench) -> tuple[np.ndarray, np.ndarray]:
    """Scaled points and weights: the squared source, or, where that tells nothing, what few waves leave of it."""
    key = bench.trials.few.equations[0]
    points = bench.problem.sample(dict.fromkeys(bench.problem.conditions, 8192), seed=bench.seed + 5)[key]
    left = bench.trials.left(key, points, None)
    if np.std(left) < 1e-6 * np.max(np.abs(left), initial=1e-300):
        trial = bench.trials.solve(round_lattice(bench, 600 if bench.dimension > 1 else 80, 1.3))
        left = bench.trials.left(key, points, trial)
    return bench.scaled(points), left**2 / np.sum(left**2)


def moments(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weighted mean, and the spreads along the principal axes, narrowest first."""
    weights = weights / weights.sum()
    middle = weights @ points
    squares, frame = np.linalg.eigh(((points - middle) * weights[:, None]).T @ (points - middle))
    return middle, np.sqrt(squares), frame


def round_lattice(bench: Bench, columns: int, period: float, aspect: float = 1.0, frame: Any = None) -> np.ndarray:
    """The lattice of this period in an ellipsoid whose first radius is `aspect` times the others."""
    ratios = np.array([aspect] + [1.0] * (bench.dimension - 1))
    shape = Shape(tuple(ratios), columns // 2)
    radii = ratios * shape.period() / period
    turned = None if frame is None else tuple(map(tuple, frame))
    found = Shape(tuple(radii), columns // 2, turned).frequencies()
    assert found is not None
    return found


def by_lattice(bench: Bench) -> None:
    """Equal radii, and unequal ones in the frame of the source's moments."""
    frame = moments(*located(bench))[2]
    sizes = (600, 1200, 2400, 3200) if bench.dimension > 1 else (40, 80, 160, 320)
    for columns in sizes:
        few, many = (1.08, 1.2, 1.35) if bench.dimension > 1 else (1.2, 1.5, 2.0, 3.0), (1.14, 1.2)
        for period in many if columns > 2000 else few:
            bench.solve(Identity(), round_lattice(bench, columns, period), "lattice", period=period)
        for aspect in (2.0, 4.0) if bench.dimension > 1 and columns in (1200, 3200) else ():
            angular = round_lattice(bench, columns, 1.15, aspect, frame)
            bench.solve(Identity(), angular, "rotated", aspect=aspect)
    if bench.case in WON and bench.seed == 0:  # one solve, as if the radius were known, takes as long as training
        bench.solve(Identity(), round_lattice(bench, 4800, 1.2), "lattice", period=1.2)


def straight(points: np.ndarray, weights: np.ndarray, factor: float) -> Level:
    """The level set of a straight layer along the longest axis of the weights."""
    middle, spreads, frame = moments(points, weights)
    slope = frame[:, 0] / (factor * spreads[0])
    table = np.zeros((DEGREE + 1, DEGREE + 1))
    table[0, 0], table[1, 0], table[0, 1] = -slope @ middle, *slope
    return normalised(Level(jnp.asarray(table), jnp.asarray(1.0), jnp.asarray(1.0)))


def conic(points: np.ndarray, weights: np.ndarray, factor: float) -> Level:
    """The conic nearest to the weights: least mean square of phi / |grad phi| (Taubin's fit, reweighted)."""
    (x, y), zero, one = points.T, np.zeros(len(points)), np.ones(len(points))
    basis = np.stack([one, y, 2 * y**2 - 1, x, x * y, 2 * x**2 - 1], axis=1)
    slopes = [np.stack([zero, zero, zero, one, y, 4 * x], 1), np.stack([zero, one, 4 * y, zero, x, zero], 1)]
    again, phi = weights, np.zeros(6)
    for _ in range(20):
        size = sum((s * again[:, None]).T @ s for s in slopes) + 1e-9 * np.eye(6)
        phi = scipy.linalg.eigh((basis * again[:, None]).T @ basis, size)[1][:, 0]
        steep = sum((s @ phi) ** 2 for s in slopes)
        again = weights / (steep + 1e-3 * weights @ steep)
    phi = phi / (factor * math.sqrt(weights @ (basis @ phi) ** 2))
    table = np.zeros((DEGREE + 1, DEGREE + 1))
    table[[0, 0, 0, 1, 1, 2], [0, 1, 2, 0, 1, 0]] = phi
    return normalised(Level(jnp.asarray(table), jnp.asarray(2.0), jnp.asarray(1.0)))


def axes(points: np.ndarray, weights: np.ndarray, factor: float, peaks: int) -> Axes:
    """Frames, centres and widths of clusters of the weights (k-means)."""
    rng = np.random.default_rng(0)
    nearest = places = np.zeros(len(points), dtype=int)
    least = math.inf
    for _ in range(5):
        centres = points[rng.choice(len(points), peaks, replace=False, p=weights)]
        for _ in range(30):
            places = np.argmin(np.sum((points[:, None] - centres) ** 2, axis=2), axis=1)
            centres = np.stack([moments(points[places == j], weights[places == j])[0] for j in range(peaks)])
        cost = weights @ np.sum((points - centres[places]) ** 2, axis=1)
        nearest, least = (places, cost) if cost < least else (nearest, least)
    parts = [moments(points[nearest == j], weights[nearest == j]) for j in range(peaks)]
    matrix = np.stack([frame.T / (factor * spreads)[:, None] for _, spreads, frame in parts])
    offset = np.stack([-one @ middle for one, (middle, _, _) in zip(matrix, parts, strict=True)])
    return normalised(Axes(jnp.asarray(matrix), jnp.asarray(offset), jnp.ones(offset.size)))


def finish(bench: Bench, backbone: Any, method: str, peaks: int) -> None:
    """The same frequencies over any warp, trained or not."""
    if isinstance(backbone, Level):
        for radii in RADII:
            bench.solve(backbone, lattice(radii, PERIOD), method, radii=radii)
        return
    for reach in REACHES:
        bench.solve(backbone, diamond(bench, reach, peaks), method, radii=reach)


def diamond(bench: Bench, reach: float, peaks: int) -> np.ndarray:
    """Frequencies for the warped axes of peaks."""
    return lattice((reach,) * bench.dimension if bench.dimension > 1 else (4.0 * reach,), 1.1, 1.0, peaks)


def by_location(bench: Bench) -> None:
    """Warps placed by the source, of several widths; nothing trained."""
    peaks = CASES[bench.case][1]
    found = located(bench)
    for factor in (1.0, 2.0) if peaks == 0 else (1.5, 2.0, 3.0, 4.0):
        backbone = axes(*found, factor, peaks) if peaks else straight(*found, factor)
        finish(bench, backbone, "located", peaks)
        if peaks == 0:
            finish(bench, conic(*found, factor), "conic", peaks)


def by_training(bench: Bench) -> None:
    """The same warps from several widths, trained with few columns; the best by held-out residual is polished."""
    peaks = CASES[bench.case][1]
    found, tried = located(bench), []
    angular = diamond(bench, 30.0, peaks) if peaks else lattice(SMALL, PERIOD)
    for start, factor in enumerate((1.0, 0.5, 2.0) if peaks == 0 else (2.0, 4.0)):
        backbone: Any = axes(*found, factor, peaks) if peaks else straight(*found, factor)
        for degree in range(1, DEGREE + 1) if peaks == 0 else (1, 1):
            if peaks == 0:
                backbone = eqx.tree_at(lambda one: one.degree, backbone, jnp.asarray(float(degree)))
            backbone = normalised(bench.train(normalised(backbone), angular, 10, 100 * start + 10 + len(tried)))
            tried.append((bench.solve(backbone, angular)["held_out"], len(tried), backbone))
    best = min(tried)[2]
    angular = diamond(bench, 45.0, peaks) if peaks else lattice(MIDDLE, PERIOD)
    finish(bench, normalised(bench.train(best, angular, 6, 7, 3.0)), "trained", peaks)


def by_units(bench: Bench, units: int = 12) -> None:
    """A small tanh layer: itself, and waves of it, as basis; units start across points drawn by the source."""
    points, weights = located(bench)
    rng, tried, num = np.random.default_rng(bench.seed), [], bench.dimension
    for start in range(3):
        through = points[rng.choice(len(points), units, p=weights)]
        slopes = rng.normal(size=(units, num))
        slopes *= np.exp(rng.uniform(0.0, math.log(8.0), (units, 1))) / np.linalg.norm(slopes, axis=1, keepdims=True)
        backbone = MLP((jnp.asarray(slopes),), (jnp.asarray(-np.sum(slopes * through, axis=1)),))
        angular = 2.0 * math.pi * gaussian(100, units, 0.5, seed=bench.seed + start)
        backbone = bench.train(bench.train(backbone, angular, 12, 10 + start), angular, 12, 20 + start)
        tried.append((bench.solve(backbone, angular)["held_out"], start, backbone))
    for size in (150, 600):
        for sigma in (0.25, 0.5, 1.0):
            waves = 2.0 * math.pi * gaussian(size, units, sigma, seed=bench.seed)
            bench.solve(min(tried)[2], waves, "units", sigma=sigma)


METHODS = {"lattices": by_lattice, "located": by_location, "trained": by_training, "units": by_units}


def measure(case: str, seed: int, method: str) -> list[dict[str, Any]]:
    """One method on one case, from empty caches."""
    with float64():
        bench = Bench(case, CASES[case][0](), seed)
        METHODS[method](bench)
    return bench.runs


def best(runs: list[dict[str, Any]], case: str, seed: int, *methods: str) -> dict[str, Any]:
    """The run of these methods with the lowest held-out residual."""
    chosen = [run for run in runs if (run["case"], run["seed"]) == (case, seed) and run["method"] in methods]
    return min(chosen, key=lambda run: run["held_out"])


def verdict(runs: list[dict[str, Any]]) -> None:
    """Print the best of each method, and hold the claim to it."""
    for case, seed in sorted({(run["case"], run["seed"]) for run in runs}):
        methods = sorted({run["method"] for run in runs if run["case"] == case})
        rivals = [best(runs, case, seed, method) for method in methods]
        print(
            f"{case} seed {seed}:", *(f"{r['method']} {r['held_out']:.0e} {r['error']:.0e}" for r in rivals), sep="  "
        )
        if case in WON:
            untrained, trained = best(runs, case, seed, *UNTRAINED), best(runs, case, seed, "trained")
            assert trained["held_out"] < 0.1 * untrained["held_out"]
            assert trained["error"] < 0.1 * untrained["error"]
            searches = [
                run for run in runs if (run["case"], run["seed"]) == (case, seed) and run["method"] in UNTRAINED
            ]
            assert trained["seconds"] < max(run["seconds"] for run in searches)


def main(words: list[str]) -> None:
    """Measure the cases and methods named, keep what is stored of the others, and hold the claim to all of them."""
    path = RESULTS / "trained-backbone.json"
    runs = read_json(path)["runs"] if path.exists() else []
    for case in [word for word in words if word in CASES] or CASES:
        for method in [word for word in words if word in METHODS] or METHODS:
            for seed in range(3 if case in WON else 1):
                fresh = measure(case, seed, method)
                again = {(run["case"], run["method"], run["seed"]) for run in fresh}
                runs = [run for run in runs if (run["case"], run["method"], run["seed"]) not in again] + fresh
                store("trained-backbone", CLAIM, runs, quiet=True)
    verdict(runs)


if __name__ == "__main__":
    main(sys.argv[1:])
