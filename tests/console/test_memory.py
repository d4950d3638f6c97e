"""The memory screen: layers, entries and their links, filter and search by meaning, the preview of recall, editing of
files, drafts and forgetting."""

from __future__ import annotations

import pytest
from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.memory_entries import LAYER_NAMES, make_entry, make_entry_fields, make_full_text
from clawpy_console.screens.xray import open_source
from clawpy_console.widgets.rows import Rows
from engine.events import AgentFileChanged
from engine.model import AgentFile, Layer, Memory, PromptSource, Retention, SourceKind, Waiting
from tests.console.conftest import running
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
    Stories,
    Until,
    called,
    carry_out,
    find_calls,
    find_stand_in,
    hides,
    make_story_test,
    never_called,
    on_screen,
    play,
    press,
    read_text_in,
    refused,
    sees,
    select,
    type_text,
)

pytestmark = pytest.mark.long

WIDE = (150, 45)
SOUL = ("backend_builder", "soul.md")

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


def open_layer(layer: Layer) -> tuple[Step, ...]:
    """Go to the entries of a layer, and wait until the first one is shown."""
    return (
        press("4"),
        lambda app: app.screen.go_to("layers"),
        select("#layers", layer.value),
        press("enter"),
        Until(f"layer {layer}", lambda app: app.screen.entry is not None and app.screen.entry.layer is layer),
        hides("Select an entry."),
    )


def open_entry(layer: Layer, id: str) -> Step:
    """Show a single entry, as another screen does."""
    return lambda app: app.screen.show(layer, id)


def shows_details(id: str) -> Until:
    """The pane on the right shows the entry with this id."""
    return Until(f"the details of {id}", lambda app: id in read_text_in(app, app.screen.query_one("#entry").region))


def lists_entries(layer: Layer, count: str) -> Until:
    """The heading of the entries says how many there are; "200+" while there are more to read."""
    return sees(f"{layer.value} {LAYER_NAMES[layer][0].upper()} {count} ")


def select_link(id: str) -> Step:
    """Put the cursor on the last link whose row has this in its id."""

    def act(app: ConsoleApp) -> None:
        links = [row.id for row in app.screen.query_one("#links", Rows).rows if id in row.id]
        app.screen.query_one("#links", Rows).focus()
        app.screen.query_one("#links", Rows).select(links[-1])

    return act


def has_called(times: int, name: str) -> Until:
    """The engine was called by this name so many times."""
    return Until(f"{name} was called {times} times", lambda app: len(find_calls(find_stand_in(app), name)) == times)


def editor_begins(start: str) -> Until:
    """The text in the editor begins like this."""
    return Until(f"an editor with {start}", lambda app: app.screen.query_one("#text", TextArea).text.startswith(start))


def file_begins(start: str) -> Until:
    """The saved soul begins like this."""
    return Until(f"a file with {start}", lambda app: find_stand_in(app).agent_files.all[SOUL].startswith(start))


def write_outside(app: ConsoleApp) -> None:
    """Another program writes the soul."""
    find_stand_in(app).agent_files.all[SOUL] = "# Theirs\n"


def announce_change(app: ConsoleApp) -> None:
    """The engine notices that the soul was written."""
    find_stand_in(app).bus.publish(AgentFileChanged(subject="backend_builder", file="soul.md", how="on disk"))


def make_draft_wait(engine: StandIn) -> None:
    read_queue = engine.queue
    engine.queue = lambda: [*read_queue(), Waiting("fact", "draft_2", "keep a fact?", NOW)]  # type: ignore[method-assign]


def has_previewed_new_task(app: ConsoleApp) -> bool:
    """The last preview was for the task with " now" at its end."""
    _, task, *_ = find_calls(find_stand_in(app), "preview")[-1]
    return task.endswith(" now")


EDITOR_OPEN: tuple[Step, ...] = (*open_layer(Layer.MARKDOWN), press("e"), editor_begins("# Builder"))
"""The soul of the first agent is open in the editor."""

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
    "a recall that fails says so": (
        refused("preview", "the database is damaged"),
        *open_layer(Layer.VECTORS),
        press("r"),
        sees("the database is damaged"),
    ),
    "a file is edited and saved": (
        *EDITOR_OPEN,
        type_text("New "),
        press("ctrl+s"),
        file_begins("New # Builder"),
        sees("New # Builder"),
    ),
    "an edit of what changed meanwhile shows both texts": (
        *EDITOR_OPEN,
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
        *EDITOR_OPEN,
        press("x ctrl+s"),
        sees("line 2, column 3"),
        press("escape"),
        sees("Not saved"),
        press("escape"),
        CLOSED,
    ),
    "drafts are kept or rejected, and the queue leads to them": (
        Given(make_draft_wait),
        select("#queue", "draft_2"),
        press("enter"),
        shows_details("draft_2"),
        press("n"),
        called("reject", "draft_2"),
        shows_details("draft_1"),
        press("a"),
        called("promote", "draft_1"),
        hides("DRAFTS"),
        press("a n"),  # no draft is under the cursor: they do nothing
        has_called(1, "promote"),
        has_called(1, "reject"),
    ),
    "forgetting shows what it touches and asks for a second key": (
        *open_layer(Layer.VECTORS),
        press("x"),
        sees("Forget it in 3 places", "stays: prompts that were sent already"),
        press("y up enter x enter"),
        never_called("forget"),
        press("X"),
        hides("We take Decimal"),
        has_called(1, "forget"),
    ),
    "rows of the ledger are not forgotten": (
        *open_layer(Layer.LEDGER),
        press("x"),
        CLOSED,
        hides("x forget"),
    ),
}


test_story = make_story_test(STORIES, size=WIDE)


async def test_a_layer_that_is_built_shows_its_progress(console: ConsoleApp, engine: StandIn) -> None:
    engine.memory.building = 0.41
    async with running(console, size=WIDE) as pilot:
        await carry_out(pilot, *open_layer(Layer.VECTORS), sees("41%", "building"))
        engine.memory.building = 0.0
        console.reload(["memory"])
        await carry_out(pilot, hides("41%"))


async def test_the_first_preview_is_for_the_first_card(console: ConsoleApp, engine: StandIn) -> None:
    first = engine.cards.pending()[0]
    await play(console, *open_layer(Layer.VECTORS), press("r"), sees("212 of 600 tokens"))
    assert find_calls(engine, "preview") == [
        ("preview", first.assignment.prompt, first.assignment.workspace, first.agent)
    ]


async def test_the_operators_editor_gets_the_file(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("clawpy_console.external_programs.open_editor", lambda app, path: opened.append(path))
    await play(console, *open_layer(Layer.MARKDOWN), press("E"), size=WIDE)
    assert opened == [str(engine.agent_files.folder / "/".join(SOUL))]


# Entries


def memory(text: str, *, forgotten: bool = False) -> Memory:
    return Memory("mem_1", Layer.VECTORS, text, "turn", NOW, Retention.FOREVER, NOW, forgotten=forgotten)


@pytest.mark.parametrize(
    ("value", "shown", "is_forgotten"),
    [
        (memory("forgotten"), "forgotten", False),  # it says so, and is not erased
        (memory("", forgotten=True), "Forgotten: its text is removed everywhere.", True),
    ],
)
def test_an_erased_memory_keeps_its_place_and_says_so(value: Memory, shown: str, is_forgotten: bool) -> None:
    entry = make_entry(value)
    assert (entry.text, entry.is_forgotten, entry.can_be_forgotten) == ("forgotten", is_forgotten, not is_forgotten)
    assert make_full_text(entry).startswith(shown)


def test_an_entry_shows_its_attributes_and_its_problem() -> None:
    file = AgentFile("cto", "memory.md", "", "", problem="is not UTF-8")
    texts = [field.text for field in make_entry_fields(make_entry(file), "/agents", NOW)]
    assert {"/agents/cto/memory.md", "✗ is not UTF-8"} <= set(texts)
    named = {field.name: field.text for field in make_entry_fields(make_entry(memory("cents")), "/agents", NOW)}
    assert named["kept"] == "forever"


# How it looks

SCREENS = {
    "files": ("4",),
    "vectors": ("4", "down", "down", "enter"),
    "tasks": ("4", *["down"] * 5, "enter", "down"),
    "facts": ("4", *["down"] * 6, "enter", "down", "down"),
    "recalled": ("4", "down", "down", "enter", "r", "tab", "down"),
    "edit": ("4", "enter", "e"),
    "forget": ("4", "down", "down", "enter", "x"),
}
SHOWN = (
    *(("files", size) for size in SIZES),
    *(("recalled", size) for size in SIZES),
    *((screen, "120x40") for screen in SCREENS if screen not in ("files", "recalled")),
    ("facts", "80x24"),
)


@pytest.mark.parametrize(("screen", "size"), SHOWN)
def test_screens(console: ConsoleApp, compare_snapshot: CompareSnapshot, screen: str, size: str) -> None:
    compare_snapshot(console, size, *SCREENS[screen])


def test_building(console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot) -> None:
    engine.memory.building = 0.41
    compare_snapshot(console, "120x40", *SCREENS["vectors"])


def test_one_entry_when_narrow(console: ConsoleApp, compare_snapshot: CompareSnapshot) -> None:
    compare_snapshot(console, "80x24", *SCREENS["tasks"], "enter")


def test_without_colour(plain_console: ConsoleApp, compare_snapshot: CompareSnapshot) -> None:
    compare_snapshot(plain_console, "120x40", *SCREENS["facts"])
