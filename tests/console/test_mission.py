"""Mission control around the stack: panes, lists, and where they lead."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.widgets.rows import Rows
from clawpy_console.words import name
from engine.values import (
    CheckResult,
    Outcome,
    SessionState,
    Status,
)
from tests.console import stand_in
from tests.console.cards import FIRST, front, named, stack
from tests.console.conftest import live, screen_text, until
from tests.console.stand_in import StandIn


@pytest.mark.long
async def test_before_tells_a_red_run_from_a_green_one_and_leaves_out_what_was_withdrawn(
    console: ConsoleApp, engine: StandIn
) -> None:
    red = CheckResult("pytest", 23, 12, failing=("tests/test_cart.py::test_total",))
    [ran] = [one for one in engine.sessions.all if one.prediction_id == "pred_000000000013"]
    engine.sessions.all.append(dataclasses.replace(ran, id="sess_red", prediction_id="pred_000000000014", check=red))
    gone = {"status": Status.EXPIRED, "outcome": Outcome.WITHDRAWN, "prompt": "Lint what is gone"}
    card = engine.cards.all["pred_000000000012"]
    engine.cards.all[card.id] = stand_in.card(12, gone.pop("prompt"), decided_at=card.decided_at, **gone)
    async with console.run_test(size=(200, 60)) as pilot:
        await live(pilot)
        [flakes] = [line for line in screen_text(console).split("\n") if "Rerun the 4 slowest" in line]
        [suite] = [line for line in screen_text(console).split("\n") if "Run the whole suite before" in line]
        assert [word in flakes for word in ("✓ Rerun", "succeeded")] == [True, True]
        assert [word in suite for word in ("▲ Run", "12 tests failed")] == [True, True]
        assert "Lint what is gone" not in screen_text(console)


@pytest.mark.long
@pytest.mark.parametrize("keys", [(), ("2",), ("2", "f"), ("3",), ("4",), ("5",), ("6",), ("7",)])
async def test_what_is_said_in_passing_covers_nothing_of_a_small_screen(
    console: ConsoleApp, engine: StandIn, keys: tuple[str, ...]
) -> None:
    engine.with_agent()
    async with console.run_test(size=(80, 24), notifications=True) as pilot:
        await live(pilot)
        await pilot.press(*keys)
        console.say("something is wrong, and how to mend it")
        console.say("something else is wrong, in more words than fit one line of so small a terminal, and mended thus")
        await until(pilot, lambda: "something is wrong, and how to mend it" in screen_text(console))
        await until(pilot, lambda: "mended thus" in screen_text(console))
        seen = {
            one: region.intersection(clip)
            for one, (region, clip) in console.screen._compositor.visible_widgets.items()
            if one.visible and not one.children
        }
        toasts = [region for one, region in seen.items() if one in console.screen.query("Toast")]
        others = [(one, region) for one, region in seen.items() if one not in console.screen.query("Toast")]
        assert len(toasts) >= 2  # a slow machine has more to say
        assert not [one for one, region in others for toast in toasts if region.overlaps(toast)]


@pytest.mark.long
@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
async def test_what_is_next_names_the_repository_where_there_are_several(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int]
) -> None:
    def next_line() -> str:
        [line] = [line for line in screen_text(console).split("\n") if "Rehearse merging" in line]
        return line

    async with console.run_test(size=size) as pilot:
        await live(pilot)
        await pilot.press("escape")
        rehearsal = next(one for one in stack(console).cards if "Rehearse merging" in one.assignment.prompt)
        await until(pilot, lambda: f"  {name(rehearsal.assignment.workspace)} " in next_line())
        for id, card in engine.cards.all.items():
            here = dataclasses.replace(card.assignment, workspace=rehearsal.assignment.workspace)
            engine.cards.all[id] = dataclasses.replace(card, assignment=here)
        console.renew(["cards"])
        await until(pilot, lambda: f"  {name(rehearsal.assignment.workspace)} " not in next_line())
        assert f"  {rehearsal.assignment.channel} " in next_line()


async def test_keys_of_the_stack_do_nothing_while_another_pane_has_the_focus(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("tab")
        assert console.screen.pane == "tasks"
        await pilot.press("l", "h", "right", "left", "s", "j", "k")
        assert front(console) == FIRST
        assert not named(engine, "approve", "dismiss", "snooze")


@pytest.mark.long
async def test_panes_are_walked_with_tab_both_ways(console: ConsoleApp) -> None:
    async with console.run_test(size=(80, 24)) as pilot:
        await live(pilot)
        seen = []
        for _ in range(5):
            await pilot.press("tab")
            seen.append(console.screen.pane)
        assert seen == ["tasks", "queue", "agents", "live", "stack"]
        await pilot.press("shift+tab")
        assert console.screen.pane == "live"
        assert console.screen.query_one("#live").region.height > 3  # folded columns unfold when they are looked at


async def test_what_could_not_run_is_no_failure_among_the_tasks(console: ConsoleApp, engine: StandIn) -> None:
    at = next(at for at, one in enumerate(engine.sessions.all) if one.id == "sess_000000000004")
    ran = engine.sessions.all[at]
    engine.sessions.all[at] = dataclasses.replace(ran, state=SessionState.CANNOT_RUN, error="ruff is not found")
    async with console.run_test(size=(200, 60)) as pilot:
        await live(pilot)
        [line] = [line for line in screen_text(console).split("\n") if "Lint the 6 files: ruff" in line]
        assert ("○ Lint" in line, "✗" in line) == (True, False)


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("pane", ["tasks", "queue", "agents", "live"])
async def test_escape_leads_back_to_the_cards_from_every_pane(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int], pane: str
) -> None:
    async with console.run_test(size=size) as pilot:
        await live(pilot)
        console.screen.go_to(pane)
        await until(pilot, lambda: console.screen.pane == pane)
        await until(pilot, lambda: "→ approve" not in screen_text(console).split("\n")[-1])  # it would do nothing
        await pilot.press("escape")
        assert console.screen.pane == "stack"
        await pilot.press("right")
        await until(pilot, lambda: named(engine, "approve"))


@pytest.mark.long
async def test_a_screen_is_reached_by_a_click_on_its_tab(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        header = screen_text(console).split("\n")[0]
        for tab, mode in (("4 memory", "memory"), ("1 mission", "mission")):
            await pilot.click(offset=(header.index(tab) + 3, 0))
            await until(pilot, lambda mode=mode: console.current_mode == mode)


@pytest.mark.parametrize(("since", "told"), [(timedelta(seconds=59), "just now"), (timedelta(minutes=1), "oldest 1m")])
async def test_folded_the_queue_tells_how_long_something_waits(
    console: ConsoleApp, engine: StandIn, since: timedelta, told: str
) -> None:
    engine.changes.all = [dataclasses.replace(one, created_at=engine.now - since) for one in engine.changes.all]
    engine.permissions.all = []
    async with console.run_test(size=(80, 24)) as pilot:
        await live(pilot)
        await until(pilot, lambda: f", {told}" in screen_text(console))


@pytest.mark.long
async def test_the_queue_leads_to_the_session(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: console.current_mode == "work")
        await until(pilot, lambda: console.screen.session and console.screen.session.id == "sess_000000000002")


@pytest.mark.long
async def test_enter_on_who_or_what_never_ran_leads_somewhere_all_the_same(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with console.run_test(size=(120, 40), notifications=True) as pilot:
        await live(pilot)
        tasks = console.screen.query_one("#tasks", Rows)
        tasks.focus()
        tasks.select("task_2")
        await pilot.press("enter")
        await until(pilot, lambda: "It has not run yet." in screen_text(console))
        agents = console.screen.query_one("#agents", Rows)
        idle = next(
            row.id for row in agents._rows if row.id and all(one.agent != row.id for one in engine.sessions.all)
        )
        agents.focus()
        agents.select(idle)
        await pilot.press("enter")
        await until(pilot, lambda: console.current_mode == "hierarchy")
