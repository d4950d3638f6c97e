"""The start of a console (SPEC 11.4): what is imported before the first frame, and what that shows and keeps until the
engine is open."""

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from textual.pilot import Pilot
from textual.widgets import Tooltip

from clawpy_console.app import ConsoleApp
from clawpy_console.last_screen import LastScreen, save_last_screen
from clawpy_console.state import AppState
from clawpy_console.widgets.frame import Frame
from engine.home import Home
from tests.console import stand_in_data
from tests.console.card_steps import find_stack
from tests.console.driving import make_console, read_screen, running, until, until_loaded, until_shown
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.support.helpers import assert_contains

HEAVY = (
    "sqlalchemy", "sqlmodel", "pydantic", "chromadb", "apscheduler", "keyring", "watchfiles", "numpy",
    "tomlkit", "fastapi", "bashlex", "psutil", "filelock", "sqlite3", "email",
)  # fmt: skip
"""Packages that take long to import."""

LIGHT = {
    "engine", "engine.files", "engine.frozen", "engine.home", "engine.installed",
    "engine.model", "engine.model.base", "engine.model.cards", "engine.model.rails", "engine.model.sessions",
    "engine.model.text", "engine.git", "engine.git.command", "engine.git.environment", "engine.git.repository",
}  # fmt: skip
"""What is imported of the engine before the first frame. `engine.git` finds the repository of the current folder."""


class SlowEngine:
    """A stand-in engine that is opened when a test says so."""

    def __init__(self):
        self.engine = StandIn()
        self.may_open = threading.Event()

    def open(self) -> StandIn:
        assert self.may_open.wait(10)
        return self.engine


@pytest.fixture
def slow_engine() -> Iterator[SlowEngine]:
    slow = SlowEngine()
    yield slow
    slow.may_open.set()


@pytest.fixture
def waiting_console(home: Home, slow_engine: SlowEngine) -> ConsoleApp:
    """A console that showed cards when it was left, and whose engine is not open yet."""
    last_state = AppState(cards=tuple(stand_in_data.read_stack()), workspaces=(stand_in_data.SHOP,))
    save_last_screen(home.last_screen, LastScreen(last_state, saved_at=NOW))
    return make_console(home, slow_engine.open)


@pytest.mark.long
def test_importing_the_app_imports_nothing_heavy():
    imported = "clawpy_console.cli.main, engine.git, clawpy_console.attach.consoles, clawpy_console.app"
    code = f"import json, sys, {imported}; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert [item for item in loaded if item.partition(".")[0] in HEAVY] == []
    assert {item for item in loaded if item.partition(".")[0] == "engine"} == LIGHT
    screens = {item.rpartition(".")[2] for item in loaded if item.startswith("clawpy_console.screens.")}
    assert screens == {"base", "card_stack", "mission", "mission_panes"}


@pytest.mark.long
async def test_the_first_frame_shows_the_last_known_cards(waiting_console: ConsoleApp, slow_engine: SlowEngine):
    async with waiting_console.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert_contains(read_screen(waiting_console), "Run the tests of the 3 modules", "opening")
        slow_engine.may_open.set()
        await until_loaded(pilot)
        assert "WATCHING" in read_screen(waiting_console)


async def test_a_screen_has_no_widget_for_tooltips(home: Home, engine: StandIn):
    async def look(pilot: Pilot[None]):
        await until_loaded(pilot)
        widgets.extend(pilot.app.screen.children)
        pilot.app.exit()

    widgets = []
    await make_console(home, lambda: engine).run_async(headless=True, size=(120, 40), auto_pilot=look)
    assert any(isinstance(widget, Frame) for widget in widgets)
    assert not any(isinstance(widget, Tooltip) for widget in widgets)


@pytest.mark.long
async def test_a_decision_before_the_engine_is_open_is_refused_and_the_card_stays(
    waiting_console: ConsoleApp, slow_engine: SlowEngine
):
    first, *_ = stand_in_data.read_stack()
    async with waiting_console.run_test(size=(120, 40)) as pilot:
        await pilot.press("right")
        await until_shown(pilot, "still starting")
        assert find_stack(waiting_console).front.id == first.id
        slow_engine.may_open.set()


@pytest.mark.long
async def test_a_prompt_before_the_engine_is_open_is_kept_and_can_be_sent_then(
    waiting_console: ConsoleApp, slow_engine: SlowEngine
):
    async with waiting_console.run_test(size=(120, 40)) as pilot:
        await pilot.press("n", *"run", "ctrl+s")
        await until(pilot, lambda: waiting_console.last.draft == "run")
        slow_engine.may_open.set()
        await until(pilot, lambda: waiting_console.engine is slow_engine.engine)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: ("propose", "run", stand_in_data.SHOP) in slow_engine.engine.call_log)


async def test_garbage_is_collected_after_the_first_frame(home: Home, engine: StandIn):
    gc.disable()
    try:
        async with running(make_console(home, lambda: engine)) as pilot:
            await until(pilot, gc.isenabled)
    finally:
        gc.enable()


async def test_output_of_the_last_screens_session_is_read_once_the_engine_is_open(home: Home, engine: StandIn):
    last_state = AppState(sessions=tuple(engine.sessions.all[1:]))
    save_last_screen(home.last_screen, LastScreen(last_state, saved_at=NOW))
    engine.sessions.all = list(last_state.sessions)
    console = make_console(home, lambda: engine)
    async with running(console, size=(200, 60)) as pilot:
        text = engine.sessions.transcripts[last_state.sessions[0].id][-1].text
        await until_shown(pilot, "LAST OUTPUT", text[:30])
