"""The two lines on top: tabs, state and stop key fit every width (SPEC 9.1, 9.7)."""

from dataclasses import replace

import pytest

from clawpy_console.state import AppState, Autonomy
from clawpy_console.widgets.frame import make_state_line
from engine.model import AutonomyState, CostState
from engine.wording import MICRO
from tests.console.stand_in_data import NOW
from tests.support.checks import assert_contains

NOTHING_SPENT = CostState(hour=0, day=0, month=0, hour_cap=2 * MICRO, day_cap=20 * MICRO, month_cap=200 * MICRO)

KEYS = ("1", "2", "3", "4", "5", "6", "7")
"""The keys of all screens."""


@pytest.mark.parametrize(
    "spent, style",
    [(1_599_999, "$grey"), (1_600_000, "bold $wants"), (2_000_000, "bold $wrong")],
    ids=["below 80 %", "at 80 %", "at the cap"],
)
def test_costs_warn_from_80_percent_of_their_cap(spent: int, style: str):
    costs = replace(NOTHING_SPENT, hour=spent)
    line = make_state_line(AppState(costs=costs, used_screens=frozenset({"costs"})), NOW, "", 120)
    begin = line.plain.index(f"${spent / MICRO:.2f}/2")
    assert style in {span.style for span in line.spans if span.start == begin}


@pytest.mark.parametrize("folder", ["/home/me/a long folder", "/h/a:b: c"])
def test_a_fault_of_the_settings_stands_in_place_of_the_costs(folder: str):
    error = f"{folder}/config.toml:7: not TOML"
    broken = AppState(autonomy=Autonomy(state=AutonomyState.WATCHING), settings_error=error)
    line = make_state_line(broken, NOW, "", 80).plain
    assert_contains(line, "WATCHING", "▲ not TOML (config.toml:7)")
    assert line.endswith("F12 stop")
    assert len(line) <= 80
