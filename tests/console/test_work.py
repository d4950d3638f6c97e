"""The work screen: the session it opens on, landing, branch, discard, undo (SPEC 3.9, 9.4)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.work import WorkScreen
from clawpy_console.widgets import Rows
from tests.console.driving import read_toasts
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import AGENT, BLOG
from tests.console.stories import (
    CHANGE,
    CLOSED,
    Given,
    Stories,
    Until,
    answers,
    called,
    hides,
    hold_back,
    make_story_test,
    never_called,
    play,
    press,
    refused,
    sees,
    type_text,
)

RUNNING = "sess_000000000001"
LINT_FAILED = "sess_000000000004"


def shows_session(id: str) -> Until:
    """The cursor stands on this session."""
    return Until(id, lambda app: isinstance(app.screen, WorkScreen) and app.screen.session.id == id)


def remove_changes(engine: StandIn):
    """No changes, and no session that made some."""
    engine.sessions.all = engine.sessions.all[2:]
    engine.changes.all = []


def add_old_sessions(engine: StandIn):
    """70 older sessions, more than a page."""
    last = engine.sessions.all[-1]
    engine.sessions.all += [replace(last, id=f"sess_old_{number:03}") for number in range(70)]


DIFF_READ = sees("return round(sum(lines)")
"""The diff has been read."""

LANDED = (press("2"), DIFF_READ, press("L"), sees("3 files landed"))
"""The changes of the first session have landed."""

HINT_STANDS_OUT = Until("its colour", lambda app: "$wants" in app.screen.query_one(".dialog").border_subtitle)

STORIES: Stories = {
    "it opens on what asks before what can be landed": (Given(StandIn.with_agent), press("2"), shows_session(AGENT)),
    "what is landed can be undone, and landed again": (
        press("2"),
        DIFF_READ,
        press("u"),
        never_called("undone"),
        press("L"),
        called("landed", CHANGE),
        sees("3 files landed"),
        press("u"),
        called("undone", CHANGE),
        sees("L lands it again"),
        DIFF_READ,
        press("L"),
        called("landed", CHANGE, times=2),
    ),
    "an undo that is refused can be tried again": (
        refused("undone", "shop/cart.py was edited since", "commit it first"),
        *LANDED,
        press("u"),
        sees("was edited since"),
        press("u"),
        sees("Landing undone. L lands it again."),
    ),
    "a landing that conflicts changes nothing": (
        refused("landed", "shop/cart.py was changed by both"),
        press("2"),
        DIFF_READ,
        press("L"),
        sees("changed by both", "to land"),
    ),
    "n writes a prompt for the workspace of the session": (
        press("2 G n"),
        sees("in blog"),
        type_text("why"),
        press("enter"),
        called("propose", "why", BLOG),
    ),
    "discard asks for a key of its own": (
        press("2 D y"),
        sees("y does nothing here. Press the key of an answer."),
        HINT_STANDS_OUT,
        press("up enter D"),
        never_called("discarded"),
        press("escape"),
        CLOSED,
        press("D X"),
        called("discarded", CHANGE),
    ),
    "discard is of the changes that were asked about": (
        press("2 D"),
        lambda app: app.screen_stack[0].query_one("#sessions", Rows).action_first(),
        Until("another session", lambda app: app.screen_stack[0].change is None),
        press("X"),
        called("discarded", CHANGE),
    ),
    "stop the running session": (
        press("2 up S"),
        called("stop_session", RUNNING),
        press("down S"),
        called("stop_session", RUNNING),
        Until("no toast besides that of the end", lambda app: "stopped" not in read_toasts(app)),
    ),
    "older sessions are listed at the end of the list": (
        Given(add_old_sessions),
        press("2"),
        sees("SESSIONS  60+"),
        press("G"),
        sees("older: ⏎ lists 60 more"),
        press("enter"),
        shows_session("sess_old_055"),
        sees("SESSIONS  75 "),
    ),
    "the filter keeps the sessions with these words": (
        press("2 slash"),
        type_text("lint failed"),
        press("enter"),
        shows_session(LINT_FAILED),
        sees("SESSIONS  1 of 5"),
        hides("Summarise the day"),
    ),
    "a key that can do nothing says so": (
        Given(remove_changes),
        press("2 L"),
        sees("L: land the changes"),
        press("c"),
        sees("(Work, in the diff). It cannot be done now."),
        press("home f"),
        sees("It cannot be done now."),
        press("home p"),
        sees("p does nothing on this screen. ? shows the keys"),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES))


@pytest.mark.long
async def test_commands_and_exit_codes_differ_from_output(console: ConsoleApp):
    await play(
        console,
        press("2 up"),
        sees("$ python -m pytest", "✗ exit 1"),
        press("down"),
        sees("→ exit 0"),
        size=(200, 60),
    )


@pytest.mark.long
async def test_keys_during_an_undo_say_that_it_is_still_running(console: ConsoleApp, engine: StandIn):
    answered = hold_back(engine.changes, "undo")
    busy = sees("is still running. Try again in a moment.")
    await play(
        console,
        *LANDED,
        press("u b"),
        busy,
        press("u"),
        answers(answered),
        sees("Landing undone. L lands it again."),
        called("undone", CHANGE),
        never_called("branched"),
        press("b"),
        called("branched", CHANGE),
    )
