"""On what a run runs: versions, device, commit; and whether this machine is fit for it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ifef.calculus import float64

_PACKAGES = ("ifef", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")
_HOUSE = Path(__file__).resolve().parents[1]
_SIDE, _ROWS, _COLUMNS = 1200, 4000, 400  # of the matrices in the speed test: a few tenths of a second on two cores
_MEMORY = 2.0  # GiB below which the default number of columns does not fit


def version(package: str = "ifef") -> str | None:
    """Version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """Commit of the ifef that runs, with -dirty where files differ from it; None where nothing says."""
    try:
        origin = json.loads(metadata.distribution("ifef").read_text("direct_url.json") or "{}")
        if found := origin.get("vcs_info", {}).get("commit_id"):
            return found
    except (metadata.PackageNotFoundError, ValueError):
        pass
    # A virtual environment may lie in a repository of something else, which does not track these files.
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(_HOUSE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def environment(command: Sequence[str] = ()) -> dict[str, Any]:
    """What a result depends on besides its settings."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": list(command),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: version(name) for name in _PACKAGES},
        "commit": commit(),
        "device": jax.devices()[0].device_kind,
        "backend": jax.default_backend(),
        "devices": jax.device_count(),
        "cpu_count": os.cpu_count(),
        "cpu_usable": usable,
        "dtype": "float64",
    }


def _rate(function: Callable[[Any], Any], operand: Any, operations: float) -> float:
    """GFLOP/s of the best of three calls, the compiling one aside."""
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(operand))
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        jax.block_until_ready(compiled(operand))
        best = min(best, time.perf_counter() - begin)
    return operations / best / 1e9


def speed() -> tuple[float, float]:
    """Rates, in GFLOP/s, of a float64 matrix product and of a QR factorisation, as the solver uses them."""
    with float64():
        square = jax.random.normal(jax.random.key(0), (_SIDE, _SIDE), dtype=jnp.float64)
        tall = jax.random.normal(jax.random.key(1), (_ROWS, _COLUMNS), dtype=jnp.float64)
        product = _rate(lambda a: a @ a, square, 2.0 * _SIDE**3)
        operations = 2.0 * _COLUMNS**2 * (_ROWS - _COLUMNS / 3)
        return product, _rate(lambda a: jnp.linalg.qr(a, mode="r"), tall, operations)


def memory() -> tuple[float, float] | None:
    """Free and total memory of this machine in GiB, where the system says."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: float(rest.split()[0]) / 2**20 for name, rest in (line.split(":") for line in lines)}
        return sizes["MemAvailable"], sizes["MemTotal"]
    except (OSError, ValueError, KeyError, IndexError):
        return None


def checkup(cache: Path | None) -> list[tuple[str, str, bool]]:
    """What `ifef doctor` finds: a name, what was found, and whether it is fine."""
    with float64():
        exact = bool(jnp.asarray(1.0) + jnp.asarray(1e-15) != 1.0)
    product, factor = speed()
    free = memory()
    found = [(name, version(name) or "not installed as a package", True) for name in _PACKAGES]
    found = [("python", f"{platform.python_version()} on {platform.platform()}", True), *found]
    device = (
        f"{jax.devices()[0].device_kind}, {jax.device_count()} of {jax.default_backend()}; {os.cpu_count()} CPU cores"
    )
    found += [("device", device, True), ("float64", "works" if exact else "is cut to float32 on this device", exact)]
    found += [
        ("matrix product", f"{product:.1f} GFLOP/s", product > 0.1),
        ("QR", f"{factor:.1f} GFLOP/s", factor > 0.1),
    ]
    if free is not None:
        found.append(("memory", f"{free[0]:.1f} GiB free of {free[1]:.1f} GiB", free[0] >= _MEMORY))
    found.append(("cache", "off: its folder cannot be written" if cache is None else str(cache), True))
    here = Path.cwd()
    writable = os.access(here, os.W_OK)
    found.append(("this folder", f"{here} {'can' if writable else 'cannot'} be written", writable))
    return found
