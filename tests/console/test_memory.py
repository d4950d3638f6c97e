"""The memory screen: layers, entries and links, search, preview of recall, and what is changed there (SPEC 4, 9.5)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.memory_entries import LAYER_NAMES
from clawpy_console.screens.prompt_dialogs import open_source
from clawpy_console.widgets import Rows
from engine.events.engine import AgentFileChanged
from engine.model import Layer, PromptSource, SourceKind, Waiting
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
from tests.console.stand_in_data import BLOG, NOW
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
    Stories,
    Until,
    called,
    find_calls,
    find_stand_in,
    hides,
    make_story_test,
    never_called,
    on_screen,
    play,
    press,
    refused,
    sees,
    select,
    type_text,
)

pytestmark = pytest.mark.long

TEXT_BY_LAYER = {
    Layer.MARKDOWN: "Builds small, tests first.",
    Layer.LEDGER: "SessionEnded",
    Layer.VECTORS: "money, decimal",
    Layer.CAPTURE: "I take Decimal, since floats lose cents.",
    Layer.CONTEXT: "Rounded cart totals to whole cents with Decimal",
    Layer.GRAPH: "3 files changed, lint is clean",
    Layer.PARA: "stated in 3 sessions",
}
"""A text of the first entry of each layer."""

PROMPT_SOURCE = PromptSource(SourceKind.MEMORY, "mem_0000000000000002", "C sess_3")
"""A memory as the source of a line of a prompt."""


def open_entry(layer: Layer, id: str) -> Step:
    """Show a single entry, as another screen does."""
    return lambda app: app.screen.show(layer, id)


def lists_entries(layer: Layer, count: str) -> Until:
    """The heading of the entries says how many there are; "200+" while there are more to read."""
    return sees(f"{layer.value} {LAYER_NAMES[layer][0].upper()} {count} ")


def select_link(id: str) -> Step:
    """Put the cursor on the last link whose row has this in its id."""

    def act(app: ConsoleApp):
        links = [row.id for row in app.screen.query_one("#links", Rows).rows if id in row.id]
        app.screen.query_one("#links", Rows).focus()
        app.screen.query_one("#links", Rows).select(links[-1])

    return act


def announce_change(app: ConsoleApp):
    """The engine notices that the soul was written."""
    find_stand_in(app).bus.publish(AgentFileChanged(subject="backend_builder", file="soul.md", how="on disk"))


def has_previewed_new_task(app: ConsoleApp) -> bool:
    """The last preview was for the task with " now" at its end, in the repository of the memory."""
    _, task, workspace, _ = find_calls(find_stand_in(app), "preview")[-1]
    return task.endswith(" now") and workspace == BLOG


STORIES: Stories = {
    "each layer shows its entries and where they came from": tuple(
        step for layer in Layer for step in (*open_layer(layer), sees(TEXT_BY_LAYER[layer]))
    ),
    "words filter as one types, without a reading for each key": (
        *open_layer(Layer.VECTORS),
        press("slash"),
        type_text("rounded once"),
        lists_entries(Layer.VECTORS, "1"),
        press("enter escape"),
        lists_entries(Layer.VECTORS, "5"),
        Until("few readings", lambda app: len(set(find_calls(find_stand_in(app), "entries"))) < 6),
    ),
    "a search by meaning has a key of its own": (
        *open_layer(Layer.VECTORS),
        press("m"),
        type_text("cents"),
        never_called("recall"),
        press("enter"),
        called("recall", "cents", frozenset({Layer.VECTORS})),
        sees("without graph: no answer", "0.90", "tags"),
    ),
    "the next page is read at the end of the last": (
        *open_layer(Layer.LEDGER),
        lists_entries(Layer.LEDGER, "200+"),
        press("end"),
        lists_entries(Layer.LEDGER, "400+"),
        press("end"),
        lists_entries(Layer.LEDGER, "450"),
    ),
    "an outside edit shows up at once": (
        *open_layer(Layer.MARKDOWN),
        write_outside,
        announce_change,
        sees("# Theirs"),
    ),
    "the chain of corrections of a fact is walked": (
        *open_layer(Layer.PARA),
        open_entry(Layer.PARA, "fact_0002"),
        shows_details("fact_0002"),
        sees("this one Cart totals are rounded once", "replaced Cart totals are rounded per line"),
        select_link("fact_0003"),
        press("enter"),
        shows_details("fact_0003"),
    ),
    "a line of a prompt leads to its memory": (
        lambda app: open_source(app, PROMPT_SOURCE, "sess_9"),
        on_screen("memory"),
        shows_details(PROMPT_SOURCE.ref),
        sees("from another screen"),
    ),
    "a memory that is gone says so": (
        *open_layer(Layer.VECTORS),
        open_entry(Layer.CONTEXT, "mem_gone"),
        sees("layer E has no mem_gone"),
    ),
    "a preview of recall is made for another task, and leads to what it recalls": (
        Given(
            lambda engine: setattr(engine.memory, "all", [replace(item, workspace=BLOG) for item in engine.memory.all])
        ),
        *open_layer(Layer.VECTORS),
        press("r"),
        sees("212 of 600 tokens"),
        press("tab slash end"),
        type_text(" now"),
        press("enter"),
        Until("a preview of the new task", has_previewed_new_task),
        press("down enter"),
        CLOSED,
        sees("from another screen"),
    ),
}


test_story = make_story_test(STORIES, size=WIDE)


def file_begins(start: str) -> Until:
    """The saved soul begins like this."""
    return Until(f"a file with {start}", lambda app: find_stand_in(app).agent_files.all[SOUL].startswith(start))


def with_soul(text: str) -> Given:
    """The soul has this text."""
    return Given(lambda engine: engine.agent_files.all.update({SOUL: text}))


def make_draft_wait(engine: StandIn):
    read_queue = engine.list_waiting
    engine.list_waiting = lambda: [*read_queue(), Waiting("fact", "draft_2", "keep a fact?", NOW)]


CHANGES: Stories = {
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
        sees("control characters not at all: saving writes it like that."),
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
        sees("Forget it in 3 places", "and 1 more", "stays: prompts that were sent already"),
        press("y up enter x enter"),
        never_called("forget"),
        press("X"),
        hides("We take Decimal"),
        was_called_once("forget"),
    ),
    "rows of the ledger are not forgotten": (*open_layer(Layer.LEDGER), press("x"), CLOSED, hides("x forget")),
}


test_change = make_story_test(CHANGES, size=WIDE)


async def test_the_operators_editor_gets_the_file(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
):
    opened = []
    monkeypatch.setattr("clawpy_console.external_programs.open_editor", lambda app, path: opened.append(path))
    await play(console, *open_layer(Layer.MARKDOWN), press("E"), size=WIDE)
    assert opened == [str(engine.agent_files.folder / "/".join(SOUL))]
