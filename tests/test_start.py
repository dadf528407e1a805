"""start.py's decisions, without a network: what it refuses, when it installs, what it runs and in which order."""

import ast
import importlib.util
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[1] / "start.py"


@pytest.fixture
def start() -> ModuleType:
    spec = importlib.util.spec_from_file_location("start", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / ".venv").mkdir()
    return tmp_path


Record = Callable[..., list[list[str]]]


@pytest.fixture
def record(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Stands in for running commands: notes them and fails those that contain a given word."""

    def stand_in(failing: str = "", status: int = 1) -> list[list[str]]:
        calls: list[list[str]] = []

        def call(command: list[str], cwd: Path | None = None) -> int:
            calls.append(command)
            return status if failing in command else 0

        monkeypatch.setattr(start, "call", call)
        return calls

    return stand_in


def usable(start: ModuleType, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    monkeypatch.setattr(start, "is_usable", lambda python: answer)


def test_old_python_is_refused_with_status_2(start: ModuleType) -> None:
    with pytest.raises(start.Stop) as caught:
        start.refuse_old_python((3, 10, 14))
    assert caught.value.status == 2
    assert "3.11 or newer and this is 3.10.14" in caught.value.sentence
    start.refuse_old_python((3, 11, 0))
    start.refuse_old_python((4, 0, 0))


def test_minimum_is_that_of_the_package(start: ModuleType) -> None:
    project = tomllib.loads((FILE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=" + ".".join(map(str, start.MINIMUM))


def test_an_old_python_can_read_the_file() -> None:
    tree = ast.parse(FILE.read_text(encoding="ascii"), feature_version=(3, 6))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names
    assert "__future__" not in names


def test_missing_venv_names_the_package(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    start.refuse_missing_modules()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(start.Stop) as caught:
        start.refuse_missing_modules()
    assert caught.value.status == 2
    assert f"python3.{sys.version_info[1]}-venv" in caught.value.sentence


@pytest.mark.parametrize(
    ("written", "extra", "expected"),
    [
        (None, "", False),
        ("", "", False),
        ("digest", "", True),
        ("digest dev", "", True),
        ("digest", "dev", False),
        ("digest dev", "dev", True),
        ("other dev", "dev", False),
        ("dig", "", False),
        ("\udcff", "", False),
    ],
)
def test_stamp_says_whether_to_install(
    start: ModuleType, tmp_path: Path, written: str | None, extra: str, expected: bool
) -> None:
    stamp = tmp_path / "stamp"
    if written is not None:
        stamp.write_text(written, encoding="utf-8", errors="surrogateescape")
    assert start.is_installed(stamp, "digest", extra) is expected


def test_fingerprint_follows_project_file_and_folder(start: ModuleType, project: Path, tmp_path: Path) -> None:
    first = start.fingerprint(project)
    assert start.fingerprint(project) == first
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "pyproject.toml").write_text("[project]\n")
    assert start.fingerprint(tmp_path / "moved") != first
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert start.fingerprint(project) != first


def test_second_call_installs_nothing(
    start: ModuleType, project: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable(start, monkeypatch, True)
    calls = record()
    start.prepare(project, "dev")
    assert [command[1:] for command in calls] == [["-m", "pip", "install", "--quiet", "--editable", ".[dev]"]]
    start.prepare(project, "dev")
    start.prepare(project, "")
    assert len(calls) == 1
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    start.prepare(project, "")
    assert calls[1][-1] == "."


def test_failed_install_is_tried_again(
    start: ModuleType, project: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable(start, monkeypatch, True)
    record()
    start.prepare(project, "")
    calls = record(failing="pip")
    for attempt in (1, 2):  # the stamp of the smaller install must not survive, or a half-made one would pass for it
        with pytest.raises(start.Stop):
            start.prepare(project, "dev")
        assert len(calls) == attempt
        assert not (project / ".venv" / "ifef-installed").exists()


def test_unusable_environment_is_rebuilt(
    start: ModuleType, project: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable(start, monkeypatch, False)
    calls = record()
    start.prepare(project, "")
    assert calls[0] == [sys.executable, "-m", "venv", "--clear", str(project / ".venv")]
    assert "pip" in calls[1]


def test_usable_means_starts_and_has_pip(start: ModuleType, tmp_path: Path) -> None:
    assert start.is_usable(sys.executable)
    assert not start.is_usable(str(tmp_path / "python"))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert not start.is_usable(str(broken))


def test_check_runs_every_part_in_order(start: ModuleType, project: Path, record: Record) -> None:
    calls = record()
    assert start.check(project, ["-k", "house"]) == 0
    assert [command[2] for command in calls] == ["ruff", "ruff", "pyright", "pytest"]
    assert [calls[0][3:], calls[1][3:], calls[3][3:]] == [["check"], ["format", "--check"], ["-k", "house"]]


def test_check_stops_at_the_first_failure(start: ModuleType, project: Path, record: Record) -> None:
    calls = record(failing="pyright", status=3)
    assert start.check(project, []) == 3
    assert [command[2] for command in calls] == ["ruff", "ruff", "pyright"]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [(["run"], ["solve", "helmholtz-high"]), (["run", "list", "-v"], ["list", "-v"])],
)
def test_run_calls_ifef(
    start: ModuleType, record: Record, monkeypatch: pytest.MonkeyPatch, arguments: list[str], command: list[str]
) -> None:
    monkeypatch.setattr(start, "prepare", lambda root, extra: None)
    calls = record(failing=command[0], status=1)
    assert start.main(arguments) == 1
    assert [Path(calls[0][0]).stem, *calls[0][1:]] == ["ifef", *command]


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["fly"], 2), (["--help"], 0)])
def test_other_words_get_the_usage(
    start: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int
) -> None:
    assert start.main(arguments) == status
    assert "start.py test [ARGS]" in capsys.readouterr().out


def test_ctrl_c_is_status_130(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(root: Path, extra: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(start, "prepare", interrupt)
    assert start.main(["run"]) == 130


def test_call_returns_the_status_and_keeps_foreign_packages_out(
    start: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert start.call([sys.executable, "-c", "import os, sys; sys.exit('PYTHONPATH' in os.environ)"]) == 0
    assert start.call([sys.executable, "-c", "import sys; sys.exit(3)"]) == 3
    assert start.call([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"]) == 128 + 15
