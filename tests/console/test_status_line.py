"""The two lines on top in terminals narrower than the console is made for: the state and the stop key stay."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from clawpy_console.state import Autonomy, Known
from clawpy_console.widgets.status import SCREENS, STOP, StatusBar, state_line
from engine.values import MICRO, Phase
from engine.values.rails import CostState
from tests.console.stand_in_data import NOW


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (Phase(0, 0, "", 30), ""),  # before any decision there is nothing to say
        (Phase(0, 1, "", 30), "Learning: 1 of 30"),
        (Phase(0, 29, "", 30), "Learning: 29 of 30"),
        (Phase(1, 30, "", 30), ""),
    ],
)
def test_learning_is_told_from_the_first_decision_until_the_twin_joins_in(phase: Phase, said: str) -> None:
    known = Known(autonomy=Autonomy(state="WATCHING", threshold=1800), learning=phase.learning)
    line = "".join(text for text, _ in state_line(known, NOW, "", 120))
    assert ("Learning" in line) is bool(said)
    assert said in line


@pytest.mark.parametrize("width", [24, 38, 58, 78, 98, 118, 198])
def test_both_lines_fit_and_say_where_one_is_and_how_it_stands(width: int) -> None:
    costs = CostState(hour=0, day=0, month=0, hour_cap=2 * MICRO, day_cap=20 * MICRO, month_cap=200 * MICRO)
    known = Known(autonomy=Autonomy(state="WATCHING", threshold=1800), costs=costs)
    said = "".join(text for text, _ in state_line(known, NOW, "", width))
    assert "WATCHING" in said
    assert said.endswith(STOP)
    assert cell_len(said) <= width
    for mode, key, label in SCREENS:
        tabs = "".join(text for text, _ in StatusBar(mode)._tabs(width - 2))
        assert f"{key} {label}" in tabs or width < 30
        assert all(other in tabs for _, other, _ in SCREENS) or width < 30
        assert cell_len(tabs) <= width - 2
