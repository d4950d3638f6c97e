"""The hierarchy screen over real folders, guidance, gates and queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Input, TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.agent_tree import Tree
from clawpy_console.screens.hierarchy import HierarchyScreen
from clawpy_console.screens.xray import open_source
from clawpy_console.widgets.rows import Rows
from engine.config import FixedSettings
from engine.events import AgentFileChanged
from engine.hierarchy.agents import Agents
from engine.model import BubbleState, PromptSource, SourceKind
from tests.console.conftest import read_screen, running
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.console.stand_in import StandIn
from tests.console.stand_in_organisation import make_organisation, with_organisation
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
    Stories,
    Until,
    carry_out,
    find_stand_in,
    make_story_test,
    play,
    press,
    sees,
    type_text,
)
from tests.hierarchy.guidance_world import World
from tests.support.helpers import assert_contains

pytestmark = pytest.mark.long

WIDE = (150, 45)
TABS = ("who", "guidance", "findings", "teaching", "work")


@pytest.fixture(scope="module")
def organisation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of the agents, which each test copies."""
    return make_organisation(tmp_path_factory.mktemp("world"))


@pytest.fixture
def world(engine: StandIn, organisation: Path, tmp_path: Path) -> Iterator[World]:
    """The real services of the hierarchy, which the stand-in engine gets."""
    world = with_organisation(engine, organisation, tmp_path / "people")
    engine.world = world  # type: ignore[attr-defined]
    yield world
    world.database.close()


def find_world(app: ConsoleApp) -> World:
    """The services of the hierarchy that this console uses."""
    return app.engine.world  # type: ignore[union-attr, no-any-return]


def shows_agent(agent: str) -> Until:
    """The right side shows this agent."""

    def is_met(app: ConsoleApp) -> bool:
        detail = app.screen._detail if isinstance(app.screen, HierarchyScreen) else None
        return detail is not None and detail.id == agent

    return Until(f"the details of {agent}", is_met)


def open_agent(name: str, tab: str = "who") -> tuple[Step, ...]:
    """Open the hierarchy screen on an agent, in this tab, and wait until the agent was read."""
    return (
        press("3"),
        lambda app: app.screen.show(name),
        shows_agent(name),
        press("right_square_bracket", times=TABS.index(tab)),
    )


def read_tree_ids(app: ConsoleApp) -> list[str]:
    """The ids of the rows of the tree."""
    return [row.id for row in app.screen.query_one("#tree", Tree).rows]


def tree_shows(*ids: str) -> Until:
    """The tree has these rows."""
    return Until(f"{ids} in the tree", lambda app: {*ids} <= {*read_tree_ids(app)})


def tree_hides(*ids: str) -> Until:
    """The tree has none of these rows."""
    return Until(f"no {ids} in the tree", lambda app: not {*ids} & {*read_tree_ids(app)})


def reports_to(agent: str, leader: str) -> Until:
    """The agent reports to this leader."""
    return Until(f"{agent} under {leader}", lambda app: find_world(app).agents.get(agent).reports_to == leader)


def has_tier(agent: str, tier: int) -> Until:
    """The agent has this tier, in its file and on the screen."""
    return Until(
        f"tier {tier}", lambda app: find_world(app).agents.get(agent).tier == tier and app.screen.agent.tier == tier
    )


def has_retired(*ids: str) -> Until:
    """These agents are retired, and no others."""
    return Until(f"retired {ids}", lambda app: [item.id for item in find_world(app).agents.retired()] == [*ids])


def edit_text(text: str, before: str = "") -> tuple[Step, ...]:
    """Write `text` in the editor, in place of `before` or of everything."""

    def act(app: ConsoleApp) -> None:
        area = app.screen.query_one("#text", TextArea)
        area.text = area.text.replace(before, text) if before else text

    return Until("the editor", lambda app: app.screen.query("#text")), act


def fill_field(name: str, text: str) -> Step:
    """Replace the text of a field of a dialog."""
    return lambda app: setattr(app.screen.query_one(f"#{name}", Input), "value", text)


def soul_has(agent: str, text: str) -> Until:
    """The saved soul of an agent has this text."""
    return Until(text, lambda app: text in (find_world(app).folder / agent / "soul.md").read_text())


def guidance_has(text: str) -> Until:
    """The guidance of the backend builder has this text."""
    return Until(text, lambda app: text in find_world(app).cascade.guidance("backend_builder").block)


def click(row: str) -> Step:
    """Click this row of the tree."""
    return lambda app: app.screen.query_one(Tree).click(read_tree_ids(app).index(row))


def break_file(app: ConsoleApp) -> None:
    """Another program writes a bad comms.json for the dreamer."""
    (find_world(app).folder / "dreamer" / "comms.json").write_text('{"reports_to": 7}')
    find_stand_in(app).bus.publish(AgentFileChanged(subject="dreamer", file="comms.json", how="on disk"))


def offers(action: str, offered: bool) -> Until:
    """The key of this action is offered, or is not."""
    return Until(f"{action} {offered}", lambda app: bool(app.screen.check_action(action, ())) is offered)


def add_strays(engine: StandIn) -> None:
    """Three agents whose chain of leaders does not reach the owner."""
    world = engine.world  # type: ignore[attr-defined]
    for name, leader in (("a", "b"), ("b", "a"), ("lost", "ghost")):
        world.write_agent(name, leader, 4)


AT_TREE = Until("the tree", lambda app: app.screen.query_one(Tree).current == "backend_lead")
LEADER = PromptSource(SourceKind.LEADER, "cfo#principles", "cfo, 2 up")
COMMS = '{"reports_to": "cino", "title": "Dreamer", "tier": 4}'

STORIES: Stories = {
    "agents that were never used are folded and unfolded": (
        *open_agent("backend_builder"),
        tree_hides("junior_frontend"),
        press("a"),
        tree_shows("junior_frontend"),
        press("a"),
        tree_hides("junior_frontend"),
        click("+ceo"),
        click("+ceo"),
        tree_shows("cfo", "cmo", "oeo"),
    ),
    "rows fold with keys": (
        *open_agent("backend_lead"),
        press("left"),
        tree_hides("backend_builder"),
        press("left left"),
        tree_hides("backend_lead"),
        press("right right"),
        AT_TREE,
        press("space"),
        tree_shows("backend_builder"),
    ),
    "words filter as one types": (
        *open_agent("ceo"),
        press("slash"),
        type_text("chronicle-hub"),
        Until("the chain", lambda app: read_tree_ids(app) == ["owner", "ceo", "coo", "chronicler"]),
        shows_agent("chronicler"),
        press("enter escape"),
        tree_shows("backend_builder"),
        shows_agent("chronicler"),
    ),
    "findings are sent up after a question": (
        *open_agent("backend_builder"),
        press("f"),
        sees("Reserve stock before the payment"),
        press("y"),
        sees("1 finding sent up"),
        Until("none waits", lambda app: find_world(app).bubbles.list(state=BubbleState.QUEUED) == []),
    ),
    "teaching shows the change, and is done after a question": (
        *open_agent("backend_builder", "teaching"),
        sees("last round never", "when you ask: enable_m2 is off", "+## Inherited Wisdom"),
        press("T y"),
        sees("taught"),
        soul_has("backend_builder", "Inherited Wisdom"),
        sees("No changes"),
    ),
    "its sessions lead to work": (
        *open_agent("chronicler"),
        press("left_square_bracket enter"),
        sees("12 sessions  48,000 tokens  $0.41", "Summarise the day so far"),
        press("enter"),
        Until("work", lambda app: app.current_mode == "work" and app.screen.session.agent == "chronicler"),
    ),
    "a move is shown before it is done, and undone": (
        *open_agent("dreamer"),
        press("m"),
        sees("Its guidance does not change."),
        type_text("backend_lead"),
        sees(
            "+ backend_lead → cto → ceo → owner",
            "chain - cino → ceo → owner",
            '+ <leader id="backend_lead" tier="3" hop="0">',
        ),
        reports_to("dreamer", "cino"),
        press("enter"),
        reports_to("dreamer", "backend_lead"),
        CLOSED,
        sees("Undo: u"),
        press("u"),
        reports_to("dreamer", "cino"),
    ),
    "a place it cannot take says why": (
        *open_agent("cto"),
        press("m"),
        Until("a preview", lambda app: app.screen._has_preview),
        Until(
            "not below it",
            lambda app: "backend_builder" not in [row.id for row in app.screen.query_one("#leaders", Rows).rows],
        ),
        lambda app: find_world(app).agents.move("cfo", "backend_builder"),  # meanwhile, elsewhere
        type_text("cfo"),
        sees("cto leads cfo, so it cannot report to it"),
        press("enter escape"),
        CLOSED,
        reports_to("cto", "ceo"),
    ),
    "a tier is given and taken back": (
        *open_agent("dreamer"),
        press("t 3"),
        has_tier("dreamer", 3),
        sees("by tier_assignments in wisdom_cascade_config.json"),
        press("t a"),
        has_tier("dreamer", 4),
        press("u"),
        has_tier("dreamer", 3),
    ),
    "a soul is edited here": (
        *open_agent("dreamer"),
        press("e"),
        *edit_text("# Dreamer\n\nDreams in colour.\n"),
        press("ctrl+s"),
        sees("Dreams in colour."),
        CLOSED,
        soul_has("dreamer", "Dreams in colour."),
    ),
    "a leader's guidance is edited beside the prompts it changes": (
        *open_agent("cto", "guidance"),
        press("e"),
        *edit_text("Plain beats clever.", "Simple beats clever."),
        sees("+ cto, principles: Plain beats clever.", "- cto, principles: Simple beats clever.", "backend_builder, "),
        guidance_has("Simple beats clever."),
        press("escape"),
        sees("Not saved"),
        press("ctrl+s"),
        CLOSED,
        guidance_has("Plain beats clever."),
        sees("Plain beats clever."),
        press("u"),
        guidance_has("Simple beats clever."),
    ),
    "an agent is created, retired and brought back": (
        *open_agent("cro"),
        press("n"),
        Until("the form", lambda app: app.screen.query("#id")),
        type_text("Librarian"),
        press("ctrl+s"),
        sees("is not an agent id"),
        fill_field("id", "librarian"),
        press("ctrl+s"),
        shows_agent("librarian"),
        reports_to("librarian", "cro"),
        press("D"),
        sees("Retire librarian?"),
        press("y"),
        tree_hides("librarian"),
        tree_shows("=retired"),
        Until("retired", lambda app: "librarian" in [item.id for item in find_world(app).agents.retired()]),
        press("u"),
        tree_shows("librarian"),
    ),
    "who was retired can be brought back": (
        *open_agent("ceo"),
        press("G enter down"),
        shows_agent("night_watch"),
        sees("Retired: it runs nothing."),
        press("B"),
        has_retired(),
        Until("idle", lambda app: app.screen.agent.activity.state == "idle"),
    ),
    "who may not be retired says why before anything is asked": (
        *open_agent("researcher"),
        press("D"),
        sees("researcher serves research"),
        CLOSED,
        reports_to("researcher", "cro"),
    ),
    "broken folders show what to mend, and outside edits appear": (
        *open_agent("dreamer"),
        break_file,
        sees("✗ comms.json: reports_to", "1 broken", "→ fix /home/ada/.local/share/clawpy/agents/dreamer/comms.json"),
        offers("move", False),
        press("e"),
        *edit_text(COMMS),
        press("ctrl+s"),
        CLOSED,
        Until("mended", lambda app: not find_world(app).agents.get("dreamer").broken),
    ),
    "circles and missing leaders are drawn as such": (
        Given(add_strays),
        *open_agent("a"),
        sees(
            "in a circle (1)",
            "a reports to b, whom it leads: a circle",
            "lost reports to ghost, which does not exist",
            "stops: a is already in it, so the chain is a circle",
        ),
    ),
    "a line of a prompt leads to its leader": (lambda app: open_source(app, LEADER, "sess_9"), shows_agent("cfo")),
}


test_story = pytest.mark.usefixtures("world")(make_story_test(STORIES, size=WIDE))


async def test_guidance_is_the_block_the_next_prompt_carries(console: ConsoleApp, world: World) -> None:
    world.configure(m1_token_budget=300)
    guidance = world.cascade.guidance("backend_builder")
    assert any(hop.cut for hop in guidance.hops)
    hops = [(f"{hop.leader}, tier {hop.tier}", f"{hop.tokens} of {hop.share} tokens") for hop in guidance.hops]
    is_shown = Until("the block", lambda app: app.screen.query_one("#block").prompt_text == guidance.block)
    words = sees(
        f"{guidance.tokens} of 300 tokens from", "▼ left out (budget)", *(text for hop in hops for text in hop)
    )
    # into the block, and from its line to the leader that says it
    leads = (
        press("enter enter"),
        shows_agent("backend_lead"),
        sees("tier 3 leads and receives no guidance", "found by 1"),
    )
    await play(console, *open_agent("backend_builder", "guidance"), is_shown, words, *leads, size=WIDE)


async def test_findings_show_each_gate_with_its_figures(console: ConsoleApp, world: World) -> None:
    async with running(console, size=WIDE) as pilot:
        await carry_out(pilot, *open_agent("backend_builder", "findings"), press("enter"))
        assert "FOUND BY IT  1 waiting to be sent up  ·  2 refused  ·  1 delivered" in read_screen(console)
        findings = world.bubbles.list(agent="backend_builder")
        for finding in findings:
            console.screen.query_one("#items", Rows).select(finding.id)
            last = finding.gates[-1]
            await carry_out(pilot, sees(f"{'✓' if last.passed else '✗'} {last.number} {last.name}: {last.reason[:20]}"))
        assert {finding.refused_by.name for finding in findings if finding.refused_by} == {"importance", "novelty"}
        assert_contains("".join(gate.reason for finding in findings for gate in finding.gates), "0.41 of 0.60")


async def test_an_empty_organisation_shows_its_owner_and_offers_a_new_agent(
    console: ConsoleApp, engine: StandIn, world: World, tmp_path: Path
) -> None:
    engine.agents = Agents(  # type: ignore[assignment]
        tmp_path / "agents", cascade_config=world.config, settings=FixedSettings(), database=world.database
    )
    alone = Until("the owner alone", lambda app: read_tree_ids(app) == ["owner"])
    await play(
        console, press("3"), shows_agent("owner"), alone, offers("new", True), offers("retire", False), size=(80, 24)
    )


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
    console: ConsoleApp, world: World, compare_snapshot: CompareSnapshot, shot: str, size: str
) -> None:
    compare_snapshot(console, size, *SHOTS[shot])


def test_how_a_move_looks(console: ConsoleApp, world: World, compare_snapshot: CompareSnapshot) -> None:
    keys = (*SHOTS["who"], "m", *"frontend_l")
    compare_snapshot(console, "120x40", *keys, theme="clawpy-light")
