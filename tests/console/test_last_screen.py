"""The last screen: what it keeps over a restart, whatever state its file is in (SPEC 11.4)."""

import json
from collections.abc import Callable, Mapping
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
from engine.model.text import compute_text_hash
from tests.console import stand_in_data
from tests.console.driving import running, until_shown
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW


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
    assert screen.state.recent
    assert again.state.recent == (), "no first frame shows them, and reading them takes as long as the rest"
    assert again.state.sessions == tuple(item for item in read_state_of_stand_in().sessions if item.state.over)
    assert [item.name for item in file.parent.iterdir()] == ["last_screen.json"]


UNREADABLE_STATES: Mapping[str, Callable[[str], str]] = {
    "another version": lambda text: text.replace(f'"version": {LAST_SCREEN_VERSION}', '"version": 999'),
    "an unknown status": lambda text: text.replace('"status": "pending"', '"status": "levitating"'),
    "another name of a field": lambda text: text.replace('"prediction_id"', '"predicted"'),
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
    assert (LAST_SCREEN_VERSION, compute_text_hash(str(sorted(fields.items())))) == (10, "19a0f357e90321d7")


@pytest.mark.long
async def test_quitting_saves_the_screen_and_asks_while_sessions_run(console: ConsoleApp, home: Home):
    async with running(console, "ctrl+q") as pilot:
        await until_shown(pilot, "1 running session")
        await pilot.press("enter", "escape")
        assert len(console.screen_stack) == 1
        await pilot.press("ctrl+q", "Q")
    assert load_last_screen(home.last_screen).state.cards == tuple(stand_in_data.read_stack())
