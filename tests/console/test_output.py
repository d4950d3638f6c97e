"""Live output: progress is one row with a bar, and a red run ends with its failures by cause."""

from __future__ import annotations

import dataclasses

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.widgets.transcript import BAR_CELLS, Progress
from engine.model import CheckResult, SessionState, TranscriptLine
from tests.console.conftest import running, screen_text, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW


@pytest.mark.parametrize(
    ("lines", "row"),
    [
        (["........F. [ 59%]", "..F [100%]"], "100 %  13 run, 2 failed"),
        (["tests/test_cart.py ..                       [ 40%]"], " 40 %  2 run"),
        (["tests/test_cart.py::test_total PASSED       [  3%]"], "  3 %  1 run"),
        (["running 4 tests", "test cart::total ... ok", "test cart::tax ... FAILED"], " 50 %  2 of 4 run, 1 failed"),
        (["    Building [======>            ] 33/120: serde"], " 28 %  33 of 120"),
        ([" 45%|████▌     | 45/100 [00:01<00:01]"], " 45 %  45 of 100"),
        (["[##########........] | reify: timing 55%"], " 55 %"),
        (["#####################        72.4%"], None),
        (["coverage of cart.py: 80 %"], None),
        (["=== Coverage: 61% (minimum 80%) FAILED ==="], None),
        (["[.] 2/5 ERROR in billing"], None),
        (["[#] 10/12/2026 connection refused"], None),
        (["[----] 10/12/2026 the release"], None),
        (["[----] 3/4 segfault"], None),
        (["3 failed, 118 passed in 0.26s"], None),
        ([""], None),
    ],
)
def test_lines_of_progress_are_a_bar_with_numbers(lines: list[str], row: str | None) -> None:
    progress = Progress()
    shown = [progress.progress_row(line) for line in lines][-1]
    assert shown == row if row is None else shown is not None and shown[BAR_CELLS + 1 :] == row


async def test_a_running_test_suite_moves_one_row_and_ends_with_its_causes(
    console: ConsoleApp, engine: StandIn
) -> None:
    session = engine.sessions.all[0]
    output = ["collected 40 items", "...... [ 20%]", "......F [ 60%]", "...F... [100%]", "2 failed, 18 passed"]
    lines = [TranscriptLine(number, NOW, "output", text) for number, text in enumerate(output, 1)]
    failing = ("tests/test_cart.py::test_total", "tests/test_cart.py::test_tax")
    engine.sessions.transcripts[session.id] = lines[:2]
    engine.sessions.all[0] = dataclasses.replace(session, state=SessionState.RUNNING, lines=2)
    async with running(console, size=(200, 60)) as pilot:
        console.open("work", session.id)
        await wait_for_text(pilot, " 20 %  6 run")
        engine.sessions.transcripts[session.id] = lines
        engine.sessions.all[0] = dataclasses.replace(
            session, state=SessionState.SUCCEEDED, ended_at=NOW, lines=5,
            check=CheckResult("pytest", 18, 2, failing=failing),
            facts={"signatures": dict.fromkeys(failing, "TypeError: N is no price in cart.py")},
        )  # fmt: skip
        console.reload(["sessions"])
        await wait_for_text(pilot, "2 tests: TypeError: N is no price in cart.py")
        assert "100 %  20 run, 2 failed" in screen_text(console)
        assert " 20 %" not in screen_text(console)
        assert "test_total  and 1 more like it" in screen_text(console)
