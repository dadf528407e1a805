"""What every test runs under. float64 is absent on purpose: the library turns it on by itself, inside its own calls."""

import os
from pathlib import Path

# Before anything imports matplotlib: a test machine has no screen.
os.environ["MPLBACKEND"] = "Agg"
# Before anything imports JAX: tests compile far more than they compute, and this halves what a compilation takes.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import pytest

# (n,) + (n, 1) is (n, n), silently; here it is an error.
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test writes to a relative path (runs/, pictures) goes away with it."""
    monkeypatch.chdir(tmp_path)
