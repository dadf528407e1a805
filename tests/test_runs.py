"""A run's folder: what is in it, how it survives, how it is found again. A stand-in solves."""

import functools
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import ifef
from ifef import runs, storage
from ifef.journal import Journal
from ifef.runs import cache, environment, folder, report, session, source

DATA = Path(__file__).parent / "data"
DECAY = DATA / "decay.py"
RECORDS = [
    {"phase": "upper", "epoch": epoch, "epochs": 4, "loss": 0.1 / epoch, "losses": {"equation": 0.1}, "held_out": 0.2}
    for epoch in (1, 2, 3, 4)
]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A true solution of the small problem, on disk."""
    problem = source.find_source(str(DECAY)).build()
    features = ifef.fourier_features(problem, 8, sigma=0.5, backbone=(), seed=0)
    solution = ifef.fit(problem, features, problem.sample({"equation": 60, "start": 5}))
    assert solution.status == "converged"
    solution.history = list(RECORDS)
    return solution.save(tmp_path_factory.mktemp("archive") / "decay.ifef")


@functools.cache
def executed(text: bytes) -> ifef.Problem:
    """The problem of a file, made once: its checks compile."""
    names: dict[str, Any] = {}
    exec(text, names)
    return names["problem"]


class Solver:
    """Stands in for `solve`: sends records, then does what it is told."""

    def __init__(self, archive: Path):
        self.archive, self.calls = archive, 0
        self.fails: BaseException | None = None
        self.status = "converged"
        self.before: list[Any] = []

    def __call__(self, problem: ifef.Problem, *, progress: Any, checkpoint: str, **options: Any) -> ifef.Solution:
        self.calls += 1
        metrics = Path(checkpoint).with_name("metrics.jsonl")
        self.before.append(storage.read_records(metrics))
        done = len(self.before[-1])
        for record in RECORDS[done:]:
            progress({"tick": True, **record})
            if self.fails is not None and record["epoch"] == 3:
                raise self.fails
            progress(record)
            if record["epoch"] == 2:
                journal = Journal("mark", None, checkpoint, 0.0)
                journal.history = RECORDS[:1]  # a checkpoint that is behind the records, as after a kill
                journal.save("upper", [np.zeros(2)], now=True)
        solution = ifef.load(self.archive, problem)
        solution.status = self.status
        return solution


@pytest.fixture
def solver(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Solver:
    stand_in = Solver(archive)
    monkeypatch.setattr(session, "solve", stand_in)
    monkeypatch.setattr(source, "_execute", lambda one, text: executed(text))
    return stand_in


def begin(word: str = str(DECAY), **options: Any) -> runs.Outcome:
    found = runs.find_source(word)
    config = runs.configure(found, **{"plot": False, **options})
    return runs.start(found, config, root=Path("runs"), command=["ifef", "solve"], progress=False)


def only_run() -> Path:
    (found,) = Path("runs").glob("*/*")
    return found


def stopped(solver: Solver) -> Path:
    """A run that ended in a kill: Ctrl-C leaves the same files."""
    solver.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        begin()
    solver.fails = None
    return only_run()


# --- what is in a folder ----------------------------------------------------------------------------------------------


def test_a_run_leaves_everything(solver: Solver) -> None:
    outcome = begin(plot=True, seed=4, tolerance=1e-3)
    place = outcome.folder
    assert re.fullmatch(r"runs/decay/\d{8}-\d{6}-[0-9a-f]{8}", place.as_posix())
    assert (place / "problem.py").read_bytes() == DECAY.read_bytes()
    assert storage.read_json(place / "config.json")["tolerance"] == 1e-3
    assert storage.read_records(place / "metrics.jsonl") == RECORDS
    figures = {path.name for path in (place / "figures").iterdir()}
    assert figures == {"solution.png", "residuals.png", "residual-equation.png", "history.png"}  # "start" is one point
    result = json.loads((place / "result.json").read_text(), parse_constant=pytest.fail)
    assert result == outcome.result
    assert result["status"] == "converged"
    assert 0 < result["error"] < 1e-6
    assert set(result["residuals"]) == {"equation", "start"}
    assert (result["seed"], result["dtype"], result["notes"]) == (4, "float64", [])
    for key in ("error_estimate", "stats", "device", "versions", "commit", "seconds"):
        assert key in result
    facts = storage.read_json(place / "environment.json")
    assert facts["command"] == ["ifef", "solve"]
    assert facts["versions"]["jax"] == jax.__version__


def test_a_report_stands_on_its_own(solver: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    place = begin().folder
    text = (place / "report.md").read_text()
    for part in ("# decay: converged", "| equation |", "error estimate", "## Settings", "| seed | 0 |", "jax "):
        assert part in text
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    monkeypatch.chdir(place)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["solution"].error() < 1e-6


def test_a_report_of_a_built_in_problem_loads_it_by_name() -> None:
    result = {"problem": "burgers", "settings": {"file": None}, "status": "stalled", "advice": "More points."}
    result |= {"error": None, "error_estimate": {"u": 0.5, "v": None}, "residuals": {"a|b": None}, "notes": ["Odd."]}
    result |= {"stats": {}, "seconds": None, "resumed": 2, "versions": None, "python": "3", "dtype": "float64"}
    text = report.markdown(result | {"device": "cpu", "commit": None})
    assert 'BUILT_IN["burgers"]()' in text
    assert "u 5.00e-01, v -" in text
    assert "More points.\n\nOdd." in text


def test_numbers_that_are_not_finite_are_null(solver: Solver, archive: Path) -> None:
    solution = ifef.load(archive)
    solution.stats |= {"stability": float("nan"), "condition": np.float64("inf")}
    config = runs.configure(runs.find_source("burgers"))
    stats = report.result_of(config, {}, solution)["stats"]
    assert (stats["stability"], stats["condition"]) == (None, None)


def test_what_cannot_be_drawn_or_compared_is_a_note(solver: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> float:
        raise RuntimeError("no such\nthing")

    monkeypatch.setattr(ifef.Solution, "error", fail)
    monkeypatch.setattr(ifef.Solution, "plot", fail)
    result = begin(plot=True).result
    assert result["error"] is None
    assert [note for note in result["notes"] if "exact solution could not" in note and "no such thing" in note]
    assert [note for note in result["notes"] if "figure solution could not" in note]
    assert result["status"] == "converged"


def test_a_folder_is_never_used_twice(solver: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder.time, "strftime", lambda *_: "20260101-120000")
    names = [begin().folder.name for _ in range(3)]
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]
    assert begin(seed=1).folder.name[:24] != names[0]


# --- how it survives --------------------------------------------------------------------------------------------------


def test_a_finished_run_is_left_as_it_is(solver: Solver) -> None:
    place = begin().folder
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    again = runs.resume(place, progress=False)
    assert again.done_before
    assert again.result == storage.read_json(place / "result.json")
    assert solver.calls == 1
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_records_are_brought_to_the_checkpoint(solver: Solver) -> None:
    place = stopped(solver)
    assert storage.read_records(place / "metrics.jsonl") == RECORDS[:2]
    with open(place / "metrics.jsonl", "ab") as stream:
        stream.write(b'{"phase": "up')
    outcome = runs.resume(place, progress=False)
    assert solver.before == [[], RECORDS[:1]]
    assert storage.read_records(place / "metrics.jsonl") == RECORDS
    assert (outcome.folder, outcome.result["resumed"]) == (place, 1)
    assert runs.resume(place).done_before


def test_without_a_checkpoint_a_run_begins_anew(solver: Solver) -> None:
    place = stopped(solver)
    (place / "checkpoint.ifef").unlink()
    runs.resume(place, progress=False)
    assert solver.before == [[], []]
    assert storage.read_records(place / "metrics.jsonl") == RECORDS


def test_an_interrupted_answer_is_kept_and_goes_on(solver: Solver) -> None:
    solver.status = "interrupted"
    place = begin().folder
    assert storage.read_json(place / "result.json")["status"] == "interrupted"
    assert f"`ifef resume {place}` goes on" in runs.show(place)
    solver.status = "converged"
    outcome = runs.resume(place, progress=False)
    assert (outcome.result["status"], outcome.done_before, solver.calls) == ("converged", False, 2)


def test_a_run_killed_before_its_report_is_not_solved_again(solver: Solver) -> None:
    place = begin().folder
    for name in ("result.json", "report.md"):
        (place / name).unlink()
    outcome = runs.resume(place, progress=False)
    assert (solver.calls, outcome.result["status"]) == (1, "converged")
    assert (place / "report.md").exists()


def test_the_copy_of_the_problem_counts(solver: Solver) -> None:
    Path("mine.py").write_bytes(DECAY.read_bytes())
    solver.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        begin("mine.py")
    solver.fails = None
    Path("mine.py").write_text("problem = None")
    assert runs.resume(only_run(), progress=False).result["problem"] == "mine"


def test_a_second_process_is_refused(solver: Solver) -> None:
    place = stopped(solver)
    with folder.locked(place):
        with pytest.raises(runs.RunError, match="Another process is working on"):
            runs.resume(place)
        assert "running now" in runs.show(place)
    assert "not finished" in runs.show(place)


def test_a_damaged_checkpoint_is_kept_and_said(solver: Solver) -> None:
    place = stopped(solver)
    path = place / "checkpoint.ifef"
    torn = path.read_bytes()[:-7]
    path.write_bytes(torn)
    with pytest.raises(runs.RunError, match="remove it to begin this run anew"):
        runs.resume(place)
    assert path.read_bytes() == torn
    assert solver.calls == 1


def test_other_versions_are_noted(solver: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    place = stopped(solver)
    facts = storage.read_json(place / "environment.json")
    facts["versions"]["jax"] = "0.1"
    storage.write_json(place / "environment.json", facts)
    assert "another versions" in runs.resume(place, progress=False).result["notes"][0]


def test_what_is_refused_leaves_no_folder(solver: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise storage.StorageError("It cannot be.")

    monkeypatch.setattr(session, "solve", refuse)
    monkeypatch.setattr(session, "blame", lambda error, files: str(error))
    with pytest.raises(storage.StorageError):
        begin()
    assert not list(Path("runs").glob("*/*"))


@pytest.mark.parametrize("error", [OSError("the disk is full"), RuntimeError("a fault")])
def test_what_was_computed_is_never_removed(solver: Solver, error: Exception) -> None:
    solver.fails = error
    with pytest.raises(type(error)):
        begin()
    assert len(storage.read_records(only_run() / "metrics.jsonl")) == 2
    solver.fails = None
    assert runs.resume(only_run(), progress=False).result["status"] == "converged"


@pytest.mark.parametrize("root", ["taken", "taken/below", "link"])
def test_a_file_in_the_way_is_said_before_anything_runs(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taken").write_text("mine")
    Path("link").symlink_to("taken")
    monkeypatch.setattr(session, "_built", lambda *_: pytest.fail("the problem was made"))
    found = runs.find_source("burgers")
    with pytest.raises(runs.RunError, match="is a file"):
        runs.start(found, runs.configure(found), root=Path(root))
    assert Path("taken").read_text() == "mine"


def test_a_preset_for_a_problem_without_one_is_refused(solver: Solver) -> None:
    with pytest.raises(runs.RunError, match="no settings for a problem of your own"):
        begin(preset="paper")
    assert not Path("runs").exists()


# --- problem files ----------------------------------------------------------------------------------------------------

BAD_FILES: list[tuple[str, bytes, str]] = [
    ("empty", b"", r"bad\.py defines no variable `problem`: write"),
    ("another name", b"from ifef_decay import problem as wave", r"rename 'wave' to it"),
    ("wrong type", b"problem = 3", r"`problem` is a int; set it"),
    ("a function", b"def problem(): ...", r"`problem` is a function"),
    ("syntax", b"x = 1\nproblem = (", r"bad\.py:2: '\(' was never closed"),
    ("raises", b"\n\nx = 1 / 0\n", r"bad\.py:3: ZeroDivisionError: division by zero\."),
    ("raises below", b"def f():\n    raise KeyError('k')\nf()", r"bad\.py:2: KeyError: 'k'\."),
    ("no module", b"import no_such_module", r"bad\.py:1: ModuleNotFoundError: No module named"),
    ("ifef refuses", b"import ifef\nifef.Box()", r"bad\.py:2: \w+Error: "),
    ("exits", b"import sys; sys.exit(3)", r"calls exit\(3\) before"),
    (
        "many lines",
        b"raise ValueError('a\\nb\\n' + 'c ' * 5000)",
        r"bad\.py:1: ValueError: a b c .{300,500}\[\.\.\.\]\.$",
    ),
    ("zero bytes", b"x = 1\0", r"bad\.py"),
    ("not text", b"# \xff\xfe\nx = '\xff'", r"bad\.py"),
    ("too deep", b"x = " + b"(" * 5000 + b")" * 5000, r"bad\.py"),
]


@pytest.mark.parametrize(("text", "said"), [row[1:] for row in BAD_FILES], ids=[row[0] for row in BAD_FILES])
def test_a_bad_problem_file_is_one_sentence(text: bytes, said: str) -> None:
    Path("ifef_decay.py").write_bytes(DECAY.read_bytes())
    Path("bad.py").write_bytes(text)
    with pytest.raises(source.SourceError) as caught:
        runs.find_source("bad.py").build()
    assert re.search(said, str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_problem_file_may_do_what_a_program_may(capsys: pytest.CaptureFixture[str]) -> None:
    Path("below").mkdir()
    Path("below/numbers_beside.py").write_text("RATE = 2.0")
    lines = [
        "from __future__ import annotations",
        "from dataclasses import dataclass",
        "from pathlib import Path",
        "from numbers_beside import RATE",
        "@dataclass\nclass Rate:\n    value: float",
        "print('hello', Rate(RATE), Path(__file__).name)",
        "if __name__ == '__main__':\n    raise RuntimeError",
        DECAY.read_text().partition("\n")[2].replace("2.0", "RATE"),
    ]
    Path("below/mine.py").write_text("\n".join(lines))
    assert runs.find_source("below/mine.py").build().names == ("u",)
    assert capsys.readouterr().out == "hello Rate(value=2.0) mine.py\n"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("helmholz-high", "did you mean helmholtz-high?"),
        ("navier", "`ifef list` names those there are"),
        ("gone.py", "There is no file 'gone.py'"),
        ("my_problm.py", "did you mean my_problem.py?"),
        ("below/gone", "There is no file"),
        ("below", "is a folder"),
    ],
)
def test_an_unknown_problem_gets_a_hint(word: str, said: str) -> None:
    Path("below").mkdir()
    Path("my_problem.py").touch()
    with pytest.raises(source.SourceError, match=re.escape(said)):
        runs.find_source(word)


def test_a_label_is_a_name_for_every_file_system() -> None:
    for name, label in (
        ("a b:c.py", "a-b-c"),
        ("..py", "problem"),
        ("x" * 100 + ".py", "x" * 60),
        ("wärme.py", "wärme"),
    ):
        Path(name).touch()
        assert runs.find_source(f"./{name}").label == label


def test_every_built_in_problem_is_described() -> None:
    rows = dict(runs.catalogue())
    assert list(rows) == list(ifef.problems.BUILT_IN)
    assert all(len(said) > 20 and "\n" not in said for said in rows.values())
    assert "a1=100" in rows["helmholtz-high"]


def test_blame_tells_a_users_mistake_from_ours() -> None:
    def caught(work: Callable[[], Any]) -> Exception:
        with pytest.raises(Exception) as found:  # noqa: PT011
            work()
        return found.value

    assert runs.blame(caught(lambda: ifef.Box(x=(1.0, 0.0)))) is not None
    assert runs.blame(caught(lambda: storage.read_json("gone.json"))) is not None
    assert runs.blame(caught(lambda: int("a"))) is None
    assert runs.blame(caught(lambda: folder.RunConfig(**{}).problem)) is None  # pydantic's, not on purpose
    assert runs.blame(KeyError("k")) is None
    assert "max-features" in (runs.blame(MemoryError()) or "")


# --- settings ---------------------------------------------------------------------------------------------------------

BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"seed": -1}, "--seed -1"),
    ({"seed": 2**32}, "--seed 4294967296"),
    ({"seed": 1.5}, "--seed 1.5"),
    ({"tolerance": 0.0}, "--tolerance 0.0"),
    ({"tolerance": float("nan")}, "--tolerance nan"),
    ({"max_features": 0}, "--max-features 0"),
    ({"max_seconds": float("inf")}, "--max-seconds inf"),
    ({"preset": "papr"}, "--preset papr"),
    ({"preset": "paper", "epochs": -1}, "--epochs -1"),
    ({"epochs": 5}, "--epochs shortens a preset"),
]


@pytest.mark.parametrize(("options", "said"), BAD_OPTIONS, ids=[row[1] for row in BAD_OPTIONS])
def test_a_bad_option_is_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(runs.RunError, match=re.escape(said)) as caught:
        runs.configure(runs.find_source("burgers"), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["{}", "[]", "3", '{"problem": "burgers", "format": 9}', '{"problem": "x", "y": 1}', "{"]
)
def test_a_config_that_is_none_is_said(solver: Solver, text: str) -> None:
    place = stopped(solver)
    (place / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json' is damaged"):
        runs.resume(place)


# --- finding ----------------------------------------------------------------------------------------------------------


def test_runs_are_found_by_folder_beginning_or_last() -> None:
    for name in ("wave/20260101-120000-aaaa", "wave/20260102-120000-bbbb", "heat/20260103-120000-cccc"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "config.json").touch()
    Path("runs/heat/20260104-120000-dddd").mkdir()  # killed before it began
    root = Path("runs")
    assert runs.find("last", root).name == "20260103-120000-cccc"
    assert runs.find("runs/wave/20260101-120000-aaaa", root).name == "20260101-120000-aaaa"
    assert runs.find("20260102", root).name == "20260102-120000-bbbb"
    assert runs.find("wave/20260101", root).name == "20260101-120000-aaaa"
    assert runs.find("heat", root).name == "20260103-120000-cccc"
    for word, said in (
        ("wave", "2 runs begin with"),
        ("2027", "the newest in 'runs' is"),
        ("runs/heat", "is not a run"),
    ):
        with pytest.raises(runs.RunError, match=said):
            runs.find(word, root)
    with pytest.raises(runs.RunError, match="there are no runs"):
        runs.find("last", Path("elsewhere"))


def test_show_says_how_far_a_run_got(solver: Solver) -> None:
    place = stopped(solver)
    text = runs.show(place)
    assert "2 records, the last: upper epoch 2 of 4, held-out residual 2.00e-01" in text
    assert f"`ifef resume {place}` goes on from its checkpoint" in text
    for name in ("checkpoint.ifef", "metrics.jsonl"):
        (place / name).unlink()
    assert "nothing recorded yet" in runs.show(place)
    assert "begins it anew" in runs.show(place)


@pytest.mark.parametrize("text", ["{}", "[]", '{"stats": 3, "problem": "x", "status": "y", "error": 1}'])
def test_a_result_that_makes_no_sense_is_said(solver: Solver, text: str) -> None:
    place = begin().folder
    (place / "result.json").write_text(text)
    with pytest.raises(runs.RunError, match="is damaged"):
        runs.show(place)


# --- surroundings -----------------------------------------------------------------------------------------------------


def test_the_commit_is_that_of_these_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = environment.commit()
    assert found is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", found)
    monkeypatch.setattr(environment, "_HOUSE", tmp_path)
    assert environment.commit() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.commit() is None


def test_the_cache_leaves_settings_as_they_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = [getattr(jax.config, name) for name in names]
    with cache.program_cache() as place:
        assert place is not None
        assert place.is_relative_to(tmp_path / "cache" / "ifef")
        assert getattr(jax.config, names[0]) == str(place)
    assert [getattr(jax.config, name) for name in names] == before
    for number in range(2):  # a process wrote both, and was killed in the second
        (place / f"{number}-cache").write_bytes(b"x")
        os.utime(place / f"{number}-cache", ns=(0, time.time_ns() + (number + 1) * 10**9))
    with cache.program_cache():
        assert [path.name for path in place.glob("*-cache")] == ["0-cache"]
    monkeypatch.setattr(cache, "_MAX_BYTES", 0)
    with cache.program_cache():
        assert not list(place.glob("*-cache"))
    place.chmod(0o777)
    with cache.program_cache() as unsafe:
        assert unsafe is None


def test_a_cache_that_cannot_be_is_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with cache.program_cache() as place:
        assert place is None


def test_a_machine_is_fit_or_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "speed", lambda: (50.0, 0.01))
    found = {name: (said, fine) for name, said, fine in runs.checkup(None)}
    assert found["float64"] == ("works", True)
    assert found["matrix product"] == ("50.0 GFLOP/s", True)
    assert found["QR"][1] is False
    assert "off" in found["cache"][0]
