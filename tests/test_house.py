"""The house rules, held by the syntax tree: who may import whom, how large things may grow, what is not done here.

Each check takes a project's root and returns one sentence per violation. The same checks run on this project, where
they find nothing, and on a small planted tree, where each of them finds what was planted.
"""

import ast
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

# The order of the rooms is the data flow: a room imports only rooms before it. A new room joins at its place in it.
# fmt: off
ROOMS = (
    "calculus", "domain", "sampling", "backbones", "checks", "problem", "features", "assembly", "tiles", "scales",
    "lower", "theta", "judged", "trials", "spectra", "search", "frequencies", "lattices", "localise", "upper",
    "metrics", "storage", "export", "plots", "packing", "diagnosis", "solution", "verdict", "portfolio", "journal",
    "training", "arguments", "fit", "presets", "display", "solve", "problems", "paper", "runs", "cli",
)
# fmt: on
FRONT_DOOR = ("__init__", "__main__", "cli")  # these see the whole house
PROBLEMS_SEE = ("calculus", "domain", "problem", "problems")  # a PDE knows nothing of features or solvers
LAZY_IMPORTS = ("matplotlib", "xarray", "h5netcdf")  # optional or heavy; an extra for clusters would join here
RUNS_A_USERS_FILE = "runs"

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
MAX_PARAMETERS = 7
MAX_BYTES = 2_000_000

Function = ast.FunctionDef | ast.AsyncFunctionDef


# --- reading a tree ---------------------------------------------------------------------------------------------------


def modules(root: Path) -> Iterator[tuple[str, str, ast.Module]]:
    """Each module's place, its room and its syntax tree."""
    package = root / "src" / "ifef"
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        yield path.relative_to(root).as_posix(), room, ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST, place: str) -> Iterator[tuple[ast.stmt, str, str]]:
    """Each import as (statement, absolute module, imported name or ""), relative ones resolved."""
    package = list(Path(place).parts[1:-1])  # without src/ and the file
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node, module, alias.name) for alias in node.names)


def functions(tree: ast.AST) -> Iterator[tuple[Function, bool]]:
    """Each function, and whether it is a method that receives self or cls."""
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, Function):
                static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)
                yield node, isinstance(parent, ast.ClassDef) and not static


def files_of_project(root: Path) -> list[Path]:
    """What git tracks or would; in an unpacked archive, every file but those that Python and runs leave behind."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.split("\0")
    paths = [root / name for name in listed if name]
    if not paths:
        left = re.compile(r"(^|/)(\.|__pycache__/|runs/)")
        paths = [path for path in root.rglob("*") if not left.search(path.relative_to(root).as_posix())]
    return sorted(path for path in paths if path.is_file())


# --- the checks -------------------------------------------------------------------------------------------------------


def unknown_rooms(root: Path) -> list[str]:
    """Every file and folder of the package has a place in the order."""
    rooms = sorted({room for _, room, _ in modules(root)} - {*ROOMS, *FRONT_DOOR})
    return [f"{room} has no place in the order: add it to ROOMS in tests/test_house.py" for room in rooms]


def imports_against_the_order(root: Path) -> list[str]:
    """A room imports only earlier rooms; a problem only what states a problem; nobody but the front door the front."""
    found = []
    for place, room, tree in modules(root):
        if room in FRONT_DOOR or room not in ROOMS:
            continue
        allowed = PROBLEMS_SEE if room == "problems" else ROOMS[: ROOMS.index(room) + 1]
        for node, module, name in imported(tree, place):
            parts = [*module.split("."), name]
            if parts[0] != "ifef":
                continue
            wanted = parts[1] if parts[1] in ROOMS else "the front door"
            if wanted not in allowed:
                found.append(f"{place}:{node.lineno} imports {wanted}, which {room} may not")
    return found


def reexports(root: Path) -> list[str]:
    """Only an `__init__` hands on names that it did not make; others are asked where the name is at home."""
    found = []
    borrowed = {}  # module -> the names that it has from elsewhere
    for place, _, tree in modules(root):
        module = place.removeprefix("src/").removesuffix(".py").replace("/", ".")
        if not place.endswith("__init__.py"):
            borrowed[module] = {name for _, _, name in imported(tree, place)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    again = [alias.name for alias in node.names if alias.asname == alias.name]
                    found += [f"{place}:{node.lineno} re-exports {name}" for name in again]
                elif isinstance(node, ast.Name) and node.id == "__all__":
                    found.append(f"{place}:{node.lineno} has an __all__, which is for an __init__")
    for place, _, tree in modules(root):
        for node, module, name in imported(tree, place):
            if name in borrowed.get(module, ()):
                found.append(f"{place}:{node.lineno} takes {name} from {module}, which only borrowed it")
    return found


def long_files(root: Path) -> list[str]:
    """A file fits in one reading."""
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (root / "src/ifef").rglob("*.py")}
    return [f"{path.relative_to(root)} has {n} lines" for path, n in sorted(sizes.items()) if n > MAX_FILE_LINES]


def long_functions(root: Path) -> list[str]:
    """A function fits on one screen, from its def line to its end, docstring included."""
    found = []
    for place, _, tree in modules(root):
        for node, _ in functions(tree):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                found.append(f"{place}:{node.lineno} {node.name} has {lines} lines")
    return found


def many_parameters(root: Path) -> list[str]:
    """Few parameters; the keyword-only ones of public functions aside, because those are a user's options."""
    found = []
    for place, _, tree in modules(root):
        for node, bound in functions(tree):
            public = not node.name.startswith("_") or (node.name.startswith("__") and node.name.endswith("__"))
            count = len(node.args.posonlyargs) + len(node.args.args) - bound
            count += 0 if public else len(node.args.kwonlyargs)
            if count > MAX_PARAMETERS:
                found.append(f"{place}:{node.lineno} {node.name} has {count} parameters")
    return found


def hidden_imports(root: Path) -> list[str]:
    """What a file needs stands at its top, so that a missing package or a cycle shows at once."""
    found = []
    for place, _, tree in modules(root):
        inner = {(node, module) for function, _ in functions(tree) for node, module, _ in imported(function, place)}
        for node, module in sorted(inner, key=lambda pair: pair[0].lineno):
            if module.split(".")[0] not in LAZY_IMPORTS:
                found.append(f"{place}:{node.lineno} imports {module} inside a function")
    return found


def runs_foreign_code(room: str, imports: str = "", calls: str = "") -> bool:
    """Pickle and eval never; what executes a file only in the room that runs a user's problem file."""
    if imports.split(".")[0] in ("pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib") or calls == "eval":
        return True
    # Reading what is installed executes nothing; `from importlib.util import find_spec` shows that no more is wanted.
    reads_only = imports.startswith(("importlib.metadata", "importlib.resources", "importlib.util.find_spec"))
    executes = (imports.split(".")[0] in ("runpy", "importlib") and not reads_only) or calls in ("exec", "__import__")
    return executes and room != RUNS_A_USERS_FILE


def forbidden_constructs(root: Path) -> list[str]:
    """No super(), no bare except, no room for odds and ends, no pickle; files are read without executing them."""
    found = []
    for place, room, tree in modules(root):
        if "utils" in Path(place).with_suffix("").parts:
            found.append(f"{place} is named utils: give it the name of what it does")
        for node, module, name in imported(tree, place):
            if runs_foreign_code(room, imports=f"{module}.{name}"):
                found.append(f"{place}:{node.lineno} imports {module}")
        for node in ast.walk(tree):
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                found.append(f"{place}:{node.lineno} has a bare except")
            elif isinstance(node, ast.Call) and (called == "super" or runs_foreign_code(room, calls=called)):
                found.append(f"{place}:{node.lineno} calls {called}()")
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
                found.append(f"{place}:{node.value.lineno} allows pickle")
    return found


def machine_paths(root: Path) -> list[str]:
    """No absolute path of somebody's machine in any file."""
    pattern = re.compile(r"(?<![\w.~>)}])/(?:home|Users|root|work|mnt|scratch|srv|tmp)/\w|\b[A-Z]:[\\/]+Users")
    found = []
    for path in files_of_project(root):
        lines = path.read_bytes().decode("utf-8", errors="ignore").splitlines()
        hits = [number for number, line in enumerate(lines, 1) if pattern.search(line)]
        found += [f"{path.relative_to(root)}:{number} holds a path of one machine" for number in hits]
    return found


def large_files(root: Path) -> list[str]:
    """A clone stays small."""
    sizes = {path.relative_to(root): path.stat().st_size for path in files_of_project(root)}
    return [f"{path} has {size:,} bytes" for path, size in sizes.items() if size > MAX_BYTES]


def configured_paths(settings: dict[str, Any]) -> list[str]:
    """Every path and pattern of paths that pyproject.toml names."""
    project, tool = settings["project"], settings.get("tool", {})
    scripts = [entry.split(":")[0].replace(".", "/") for entry in project.get("scripts", {}).values()]
    return [
        project["readme"],
        *project.get("license-files", []),
        *(f"src/{module}.py" for module in scripts),
        *tool.get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {}).get("packages", []),
        *tool.get("ruff", {}).get("lint", {}).get("per-file-ignores", {}),
        *tool.get("pyright", {}).get("include", []),
        *tool.get("pyright", {}).get("exclude", []),
        *tool.get("pytest", {}).get("ini_options", {}).get("testpaths", []),
    ]


def dead_configured_paths(root: Path) -> list[str]:
    """No setting for what is not there."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    paths = [path for path in configured_paths(settings) if next(root.glob(path), None) is None]
    return [f"pyproject.toml names {path}, which does not exist" for path in paths]


# --- the tests --------------------------------------------------------------------------------------------------------

CHECKS: tuple[Callable[[Path], list[str]], ...] = (
    unknown_rooms,
    imports_against_the_order,
    reexports,
    long_files,
    long_functions,
    many_parameters,
    hidden_imports,
    forbidden_constructs,
    machine_paths,
    large_files,
    dead_configured_paths,
)

SOUND = {
    "pyproject.toml": '[project]\nreadme = "README.md"\nscripts = {ifef = "ifef.cli:main"}\n',
    "README.md": "See docs/home/page and https://example.org/home/page.\n",
    "src/ifef/__init__.py": "from ifef.solve import solve as solve\nfrom ifef.problems import burgers\n",
    "src/ifef/calculus.py": "import math\n\ndef d(u, *names):\n    return math.nan\n",
    "src/ifef/plots.py": "from importlib.util import find_spec\n\ndef plot():\n    import xarray\n    return xarray\n",
    "src/ifef/problems/__init__.py": "from .burgers import burgers\n",
    "src/ifef/problems/burgers.py": "from ..calculus import d\nfrom ifef import problem\n\ndef burgers(): return d\n",
    "src/ifef/problem.py": "from .calculus import d\n\nclass P:\n  def __init__(self, a, b, c, d, e, f, g, *, h): 0\n",
    "src/ifef/runs.py": "import runpy\n\ndef run(path): return runpy.run_path(path)\n",
    "src/ifef/solve.py": "from importlib import metadata\n\ndef solve(p, *, a, b, c, d, e, f, g): return metadata\n",
    "src/ifef/cli.py": "import ifef\n\ndef main(): return ifef\n",
}

HOME = "/" + "home"  # in two parts, or this file would be its own violation
PLANTED: list[tuple[Callable[[Path], list[str]], str, str, str]] = [
    (unknown_rooms, "src/ifef/attic.py", "", "attic has no place in the order: add it"),
    (unknown_rooms, "src/ifef/attic/trunk.py", "", "attic has no place in the order: add it"),
    (imports_against_the_order, "src/ifef/lower.py", "from ifef.fit import fit", "lower.py:1 imports fit"),
    (imports_against_the_order, "src/ifef/lower/qr.py", "from ..fit import fit", "qr.py:1 imports fit"),
    (imports_against_the_order, "src/ifef/lower.py", "from . import fit", "imports fit"),
    (imports_against_the_order, "src/ifef/lower.py", "import ifef.fit", "imports fit"),
    (imports_against_the_order, "src/ifef/lower.py", "from ifef import Box", "imports the front door"),
    (imports_against_the_order, "src/ifef/problems/new.py", "from ifef.lower import Ridge", "imports lower"),
    (reexports, "src/ifef/lower.py", "from ifef.problem import d", "takes d from ifef.problem"),
    (reexports, "src/ifef/lower.py", "from ifef.calculus import d as d", "lower.py:1 re-exports d"),
    (reexports, "src/ifef/lower.py", "__all__ = []", "has an __all__"),
    (long_files, "src/ifef/lower.py", "\n" * (MAX_FILE_LINES + 1), "lower.py has 301 lines"),
    (long_functions, "src/ifef/lower.py", "def f():" + "\n    0" * MAX_FUNCTION_LINES, "f has 51 lines"),
    (many_parameters, "src/ifef/lower.py", "def f(a, b, c, d, e, /, f, g, h): ...", "f has 8 parameters"),
    (many_parameters, "src/ifef/lower.py", "def _f(a, *, b, c, d, e, f, g, h): ...", "_f has 8 parameters"),
    (hidden_imports, "src/ifef/lower.py", "def f():\n    import scipy.linalg", "lower.py:2 imports scipy.linalg"),
    (hidden_imports, "src/ifef/lower.py", "def f():\n    from . import calculus", "imports ifef inside a function"),
    (forbidden_constructs, "src/ifef/utils.py", "", "named utils"),
    (forbidden_constructs, "src/ifef/lower.py", "class A:\n    def f(self): super().f()", "lower.py:2 calls super()"),
    (forbidden_constructs, "src/ifef/lower.py", "try: pass\nexcept: pass", "lower.py:2 has a bare except"),
    (forbidden_constructs, "src/ifef/lower.py", "import pickle", "imports pickle"),
    (forbidden_constructs, "src/ifef/lower.py", "from importlib import util", "imports importlib"),
    (forbidden_constructs, "src/ifef/lower.py", "import importlib.util", "imports importlib.util"),
    (forbidden_constructs, "src/ifef/runs.py", "eval('1')", "calls eval()"),
    (forbidden_constructs, "src/ifef/lower.py", "exec('1')", "calls exec()"),
    (forbidden_constructs, "src/ifef/lower.py", "load(p, allow_pickle=True)", "lower.py:1 allows pickle"),
    (machine_paths, "docs/a.md", f"see {HOME}/ada/data", "docs/a.md:1 holds a path of one machine"),
    (machine_paths, "src/ifef/lower.py", f"path = '{HOME}/ada'", "holds a path of one machine"),
    (large_files, "docs/a.bin", "0" * (MAX_BYTES + 1), "docs/a.bin has 2,000,001 bytes"),
    (dead_configured_paths, "pyproject.toml", '[project]\nreadme = "NO.md"', "names NO.md, which does not exist"),
]


def plant(root: Path, files: dict[str, str]) -> None:
    for place, text in files.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("check", CHECKS)
def test_this_house_keeps_the_rule(check: Callable[[Path], list[str]]) -> None:
    assert check(ROOT) == []


@pytest.mark.parametrize("check", CHECKS)
def test_a_sound_tree_passes(check: Callable[[Path], list[str]], tmp_path: Path) -> None:
    plant(tmp_path, SOUND)
    assert check(tmp_path) == []


@pytest.mark.parametrize(("check", "place", "text", "sentence"), PLANTED)
def test_a_planted_violation_is_found(
    check: Callable[[Path], list[str]], place: str, text: str, sentence: str, tmp_path: Path
) -> None:
    plant(tmp_path, {**SOUND, place: text})
    assert any(sentence in found for found in check(tmp_path))


def test_every_check_has_a_planted_violation() -> None:
    assert {check for check, *_ in PLANTED} == set(CHECKS)
