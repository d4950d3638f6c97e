"""Keys that come faster than the console can follow, such as the same key twice before the first has worked."""

import asyncio
from collections.abc import Callable

import pytest
from textual import events
from textual.command import CommandList, CommandPalette
from textual.keys import _character_to_key

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.card_details import Details
from tests.console.diff_steps import IN_DIFF, make_sessions_of_agents
from tests.console.driving import running
from tests.console.hierarchy_steps import edit_text, guidance_has, open_agent
from tests.console.memory_steps import WIDE, open_editor, was_called_once
from tests.console.stand_in import StandIn
from tests.console.stories import (
    ALL_ANSWERED,
    CLOSED,
    Given,
    Step,
    Until,
    answers,
    called,
    carry_out,
    find_calls,
    find_stand_in,
    has_said_nothing,
    hold_back,
    on_screen,
    play,
    press,
    sees,
    select,
    shows,
    type_text,
)
from tests.hierarchy.guidance_world import Organisation

ONE_COMMAND = Until("the command", lambda app: app.screen.query_one(CommandList).option_count == 1)
"""The palette lists one command."""


def press_at_once(keys: str) -> Step:
    """Press these keys before the console has handled any of them."""

    def act(app: ConsoleApp):
        for key in keys.split():
            character = key if len(key) == 1 else None
            app.post_message(events.Key(_character_to_key(key) if character else key, character))

    return act


def pass_on(key: events.Key) -> events.Key:
    """The key as it comes back to the app when no widget has used it."""
    key._set_forwarded()
    return key


async def test_escape_pressed_twice_in_the_last_dialog_closes_only_that(console: ConsoleApp):
    await play(console, press("question_mark"), press_at_once("escape escape"), CLOSED, press("2"), on_screen("work"))


@pytest.mark.long
async def test_enter_pressed_twice_in_the_palette_leaves_the_dialog_below_open(console: ConsoleApp):
    await play(
        console,
        press("enter"),
        shows(Details),
        press("ctrl+p"),
        type_text("mouse o"),
        ONE_COMMAND,
        press_at_once("enter enter"),
        sees("the mouse is"),
        ALL_ANSWERED,
        shows(Details),
    )


@pytest.mark.long
async def test_the_palette_opens_again_while_the_last_one_still_closes(console: ConsoleApp):
    def close_and_open(app: ConsoleApp):
        app.screen.dismiss()
        app.action_command_palette()

    await play(console, press("colon"), shows(CommandPalette), close_and_open, shows(CommandPalette))


@pytest.mark.parametrize(
    "open_screen",
    [
        lambda app: app.switch_mode("work"),
        lambda app: app.action_help(),
        lambda app: (app.action_help(), app.screen.post_message(events.Key("down", None))),
        lambda app: app.action_command_palette(),
        lambda app: (app.post_message(pass_on(events.Key("y", "y"))), app.switch_mode("memory")),
    ],
    ids=["a screen", "a dialog", "a dialog with a key", "the palette", "a screen with a key of the one before"],
)
async def test_the_console_may_end_while_a_screen_comes_up(
    console: ConsoleApp, open_screen: Callable[[ConsoleApp], object]
):
    async with running(console):
        open_screen(console)
        console.exit()
    assert not console.is_running


@pytest.mark.long
async def test_enter_pressed_twice_in_the_palette_runs_a_command_once(console: ConsoleApp):
    await play(
        console,
        press("2 colon"),
        type_text("check for new"),
        ONE_COMMAND,
        press_at_once("enter enter"),
        CLOSED,
        sees("Nothing new."),
        called("check", True),
    )


@pytest.mark.long
async def test_page_up_before_the_palette_has_its_list_moves_nothing(console: ConsoleApp):
    await play(console, press_at_once("colon up home pageup pagedown"), shows(CommandPalette), press("escape"), CLOSED)


@pytest.mark.long
async def test_enter_pressed_twice_asks_a_question_once(console: ConsoleApp):
    await play(
        console,
        press("6"),
        select("#switches", "autonomousModeEnabled"),
        press_at_once("enter enter"),
        on_screen("safety", dialogs=1),
        press("n"),
        CLOSED,
    )


@pytest.mark.long
async def test_a_file_is_saved_once_when_the_key_is_pressed_twice(console: ConsoleApp):
    await play(
        console,
        *open_editor(),
        type_text("New "),
        press_at_once("ctrl+s ctrl+s"),
        CLOSED,
        sees("saved backend_builder/soul.md"),
        was_called_once("wrote"),
        has_said_nothing("another program"),
        size=WIDE,
    )


@pytest.mark.long
async def test_a_card_is_approved_once_when_the_key_is_pressed_twice(console: ConsoleApp, engine: StandIn):
    approved = hold_back(engine.cards, "approve")
    await play(
        console,
        press("enter"),
        sees("Card details"),
        press("a a"),
        answers(approved),
        CLOSED,
        has_said_nothing("Not started"),
        Until("one approval", lambda app: len(find_calls(engine, "approve")) == 1),
    )


@pytest.mark.long
async def test_one_change_of_guidance_is_undone_when_the_key_is_pressed_twice(
    console: ConsoleApp, engine: StandIn, world: Organisation
):
    undone = hold_back(engine.profiles, "undo")
    await play(
        console,
        *open_agent("cto", "guidance"),
        press("e"),
        *edit_text("Plain beats clever.", "Simple beats clever."),
        sees("+ cto, principles: Plain beats clever."),
        press("ctrl+s"),
        CLOSED,
        guidance_has("Plain beats clever."),
        sees("Plain beats clever."),
        press("e"),
        *edit_text("Short beats plain.", "Plain beats clever."),
        sees("+ cto, principles: Short beats plain."),
        press("ctrl+s"),
        CLOSED,
        guidance_has("Short beats plain."),
        press("u u"),
        answers(undone),
        sees("Undone: Saved the guidance from cto"),
        ALL_ANSWERED,
        guidance_has("Plain beats clever."),
        has_said_nothing("✗"),
        Until("one undo", lambda app: sum("Undone" in message for message in app.messages) == 1),
        size=WIDE,
    )


@pytest.mark.long
async def test_comments_are_sent_once_when_the_key_is_pressed_twice(console: ConsoleApp, engine: StandIn):
    read = hold_back(engine.changes.comments, "make_unsent_message")
    await play(
        console,
        Given(make_sessions_of_agents),
        *IN_DIFF,
        press("] down down c"),
        type_text("why?"),
        press("enter"),
        sees("C send comments"),
        press("C C"),
        answers(read),
        sees("This card sends your comments."),
        Until("they are sent", lambda app: app.state.changes[0].comments[0].sent),
        Until("one card", lambda app: len(find_calls(find_stand_in(app), "propose")) == 1),
    )


@pytest.mark.long
async def test_a_key_to_another_screen_is_followed_while_one_opens(
    console: ConsoleApp, world: Organisation, monkeypatch: pytest.MonkeyPatch
):
    is_opened = asyncio.Event()

    async def switch_slowly(mode: str):
        await ConsoleApp.switch_mode(console, mode)
        if mode == "hierarchy":
            await is_opened.wait()

    monkeypatch.setattr(console, "switch_mode", switch_slowly)
    async with running(console) as pilot:
        console.open("hierarchy", "cto")
        await carry_out(pilot, on_screen("hierarchy"), press("6"), on_screen("safety"))
        is_opened.set()
        await carry_out(pilot, ALL_ANSWERED)
        assert console.current_mode == "safety"
