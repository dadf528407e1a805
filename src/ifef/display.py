"""How a run is shown while it lasts: a live table on a terminal, a few lines anywhere else; always on stderr.

Whatever a record holds or a terminal does, showing it never stops a run: the display goes quiet instead.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

_FIRST_PAUSE = 3.0  # seconds between plain lines; each pause is longer, so that a night's run has twenty lines
_GROWTH = 1.6
_REDRAW = 0.1  # seconds: a tick can come more often than an eye can follow
_MORE_ROWS = 12  # conditions shown


@contextmanager
def live(title: str, file: TextIO | None = None) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show a run: gives what is to be called with each of its records."""
    stream = sys.stderr if file is None else file
    console = Console(file=stream)
    board = _Screen(title, console) if console.is_terminal and not console.is_dumb_terminal else _Lines(title, stream)

    def report(record: Mapping[str, Any]) -> None:
        if board.works:
            try:
                board.show(record)
            except Exception:  # a display that fails is a nuisance, a run that it stops is a loss
                board.works = False

    with suppress(Exception):
        board.open()
    try:
        yield report
    finally:
        with suppress(Exception):
            board.close()


def number(value: Any, pattern: str = ".2e") -> str:
    """Write a number, or a dash where there is none."""
    try:
        return format(float(value), pattern)
    except (TypeError, ValueError, OverflowError):
        return "-"


def duration(seconds: float) -> str:
    """Write a time in the unit that a person would take."""
    if not math.isfinite(seconds):
        return "-"
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min {seconds % 60:02.0f} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _count(value: Any) -> int | None:
    try:
        return int(value) if isinstance(value, (int, float)) and 0 <= value < 2**63 else None
    except (ValueError, OverflowError):
        return None


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


class _Lines:
    """A handful of plain lines, for files and pipes."""

    def __init__(self, title: str, stream: TextIO):
        self.title, self.stream, self.works = title, stream, True
        self._begin = self._last = time.monotonic()
        self._pause = _FIRST_PAUSE
        self._phase: Any = None
        self._origin = (0, self._begin)  # epoch and time at which this process entered the phase
        self._held_out: Any = None

    def open(self) -> None:
        """Nothing to prepare."""

    def close(self) -> None:
        """Nothing to tidy up."""

    def show(self, record: Mapping[str, Any]) -> None:
        """Write a line when a phase begins or ends, and now and then between."""
        now, phase = time.monotonic(), record.get("phase")
        epoch, epochs = _count(record.get("epoch")), _count(record.get("epochs"))
        enters = phase != self._phase
        if enters:
            self._phase, self._origin, self._held_out = phase, (epoch or 0, now), None
        self._held_out = record.get("held_out", self._held_out)
        ends = not record.get("tick") and epoch is not None and epoch == epochs
        if enters or ends or now - self._last >= self._pause:
            self._last, self._pause = now, self._pause * (1.0 if enters or ends else _GROWTH)
            print(self._line(record, epoch, epochs), file=self.stream, flush=True)

    def _line(self, record: Mapping[str, Any], epoch: int | None, epochs: int | None) -> str:
        parts = [str(self._phase or "working")]
        if epoch is not None and epochs:
            parts[0] += f" {epoch}/{epochs}"
        for key, label in (("loss", "loss"), ("held_out", "held-out")):
            value = record.get(key, self._held_out if key == "held_out" else None)
            if value is not None:
                parts.append(f"{label} {number(value)}")
        for key, label in (("rank", "rank"), ("num_features", "columns")):
            if record.get(key) is not None:
                parts.append(f"{label} {number(record[key], '.0f')}")
        now = time.monotonic()
        parts.append(duration(now - self._begin))
        first, entered = self._origin
        if epoch is not None and epochs and first < epoch < epochs:
            parts.append(f"about {duration((now - entered) * (epochs - epoch) / (epoch - first))} left")
        return f"{self.title}: {', '.join(parts)}"


class _Screen:
    """A bar with the time left, and a table of what the last record said."""

    def __init__(self, title: str, console: Console):
        self.console, self.works = console, True
        self._encoding = console.encoding or "utf-8"
        bar = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Progress(TextColumn("{task.description}", markup=False), *bar, console=console)
        self._title = title
        self._task = self._bar.add_task(self._safe(title), total=None)
        # Prints of a user's operator go above the display, unless they go to a file.
        self._live = Live(
            self._bar, console=console, transient=True, refresh_per_second=5, redirect_stdout=sys.stdout.isatty()
        )
        self._phase: Any = None
        self._drawn = -math.inf
        self._known: dict[str, Any] = {}

    def open(self) -> None:
        """Take the lower part of the terminal."""
        self._live.start()

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._live.stop()

    def _safe(self, value: Any) -> str:
        """Text that this terminal can write: an error in the thread that draws would show up as a traceback."""
        return str(value).encode(self._encoding, "replace").decode(self._encoding)

    def show(self, record: Mapping[str, Any]) -> None:
        """Move the bar; draw the table anew when a record says more than that."""
        now, phase = time.monotonic(), record.get("phase")
        if phase != self._phase:
            self._phase = phase
            self._bar.reset(self._task, description=self._safe(f"{self._title}: {phase or 'working'}"))
        elif record.get("tick") and now - self._drawn < _REDRAW:
            return
        self._drawn = now
        self._bar.update(self._task, completed=_count(record.get("epoch")) or 0, total=_count(record.get("epochs")))
        if not record.get("tick"):
            self._known |= {key: value for key, value in record.items() if value is not None}
            self._live.update(Group(self._bar, *self._tables()))

    def _tables(self) -> list[Any]:
        losses, weights = _mapping(self._known.get("losses")), _mapping(self._known.get("duals"))
        table = Table("condition", "loss", box=None, padding=(0, 2))
        if weights:
            table.add_column("weight")
        for key in list(dict.fromkeys([*losses, *weights]))[:_MORE_ROWS]:
            row = [Text(self._safe(key)), number(losses.get(key))]
            table.add_row(*row, *([number(weights.get(key))] if weights else []))
        facts = [("held-out", "held_out", ".2e"), ("rank", "rank", ".0f"), ("columns", "num_features", ".0f")]
        facts += [("loss", "loss", ".2e"), ("condition number", "condition", ".1e")]
        said = [f"{label} {number(self._known[key], form)}" for label, key, form in facts if key in self._known]
        return [*([table] if losses or weights else []), Text("  " + "   ".join(said))]
