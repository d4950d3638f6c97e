"""The prompt box: written, completed, kept, refused; a flow runs at once, text becomes a card."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.dialogs.prompt import OwnPrompt, completions
from clawpy_console.state import load
from engine.execution.runners.flow_registry import FlowRegistry
from engine.execution.runners.flows import FLOWS
from engine.home import Home
from engine.model import Card, FlowForm, Refusal
from tests.console import stand_in
from tests.console.conftest import live, running, screen_text, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import found_agent
from tests.console.stories import calls_of, front

FORMS = FlowRegistry(FLOWS, list).forms()


async def open_prompt_box(pilot: Pilot[Any], console: ConsoleApp) -> TextArea:
    """The prompt box, opened by its key."""
    await pilot.press("n")
    await until(pilot, lambda: isinstance(console.screen, OwnPrompt) and console.screen.query("#text"))
    return console.screen.query_one("#text", TextArea)


def next_prompt_becomes_flow(engine: StandIn, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """Have the engine make a card of a flow of the next prompt."""
    made = engine.cards.propose

    def propose(text: str, *, workspace: str) -> Card:
        card = made(text, workspace=workspace)
        card = dataclasses.replace(card, assignment=dataclasses.replace(card.assignment, flow="run_tests"), **more)
        engine.cards.all[card.id] = card
        return card

    monkeypatch.setattr(engine.cards, "propose", propose)


@pytest.mark.long
async def test_a_prompt_that_names_a_flow_runs_at_once(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_prompt_becomes_flow(engine, monkeypatch)
    async with running(console) as pilot:
        await open_prompt_box(pilot, console)
        await pilot.press(*"run the tests", "enter")
        await until(pilot, lambda: calls_of(engine, "approve"))
        assert calls_of(engine, "propose") == [("propose", "run the tests", stand_in.SHOP)]
        await wait_for_text(pilot, "✓ Started: run the tests")


@pytest.mark.long
@pytest.mark.parametrize(
    "asks", [{"served": "installs with uv; network: pypi.org for it alone"}, {"note": "needs test"}]
)
async def test_a_flow_that_needs_the_network_or_lacks_something_is_a_card_first(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch, asks: dict[str, str]
) -> None:
    next_prompt_becomes_flow(engine, monkeypatch, **asks)
    async with running(console) as pilot:
        await open_prompt_box(pilot, console)
        await pilot.press(*"tests", "enter")
        await until(pilot, lambda: front(console) == stand_in.card(90, "").id)
        assert not calls_of(engine, "approve")


@pytest.mark.long
async def test_text_for_an_agent_becomes_a_card_on_top_of_the_workspace_that_was_chosen(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with running(console) as pilot:
        area = await open_prompt_box(pilot, console)
        await pilot.press(*"look", "ctrl+j", *"twice", "ctrl+t")
        assert area.text == "look\ntwice"
        await pilot.press("enter")
        await until(pilot, lambda: front(console) == stand_in.card(90, "").id)
        assert calls_of(engine, "propose") == [("propose", "look\ntwice", stand_in.BLOG)]
        assert not calls_of(engine, "approve")


@pytest.mark.long
async def test_without_a_model_it_is_said_before_the_text_is_sent_and_an_agent_is_offered(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.channel_setup.serves, engine.channel_setup.here = "", [found_agent("claude", "Claude Code")]
    async with running(console, size=(80, 24)) as pilot:
        await open_prompt_box(pilot, console)
        await wait_for_text(pilot, "no model configured: ^o connects Claude Code")
        await pilot.press(*"explain the cart", "enter")
        await wait_for_text(pilot, "No model or agent is set up, so this text cannot", "esc close")
        assert not calls_of(engine, "propose")
        await pilot.press("ctrl+o")
        await wait_for_text(pilot, "Which agent or model")
        engine.channel_setup.serves = "claude"
        await pilot.press("1")
        await wait_for_text(pilot, "koji-core is served by Claude Code")
        await pilot.press("escape", "enter")
        await until(pilot, lambda: calls_of(engine, "propose"))
        assert calls_of(engine, "propose") == [("propose", "explain the cart", stand_in.SHOP)]


@pytest.mark.long
async def test_without_a_model_a_second_enter_keeps_the_text_as_a_card(console: ConsoleApp, engine: StandIn) -> None:
    engine.channel_setup.serves = ""
    async with running(console) as pilot:
        await open_prompt_box(pilot, console)
        await pilot.press(*"explain the cart", "enter")
        await wait_for_text(pilot, "to keep it as a card")
        await pilot.press("enter")
        await until(pilot, lambda: calls_of(engine, "propose"))


@pytest.mark.long
async def test_what_was_typed_is_never_lost(console: ConsoleApp, engine: StandIn, home: Home) -> None:
    async with running(console) as pilot:
        area = await open_prompt_box(pilot, console)
        await pilot.press(*"look", "escape")
        area = await open_prompt_box(pilot, console)
        assert area.text == "look"
        await pilot.press(*"cook", "escape")  # typing replaces what was kept
        area = await open_prompt_box(pilot, console)
        assert area.text == "cook"
        await pilot.press("home", "delete", "l", "end", *"er", "enter")  # a key that moves the cursor goes on with it
        await until(pilot, lambda: calls_of(engine, "propose"))
        area = await open_prompt_box(pilot, console)
        assert area.text == ""
        await pilot.press(*"half", "up")
        assert area.text == "looker"
        await pilot.press("down")
        assert area.text == "half"
        await console._save()
    kept = load(home.last_screen)
    assert (kept.draft, kept.prompts) == ("half", ("looker",))


@pytest.mark.long
async def test_a_draft_is_offered_where_it_was_written(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console) as pilot:
        await open_prompt_box(pilot, console)
        assert "in shop  (1 of 2; ^t: the next)" in screen_text(console)
        await pilot.press("ctrl+t", *"look", "escape")
        area = await open_prompt_box(pilot, console)  # in shop
        assert area.text == ""
        await pilot.press("up")
        assert area.text == "look"


@pytest.mark.long
async def test_consoles_of_one_process_keep_what_was_typed_in_another(
    console: ConsoleApp, engine: StandIn, home: Home
) -> None:
    other = ConsoleApp(lambda: engine, home, [], now=console.now)  # type: ignore[arg-type, return-value]
    console.all_consoles = other.all_consoles = (console, other)
    async with console.run_test(size=(120, 40)) as pilot, other.run_test(size=(120, 40)) as others:
        await live(pilot)
        await live(others)
        console.save_prompt("half", "", sent="look")
        await console._save()
        await other._save()
    kept = load(home.last_screen)
    assert (kept.draft, kept.prompts) == ("half", ("look",))


@pytest.mark.long
async def test_what_is_typed_before_the_box_is_there_goes_into_it(console: ConsoleApp) -> None:
    async with running(console) as pilot:
        for key in "nlook":  # all at once, as from a slow line
            console.post_message(events.Key(key, key))
        await until(pilot, lambda: isinstance(console.screen, OwnPrompt) and console.screen.query("#text"))
        await until(pilot, lambda: console.screen.query_one("#text", TextArea).text == "look")


@pytest.mark.long
async def test_what_may_be_a_key_is_not_written_down(console: ConsoleApp, engine: StandIn, home: Home) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    async with running(console) as pilot:
        (await open_prompt_box(pilot, console)).text = f"use {secret}"
        await pilot.press("end", "escape")
        await console._save()
    assert secret not in home.last_screen.read_text()


@pytest.mark.long
async def test_a_prompt_that_is_refused_stays_with_what_would_be_right(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose = engine.cards.propose

    def strict(text: str, *, workspace: str) -> Card:
        if "=" in text:
            return propose(text, workspace=workspace)
        raise Refusal("bad_parameters", f"bisect: '{text[7:]}' is not a parameter", "`bisect test=… good=… [bad=…]`")

    monkeypatch.setattr(engine.cards, "propose", strict)
    async with running(console) as pilot:
        await open_prompt_box(pilot, console)
        await pilot.press(*"bisect a.py", "enter")
        await wait_for_text(pilot, "`bisect test=… good=… [bad=…]`")
        await pilot.press("=", "b", "enter")
        await until(pilot, lambda: calls_of(engine, "propose"))
        assert calls_of(engine, "propose") == [("propose", "bisect a.py=b", stand_in.SHOP)]


@pytest.mark.long
async def test_tab_completes_a_flow_and_its_parameters(console: ConsoleApp) -> None:
    async with running(console) as pilot:
        area = await open_prompt_box(pilot, console)
        await wait_for_text(pilot, "run_tests")
        await pilot.press(*"bis", "tab")
        assert area.text == "bisect "
        await wait_for_text(pilot, "id of the test that fails, as its tool names it (required)")
        await pilot.press("tab", "tab")
        assert area.text == "bisect good="
        await pilot.press(*"v1", "space", "tab")
        assert area.text == "bisect good=v1 test="


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("run the te", ["run_tests ", "uncovered_lines "]),
        ("lin", ["lint ", "fix_lint ", "uncovered_lines "]),
        ("bisect test=a good=b ", ["bisect test=a good=b project=", "bisect test=a good=b bad="]),
        ("look_at_changes", []),
        ("rewrite the parser", []),
    ],
)
def test_what_a_text_may_become(text: str, becomes: list[str]) -> None:
    assert [completion for completion, _ in completions(text, FORMS)] == becomes


def test_the_value_of_a_parameter_is_explained() -> None:
    form = FlowForm("bisect", "Bisect", (("good", "a commit at which it passed", True),))
    assert completions("bisect good=v1", [form]) == [("bisect good=v1", "good: a commit at which it passed")]
