"""README's commands, code and links are tried, not trusted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)
LINK = re.compile(
    r"""!?\[[^\]]*\]\(\s*<?([^\s)>]+)  # [text](target) and ![text](target)
    | <(?:img|a)\b[^>]*\b(?:src|href)="([^"]+)
    | ^\[[^\]]+\]:\s+(\S+)  # [label]: target""",
    re.M | re.X,
)


def marked_blocks(text: str, marker: str) -> list[str]:
    """The code blocks with `<!-- marker -->` on the line before."""
    return [found[1] for found in re.findall(rf"^<!-- {marker} -->\n```(\w+)\n(.*?)^```", text, re.M | re.S)]


def commands(block: str) -> list[str]:
    """The commands of a console block, with neither prompt nor comment."""
    lines = [line.strip().removeprefix("$ ") for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def dead_links(page: Path) -> list[str]:
    """The relative links and pictures of a page that lead nowhere; what stands in code is not a link."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    targets = ["".join(groups).split("#")[0] for groups in LINK.findall(text)]
    relative = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    return [target for target in relative if target.startswith("/") or not (page.parent / target).exists()]


@pytest.mark.parametrize("marker", ["newcomer: run", "newcomer: test"])
def test_readme_has_each_command_once(marker: str) -> None:
    blocks = marked_blocks(README, marker)
    assert [len(commands(block)) for block in blocks] == [1]
    assert README.count(f"<!-- {marker} -->") == 1


def test_ci_calls_the_very_command_of_readme() -> None:
    script = ROOT / ".ci" / "run"
    (command,) = commands(marked_blocks(README, "newcomer: test")[0])
    called = [line.removeprefix("exec ") for line in commands(script.read_text(encoding="utf-8"))]
    assert [line for line in called if not re.match(r"(set|cd) ", line)] == [command]
    assert os.access(script, os.X_OK)


def test_readme_python_blocks_parse() -> None:
    for language, code in FENCE.findall(README):
        if language == "python":
            compile(code, "README.md", "exec")


@pytest.mark.parametrize("code", marked_blocks(README, "test: run"))
def test_readme_python_block_runs(code: str, tmp_path: Path) -> None:
    # From a file, so that a traceback shows the line; in a process of its own, as a reader would run it.
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '[a](gone.md#part) ![b](gone.png "title") <img src="gone.svg"> `[c](code.md)`\n```\n[d](fence.md)\n```\n'
        "[e](https://example.org) [f](#here) [g](page.md) [h](/page.md)\n[i]: gone.txt\n",
        encoding="utf-8",
    )
    assert dead_links(page) == ["gone.md", "gone.png", "gone.svg", "/page.md", "gone.txt"]


def test_marked_blocks_are_found() -> None:
    text = "<!-- a -->\n```python\n1\n```\n```python\n2\n```\n<!-- b -->\n```console\n# so:\n$ ls -l\n```\n"
    assert marked_blocks(text, "a") == ["1\n"]
    assert [commands(block) for block in marked_blocks(text, "b")] == [["ls -l"]]
