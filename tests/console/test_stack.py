"""The card stack: decisions, undo, refusals, and what comes while somebody looks at it."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.mission.stack import KINDS_OF_WORK, kind_of_work, work_facts
from clawpy_console.widgets.rows import Rows
from engine.execution.runners.flows import FLOWS
from engine.model import RailVerdict, Refusal, Status, Tier, Verdict
from tests.console import stand_in
from tests.console.conftest import running, screen_text, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stories import FIRST, RISKY, SECOND, calls_of, front, shown, stack
from tests.support.helpers import assert_contains


@pytest.mark.parametrize(
    ("key", "call"),
    [("right", "approve"), ("l", "approve"), ("left", "dismiss"), ("h", "dismiss"), ("up", "snooze"), ("s", "snooze")],
)
async def test_a_swipe_decides_the_card_on_screen_and_the_next_stands_there(
    console: ConsoleApp, engine: StandIn, key: str, call: str
) -> None:
    async with running(console) as pilot:
        assert front(console) == FIRST
        await pilot.press(key)
        assert front(console) == SECOND  # at once, before the engine answered
        await until(pilot, lambda: calls_of(engine, call))
        assert calls_of(engine, "approve", "dismiss", "snooze")[0][:2] == (call, FIRST)
        await until(pilot, lambda: all(card.id != FIRST for card in console.state.cards))
        assert front(console) == SECOND


async def test_a_refusal_brings_the_card_back_with_its_reason(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["approve"] = Refusal("blocked", "cost: the hour's cap is reached", "wait until 15:00")
    async with running(console, "right") as pilot:
        await until(pilot, lambda: front(console) == FIRST)
        assert "the hour's cap is reached" in screen_text(console)
        assert "wait until 15:00" in shown(console, console.screen.query_one("#message").region)


WHY = "the content filter would stop it: it deletes outside the workspace, where nothing of a session is undone"


MEND = (
    "edit its prompt in the details so that it names a folder of the workspace, or allow exactly this once on screen 6"
)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("key", ["approve", "undo"])
async def test_the_whole_of_a_refusal_can_be_read(
    console: ConsoleApp, engine: StandIn, key: str, size: tuple[int, int]
) -> None:
    engine.refuse[key] = Refusal("blocked", WHY, MEND)
    async with running(console, *(["right"] if key == "approve" else ["left", "u"]), size=size) as pilot:
        message = console.screen.query_one("#message")
        await until(pilot, lambda: "✗" in shown(console, message.region))
        assert shown(console, message.region) == f"✗ {WHY} ({MEND})"
        assert stack(console).region.height >= 9
        await until(pilot, stack(console)._accepts_decisions)
        await pilot.press("left")
        await until(pilot, lambda: message.region.height == 1)


async def test_undo_takes_back_the_last_decision_then_the_one_before(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "left") as pilot:
        await pilot.press("left")
        await until(pilot, lambda: len(calls_of(engine, "dismiss")) == 2)
        assert "CARDS  1 of 3" in screen_text(console)
        await pilot.press("u")
        await pilot.press("u")
        await until(pilot, lambda: len(calls_of(engine, "undo")) == 2)
        assert [call[1] for call in calls_of(engine, "undo")] == [SECOND, FIRST]
        await until(pilot, lambda: len(console.state.cards) == 5)
        assert "CARDS  1 of 5" in screen_text(console)
        await pilot.press("u")
        await wait_for_text(pilot, "Nothing to undo.")


@pytest.mark.long
async def test_a_card_taken_back_is_on_top_at_once_and_stays(console: ConsoleApp, engine: StandIn) -> None:
    answered = threading.Event()
    snooze, undo = engine.cards.snooze, engine.cards.undo
    engine.cards.snooze = lambda *a, **k: (answered.wait(5), snooze(*a, **k))[1]  # type: ignore[method-assign]
    async with running(console, "s", "u") as pilot:
        assert front(console) == FIRST
        assert "CARDS  1 of 5" in screen_text(console)
        assert not calls_of(engine, "snooze", "undo")  # nothing has reached the engine yet
        console.reload(["cards"])
        answered.set()
        await until(pilot, lambda: calls_of(engine, "undo") and not console._is_reading)
        assert [call[0] for call in calls_of(engine, "snooze", "undo")] == ["snooze", "undo"]
        assert front(console) == FIRST
        assert len(stack(console).cards) == 5
        engine.cards.snooze, engine.cards.undo = snooze, undo  # type: ignore[method-assign]
        engine.cards.all.pop(FIRST)  # what was taken back does not outlive what the engine says later
        console.reload(["cards"])
        await until(pilot, lambda: front(console) == SECOND)


async def test_an_undo_that_is_refused_leaves_again_with_its_reason(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "left") as pilot:
        await until(pilot, lambda: calls_of(engine, "dismiss"))
        engine.refuse["undo"] = Refusal("too_late", "it ran to its end already", "look at its session")
        await pilot.press("u")
        await until(pilot, lambda: front(console) == SECOND)
        assert_contains(screen_text(console), "it ran to its end already", "CARDS  1 of 4")


@pytest.mark.long
async def test_a_risky_card_needs_its_own_second_key_and_never_enter(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "left", "left") as pilot:
        assert front(console) == RISKY
        assert "touches production" in screen_text(console)
        await pilot.press("A")  # not before its reason was pointed out
        await pilot.press("right", "right", "l")
        assert front(console) == RISKY
        assert stack(console).armed
        await pilot.press("enter")
        await pilot.press("enter")
        await pilot.press("escape")
        assert not calls_of(engine, "approve")
        assert front(console) == RISKY
        await pilot.press("right", "A")
        await until(pilot, lambda: calls_of(engine, "approve"))
        assert calls_of(engine, "approve")[0][1] == RISKY


async def test_keys_are_ignored_for_a_moment_after_the_card_changed_under_the_hands(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with running(console) as pilot:
        now = [100.0]
        stack(console).clock = lambda: now[0]
        engine.cards.all.pop(FIRST)  # withdrawn while the operator looks at it
        console.reload(["cards"])
        await until(pilot, lambda: front(console) == SECOND)
        now[0] += 0.149
        await pilot.press("right")
        assert front(console) == SECOND
        now[0] += 0.002
        await pilot.press("right")
        assert front(console) == RISKY  # and one's own swipe makes nobody wait
        await pilot.press("left")
        assert front(console) == "pred_000000000005"


async def test_a_new_card_never_takes_the_place_of_the_one_on_screen(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console) as pilot:
        engine.cards.all = {"pred_new": stand_in.card(77, "Something hotter", confidence=0.79), **engine.cards.all}
        console.reload(["cards"])
        await until(pilot, lambda: len(stack(console).cards) == 6)
        assert front(console) == FIRST


def rows(app: ConsoleApp) -> Rows:
    """The list of cards under the card that is shown."""
    return app.screen.query_one("#cards", Rows)


async def test_down_j_and_k_show_another_card_and_the_keys_decide_the_one_that_is_shown(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with running(console) as pilot:
        assert "CARDS  1 of 5" in screen_text(console)
        assert [row.mark.strip() for row in rows(console).rows] == ["BROKEN", "BLOCKS", "BLOCKS", "CHECK", "UPKEEP"]
        await pilot.press("j", "down")
        await wait_for_text(pilot, "CARDS  3 of 5")
        assert rows(console).current == front(console) == RISKY
        await pilot.press("k")
        assert front(console) == SECOND
        await pilot.press("k", "k")
        await wait_for_text(pilot, "CARDS  5 of 5")  # from the first to the last
        assert not calls_of(engine, "approve", "dismiss", "snooze")
        await pilot.press("j", "j", "left")
        await until(pilot, lambda: calls_of(engine, "dismiss"))
        assert calls_of(engine, "dismiss") == [("dismiss", SECOND)]
        assert "CARDS  2 of 4" in screen_text(console)  # the next card stands at the same place
        assert rows(console).current == front(console) == RISKY


async def click(pilot: Pilot, text: str) -> None:
    """Click on the last place of the screen that says `text`."""
    lines = screen_text(pilot.app).split("\n")
    y = max(number for number, line in enumerate(lines) if text in line)
    await pilot.click(offset=(lines[y].rindex(text) + 1, y))
    await pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_click_on_a_row_shows_its_card_and_a_second_one_its_details(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int]
) -> None:
    async with running(console, size=size) as pilot:
        await pilot.press("escape", *(["tab"] if size[0] > 80 else []))  # on a narrow terminal another pane hides them
        await click(pilot, "Rehearse merging")
        assert front(console) == RISKY
        assert stack(console).has_focus  # the keys of the cards work at once
        assert "CARDS  3 of 5" in screen_text(console)
        await click(pilot, "Rehearse merging")
        await wait_for_text(pilot, "Card details")
        await pilot.press("escape")
        await click(pilot, "← dismiss")  # a key of the footer
        await until(pilot, lambda: calls_of(engine, "dismiss") == [("dismiss", RISKY)])


@pytest.mark.parametrize("engine_says", ["decided", "new"])
async def test_the_count_is_of_what_is_pending(console: ConsoleApp, engine: StandIn, engine_says: str) -> None:
    async with running(console, "j", "j") as pilot:
        if engine_says == "decided":  # elsewhere: on the phone, or by another program
            engine.cards._decide(FIRST, Status.REJECTED)
        else:
            engine.cards.all["pred_new"] = stand_in.card(77, "Something else", tier=Tier.UPKEEP)
        console.reload(["cards"])
        place = "2 of 4" if engine_says == "decided" else "3 of 6"
        await wait_for_text(pilot, f"CARDS  {place}")
        assert front(console) == RISKY


async def test_the_card_you_look_at_stays_whatever_comes_before_it(console: ConsoleApp) -> None:
    async with running(console):
        shown = stack(console)
        check = replace(shown.cards[0], id="pred_check", tier=Tier.CHECK)
        shown.show([check], empty="")
        secret = replace(check, id="pred_secret", tier=Tier.BROKEN)
        shown.show([secret, check], empty="")
        assert front(console) == "pred_check"
        shown.show([secret], empty="")
        assert front(console) == "pred_secret", "what is decided makes room"


async def test_predict_now_and_filter_by_workspace(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "p") as pilot:
        await until(pilot, lambda: ("run_cycle", True) in engine.noted)
        await wait_for_text(pilot, "Nothing new.")
        await pilot.press("w", "w")
        assert front(console) == "pred_000000000004"
        assert "only blog" in screen_text(console)
        await pilot.press("w")
        assert len(stack(console).cards) == 5


async def test_the_empty_stack_says_when_the_next_look_is(console: ConsoleApp, engine: StandIn) -> None:
    engine.cards.all = {}
    async with running(console) as pilot:
        assert "Next check: 14:30" in screen_text(console)
        await pilot.press("right", "left", "up", "enter")
        assert not calls_of(engine, "approve", "dismiss", "snooze")


async def test_the_card_on_screen_counts_as_shown_once(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "left") as pilot:
        await until(pilot, lambda: len(calls_of(engine, "mark_shown")) == 2)
        assert calls_of(engine, "mark_shown") == [("mark_shown", FIRST), ("mark_shown", SECOND)]


def front_prompt(app: ConsoleApp) -> str:
    card = stack(app).front
    return card.assignment.prompt if card else ""


HOSTILE = [
    "[/foo] [b]bold",
    "[@click=app.quit]x[/]",
    "a [link=http://x]b",
    "漢字 🎉 👩‍👩‍👧‍👦 e\u0301",
    "x" * 4000,
    "$accent $ %s {0}",
]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_text_from_elsewhere_is_shown_literally_and_breaks_no_column(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int]
) -> None:
    first = engine.cards.all[FIRST]
    async with running(console, size=size) as pilot:
        for text in HOSTILE:
            engine.cards.all[FIRST] = dataclasses.replace(
                first,
                assignment=dataclasses.replace(first.assignment, prompt=text),
                reasoning=text,
                note=text,
                undo_note=text,
                signals=(dataclasses.replace(first.signals[4], evidence=(text,)),),
                verdicts=(RailVerdict("content", Verdict.BLOCK, text, text),),
            )
            console.reload(["cards"])
            await until(pilot, lambda text=text: front_prompt(console) == text)
            await pilot.pause()
            strips = console.screen._compositor.render_strips()
            assert {sum(segment.cell_length for segment in strip) for strip in strips} == {size[0]}
            assert text[:12].split(" 🎉")[0] in screen_text(console)
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("escape")


def test_every_flow_has_a_kind_of_work_that_a_card_can_say() -> None:
    assert {flow for flows in KINDS_OF_WORK.values() for flow in flows} == set(FLOWS)
    assert kind_of_work(stand_in.card(1, "x", flow="lint")) == "lint"
    assert kind_of_work(stand_in.card(1, "x", flow="tidy_imports")) == "tidy imports"  # one that was learned
    assert kind_of_work(stand_in.card(1, "x", flow=None)) == "koji-core"  # an agent or a model serves it


def test_what_costs_nothing_shows_no_cost() -> None:
    assert "est. $0.05" in work_facts(stand_in.card(1, "x", estimate=50_000))
    assert "$" not in work_facts(stand_in.card(1, "x", estimate=0))
