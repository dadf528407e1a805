"""JAX's compilation cache on disk, for the command line only: the library itself sets nothing global."""

from __future__ import annotations

import hashlib
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache as jax_cache

_FOLDER = "jax_compilation_cache_dir"
_MAX_BYTES = 2**30
_CLEAN = ".clean"
_WORTH_KEEPING = 0.2  # seconds of compilation


@contextmanager
def program_cache() -> Iterator[Path | None]:
    """Keep compiled programs in the user's cache folder; gives the folder, or None where that cannot be."""
    if chosen := getattr(jax.config, _FOLDER):  # the user's own choice, by JAX's variable
        yield Path(chosen)
        return
    folder = _folder()
    if folder is None:
        yield None
        return
    wanted = {
        _FOLDER: str(folder),
        "jax_persistent_cache_min_compile_time_secs": _WORTH_KEEPING,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    _set(wanted)
    try:
        with warnings.catch_warnings():
            # A full disk, or an entry that a killed process left half-written: JAX compiles and goes on.
            warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
            yield folder
    finally:
        _set(before)
        with suppress(OSError):
            (folder / _CLEAN).touch()


def _set(settings: dict[str, object]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    jax_cache.reset_cache()  # JAX reads the settings once


def _folder() -> Path | None:
    """Make the folder; one that others may write to is not used, because what lies in it is executed."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
        folder = base / "ifef" / f"xla-{_machine()}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        foreign = hasattr(os, "getuid") and (status.st_uid != os.getuid() or bool(status.st_mode & 0o022))
        if foreign or not os.access(folder, os.W_OK | os.X_OK):
            return None
        _tidy(folder)
        return folder
    except (OSError, RuntimeError):
        return None


def _machine() -> str:
    """Mark of the processor: on a cluster, one home folder serves several kinds, and code for one may not run."""
    marks = [platform.machine(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        marks += [line for line in lines if line.startswith(("flags", "Features", "model name"))][:2]
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()[:12]


def _tidy(folder: Path) -> None:
    """Drop the entry that a killed process may have been writing, and the oldest of too many."""
    entries = sorted((one.stat().st_mtime_ns, one.stat().st_size, one) for one in folder.glob("*-cache"))
    clean = (folder / _CLEAN).stat().st_mtime_ns if (folder / _CLEAN).exists() else 0
    if entries and entries[-1][0] > clean:
        entries.pop()[2].unlink(missing_ok=True)
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= _MAX_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size
