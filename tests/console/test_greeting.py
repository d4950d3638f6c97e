"""The lines above the stack: a first run, and what happened while nobody looked."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.fields.states import LEARNED_FORMS, absence_fields
from clawpy_console.palette import commands
from engine.model import LocalModels
from tests.console import stand_in
from tests.console.conftest import make_console, running, screen_text, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import found_agent
from tests.console.stories import calls_of


async def test_the_first_run_says_who_could_take_prose_and_a_key_hires_it(console: ConsoleApp, engine: StandIn) -> None:
    engine.channel_setup.serves, engine.channel_setup.here = (
        "",
        [found_agent("claude", "Claude Code"), found_agent("codex", "Codex", "npm i")],
    )
    async with running(console) as pilot:
        await wait_for_text(pilot, "H connects Claude Code")
        await pilot.press("H")
        await wait_for_text(pilot, "once its adapter is installed: npm i")
        assert not calls_of(engine, "assign_agent")
        await pilot.press("1")
        await until(pilot, lambda: calls_of(engine, "assign_agent") == [("assign_agent", "claude")])
        await wait_for_text(pilot, "run claude")
        await pilot.press("escape")
        assert len(console.screen_stack) == 1


async def test_the_first_run_says_which_models_of_this_machine_could(console: ConsoleApp, engine: StandIn) -> None:
    engine.channel_setup.serves, engine.channel_setup.local = "", LocalModels(("ollama:qwen3", "ollama:llama3.2:3b"))
    async with running(console, notifications=True) as pilot:
        await wait_for_text(pilot, "H connects ollama:qwen3 or")
        await pilot.press("H")
        await wait_for_text(pilot, "a model on this machine")
        await pilot.press("2")
        await wait_for_text(pilot, "koji-core is served by ollama:llama3.2:3b")
        assert calls_of(engine, "assign_model") == [("assign_model", "ollama:llama3.2:3b")]
        assert calls_of(engine, "refresh_runners") == [("refresh_runners",)]
        assert len(console.screen_stack) == 1


@pytest.mark.long
async def test_what_listens_and_tells_no_model_is_told_of_when_one_is_looked_for(
    console: ConsoleApp, engine: StandIn
) -> None:
    fault = "ollama at 127.0.0.1:11434 did not list its models within 0.5 s"
    engine.channel_setup.serves, engine.channel_setup.local = "", LocalModels(faults=(fault,))
    async with running(console, "H", size=(200, 60), notifications=True) as pilot:
        await wait_for_text(pilot, "ollama at 127.0.0.1:11434 did not list its")
        assert "No coding agent on the PATH" in screen_text(console)


async def test_the_first_run_says_who_takes_prose_where_somebody_does(console: ConsoleApp, engine: StandIn) -> None:
    engine.channel_setup.serves = "ollama:qwen3"
    async with running(console, size=(200, 60)) as pilot:
        await wait_for_text(pilot, "hides this")
        assert "text prompts go to ollama:qwen3" in screen_text(console)
        assert "no model configured" not in screen_text(console)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_the_first_run_says_what_to_press_and_what_happens(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int]
) -> None:
    engine.channel_setup.serves = ""
    engine.settings.current.keys = {"work.land": "P"}
    async with running(console, size=size) as pilot:
        await wait_for_text(pilot, "hides this")
        for said in (
            "Each card is useful work: → runs it, ← dismisses it, ↑ snoozes it",
            "Changes wait as a diff: 2 shows them, P lands them, u undoes that",
            "n writes your own prompt; no model configured: clawpy key set openai",
            "--workspace DIR adds folders · nothing runs by itself · esc hides this",
        ):
            assert said in screen_text(console)  # each on a line of its own


async def test_the_first_run_line_goes_with_escape_for_good(console: ConsoleApp, home) -> None:
    async with running(console) as pilot:
        assert "hides this" in screen_text(console)
        await pilot.press("left")
        assert "hides this" in screen_text(console)
        await pilot.press("escape")
        await pilot.pause()
        assert "hides this" not in screen_text(console)
        await console._save()
    from clawpy_console import state

    assert state.load(home.last_screen).welcomed


async def test_after_an_absence_five_lines_until_a_key(home, engine: StandIn) -> None:

    from clawpy_console import state
    from clawpy_console.state import AppState

    since = stand_in.NOW - timedelta(hours=3)
    state.save(home.last_screen, state.LastScreen(AppState(), welcomed=True, saved_at=since))
    app = make_console(home, lambda: engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "While you were away, 3h" in screen_text(app))
        text = screen_text(app)
        for word in ("done", "approved", "dismissed", "learned", "spent"):
            assert word in text
        assert "2 learnings promoted" in text
        await pilot.press("y")
        await pilot.pause()
        assert "While you were away" not in screen_text(app)


def test_what_could_not_run_is_no_decision_and_what_found_a_problem_no_failure() -> None:
    states = (("succeeded", "failed"), ("failed", "failed"), ("cannot_run", "cannot_run"), ("discarded", "succeeded"))
    away = {
        "ran": [{"state": state, "result": result, "mode": "approved"} for state, result in states],
        "blocked": [], "approved": 4, "rejected": 1, "approvedByItself": 0, "spent": 0,
        "learnt": dict.fromkeys(LEARNED_FORMS, 0),
    }  # fmt: skip
    said = {field.name: field.text for field in absence_fields(away)}
    assert said["done"] == "4 sessions, 1 found a problem, 2 did not finish"
    assert (said["approved"], said["learned"]) == ("4", "nothing new, from 4 decisions")


# Resuming after a stop asks first, from the palette as from the safety screen.


@pytest.mark.long
@pytest.mark.parametrize("screen", ["1", "6"])
async def test_the_palette_resumes_after_a_stop_only_after_y(console: ConsoleApp, engine: StandIn, screen: str) -> None:
    async with running(console, screen, "f12") as pilot:
        await until(pilot, lambda: console.state.holds)
        [resume] = [
            command for command in commands(console, console.screen) if command.title == "Resume after the stop"
        ]
        resume.callback()
        await until(pilot, lambda: len(console.screen_stack) == 2)
        await pilot.press("enter")  # the safe answer: nothing is resumed
        await until(pilot, lambda: len(console.screen_stack) == 1)
        assert not any(call[0] == "resume" for call in engine.noted)
        await pilot.press("R", "y")
        await until(pilot, lambda: ("resume", "stop") in engine.noted)
