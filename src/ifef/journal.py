"""What a training run remembers: records for people, and a checkpoint from which it goes on bit for bit."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ifef import storage
from ifef.checks import file_path

Progress = Callable[[dict[str, Any]], None]
"""Called with each record; records with "tick" set only move a display, the others are the run's history."""

_KIND = "ifef checkpoint"


def fingerprint(settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Hash of everything that determines a run, so that a checkpoint is never continued by another run."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for key in sorted(arrays):
        digest.update(key.encode() + np.ascontiguousarray(arrays[key]).tobytes())
    return digest.hexdigest()


class Journal:
    """History, display and checkpoint of one run."""

    def __init__(
        self,
        mark: str,
        progress: Progress | None,
        checkpoint: str | Path | None,
        seconds: float,
        max_seconds: float | None = None,
    ):
        self.mark = mark
        self.progress = progress
        self.path = None if checkpoint is None else file_path(checkpoint, "checkpoint")
        self.seconds = seconds
        self.deadline = math.inf if max_seconds is None else time.monotonic() + max_seconds
        self.history: list[dict[str, Any]] = []
        self._phase = ""
        self._leaves: list[np.ndarray] = []
        self._last = time.monotonic()
        if self.path is not None and not self.path.absolute().parent.is_dir():  # said before hours of training
            raise FileNotFoundError(f"Cannot write {str(self.path)!r}: its folder does not exist; create it first.")
        if self.path is not None and self.path.exists():
            self._read(self.path)

    def _read(self, path: Path) -> None:
        settings, arrays = storage.load_archive(path)
        if settings.get("kind") != _KIND:
            raise storage.StorageError(f"{path} holds a {settings.get('kind', 'file')!r}, not a checkpoint.")
        if settings.get("mark") != self.mark:
            raise storage.StorageError(
                f"{path} belongs to a run with other settings, points or seed; remove it or name another checkpoint."
            )
        self._phase = settings["phase"]
        self.history = settings["history"]
        self._leaves = [arrays[f"leaf.{index}"] for index in range(settings["leaves"])]

    def restore(self, phase: str, state: Any) -> Any:
        """Give the checkpointed state of this phase, or the given one where there is none."""
        flat, tree = jax.tree_util.tree_flatten(state)
        if phase != self._phase:
            return state
        if len(flat) != len(self._leaves):
            raise storage.StorageError(f"{self.path} does not fit this run; remove it or name another checkpoint.")
        leaves = [jnp.asarray(leaf, dtype=old.dtype) for leaf, old in zip(self._leaves, flat, strict=True)]
        return jax.tree_util.tree_unflatten(tree, leaves)

    def reached(self, phase: str, order: tuple[str, ...]) -> bool:
        """Whether the checkpoint is already past this phase."""
        return self._phase in order and order.index(self._phase) > order.index(phase)

    def tick(self, phase: str, epoch: int, epochs: int) -> None:
        """Move the display."""
        if self.progress is not None:
            self.progress({"tick": True, "phase": phase, "epoch": epoch, "epochs": epochs})

    def record(self, entry: dict[str, Any]) -> None:
        """Add to the history, and show."""
        self.history.append(entry)
        if self.progress is not None:
            self.progress(entry)

    def save(self, phase: str, state: Any, *, now: bool = False) -> None:
        """Write a checkpoint when enough time has passed (or at once): the time decides nothing else."""
        if self.path is None or not (now or time.monotonic() - self._last >= self.seconds):
            return
        leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(state)]
        settings = {
            "kind": _KIND,
            "mark": self.mark,
            "phase": phase,
            "history": self.history,
            "leaves": len(leaves),
        }
        storage.save_archive(self.path, settings, {f"leaf.{index}": leaf for index, leaf in enumerate(leaves)})
        self._last = time.monotonic()
