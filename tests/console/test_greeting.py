"""The greeting above the cards: hints of a first run, and a summary after an absence (SPEC 9.3)."""

from datetime import timedelta

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.last_screen import LastScreen, save_last_screen
from clawpy_console.state import AppState
from engine.home import Home
from engine.model import LocalModels, SetupStep
from tests.console.driving import make_console
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW, make_found_agent
from tests.console.stories import (
    CLOSED,
    Given,
    Stories,
    called,
    find_stand_in,
    hides,
    make_story_test,
    never_called,
    play,
    press,
    sees,
)


def serve_koji_core(by: str = "", agents: bool = False, **local: tuple[str, ...]) -> Given:
    """This serves koji-core; these coding agents and models are on this machine."""

    def change(engine: StandIn):
        engine.channel_setup.serves, engine.channel_setup.local = by, LocalModels(**local)
        if agents:
            engine.channel_setup.here = [
                make_found_agent("claude", "Claude Code"),
                make_found_agent("codex", "Codex", "npm i"),
            ]

    return Given(change)


NO_EXTRA = SetupStep("the extra models is missing", "pip install pydantic-ai-slim", "clawpy doctor")
FAULT = "ollama at 127.0.0.1:11434 did not list its models within 0.5 s"
STORIES: Stories = {
    "who could take text, and a key connects it": (
        serve_koji_core(agents=True),
        sees("H connects Claude Code"),
        press("H"),
        sees("once its adapter is installed: npm i"),
        never_called("assign_agent"),
        press("1"),
        called("assign_agent", "claude"),
        sees("run claude"),
        press("escape"),
        CLOSED,
    ),
    "which models of this machine could": (
        serve_koji_core(ids=("ollama:qwen3", "ollama:llama3.2:3b")),
        sees("H connects ollama:qwen3 or"),
        press("H"),
        sees("a model on this machine"),
        press("2"),
        sees("koji-core is served by ollama:llama3.2:3b"),
        called("assign_model", "ollama:llama3.2:3b"),
        called("refresh_runners"),
        CLOSED,
    ),
    "what listens and tells no model": (
        serve_koji_core(faults=(FAULT,)),
        press("H"),
        sees(FAULT, "No coding agent on the PATH"),
    ),
    "the step that is missing now": (
        Given(lambda engine: setattr(engine.channel_setup, "missing", NO_EXTRA)),
        serve_koji_core(),
        sees("your own prompt; the extra models is missing: clawpy doctor"),
        hides("clawpy key set openai"),
    ),
    "who takes text": (
        serve_koji_core("ollama:qwen3"),
        sees("hides this", "text prompts go to ollama:qwen3"),
        hides("no model configured"),
    ),
    "who takes text since a verb connected it": (
        serve_koji_core(),
        sees("no model configured"),
        lambda app: serve_koji_core("acp:mine").change(find_stand_in(app)),
        lambda app: app.reload(["settings"]),
        sees("hides this", "text prompts go to acp:mine"),
        hides("no model configured"),
    ),
    "the hints stay until Escape": (press("left"), sees("hides this"), press("escape"), hides("hides this")),
}


test_a_first_run_offers_agents_and_models = pytest.mark.long(make_story_test(STORIES, size=(200, 60)))


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_the_hints_of_a_first_run_fit_their_lines(console: ConsoleApp, engine: StandIn, size: tuple[int, int]):
    engine.settings.current.keys = {"work.land": "P"}
    lines = (  # each on a line of its own
        "Each card is useful work: → runs it, ← dismisses it, ↑ snoozes it",
        "Changes wait as a diff: 2 shows them, P lands them, u undoes that",
        "n writes your own prompt; no model configured: clawpy key set openai",
        "--workspace DIR adds folders · only what you approve runs · esc hides this",
    )
    await play(console, serve_koji_core(), sees(*lines), size=size)


async def test_a_summary_after_an_absence_stays_until_a_key(home: Home, engine: StandIn):
    since = LastScreen(AppState(), welcomed=True, saved_at=NOW - timedelta(hours=3))
    save_last_screen(home.last_screen, since)
    words = ("While you were away, 3h", "done", "approved", "dismissed", "2 learnings promoted", "spent")
    await play(make_console(home, lambda: engine), sees(*words), press("y"), hides("While you were away"))


async def test_the_first_key_after_an_absence_shows_what_happened(home: Home, engine: StandIn):
    save_last_screen(home.last_screen, LastScreen(AppState(), welcomed=True, saved_at=NOW))

    def let_hours_pass(app: ConsoleApp):
        app.now = lambda: NOW + timedelta(hours=9)

    await play(
        make_console(home, lambda: engine),
        sees("WATCHING"),
        press("j"),
        hides("While you were away"),
        let_hours_pass,
        press("j"),
        sees("While you were away, 9h"),
        press("j"),
        hides("While you were away"),
    )
