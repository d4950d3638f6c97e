"""Changes of memory on its screen: files are edited, drafts decided, texts forgotten (SPEC 4.1, 4.8, 4.10)."""

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import Layer, Waiting
from tests.console.memory_steps import (
    SOUL,
    WIDE,
    editor_begins,
    open_editor,
    open_layer,
    shows_details,
    was_called_once,
    write_outside,
)
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.console.stories import (
    CLOSED,
    Given,
    Stories,
    Until,
    called,
    find_stand_in,
    hides,
    make_story_test,
    never_called,
    play,
    press,
    refused,
    sees,
    select,
    type_text,
)

pytestmark = pytest.mark.long


def file_begins(start: str) -> Until:
    """The saved soul begins like this."""
    return Until(f"a file with {start}", lambda app: find_stand_in(app).agent_files.all[SOUL].startswith(start))


def with_soul(text: str) -> Given:
    """The soul has this text."""
    return Given(lambda engine: engine.agent_files.all.update({SOUL: text}))


def make_draft_wait(engine: StandIn):
    read_queue = engine.list_waiting
    engine.list_waiting = lambda: [*read_queue(), Waiting("fact", "draft_2", "keep a fact?", NOW)]


STORIES: Stories = {
    "a file is edited and saved": (
        *open_editor(),
        type_text("New "),
        press("ctrl+s"),
        file_begins("New # Builder"),
        sees("New # Builder"),
    ),
    "control characters of a file are named before an edit": (
        with_soul("# Builder\x07\tcareful\r\n"),
        *open_editor(),
        sees("Control characters are not shown, and saving removes them."),
        editor_begins("# Builder   careful\n"),
    ),
    "an edit of what changed meanwhile shows both texts": (
        *open_editor(),
        write_outside,
        type_text("Mine "),
        press("ctrl+s"),
        sees("Another program changed the file", "# Theirs"),
        never_called("wrote"),
        press("ctrl+t"),
        editor_begins("# Theirs\n"),
        press("ctrl+z"),
        editor_begins("Mine # Builder"),
        press("ctrl+s"),
        file_begins("Mine # Builder"),
    ),
    "a file that is refused stays open, and closes at the second key": (
        refused("wrote", "line 2, column 3: there is a comma too many here"),
        *open_editor(),
        press("x ctrl+s"),
        sees("line 2, column 3"),
        press("escape"),
        sees("Not saved"),
        press("escape"),
        CLOSED,
    ),
    "drafts are kept or dismissed, and the queue leads to them": (
        Given(make_draft_wait),
        select("#queue", "draft_2"),
        press("enter"),
        shows_details("draft_2"),
        press("n"),
        called("reject", "draft_2"),
        sees("Dismissed. It will not be drafted again."),
        shows_details("draft_1"),
        press("a"),
        called("promote", "draft_1"),
        hides("DRAFTS"),
        press("a n"),  # no draft is under the cursor: they do nothing
        was_called_once("promote"),
        was_called_once("reject"),
    ),
    "forgetting shows what it touches and asks for a second key": (
        *open_layer(Layer.VECTORS),
        press("x"),
        sees("Forget it in 3 places", "stays: prompts that were sent already"),
        press("y up enter x enter"),
        never_called("forget"),
        press("X"),
        hides("We take Decimal"),
        was_called_once("forget"),
    ),
    "rows of the ledger are not forgotten": (
        *open_layer(Layer.LEDGER),
        press("x"),
        CLOSED,
        hides("x forget"),
    ),
}


test_story = make_story_test(STORIES, size=WIDE)


async def test_the_operators_editor_gets_the_file(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
):
    opened = []
    monkeypatch.setattr("clawpy_console.external_programs.open_editor", lambda app, path: opened.append(path))
    await play(console, *open_layer(Layer.MARKDOWN), press("E"), size=WIDE)
    assert opened == [str(engine.agent_files.folder / "/".join(SOUL))]
