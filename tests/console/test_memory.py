"""The memory screen: layers, entries and their links, search, recall preview, editing, forgetting."""

from __future__ import annotations

import pytest
from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.memory import MemoryScreen
from clawpy_console.screens.memory_entries import detail_fields, full_text, to_entry
from clawpy_console.screens.xray import open_source
from clawpy_console.widgets.rows import Rows
from engine.events import AgentFileChanged
from engine.model import AgentFile, Layer, Memory, PromptSource, Refusal, Retention, SourceKind, Waiting
from tests.console.conftest import running
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
    Until,
    call_log,
    called,
    calls_of,
    carry_out,
    hides,
    never_called,
    play,
    press,
    refused,
    sees,
    select,
    story_test,
    type_text,
)

pytestmark = pytest.mark.long

WIDE = (150, 45)
SOUL = ("backend_builder", "soul.md")


def detail(id: str = "") -> Until:
    """This entry is shown on the right, "" for any."""

    def holds(app: ConsoleApp) -> bool:
        entry = app.screen._detail_entry if isinstance(app.screen, MemoryScreen) else None
        return entry is not None and id in ("", entry.id)

    return Until(f"the detail {id}", holds)


def layer(layer: Layer) -> tuple[Step, ...]:
    """To the entries of a layer."""
    is_read = Until(layer, lambda app: app.screen.entry is not None and app.screen.entry.layer is layer)
    return (
        press("4"),
        lambda app: app.screen.go_to("layers"),
        select("#layers", layer.value),
        press("enter"),
        is_read,
        detail(),
    )


def entries(count: int) -> Until:
    return Until(f"{count} entries", lambda app: len(app.screen._entries) == count)


def text(start: str) -> Until:
    """The text in the editor begins like this."""
    return Until(start, lambda app: app.screen.query_one("#text", TextArea).text.startswith(start))


def single(id: str) -> Until:
    return Until(id, lambda app: app.screen._is_single and app.screen.entry.id == id)


def show(layer: Layer, id: str) -> Step:
    return lambda app: app.screen.show(layer, id)


def link(id: str) -> Step:
    """The cursor on the last link whose row has this in its id."""

    def act(app: ConsoleApp) -> None:
        rows = app.screen.query_one("#links", Rows)
        select("#links", next(row.id for row in reversed(rows.rows) if id in row.id))(app)  # type: ignore[operator]

    return act


def edited_outside(app: ConsoleApp) -> None:
    soul(app.engine, "# Theirs\n")  # type: ignore[arg-type]
    app.engine.bus.publish(AgentFileChanged(subject="backend_builder", file="soul.md", how="on disk"))  # type: ignore[union-attr]


def soul(engine: StandIn, text: str) -> None:
    engine.agent_files.all[SOUL] = text


def saved(start: str) -> Until:
    return Until(start, lambda app: app.engine.agent_files.all[SOUL].startswith(start))


def a_draft_waits(engine: StandIn) -> None:
    queue = engine.queue
    engine.queue = lambda: [*queue(), Waiting("fact", "draft_2", "keep a fact?", NOW)]  # type: ignore[method-assign]


def recall_fails(engine: StandIn) -> None:
    def fails(request: object) -> None:
        raise Refusal("damaged_home", "the database is damaged", "put back a copy")

    engine.recall_part.preview = fails  # type: ignore[method-assign, assignment]


SHOWS = {
    Layer.MARKDOWN: "Builds small, tests first.", Layer.LEDGER: "SessionEnded", Layer.VECTORS: "money, decimal",
    Layer.CAPTURE: "I take Decimal, since floats lose cents.",
    Layer.CONTEXT: "Rounded cart totals to whole cents with Decimal", Layer.GRAPH: "3 files changed, lint is clean",
    Layer.PARA: "stated in 3 sessions",
}  # fmt: skip
TASK = PromptSource(SourceKind.MEMORY, "mem_0000000000000002", "C sess_3")
ASKED_NOW = Until(
    "another task", lambda app: [call for call in call_log(app) if call[0] == "preview"][-1][1].endswith(" now")
)

STORIES: dict[str, tuple[Step, ...]] = {
    "each layer shows its entries and where they came from": tuple(
        step for item in Layer for step in (*layer(item), sees(SHOWS[item]))
    ),
    "words filter as one types": (
        *layer(Layer.VECTORS), press("slash"), type_text("rounded once"), entries(1), press("enter escape"), entries(5),
        Until("not once a key", lambda app: len({call[2] for call in call_log(app) if call[0] == "entries"}) < 6),
    ),
    "a search by meaning has a key of its own": (
        *layer(Layer.VECTORS), press("m"), type_text("cents"), never_called("recall"), press("enter"),
        called("recall", "cents", frozenset({Layer.VECTORS})), sees("without graph: no answer", "0.90", "tags"),
    ),
    "the next page is read at the end of the last": (
        *layer(Layer.LEDGER), entries(200), press("end"), entries(400), press("end"), entries(450),
        Until("no more", lambda app: not app.screen._has_more),
    ),
    "an outside edit shows up at once": (*layer(Layer.MARKDOWN), edited_outside, sees("# Theirs")),
    "around a task edges are named, and one can walk on": (
        *layer(Layer.GRAPH), press("down"), detail("sess_000000000003"),
        sees("AROUND THIS TASK", "✓ blocked Format and fix", "○ led to Hunt flakes", "· formerly similar to Round per"),
        link("sess_000000000002"), press("enter"), detail("sess_000000000002"), sees("was blocked by"),
        press("escape"), entries(4),
    ),
    "the chain of corrections of a fact is walked": (
        *layer(Layer.PARA), show(Layer.PARA, "fact_0002"), detail("fact_0002"),
        sees("this one Cart totals are rounded once", "replaced Cart totals are rounded per line"),
        link("fact_0003"), press("enter"), detail("fact_0003"),
    ),
    "who used a memory leads to the session": (
        Given(StandIn.with_agent), *layer(Layer.VECTORS), sees("USED BY"), link("sess_000000000009"), press("enter"),
        Until("work", lambda app: app.current_mode == "work" and app.screen.session.id == "sess_000000000009"),
    ),
    "a line of a prompt leads to its memory": (
        lambda app: open_source(app, TASK, "sess_9"), single(TASK.ref), sees("from another screen")
    ),
    "a memory that is gone says so": (
        *layer(Layer.VECTORS), show(Layer.CONTEXT, "mem_gone"), sees("layer E has no mem_gone")
    ),
    "a preview of recall shows each line, its score and what fell out": (
        *layer(Layer.VECTORS), press("r"),
        sees("212 of 600 tokens", "<recalled-memory>", "left out (budget)", "▲ without graph"),
        press("tab"), sees("meaning", "▇▇▇▇▇▇▇▇·· 0.82 × 0.60"), press("slash end"), type_text(" now"), press("enter"),
        ASKED_NOW, press("down enter"), CLOSED, Until("a single one", lambda app: app.screen._is_single),
    ),
    "a recall that fails says so": (
        Given(recall_fails), *layer(Layer.VECTORS), press("r"), sees("the database is damaged"),
    ),
    "a file is edited and saved": (
        *layer(Layer.MARKDOWN), press("e"), text("# Builder"), type_text("New "), press("ctrl+s"),
        saved("New # Builder"), sees("New # Builder")
    ),
    "an edit of what changed meanwhile shows both texts": (
        *layer(Layer.MARKDOWN), press("e"), text("# Builder"), lambda app: soul(app.engine, "# Theirs\n"),
        type_text("Mine "), press("ctrl+s"),
        sees("Another program changed the file", "# Theirs"), never_called("wrote"), press("ctrl+t"),
        text("# Theirs\n"),
        press("ctrl+z"), text("Mine # Builder"), press("ctrl+s"), saved("Mine # Builder"),
    ),
    "a file that is refused stays open, and closes at the second key": (
        refused("wrote", "line 2, column 3: there is a comma too many here"), *layer(Layer.MARKDOWN), press("e"),
        text("# Builder"), press("x ctrl+s"), sees("line 2, column 3"), press("escape"), sees("Not saved"),
        press("escape"), CLOSED,
    ),
    "drafts are kept or turned down, and the queue leads to them": (
        Given(a_draft_waits), select("#queue", "draft_2"), press("enter"), detail("draft_2"), press("n"),
        called("reject", "draft_2"),
        detail("draft_1"), press("a"), called("promote", "draft_1"), hides("DRAFTS"), press("a n"),
        called("promote", "draft_1"),
    ),
    "forgetting shows what it touches and asks for a second key": (
        *layer(Layer.VECTORS), press("x"), sees("Forget it in 3 places", "stays: prompts that were sent already"),
        press("y up enter x enter"), never_called("forget"), press("X"), hides("We take Decimal"),
        Until("it is forgotten", lambda app: len([call for call in call_log(app) if call[0] == "forget"]) == 1),
    ),
    "rows of the ledger are not forgotten": (*layer(Layer.LEDGER), press("x"), CLOSED, hides("x forget")),
}  # fmt: skip


test_story = story_test(STORIES, size=WIDE)


async def test_a_layer_that_is_built_shows_its_progress(console: ConsoleApp, engine: StandIn) -> None:
    engine.memory.building = 0.41
    async with running(console, size=WIDE) as pilot:
        await carry_out(pilot, *layer(Layer.VECTORS), sees("41%", "building"))
        engine.memory.building = 0.0
        console.screen._refresh_layers()
        await carry_out(pilot, hides("41%"))


async def test_the_first_preview_is_for_the_first_card(console: ConsoleApp, engine: StandIn) -> None:
    first = engine.cards.pending()[0]
    await play(console, *layer(Layer.VECTORS), press("r"), sees("212 of 600 tokens"))
    assert calls_of(engine, "preview") == [
        ("preview", first.assignment.prompt, first.assignment.workspace, first.agent)
    ]


async def test_the_operators_editor_gets_the_file(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("clawpy_console.external_programs.open_editor", lambda app, path: opened.append(path))
    await play(console, *layer(Layer.MARKDOWN), press("E"), size=WIDE)
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
    entry = to_entry(value)
    assert (entry.text, entry.is_forgotten, entry.can_be_forgotten) == ("forgotten", is_forgotten, not is_forgotten)
    assert full_text(entry).startswith(shown)


def test_an_entry_shows_its_attributes_and_its_problem() -> None:
    file = AgentFile("cto", "memory.md", "", "", problem="is not UTF-8")
    texts = [field.text for field in detail_fields(to_entry(file), "/agents", NOW)]
    assert {"/agents/cto/memory.md", "✗ is not UTF-8"} <= set(texts)
    named = {field.name: field.text for field in detail_fields(to_entry(memory("cents")), "/agents", NOW)}
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
