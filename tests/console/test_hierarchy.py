"""The hierarchy screen over real folders, guidance, gates and queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Input, TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.external_programs import open_source
from clawpy_console.screens.hierarchy.screen import HierarchyScreen
from clawpy_console.screens.hierarchy.tree import Tree
from clawpy_console.screens.work.screen import WorkScreen
from clawpy_console.widgets.bars import TabLine
from clawpy_console.widgets.rows import Rows
from engine.config import FixedSettings
from engine.events import AgentFileChanged
from engine.hierarchy.agents import Agents
from engine.model import BubbleState, PromptSource, SourceKind
from tests.console.conftest import at, live, running, screen_text, until, wait_for_text
from tests.console.people import make_people, with_people
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.console.stand_in import StandIn
from tests.hierarchy.guidance_world import World
from tests.support.helpers import assert_contains

pytestmark = pytest.mark.long


WIDE = (150, 45)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_people(tmp_path_factory.mktemp("people"))


@pytest.fixture
def people(engine: StandIn, made: Path, tmp_path: Path) -> Iterator[World]:
    world = with_people(engine, made, tmp_path / "people")
    yield world
    world.database.close()


async def to_agent(pilot, name: str, *keys: str) -> HierarchyScreen:
    """The hierarchy screen with the cursor on an agent that was read; `keys` are pressed then."""
    await live(pilot)
    await pilot.press("3")
    screen = pilot.app.screen
    screen.show(name)
    await until(pilot, lambda: shown(screen) == name, f"for {name}")
    await pilot.press(*keys)
    await pilot.pause()
    return screen


def shown(screen: HierarchyScreen) -> str:
    """Whom the right side shows."""
    return screen._detail.get("id", "")


def said(console: ConsoleApp) -> str:
    """What the screen says, with single spaces."""
    return " ".join(screen_text(console).split())


def names(screen: HierarchyScreen) -> list[str]:
    return [row.id for row in screen.query_one("#tree", Tree).rows]


async def test_the_tree_says_who_is_under_whom_what_each_does_and_used(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "backend_builder")
        text = screen_text(console)
        assert_contains(
            text,
            "ORGANISATION  20  1 working  1 waiting",
            "▾ 4 backend_builder",
            "working 182.4k",
            "4 researcher",
            "waiting  95.0k",
            "not used yet: cfo, ",
        )
        assert "junior_frontend" not in names(screen)
        await pilot.press("a")
        assert "junior_frontend" in names(screen)
        await pilot.press("a")
        assert "junior_frontend" not in names(screen)


async def test_rows_fold_with_keys_and_clicks(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "backend_lead")
        await pilot.press("left")
        assert "backend_builder" not in names(screen)
        await pilot.press("left", "left")  # to the leader, and fold that
        assert "backend_lead" not in names(screen)
        await pilot.press("right", "right")  # unfold it, and go into it
        assert screen.query_one(Tree).current == "backend_lead"
        await pilot.press("space")
        assert "backend_builder" in names(screen)
        tree = screen.query_one(Tree)
        number = names(screen).index("backend_lead")
        node = tree.nodes["backend_lead"]
        assert await pilot.click(Tree, offset=(3 + 2 * node.depth, number))
        assert "backend_builder" not in names(screen)
        number = names(screen).index("+ceo")
        await pilot.click(Tree, offset=(12, number))
        assert {"cfo", "cmo", "oeo"} <= set(names(screen))


async def test_words_filter_as_one_types(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "ceo")
        await pilot.press("slash", *"chronicle-hub")
        assert names(screen) == ["owner", "ceo", "coo", "chronicler"]
        await until(pilot, lambda: shown(screen) == "chronicler")
        await pilot.press("enter", "escape")
        assert "backend_builder" in names(screen)
        assert screen.query_one(Tree).current == "chronicler"


async def test_guidance_is_the_block_the_next_prompt_carries(console: ConsoleApp, people: World) -> None:
    people.configure(m1_token_budget=300)
    told = people.cascade.guidance("backend_builder")
    assert any(hop.cut for hop in told.hops)
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "backend_builder", "right_square_bracket")
        assert screen.query_one("#block").prompt_text == told.block
        text = said(console)
        assert f"{told.tokens} of 300 tokens from" in text
        for hop in told.hops:
            assert_contains(text, f"{hop.leader}, tier {hop.tier}", f"{hop.tokens} of {hop.share} tokens")
        assert "▼ left out (budget)" in text
        await pilot.press("enter", "enter")  # into the block, and from its line to the leader that says it
        await until(pilot, lambda: shown(screen) == "backend_lead")
        await wait_for_text(pilot, "tier 3 leads and receives no guidance")
        await wait_for_text(pilot, "found by 1")


async def test_findings_show_each_gate_with_its_figures(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "backend_builder", *["right_square_bracket"] * 2, "enter")
        text = screen_text(console)
        assert "FOUND BY IT  1 waiting to be sent up  ·  2 refused  ·  1 delivered" in text
        items = screen.query_one("#items", Rows)
        findings = people.bubbles.list(agent="backend_builder")
        for finding in findings:
            items.select(finding.id)
            last = finding.gates[-1]
            line = f"{'✓' if last.passed else '✗'} {last.number} {last.name}: {last.reason[:20]}"
            await until(pilot, lambda line=line: line in screen_text(console), f"for {line}")
        assert {finding.refused_by.name for finding in findings if finding.refused_by} == {"importance", "novelty"}
        assert "0.41 of 0.60" in "".join(gate.reason for finding in findings for gate in finding.gates)


async def test_what_waits_goes_up_at_a_word(console: ConsoleApp, people: World) -> None:
    async with at(console, to_agent, "backend_builder", "f", size=WIDE, notifications=True) as pilot:
        await wait_for_text(pilot, "Reserve stock before the payment")
        await pilot.press("y")
        await wait_for_text(pilot, "1 finding sent up")
        assert people.bubbles.list(state=BubbleState.QUEUED) == []


async def test_teaching_shows_the_change_and_is_done_at_a_word(console: ConsoleApp, people: World) -> None:
    soul = people.folder / "backend_builder" / "soul.md"
    async with console.run_test(size=WIDE, notifications=True) as pilot:
        screen = await to_agent(pilot, "backend_builder", *["right_square_bracket"] * 3)
        text = said(console)
        assert_contains(text, "last round never", "when you ask: enable_m2 is off", "+## Inherited Wisdom")
        await pilot.press("T", "y")
        await wait_for_text(pilot, "taught")
        assert "Inherited Wisdom" in soul.read_text()
        await until(pilot, lambda: screen._detail["guidance"]["teaching"]["diff"] == "")
        await wait_for_text(pilot, "No changes")


async def test_work_lists_its_sessions_and_leads_there(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "chronicler", *["left_square_bracket"], "enter")
        assert screen.query_one(TabLine).here == "work"
        assert_contains(screen_text(console), "12 sessions  48,000 tokens  $0.41", "Summarise the day so far")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(console.screen, WorkScreen))
        await until(pilot, lambda: console.screen.session and console.screen.session.agent == "chronicler")


async def test_a_move_is_shown_before_it_is_done_and_taken_back(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE, notifications=True) as pilot:
        screen = await to_agent(pilot, "dreamer", "m")
        await wait_for_text(pilot, "Its guidance does not change.")
        await pilot.press(*"backend_lead")
        await wait_for_text(pilot, "+ backend_lead → cto → ceo → owner")
        text = said(console)
        assert "chain - cino → ceo → owner" in text
        assert '+ <leader id="backend_lead" tier="3" hop="0">' in text
        assert people.agents.get("dreamer").reports_to == "cino"
        await pilot.press("enter")
        await until(pilot, lambda: screen.is_current and names(screen).index("dreamer") > names(screen).index("cto"))
        assert people.agents.get("dreamer").reports_to == "backend_lead"
        await pilot.press("u")
        await until(pilot, lambda: people.agents.get("dreamer").reports_to == "cino")


async def test_a_place_it_cannot_take_says_why(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "cto", "m")
        dialog = console.screen
        await until(pilot, lambda: dialog._has_preview)
        assert "backend_builder" not in [row.id for row in dialog.query_one("#leaders").rows]  # below it
        people.agents.move("cfo", "backend_builder")  # meanwhile, elsewhere
        await pilot.press(*"cfo")
        await wait_for_text(pilot, "cto leads cfo, so it cannot report to it")
        await pilot.press("enter", "escape")
        assert console.screen is screen
        assert people.agents.get("cto").reports_to == "ceo"


async def test_a_tier_is_given_and_taken_back(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "dreamer", "t", "3")
        await until(pilot, lambda: people.agents.get("dreamer").tier == 3)
        await wait_for_text(pilot, "by tier_assignments in wisdom_cascade_config.json")
        await until(pilot, lambda: screen.agent and screen.agent.tier == 3)
        await pilot.press("t", "a")
        await until(pilot, lambda: people.agents.get("dreamer").tier == 4)
        await until(pilot, lambda: screen.agent and screen.agent.tier == 4)
        await pilot.press("u")
        await until(pilot, lambda: people.agents.get("dreamer").tier == 3)


async def test_a_soul_is_edited_here(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "dreamer", "e")
        await until(pilot, lambda: console.screen.query("#text"))
        console.screen.query_one("#text", TextArea).text = "# Dreamer\n\nDreams in colour.\n"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: screen.is_current and "Dreams in colour." in screen_text(console))
        assert (people.folder / "dreamer" / "soul.md").read_text() == "# Dreamer\n\nDreams in colour.\n"


async def test_a_leaders_guidance_is_edited_beside_the_prompts_it_changes(console: ConsoleApp, people: World) -> None:
    def block() -> str:
        return people.cascade.guidance("backend_builder").block

    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "cto", "]", "e")
        await until(pilot, lambda: console.screen.query("#text"))
        area = console.screen.query_one("#text", TextArea)
        area.text = area.text.replace("Simple beats clever.", "Plain beats clever.")
        await wait_for_text(pilot, "+ cto, principles: Plain beats clever.")
        assert_contains(screen_text(console), "- cto, principles: Simple beats clever.", "backend_builder, ")
        assert "Plain beats clever." not in block()  # nothing is saved yet
        await pilot.press("escape")
        await wait_for_text(pilot, "Not saved")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: screen.is_current and "Plain beats clever." in block())
        await wait_for_text(pilot, "Plain beats clever.")
        await pilot.press("u")
        await until(pilot, lambda: "Simple beats clever." in block())


async def test_an_agent_is_created_retired_and_brought_back(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "cro", "n")
        await until(pilot, lambda: console.screen.query("#id"))
        await pilot.press(*"Librarian", "ctrl+s")
        await wait_for_text(pilot, "is not an agent id")
        console.screen.query_one("#id", Input).value = "librarian"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: screen.is_current and shown(screen) == "librarian")
        assert people.agents.get("librarian").reports_to == "cro"
        await pilot.press("D")
        await wait_for_text(pilot, "Retire librarian?")
        await pilot.press("y")
        await until(pilot, lambda: "librarian" not in names(screen) and "=retired" in names(screen))
        assert "librarian" in [agent.id for agent in people.agents.retired()]
        await pilot.press("u")
        await until(pilot, lambda: "librarian" in [agent.id for agent in people.agents.list()])


async def test_who_was_retired_can_be_brought_back(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "ceo", "G", "enter", "down")
        await until(pilot, lambda: shown(screen) == "night_watch")
        assert "Retired: it runs nothing." in screen_text(console)
        await pilot.press("B")
        await until(pilot, lambda: people.agents.retired() == [])
        await until(pilot, lambda: screen.agent and screen.agent.state == "idle")


async def test_who_may_not_be_retired_says_why_before_anything_is_asked(console: ConsoleApp, people: World) -> None:
    async with console.run_test(size=WIDE, notifications=True) as pilot:
        screen = await to_agent(pilot, "researcher", "D")
        await wait_for_text(pilot, "researcher serves research")
        assert screen.is_current
        assert people.agents.get("researcher").reports_to == "cro"


async def test_broken_folders_show_what_to_mend_and_outside_edits_appear(
    console: ConsoleApp, engine: StandIn, people: World
) -> None:
    file = people.folder / "dreamer" / "comms.json"
    before = file.read_text()
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_agent(pilot, "dreamer")
        file.write_text('{"reports_to": 7}')
        engine.bus.publish(AgentFileChanged(subject="dreamer", file="comms.json", how="on disk"))
        await wait_for_text(pilot, "✗ comms.json: reports_to")
        assert_contains(
            screen_text(console), "→ fix /home/ada/.local/share/clawpy/agents/dreamer/comms.json", "1 broken"
        )
        assert screen.check_action("move", ()) is False
        await pilot.press("e")
        await until(pilot, lambda: console.screen.query("#text"))
        console.screen.query_one("#text", TextArea).text = before
        await pilot.press("ctrl+s")
        await until(pilot, lambda: screen.is_current and not people.agents.get("dreamer").broken)
        await until(pilot, lambda: "1 broken" not in screen_text(console))


async def test_circles_and_missing_leaders_are_drawn_as_such(console: ConsoleApp, people: World) -> None:
    people.member("a", "b", 4)
    people.member("b", "a", 3)
    people.member("lost", "ghost", 4)
    async with at(console, to_agent, "a", size=(200, 60)):
        text = screen_text(console)
        assert_contains(
            text,
            "in a circle (1)",
            "a  reports to b, whom it leads: a circle",
            "lost  reports to ghost, which does not exist",
            "stops: a is already in it, so the chain is a circle",
        )


async def test_a_line_of_a_prompt_leads_to_the_leader_that_says_it(console: ConsoleApp, people: World) -> None:
    async with running(console, size=WIDE) as pilot:
        open_source(console, PromptSource(SourceKind.LEADER, "cfo#principles", "cfo, 2 up"), "sess_9")
        await until(pilot, lambda: isinstance(console.screen, HierarchyScreen) and shown(console.screen) == "cfo")


async def test_an_empty_organisation_is_an_owner_and_a_way_on(
    console: ConsoleApp, engine: StandIn, people: World, tmp_path: Path
) -> None:
    engine.agents = Agents(  # type: ignore[assignment]
        tmp_path / "agents", cascade_config=people.config, settings=FixedSettings(), database=people.database
    )
    async with running(console, "3", size=(80, 24)) as pilot:
        await until(pilot, lambda: console.screen._detail)
        assert names(console.screen) == ["owner"]
        assert console.screen.check_action("new", ()) is True
        assert console.screen.check_action("retire", ()) is False


SHOTS = {
    "who": ("3", "end", *["up"] * 4),
    "guidance": ("3", "end", *["up"] * 4, "right_square_bracket", "enter"),
    "findings": ("3", "end", *["up"] * 4, *["right_square_bracket"] * 2, "enter"),
}


@pytest.mark.parametrize(
    ("shot", "size"),
    [
        *(("who", size) for size in SIZES),
        *((shot, size) for shot in ("guidance", "findings") for size in ("80x24", "200x60")),
    ],
)
def test_how_it_looks(
    console: ConsoleApp, people: World, compare_snapshot: CompareSnapshot, shot: str, size: str
) -> None:
    compare_snapshot(console, size, *SHOTS[shot])


def test_how_a_move_looks(console: ConsoleApp, people: World, compare_snapshot: CompareSnapshot) -> None:
    keys = ("3", "end", *["up"] * 4, "m", *"frontend_l")
    compare_snapshot(console, "120x40", *keys, theme="clawpy-light")
