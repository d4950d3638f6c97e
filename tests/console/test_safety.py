"""The safety screen: each key, what it shows, and that it shows what a real engine says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from clawpy_console.cli.printing.style import field_lines, plain
from clawpy_console.fields import Field
from clawpy_console.screens.safety import screen
from clawpy_console.state import AppState, Autonomy
from clawpy_console.widgets.bars import Columns
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.status import state_line
from engine import open_engine
from engine.home import Home
from engine.model import RailVerdict, Refusal, Verdict
from tests.conftest import Repository
from tests.console.conftest import at, live, screen_text, until, wait_for_text
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import BLOG, NOW, SHOP, ago, burns
from tests.support.helpers import assert_contains


async def to_safety(pilot: Pilot, *keys: str) -> None:
    await live(pilot)
    await pilot.press("6", *keys)
    await until(pilot, lambda: pilot.app.state.rails and not pilot.app._is_reading)  # type: ignore[attr-defined]
    await pilot.pause()


def blocked_last(engine: StandIn) -> None:
    """Let the newest decision be one that the content filter stopped."""
    log, rails = engine.safety.log, engine.safety.rails
    engine.safety.log = lambda limit=50, blocked_only=False: log(50, True)[:limit]  # type: ignore[method-assign]

    def stopped():
        said = {verdict.rail: verdict for verdict in engine.safety.log(1)[0].verdicts}
        return tuple(dataclasses.replace(rail, last=said[rail.rail]) for rail in rails())

    engine.safety.rails = stopped  # type: ignore[method-assign]


# What is seen


@pytest.mark.long
async def test_a_narrow_terminal_shows_one_column_and_says_which(console: ConsoleApp) -> None:
    async with at(console, to_safety, size=(80, 24)) as pilot:
        assert "[rails]" in screen_text(console)
        await pilot.press("tab")
        await wait_for_text(pilot, "[blocked 3]")
        assert "kill switch  open" not in screen_text(console)
        await pilot.press("right")
        await wait_for_text(pilot, "AUTONOMY BY WORKSPACE")
        line = next(line for line in screen_text(console).splitlines() if "[switches]" in line)
        await pilot.click(Columns, offset=(line.index("rails"), 0))
        await wait_for_text(pilot, "kill switch  open")


@pytest.mark.long
async def test_the_rail_under_the_cursor_says_why(console: ConsoleApp) -> None:
    async with at(console, to_safety, "down", "down", "down") as pilot:
        await wait_for_text(pilot, "checks every prompt")
        await pilot.press("up")
        await wait_for_text(pilot, "of $18.80 left today")


@pytest.mark.long
async def test_on_a_low_terminal_the_cursor_brings_what_stands_below_into_sight(console: ConsoleApp) -> None:
    async with at(console, to_safety, "tab", "tab", size=(80, 24)) as pilot:
        assert "owner → koji-core" not in screen_text(console)
        await pilot.press("end")
        await wait_for_text(pilot, "owner → koji-core")


# Blocked work


@pytest.mark.long
async def test_blocked_work_says_rule_and_reason_literally(console: ConsoleApp) -> None:
    async with at(console, to_safety, "tab") as pilot:
        text = screen_text(console)
        assert_contains(text, "rm -rf / [/not markup]", "rule destructive.rm")
        await pilot.press("down")
        await wait_for_text(pilot, "follow-up · shop → koji-core from research")


@pytest.mark.long
async def test_allow_once_says_what_it_lifts_and_asks_for_a_second_key(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_safety, "tab", "a", notifications=True) as pilot:
        await wait_for_text(pilot, "Allow this once?")
        assert "content (destructive.rm)" in screen_text(console)
        await pilot.press("a", "y", "enter")
        assert not any(call[0] == "allow_once" for call in engine.noted)
        await pilot.press("a", "X")
        await until(pilot, lambda: ("allow_once", "pred_000000000002") in engine.noted)
        await wait_for_text(pilot, "Allowed once. Approve the card")
        await pilot.press("a")  # once is enough
        assert len(console.screen_stack) == 1


@pytest.mark.long
async def test_allow_once_is_offered_for_the_content_filter_only(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_safety, "tab", "down", "a"):
        assert len(console.screen_stack) == 1
        assert "a allow once" not in screen_text(console)


@pytest.mark.long
async def test_a_refused_allow_once_is_said(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["allow_once"] = Refusal("nothing_blocked", "the content filter did not block it")
    async with at(console, to_safety, "tab", "a", "X", notifications=True) as pilot:
        await wait_for_text(pilot, "did not block it")


@pytest.mark.long
async def test_the_blocked_list_is_filtered_as_one_types_and_escape_ends_it(console: ConsoleApp) -> None:
    async with at(console, to_safety, "slash", *"quiet") as pilot:
        rows = console.screen.query_one("#blocked", Rows)
        await until(pilot, lambda: [row.id for row in rows.rows] == ["4"])
        assert "1 of 3" in screen_text(console)
        await pilot.press("enter")
        assert rows.has_focus
        await pilot.press("slash", "escape")
        await until(pilot, lambda: len(rows.rows) == 3)
        assert rows.has_focus


# Holds


@pytest.mark.long
async def test_r_ends_the_gravest_first_and_asks_before_a_stop_and_a_month_stop_end(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.safety.hold("month", "cost: the month's cap")
    engine.safety.hold("pause", "3 rejections in a row", NOW + timedelta(minutes=63))
    async with at(console, to_safety) as pilot:
        text = screen_text(console)
        assert_contains(text, "■ month stop  Press R to resume", "■ pause       Press R to resume, over in 1h 03m")
        await pilot.press("R", "R", "enter")
        assert not any(call[0] == "resume" for call in engine.noted)
        await pilot.press("R", "y")
        await until(pilot, lambda: ("resume", "month") in engine.noted)
        await until(pilot, lambda: [hold.word for hold in console.holds] == ["pause"])
        await pilot.press("R")
        await until(pilot, lambda: ("resume", "pause") in engine.noted)


@pytest.mark.long
async def test_do_not_disturb_begins_and_ends_with_one_key(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_safety) as pilot:
        assert "quiet hours 23:00–08:00" in screen_text(console)
        await pilot.press("d")
        await wait_for_text(pilot, "do not disturb until 16:12")
        await pilot.press("d")
        await until(pilot, lambda: engine.noted[-1] == ("dnd", None))
        await wait_for_text(pilot, "quiet hours 23:00–08:00")


# Switches


@pytest.mark.long
async def test_autonomy_says_what_it_means_before_it_is_turned_on(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_safety, "tab", "tab", "down", "enter") as pilot:
        await wait_for_text(pilot, "may start work without asking")
        await pilot.press("escape")
        assert not any(call[0] == "set" for call in engine.noted)
        await pilot.press("enter", "y")
        await until(pilot, lambda: ("set", "autonomousModeEnabled", True) in engine.noted)


@pytest.mark.long
async def test_a_workspaces_autonomy_is_chosen(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_safety, "tab", "tab", *["down"] * 4, "enter") as pilot:
        await wait_for_text(pilot, "What may the engine do in shop?")
        await pilot.press("c", "enter")  # as it is already; Enter opens it again
        await pilot.press("a")
        assert not any(call[0] == "set" for call in engine.noted)
        await pilot.press("A")
        await until(pilot, lambda: ("set", f'workspaces."{SHOP}".autonomy', "act") in engine.noted)
        await pilot.press("down", "enter", "o")
        await until(pilot, lambda: ("set", f'workspaces."{BLOG}".autonomy', "off") in engine.noted)


# Time


# Drawing, without an app


def text(fields: Iterable[Field]) -> str:
    return plain("\n".join(field_lines(fields)))


@pytest.mark.parametrize("state", ["DISABLED", "WATCHING", "PRIMING", "AUTONOMOUS", "PAUSED"])
def test_the_present_state_is_marked_among_all(state: str) -> None:
    told = text(screen.state_fields(AppState(autonomy=Autonomy(state=state)), (), NOW, "R", "d"))
    assert f"[{state}]" in told
    assert all(state in told for state in screen.AUTONOMY_STATES)


def test_gauges_appear_once_something_was_spent() -> None:
    nothing = [dataclasses.replace(burn, spent=0, reserved=0, buckets=(0, 0)) for burn in burns()]
    assert "Nothing spent. Caps: $2 an hour, $20 a day, $200 a month" in text(screen.cost_fields(tuple(nothing), NOW))
    told = text(screen.cost_fields(burns(), NOW))
    assert_contains(told, "$0.15 of $2, $0.05 reserved", "$0.16/h: stays below", "cap at 26 Jan")


def test_a_full_gauge_says_so() -> None:
    full = dataclasses.replace(burns()[0], spent=1_950_000)  # and 50,000 reserved
    assert screen.pace_words(full, NOW) == "the cap has been reached"
    [*_, hour, _] = screen.cost_fields((full,), NOW)
    assert hour.tone == "wrong"
    assert "100%" in text(screen.cost_fields((dataclasses.replace(full, cap=0),), NOW))


def test_a_wait_that_is_over_is_not_counted_down() -> None:
    rate = StandIn().safety.rails()[0]
    assert screen.rail_status(dataclasses.replace(rate, until=ago(seconds=1)), NOW, True)[:2] == ("✗", "waits")


def test_under_a_pause_what_you_approve_runs_and_only_a_stop_holds_everything() -> None:
    kill = dataclasses.replace(StandIn().safety.rails()[-1], rail="kill", verdict=Verdict.BLOCK)
    paused = dataclasses.replace(kill, brief="pause", until=NOW + timedelta(minutes=63))
    assert screen.unapproved_work_status((paused,), True)[:2] == ("▲", "by you")
    assert screen.unapproved_work_status((dataclasses.replace(kill, brief="stop", until=None),), True)[:2] == (
        "■",
        "held",
    )


# How it looks


@pytest.fixture
def looked_at(engine: StandIn) -> StandIn:
    """The morning after: paused, with the newest decision stopped."""
    blocked_last(engine)
    engine.safety.hold("pause", "3 rejections in a row", NOW + timedelta(minutes=63))
    engine.autonomy.state = lambda: SimpleNamespace(
        state="PAUSED", cause="3 rejections in a row", since=ago(minutes=57), next_change=ago(minutes=-63)
    )
    return engine


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_paused(console: ConsoleApp, looked_at: StandIn, compare_snapshot: CompareSnapshot, size: str) -> None:
    compare_snapshot(console, size, go=to_safety)


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_before_anything_ran(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, size: str
) -> None:
    rails = tuple(dataclasses.replace(rail, last=None, last_at=None, stopped=0) for rail in engine.safety.rails())
    engine.safety.log = lambda limit=50, blocked_only=False: []  # type: ignore[method-assign]
    engine.safety.chain = lambda limit=50: []  # type: ignore[method-assign]
    engine.safety.rails = lambda: rails  # type: ignore[method-assign]
    unused = [dataclasses.replace(burn, spent=0, reserved=0, buckets=(0,) * len(burn.buckets)) for burn in burns()]
    engine.safety.costs.history = lambda: tuple(unused)
    compare_snapshot(console, size, go=to_safety)


@pytest.mark.long
@pytest.mark.parametrize("size", ["80x24", "120x40"])
def test_switches(console: ConsoleApp, compare_snapshot: CompareSnapshot, size: str) -> None:
    compare_snapshot(console, size, "tab", "tab", go=to_safety)


def test_blocked_when_narrow(console: ConsoleApp, compare_snapshot: CompareSnapshot) -> None:
    compare_snapshot(console, "80x24", "tab", go=to_safety)


@pytest.mark.long
def test_light(console: ConsoleApp, looked_at: StandIn, compare_snapshot: CompareSnapshot) -> None:
    looked_at.settings.current.console.theme = "clawpy-light"
    compare_snapshot(console, "120x40", "down", go=to_safety)


@pytest.mark.long
def test_without_colour(looked_at: StandIn, plain_console: ConsoleApp, compare_snapshot: CompareSnapshot) -> None:
    compare_snapshot(plain_console, "120x40", go=to_safety)


# A real engine


@pytest.mark.long
async def test_it_shows_and_lifts_what_a_real_engine_blocked(
    home: Home, repository: Repository, tmp_path: Path
) -> None:
    workspace = str(repository.path)
    app = ConsoleApp(lambda: open_engine(home, workspaces=[workspace], start_schedule=False), home, [workspace])
    app.animation_level = "none"
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await live(pilot)
        engine = app.engine
        assert engine is not None
        card = engine.cards.propose("run_tests", workspace=workspace)
        block = RailVerdict("content", Verdict.BLOCK, "deletes everything", "test-rule")
        check = "engine.safety.pipeline.check_assignment"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(check, lambda *arguments, **more: block)
            with pytest.raises(Refusal, match="deletes everything"):
                engine.cards.approve(card.id)
            await pilot.press("6", "tab")
            await until(pilot, lambda: "rule test-rule" in screen_text(app), "for the block")
            text = screen_text(app)
            assert "✗ content" in text
            assert "first 10" in text  # the gate: first days
            assert "■ DISABLED" not in text
            await pilot.press("a", "X")
            await until(pilot, lambda: "Allowed once. Approve the card" in screen_text(app), "for the allowance")
            await pilot.press("f12")
            await until(pilot, lambda: "■ stop" in screen_text(app), "for the stop")
            await pilot.press("R", "y")
            await until(pilot, lambda: not engine.safety.holds(), "for the end of the stop")
            await pilot.press("tab", "down", "enter", "y")
            await until(pilot, lambda: engine.settings.current.autonomous_mode_enabled, "for the switch")
            await pilot.press("down", "down", "down", "enter", "A")
            await until(pilot, lambda: engine.settings.current.workspace(workspace).autonomy == "act", "for autonomy")
        engine.close()


def test_a_fault_of_the_settings_stands_in_the_status_line_until_it_is_mended() -> None:
    broken = AppState(autonomy=Autonomy(state="WATCHING"), fault="/home/me/config.toml:7: not TOML")
    said = state_line(broken, NOW, "", 80).plain
    assert_contains(said, "WATCHING", "config.toml:7")
    assert said.endswith("F12 stop")
    assert len(said) <= 80
