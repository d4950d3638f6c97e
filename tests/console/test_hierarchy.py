"""The hierarchy screen over real folders, guidance, gates and queue: what it shows and where it leads (SPEC 1, 9.1)."""

import threading
from pathlib import Path

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.agent_tree import Tree
from clawpy_console.screens.prompt_dialogs import open_source
from clawpy_console.widgets.rows import Rows
from engine.config import FixedSettings
from engine.events import AgentFileChanged
from engine.hierarchy.agents import Agents
from engine.model import BubbleState, PromptSource, SourceKind
from tests.console.driving import read_screen, running
from tests.console.hierarchy_steps import (
    WIDE,
    edit_text,
    find_world,
    offers,
    open_agent,
    read_tree_ids,
    shows_agent,
    soul_has,
    tree_hides,
    tree_shows,
)
from tests.console.stand_in import StandIn
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
    Stories,
    Until,
    answers,
    carry_out,
    find_stand_in,
    hold_back,
    make_story_test,
    play,
    press,
    sees,
    type_text,
)
from tests.hierarchy.guidance_world import Organisation
from tests.support.helpers import assert_contains

pytestmark = pytest.mark.long


def click(row: str) -> Step:
    """Click this row of the tree."""
    return lambda app: app.screen.query_one(Tree).click(read_tree_ids(app).index(row))


def break_file(app: ConsoleApp):
    """Another program writes a bad comms.json for the dreamer."""
    (find_world(app).folder / "dreamer" / "comms.json").write_text('{"reports_to": 7}')
    find_stand_in(app).bus.publish(AgentFileChanged(subject="dreamer", file="comms.json", how="on disk"))


def add_strays(engine: StandIn):
    """Three agents whose chain of leaders does not reach the owner."""
    world = engine.world
    for name, leader in (("a", "b"), ("b", "a"), ("lost", "ghost")):
        world.write_agent(name, leader, 4)


AT_BACKEND_LEAD = Until("backend_lead", lambda app: app.screen.query_one(Tree).current == "backend_lead")
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
        AT_BACKEND_LEAD,
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
    "broken folders show what to mend, and outside edits appear": (
        *open_agent("dreamer"),
        break_file,
        sees("✗ comms.json: reports_to", "1 broken", "→ fix /home/ada/.local/share/clawpy/agents/dreamer/comms.json"),
        offers("change", False, "move"),
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


async def test_guidance_is_the_block_the_next_prompt_carries(console: ConsoleApp, world: Organisation):
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


async def test_findings_show_each_gate_with_its_figures(console: ConsoleApp, world: Organisation):
    async with running(console, size=WIDE) as pilot:
        await carry_out(pilot, *open_agent("backend_builder", "findings"), press("enter"))
        assert "FOUND BY IT  1 waiting  ·  2 refused  ·  1 sent up" in read_screen(console)
        findings = world.bubbles.list(agent="backend_builder")
        for finding in findings:
            console.screen.query_one("#items", Rows).select(finding.id)
            last = finding.gates[-1]
            await carry_out(pilot, sees(f"{'✓' if last.passed else '✗'} {last.number} {last.name}: {last.reason[:20]}"))
        assert {finding.refused_by.name for finding in findings if finding.refused_by} == {"importance", "novelty"}
        assert_contains("".join(gate.reason for finding in findings for gate in finding.gates), "0.41 of 0.60")


async def test_an_empty_organisation_shows_its_owner_and_offers_a_new_agent(
    console: ConsoleApp, engine: StandIn, world: Organisation, tmp_path: Path
):
    engine.agents = Agents(
        tmp_path / "agents", cascade_config=world.config, settings=FixedSettings(), record=world.database.record
    )
    alone = Until("the owner alone", lambda app: read_tree_ids(app) == ["owner"])
    await play(
        console,
        press("3"),
        shows_agent("owner"),
        alone,
        offers("new", True),
        offers("change", False, "retire"),
        size=(80, 24),
    )


@pytest.mark.usefixtures("world")
async def test_details_that_come_late_are_not_shown_beside_a_group(console: ConsoleApp, engine: StandIn):
    is_read = threading.Event()
    await play(
        console,
        *open_agent("ceo"),
        lambda app: hold_back(engine.sessions, "list", until=is_read),
        press("down"),
        Until("the reading", lambda app: any(worker.group == "detail" for worker in app.workers)),
        press("G"),
        sees("shows these agents"),
        answers(is_read),
        Until("the details", lambda app: not any(worker.group == "detail" for worker in app.workers)),
        sees("shows these agents"),
        size=WIDE,
    )
