"""The first frame (SPEC 11.4): imports before it, the last screen, an engine that cannot be opened."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading

import pytest

from clawpy_console.state import AppState, LastScreen, save_last_screen
from engine.home import Home
from engine.model import Refusal
from tests.console import stand_in_data
from tests.console.driving import make_console, read_screen, running, until, until_loaded, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.support.helpers import assert_contains

HEAVY = (
    "sqlalchemy", "sqlmodel", "pydantic", "chromadb", "apscheduler", "keyring", "watchfiles", "numpy",
    "tomlkit", "fastapi", "bashlex", "psutil", "filelock", "sqlite3", "email",
)  # fmt: skip
LIGHT = {
    "engine", "engine.files", "engine.frozen", "engine.home", "engine.installed", "engine.model",
    "engine.git", "engine.git.command", "engine.git.environment", "engine.git.repository",
}  # fmt: skip
"""What is imported of the engine before the first frame. `engine.git` finds the repository of the current folder."""


@pytest.mark.long
def test_importing_the_app_imports_nothing_heavy() -> None:
    imported = "clawpy_console.cli.main, engine.git, clawpy_console.attach.consoles, clawpy_console.app"
    code = f"import json, sys, {imported}; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert [item for item in loaded if item.partition(".")[0] in HEAVY] == []
    engine = {item for item in loaded if item.partition(".")[0] == "engine" and not item.startswith("engine.model.")}
    assert engine == LIGHT
    screens = {item.rpartition(".")[2] for item in loaded if item.startswith("clawpy_console.screens.")}
    assert screens == {"base", "card_stack", "mission", "mission_panes"}


@pytest.mark.long
async def test_the_first_frame_shows_the_last_known_cards_before_the_engine_is_open(home: Home) -> None:
    last_state = AppState(cards=tuple(stand_in_data.cards()), workspaces=(stand_in_data.SHOP,))
    save_last_screen(home.last_screen, LastScreen(last_state, saved_at=NOW))
    opened = threading.Event()
    engine = StandIn()

    def slow() -> StandIn:
        assert opened.wait(10)
        return engine

    app = make_console(home, slow)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        text = read_screen(app)
        assert_contains(text, "Run the tests of the 3 modules", "opening")
        await pilot.press("right")  # a decision before the engine is there is not lost in silence
        await until(pilot, lambda: "still starting" in read_screen(app))
        assert app.screen.query_one("#stack").front.id == last_state.cards[0].id
        await pilot.press("n", *"run", "ctrl+s")  # nor is a prompt
        await until(pilot, lambda: app.last.draft == "run")
        opened.set()
        await until(pilot, lambda: app.engine is engine)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: ("propose", "run", stand_in_data.SHOP) in engine.call_log)
        await until_loaded(pilot)
        assert "WATCHING" in read_screen(app)


async def test_garbage_is_collected_after_the_first_frame(home: Home, engine: StandIn) -> None:
    gc.disable()
    try:
        async with running(make_console(home, lambda: engine)) as pilot:
            await until(pilot, gc.isenabled)
    finally:
        gc.enable()


async def test_output_of_the_last_screens_session_is_read_once_the_engine_is_open(home: Home, engine: StandIn) -> None:
    last_state = AppState(sessions=tuple(engine.sessions.all[1:]))
    save_last_screen(home.last_screen, LastScreen(last_state, saved_at=NOW))
    engine.sessions.all = list(last_state.sessions)
    console = make_console(home, lambda: engine)
    async with running(console, size=(200, 60)) as pilot:
        text = engine.sessions.transcripts[last_state.sessions[0].id][-1].text
        await wait_for_text(pilot, "LAST OUTPUT", text[:30])


@pytest.mark.parametrize(
    ("error", "texts"),
    [
        (Refusal("home_held", "another clawpy (process 4711) holds it", "use --home"), ("4711", "use --home")),
        (RuntimeError("disk on fire"), ("disk on fire",)),
    ],
    ids=["a_refusal", "an_unexpected_error"],
)
@pytest.mark.parametrize("key", ["r", "q"])
async def test_a_home_that_cannot_be_opened_is_explained_and_tried_again_or_left(
    home: Home, error: Exception, texts: tuple[str, ...], key: str
) -> None:
    errors = [error]

    def open_engine() -> StandIn:
        if errors:
            raise errors.pop()
        return StandIn()

    app = make_console(home, open_engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, *texts, "try again")
        await pilot.press(key)
        if key == "r":
            await until_loaded(pilot)
            assert len(app.screen_stack) == 1
    assert (app.return_code == 1) is (key == "q")
