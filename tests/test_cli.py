"""The command line: what it prints, what it returns, and that whatever is typed wrong is one sentence and status 2."""

import csv
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import xarray

import ifef
from ifef import cli, runs, storage
from ifef.runs import environment, session
from ifef.solution import STATUSES

DATA = Path(__file__).parent / "data"


class Said(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _a_cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setattr(cli.tempfile, "tempdir", str(Path.cwd()))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command in this process."""

    def run(*argv: str) -> Said:
        capsys.readouterr()
        status = cli.main(argv)
        captured = capsys.readouterr()
        return Said(status, captured.out, captured.err)

    return run


def spawn(*argv: str) -> subprocess.Popen[str]:
    source = str(Path(ifef.__file__).parents[1])
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Tests in the background of a script inherit interrupts that are ignored, and would hand them on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen([sys.executable, "-m", "ifef", *argv], env=surroundings, **pipes)


def small_problem(domain: str = "x=(0.0, 1.0)") -> str:
    """A problem whose solution is x, in one dimension or two."""
    return (
        "from ifef import Box, Condition, Problem, d\n"
        f"box = Box({domain})\n"
        'problem = Problem(box, equation=Condition(box.interior, lambda u, p: d(u, "x", "x")(p)),\n'
        '    ends=Condition(box.lower("x") | box.upper("x"), lambda u, p: u(p), target=lambda p: p.x))\n'
    )


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Solutions of the small problem in one and two dimensions, by the names of their files."""
    place = tmp_path_factory.mktemp("archives")
    saved = {}
    for name, domain in (("line", "x=(0.0, 1.0)"), ("plane", "x=(0.0, 1.0), y=(0.0, 1.0)")):
        path = place / f"{name}.py"
        path.write_text(small_problem(domain))
        problem = runs.find_source(str(path)).build()
        features = ifef.fourier_features(problem, 4, sigma=0.3, backbone=(), seed=0)
        solution = ifef.fit(problem, features, problem.sample({"equation": 40, "ends": 20}), tolerance=1e-2)
        saved[name] = solution.save(place / name)
    return saved


@pytest.fixture
def solver(archives: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for `solve` in the problems above; what it is told changes what it does."""
    told: dict[str, Any] = {"status": "converged", "raises": None}

    def solve(problem: ifef.Problem, *, progress: Any, checkpoint: str, **options: Any) -> ifef.Solution:
        told["options"] = options
        progress({"phase": "solve", "held_out": 0.1})
        if told["raises"] is not None:
            raise told["raises"]
        solution = ifef.load(archives["plane" if len(problem.domain.names) == 2 else "line"], problem)
        solution.status = told["status"]
        return solution

    monkeypatch.setattr(session, "solve", solve)
    return told


@pytest.fixture
def line(solver: dict[str, Any], call: Callable[..., Said]) -> Path:
    """A finished run in one dimension."""
    Path("line.py").write_text(small_problem())
    assert call("solve", "line.py", "--no-plot", "--quiet").status == 0
    (found,) = Path("runs").glob("line/*")
    return found


# --- what is typed wrong ----------------------------------------------------------------------------------------------


class Wrong(NamedTuple):
    argv: str
    said: str
    files: Mapping[str, bytes | str] = MappingProxyType({})
    """Files that are there before, and must be afterwards as they were."""


RUN = {"runs/x/1/config.json": '{"problem": "burgers"}', "runs/x/1/environment.json": "{}"}
PICKLE = b"\x80\x04\x95\x15\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94."
TYPED_WRONG: list[Wrong] = [
    Wrong("sovle x", 'Unknown command "sovle". Did you mean "solve"?'),
    Wrong("frobnicate", "Unknown command"),
    Wrong("--frobnicate", "Unknown command"),
    Wrong("solve burgers --sed 1", "Unknown option: --sed. Did you mean --seed?"),
    Wrong("solve burgers --zzz", "Unknown option"),
    Wrong("solve", "requires an argument"),
    Wrong("solve burgers --seed", "requires an argument"),
    Wrong("solve burgers helmholtz-low", "too many: helmholtz-low"),
    Wrong("solve helmholz-high", "did you mean helmholtz-high?"),
    Wrong("solve navier-stokes", "`ifef list` names"),
    Wrong("solve gone.py", "There is no file 'gone.py'"),
    Wrong("solve my_problm.py", "did you mean my_problem.py?", {"my_problem.py": ""}),
    Wrong("solve below", "is a folder", {"below/a.py": ""}),
    Wrong("solve empty.py", "defines no variable `problem`", {"empty.py": ""}),
    Wrong("solve torn.py", "torn.py:2:", {"torn.py": "x = 1\nproblem = Problem(\n"}),
    Wrong("solve raises.py", "raises.py:1: ZeroDivisionError: division by zero.", {"raises.py": "1 / 0"}),
    Wrong("solve three.py", "`problem` is a int", {"three.py": "problem = 3"}),
    Wrong("solve wrong.py", "wrong.py:2: ValueError: Box", {"wrong.py": "import ifef\nifef.Box(x=(1.0, 0.0))"}),
    Wrong("solve burgers --out taken", "'taken' is a file", {"taken": "mine"}),
    Wrong("solve burgers --out taken/runs", "is a file", {"taken": "mine"}),
    Wrong("solve burgers --seed -1", "--seed -1"),
    Wrong("solve burgers --seed 1.5", "'1.5' is not a whole number"),
    Wrong("solve burgers --seed 99999999999", "--seed 99999999999"),
    Wrong("solve burgers --seed one", "'one' is not a whole number"),
    Wrong("solve burgers --tolerance -1e-3", "--tolerance -0.001"),
    Wrong("solve burgers --tolerance nan", "--tolerance nan"),
    Wrong("solve burgers --tolerance small", "small"),
    Wrong("solve burgers --max-features 0", "--max-features 0"),
    Wrong("solve burgers --max-seconds 0", "--max-seconds 0"),
    Wrong("solve convection-50 --preset papr", 'Did you mean "paper"?'),
    Wrong("solve convection-50 --epochs 5", "--epochs shortens a preset"),
    Wrong("solve convection-50 --preset paper --epochs -5", "--epochs -5"),
    Wrong("solve burgers --preset paper", "no settings for 'burgers'"),
    Wrong("solve own.py --preset paper", "no settings for a problem of your own", {"own.py": small_problem()}),
    Wrong("resume", "requires an argument"),
    Wrong("resume below", "is not a run", {"below/a.txt": "mine"}),
    Wrong("resume last", "there are no runs"),
    Wrong("resume 1", "is damaged", {"runs/x/1/config.json": "{"}),
    Wrong("resume 1", "is damaged", {"runs/x/1/config.json": '{"problem": "burgers", "seed": -3}'}),
    Wrong("resume 1", "lost its problem.py", {"runs/x/1/config.json": '{"problem": "file", "file": "a.py"}'}),
    Wrong("resume 1", "remove it to begin", {**RUN, "runs/x/1/checkpoint.ifef": b"\x93IFEF\r\n\x1a\x01\0\0\0"}),
    Wrong("resume 1", "remove it to begin", {**RUN, "runs/x/1/checkpoint.ifef": b""}),
    Wrong("resume 1", "remove it to begin", {**RUN, "runs/x/1/checkpoint.ifef": PICKLE}),
    Wrong("show", "there are no runs"),
    Wrong("show 2", "There is no run '2'", RUN),
    Wrong("show x", "2 runs begin with 'x'", {**RUN, "runs/x/2/config.json": '{"problem": "burgers"}'}),
    Wrong("show last --runs elsewhere", "there are no runs in 'elsewhere'", RUN),
    Wrong("show 1", "is damaged", {**RUN, "runs/x/1/result.json": "[1"}),
    Wrong("show 1", "is damaged", {**RUN, "runs/x/1/result.json": "{}"}),
    Wrong("show 1", "is damaged", {**RUN, "runs/x/1/metrics.jsonl": "what\n"}),
    Wrong("export 1 --to netcdf", "is not an ifef archive", {**RUN, "runs/x/1/solution.ifef": PICKLE}),
    Wrong("export 1 --to netcdf", "has no solution yet", RUN),
    Wrong("export 1 --to nectdf", 'Did you mean "netcdf"?', RUN),
    Wrong("export 1", "requires an argument", RUN),
    Wrong("export 1 --to csv --points 0", "--points 0", RUN),
    Wrong("export 1 --to csv --out taken.csv", "'taken.csv' exists already", {**RUN, "taken.csv": "mine"}),
    Wrong("new taken.py", "'taken.py' exists already", {"taken.py": "mine"}),
    Wrong("new notes.txt", "must end in .py"),
    Wrong("new nowhere/new.py", "its folder does not exist"),
    Wrong("new", "requires an argument"),
    Wrong("list all", "too many: all"),
]


def plant(files: Mapping[str, bytes | str]) -> dict[Path, bytes]:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return everything()


def everything() -> dict[Path, bytes]:
    """All files below this folder but for locks, which are empty."""
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and path.name != ".lock"}


def assert_one_sentence(said: Said, wanted: str) -> None:
    assert said.status == cli.BAD_INPUT, said
    assert wanted in said.err
    assert said.err.startswith("ifef: ")
    assert said.err.count("\n") == 1
    assert said.err.rstrip()[-1] in ".?`"
    assert "Traceback" not in said.err
    assert said.out == ""


@pytest.mark.parametrize("wrong", TYPED_WRONG, ids=[f"{number}: {row.argv}" for number, row in enumerate(TYPED_WRONG)])
def test_what_is_typed_wrong_is_one_sentence(wrong: Wrong, call: Callable[..., Said]) -> None:
    before = plant(wrong.files)
    assert_one_sentence(call(*wrong.argv.split()), wrong.said)
    assert everything() == before


@pytest.mark.parametrize("wrong", [TYPED_WRONG[0], TYPED_WRONG[8], TYPED_WRONG[15]], ids=lambda row: row.argv)
def test_and_so_it_is_in_a_process_of_its_own(wrong: Wrong) -> None:
    before = plant(wrong.files)
    process = spawn(*wrong.argv.split())
    out, err = process.communicate()
    assert_one_sentence(Said(process.returncode, out, err), wrong.said)
    assert everything() == before


def test_a_format_that_does_not_fit_leaves_no_file(line: Path, call: Callable[..., Said]) -> None:
    assert_one_sentence(call("export", "last", "--to", "vtk"), "VTK holds 2 or 3 dimensions")
    assert not list(Path().rglob("*.vtr"))


def test_an_operator_that_fails_later_is_named_by_its_line(solver: dict[str, Any], call: Callable[..., Said]) -> None:
    text = small_problem() + "def late():\n    return {}['k']\n"
    Path("late.py").write_text(text)
    names: dict[str, Any] = {}
    exec(compile(text, "late.py", "exec"), names)
    try:
        names["late"]()
    except KeyError as error:
        solver["raises"] = error
    assert_one_sentence(call("solve", "late.py", "--quiet"), "late.py:6: KeyError: 'k'.")


# --- what works -------------------------------------------------------------------------------------------------------


def test_help_is_printed_without_a_command(call: Callable[..., Said]) -> None:
    alone, asked = call(), call("--help")
    assert alone == asked
    assert alone.status == 0
    for word in ("solve", "resume", "doctor", "Exit status"):
        assert word in alone.out
    for command in ("list", "solve", "new", "show", "resume", "export", "doctor"):
        said = call(command, "--help")
        assert said.status == 0
        assert command in said.out
        assert command in ("list", "doctor") or "Examples:" in said.out


def test_version_and_list(call: Callable[..., Said]) -> None:
    assert call("--version").out.startswith("ifef ")
    said = call("list")
    assert said.status == 0
    assert [row.split()[0] for row in said.out.splitlines()] == list(ifef.problems.BUILT_IN)


@pytest.mark.parametrize(
    ("status", "code"), [("converged", 0), ("stalled", 1), ("out_of_budget", 1), ("ill_posed", 1), ("interrupted", 130)]
)
def test_the_exit_status_says_how_it_went(
    status: str, code: int, solver: dict[str, Any], call: Callable[..., Said]
) -> None:
    solver["status"] = status
    Path("line.py").write_text(small_problem())
    said = call("solve", "line.py", "--no-plot", "--seed", "7", "--tolerance", "1e-3", "--max-features", "50")
    assert said.status == code
    assert solver["options"]["seed"] == 7
    assert (solver["options"]["tolerance"], solver["options"]["max_features"]) == (1e-3, 50)
    (place,) = Path("runs").glob("line/*")
    assert STATUSES[status] in said.out
    assert str(place) in said.out
    assert f"Run: {place}" in said.err
    assert "solve, held-out 1.00e-01" in said.err
    assert ("best so far" in said.err) == (status == "interrupted")
    assert Path("line.py").read_text() == (place / "problem.py").read_text()


def test_quiet_prints_the_folder_only(solver: dict[str, Any], call: Callable[..., Said]) -> None:
    Path("line.py").write_text(small_problem())
    said = call("solve", "line.py", "--no-plot", "--quiet", "--out", "elsewhere")
    (place,) = Path("elsewhere").glob("line/*")
    assert said == Said(0, f"{place}\n", "")


def test_ctrl_c_without_an_answer_says_how_to_go_on(solver: dict[str, Any], call: Callable[..., Said]) -> None:
    Path("line.py").write_text(small_problem())
    solver["raises"] = KeyboardInterrupt()
    said = call("solve", "line.py", "--no-plot")
    (place,) = Path("runs").glob("line/*")
    assert said.status == cli.INTERRUPTED
    assert f"`ifef resume {place}` begins it anew" in said.err
    assert "not finished" in call("show").out
    solver["raises"] = None
    assert call("resume", "last").status == 0
    again = call("resume", "last")
    assert again.status == 0
    assert "finished already" in again.err
    assert "line: converged" in again.out


def test_a_fault_of_ours_is_kept_for_a_report(solver: dict[str, Any], call: Callable[..., Said]) -> None:
    Path("line.py").write_text(small_problem())
    solver["raises"] = ZeroDivisionError("a fault")
    said = call("solve", "line.py", "--no-plot")
    (place,) = Path("runs").glob("line/*")
    assert said.status == cli.BUG
    assert "please report it" in said.err
    assert "Traceback" not in said.err
    text = (place / "traceback.txt").read_text()
    assert "ZeroDivisionError: a fault" in text
    assert "session.py" in text


def test_a_fault_without_a_run_is_kept_too(monkeypatch: pytest.MonkeyPatch, call: Callable[..., Said]) -> None:
    monkeypatch.setattr(runs, "catalogue", lambda: {}["k"])
    said = call("list")
    assert said.status == cli.BUG
    (path,) = Path().glob("ifef-traceback-*.txt")
    assert path.name in said.err
    assert "KeyError" in path.read_text()


def test_show_gives_the_summary(line: Path, call: Callable[..., Said]) -> None:
    for word in ("last", str(line), line.name[:8], "line"):
        said = call("show", word)
        assert said.status == 0
        assert "line: converged" in said.out
        assert "error estimate" in said.out
    assert call("show") == call("show", "last")


def test_exports_are_read_back(line: Path, call: Callable[..., Said]) -> None:
    assert call("export", "last", "--to", "csv", "--points", "11").status == 0
    rows = list(csv.reader(io.StringIO((line / "solution.csv").read_text())))
    assert rows[0] == ["x", "u"]
    assert len(rows) == 12
    assert all(abs(float(x) - float(u)) < 1e-6 for x, u in rows[1:])
    said = call("export", "last", "--to", "netcdf", "--out", "line.nc")
    assert (said.status, said.out) == (0, "line.nc\n")
    with xarray.open_dataset("line.nc", engine="h5netcdf") as data:
        assert data.attrs["status"] == "converged"
    assert_one_sentence(call("export", "last", "--to", "csv"), "exists already")


def test_a_plane_is_exported_for_paraview(solver: dict[str, Any], call: Callable[..., Said]) -> None:
    Path("plane.py").write_text(small_problem("x=(0.0, 1.0), y=(0.0, 1.0)"))
    assert call("solve", "plane.py", "--no-plot", "--quiet").status == 0
    assert call("export", "last", "--to", "vtk", "--out", "plane.vtr", "--points", "100").status == 0
    assert b"RectilinearGrid" in Path("plane.vtr").read_bytes()


def test_doctor_finds_this_machine_fit(monkeypatch: pytest.MonkeyPatch, call: Callable[..., Said]) -> None:
    said = call("doctor")
    assert said.status == 0, said.out
    for word in ("python", "jax", "float64", "GFLOP/s", "memory", "cache", "this folder"):
        assert word in said.out
    monkeypatch.setattr(environment, "speed", lambda: (0.0, 0.0))
    said = call("doctor")
    assert said.status == 1
    assert "BAD  QR" in said.out


def test_a_closed_pipe_is_no_fault() -> None:
    process = spawn("list")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.wait()


# --- the whole way ----------------------------------------------------------------------------------------------------


def test_a_new_file_runs_and_converges() -> None:
    new = spawn("new", "my_problem.py")
    assert new.wait() == 0
    assert 20 <= len(Path("my_problem.py").read_text().splitlines()) <= 36
    process = spawn("solve", "my_problem.py", "--tolerance", "1e-4", "--max-features", "200")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "my_problem: converged" in out
    (place,) = Path("runs").glob("my_problem/*")
    assert storage.read_json(place / "result.json")["status"] == "converged"
    assert (place / "figures" / "solution.png").exists()


def test_ctrl_c_gives_the_best_so_far() -> None:
    process = spawn("solve", "convection-50", "--preset", "paper", "--epochs", "2000", "--no-plot")
    assert process.stderr is not None
    for text in process.stderr:
        if "pretraining" in text:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == cli.INTERRUPTED, err
    assert "Traceback" not in err
    (place,) = Path("runs").glob("convection-50/*")
    if "best so far" in err:  # the signal met the training, not the instant between two of its stretches
        assert "convection-50: interrupted" in out
        assert ifef.load(place / "solution.ifef").status == "interrupted"
