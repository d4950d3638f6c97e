"""The stack of cards: decisions and their undo, refusals, and cards that change meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.fields.states import FLOWS_BY_WORK, describe_work, name_work
from engine.execution.runners.flows import FLOWS
from engine.model import Card, CycleReport, RailVerdict, Refusal, Status, Verdict
from tests.console import stand_in_data
from tests.console.conftest import read_screen, read_toasts, running, until
from tests.console.stand_in import StandIn
from tests.console.stories import (
    FIRST,
    NEW,
    NEXT_STEP,
    RISKY,
    SECOND,
    Given,
    Stories,
    Until,
    called,
    carry_out,
    change_cards,
    cursor,
    find_calls,
    find_front_id,
    find_stack,
    find_stand_in,
    hides,
    hold_back,
    in_front,
    make_story_test,
    never_called,
    on_screen,
    press,
    read_text_in,
    refused,
    sees,
    shows_tiers,
    with_first_card,
)

CHECK, BLOG_CARD = "pred_000000000005", "pred_000000000004"
"""The fourth card, and the only one of the blog."""

UNDECIDED = never_called("approve", "dismiss", "snooze")
ARMED = Until("the risk", lambda app: find_stack(app).armed)


def has_read(card_id: str) -> Until:
    """The console has read this card, shown or not."""
    return Until(card_id, lambda app: any(card.id == card_id for card in app.state.cards))


def approve_elsewhere(app: ConsoleApp) -> None:
    """Another console approves the first card."""
    cards = find_stand_in(app).cards
    cards.all[FIRST] = replace(cards.all[FIRST], status=Status.APPROVED)


def has_undone(*ids: str) -> Until:
    """The decisions of these cards were undone, in this order."""
    return Until(f"{ids}", lambda app: [id for _, id, *_ in find_calls(find_stand_in(app), "undo")] == [*ids])


NO_UNDO_RUNS = Until("no undo of an approval", lambda app: not app.cards._undoes_approval)


def leave_a_landing(engine: StandIn) -> None:
    """The first undo leaves a landing of a card that has run."""
    undo = engine.cards.undo

    def undo_one(id: str) -> tuple[Card, int]:
        engine.cards.undo = undo  # type: ignore[method-assign]
        return replace(undo(id)[0], status=Status.EXECUTED, note="1 landing undone, 1 left"), 1

    engine.cards.undo = undo_one  # type: ignore[method-assign]


def next_check_finds(cards: Callable[[StandIn], tuple[Card, ...]]) -> Given:
    """The next check makes these cards."""

    def change(engine: StandIn) -> None:
        report = CycleReport(created=cards(engine))
        engine.card_cycle.run_cycle = lambda *, requested: report

    return Given(change)


BLOCKED_BY_CONTENT = RailVerdict("content", Verdict.BLOCK, "deletes everything", "test-rule")
LINT_OFF = "“lint” cards are switched off in shop"
CAP_REACHED = "the hour's cap is reached"
OF_OTHER_SUBJECT = replace(NEW, subject="another subject")

STORIES: Stories = {
    "undo takes back the last decision, then the one before": (
        press("left left"),
        called("dismiss", SECOND),
        sees("CARDS  1 of 3"),
        press("u u"),
        has_undone(SECOND, FIRST),
        sees("CARDS  1 of 5"),
        press("u"),
        sees("Nothing to undo."),
    ),
    "each undo of a card with two landings undoes one of them, then the next undoes the decision before": (
        Given(leave_a_landing),
        press("left right"),
        called("approve", SECOND, None),
        press("u"),
        sees("1 landing undone, 1 left · Undo: u"),
        press("u"),
        has_undone(SECOND, SECOND),
        NO_UNDO_RUNS,
        press("u"),
        has_undone(SECOND, SECOND, FIRST),
    ),
    "an undo that is refused leaves again with its reason": (
        refused("undo", "it ran to its end already"),
        press("left"),
        called("dismiss", FIRST),
        press("u"),
        in_front(SECOND),
        sees("it ran to its end already", "CARDS  1 of 4"),
    ),
    "a risky card needs its own second key, and never Enter": (
        press("left left"),
        in_front(RISKY),
        sees("touches production"),
        press("A right right l"),
        in_front(RISKY),
        ARMED,
        press("enter enter escape"),
        never_called("approve"),
        in_front(RISKY),
        press("right A"),
        called("approve", RISKY, None),
    ),
    "a new card does not take the place of a card that was chosen": (
        press("j"),
        change_cards(NEW),
        sees("CARDS  3 of 6"),
        in_front(SECOND),
    ),
    "nor of the card in front after a decision": (
        press("left"),
        in_front(SECOND),
        change_cards(NEW),
        sees("CARDS  2 of 5"),
        in_front(SECOND),
    ),
    "until a key is pressed the first card is in front": (change_cards(NEW), sees("CARDS  1 of 6"), in_front(NEW.id)),
    "the next step of a result comes in front": (
        press("right"),
        in_front(SECOND),
        change_cards(NEXT_STEP),
        in_front(NEXT_STEP.id),
    ),
    "the next step of a card that was approved in its details comes in front, too": (
        press("enter a"),
        in_front(SECOND),
        change_cards(NEXT_STEP),
        in_front(NEXT_STEP.id),
    ),
    "but not when its workspace is shown again": (
        press("w w"),
        in_front(BLOG_CARD),
        change_cards(NEXT_STEP),
        has_read(NEXT_STEP.id),
        press("w"),
        sees("of 6"),
        in_front(BLOG_CARD),
    ),
    "unless another card was chosen meanwhile": (
        press("right j"),
        in_front(RISKY),
        change_cards(NEXT_STEP),
        sees("CARDS  3 of 5"),
        in_front(RISKY),
    ),
    "nor while its details were open, after another pane had the focus, or while its risk is shown": (
        press("enter"),
        change_cards(NEW),
        press("escape"),
        in_front(FIRST),
        press("left left right"),
        in_front(RISKY),
        change_cards(NEXT_STEP),
        in_front(RISKY),
        ARMED,
    ),
    "a key that leaves the stack keeps its first card too": (
        press("tab"),
        change_cards(NEW),
        press("shift+tab"),
        in_front(FIRST),
    ),
    "a snooze says until when": (press("up"), sees("↑ Snoozed until 16:12: HEAD is red")),
    "undo is not offered for what only reads": (
        press("j right"),
        sees("✓ Started: Run the tests"),
        hides("Undo: u"),
    ),
    "A says what approves a card that is not risky": (
        press("A"),
        sees("No risk here: → approves it."),
        press("left left A"),
        sees("→ shows the risk first."),
        never_called("approve"),
    ),
    "a card that the content rail blocks says on itself and after A how to run it": (
        with_first_card(verdicts=(BLOCKED_BY_CONTENT,)),
        sees("✗ content would block: deletes everything. To run it once: →, then 6"),
        press("A"),
        sees("The rail “content” blocks it. To run it once: →, then 6 ⇥ a"),
        hides("No risk here"),
    ),
    "a card that another rail blocks names the screen of the rails": (
        with_first_card(verdicts=(RailVerdict("cost", Verdict.BLOCK, "the cap is reached", "the cap is reached"),)),
        press("A"),
        sees("The rail “cost” blocks it. 6 shows the rails."),
        hides("No risk here"),
    ),
    "words after a / that opens no field decide nothing, until another key": (
        press("slash s l o w"),
        sees("/ does nothing on this screen"),
        UNDECIDED,
        in_front(FIRST),
        press("escape s"),
        called("snooze", FIRST),
    ),
    "dismissing a card with a note says what was dismissed": (
        with_first_card(note="content: deletes everything"),
        press("left"),
        called("dismiss", FIRST),
        sees("← Dismissed:", "Undo: u"),
        hides("content: deletes everything"),
    ),
    "a card that another console approved first does not come back": (
        refused("approve", "was already approved", code="already_decided"),
        approve_elsewhere,
        press("right"),
        sees("was approved elsewhere, and runs."),
        in_front(SECOND),
        hides("Undo: u"),
    ),
    "a refusal brings the card back with its reason, which goes with the card": (
        refused("approve", CAP_REACHED),
        press("right"),
        in_front(FIRST),
        sees(f"✗ {CAP_REACHED}"),
        press("j"),
        hides(f"✗ {CAP_REACHED}"),
    ),
    "an error goes with the screen": (
        refused("approve", CAP_REACHED),
        press("right"),
        sees(f"✗ {CAP_REACHED}"),
        press("2"),
        on_screen("work"),
        press("1"),
        on_screen("mission"),
        hides(f"✗ {CAP_REACHED}"),
    ),
    "down, j, k, g and G show another card, and keys decide the one that is shown": (
        sees("CARDS  1 of 5"),
        shows_tiers("AT RISK", "BLOCKS", "BLOCKS", "CHECK", "UPKEEP"),
        press("j down"),
        sees("CARDS  3 of 5"),
        in_front(RISKY),
        cursor("#cards", RISKY),
        press("k"),
        in_front(SECOND),
        press("k k"),
        sees("CARDS  5 of 5"),
        press("g"),
        in_front(FIRST),
        press("G"),
        sees("CARDS  5 of 5"),
        UNDECIDED,
        press("j j left"),
        called("dismiss", SECOND),
        sees("CARDS  2 of 4"),
        cursor("#cards", RISKY),
    ),
    "the count is of what is pending: another is decided elsewhere": (
        press("j j"),
        change_cards(None, FIRST),
        sees("CARDS  2 of 4"),
        in_front(RISKY),
    ),
    "cards of one workspace, and a check for new ones": (
        press("p"),
        called("run_cycle", True),
        sees("Nothing new."),
        press("w w"),
        in_front(BLOG_CARD),
        sees("only blog"),
        press("w"),
        sees("of 5"),
    ),
    "a check counts no card that replaces one with other facts": (
        next_check_finds(
            lambda engine: (
                replace(engine.cards.all[FIRST], id="pred_000000000088", fingerprint="new"),
                OF_OTHER_SUBJECT,
            )
        ),
        press("p"),
        sees("1 new card."),
    ),
    "an empty stack says when the next check is": (
        Given(lambda engine: engine.cards.all.clear()),
        sees("Next check: 14:30"),
        press("right left up enter"),
        UNDECIDED,
    ),
    "a card on screen counts as shown once": (
        press("left"),
        called("mark_shown", SECOND),
        called("mark_shown", FIRST),
    ),
    "a kind that a reason switches off is told with the way back": (
        with_first_card(note=LINT_OFF),
        press("left v"),
        sees(f"{LINT_OFF} · Undo: u"),
        press("u"),
        has_undone(FIRST),
        in_front(FIRST),
    ),
    "a reason belongs to the last dismissal": (
        press("left left x"),
        called("explain", SECOND, "wrong"),
        called("explain", FIRST, "wrong", times=0),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES))


@pytest.mark.parametrize(
    ("key", "call"),
    [("right", "approve"), ("l", "approve"), ("left", "dismiss"), ("h", "dismiss"), ("up", "snooze"), ("s", "snooze")],
)
async def test_a_decision_shows_the_next_card_at_once(
    console: ConsoleApp, engine: StandIn, key: str, call: str
) -> None:
    async with running(console) as pilot:
        assert find_front_id(console) == FIRST
        await pilot.press(key)
        assert find_front_id(console) == SECOND  # at once, before the engine answered
        await until(pilot, lambda: all(card.id != FIRST for card in console.state.cards))
        assert [item[:2] for item in find_calls(engine, "approve", "dismiss", "snooze")] == [(call, FIRST)]
        assert find_front_id(console) == SECOND


REFUSAL_REASON = (
    "the content filter would stop it: it deletes outside the workspace, where nothing of a session is undone"
)
FIX = (
    "edit its prompt in the details so that it names a folder of the workspace, or allow exactly this once on screen 6"
)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
@pytest.mark.parametrize("key", ["approve", "undo"])
async def test_a_refusal_is_shown_whole(console: ConsoleApp, engine: StandIn, key: str, size: tuple[int, int]) -> None:
    engine.refuse[key] = Refusal("blocked", REFUSAL_REASON, FIX)
    async with running(console, *(["right"] if key == "approve" else ["left", "u"]), size=size) as pilot:
        message = console.screen.query_one("#message")
        await until(pilot, lambda: read_text_in(console, message.region) == f"✗ {REFUSAL_REASON} ({FIX})")
        assert find_stack(console).region.height >= 9
        await until(pilot, find_stack(console)._can_decide)
        await pilot.press("left")
        await until(pilot, lambda: message.region.height == 1)


@pytest.mark.long
async def test_an_undone_card_is_in_front_at_once_and_stays(console: ConsoleApp, engine: StandIn) -> None:
    answered = threading.Event()
    hold_back(engine.cards, "snooze", until=answered)
    async with running(console, "s", "u") as pilot:
        assert find_front_id(console) == FIRST
        assert not find_calls(engine, "snooze", "undo")  # nothing has reached the engine yet
        console.reload(["cards"])
        answered.set()
        await until(pilot, lambda: find_calls(engine, "undo") and not console._is_reading)
        assert [call[0] for call in find_calls(engine, "snooze", "undo")] == ["snooze", "undo"]
        assert (find_front_id(console), len(find_stack(console).cards)) == (FIRST, 5)
        await carry_out(pilot, change_cards(None, FIRST), in_front(SECOND))  # what was taken back does not outlive that


@pytest.mark.long
@pytest.mark.parametrize("decision", ["left", "right"])
async def test_an_undo_undoes_no_decision_that_was_made_after_its_key(
    console: ConsoleApp, engine: StandIn, decision: str
) -> None:
    answered = threading.Event()
    hold_back(engine.cards, "undo", until=answered)
    async with running(console, decision, "u", "u", notifications=True) as pilot:
        await carry_out(pilot, in_front(FIRST), press("left"), in_front(SECOND))
        answered.set()
        await until(pilot, lambda: not console.cards._overrides)
        assert (find_calls(engine, "undo"), find_front_id(console)) == ([("undo", FIRST)], SECOND)
        assert ("Undo is still running." in read_toasts(console)) is (decision == "right")


async def test_keys_are_ignored_for_a_moment_after_the_engine_replaced_the_card(console: ConsoleApp) -> None:
    async with running(console) as pilot:
        seconds = 100.0
        find_stack(console).clock = lambda: seconds
        await carry_out(pilot, change_cards(None, FIRST), in_front(SECOND))
        for passed, card_in_front in ((0.399, SECOND), (0.002, RISKY), (0.0, CHECK)):
            seconds += passed
            await pilot.press("left")
            assert find_front_id(console) == card_in_front


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_click_on_a_row_shows_its_card_and_a_second_one_its_details(
    console: ConsoleApp, size: tuple[int, int]
) -> None:
    async with running(console, size=size) as pilot:

        async def click(text: str) -> None:
            lines = read_screen(console).split("\n")
            y = max(number for number, line in enumerate(lines) if text in line)
            await pilot.click(offset=(lines[y].rindex(text) + 1, y))

        await pilot.press("escape", *(["tab"] if size[0] > 80 else []))  # on a narrow terminal another pane hides them
        await click("Rehearse merging")
        await carry_out(pilot, in_front(RISKY), sees("CARDS  3 of 5"))
        assert find_stack(console).has_focus  # the keys of the cards work at once
        await click("Rehearse merging")
        await carry_out(pilot, sees("Card details"), press("escape"))
        await click("← dismiss")  # a key of the footer
        await carry_out(pilot, called("dismiss", RISKY))


HOSTILE = [
    "[/foo] [b]bold", "[@click=app.quit]x[/]", "a [link=http://x]b", "漢字 🎉 👩‍👩‍👧‍👦 e\u0301", "x" * 4000,
    "$accent $ %s {0}",
]  # fmt: skip


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_hostile_text_is_shown_literally_and_breaks_no_column(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int]
) -> None:
    card = engine.cards.all[FIRST]
    async with running(console, size=size) as pilot:
        for text in HOSTILE:
            hostile = {
                "assignment": replace(card.assignment, prompt=text), "reasoning": text, "note": text, "undo_note": text,
                "signals": (replace(card.signals[4], evidence=(text,)),),
                "verdicts": (RailVerdict("content", Verdict.BLOCK, text, text),),
            }  # fmt: skip
            await carry_out(pilot, change_cards(replace(card, **hostile), FIRST))  # type: ignore[arg-type]
            await until(pilot, lambda text=text: find_stack(console).front.assignment.prompt == text)
            await pilot.pause()
            strips = console.screen._compositor.render_strips()
            assert {sum(segment.cell_length for segment in strip) for strip in strips} == {size[0]}
            assert text[:12].split(" 🎉")[0] in read_screen(console)
        await pilot.press("enter", "escape")


def test_every_flow_has_a_word_for_its_work() -> None:
    assert {flow for flows in FLOWS_BY_WORK.values() for flow in flows} == set(FLOWS)


@pytest.mark.parametrize(
    ("flow", "word"), [("tidy_imports", "tidy imports"), (None, "koji-core")], ids=["learned", "by a model"]
)
def test_a_learned_flow_is_called_by_its_name_and_work_of_a_model_by_its_channel(flow: str | None, word: str) -> None:
    assert name_work(stand_in_data.card(1, "x", flow=flow)) == word


def test_a_card_without_a_cost_shows_none() -> None:
    assert "est. $0.05" in describe_work(stand_in_data.card(1, "x", estimate=50_000))
    assert "$" not in describe_work(stand_in_data.card(1, "x", estimate=0))
