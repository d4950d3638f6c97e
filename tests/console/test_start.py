"""The start of a console (SPEC 11.4): what is imported before the first frame, and what that shows and keeps until the
engine is open."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.last_screen import (
    LAST_SCREEN_VERSION,
    LastScreen,
    load_last_screen,
    save_last_screen,
    trim_last_screen,
)
from clawpy_console.state import TOPICS, AppState, ReadScope, read_topics
from engine.home import Home
from engine.model import Refusal
from engine.text import compute_text_hash
from tests.console import stand_in_data
from tests.console.card_steps import find_stack
from tests.console.driving import make_console, read_screen, running, until_loaded, until_shown
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.support.checks import assert_contains

HEAVY = (
    "sqlalchemy", "sqlmodel", "pydantic", "chromadb", "apscheduler", "keyring", "watchfiles", "numpy",
    "tomlkit", "fastapi", "bashlex", "psutil", "filelock", "sqlite3", "email",
)  # fmt: skip
"""Packages that take long to import."""

LIGHT = {
    "engine", "engine.files", "engine.frozen", "engine.home", "engine.installed",
    "engine.model", "engine.model.cards", "engine.model.changes", "engine.model.layers",
    "engine.model.rails", "engine.model.refusal", "engine.model.sessions",
    "engine.text", "engine.wording", "engine.git", "engine.git.environment", "engine.git.repository",
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
    assert screens == {"card_stack", "card_view", "mission", "mission_panes"}


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


REFUSAL = Refusal("home_held", "another clawpy (process 4711) holds it", "use --home")


async def test_a_console_whose_engine_cannot_be_opened_says_why_and_ends_with_1(home: Home):
    errors = [RuntimeError("disk on fire"), REFUSAL]

    def open_engine() -> StandIn:
        raise errors.pop()

    console = make_console(home, open_engine)
    async with console.run_test() as pilot:
        await until_shown(pilot, "4711", "use --home", "try again")
        await pilot.press("r")
        await until_shown(pilot, "disk on fire", "try again")
        await pilot.press("q")
    assert console.return_code == 1


async def test_the_second_try_opens_the_console(home: Home):
    errors = [REFUSAL]

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


async def test_a_repository_that_is_not_watched_is_named_with_the_reason(home: Home):
    console = make_console(home, StandIn)
    console.workspace_refusal = Refusal("bare", "/srv/shop is a bare repository", "open a clone of it")
    async with console.run_test() as pilot:
        await until_shown(pilot, "Not this repository", "is a bare repository", "→ open a clone of it")


def read_state_of_stand_in() -> AppState:
    values, failed = read_topics(StandIn(), TOPICS, ReadScope())
    assert failed == []
    return AppState(**values)


TYPED_AND_CHOSEN = LastScreen(
    theme="clawpy-light", keys={"work.land": "l"}, welcomed=True, saved_at=NOW,
    draft="my unsent prompt", draft_of="/shop", prompts=("a", "b"),
)  # fmt: skip


def save_changed(file: Path, change: Callable[[str], str]):
    """Save a last screen, and then change the text of its file."""
    save_last_screen(file, replace(TYPED_AND_CHOSEN, state=read_state_of_stand_in()))
    text = file.read_text()
    file.write_text(change(text))
    assert file.read_text() != text


def test_the_last_screen_survives_a_restart(tmp_path: Path):
    file = tmp_path / "cache" / "last_screen.json"
    screen = LastScreen(
        read_state_of_stand_in(), theme="clawpy-light", keys={"work.land": "l"}, welcomed=True, saved_at=NOW
    )
    save_last_screen(file, screen)
    again = load_last_screen(file)
    assert again == trim_last_screen(screen)
    assert again.state.cards == read_state_of_stand_in().cards
    assert again.state.recent_cards == (), "no first frame shows them, and reading them takes as long as the rest"
    assert again.state.sessions == tuple(item for item in read_state_of_stand_in().sessions if item.state.is_over)
    assert [item.name for item in file.parent.iterdir()] == ["last_screen.json"]


UNREADABLE_STATES: Mapping[str, Callable[[str], str]] = {
    "another version": lambda text: text.replace(f'"version": {LAST_SCREEN_VERSION}', '"version": 999'),
    "an unknown status": lambda text: text.replace('"status": "pending"', '"status": "levitating"'),
    "cards as a text": lambda text: json.dumps(json.loads(text) | {"state": {"cards": "none"}}),
}
"""Ways in which only the state of a written last screen becomes unreadable."""


@pytest.mark.parametrize("change", UNREADABLE_STATES.values(), ids=UNREADABLE_STATES)
def test_what_you_typed_and_chose_survives_an_unreadable_state(tmp_path: Path, change: Callable[[str], str]):
    save_changed(tmp_path / "last_screen.json", change)
    assert load_last_screen(tmp_path / "last_screen.json") == TYPED_AND_CHOSEN


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"version": 1, "known": 7}', b"[" * 100_000], ids=range(7)
)
def test_a_file_that_is_no_last_screen_is_ignored(tmp_path: Path, content: bytes):
    (tmp_path / "last_screen.json").write_bytes(content)
    assert load_last_screen(tmp_path / "last_screen.json") == LastScreen()


def test_other_fields_of_the_state_are_another_version():
    """If this fails, raise `LAST_SCREEN_VERSION`, and put the version and the new hash here."""
    hints = [AppState]
    fields = {}
    for hint in hints:
        hints += get_args(hint)
        if isinstance(hint, type) and is_dataclass(hint) and hint.__name__ not in fields:
            hints_of_fields = get_type_hints(hint)
            fields[hint.__name__] = sorted(hints_of_fields)
            hints += hints_of_fields.values()
    assert (LAST_SCREEN_VERSION, compute_text_hash(str(sorted(fields.items())))) == (13, "1f184e6a379deb7f")


@pytest.mark.long
async def test_quitting_saves_the_screen_and_asks_while_sessions_run(console: ConsoleApp, home: Home):
    async with running(console, "ctrl+q") as pilot:
        await until_shown(pilot, "1 running session")
        await pilot.press("enter", "escape")
        assert len(console.screen_stack) == 1
        await pilot.press("ctrl+q", "Q")
    assert load_last_screen(home.last_screen).state.cards == tuple(stand_in_data.read_stack())
