#!/usr/bin/env python3
"""Set this checkout up and use it, with nothing but Python and a package index.

    python3 start.py run  [ARGS]    ifef solve helmholtz-high, or ifef ARGS
    python3 start.py test [ARGS]    ruff, pyright and pytest; ARGS go to pytest

Both make .venv beside this file when they are first called.
"""

# The syntax is that of Python 3.6, newer annotations in quotes, so that an old Python gets as far as the refusal.
import hashlib
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

MINIMUM = (3, 11)
ROOT = Path(__file__).resolve().parent


class Stop(Exception):
    """A sentence for the person at the terminal, and the exit status that goes with it."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        self.sentence, self.status = sentence, status


def say(text: str) -> None:
    """Print one line at once, so that it stands before what a child process prints."""
    print("start.py: " + text, flush=True)


def refuse_old_python(version: "tuple[int, ...]") -> None:
    """Stop where this Python is too old for the package."""
    if version[:2] < MINIMUM:
        wanted, got = ".".join(map(str, MINIMUM)), ".".join(map(str, version[:3]))
        raise Stop(f"ifef needs Python {wanted} or newer and this is {got}; call start.py with a newer one.", 2)


def refuse_missing_modules() -> None:
    """Stop where the system has split venv off from Python, as Debian does."""
    for name in ("venv", "ensurepip"):
        if importlib.util.find_spec(name) is None:
            package = "python{}.{}-venv".format(*sys.version_info[:2])
            raise Stop(f"this Python has no {name} module; Debian and Ubuntu have it in the package {package}.", 2)


def call(command: "list[str]", cwd: "Path | None" = None) -> int:
    """Run a command in sight of the user and return its exit status."""
    # Without the variables that would let packages from outside .venv in, or send an install elsewhere.
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH", "PIP_USER")}
    process = subprocess.Popen(command, cwd=cwd, env=kept, stdin=subprocess.DEVNULL)
    try:
        status = process.wait()
    except KeyboardInterrupt:
        # The child got the same Ctrl-C and may be saving its best answer: wait for it, unless a second one comes.
        try:
            process.wait()
        finally:
            process.kill()
        raise
    return status if status >= 0 else 128 - status


def program(root: Path, name: str) -> str:
    """The path of a program of the environment."""
    return str(root / ".venv" / (f"Scripts/{name}.exe" if os.name == "nt" else f"bin/{name}"))


def is_usable(python: str) -> bool:
    """Whether this interpreter starts, is new enough and has pip; an outlived environment fails one of them."""
    probe = f"import sys, pip; sys.exit(sys.version_info < {MINIMUM})"
    try:
        return subprocess.run([python, "-I", "-c", probe], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def fingerprint(root: Path) -> str:
    """What an install depends on: the project's table, and the folder, because an editable install points at it."""
    return hashlib.sha256((root / "pyproject.toml").read_bytes() + os.fsencode(root)).hexdigest()


def is_installed(stamp: Path, digest: str, extra: str) -> bool:
    """Whether the stamp says that this very project is installed, with the extra asked for (or with more)."""
    words = stamp.read_text(encoding="ascii", errors="replace").split() if stamp.is_file() else []
    return words[:1] == [digest] and (not extra or extra in words[1:])


def prepare(root: Path, extra: str) -> None:
    """Bring .venv up to date; does nothing where it is."""
    folder, python = root / ".venv", program(root, "python")
    if not is_usable(python):
        refuse_missing_modules()
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        if call([sys.executable, "-m", "venv", "--clear", str(folder)]):
            raise Stop("could not make .venv, for the reason above.")
    stamp, digest, target = folder / "ifef-installed", fingerprint(root), f".[{extra}]" if extra else "."
    if is_installed(stamp, digest, extra):
        return
    stamp.unlink(missing_ok=True)  # removed first and written last: an interrupted install leaves none
    say(f"installing {target} into .venv; the first time takes a few minutes")
    begin = time.monotonic()
    if call([python, "-m", "pip", "install", "--quiet", "--editable", target], cwd=root):
        raise Stop("pip failed, for the reason above; if it was the network, call again once there is one.")
    stamp.write_text(f"{digest} {extra}\n", encoding="ascii")
    say(f"installed in {time.monotonic() - begin:.0f} s")


def check(root: Path, arguments: "list[str]") -> int:
    """Run each part of the check in turn, up to the first that fails, and return its status."""
    python = program(root, "python")
    # pyright looks for packages beside the python on PATH, which need not be ours.
    types = ["pyright", "--pythonpath", python]
    for part in (["ruff", "check"], ["ruff", "format", "--check"], types, ["pytest", *arguments]):
        say(" ".join(part))
        begin = time.monotonic()
        status = call([python, "-m", *part], cwd=root)
        say(f"{part[0]} {'failed' if status else 'passed'} after {time.monotonic() - begin:.1f} s")
        if status:
            return status
    return 0


def main(arguments: "list[str]") -> int:
    """Do what the first argument says, and return the exit status."""
    word, rest = "".join(arguments[:1]), arguments[1:]
    try:
        refuse_old_python(sys.version_info[:3])
        if word not in ("run", "test"):
            print((__doc__ or "").strip())
            return 0 if word in ("-h", "--help") else 2
        prepare(ROOT, "dev" if word == "test" else "")
        if word == "test":
            return check(ROOT, rest)
        return call([program(ROOT, "ifef"), *(rest or ["solve", "helmholtz-high"])])
    except Stop as stop:
        say(stop.sentence)
        return stop.status
    except KeyboardInterrupt:
        say("interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
