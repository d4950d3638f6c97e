"""The learning screen: the list of candidates and learnings, details and links, decisions (SPEC 5.6, 6.5, 9.5)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens import learning
from clawpy_console.screens.dialog import Question
from clawpy_console.screens.learning import LearningScreen, ReasonDialog
from clawpy_console.screens.prompt_dialogs import open_source
from clawpy_console.widgets import Rows
from engine.model import PromptSource, SourceKind
from tests.console.stand_in import StandIn
from tests.console.stand_in_learning import (
    CHEAP,
    EMOJI,
    FOUND,
    GLOBAL,
    PROJECT,
    PROXY,
    ROUNDING,
    SESSIONS,
    STOCK,
    TASK,
    TRIES,
)
from tests.console.stories import (
    Step,
    Stories,
    Until,
    called,
    make_story_test,
    never_called,
    play,
    press,
    sees,
    select,
    type_text,
)

WIDE = (150, 50)


def shows_item(id: str) -> Until:
    """The cursor stands on this candidate or learning, and it was read."""

    def is_met(app: ConsoleApp) -> object:
        screen = app.screen
        return isinstance(screen, LearningScreen) and screen.view is not None and screen.current == id

    return Until(f"the cursor on {id}", is_met)


def open_item(id: str) -> tuple[Step, ...]:
    """Open the learning screen on this candidate or learning."""
    return lambda app: app.open("learning", id), shows_item(id)


@pytest.fixture(autouse=True)
def learnings_wait(engine: StandIn):
    """Candidates and learnings wait in the queue."""
    engine.learnings_wait = True


def read_listed_ids(app: ConsoleApp) -> list[str]:
    """The ids of the rows of the list, without its headings."""
    return [row.id for row in app.screen.query_one("#list", Rows).rows if row.id]


def list_begins(*ids: str) -> Until:
    """The list begins with these rows."""
    return Until(f"a list from {ids}", lambda app: read_listed_ids(app)[: len(ids)] == list(ids))


def shows_work(session: str) -> Until:
    """The work screen shows this session."""
    return Until(session, lambda app: app.current_mode == "work" and app.screen.session.id == session)


def follow(kind: SourceKind, id: str) -> Step:
    """Open the source of a line of a prompt."""
    return lambda app: open_source(app, PromptSource(kind, id, "learned here"), SESSIONS[0])


QUESTION = Until("a question", lambda app: isinstance(app.screen, Question))
UNDECIDED = never_called("approve_candidate", "reject_candidate", "roll_back")

STORIES: Stories = {
    "words and groups filter both": (
        *open_item(ROUNDING.id),
        press("slash"),
        type_text("chronicler"),
        list_begins(CHEAP.id, EMOJI.id),
        press("enter s"),
        Until("it alone", lambda app: read_listed_ids(app) == [CHEAP.id]),
        sees("only: Needs your decision"),
        press("escape escape slash"),
        type_text("one process"),
        press("enter"),
        list_begins(TASK.id),
        press("escape t t t"),
        list_begins(PROXY.id),
        sees("only: about you"),
        press("escape"),
        list_begins(ROUNDING.id),
    ),
    "activating shows what changes, and can be undone": (
        *open_item(ROUNDING.id),
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
    "rejecting keeps the reason, and Enter decides nothing": (
        *open_item(TRIES.id),
        press("x"),
        sees("Nothing changes in how agents act."),
        type_text("yes few"),
        press("enter"),
        Until("the dialog", lambda app: isinstance(app.screen, ReasonDialog)),
        UNDECIDED,
        press("ctrl+s"),
        called("reject_candidate", TRIES.id, "yes few"),
        sees("✗ rejected by you"),
    ),
    "rolling back says what is removed, and can be undone": (
        *open_item(STOCK.id),
        press("b"),
        sees("Its changes are removed:", "- 3. Look at what changed since it was green."),
        press("ctrl+s"),
        sees("▼ rolled back by you"),
        press("u"),
        called("undo_candidate", STOCK.id),
        sees("● active"),
    ),
    "a record leads to its session": (
        *open_item(ROUNDING.id),
        press("enter down enter"),
        sees("It does not come from a session."),
        press("up enter"),
        shows_work("sess_000000000002"),
    ),
    "a learning leads to its sources and sessions": (
        *open_item(PROJECT.id),
        press("enter enter"),
        shows_item(FOUND[0].id),
        select("#links", f"learning:{PROJECT.id}"),
        press("enter"),
        shows_item(PROJECT.id),
        select("#links", f"session:{SESSIONS[1]}"),
        press("enter"),
        shows_work(SESSIONS[1]),
    ),
    "retracting says what it queues, and that can be kept": (
        *open_item(PROJECT.id),
        press("x"),
        sees("1 learning promoted from it will wait for your decision:"),
        type_text("wrong"),
        press("ctrl+s"),
        called("retract", PROJECT.id, "wrong"),
        sees("1 learning promoted from it: check below “Needs your decision”", "Needs your decision  3"),
        *open_item(GLOBAL.id),
        press("a"),
        called("keep", GLOBAL.id),
    ),
    "a learning of a project is applied everywhere": (
        *open_item(TASK.id),
        press("p"),
        sees("If you confirm, a copy goes"),
        press("y"),
        called("promote", TASK.id),
    ),
    "what recurs is promoted now": (*open_item(PROJECT.id), press("C"), sees("2 found, 1 promoted")),
    "a line of a prompt leads to a candidate": (follow(SourceKind.OVERLAY, STOCK.id), shows_item(STOCK.id)),
    "the queue of mission control leads here": (select("#queue", CHEAP.id), press("enter"), shows_item(CHEAP.id)),
    "what is gone is said": (lambda app: app.open("learning", "cand_gone"), sees("cand_gone no longer exists")),
}


test_story = pytest.mark.long(make_story_test(STORIES, size=WIDE))


@pytest.mark.long
async def test_a_file_edited_by_hand_is_read_again_while_the_screen_is_open(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(learning, "REFRESH_S", 0.05)
    edited = replace(TASK, text="make test needs no database")
    edit = lambda app: engine.learnings.all.update({TASK.id: edited})  # noqa: E731
    await play(console, *open_item(TASK.id), edit, sees(edited.text), size=WIDE)
