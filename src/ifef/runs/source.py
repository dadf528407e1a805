"""Where a run's problem comes from: a built-in name, or a user's file, which is executed because that is asked for."""

from __future__ import annotations

import difflib
import inspect
import sys
import traceback
import types
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ifef.problem import Problem
from ifef.problems import BUILT_IN

_MODULE = "ifef_problem_file"  # the name under which a problem file runs; not "__main__", so that a guard holds
_LONGEST = 400  # characters of somebody else's message


class SourceError(ValueError):
    """A problem that cannot be had, with the reason in one sentence."""


@dataclass(frozen=True)
class Source:
    """A built-in problem's name, or the text of a problem file and where it stands."""

    label: str
    text: bytes | None = None
    path: Path | None = None
    home: Path | None = None
    """Folder and name that the file had when the run began; what it imports stands there."""

    @property
    def files(self) -> tuple[str, ...]:
        """Name that this file has in tracebacks."""
        return () if self.path is None else (str(self.path),)

    def build(self) -> Problem:
        """Make the problem; a file runs here, and whatever goes wrong in it is one sentence."""
        return BUILT_IN[self.label]() if self.text is None else _execute(self, self.text)


def find_source(word: str) -> Source:
    """Find what the user means: a built-in name, or the path of a file."""
    if word in BUILT_IN:
        return Source(word)
    path = Path(word)
    if path.suffix == ".py" or len(path.parts) > 1 or path.exists():
        return Source(_label(path), read_file(path), path, path.resolve())
    near = difflib.get_close_matches(word, BUILT_IN, 1)
    hint = f"did you mean {near[0]}?" if near else "`ifef list` names those there are; a file of your own ends in .py."
    raise SourceError(f"There is no problem {word!r}: {hint}")


def _label(path: Path) -> str:
    """A name for a folder, made of what every file system takes."""
    kept = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in path.stem)
    return kept.strip("-")[:60] or "problem"


def read_file(path: Path) -> bytes:
    """Read a problem file without running it."""
    if path.is_dir():
        raise SourceError(f"{str(path)!r} is a folder: give the problem file in it, for instance my_problem.py.")
    if not path.exists():
        others = [other.name for other in path.parent.glob("*.py")] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, others, 1)
        hint = f"did you mean {path.with_name(near[0])}?" if near else "check the path, or make it with `ifef new`."
        raise SourceError(f"There is no file {str(path)!r}: {hint}")
    if not path.is_file():
        raise SourceError(f"{str(path)!r} is not a plain file: give a file that defines `problem`.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise SourceError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from error


def _execute(source: Source, text: bytes) -> Problem:
    path = str(source.path)
    try:
        code = compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise SourceError(f"{path}{line}: {error.msg}.") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceError(f"{path} is not a Python program ({one_line(error)}).") from error
    module = types.ModuleType(_MODULE)
    home = source.home if source.home is not None and source.home.exists() else Path(path).resolve()
    module.__file__ = str(home)
    sys.modules[_MODULE] = module  # dataclasses look their module up
    sys.path.insert(0, str(home.parent))  # as `python my_problem.py` would have it
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        raise SourceError(f"{path} calls exit({error.code!r}) before it is read to its end.") from error
    except Exception as error:
        raise SourceError(blame(error, source.files) or f"{path}: {_named(error)}.") from error
    finally:
        sys.path.remove(str(home.parent))
    return _checked(path, module.__dict__)


def _checked(path: str, names: dict[str, Any]) -> Problem:
    found = names.get("problem")
    if isinstance(found, Problem):
        return found
    if "problem" in names:
        raise SourceError(f"{path}: `problem` is a {type(found).__name__}; set it to an ifef.Problem(...).")
    others = [name for name, value in names.items() if isinstance(value, Problem)]
    hint = f"; rename {others[0]!r} to it" if others else ""
    raise SourceError(f"{path} defines no variable `problem`{hint or ': write problem = ifef.Problem(...)'}.")


def one_line(error: BaseException) -> str:
    """What an exception says, in one line that is not too long."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else text[: text.rfind(" ", 0, _LONGEST)] + " [...]"


def _named(error: BaseException) -> str:
    said = one_line(error)
    return f"{type(error).__name__}: {said}".rstrip(". ") if said else type(error).__name__


def blame(error: BaseException, files: tuple[str, ...] = ()) -> str | None:
    """One sentence where the user can mend this; None where it is a fault of ours.

    The user can mend what was raised in a file of theirs, what ifef refuses on purpose (a `raise` in its own code, of
    the types that DESIGN gives to a caller's mistakes), files and disks, and a lack of memory.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if frame.filename in files]
    if theirs and not isinstance(error, SourceError):
        return f"{theirs[-1].filename}:{theirs[-1].lineno}: {_named(error)}."
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "There is not enough memory for this: give a smaller --max-features, or use a larger machine."
    ours = bool(frames) and Path(frames[-1].filename).is_relative_to(Path(__file__).parents[1])
    meant = ours and (frames[-1].line or "raise").startswith("raise")
    if (isinstance(error, OSError) and ours) or (isinstance(error, (ValueError, ModuleNotFoundError)) and meant):
        return one_line(error)
    return None


def catalogue() -> list[tuple[str, str]]:
    """Each built-in problem's name and what it is, as its own file and settings say."""
    rows = []
    for name, make in BUILT_IN.items():
        function = make.func if isinstance(make, partial) else make
        given = make.args if isinstance(make, partial) else ()
        said = (inspect.getdoc(sys.modules[function.__module__]) or "").partition("\n")[0].rstrip(".")
        bound = inspect.signature(function).bind(*given)
        bound.apply_defaults()
        values = ", ".join(f"{key}={_short(value)}" for key, value in bound.arguments.items() if _short(value))
        rows.append((name, f"{said} ({values})" if values else said))
    return rows


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else ""
