"""Runs begun, continued and shown: what is computed goes to disk as it comes, and a killed run loses nothing else."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ifef import display, storage
from ifef.presets import SETTINGS
from ifef.problem import Problem
from ifef.runs import folder as on_disk
from ifef.runs.environment import environment
from ifef.runs.folder import RunConfig, RunError
from ifef.runs.report import draw, markdown, result_of, summary
from ifef.runs.source import Source, blame
from ifef.solution import Solution, load
from ifef.solve import solve

Announce = Callable[[Path, Source], None]
"""Called with a run's folder, and the source of its problem, before anything is computed."""


@dataclass(frozen=True)
class Outcome:
    """A run's folder and its result, as in result.json; `done_before`: it was finished and nothing was computed."""

    folder: Path
    result: dict[str, Any]
    done_before: bool = False


def start(
    source: Source,
    config: RunConfig,
    *,
    root: Path,
    command: Sequence[str] = (),
    progress: bool = True,
    announce: Announce = lambda folder, source: None,
) -> Outcome:
    """Begin a run in a new folder under `root`, and see it to its end."""
    on_disk.refuse_unwritable(root / source.label)
    problem = _built(source, config)
    folder = on_disk.create(root, source, config)
    surroundings = environment(command)
    storage.write_json(folder / on_disk.ENVIRONMENT, surroundings)
    if source.text is not None:
        storage.write_atomic(folder / on_disk.PROBLEM, source.text)
    with on_disk.locked(folder):
        storage.write_json(folder / on_disk.CONFIG, config.model_dump())  # last: a folder with it is a whole run
        announce(folder, source)
        try:
            return _work(folder, config, problem, surroundings, progress)
        except Exception as error:
            if blame(error, source.files) and on_disk.is_empty(folder):
                shutil.rmtree(folder, ignore_errors=True)  # made above, by us, and refused before it computed
            raise


def resume(
    folder: Path,
    *,
    command: Sequence[str] = (),
    progress: bool = True,
    announce: Announce = lambda folder, source: None,
) -> Outcome:
    """Go on with a run from its checkpoint, or from its beginning where there is none."""
    config = on_disk.read_config(folder)
    with on_disk.locked(folder):
        if on_disk.is_finished(folder):
            return Outcome(folder, storage.read_json(folder / on_disk.RESULT), done_before=True)
        on_disk.checkpointed(folder)  # a damaged one is refused before a user's file runs
        source = on_disk.source_of(folder, config)
        problem = _built(source, config)
        first = _surroundings(folder)
        first.setdefault("resumed", []).append(environment(command))
        storage.write_json(folder / on_disk.ENVIRONMENT, first)
        announce(folder, source)
        return _work(folder, config, problem, first, progress)


def _built(source: Source, config: RunConfig) -> Problem:
    problem = source.build()
    if config.preset is not None and problem.name not in SETTINGS:
        what = f"{source.label!r}" if source.text is None else "a problem of your own"
        raise RunError(f"--preset {config.preset}: the paper has no settings for {what}; leave the option out.")
    return problem


def _surroundings(folder: Path) -> dict[str, Any]:
    found = storage.read_json(folder / on_disk.ENVIRONMENT)
    return found if isinstance(found, dict) and isinstance(found.get("resumed", []), list) else {}


def _work(folder: Path, config: RunConfig, problem: Problem, surroundings: dict[str, Any], progress: bool) -> Outcome:
    """Solve, then write what there is to read; the result comes last, and marks the run as finished."""
    solution = _kept(folder, problem)
    if solution is None:
        on_disk.align_metrics(folder)
        with _recorded(folder, progress) as report:
            solution = solve(problem, **config.options(), progress=report, checkpoint=str(folder / on_disk.CHECKPOINT))
        solution.save(folder / on_disk.SOLUTION)
    result = result_of(config, surroundings, solution)
    if config.plot:
        result["notes"] += draw(folder, solution)
    storage.write_atomic(folder / on_disk.REPORT, markdown(result).encode())
    storage.write_json(folder / on_disk.RESULT, result)
    return Outcome(folder, result)


def _kept(folder: Path, problem: Problem) -> Solution | None:
    """Give the solution of a run that was killed between solving and reporting."""
    try:
        solution = load(folder / on_disk.SOLUTION, problem)
    except (OSError, ValueError):
        return None
    return None if solution.status == "interrupted" else solution


@contextlib.contextmanager
def _recorded(folder: Path, progress: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Give what takes a run's records: ticks move the display only, the others are kept."""
    with display.live(folder.parent.name) if progress else contextlib.nullcontext(lambda record: None) as show:

        def report(record: dict[str, Any]) -> None:
            if not record.get("tick"):
                storage.append_record(folder / on_disk.METRICS, record)
            show(record)

        yield report


def outcome_text(folder: Path, result: dict[str, Any]) -> str:
    """Give a result in a few lines; one that makes no sense is one sentence."""
    try:
        return summary(result)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        path = str(folder / on_disk.RESULT)
        raise RunError(f"{path!r} is damaged: remove it and `ifef resume {folder}` writes it again.") from error


def show(folder: Path) -> str:
    """Say what became of a run; of an unfinished one how far it got and how to go on."""
    config = on_disk.read_config(folder)
    if (folder / on_disk.RESULT).is_file():
        text = outcome_text(folder, storage.read_json(folder / on_disk.RESULT))
        again = "" if on_disk.is_finished(folder) else f"\n{on_disk.next_step(folder)}"
        return f"{text}\nAll of it is in {folder}{again}"
    label = Path(config.file).stem if config.file else config.problem
    if on_disk.is_running(folder):
        return f"{label}: running now\n{_reached(folder)}"
    on_disk.checkpointed(folder)  # a damaged one is said now
    return f"{label}: not finished\n{_reached(folder)}\n{on_disk.next_step(folder)}"


def _reached(folder: Path) -> str:
    """How far the records go."""
    path = folder / on_disk.METRICS
    records = storage.read_records(path) if path.exists() else []
    if not records:
        return "  nothing recorded yet"
    last = records[-1]
    epoch = f" epoch {last['epoch']} of {last.get('epochs', '?')}" if "epoch" in last else ""
    held_out = display.number(last.get("held_out"))
    return f"  {len(records)} records, the last: {last.get('phase', 'solve')}{epoch}, held-out residual {held_out}"


def solution_of(folder: Path) -> Solution:
    """Load a run's solution; its problem is only made where the solution cannot do without."""
    config = on_disk.read_config(folder)
    path = folder / on_disk.SOLUTION
    if not path.exists():
        raise RunError(f"{str(folder)!r} has no solution yet: `ifef resume {folder}` finishes it.")
    try:
        return load(path)
    except storage.StorageError:
        raise
    except ValueError:  # functions of its own in the basis, or a backbone
        return load(path, on_disk.source_of(folder, config).build())
