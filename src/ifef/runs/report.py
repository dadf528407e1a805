"""What a run leaves to be read: a result for programs, a report for people, figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from ifef import plots
from ifef.diagnosis import unsaid
from ifef.display import duration, number
from ifef.runs.folder import FIGURES, PROBLEM, SOLUTION, RunConfig
from ifef.runs.source import one_line
from ifef.solution import STATUSES, Solution

_FEWEST = 20  # points on which a map of residuals says something


def result_of(config: RunConfig, environment: dict[str, Any], solution: Solution) -> dict[str, Any]:
    """Facts of a finished run, for programs; a number that is not finite is null, as JSON has it."""
    error, notes = None, []
    if solution.problem is not None and solution.problem.exact is not None:
        try:
            error = solution.error()
        except Exception as failure:  # a user's own function: the answer is worth keeping without it
            notes.append(f"The exact solution could not be evaluated: {one_line(failure)}")
    resumed = environment.get("resumed", [])
    notes += _changes(environment, resumed)
    facts = {
        "format": 1,
        "problem": Path(config.file).stem if config.file else config.problem,
        "status": solution.status,
        "error": error,
        "error_estimate": solution.error_estimate,
        "residuals": solution.residuals,
        "advice": solution.advice,
        "diagnosis": solution.diagnosis,
        "notes": notes,
        "stats": solution.stats,
        "seconds": solution.stats.get("seconds"),
        "resumed": len(resumed),
        **{key: environment.get(key) for key in ("device", "python", "versions", "commit")},
        "dtype": config.dtype,
        "seed": config.seed,
        "settings": config.model_dump(),
    }
    return _finite(facts)


def _changes(environment: dict[str, Any], resumed: list[dict[str, Any]]) -> list[str]:
    """Say where a run went on under other versions: it then need not be bit for bit what it would have been."""
    keys = ("versions", "device", "commit", "python", "cpu_usable")
    changed = [key for key in keys if any(later.get(key) != environment.get(key) for later in resumed)]
    return [f"The run was continued with another {', '.join(changed)} than it began with."] if changed else []


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_finite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _listed(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number(one)}" for name, one in value.items())
    return number(value)


def _facts(result: dict[str, Any]) -> list[tuple[str, str]]:
    stats = result["stats"]
    facts = [("error", _listed(result["error"]))] if result["error"] is not None else []
    facts.append(("error estimate", _listed(result["error_estimate"])))
    rows = f"{stats.get('rank', '-')} of {stats.get('num_features', '-')} columns, {stats.get('num_rows', '-')} rows"
    condition, norm = number(stats.get("condition"), ".1e"), number(stats.get("norm"), ".1e")
    facts.append(("rank", f"{rows}; condition {condition}; |theta| {norm}"))
    taken = "-" if result["seconds"] is None else duration(result["seconds"])
    facts.append(("time", f"{taken} since it was resumed" if result["resumed"] else taken))
    return facts


def summary(result: dict[str, Any]) -> str:
    """Give a result in a few lines."""
    lines = [f"{result['problem']}: {STATUSES.get(result['status'], result['status'])}"]
    lines += [f"  {label:16} {value}" for label, value in _facts(result)]
    lines += [f"  {'residual':16} {number(value)}  {key}" for key, value in result["residuals"].items()]
    said = unsaid(result["advice"], result.get("diagnosis", []))
    lines += [f"  {sentence}" for sentence in (*said, *result["notes"])]
    return "\n".join(lines)


def markdown(result: dict[str, Any]) -> str:
    """Give a result as a report that stands on its own."""
    settings = {key: value for key, value in result["settings"].items() if value is not None and key != "format"}
    versions = ", ".join(f"{name} {value}" for name, value in (result["versions"] or {}).items() if value)
    if result["settings"].get("file"):
        problem = f'runpy.run_path("{PROBLEM}")["problem"]'
        imports = "import runpy\n\nimport ifef"
    else:
        problem, imports = f'BUILT_IN["{result["problem"]}"]()', "import ifef\nfrom ifef.problems import BUILT_IN"
    parts = [
        f"# {result['problem']}: {STATUSES.get(result['status'], result['status'])}",
        *[sentence for sentence in (result["advice"], *result["notes"]) if sentence],
        _table(("", ""), _facts(result)),
        "\n".join(f"- {sentence}" for sentence in result.get("diagnosis", [])),
        "## Residuals on held-out points",
        _table(("condition", "root mean square"), [(key, number(one)) for key, one in result["residuals"].items()]),
        "## Load it",
        f'```python\n{imports}\n\nsolution = ifef.load("{SOLUTION}", {problem})\n```',
        "Without the second argument nothing is executed, and all but `.error()` works.",
        "## Settings",
        _table(("setting", "value"), [(key, str(value)) for key, value in settings.items()]),
        f"Python {result['python']}, {versions}; {result['dtype']} on {result['device']}; commit {result['commit']}.",
        "## Statistics",
        _table(("statistic", "value"), [(key, str(value)) for key, value in result["stats"].items()]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    cells = [head, ("---", "---"), *[(key, value.replace("|", "\\|")) for key, value in rows]]
    return "\n".join(f"| {key} | {value} |" for key, value in cells)


def draw(folder: Path, solution: Solution) -> list[str]:
    """Draw the figures; one that cannot be drawn costs itself only, and a sentence says so."""
    figures = folder / FIGURES
    figures.mkdir(exist_ok=True)
    names = solution.domain.names
    wanted = {
        "solution": lambda path: solution.plot(path),
        "residuals": lambda path: plots.save_figure(
            plots.residual_figure({key: values for key, (_, values) in solution.held_out.items()}), path
        ),
    }
    if solution.history:
        wanted["history"] = lambda path: plots.save_figure(plots.history_figure(solution.history), path)
    for index, (key, (points, values)) in enumerate(solution.held_out.items()):
        if len(np.unique(points, axis=0)) >= _FEWEST:  # a wall of a one-dimensional box is one point, many times
            safe = "".join(letter if letter.isalnum() else "_" for letter in key) or str(index)
            wanted[f"residual-{safe}"] = lambda path, at=points, of=values: plots.save_figure(
                plots.residual_map_figure(names, at, of), path
            )
    notes = []
    for name, make in wanted.items():
        try:
            make(figures / f"{name}.png")
        except Exception as failure:
            notes.append(f"The figure {name} could not be drawn: {one_line(failure)}")
    return notes
