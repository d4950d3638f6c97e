"""The memory screen: layers, entries, where each came from, what would be recalled, and what is forgotten."""

from __future__ import annotations

import pytest
from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.memory.screen import MemoryScreen
from clawpy_console.widgets.rows import Rows
from engine.events import AgentFileChanged
from engine.model import Layer, PromptSource, RecallMatch, Refusal, SourceKind, Waiting
from tests.console.conftest import at, live, running, screen_text, until, wait_for_text
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.console.stories import calls_of
from tests.support.helpers import assert_contains

pytestmark = pytest.mark.long


WIDE = (150, 45)


async def to_layer(pilot, layer: Layer) -> MemoryScreen:
    """The memory screen, with the cursor among the entries of `layer`."""
    await live(pilot)
    await pilot.press("4")
    screen = pilot.app.screen
    screen.go_to("layers")
    screen.query_one("#layers", Rows).select(layer.value)
    await pilot.press("enter")
    await until(pilot, lambda: screen.entry is not None and screen.entry.layer is layer, f"for layer {layer}")
    await until(pilot, lambda: screen._detail_entry is not None, "for the entry")
    return screen


async def test_what_is_being_built_says_so_and_is_looked_at_again(console: ConsoleApp, engine: StandIn) -> None:
    engine.memory.building = 0.41
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_layer(pilot, Layer.VECTORS)
        await wait_for_text(pilot, "41%")
        assert "building" in screen_text(console)
        engine.memory.building = 0.0
        screen._refresh_layers()
        await until(pilot, lambda: "41%" not in screen_text(console))


SHOWS = {
    Layer.MARKDOWN: "Builds small, tests first.",
    Layer.LEDGER: "SessionEnded",
    Layer.VECTORS: "money, decimal",
    Layer.CAPTURE: "I take Decimal, since floats lose cents.",
    Layer.CONTEXT: "Rounded cart totals to whole cents with Decimal",
    Layer.GRAPH: "3 files changed, lint is clean",
    Layer.PARA: "stated in 3 sessions",
}


async def test_each_layer_shows_its_entries_and_where_they_came_from(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        for layer in Layer:
            await to_layer(pilot, layer)
            await until(pilot, lambda layer=layer: SHOWS[layer] in screen_text(console), f"for {layer}")


async def test_words_filter_as_one_types(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_layer(pilot, Layer.VECTORS)
        await pilot.press("slash", *"rounded once")
        await until(pilot, lambda: len(screen._entries) == 1)
        assert calls_of(engine, "entries")[-1][2] == "rounded once"
        assert len({call[2] for call in calls_of(engine, "entries")}) < 6  # not once a key
        await pilot.press("enter", "escape")
        await until(pilot, lambda: len(screen._entries) == 5)


async def test_meaning_is_asked_for_with_a_key_of_its_own(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE, notifications=True) as pilot:
        screen = await to_layer(pilot, Layer.VECTORS)
        await pilot.press("m", *"cents")
        assert calls_of(engine, "recall") == []
        await pilot.press("enter")
        await until(pilot, lambda: screen._entries and isinstance(screen._entries[0].value, RecallMatch))
        assert calls_of(engine, "recall") == [("recall", "cents", frozenset({Layer.VECTORS}))]
        await wait_for_text(pilot, "without graph: no answer")
        assert "0.90" in screen_text(console)
        await wait_for_text(pilot, "tags")  # the entry is whole


async def test_the_next_page_is_read_at_the_end_of_the_last(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_layer(pilot, Layer.LEDGER)
        assert len(screen._entries) == 200
        for number in (400, 450):
            await pilot.press("end")
            await until(pilot, lambda number=number: len(screen._entries) == number)
        assert not screen._has_more


async def test_an_outside_edit_shows_up_at_once(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_layer, Layer.MARKDOWN, size=WIDE) as pilot:
        engine.agent_files.all["backend_builder", "soul.md"] = "# Another\n"
        engine.bus.publish(AgentFileChanged(subject="backend_builder", file="soul.md", how="on disk"))
        await wait_for_text(pilot, "# Another")


async def test_around_a_task_edges_are_named_and_one_can_walk_on(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_layer(pilot, Layer.GRAPH)
        await pilot.press("down")
        await wait_for_text(pilot, "AROUND THIS TASK")
        await until(pilot, lambda: screen._detail_entry and screen._detail_entry.id == "sess_000000000003")
        await wait_for_text(pilot, "led to")
        text = " ".join(screen_text(console).split())
        assert_contains(
            text, "✓ blocked Format and fix", "○ led to Hunt flakes", "· formerly similar to Round per line"
        )
        screen.query_one("#links", Rows).focus()
        await pilot.press("enter")
        await until(pilot, lambda: screen._detail_entry and screen._detail_entry.id == "sess_000000000002")
        assert "was blocked by" in screen_text(console)
        await pilot.press("escape")
        await until(pilot, lambda: len(screen._entries) == 4)


async def test_the_chain_of_a_fact_is_walked_both_ways(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_layer(pilot, Layer.PARA)
        screen.show(Layer.PARA, "fact_0002")
        await until(pilot, lambda: screen._detail_entry and screen._detail_entry.id == "fact_0002")
        await wait_for_text(pilot, "this one")
        text = screen_text(console)
        assert text.index("rounded per line.") < text.index("this one") < text.rindex("Cart totals are Decimal")
        screen.query_one("#links", Rows).focus()
        await pilot.press("end")
        while screen.query_one("#links", Rows).current != "G/fact_0003/CORRECTIONS, OLDEST FIRST/valid":
            await pilot.press("up")
        await pilot.press("enter")
        await until(pilot, lambda: screen._detail_entry and screen._detail_entry.id == "fact_0003")


async def test_who_used_a_memory_leads_to_the_session(console: ConsoleApp, engine: StandIn) -> None:
    engine.with_agent()
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_layer(pilot, Layer.VECTORS)
        await wait_for_text(pilot, "USED BY")
        screen.query_one("#links", Rows).focus()
        await pilot.press("end", "enter")
        await until(pilot, lambda: console.current_mode == "work")
        await until(pilot, lambda: console.screen.session and console.screen.session.id == "sess_000000000009")


async def test_a_line_of_a_prompt_leads_to_its_memory(console: ConsoleApp) -> None:
    from clawpy_console.external_programs import open_source

    async with running(console, size=WIDE) as pilot:
        open_source(console, PromptSource(SourceKind.MEMORY, "mem_0000000000000002", "C sess_3"), "sess_9")
        await until(pilot, lambda: isinstance(console.screen, MemoryScreen) and console.screen._is_single)
        assert console.screen.entry.id == "mem_0000000000000002"
        assert "from another screen" in screen_text(console)


async def test_a_memory_that_is_gone_says_so(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE, notifications=True) as pilot:
        screen = await to_layer(pilot, Layer.VECTORS)
        screen.show(Layer.CONTEXT, "mem_gone")
        await wait_for_text(pilot, "layer E has no mem_gone")


# Recall


async def test_what_would_be_recalled_shows_each_line_its_score_and_what_fell_out(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_layer(pilot, Layer.VECTORS)
        await pilot.press("r")
        await wait_for_text(pilot, "212 of 600 tokens")
        first = engine.cards.pending()[0]
        assert calls_of(engine, "preview")[-1][1:] == (first.assignment.prompt, first.assignment.workspace, first.agent)
        text = screen_text(console)
        assert_contains(text, "<recalled-memory>", "left out (budget)", "▲ without graph")
        await pilot.press("tab")
        await wait_for_text(pilot, "meaning")
        assert "▇▇▇▇▇▇▇▇·· 0.82 × 0.60" in screen_text(console)
        before = console.screen._recall
        await pilot.press("slash", "end", *" now", "enter")
        await until(pilot, lambda: calls_of(engine, "preview")[-1][1].endswith(" now"))
        await until(pilot, lambda: console.screen._recall is not before)
        await pilot.press("down", "enter")
        await until(pilot, lambda: console.screen is screen and screen._is_single)


async def test_a_recall_that_fails_says_so(console: ConsoleApp, engine: StandIn) -> None:
    def fails(request: object) -> None:
        raise Refusal("damaged_home", "the database is damaged", "put back a copy")

    engine.recall_part.preview = fails  # type: ignore[method-assign, assignment]
    async with at(console, to_layer, Layer.VECTORS, size=WIDE) as pilot:
        await pilot.press("r")
        await wait_for_text(pilot, "the database is damaged")


# Editing


async def test_a_file_is_edited_and_saved(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_layer, Layer.MARKDOWN, size=WIDE) as pilot:
        await pilot.press("e")
        await until(pilot, lambda: console.screen.query("#text"))
        await pilot.press(*"New ", "ctrl+s")
        await until(pilot, lambda: calls_of(engine, "wrote"))
        assert engine.agent_files.all["backend_builder", "soul.md"].startswith("New # Builder")
        await wait_for_text(pilot, "New # Builder")


async def test_an_edit_of_what_changed_meanwhile_shows_both_texts(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_layer, Layer.MARKDOWN, size=WIDE) as pilot:
        await pilot.press("e")
        await until(pilot, lambda: console.screen.query("#text"))
        engine.agent_files.all["backend_builder", "soul.md"] = "# Theirs\n"
        await pilot.press(*"Mine ", "ctrl+s")
        await wait_for_text(pilot, "Another program changed the file")
        assert "# Theirs" in screen_text(console)
        assert calls_of(engine, "wrote") == []
        await pilot.press("ctrl+t")
        assert console.screen.query_one("#text", TextArea).text == "# Theirs\n"
        await pilot.press("ctrl+z")
        assert console.screen.query_one("#text", TextArea).text.startswith("Mine # Builder")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: calls_of(engine, "wrote"))
        assert engine.agent_files.all["backend_builder", "soul.md"].startswith("Mine # Builder")


async def test_a_file_that_is_refused_stays_open_with_the_reason(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["wrote"] = Refusal("bad_file", "line 2, column 3: there is a comma too many here", "fix it")
    async with at(console, to_layer, Layer.MARKDOWN, size=WIDE) as pilot:
        await pilot.press("e")
        await until(pilot, lambda: console.screen.query("#text"))
        await pilot.press("x", "ctrl+s")
        await wait_for_text(pilot, "line 2, column 3")
        await pilot.press("escape")
        assert len(console.screen_stack) == 2  # it is not saved yet
        await pilot.press("escape")
        await until(pilot, lambda: len(console.screen_stack) == 1)


async def test_the_operators_editor_gets_the_file(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("clawpy_console.external_programs.open_editor", lambda app, path: opened.append(path))
    async with at(console, to_layer, Layer.MARKDOWN, size=WIDE) as pilot:
        await pilot.press("E")
        assert opened == [str(engine.agent_files.folder / "backend_builder" / "soul.md")]


# Drafts and forgetting


async def test_drafts_are_kept_or_turned_down_and_the_queue_leads_to_them(console: ConsoleApp, engine: StandIn) -> None:
    queue = engine.queue
    engine.queue = lambda: [*queue(), Waiting("fact", "draft_2", "keep a fact?", NOW)]  # type: ignore[method-assign]
    async with running(console, size=WIDE) as pilot:
        console.screen.query_one("#queue", Rows).focus()
        await pilot.press("end", "enter")
        await until(pilot, lambda: isinstance(console.screen, MemoryScreen) and console.screen.entry is not None)
        screen = console.screen
        assert screen.entry.id == "draft_2"
        await until(pilot, lambda: screen._detail_entry is not None)
        await pilot.press("n")
        await until(pilot, lambda: calls_of(engine, "reject") == [("reject", "draft_2")])
        await until(pilot, lambda: screen.entry and screen.entry.id == "draft_1")
        await pilot.press("a")
        await until(pilot, lambda: calls_of(engine, "promote") == [("promote", "draft_1")])
        await until(pilot, lambda: "DRAFTS" not in screen_text(console))
        await pilot.press("a", "n")
        assert len(calls_of(engine, "promote")) == len(calls_of(engine, "reject")) == 1


async def test_forgetting_shows_what_it_touches_and_asks_for_a_second_key(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_layer, Layer.VECTORS, size=WIDE) as pilot:
        await pilot.press("x")
        await wait_for_text(pilot, "Forget it in 3 places")
        assert "stays: prompts that were sent already" in screen_text(console)
        await pilot.press("y", "up", "enter", "x", "enter")  # never by Enter
        assert calls_of(engine, "forget") == []
        await pilot.press("X")
        await until(pilot, lambda: len(calls_of(engine, "forget")) == 1)
        await until(pilot, lambda: "We take Decimal" not in screen_text(console))


async def test_files_and_rows_of_the_ledger_are_not_forgotten(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_layer, Layer.LEDGER, size=WIDE) as pilot:
        await pilot.press("x")
        await pilot.pause()
        assert len(console.screen_stack) == 1
        assert "x forget" not in screen_text(console)


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
    keys = ("4", "down", "down", "enter")
    compare_snapshot(console, "120x40", *keys)


def test_one_entry_when_narrow(console: ConsoleApp, compare_snapshot: CompareSnapshot) -> None:
    keys = ("4", *["down"] * 5, "enter", "down", "enter")
    compare_snapshot(console, "80x24", *keys)


def test_without_colour(plain_console: ConsoleApp, compare_snapshot: CompareSnapshot) -> None:
    compare_snapshot(plain_console, "120x40", *SCREENS["facts"])
