"""The start of a console (SPEC 11.4): what is imported before the first frame, and what that shows and keeps until the
engine is open."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.last_screen import LastScreen, save_last_screen
from clawpy_console.state import AppState
from engine.home import Home
from engine.model import Refusal
from tests.console import stand_in_data
from tests.console.card_steps import find_stack
from tests.console.driving import make_console, read_screen, until, until_loaded, until_shown
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


REFUSAL = Refusal("home_held", "another clawpy (process 4711) holds it", "use --home")


@pytest.mark.parametrize(
    "error, texts",
    [(REFUSAL, ("4711", "use --home")), (RuntimeError("disk on fire"), ("disk on fire",))],
    ids=["a_refusal", "an_unexpected_error"],
)
async def test_the_operator_leaves_with_exit_code_1(home: Home, error: Exception, texts: tuple[str, ...]):
    def open_engine() -> StandIn:
        raise error

    console = make_console(home, open_engine)
    async with console.run_test() as pilot:
        await until_shown(pilot, *texts, "try again")
        await pilot.press("q")
    assert console.return_code == 1


@pytest.mark.parametrize("error", [REFUSAL, RuntimeError("disk on fire")], ids=["a_refusal", "an_unexpected_error"])
async def test_the_second_try_opens_the_console(home: Home, error: Exception):
    errors = [error]

    def open_engine() -> StandIn:
        if errors:
            raise errors.pop()
        return StandIn()

    console = make_console(home, open_engine)
    async with console.run_test() as pilot:
        await until_shown(pilot, "try again")
        await pilot.press("r")
        await until_loaded(pilot)
        assert len(console.screen_stack) == 1, "the question is gone"
    assert console.return_code != 1
