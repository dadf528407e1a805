"""The display shows what there is, on a terminal and elsewhere, and never stops a run."""

import io
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ifef import display

RECORD = {
    "phase": "upper",
    "epoch": 30,
    "epochs": 100,
    "loss": 1.5e-3,
    "losses": {"equation": 1e-3, "walls": 5e-4},
    "held_out": 2.5e-2,
    "rank": 97,
    "condition": 3.1e7,
    "duals": {"equation": 0.25},
}

AWKWARD: list[Mapping[str, Any]] = [
    {},
    {"phase": None, "epoch": None, "epochs": None, "losses": None, "duals": None},
    {"phase": "search", "held_out": math.nan, "rank": math.nan, "num_features": None},
    {"phase": "solve", "held_out": math.inf, "rank": "many", "losses": {"a": "b"}},
    {"phase": "upper", "epoch": -3, "epochs": 0, "loss": math.nan, "losses": {"equation": math.nan}},
    {"phase": "upper", "epoch": math.inf, "epochs": math.nan},
    {"phase": "upper", "epoch": "4", "epochs": "9", "losses": [1, 2], "duals": 3.0},
    {"phase": "[/bold]", "epoch": 5, "epochs": 3, "losses": {"[red]": 1, 7: None, "Größe 温度": 2.0}},
    {"phase": ["a"], "tick": True},
    {"phase": "upper", "epoch": 10**400, "epochs": 10**400, "rank": 10**400, "losses": {"x": 10**400}},
    {"phase": "upper", "losses": {f"c{number}": 1.0 for number in range(500)}},
]


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    """A stream that has gone away."""

    def __init__(self, terminal: bool):
        io.StringIO.__init__(self)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


@pytest.fixture(autouse=True)
def _a_capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def shown(stream: io.StringIO, *records: Mapping[str, Any]) -> str:
    with display.live("wave", stream) as report:
        for record in records:
            report(record)
    return stream.getvalue()


def test_lines_say_what_a_record_says() -> None:
    text = shown(io.StringIO(), RECORD)
    for part in ("wave: upper 30/100", "loss 1.50e-03", "held-out 2.50e-02", "rank 97"):
        assert part in text
    assert "\x1b" not in text


def test_a_terminal_has_a_table_with_weights() -> None:
    text = shown(Terminal(), RECORD)
    for part in ("equation", "1.00e-03", "walls", "weight", "2.50e-01", "held-out 2.50e-02", "rank 97", "30/100"):
        assert part in text
    assert "weight" not in shown(Terminal(), {**RECORD, "duals": {}})


def test_lines_are_a_handful() -> None:
    stream = io.StringIO()
    with display.live("wave", stream) as report:
        for phase in ("pretraining", "upper"):
            for epoch in range(1, 5001):
                report({"tick": True, "phase": phase, "epoch": epoch, "epochs": 5000})
                if epoch % 25 == 0:
                    report({**RECORD, "phase": phase, "epoch": epoch, "epochs": 5000})
    lines = stream.getvalue().splitlines()
    assert 4 <= len(lines) <= 8
    assert [line for line in lines if "pretraining 5000/5000" in line]
    assert "upper 5000/5000" in lines[-1]


def test_a_long_run_gives_fewer_and_fewer_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    with display.live("wave", stream) as report:
        for epoch in range(1, 36_001):
            clock[0] += 1.0  # ten hours
            report({"tick": True, "phase": "upper", "epoch": epoch, "epochs": 40_000})
    lines = stream.getvalue().splitlines()
    assert 8 <= len(lines) <= 25
    assert "left" in lines[-1]
    assert " h " in lines[-1]


@pytest.mark.parametrize("record", AWKWARD, ids=range(len(AWKWARD)))
@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_awkward_records_do_no_harm(kind: type[io.StringIO], record: Mapping[str, Any]) -> None:
    text = shown(kind(), RECORD, record, {**RECORD, "phase": "other", "epoch": 60})
    assert "Traceback" not in text
    assert "60/100" in text  # the display is still alive


_values = st.one_of(st.none(), st.floats(), st.integers(), st.text(max_size=5), st.dictionaries(st.text(), st.floats()))


@settings(max_examples=60, deadline=None)
@given(record=st.dictionaries(st.sampled_from([*RECORD, "tick", "num_features"]), _values))
def test_no_record_stops_a_run(record: dict[str, Any]) -> None:
    for kind in (Terminal, io.StringIO):
        shown(kind(), record, RECORD)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_broken_stream_does_not_stop_a_run(terminal: bool, capfd: pytest.CaptureFixture[str]) -> None:
    done = False
    with display.live("wave", Broken(terminal)) as report:
        for _ in range(3):
            report(RECORD)
        done = True
    assert done
    assert "Traceback" not in capfd.readouterr().err


def test_a_terminal_without_unicode_does_no_harm() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with display.live("Wärme", stream) as report:
        report({**RECORD, "losses": {"Wände": 1.0}})
    stream.flush()
    assert b"W?nde" in raw.getvalue()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_terminal_is_left_clean(error: type[BaseException]) -> None:
    stream = Terminal()

    def fail() -> None:
        with display.live("wave", stream) as report:
            report(RECORD)
            raise error

    with pytest.raises(error):
        fail()
    text = stream.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is shown again
    assert text.endswith("\x1b[2K")  # and the last lines are wiped


def test_it_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with display.live("wave") as report:
        report(RECORD)
        print("an answer")
    captured = capsys.readouterr()
    assert captured.out == "an answer\n"
    assert "wave: upper 30/100" in captured.err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.0, "59 s"), (61.0, "1 min 01 s"), (7380.0, "2 h 03 min"), (math.nan, "-"), (math.inf, "-")],
)
def test_durations(seconds: float, text: str) -> None:
    assert display.duration(seconds) == text
