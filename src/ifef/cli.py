"""The commands. Each is a few lines over `runs` and the public API; what goes wrong is one sentence on stderr."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.exceptions import MissingArgumentError, UnusedCliTokensError

from ifef import runs, storage
from ifef.export import EXPORTERS
from ifef.runs.cache import program_cache
from ifef.runs.template import TEMPLATE

CONVERGED, NOT_CONVERGED, BAD_INPUT, BUG, INTERRUPTED = 0, 1, 2, 3, 130
_MOST_POINTS = 50_000_000  # in an export: about a gigabyte
_EPILOGUE = """Exit status: 0 converged, 1 an answer that has not converged, 2 bad input, 130 stopped by Ctrl-C.

Examples:  ifef list  ·  ifef solve helmholtz-high  ·  ifef new my_problem.py  ·  ifef solve my_problem.py  ·
ifef show last  ·  ifef export last --to netcdf"""


def _whole(_type: Any, tokens: Sequence[Any]) -> int:
    """Convert an option to a whole number; a fraction is refused, where cyclopts would round it."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number.") from None


_Whole = Annotated[int, Parameter(converter=_whole)]
_Switch = Annotated[bool, Parameter(negative="")]
_Runs = Annotated[Path, Parameter(name="--runs")]

app = App(
    name="ifef",
    help="Solve partial differential equations with Fourier-enhanced features.",
    help_epilogue=_EPILOGUE,
    version=lambda: f"ifef {runs.version() or '(not installed as a package)'}",
    version_flags=["--version"],
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and give its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that this terminal cannot write stops nothing
    tokens = list(sys.argv[1:] if argv is None else argv)
    try:
        status = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except CycloptsError as error:
        return _refuse(_usage(error))
    except KeyboardInterrupt:
        return _say("Stopped by Ctrl-C.", INTERRUPTED)
    except BrokenPipeError:  # `ifef list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_CONVERGED
    except Exception as error:
        return _failed(error)


def _say(sentence: str, status: int) -> int:
    print(f"ifef: {sentence}", file=sys.stderr)
    return status


def _refuse(sentence: str) -> int:
    return _say(sentence, BAD_INPUT)


def _usage(error: CycloptsError) -> str:
    """What cyclopts found wrong, in one line, with the way out."""
    error.verbose = False
    command = " ".join(["ifef", *(error.command_chain or ())])
    if isinstance(error, UnusedCliTokensError):
        said = f"{command} takes fewer arguments than were given; too many: {' '.join(error.unused_tokens or [])}."
    else:
        said = runs.one_line(error)
    unsaid = isinstance(error, (MissingArgumentError, UnusedCliTokensError)) or "Did you mean" not in said
    return f"{said} See `{command} --help`." if unsaid else said


def _failed(error: Exception, files: tuple[str, ...] = (), folder: Path | None = None) -> int:
    """Say one sentence: to the user where they can mend it, and otherwise where to find what we need to mend it."""
    if sentence := runs.blame(error, files):
        return _refuse(sentence)
    text = "".join(traceback.format_exception(error))
    if folder is not None and folder.is_dir():
        path = str(folder / runs.TRACEBACK)
    else:
        descriptor, path = tempfile.mkstemp(prefix="ifef-traceback-", suffix=".txt")
        os.close(descriptor)
    try:
        storage.write_atomic(path, text.encode())
        where = f"please report it with the file {path}"
    except OSError:
        where = f"please report it: {' '.join(text.split())[-1000:]}"
    return _say(f"This is a fault in ifef ({type(error).__name__}), not of your input; {where}", BUG)


def _carried_out(work: Callable[[runs.Announce], runs.Outcome], quiet: bool) -> int:
    """Do a run, say where it is, and what came of it."""
    folder: Path | None = None
    files: tuple[str, ...] = ()

    def announce(place: Path, source: runs.Source) -> None:
        nonlocal folder, files
        folder, files = place, source.files
        if not quiet:
            print(f"Run: {place}", file=sys.stderr, flush=True)

    try:
        with program_cache():
            outcome = work(announce)
        folder = outcome.folder
        status = outcome.result.get("status")
        text = runs.outcome_text(outcome.folder, outcome.result)
    except KeyboardInterrupt:
        if folder is None:
            return _say("Stopped by Ctrl-C before the run began.", INTERRUPTED)
        return _say(f"Stopped by Ctrl-C before there was an answer; {runs.next_step(folder)}", INTERRUPTED)
    except Exception as error:
        return _failed(error, files, folder)
    if outcome.done_before:
        print(f"This run is finished already: {folder}", file=sys.stderr)
    print(str(folder) if quiet else f"{text}\nAll of it is in {folder}")
    if status == "interrupted":
        return _say(f"Stopped by Ctrl-C: this is the best so far; {runs.next_step(folder)}", INTERRUPTED)
    return CONVERGED if status == "converged" else NOT_CONVERGED


@app.command(name="list")
def list_problems() -> None:
    """List the built-in problems, one line each."""
    rows = runs.catalogue()
    width = max(len(name) for name, _ in rows)
    for name, said in rows:
        print(f"{name:{width}}  {said}")


@app.command
def solve(
    problem: str,
    /,
    *,
    seed: _Whole = 0,
    tolerance: float | None = None,
    max_features: _Whole | None = None,
    max_seconds: float | None = None,
    preset: Literal["paper", "paper-pd"] | None = None,
    epochs: _Whole | None = None,
    dtype: Literal["float64", "float32"] = "float64",
    out: Path = Path("runs"),
    plot: bool = True,
    quiet: _Switch = False,
) -> int:
    """Solve a problem: a built-in one by its name, or a Python file that defines `problem`.

    The file is executed. Everything goes to a new folder, runs/NAME/TIME-HASH.

    Examples:  ifef solve helmholtz-high  ·  ifef solve my_problem.py --tolerance 1e-8 --seed 3  ·
    ifef solve convection-50 --preset paper --epochs 500

    Args:
        problem: A name from `ifef list`, or the path of a file.
        seed: Whole number that all random choices follow from.
        tolerance: Relative error to reach; without it, until the held-out residual stops falling.
        max_features: Most columns that the basis may have.
        max_seconds: Most seconds that it may take.
        preset: The paper's own algorithm and numbers, with fixed or primal-dual weights.
        epochs: Shortens the stages of a preset to this many epochs.
        dtype: Precision of rows and factorisations; float32 is for machines without a fast float64.
        out: Folder for runs.
        plot: Draw figures.
        quiet: No display; print the run's folder only.
    """
    options = {"tolerance": tolerance, "max_features": max_features, "max_seconds": max_seconds, "plot": plot}

    def work(announce: runs.Announce) -> runs.Outcome:
        source = runs.find_source(problem)
        config = runs.configure(source, seed=seed, preset=preset, epochs=epochs, dtype=dtype, **options)
        return runs.start(source, config, root=out, command=sys.argv, progress=not quiet, announce=announce)

    return _carried_out(work, quiet)


@app.command
def resume(run: str, /, *, quiet: _Switch = False, runs_folder: _Runs = Path("runs")) -> int:
    """Go on with a run that was stopped or killed; it ends as if it had never been.

    Examples:  ifef resume last  ·  ifef resume runs/burgers/20260101-120000-1a2b3c4d

    Args:
        run: A run: its folder, a unique beginning of its name, or "last".
        quiet: No display; print the run's folder only.
        runs_folder: The folder that holds the runs.
    """
    folder = runs.find(run, runs_folder)
    return _carried_out(
        lambda announce: runs.resume(folder, command=sys.argv, progress=not quiet, announce=announce), quiet
    )


@app.command
def show(run: str = "last", /, *, runs_folder: _Runs = Path("runs")) -> None:
    """Show what came of a run, or how far it got.

    Examples:  ifef show  ·  ifef show helmholtz-low/20260101

    Args:
        run: A run: its folder, a unique beginning of its name, or "last".
        runs_folder: The folder that holds the runs.
    """
    print(runs.show(runs.find(run, runs_folder)))


@app.command
def export(
    run: str,
    /,
    *,
    to: Literal["netcdf", "vtk", "csv"],
    out: Path | None = None,
    points: _Whole = 40_000,
    runs_folder: _Runs = Path("runs"),
) -> None:
    """Write a run's solution on a grid, for other programs.

    Examples:  ifef export last --to netcdf  ·  ifef export last --to vtk --out wave.vtr --points 1000000

    Args:
        run: A run: its folder, a unique beginning of its name, or "last".
        to: Format: netCDF (xarray, Panoply), VTK (ParaView, 2 or 3 dimensions) or a table.
        out: File to write; without it, solution.nc, .vtr or .csv in the run's folder.
        points: About how many points the grid has.
        runs_folder: The folder that holds the runs.
    """
    if not 1 <= points <= _MOST_POINTS:
        raise runs.RunError(f"--points {points}: give a whole number from 1 to {_MOST_POINTS}.")
    folder = runs.find(run, runs_folder)
    exporter = EXPORTERS[to]
    path = folder / f"solution{exporter.suffix}" if out is None else out
    if path.exists():
        raise runs.RunError(f"{str(path)!r} exists already: remove it, or name another file with --out.")
    solution = runs.solution_of(folder)
    axes, fields = solution.grid(points)
    exporter.write(path, axes, fields, solution.attributes())
    print(path)


@app.command
def new(file: Path, /) -> None:
    """Write a commented problem file to start from; it runs as it is.

    Examples:  ifef new my_problem.py

    Args:
        file: Path of the new file, ending in .py.
    """
    if file.suffix != ".py":
        raise runs.RunError(f"{str(file)!r} must end in .py: a problem file is a Python file.")
    if file.exists() or file.is_symlink():
        raise runs.RunError(f"{str(file)!r} exists already: name another file, because this one would be lost.")
    storage.write_atomic(file, TEMPLATE.encode())
    print(f"Wrote {file}. Change it as you like, then: ifef solve {file}")


@app.command
def doctor() -> int:
    """Check this machine: versions, device, float64, speed, memory, folders."""
    with program_cache() as cache:
        found = runs.checkup(cache)
    for name, said, fine in found:
        print(f"{'ok ' if fine else 'BAD'}  {name:15} {said}")
    return 0 if all(fine for _, _, fine in found) else 1
