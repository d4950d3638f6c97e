"""The learning screen: the list of candidates and learnings, details and links, decisions."""

from __future__ import annotations

import threading

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from clawpy_console.dialogs.base import Question
from clawpy_console.screens.learning import LearningScreen
from clawpy_console.screens.learning_items import DecisionDialog
from clawpy_console.screens.xray import open_source
from clawpy_console.widgets.rows import Rows
from engine.model import PromptSource, SourceKind
from tests.console.conftest import until_loaded
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.console.stand_in import StandIn
from tests.console.stand_in_learning import (
    CHEAP,
    EMOJI,
    FOUND,
    GLOBAL,
    LINT,
    OLD,
    PROJECT,
    PROXY,
    ROUNDING,
    SESSIONS,
    STOCK,
    TASK,
    TRIES,
)
from tests.console.stories import (
    Given,
    Step,
    Until,
    called,
    carry_out,
    never_called,
    on_screen,
    play,
    press,
    refused,
    sees,
    select,
    story_test,
    type_text,
)

WIDE = (150, 50)


@pytest.fixture(autouse=True)
def learnings_wait(engine: StandIn) -> None:
    engine.learnings_wait = True


def at(id: str) -> Until:
    """The cursor stands on this candidate or learning, and it was read."""

    def holds(app: ConsoleApp) -> object:
        screen = app.screen
        return isinstance(screen, LearningScreen) and screen.view is not None and screen.current == id

    return Until(id, holds)


def opened(id: str) -> tuple[Step, ...]:
    return lambda app: app.open("learning", id), at(id)


def listed(*ids: str) -> Until:
    """The list begins with these rows."""
    rows = lambda app: [row.id for row in app.screen.query_one("#list", Rows).rows if row.id]  # noqa: E731
    return Until(f"{ids}", lambda app: rows(app)[: len(ids)] == list(ids))


def only(id: str) -> Until:
    return Until(id, lambda app: [row.id for row in app.screen.query_one("#list", Rows).rows if row.id] == [id])


def work_on(session: str) -> Until:
    return Until(session, lambda app: app.current_mode == "work" and app.screen.session.id == session)


def nothing_learned(engine: StandIn) -> None:
    engine.adaptation.all, engine.learnings.all = {}, {}
    engine.learnings.scopes = list  # type: ignore[method-assign]


def follow(kind: SourceKind, id: str) -> Step:
    """Open the source of a line of a prompt."""
    return lambda app: open_source(app, PromptSource(kind, id, "learned here"), SESSIONS[0])


QUESTION = Until("a question", lambda app: isinstance(app.screen, Question))
UNDECIDED = never_called("approve_candidate", "reject_candidate", "roll_back")

STORIES: dict[str, tuple[Step, ...]] = {
    "words and groups filter both": (
        *opened(ROUNDING.id),
        press("slash"),
        type_text("chronicler"),
        listed(CHEAP.id, EMOJI.id),
        press("enter s"),
        only(CHEAP.id),
        sees("only: Needs your decision"),
        press("escape escape slash"),
        type_text("one process"),
        press("enter"),
        listed(TASK.id),
        press("escape t t t"),
        listed(PROXY.id),
        sees("only: about you"),
        press("escape"),
        listed(ROUNDING.id),
    ),
    "activating shows what changes, and can be undone": (
        *opened(ROUNDING.id),
        press("a"),
        QUESTION,
        sees("for backend_builder, coding runs in shop", "- 2. Look at what changed since it was green."),
        press("enter"),
        UNDECIDED,
        press("a y"),
        called("approve_candidate", ROUNDING.id),
        sees("● active by you"),
        press("u"),
        called("undo_candidate", ROUNDING.id),
        sees("▲ needs your decision"),
        Until("no undo", lambda app: not app.screen.check_action("undo", ())),
    ),
    "leaving the question decides nothing": (
        *opened(ROUNDING.id),
        press("a escape a n x n o escape"),
        on_screen("learning"),
        UNDECIDED,
    ),
    "rejecting keeps the reason, and Enter decides nothing": (
        *opened(TRIES.id),
        press("x"),
        sees("Nothing changes in how agents act."),
        type_text("yes few"),
        press("enter"),
        Until("the dialog", lambda app: isinstance(app.screen, DecisionDialog)),
        UNDECIDED,
        press("ctrl+s"),
        called("reject_candidate", TRIES.id, "yes few"),
        sees("✗ rejected by you"),
    ),
    "a refusal to activate is said": (
        refused("approve_candidate", "decided meanwhile"),
        *opened(ROUNDING.id),
        press("a y"),
        sees("decided meanwhile"),
    ),
    "a refusal to promote is said": (
        refused("promote", "decided meanwhile"),
        *opened(TASK.id),
        press("p y"),
        sees("decided meanwhile"),
    ),
    "a record leads to its session": (
        *opened(ROUNDING.id),
        press("enter down enter"),
        sees("It does not come from a session."),
        press("up enter"),
        work_on("sess_000000000002"),
    ),
    "a learning leads to its sources and sessions": (
        *opened(PROJECT.id),
        sees("confidence  ▇▇▇▇▇▇▇▇▇· 0.90", "reached     12 prompts"),
        press("enter enter"),
        at(FOUND[0].id),
        select("#links", f"learning:{PROJECT.id}"),
        press("enter"),
        at(PROJECT.id),
        select("#links", f"session:{SESSIONS[1]}"),
        press("enter"),
        work_on(SESSIONS[1]),
    ),
    "retracting says what it queues, and that can be kept": (
        *opened(PROJECT.id),
        press("x"),
        sees("1 learning promoted from it will wait for your decision:"),
        type_text("wrong"),
        press("ctrl+s"),
        called("retract", PROJECT.id, "wrong"),
        sees("1 learning promoted from it: check below “Needs your decision”", "Needs your decision  3"),
        *opened(GLOBAL.id),
        press("a"),
        called("keep", GLOBAL.id),
    ),
    "a learning of a project is applied everywhere": (
        *opened(TASK.id),
        press("p"),
        sees("If you confirm, a copy goes"),
        press("y"),
        called("promote", TASK.id),
    ),
    "what recurs is promoted now": (*opened(PROJECT.id), press("C"), sees("2 found, 1 promoted")),
    "a line of a prompt leads to a candidate": (follow(SourceKind.OVERLAY, STOCK.id), at(STOCK.id)),
    "a line of a prompt leads to a learning": (follow(SourceKind.LEARNING, PROJECT.id), at(PROJECT.id)),
    "the queue of mission control leads here": (select("#queue", CHEAP.id), press("enter"), at(CHEAP.id)),
    "what is gone is said": (lambda app: app.open("learning", "cand_gone"), sees("cand_gone no longer exists")),
    "an empty list says how it fills": (Given(nothing_learned), press("5"), sees("Learnings come from sessions")),
}


test_story = pytest.mark.long(story_test(STORIES, size=WIDE))


@pytest.mark.long
async def test_keys_during_an_undo_say_that_it_is_still_running(console: ConsoleApp, engine: StandIn) -> None:
    answered, undo = threading.Event(), engine.adaptation.undo
    engine.adaptation.undo = lambda id: (answered.wait(5), undo(id))[1]  # type: ignore[method-assign]
    removed = sees("Its changes are removed:", "- 3. Look at what changed since it was green.")
    rolled_back = (press("b"), removed, press("ctrl+s"), sees("▼ rolled back by you"))
    busy = (press("u a u"), sees("Undo is still running. Try again in a moment."), lambda app: answered.set())
    done = (sees("● active"), called("undo_candidate", STOCK.id))
    await play(console, *opened(STOCK.id), *rolled_back, *busy, *done, size=WIDE)


OFFERED = {
    ROUNDING: {"approve", "reject"}, TRIES: {"reject"}, STOCK: {"roll back"}, LINT: {"approve", "reject"}, EMOJI: set(),
    TASK: {"retract", "promote"}, GLOBAL: {"retract"}, PROXY: {"retract"}, OLD: set(),
}  # fmt: skip
DECISIONS = ("approve", "reject", "roll back", "retract", "keep", "promote")


@pytest.mark.long
async def test_keys_that_can_do_nothing_are_not_offered(console: ConsoleApp) -> None:
    def offers(offered: set[str]) -> Until:
        check = lambda app: {name for name in DECISIONS if app.screen.check_action("decide", (name,))}  # noqa: E731
        return Until(f"{offered}", lambda app: check(app) == offered)

    steps = [step for item, offered in OFFERED.items() for step in (*opened(item.id), offers(offered))]
    await play(console, *steps, size=WIDE)


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("id", [ROUNDING.id, STOCK.id, PROJECT.id], ids=["candidate", "lift", "learning"])
def test_how_it_looks(console: ConsoleApp, compare_snapshot: CompareSnapshot, size: str, id: str) -> None:
    async def to(pilot: Pilot) -> None:
        await until_loaded(pilot)
        await carry_out(pilot, *opened(id))

    compare_snapshot(console, size, "right", go=to)


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_how_it_looks_before_anything_was_learned(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, size: str
) -> None:
    nothing_learned(engine)
    compare_snapshot(console, size, "5")


@pytest.mark.long
def test_how_the_question_looks(console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot) -> None:
    engine.settings.current.console.theme = "clawpy-high-contrast"
    compare_snapshot(console, "80x24", "5", "a")
