"""A run's folder: its settings, its lock, how far it got, and how it is found again."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ifef import storage
from ifef.runs.source import Source, one_line

if sys.platform != "win32":
    import fcntl

CONFIG, ENVIRONMENT, PROBLEM = "config.json", "environment.json", "problem.py"
METRICS, CHECKPOINT, SOLUTION = "metrics.jsonl", "checkpoint.ifef", "solution.ifef"
REPORT, RESULT, FIGURES, TRACEBACK = "report.md", "result.json", "figures", "traceback.txt"
_LOCK = ".lock"
_MAX_SEED = 2**32 - 1

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class RunError(ValueError):
    """A run that cannot be started, found or continued, with the reason in one sentence."""


class RunConfig(BaseModel):
    """Everything that a user chose for a run; with the problem file, all that determines it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal[1] = 1
    problem: str
    """A built-in name, or "file"."""
    file: str | None = None
    """Path of the problem file when the run began; the run itself uses its own copy."""
    seed: Annotated[int, Field(ge=0, le=_MAX_SEED)] = 0
    tolerance: _Positive | None = None
    max_features: Annotated[int, Field(ge=10)] | None = None
    max_seconds: _Positive | None = None
    preset: Literal["paper", "paper-pd"] | None = None
    epochs: Annotated[int, Field(ge=0)] | None = None
    dtype: Literal["float64", "float32"] = "float64"
    plot: bool = True

    @model_validator(mode="after")
    def _fits(self) -> RunConfig:
        if self.epochs is not None and self.preset is None:
            raise ValueError("--epochs shortens a preset: give --preset paper too, or leave it out")
        if self.max_features is not None and self.preset is not None:
            raise ValueError("--max-features: a preset has its own number of features; leave one of the two out")
        return self

    def options(self) -> dict[str, Any]:
        """Arguments of `solve`."""
        return self.model_dump(exclude={"format", "problem", "file", "plot"})


def configure(source: Source, **options: Any) -> RunConfig:
    """Check a user's options; the first that is wrong is one sentence."""
    named = {"problem": source.label} if source.text is None else {"problem": "file", "file": str(source.home)}
    try:
        return RunConfig(**named, **options)
    except ValidationError as error:
        raise RunError(_sentence(error)) from error


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    said = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    option = "".join(f"--{str(name).replace('_', '-')} {first['input']}: " for name in first["loc"][:1])
    return f"{option}{said}."


def read_config(folder: Path) -> RunConfig:
    """Read a run's settings."""
    path = folder / CONFIG
    try:
        return RunConfig.model_validate(storage.read_json(path))
    except ValidationError as error:
        raise RunError(f"{str(path)!r} is damaged ({_sentence(error).rstrip('.')}): start the run again.") from error


def source_of(folder: Path, config: RunConfig) -> Source:
    """Give the problem that a run is about; of a file, the copy that the run has."""
    if config.problem != "file":
        return Source(config.problem)
    path, home = folder / PROBLEM, Path(config.file) if config.file else None
    if not path.is_file():
        raise RunError(f"{str(folder)!r} has lost its {PROBLEM}: put the problem file back there, or start again.")
    return Source(home.stem if home else "problem", path.read_bytes(), path, home)


def refuse_unwritable(root: Path) -> None:
    """Refuse, before anything is computed, a place where no folder can be made."""
    for place in (root, *root.parents):
        if place.exists() or place.is_symlink():
            if not place.is_dir():
                raise RunError(f"Cannot put a run into {str(root)!r}: {str(place)!r} is a file; choose another --out.")
            if not os.access(place, os.W_OK | os.X_OK):
                raise RunError(
                    f"Cannot put a run into {str(root)!r}: {str(place)!r} may not be written; choose another."
                )
            return


def create(root: Path, source: Source, config: RunConfig) -> Path:
    """Make the folder of a new run; one that exists is never touched."""
    digest = hashlib.sha256(config.model_dump_json().encode() + (source.text or b"")).hexdigest()[:8]
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{digest}"
    parent = root / source.label
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                continue
    except OSError as error:
        reason = "a file is in the way" if error.errno in (errno.EEXIST, errno.ENOTDIR) else error.strerror
        raise RunError(f"Cannot put a run into {str(parent)!r}: {reason}; choose another --out.") from error
    raise AssertionError("count() has no end")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run for this process alone; the kernel lets go of it when the process ends, however it ends."""
    with open(folder / _LOCK, "ab") as stream:
        if sys.platform != "win32":
            try:
                fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"Another process is working on {str(folder)!r}: wait for it, or stop it.") from None
            except OSError:
                pass  # a file system without locks
        yield


def is_running(folder: Path) -> bool:
    """Whether a process works on this run now."""
    try:
        with locked(folder):
            return False
    except RunError:
        return True
    except OSError:
        return False


def is_finished(folder: Path) -> bool:
    """Whether the run has come to its end; one stopped by Ctrl-C has not."""
    if not (folder / RESULT).is_file():
        return False
    result = storage.read_json(folder / RESULT)
    return isinstance(result, dict) and result.get("status") != "interrupted"


def is_empty(folder: Path) -> bool:
    """Whether nothing has been computed yet."""
    metrics = folder / METRICS
    recorded = metrics.exists() and metrics.stat().st_size > 0
    return not recorded and not any((folder / name).exists() for name in (CHECKPOINT, SOLUTION, RESULT))


def next_step(folder: Path) -> str:
    """How an unfinished run can go on."""
    how = "goes on from its checkpoint" if (folder / CHECKPOINT).exists() else "begins it anew, as it has no checkpoint"
    return f"`ifef resume {folder}` {how}."


def checkpointed(folder: Path) -> list[dict[str, Any]] | None:
    """History up to the checkpoint, or None where there is no checkpoint."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    try:
        settings, _ = storage.load_archive(path)
        history = settings.get("history")
        if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
            raise storage.StorageError(f"{str(path)!r} is not a checkpoint.")
        return history
    except storage.StorageError as error:
        said = one_line(error).partition(": restore")[0].rstrip(".")
        raise RunError(f"{said}: restore a copy, or remove it to begin this run anew.") from error


def align_metrics(folder: Path) -> list[dict[str, Any]]:
    """Bring the metrics to the checkpoint: what came after it, or is torn, comes again."""
    history = checkpointed(folder) or []
    lines = "".join(json.dumps(record) + "\n" for record in history)
    storage.write_atomic(folder / METRICS, lines.encode())
    return history


def find(word: str, root: Path) -> Path:
    """Find a run by its folder, a unique beginning of its name, or "last"."""
    path = Path(word)
    if (path / CONFIG).is_file():
        return path
    runs = sorted((one.parent for one in root.glob(f"*/*/{CONFIG}")), key=_age)
    if path.is_dir() or path.is_file() or len(path.parts) > 2:
        raise RunError(f"{word!r} is not a run (a folder with {CONFIG}): {_newest(runs, root)}")
    if word == "last" and runs:
        return runs[-1]
    found = [run for run in runs if run.name.startswith(word) or f"{run.parent.name}/{run.name}".startswith(word)]
    if len(found) == 1:
        return found[0]
    if found:
        raise RunError(
            f"{len(found)} runs begin with {word!r}: {', '.join(run.name for run in found[-4:])}; give more."
        )
    raise RunError(f"There is no run {word!r}: {_newest(runs, root)}")


def _age(folder: Path) -> tuple[str, int]:
    return folder.name[:15], (folder / CONFIG).stat().st_mtime_ns


def _newest(runs: list[Path], root: Path) -> str:
    if runs:
        return f"the newest in {str(root)!r} is {runs[-1]}."
    return f"there are no runs in {str(root)!r} yet; `ifef solve` makes one, --runs names another folder."
