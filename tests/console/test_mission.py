"""Mission control around the stack: panes, lists, and where they lead."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.widgets.rows import Row, Rows
from engine.model import RailVerdict, SessionState, Verdict
from tests.console.conftest import running, screen_text, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stories import FIRST, SECOND, calls_of, front


def row(app: ConsoleApp, rows: str, text: str) -> tuple[Row, str]:
    """The row of the list with this text, and what stands below it."""
    found = app.screen.query_one(rows, Rows).rows
    at = next(at for at, item in enumerate(found) if text in item.text)
    below = found[at + 1].text if at + 1 < len(found) and not found[at + 1].id else ""
    return found[at], below


async def test_work_says_in_words_how_each_session_ended_and_when(console: ConsoleApp, engine: StandIn) -> None:
    landed = engine.sessions.all[1]
    engine.sessions.all[1] = dataclasses.replace(landed, discarded_at=engine.now - timedelta(minutes=2))
    async with running(console):
        first = console.screen.query_one("#sessions", Rows).rows[0]
        assert (first.mark, first.text) == ("◐", "shop: Hunt flakes: 4 slowest tests, 20 times")
        told = {
            "Hunt flakes": "15s · running",
            "Format and fix": "14:10 · 1m 00s · discarded",  # when it was discarded, not when it ended
            "Run the tests of": "13:51 · 1m 00s · 1 test failed",
            "Summarise the day": "13:09 · 1m 00s · 4 commits, 2 test",
        }
        for text, below in told.items():
            assert below in row(console, "#sessions", text)[1]
        assert "succeeded" not in screen_text(console)


async def test_what_could_not_run_is_not_called_a_failure(console: ConsoleApp, engine: StandIn) -> None:
    at = next(at for at, session in enumerate(engine.sessions.all) if session.id == "sess_000000000004")
    ran = engine.sessions.all[at]
    engine.sessions.all[at] = dataclasses.replace(ran, state=SessionState.CANNOT_RUN, error="ruff is not found")
    async with running(console):
        shown, below = row(console, "#sessions", "Lint the 6 files")
        assert (shown.mark, "could not run" in below) == ("○", True)


async def test_tasks_and_agents_are_shown_only_while_there_are_any(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console) as pilot:
        tasks = console.screen.query_one("#tasks", Rows).rows
        assert [task.text for task in tasks] == ["cart rounding"]  # sessions are in the list of work
        assert [row.text for row in console.screen.query_one("#agents", Rows).rows] == ["koji-core"]
        assert "research" not in screen_text(console)  # nobody serves that channel
        engine.tasks.list = lambda **_: []
        engine.settings.current.channels = ()
        console.reload(["tasks", "settings"])
        await until(pilot, lambda: "TASKS" not in screen_text(console) and "AGENTS" not in screen_text(console))


@pytest.mark.long
@pytest.mark.parametrize("keys", [(), ("2",), ("2", "f"), ("3",), ("4",), ("5",), ("6",), ("7",)])
async def test_what_is_said_in_passing_covers_nothing_of_a_small_screen(
    console: ConsoleApp, engine: StandIn, keys: tuple[str, ...]
) -> None:
    engine.with_agent()
    async with running(console, *keys, size=(80, 24), notifications=True) as pilot:
        console.show_toast("something is wrong, and how to fix it")
        console.show_toast(
            "something else is wrong, in more words than fit one line of so small a terminal, and fixed thus"
        )
        await wait_for_text(pilot, "something is wrong, and how to fix it")
        await wait_for_text(pilot, "fixed thus")
        seen = {
            widget: region.intersection(clip)
            for widget, (region, clip) in console.screen._compositor.visible_widgets.items()
            if widget.visible and not widget.children
        }
        toasts = [region for item, region in seen.items() if item in console.screen.query("Toast")]
        others = [(item, region) for item, region in seen.items() if item not in console.screen.query("Toast")]
        assert len(toasts) >= 2  # a slow machine has more to say
        assert not [other for other, region in others for toast in toasts if region.overlaps(toast)]


@pytest.mark.parametrize("pane", ["queue", "tasks", "agents", "sessions", "live"])
async def test_a_new_prompt_a_check_and_the_filter_are_there_in_every_pane(
    console: ConsoleApp, engine: StandIn, pane: str
) -> None:
    async with running(console) as pilot:
        console.screen.go_to(pane)
        await pilot.press("w")
        assert "only shop" in screen_text(console)
        await pilot.press("p")
        await until(pilot, lambda: ("run_cycle", True) in engine.noted)
        await pilot.press("n")
        await wait_for_text(pilot, "New prompt")


async def test_the_evidence_says_what_the_rails_say_now(console: ConsoleApp, engine: StandIn) -> None:
    """Not what they said when the card was made."""
    said = "first days: 7 of 10 decisions made"
    engine.cards.rails = lambda id: (RailVerdict("gate", Verdict.ASK, said),)  # type: ignore[method-assign]
    async with running(console, size=(200, 60)) as pilot:
        await until(pilot, lambda: said in screen_text(console))
        said = "first days: 8 of 10 decisions made"
        engine.cards.dismiss(SECOND)  # in another console
        console.reload(["cards"])
        await until(pilot, lambda: said in screen_text(console))


async def test_keys_of_the_stack_do_nothing_while_another_pane_has_the_focus(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with running(console, "tab") as pilot:
        assert console.screen.pane == "queue"
        await pilot.press("l", "h", "right", "left", "s", "j", "k")
        assert front(console) == FIRST
        assert not calls_of(engine, "approve", "dismiss", "snooze")


@pytest.mark.long
async def test_panes_are_walked_with_tab_both_ways(console: ConsoleApp) -> None:
    async with running(console, size=(80, 24)) as pilot:
        seen = []
        for _ in range(6):
            await pilot.press("tab")
            seen.append(console.screen.pane)
        assert seen == ["queue", "tasks", "agents", "sessions", "live", "stack"]
        await pilot.press("shift+tab")
        assert console.screen.pane == "live"
        assert console.screen.query_one("#live").region.height > 3  # folded columns unfold when they are looked at


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("pane", ["tasks", "queue", "agents", "sessions", "live"])
async def test_escape_leads_back_to_the_cards_from_every_pane(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int], pane: str
) -> None:
    async with running(console, size=size) as pilot:
        console.screen.go_to(pane)
        await until(pilot, lambda: console.screen.pane == pane)
        await until(pilot, lambda: "→ approve" not in screen_text(console).split("\n")[-1])  # it would do nothing
        await pilot.press("escape")
        assert console.screen.pane == "stack"
        await pilot.press("right")
        await until(pilot, lambda: calls_of(engine, "approve"))


@pytest.mark.long
async def test_a_screen_is_reached_by_a_click_on_its_tab(console: ConsoleApp) -> None:
    async with running(console) as pilot:
        header = screen_text(console).split("\n")[0]
        for tab, mode in (("4 memory", "memory"), ("1 mission", "mission")):
            await pilot.click(offset=(header.index(tab) + 3, 0))
            await until(pilot, lambda mode=mode: console.current_mode == mode)


@pytest.mark.parametrize(("since", "told"), [(timedelta(seconds=59), "just now"), (timedelta(minutes=1), "oldest 1m")])
async def test_folded_the_queue_tells_how_long_something_waits(
    console: ConsoleApp, engine: StandIn, since: timedelta, told: str
) -> None:
    engine.changes.all = [dataclasses.replace(change, created_at=engine.now - since) for change in engine.changes.all]
    engine.permissions.all = []
    async with running(console, size=(80, 24)) as pilot:
        await wait_for_text(pilot, f", {told}")


@pytest.mark.long
async def test_the_queue_leads_to_the_session(console: ConsoleApp) -> None:
    async with running(console, "tab", "enter") as pilot:
        await until(pilot, lambda: console.current_mode == "work")
        await until(pilot, lambda: console.screen.session and console.screen.session.id == "sess_000000000002")


async def test_enter_on_an_agent_that_never_worked_shows_it_in_the_hierarchy(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.sessions.all = []
    async with running(console) as pilot:
        console.screen.go_to("agents")
        await pilot.press("enter")
        await until(pilot, lambda: console.current_mode == "hierarchy")


async def test_the_line_about_what_was_just_done_goes_after_a_while(
    console: ConsoleApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawpy_console.screens.mission.screen.MESSAGE_S", 0.3)
    async with running(console, "escape", "up") as pilot:
        await wait_for_text(pilot, "Snoozed")
        await until(pilot, lambda: "Snoozed" not in screen_text(console))
