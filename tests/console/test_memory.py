"""The memory screen: layers, entries and their links, filter, search by meaning, preview of recall (SPEC 4, 9.5)."""

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.memory_entries import LAYER_NAMES
from clawpy_console.screens.prompt_dialogs import open_source
from clawpy_console.widgets.rows import Rows
from engine.events import AgentFileChanged
from engine.model import Layer, PromptSource, SourceKind
from tests.console.memory_steps import WIDE, open_layer, shows_details, write_outside
from tests.console.stand_in import StandIn
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
    Stories,
    Until,
    called,
    find_calls,
    find_stand_in,
    make_story_test,
    never_called,
    on_screen,
    press,
    sees,
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
    """The last preview was for the task with " now" at its end."""
    _, task, *_ = find_calls(find_stand_in(app), "preview")[-1]
    return task.endswith(" now")


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
    "around a task edges are named, and one can walk on": (
        *open_layer(Layer.GRAPH),
        press("down"),
        shows_details("sess_000000000003"),
        sees("AROUND THIS TASK", "✓ blocked Format and fix", "○ led to Hunt flakes", "· formerly similar to Round per"),
        select_link("sess_000000000002"),
        press("enter"),
        shows_details("sess_000000000002"),
        sees("was blocked by"),
        press("escape"),
        lists_entries(Layer.GRAPH, "4"),
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
    "who used a memory leads to the session": (
        Given(StandIn.with_agent),
        *open_layer(Layer.VECTORS),
        sees("USED BY"),
        select_link("sess_000000000009"),
        press("enter"),
        on_screen("work"),
        Until("the session", lambda app: app.screen.session.id == "sess_000000000009"),
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
