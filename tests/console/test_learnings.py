"""The learnings behind key 5: scopes, entries, where each came from and went to, and what retracting one queues."""

from __future__ import annotations

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.learning.decide import Decide
from clawpy_console.screens.learning.learnings import LearningsScreen
from clawpy_console.screens.work.screen import WorkScreen
from clawpy_console.sources import lead_to
from clawpy_console.widgets.rows import Rows
from engine.values import LearningScope, PromptSource, Refusal, SourceKind
from tests.console.conftest import live, screen_text, until
from tests.console.stand_in import StandIn
from tests.console.stand_in_learnings import FOUND, GLOBAL, OLD, PROJECT, PROXY, SESSIONS, TASK
from tests.console.test_snapshots import SIZES, run

WIDE = (150, 50)


async def to_learning(pilot, id: str, *keys: str) -> LearningsScreen:
    """The learnings with the cursor on an entry that was read; `keys` are pressed then."""
    await live(pilot)
    await pilot.press("5", "tab")
    screen = pilot.app.screen
    await until(pilot, lambda: screen.view is not None, "for the learnings")
    screen.query_one("#entries", Rows).select(id)
    await until(pilot, lambda: screen.view and screen.view.entry.id == id, f"for {id}")
    await pilot.press(*keys)
    await pilot.pause()
    return screen


def told(console: ConsoleApp) -> str:
    """What toasts say."""
    return "\n".join(one.message for one in console._notifications)


def noted(engine: StandIn, name: str) -> list[tuple]:
    return [one for one in engine.noted if one[0] == name]


def listed(screen: LearningsScreen) -> list[str]:
    return [row.id for row in screen.query_one("#entries", Rows)._rows]


@pytest.mark.long
async def test_scopes_and_their_entries(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_learning(pilot, PROJECT.id)
        assert len(listed(screen)) == len(engine.learnings.all)
        text = screen_text(console)
        assert "confidence ▇▇▇▇▇▇▇▇▇· 0.90" in text
        assert "it reached 12 prompts" in text
        screen.go_to("scopes")
        await pilot.press("down", "down")
        await until(pilot, lambda: set(listed(screen)) == {PROJECT.id, TASK.id, OLD.id})
        await pilot.press("down")
        await until(pilot, lambda: set(listed(screen)) == {FOUND[0].id, PROXY.id})
        await pilot.press("down", "down")
        await until(pilot, lambda: "institutional.md:14" in screen_text(console))


@pytest.mark.long
async def test_words_and_kinds_are_asked_of_the_engine(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_learning(pilot, PROJECT.id, "slash", *"one process")
        await until(pilot, lambda: listed(screen) == [TASK.id])
        await pilot.press("enter", "escape")
        await until(pilot, lambda: len(listed(screen)) == len(engine.learnings.all))
        await pilot.press("t", "t", "t")
        await until(pilot, lambda: listed(screen) == [PROXY.id])
        assert "only about you" in screen_text(console)
        await pilot.press("escape")
        await until(pilot, lambda: len(listed(screen)) == len(engine.learnings.all))


@pytest.mark.long
async def test_provenance_leads_up_down_and_to_sessions(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_learning(pilot, PROJECT.id, "enter", "enter")  # into the provenance, to its first source
        await until(pilot, lambda: screen.view and screen.view.entry.id == FOUND[0].id)
        assert listed(screen) == [FOUND[0].id]
        await pilot.press("right", "right")
        links = screen.query_one("#links", Rows)
        links.select(f"to:{PROJECT.id}")
        await pilot.press("enter")
        await until(pilot, lambda: screen.view and screen.view.entry.id == PROJECT.id)
        await pilot.press("escape")
        await until(pilot, lambda: len(listed(screen)) > 1)
        screen.query_one("#entries", Rows).select(PROJECT.id)
        await until(pilot, lambda: screen.view and screen.view.entry.id == PROJECT.id)
        screen.go_to("links")
        links.select(f"session:{SESSIONS[1]}")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(console.screen, WorkScreen))
        await until(pilot, lambda: console.screen.session and console.screen.session.id == SESSIONS[1])


@pytest.mark.long
async def test_retracting_says_what_it_queues_and_keeps_the_reason(console: ConsoleApp, engine: StandIn) -> None:
    engine.learns = True
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_learning(pilot, PROJECT.id, "x")
        assert isinstance(console.screen, Decide)
        assert "1 learning was promoted from it" in screen_text(console)
        await pilot.press(*"wrong", "ctrl+s")
        await until(pilot, lambda: screen.view and not screen.view.entry.active)
        assert noted(engine, "retract") == [("retract", PROJECT.id, "wrong")]
        await until(pilot, lambda: "1 learning promoted from it waits for your word" in told(console))
        await until(pilot, lambda: "[learnings 1]" in screen_text(console))
        assert not screen.check_action("retract", ())
        await pilot.press("1")
        console.screen.go_to("queue")
        console.screen.query_one("#queue", Rows).select(GLOBAL.id)
        await pilot.press("enter")
        await until(
            pilot, lambda: isinstance(console.screen, LearningsScreen) and listed(console.screen) == [GLOBAL.id]
        )


@pytest.mark.long
async def test_from_the_project_to_everywhere_at_the_operators_word(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_learning(pilot, TASK.id, "p")
        assert "If you confirm, a copy goes" in screen_text(console)
        await pilot.press("enter")
        await until(pilot, lambda: "⏎ does nothing here: ^s decides" in screen_text(console))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: noted(engine, "promote") == [("promote", TASK.id)])
        made = [one for one in engine.learnings.all.values() if one.scope is LearningScope.GLOBAL]
        assert len(made) == 2
        for other in (GLOBAL.id, PROXY.id, OLD.id):
            screen.query_one("#entries", Rows).select(other)
            await until(pilot, lambda other=other: screen.view and screen.view.entry.id == other)
            assert not screen.check_action("promote", ())


@pytest.mark.long
async def test_a_line_of_a_prompt_leads_here(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await live(pilot)
        lead_to(console, PromptSource(SourceKind.LEARNING, PROJECT.id, "learnt here"), SESSIONS[0])
        await until(pilot, lambda: isinstance(console.screen, LearningsScreen))
        await until(pilot, lambda: console.screen.view and console.screen.view.entry == PROJECT)
        await pilot.pause(0.2)  # scopes were read meanwhile
        assert listed(console.screen) == [PROJECT.id]
        assert "from another screen" in screen_text(console)


@pytest.mark.long
async def test_the_chain_runs_at_a_word_and_says_what_it_did(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await to_learning(pilot, PROJECT.id, "C")
        await until(pilot, lambda: "2 extracted, 1 promoted" in told(console))


@pytest.mark.long
async def test_what_the_engine_refuses_is_said(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["promote"] = Refusal("not_promoted", "the judge does not answer")
    async with console.run_test(size=WIDE) as pilot:
        await to_learning(pilot, TASK.id, "p", "ctrl+s")
        await until(pilot, lambda: "the judge does not answer" in told(console))


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_how_it_looks(console: ConsoleApp, snap_compare, size: str) -> None:
    assert snap_compare(console, terminal_size=SIZES[size], run_before=run("5", "tab", "down", "right"))
