"""The commands of the palette: each action once, mutes, the gateway's switch (SPEC 2.9, 10.1)."""

from datetime import timedelta
from pathlib import Path

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.widgets.frame import SCREENS
from engine.model import DismissReason, Mute
from tests.console.driving import running, until
from tests.console.stand_in_data import NOW, SHOP
from tests.console.stories import (
    CLOSED,
    Given,
    Stories,
    called,
    carry_out,
    choose,
    hides,
    make_story_test,
    never_called,
    on_screen,
    press,
    read_palette_titles,
    sees,
)

WEEK = NOW + timedelta(days=7)
SUBJECT = Mute("mute_1", "run-tests", SHOP, "tests/test_cart.py", 1, NOW, WEEK, prompt="Run the tests of the cart")
KIND = Mute("mute_2", "lint", "", "", 1, NOW, None, DismissReason.NEVER_ANYWHERE)


def with_mutes(*mutes: Mute) -> Given:
    return Given(lambda engine: setattr(engine.cards, "mutes", list(mutes)))


STORIES: Stories = {
    "no_mutes": (choose("Muted cards"), sees("Nothing is muted."), CLOSED),
    "each_mute_says_its_subject_place_end_and_reason": (
        with_mutes(SUBJECT, KIND),
        choose("Muted cards"),
        sees(
            "Run the tests of the cart, shop",
            "until 12 Jan",
            "all cards “Lint of what changed”, everywhere",
            "switched off, you",
        ),
    ),
    "the_key_of_a_mute_ends_it_and_escape_none": (
        with_mutes(SUBJECT, KIND),
        choose("Muted cards"),
        sees("which should appear again?"),
        press("escape"),
        CLOSED,
        never_called("unmute"),
        choose("Muted cards"),
        press("b"),
        called("unmute", "mute_2"),
        sees("Unmuted: all cards “Lint of what changed”, everywhere"),
    ),
    "the_gateway_goes_on_and_off_and_shows_its_new_token_once": (
        hides("api :8477"),
        choose("Gateway on"),
        sees("http://127.0.0.1:8477", "clawpy_secret"),
        press("escape"),
        sees("api :8477"),
        choose("Gateway: where it listens"),
        sees("http://127.0.0.1:8477"),
        hides("clawpy_secret"),
        press("escape"),
        choose("Gateway off"),
        hides("api :8477"),
        called("gateway", True),
        called("gateway", False),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES))


test_a_command_of_another_screen_leads_there_and_says_its_key = make_story_test(
    {
        "possible": (
            choose("Work: land the changes in the working tree"),
            on_screen("work"),
            sees("L: land the changes in the working tree (Work)"),
            never_called("landed"),
        ),
        "in_a_pane": (choose("Work: the next hunk"), on_screen("work"), sees("]: the next hunk (Work, in the diff)")),
        "before_the_screen_has_read_its_data": (
            choose("Memory: edit the agent's file here"),
            on_screen("memory"),
            sees("e: edit the agent's file here (Memory)"),
            hides("It cannot be done now"),
        ),
    }
)


async def test_the_palette_has_no_command_of_another_screen_over_a_dialog_and_none_that_does_nothing(
    console: ConsoleApp,
):
    async with running(console) as pilot:
        await carry_out(pilot, press("2"), on_screen("work"))
        titles = read_palette_titles(console)
        assert "Hierarchy: fold or unfold the agents below" in titles
        assert "Mission: back to the cards" not in titles
        assert not [title for title in titles if title in ("Work: stop the session", "Work: undo a landing")]
        await carry_out(pilot, press("M"), sees("Messages"))
        prefixes = tuple(f"{mode.capitalize()}: " for mode in SCREENS)
        assert not [title for title in read_palette_titles(console) if title.startswith(prefixes)]


async def test_the_palette_has_each_action_once(console: ConsoleApp):
    async with running(console):
        titles = read_palette_titles(console)
        assert len(titles) == len(set(titles))


@pytest.mark.long
async def test_a_screenshot_is_saved_where_the_palette_says(
    console: ConsoleApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("XDG_DOWNLOAD_DIR", str(tmp_path))
    async with running(console, notifications=True) as pilot:
        await carry_out(pilot, choose("Save a screenshot"))
        await until(pilot, lambda: [toast for toast in console._notifications if str(tmp_path) in toast.message])
    [file] = tmp_path.glob("*.svg")
    assert "mission" in file.read_text(encoding="utf-8")
