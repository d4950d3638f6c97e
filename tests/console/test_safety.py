"""The safety screen: rails, blocked work, switches, holds; one test runs over a real engine (SPEC 3, 9.1)."""

import dataclasses
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens import safety_fields
from clawpy_console.state import AppState, Autonomy
from engine import open_engine
from engine.home import Home
from engine.model import AutonomyState, Hold, RailVerdict, Refusal, Verdict
from tests.conftest import Repository
from tests.console.driving import format_text, until, until_loaded
from tests.console.safety_steps import OPEN, UNUSED
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import BLOG, NOW, SHOP, ago, read_burns
from tests.console.stories import (
    CLOSED,
    Given,
    Until,
    called,
    carry_out,
    hides,
    make_story_test,
    never_called,
    press,
    refused,
    sees,
    type_text,
)
from tests.support.helpers import assert_contains

HOLDS = Given(
    lambda engine: (
        engine.safety.kill_switch.hold("month", "cost: the month's cap"),
        engine.safety.kill_switch.hold("pause", "3 dismissals in a row", NOW + timedelta(minutes=63)),
    )
)
SECOND_IS_PAUSE = Until("the pause", lambda app: [hold.word for hold in app.holds] == ["pause"])
STORIES = {
    "allow once says what it lifts and asks for a second key": (
        press("tab a"),
        sees("Allow this once?", "content (destructive.rm)"),
        press("a y enter"),
        CLOSED,
        never_called("allow_once"),
        press("a X"),
        called("allow_once", "pred_000000000002"),
        sees("Allowed once. Approve the card"),
        press("a"),
        CLOSED,
    ),
    "only a block of the content filter can be allowed": (press("tab down a"), CLOSED, hides("a allow once")),
    "a refusal is said": (
        refused("allow_once", "the content filter did not block it"),
        press("tab a X"),
        sees("did not block it"),
    ),
    "the list is filtered as one types, and escape ends that": (
        press("slash"),
        type_text("quiet"),
        sees("1 of 3", "Draft the change log"),
        press("enter slash escape"),
        sees("rm -rf /"),
    ),
    "the gravest hold ends first, a stop and a month stop after a question": (
        HOLDS,
        sees("■ month stop  Press R to resume", "■ pause       Press R to resume, over in 1h 03m"),
        press("R R enter"),
        never_called("resume"),
        press("R y"),
        called("resume", "month"),
        SECOND_IS_PAUSE,
        press("R"),
        called("resume", "pause"),
    ),
    "a setting that stops everything hides no hold that a key ends, and has no time": (
        HOLDS,
        Given(lambda engine: engine.safety.kill_switch._holds.append(Hold("config", "the setting is off", None))),
        sees("■ DISABLED  the setting is off"),
        press("R y"),
        called("resume", "month"),
        press("R"),
        called("resume", "pause"),
        press("R"),
        called("resume", "config"),
    ),
    "do not disturb begins and ends with one key": (
        sees("quiet hours 23:00–08:00"),
        press("d"),
        sees("do not disturb until 16:12"),
        press("d"),
        called("dnd", None),
        sees("quiet hours 23:00–08:00"),
    ),
    "acting by itself is explained before it is turned on": (
        press("tab tab down enter"),
        sees("may start work without asking"),
        press("enter enter escape"),
        never_called("set"),
        press("enter y"),
        called("set", "autonomousModeEnabled", True),
        press("up enter"),
        called("set", "crossPollEnabled", False),
    ),
    "the autonomy of a workspace is chosen": (
        press("tab tab"),
        press("down", times=4),
        press("enter"),
        sees("What may the engine do in shop?"),
        press("c enter a"),
        never_called("set"),
        press("A"),
        called("set", f'workspaces."{SHOP}".autonomy', "act"),
        press("down enter o"),
        called("set", f'workspaces."{BLOG}".autonomy', "off"),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES, *OPEN))


@pytest.mark.parametrize("state", AutonomyState)
def test_the_present_state_is_marked_among_all(state: AutonomyState):
    lines = format_text(safety_fields.make_state_fields(AppState(autonomy=Autonomy(state=state)), (), NOW, "R", "d"))
    assert_contains(lines, f"[{state}]", *AutonomyState)


HOUR = read_burns()[0]


@pytest.mark.parametrize(
    "spent, texts",
    [
        (UNUSED, ["Nothing spent. Caps: $2 an hour, $20 a day, $200 a month"]),
        (read_burns(), ["$0.15 of $2, $0.05 reserved", "$0.16/h: stays below", "cap at 26 Jan"]),
        ((dataclasses.replace(HOUR, spent=1_950_000),), ["the cap has been reached"]),  # and 50,000 reserved
        ((dataclasses.replace(HOUR, cap=0),), ["100%"]),
    ],
    ids=["nothing", "some", "all", "no cap"],
)
def test_gauges_of_costs(spent: tuple[object, ...], texts: list[str]):
    assert_contains(format_text(safety_fields.make_cost_fields(spent, NOW)), *texts)


@pytest.mark.parametrize(
    "spent, cap, tone",
    [(1_599_999, 2_000_000, "ink"), (1_600_000, 2_000_000, "wants"), (2_000_000, 2_000_000, "wrong"), (1, 0, "wrong")],
    ids=["below 80 %", "at 80 %", "at the cap", "no cap"],
)
def test_a_gauge_warns_from_80_percent_of_its_cap(spent: int, cap: int, tone: str):
    burn = dataclasses.replace(HOUR, spent=spent, reserved=0, cap=cap)
    gauge = next(field for field in safety_fields.make_cost_fields((burn,), NOW) if field.name == "hour")
    assert gauge.tone == tone


def test_a_wait_that_is_over_does_not_count_down():
    rate = dataclasses.replace(StandIn().safety.rails()[0], until=ago(seconds=1))
    assert safety_fields.make_rail_label(rate, NOW, acts_by_itself=True).words == "waits"


@pytest.mark.parametrize("end, words", [(NOW + timedelta(minutes=63), "by you"), (None, "held")])
def test_only_a_hold_without_an_end_holds_all_work(end: datetime | None, words: str):
    kill_switch = dataclasses.replace(StandIn().safety.rails()[-1], rail="kill", verdict=Verdict.BLOCK, until=end)
    assert safety_fields.make_unapproved_work_label((kill_switch,), acts_by_itself=True).words == words


@pytest.mark.long
async def test_blocked_work_of_a_real_engine_is_shown_and_allowed_once(
    home: Home, repository: Repository, tmp_path: Path
):
    workspace = str(repository.path)
    app = ConsoleApp(lambda: open_engine(home, workspaces=[workspace], start_schedule=False), home, [workspace])
    app.animation_level = "none"
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_loaded(pilot)
        engine = app.engine
        card = engine.cards.propose("run_tests", workspace=workspace)
        block = RailVerdict("content", Verdict.BLOCK, "deletes everything", "test-rule")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("engine.safety.pipeline.check_assignment", lambda *arguments, **more: block)
            with pytest.raises(Refusal, match="deletes everything"):
                engine.cards.approve(card.id)
            await carry_out(pilot, press("6 tab"), sees("rule test-rule", "✗ content", "asks you"), hides("■ DISABLED"))
            await carry_out(
                pilot, press("a X"), sees("Allowed once. Approve the card"), press("f12"), sees("■ stop"), press("R y")
            )
            await until(pilot, lambda: not engine.safety.kill_switch.holds(), "for the end of the stop")
            await pilot.press("tab", "down", "enter", "y")
            await until(pilot, lambda: engine.settings.current.autonomous_mode_enabled, "for the switch")
            await pilot.press("down", "down", "down", "enter", "A")
            await until(pilot, lambda: engine.settings.current.workspace(workspace).autonomy == "act", "for autonomy")
        engine.close()
