"""Answers of the engine that come late: the operator has closed or covered the dialog, or gone elsewhere, meanwhile."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from textual.message import Message
from textual.widgets import Input

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.agent_tree import Tree
from clawpy_console.screens.card_details import Details
from clawpy_console.screens.learning import LearningScreen
from clawpy_console.screens.palette import Palette
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.texts import ReplyLine
from engine.home import Home
from engine.model import Layer, Mute
from tests.console.driving import make_console, running
from tests.console.hierarchy_steps import open_agent, shows_agent
from tests.console.learning_steps import open_item
from tests.console.memory_steps import WIDE, open_editor, open_layer
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import AGENT, NOW
from tests.console.stand_in_learning import STOCK
from tests.console.stories import (
    ALL_ANSWERED,
    CLOSED,
    Given,
    Step,
    Until,
    answers,
    called,
    choose,
    find_calls,
    has_said_nothing,
    hold_back,
    on_screen,
    play,
    press,
    refused,
    sees,
    select,
    shows,
    type_text,
)
from tests.hierarchy.guidance_world import Organisation

pytestmark = pytest.mark.long


async def test_an_agent_that_was_created_after_its_dialog_was_closed_is_shown(
    console: ConsoleApp, engine: StandIn, world: Organisation
):
    answer = hold_back(engine.agents, "add")
    await play(
        console,
        *open_agent("cro"),
        press("n"),
        type_text("scout"),
        press("ctrl+s ctrl+s escape"),
        CLOSED,
        answers(answer),
        sees("Created scout. Undo: u"),
        shows_agent("scout"),
        has_said_nothing("scout exists"),
    )


async def test_an_editor_that_the_palette_covers_when_it_has_saved_closes_after_it(
    console: ConsoleApp, engine: StandIn
):
    answer = hold_back(engine.agent_files, "write")
    await play(
        console,
        *open_editor(),
        type_text("New "),
        press("ctrl+s ctrl+p"),
        shows(Palette),
        answers(answer),
        sees("saved backend_builder/soul.md"),
        shows(Palette),
        press("escape"),
        CLOSED,
        size=WIDE,
    )


@pytest.mark.long
async def test_an_entry_that_was_opened_does_not_take_you_back_from_the_next_layer(
    console: ConsoleApp, engine: StandIn
):
    entry = hold_back(engine.agent_files, "read")
    entry.set()
    await play(
        console,
        *open_layer(Layer.MARKDOWN),
        lambda app: entry.clear(),
        lambda app: app.screen.show(Layer.MARKDOWN, app.screen.entry.id),
        lambda app: app.screen.go_to("layers"),
        select("#layers", Layer.VECTORS.value),
        answers(entry),
        ALL_ANSWERED,
        sees("C VECTORS"),
        size=WIDE,
    )


async def test_an_entry_is_not_drawn_beside_the_next_layer(console: ConsoleApp, engine: StandIn):
    entry, page = hold_back(engine.agent_files, "read"), hold_back(engine.memory, "read_entries")
    entry.set()
    await play(
        console,
        *open_layer(Layer.MARKDOWN),
        lambda app: entry.clear(),
        press("j"),
        lambda app: app.screen.go_to("layers"),
        select("#layers", Layer.VECTORS.value),
        sees("Select an entry."),
        answers(entry),
        Until("the answer", lambda app: not [worker for worker in app.workers if worker.group == "detail"]),
        sees("Select an entry."),
        answers(page),
        ALL_ANSWERED,
        size=WIDE,
    )


async def test_details_that_the_palette_covers_when_their_card_is_approved_close_after_it(
    console: ConsoleApp, engine: StandIn
):
    answer = hold_back(engine.cards, "approve")
    await play(
        console,
        press("enter"),
        shows(Details),
        press("a ctrl+p"),
        shows(Palette),
        answers(answer),
        ALL_ANSWERED,
        shows(Palette),
        press("escape"),
        CLOSED,
        press("enter"),
        shows(Details),
        ALL_ANSWERED,
        shows(Details),
    )


@pytest.mark.parametrize(
    "elsewhere, there",
    [(press("2"), on_screen("work")), (press("question_mark"), on_screen("mission", dialogs=1))],
    ids=["another screen", "another dialog"],
)
async def test_a_dialog_does_not_open_where_the_operator_did_not_ask_for_it(
    console: ConsoleApp, engine: StandIn, elsewhere: Step, there: Until
):
    engine.cards.mutes = [Mute("mute_1", "lint", "", "", 1, NOW, None)]
    answer = hold_back(engine.cards, "list_mutes")
    await play(
        console,
        choose("Muted cards"),
        elsewhere,
        there,
        answers(answer),
        ALL_ANSWERED,
        there,
    )


REPLYING = (
    Given(StandIn.with_agent), refused("reply", "it ended", "continue it"), press("2"), select("#sessions", AGENT),
    press("f"), type_text("one"),
)  # fmt: skip
"""A reply to a session is written, which will be refused."""


async def test_a_refused_reply_does_not_take_the_place_of_the_one_that_is_written_now(
    console: ConsoleApp, engine: StandIn
):
    answer = hold_back(engine.sessions, "reply")
    reply_line_has = lambda text: Until(text, lambda app: app.screen.query_one(ReplyLine).value == text)  # noqa: E731
    await play(
        console,
        *REPLYING,
        press("enter f"),
        type_text("two"),
        answers(answer),
        sees("it ended"),
        reply_line_has("one two"),
    )


async def test_a_refused_reply_leaves_the_filter_that_is_typed_in_alone(console: ConsoleApp, engine: StandIn):
    answer = hold_back(engine.sessions, "reply")
    await play(
        console,
        *REPLYING,
        press("enter slash b"),
        answers(answer),
        sees("it ended"),
        Until("the filter", lambda app: app.focused.id == "filter"),
        press("escape"),
        select("#sessions", AGENT),
        press("f"),
        Until("the reply", lambda app: isinstance(app.focused, Input) and app.focused.value == "one"),
    )


async def test_what_is_typed_after_a_prompt_was_sent_is_kept(console: ConsoleApp, engine: StandIn):
    answer = hold_back(engine.cards, "propose")
    await play(
        console,
        press("n"),
        type_text("look"),
        press("enter escape n"),
        type_text("then write"),
        answers(answer),
        called("propose", "look", engine.workspaces[0]),
        ALL_ANSWERED,
        Until("what is kept", lambda app: (app.last.draft, app.last.prompts) == ("then write", ("look",))),
    )


async def test_no_second_undo_begins_when_the_cursor_moved_during_the_first(console: ConsoleApp, engine: StandIn):
    engine.learnings_wait = True
    answer = hold_back(engine.adaptation, "undo")
    await play(
        console,
        *open_item(STOCK.id),
        press("b"),
        sees("Its changes are removed:"),
        press("ctrl+s"),
        sees("▼ rolled back by you"),
        press("u down"),
        Until("another item", lambda app: app.screen.view is not None and app.screen.current != STOCK.id),
        press("u"),
        sees("Undo is still running. Try again in a moment."),
        answers(answer),
        sees("Undone: "),
        ALL_ANSWERED,
        Until("one undo", lambda app: len(find_calls(engine, "undo_candidate")) == 1),
        Until("the screen", lambda app: isinstance(app.screen, LearningScreen)),
    )


@pytest.mark.parametrize(
    "mode, list_id, make_message",
    [
        ("memory", "#links", lambda rows: Rows.Opened(rows, "gone")),
        ("hierarchy", "#tree", lambda rows: Tree.Fold("gone")),
    ],
)
async def test_a_key_does_nothing_with_a_row_that_was_removed_meanwhile(
    console: ConsoleApp, world: Organisation, mode: str, list_id: str, make_message: Callable[[Rows], Message]
):
    async with running(console) as pilot:
        await console.switch_mode(mode)
        rows = console.screen.query_one(list_id, Rows)
        rows.post_message(make_message(rows))
        await pilot.pause()
        assert console.current_mode == mode


def test_a_stop_ends_without_an_error_after_its_console_has_ended(home: Home, engine: StandIn):
    answer = hold_back(engine.safety.kill_switch, "stop")

    async def press_and_leave():
        async with running(make_console(home, lambda: engine), "f12"):
            pass

    asyncio.run(press_and_leave())
    [thread] = [thread for thread in threading.enumerate() if thread.name == "stop"]
    answer.set()
    thread.join(10)
    assert not thread.is_alive()
