"""The prompt box (SPEC 9.2): drafts, completions, refusals; a flow runs at once, text becomes a card."""

import dataclasses
from typing import Any

import pytest
from textual.events import Paste
from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.own_prompt import PromptBox
from engine.execution.runners.flows import FlowRegistry
from engine.model import Card
from tests.console import stand_in_data
from tests.console.card_steps import in_front
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import BLOG, SHOP, make_found_agent
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
    Stories,
    Until,
    answers,
    called,
    find_stand_in,
    hold_back,
    make_story_test,
    never_called,
    play,
    press,
    refused,
    sees,
    type_text,
)

FORMS = FlowRegistry(list).forms()
OWN_CARD = in_front(stand_in_data.make_card(90, "").id)
UNSENT = never_called("propose")


def find_text_area(app: ConsoleApp) -> TextArea:
    """The text of the prompt box."""
    return app.screen.query_one("#text", TextArea)


def open_box(text: str = "") -> tuple[Step, ...]:
    """Open the prompt box by its key; it has this text."""
    return (
        press("n"),
        Until("the box", lambda app: isinstance(app.screen, PromptBox) and app.screen.query("#text")),
        box_has(text),
    )


def box_has(text: str) -> Until:
    """The prompt box has this text."""
    return Until(repr(text), lambda app: find_text_area(app).text == text)


def has_saved(draft: str, *prompts: str) -> Until:
    """The console keeps this draft and these sent prompts."""
    return Until(
        f"{draft!r} {prompts}", lambda app: (app.last_screen.draft, app.last_screen.prompts) == (draft, prompts)
    )


def next_prompt_becomes_flow(**fields: Any) -> Given:
    """The engine makes a card of a flow of the next prompt, with these fields."""

    def change(engine: StandIn):
        propose_card = engine.cards.propose

        def propose(text: str, *, workspace: str, may_wait: bool) -> Card:
            card = propose_card(text, workspace=workspace)
            card = dataclasses.replace(
                card, assignment=dataclasses.replace(card.assignment, flow="run_tests"), **fields
            )
            engine.cards.all[card.id] = card
            return card

        engine.cards.propose = propose

    return Given(change)


def serve_by(name: str) -> Step:
    """This model or agent serves all channels from now on."""
    return lambda app: setattr(find_stand_in(app).channel_setup, "serves", name)


def remove_model(engine: StandIn):
    """Nothing serves a channel, but an agent is installed."""
    engine.channel_setup.serves, engine.channel_setup.here = "", [make_found_agent("claude", "Claude Code")]


SECRET = "sk-ant-api03-" + "a1B2" * 20
STORIES: Stories = {
    "a prompt that names a flow runs at once": (
        next_prompt_becomes_flow(),
        *open_box(),
        type_text("run the tests"),
        press("enter"),
        called("propose", "run the tests", SHOP),
        sees("✓ Started: run the tests"),
    ),
    "a flow that needs the network is a card first": (
        next_prompt_becomes_flow(consent_text="installs with uv; network: pypi.org for it alone"),
        *open_box(),
        type_text("tests"),
        press("enter"),
        OWN_CARD,
        never_called("approve"),
    ),
    "text becomes a card on top of the workspace that was chosen": (
        *open_box(),
        type_text("look"),
        press("ctrl+j"),
        type_text("twice"),
        press("ctrl+t"),
        box_has("look\ntwice"),
        press("enter"),
        OWN_CARD,
        called("propose", "look\ntwice", BLOG),
        never_called("approve"),
    ),
    "without a model that is said before the text is sent, and an agent is offered": (
        Given(remove_model),
        *open_box(),
        sees("no model configured: ^o connects Claude Code"),
        type_text("explain"),
        press("enter"),
        sees("No model or agent can run this text. Press ⏎ again", "esc close"),
        UNSENT,
        press("ctrl+o"),
        sees("Which agent or model"),
        serve_by("claude"),
        press("1"),
        sees("koji-core is served by Claude Code"),
        press("escape enter"),
        called("propose", "explain", SHOP),
    ),
    "what was typed is never lost": (
        *open_box(),
        type_text("look"),
        press("escape"),
        *open_box("look"),
        type_text("cook"),
        press("escape"),
        # typing replaces what was kept
        *open_box("cook"),
        press("home delete l end"),
        type_text("er"),
        press("enter"),
        called("propose", "looker", SHOP),
        *open_box(),
        type_text("half"),
        press("up"),
        box_has("looker"),
        press("down"),
        box_has("half"),
        has_saved("half", "looker"),
    ),
    "what may be a key is not written down": (
        *open_box(),
        lambda app: setattr(find_text_area(app), "text", f"use {SECRET}"),
        press("end escape"),
        has_saved(""),
    ),
    "what is too long for a prompt is not pasted": (
        press("n"),
        lambda app: app.focused.post_message(Paste("x" * 200_000)),
        sees("Not pasted: a prompt has at most 20,000 characters"),
    ),
    "a refusal is one sentence": (
        refused("propose", "the prompt has 20001 characters", "at most 20000"),
        *open_box(),
        type_text("look"),
        press("enter"),
        sees("▲ the prompt has 20001 characters (at most 20000)"),
    ),
    "Tab completes a flow and its parameters": (
        *open_box(),
        sees("run_tests"),
        type_text("bis"),
        press("tab"),
        box_has("bisect "),
        sees("id of the test that fails, as its tool names it (required)"),
        press("tab tab"),
        box_has("bisect good="),
        type_text("v1"),
        press("space tab"),
        box_has("bisect good=v1 test="),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES))


@pytest.mark.long
async def test_a_prompt_that_is_refused_after_the_box_was_closed_is_kept(console: ConsoleApp, engine: StandIn):
    answered = hold_back(engine.cards, "propose")
    await play(
        console,
        refused("propose", "the folder is gone", "choose another"),
        *open_box(),
        type_text("look"),
        press("enter escape"),
        CLOSED,
        answers(answered),
        sees("Your prompt was not sent: the folder is gone"),
        has_saved("look"),
    )
