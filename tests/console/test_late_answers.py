"""Keys that come faster than the console can follow, and answers of the engine that come late."""

import pytest
from textual import events
from textual.command import CommandList
from textual.keys import _character_to_key

from clawpy_console.app import ConsoleApp
from clawpy_console.widgets.texts import ReplyLine
from engine.model import Mute
from tests.console.memory_steps import WIDE, open_editor, was_called_once
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import AGENT, NOW
from tests.console.stories import (
    ALL_ANSWERED,
    ANSWER,
    CLOSED,
    Given,
    Step,
    Stories,
    Until,
    called,
    choose,
    delayed,
    has_said_nothing,
    make_story_test,
    on_screen,
    press,
    refused,
    sees,
    select,
    type_text,
)


def press_at_once(keys: str) -> Step:
    """Press these keys before the console has handled any of them."""

    def act(app: ConsoleApp):
        for key in keys.split():
            character = key if len(key) == 1 else None
            app.post_message(events.Key(_character_to_key(key) if character else key, character))

    return act


def mute_lint(engine: StandIn):
    engine.cards.mutes = [Mute("mute_1", "lint", "", "", 1, NOW, None)]


STORIES: Stories = {
    "escape pressed twice in the last dialog closes only that": (
        press("question_mark"),
        press_at_once("escape escape"),
        CLOSED,
        press("2"),
        on_screen("work"),
    ),
    "Enter pressed twice in the palette runs a command once": (
        press("2 colon"),
        type_text("check for new"),
        Until("one command", lambda app: app.screen.query_one(CommandList).option_count == 1),
        press_at_once("enter enter"),
        CLOSED,
        sees("Nothing new."),
        called("check", True),
    ),
    "a file is saved once when the key is pressed twice": (
        *open_editor(),
        type_text("New "),
        press_at_once("ctrl+s ctrl+s"),
        CLOSED,
        sees("saved backend_builder/soul.md"),
        was_called_once("wrote"),
        has_said_nothing("another program"),
    ),
    "a card is approved once when the key is pressed twice": (
        delayed("cards", "approve"),
        press("enter"),
        sees("Card details"),
        press("a a"),
        ANSWER,
        CLOSED,
        has_said_nothing("Not started"),
        was_called_once("approve"),
    ),
    "a dialog does not open on a screen where nobody asked for it": (
        Given(mute_lint),
        delayed("cards", "list_mutes"),
        choose("Muted cards"),
        press("2"),
        on_screen("work"),
        ANSWER,
        ALL_ANSWERED,
        on_screen("work"),
    ),
    "a refused reply does not take the place of the one that is written now": (
        Given(StandIn.with_agent),
        refused("reply", "it ended", "continue it"),
        delayed("sessions", "reply"),
        press("2"),
        select("#sessions", AGENT),
        press("f"),
        type_text("one"),
        press("enter f"),
        type_text("two"),
        ANSWER,
        sees("it ended"),
        Until("both", lambda app: app.screen.query_one(ReplyLine).value == "one two"),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES, size=WIDE))
