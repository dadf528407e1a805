"""Runs that are killed, again and again, at any instant: nothing on disk is ever broken, and the end is the same."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ifef
from ifef import storage

DATA = Path(__file__).parent / "data"
FIT_KILLS, CLI_KILLS = 20, 4
NUM_EPOCHS = 120  # of both phases together, and every one of them is recorded

Command = Callable[[Path], list[str]]


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a child runs under: this very ifef, and compiled programs that outlive it."""
    cache = tmp_path_factory.mktemp("cache")
    source = str(Path(ifef.__file__).parents[1])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "XDG_CACHE_HOME": str(cache),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def spawn(command: list[str], surroundings: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *command], env=surroundings, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def finish(command: list[str], surroundings: dict[str, str], cwd: Path) -> tuple[float, int, str]:
    begin = time.monotonic()
    process = spawn(command, surroundings, cwd)
    _, errors = process.communicate(timeout=200)
    return time.monotonic() - begin, process.returncode, errors.decode()


def content(folder: Path) -> tuple[str, dict[str, bytes], bytes]:
    """What must not depend on kills: the solution but for its seconds, and the records."""
    settings, arrays = storage.load_archive(folder / "solution.ifef")
    del settings["stats"]["seconds"]
    return (
        json.dumps(settings, sort_keys=True),
        {
            name: str(array.dtype).encode() + str(array.shape).encode() + array.tobytes()
            for name, array in arrays.items()
        },
        (folder / "metrics.jsonl").read_bytes(),
    )


def assert_readable(folder: Path) -> None:
    """Every file that a reader may look at is whole; names with a dot in front are a writer's own."""
    readers: dict[str, Callable[[Path], Any]] = {
        ".json": storage.read_json,
        ".jsonl": storage.read_records,
        ".ifef": storage.load_archive,
        ".py": lambda path: compile(path.read_bytes(), path, "exec"),
        ".md": lambda path: path.read_text().index("# "),
        ".png": lambda path: path.read_bytes().index(b"IEND", -12),
    }
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            readers[path.suffix](path)


def killed_after(seconds: float | None, process: subprocess.Popen[bytes]) -> bool:
    """Whether the process was alive to be killed; one that had ended by itself must have ended well."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode in (0, 1, -signal.SIGKILL), errors.decode()
    return process.returncode == -signal.SIGKILL


def delays(num: int, duration: float) -> list[float]:
    """Instants from start-up to the end, each part of a run's life met once, in random order."""
    dice = random.Random(num)
    instants = [duration * (part + dice.random()) / num for part in range(num)]
    dice.shuffle(instants)
    return instants


def reference(surroundings: dict[str, str], cwd: Path, command: Command) -> tuple[Path, float]:
    """Give the folder of a run that nobody disturbs, and how long one takes once everything is compiled."""
    folder, seconds = cwd, 0.0
    for name in ("cold", "warm"):
        folder = cwd / name
        seconds, status, errors = finish(command(folder), surroundings, cwd)
        assert status in (0, 1), errors
    return folder, seconds


def align(folder: Path) -> None:
    """What a caller of `fit` does with records that are ahead of the checkpoint: drop them, because they come again."""
    path = folder / "checkpoint.ifef"
    history = storage.load_archive(path)[0]["history"] if path.exists() else []
    storage.truncate_records(folder / "metrics.jsonl", lambda record: record in history)


def test_a_fit_killed_at_any_instant_ends_bit_identical(tmp_path: Path, surroundings: dict[str, str]) -> None:
    def command(folder: Path) -> list[str]:
        return [str(DATA / "small_fit.py"), str(folder)]

    whole, duration = reference(surroundings, tmp_path, command)
    wanted = content(whole)
    assert len(wanted[2].splitlines()) == NUM_EPOCHS
    instants: list[float | None] = [*delays(FIT_KILLS, duration), None]
    chain = 0
    while instants:
        folder = tmp_path / f"chain-{chain}"
        align(folder)
        if killed_after(instants[0], spawn(command(folder), surroundings, tmp_path)):
            instants.pop(0)
            assert_readable(folder)
            continue
        assert content(folder) == wanted
        chain += 1
        if instants[0] is None:  # the last process was left alone
            return
        instants[0] *= 0.8  # it had ended before it could be killed; the next one will not have


def test_a_command_killed_at_any_instant_ends_bit_identical(tmp_path: Path, surroundings: dict[str, str]) -> None:
    def command(root: Path) -> list[str]:
        script = str(DATA / "small_cli.py")
        if any(root.glob("*/*/config.json")):
            return [script, "resume", "last", "--runs", str(root)]
        options = ["--preset", "paper-pd", "--seed", "3", "--no-plot"]
        return [script, "solve", "convection-50", *options, "--out", str(root)]

    root, duration = reference(surroundings, tmp_path, command)
    (whole,) = root.glob("*/*")
    wanted = content(whole)
    assert len(wanted[2].splitlines()) == NUM_EPOCHS
    instants: list[float | None] = [*delays(CLI_KILLS, duration), None]
    chain = 0
    while instants:
        root = tmp_path / f"chain-{chain}"
        if killed_after(instants[0], spawn(command(root), surroundings, tmp_path)):
            instants.pop(0)
            assert_readable(root)
            continue
        (folder,) = [path.parent for path in root.glob("*/*/config.json")]
        assert_readable(folder)
        assert content(folder) == wanted
        assert visible(folder) == visible(whole)
        chain += 1
        if instants[0] is None:
            return
        instants[0] *= 0.8


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if not path.name.startswith(".")}
