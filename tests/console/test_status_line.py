"""The two lines on top: tabs, state and stop key fit every width (SPEC 9.1, 9.7)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.cells import cell_len

from clawpy_console.app import ConsoleApp
from clawpy_console.formats import workspace_name
from clawpy_console.state import AppState, Autonomy, QuietHours
from clawpy_console.widgets.frame import SCREENS, STOP_TEXT, make_screen_tabs, make_state_line
from engine.events import CycleFinished
from engine.git.reader import read_workspace_label
from engine.model import MICRO, AutonomyState, CostState, Phase
from tests.conftest import Repository
from tests.console.driving import read_screen, running, until
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.support.helpers import assert_contains

NOTHING_SPENT = CostState(hour=0, day=0, month=0, hour_cap=2 * MICRO, day_cap=20 * MICRO, month_cap=200 * MICRO)

KEYS = ("1", "2", "3", "4", "5", "6", "7")
"""The keys of all screens."""


def remove_everything(engine: StandIn, monkeypatch: pytest.MonkeyPatch):
    engine.cards.all, engine.channel_setup.serves = {}, ""
    for port, name in (
        (engine.agents, "list"), (engine, "read_layers"), (engine.adaptation, "candidates"),
        (engine.learnings, "list_entries"), (engine.safety, "log"), (engine.safety.kill_switch, "holds"),
    ):  # fmt: skip
        monkeypatch.setattr(port, name, lambda **_: [])
    monkeypatch.setattr(engine.safety.costs, "state", lambda: NOTHING_SPENT)


@pytest.mark.parametrize(
    "phase, label",
    [
        (Phase(0, 0, "", 30), ""),  # before any decision there is nothing to say
        (Phase(0, 1, "", 30), "Learning from your decisions: 1 of 30"),
        (Phase(0, 29, "", 30), "Learning from your decisions: 29 of 30"),
        (Phase(1, 30, "", 30), ""),
    ],
)
def test_learning_is_counted_from_the_first_decision_until_the_twin_starts(phase: Phase, label: str):
    app_state = AppState(autonomy=Autonomy(state=AutonomyState.WATCHING, threshold=1800), learning=phase.progress_words)
    line = make_state_line(app_state, NOW, "", 120).plain
    assert ("Learning" in line) is bool(label)
    assert label in line


@pytest.mark.parametrize(
    "state, resume_key, acts_by_itself, is_shown",
    [
        (AutonomyState.WATCHING, "", True, True),
        (AutonomyState.AUTONOMOUS, "", True, True),
        (AutonomyState.WATCHING, "", False, False),  # the switch alone is not enough
        (AutonomyState.WATCHING, "R", True, False),
        (AutonomyState.PAUSED, "", True, False),
        (AutonomyState.DISABLED, "", True, False),
    ],
)
def test_inactivity_is_shown_where_cards_run_by_themselves(
    state: AutonomyState, resume_key: str, acts_by_itself: bool, is_shown: bool
):
    app_state = AppState(
        autonomy=Autonomy(state=state, threshold=1800),
        switches=(("autonomousModeEnabled", True),),
        acts_by_itself=acts_by_itself,
    )
    line = make_state_line(app_state, NOW, "", 120, resume_key).plain
    assert ("inactive  0m, acts by itself from 30m" in line) is is_shown
    assert ("inactive" in line) is is_shown


@pytest.mark.parametrize("width", [24, 38, 58, 78, 98, 118, 198])
def test_both_lines_fit_and_name_the_screen_and_the_state(width: int):
    app_state = AppState(
        autonomy=Autonomy(state=AutonomyState.WATCHING, threshold=1800), costs=NOTHING_SPENT, used=frozenset({"costs"})
    )
    line = make_state_line(app_state, NOW, "", width).plain
    assert "WATCHING" in line
    assert line.endswith(STOP_TEXT)
    assert cell_len(line) <= width
    for mode, key in zip(SCREENS, KEYS, strict=True):
        tabs = make_screen_tabs(mode, frozenset(SCREENS), KEYS, width - 2).plain
        assert f"{key} {mode}" in tabs or width < 30
        assert all(other in tabs for other in KEYS) or width < 30
        assert cell_len(tabs) <= width - 2


@pytest.mark.parametrize(
    "spent, style",
    [(1_599_999, "$grey"), (1_600_000, "bold $wants"), (2_000_000, "bold $wrong")],
    ids=["below 80 %", "at 80 %", "at the cap"],
)
def test_costs_warn_from_80_percent_of_their_cap(spent: int, style: str):
    costs = replace(NOTHING_SPENT, hour=spent)
    line = make_state_line(AppState(costs=costs, used=frozenset({"costs"})), NOW, "", 120)
    begin = line.plain.index(f"${spent / MICRO:.2f}/2")
    assert style in {span.style for span in line.spans if span.start == begin}


async def test_a_screen_that_is_not_in_use_has_no_tab_until_it_is_opened(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
):
    remove_everything(engine, monkeypatch)
    async with running(console) as pilot:
        top = read_screen(console).splitlines()[0]
        assert "1 mission  2 work" in top
        assert not any(word in top for word in ("hierarchy", "memory", "learning", "safety", "insights"))
        assert "$" not in read_screen(console).splitlines()[1]
        await pilot.press("4", "1")
        assert "2 work  4 memory" in read_screen(console).splitlines()[0], "it was called by its key"


@pytest.mark.long
async def test_a_screen_whose_key_was_changed_has_that_key_in_its_tab(console: ConsoleApp):
    async with running(console, "6", "1") as pilot:
        console.keymap = {"app.safety": "f6"}
        await pilot.press("2")
        await until(pilot, lambda: "F6 safety" in read_screen(console).splitlines()[0])


@pytest.mark.parametrize("width, label", [(120, "do not disturb until 11:30"), (80, "dnd 11:30")])
def test_do_not_disturb_is_shown_until_it_ends(width: int, label: str):
    until = datetime(2026, 1, 5, 11, 30, tzinfo=UTC)
    watching = Autonomy(state=AutonomyState.WATCHING, next_cycle=until + timedelta(minutes=5))
    quiet = QuietHours(dnd_until=until)
    state = AppState(autonomy=watching, quiet=quiet, costs=NOTHING_SPENT, used=frozenset({"costs"}))
    assert label in make_state_line(state, until - timedelta(seconds=1), "", width).plain
    assert "11:30" not in make_state_line(state, until, "", width).plain


@pytest.mark.parametrize("folder", ["/home/me/a long folder", "/h/a:b: c"])
def test_a_fault_of_the_settings_stands_in_place_of_the_costs(folder: str):
    broken = AppState(autonomy=Autonomy(state=AutonomyState.WATCHING), fault=f"{folder}/config.toml:7: not TOML")
    line = make_state_line(broken, NOW, "", 80).plain
    assert_contains(line, "WATCHING", "▲ not TOML (config.toml:7)")
    assert line.endswith("F12 stop")
    assert len(line) <= 80


@pytest.mark.long
@pytest.mark.usefixtures("world")  # the hierarchy screen reads its services
@pytest.mark.parametrize("keys", ["34567", "3456"], ids=["seven_screens", "six_screens"])
async def test_a_narrow_terminal_names_repository_and_branch_beside_all_tabs(console: ConsoleApp, keys: str):
    async with running(console, *keys, size=(80, 24)):
        first = read_screen(console).split("\n")[0]
        assert "shop  main*" in first
        assert all(key in first for key in f"12{keys}")
        assert all(f"{key} {mode}" in first for key, mode in zip(KEYS[:5], SCREENS[:5], strict=True))


async def test_the_header_follows_the_branch_with_each_check_for_cards(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
):
    async with running(console) as pilot:
        monkeypatch.setattr(engine, "make_workspace_label", lambda workspace: "shop  discount")
        engine.bus.publish(CycleFinished(created=0, withdrawn=0, seconds=0.1))
        await until(pilot, lambda: "shop  discount" in read_screen(console).splitlines()[0])


def test_the_name_of_a_folder_with_a_line_break_is_one_line(tmp_path: Path):
    folder = Repository(tmp_path / "li\nne").path
    assert workspace_name(str(folder)) == "li ne"
    assert read_workspace_label(str(folder)) == "li ne main"
