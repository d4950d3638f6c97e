"""The learning screen: one list of candidates and learnings, what is under the cursor, and your decisions."""

from __future__ import annotations

import threading

import pytest
from textual.widgets import Input

from clawpy_console.app import ConsoleApp
from clawpy_console.dialogs.question import Question
from clawpy_console.external_programs import open_source
from clawpy_console.screens.learning.screen import DecisionDialog, LearningScreen
from clawpy_console.screens.work.screen import WorkScreen
from clawpy_console.widgets.rows import Rows
from engine.model import LearningScope, PromptSource, Refusal, SourceKind
from engine.model.adaptation import CandidateStatus
from tests.console.conftest import live, running, screen_text, toasts, until, wait_for_text
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.console.stand_in import StandIn
from tests.console.stand_in_learning import (
    CHEAP,
    EMOJI,
    FOUND,
    GLOBAL,
    LINT,
    OLD,
    PROJECT,
    PROXY,
    ROUNDING,
    SESSIONS,
    STOCK,
    TASK,
    TRIES,
)
from tests.console.stories import calls_of
from tests.support.helpers import assert_contains

WIDE = (150, 50)


@pytest.fixture(autouse=True)
def _learns(engine: StandIn) -> None:
    engine.learns = True


async def to(pilot, id: str, *keys: str) -> LearningScreen:
    """The screen with the cursor on a candidate or a learning that was read; `keys` are pressed then."""
    await live(pilot)
    pilot.app.open("learning", id)
    await until(pilot, lambda: isinstance(pilot.app.screen, LearningScreen))
    screen = pilot.app.screen
    await until(pilot, lambda: screen.view is not None and screen.current == id, f"for {id}")
    await pilot.press(*keys)
    await pilot.pause()
    return screen


def listed(screen: LearningScreen) -> list[str]:
    return [row.id for row in screen.query_one("#list", Rows).rows if row.id]


def status(engine: StandIn, id: str) -> CandidateStatus:
    return engine.adaptation.all[id].status


async def test_words_and_groups_filter_both(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to(pilot, ROUNDING.id, "slash", *"chronicler")
        await until(pilot, lambda: listed(screen)[:2] == [CHEAP.id, EMOJI.id])
        await pilot.press("enter", "s")
        assert listed(screen) == [CHEAP.id]
        assert "only: Needs your decision" in screen_text(console)
        await pilot.press("escape", "escape", "slash", *"one process", "enter")
        await until(pilot, lambda: TASK.id in listed(screen) and len(listed(screen)) == 2)
        await pilot.press("escape", "t", "t", "t")
        await until(pilot, lambda: PROXY.id in listed(screen) and ROUNDING.id not in listed(screen))
        assert "only: about you" in screen_text(console)
        await pilot.press("escape")
        await until(pilot, lambda: ROUNDING.id in listed(screen))


@pytest.mark.long
async def test_activating_shows_what_changes_and_can_be_undone(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to(pilot, ROUNDING.id, "a")
        assert isinstance(console.screen, Question)
        text = screen_text(console)
        assert_contains(
            text, "for backend_builder, coding runs in shop", "- 2. Look at what changed since it was green."
        )
        await pilot.press("enter")  # the safe answer
        assert not calls_of(engine, "approve_candidate")
        await pilot.press("a", "y")
        await until(pilot, lambda: status(engine, ROUNDING.id) is CandidateStatus.PROMOTED)
        await wait_for_text(pilot, "● active by you")
        await pilot.press("u")
        await until(pilot, lambda: status(engine, ROUNDING.id) is CandidateStatus.REVIEW)
        assert calls_of(engine, "undo_candidate") == [("undo_candidate", ROUNDING.id)]
        await wait_for_text(pilot, "▲ needs your decision")
        assert not screen.check_action("undo", ())


@pytest.mark.long
async def test_leaving_the_question_decides_nothing(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to(pilot, ROUNDING.id, "a", "escape", "a", "n", "x", "n", "o", "escape")
        assert console.screen is screen
        assert status(engine, ROUNDING.id) is CandidateStatus.REVIEW


@pytest.mark.long
async def test_rejecting_keeps_the_reason(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await to(pilot, TRIES.id, "x")
        assert "Nothing changes in how agents act." in screen_text(console)
        await pilot.press(*"yes few", "enter")
        assert isinstance(console.screen, DecisionDialog)  # Enter decides nothing
        assert console.screen.query_one(Input).value == "yes few"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: status(engine, TRIES.id) is CandidateStatus.REJECTED)
        assert calls_of(engine, "reject_candidate") == [("reject_candidate", TRIES.id, "yes few")]
        await wait_for_text(pilot, "✗ rejected by you")


@pytest.mark.long
async def test_a_key_pressed_while_an_undo_runs_is_answered(console: ConsoleApp, engine: StandIn) -> None:
    answered, undo = threading.Event(), engine.adaptation.undo
    async with console.run_test(size=WIDE, notifications=True) as pilot:
        await to(pilot, STOCK.id, "b")
        assert_contains(
            screen_text(console), "Its changes are removed:", "- 3. Look at what changed since it was green."
        )
        await pilot.press("ctrl+s")
        await wait_for_text(pilot, "▼ rolled back by you")
        engine.adaptation.undo = lambda id: (answered.wait(5), undo(id))[1]
        await pilot.press("u", "a", "u")
        await wait_for_text(pilot, "Undo is still running. Try again in a moment.")
        answered.set()
        await wait_for_text(pilot, "● active")
        assert calls_of(engine, "undo_candidate") == [("undo_candidate", STOCK.id)]


@pytest.mark.long
async def test_keys_that_can_do_nothing_are_not_offered(console: ConsoleApp) -> None:
    offers = {
        ROUNDING.id: {"approve", "reject"}, TRIES.id: {"reject"}, STOCK.id: {"roll back"},
        LINT.id: {"approve", "reject"}, EMOJI.id: set(), TASK.id: {"retract", "promote"}, GLOBAL.id: {"retract"},
        PROXY.id: {"retract"}, OLD.id: set(),
    }  # fmt: skip
    decisions = ("approve", "reject", "roll back", "retract", "keep", "promote")
    async with console.run_test(size=WIDE) as pilot:
        for id, offered in offers.items():
            screen = await to(pilot, id)
            assert {decision for decision in decisions if screen.check_action("decide", (decision,))} == offered, id


@pytest.mark.long
@pytest.mark.parametrize(("call", "id", "keys"), [("approve_candidate", ROUNDING.id, "ay"), ("promote", TASK.id, "py")])
async def test_what_the_engine_refuses_is_said(
    console: ConsoleApp, engine: StandIn, call: str, id: str, keys: str
) -> None:
    engine.refuse[call] = Refusal("refused", "it was decided meanwhile")
    async with console.run_test(size=WIDE) as pilot:
        await to(pilot, id, *keys)
        await until(pilot, lambda: "it was decided meanwhile" in toasts(console))


@pytest.mark.long
async def test_a_record_leads_to_its_session(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to(pilot, ROUNDING.id, "enter", "down", "enter")
        await until(pilot, lambda: "It does not come from a session." in toasts(console))
        assert console.screen is screen
        await pilot.press("up", "enter")
        await until(pilot, lambda: isinstance(console.screen, WorkScreen))
        await until(pilot, lambda: console.screen.session and console.screen.session.id == "sess_000000000002")


@pytest.mark.long
async def test_a_learning_leads_to_its_sources_and_sessions(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to(pilot, PROJECT.id)
        text = screen_text(console)
        assert_contains(text, "confidence  ▇▇▇▇▇▇▇▇▇· 0.90", "reached     12 prompts")
        await pilot.press("enter", "enter")  # into its sources, to the first
        await until(pilot, lambda: screen.view and screen.current == FOUND[0].id)
        links = screen.query_one("#links", Rows)
        links.select(f"learning:{PROJECT.id}")
        await pilot.press("enter", "enter")
        await until(pilot, lambda: screen.view and screen.current == PROJECT.id)
        screen.go_to("links")
        links.select(f"session:{SESSIONS[1]}")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(console.screen, WorkScreen))
        await until(pilot, lambda: console.screen.session and console.screen.session.id == SESSIONS[1])


@pytest.mark.long
async def test_retracting_says_what_it_queues_and_keeps_the_reason(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await to(pilot, PROJECT.id, "x")
        assert "1 learning promoted from it will wait for your decision:" in screen_text(console)
        await pilot.press(*"wrong", "ctrl+s")
        await until(pilot, lambda: calls_of(engine, "retract") == [("retract", PROJECT.id, "wrong")])
        await until(pilot, lambda: "1 learning promoted from it: check below “Needs your decision”" in toasts(console))
        await wait_for_text(pilot, "Needs your decision  3")
        await to(pilot, GLOBAL.id, "a")
        await until(pilot, lambda: calls_of(engine, "keep") == [("keep", GLOBAL.id)])


@pytest.mark.long
async def test_a_learning_of_a_project_is_applied_everywhere(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await to(pilot, TASK.id, "p")
        await wait_for_text(pilot, "If you confirm, a copy goes")
        await pilot.press("y")
        await until(pilot, lambda: calls_of(engine, "promote") == [("promote", TASK.id)])
        assert sum(learning.scope is LearningScope.GLOBAL for learning in engine.learnings.all.values()) == 2


async def test_what_recurs_is_promoted_now(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await to(pilot, PROJECT.id, "C")
        await until(pilot, lambda: "2 found, 1 promoted" in toasts(console))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "id"), [(SourceKind.OVERLAY, STOCK.id), (SourceKind.LEARNING, PROJECT.id)])
async def test_a_line_of_a_prompt_leads_here(console: ConsoleApp, kind: SourceKind, id: str) -> None:
    async with running(console, size=WIDE) as pilot:
        open_source(console, PromptSource(kind, id, "learned here"), SESSIONS[0])
        await until(pilot, lambda: isinstance(console.screen, LearningScreen) and console.screen.current == id)


@pytest.mark.long
async def test_what_waits_in_mission_control_leads_here(console: ConsoleApp) -> None:
    async with running(console, size=WIDE) as pilot:
        console.screen.go_to("queue")
        console.screen.query_one("#queue", Rows).select(CHEAP.id)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(console.screen, LearningScreen) and console.screen.current == CHEAP.id)


async def test_a_candidate_that_is_gone_is_said(console: ConsoleApp) -> None:
    async with running(console, size=WIDE) as pilot:
        console.open("learning", "cand_gone")
        await until(pilot, lambda: "cand_gone no longer exists" in toasts(console))


async def test_an_empty_list_says_how_it_fills(console: ConsoleApp, engine: StandIn) -> None:
    engine.adaptation.all, engine.learnings.all = {}, {}
    engine.learnings.scopes = lambda: []
    async with running(console, "5", size=WIDE) as pilot:
        await wait_for_text(pilot, "Learnings come from sessions")


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("id", [ROUNDING.id, STOCK.id, PROJECT.id], ids=["candidate", "lift", "learning"])
def test_how_it_looks(console: ConsoleApp, compare_snapshot: CompareSnapshot, size: str, id: str) -> None:
    compare_snapshot(console, size, "right", go=lambda pilot: to(pilot, id))


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_how_it_looks_before_anything_was_learned(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, size: str
) -> None:
    engine.adaptation.all, engine.learnings.all = {}, {}
    engine.learnings.scopes = lambda: []
    compare_snapshot(console, size, "5")


@pytest.mark.long
def test_how_the_question_looks(console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot) -> None:
    engine.settings.current.console.theme = "clawpy-high-contrast"
    compare_snapshot(console, "80x24", "5", "a")
