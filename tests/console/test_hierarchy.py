"""The hierarchy screen over real folders, guidance, gates and queue: what it shows and where it leads (SPEC 1, 9.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpy_console.app import ConsoleApp
from clawpy_console.screens import hierarchy
from clawpy_console.screens.agent_tree import FoldState, Tree, make_tree_nodes
from clawpy_console.screens.prompt_dialogs import open_source
from engine.events.engine import AgentFileChanged
from engine.model import AgentActivity, AgentView, BubbleState, PromptSource, SourceKind
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
from tests.console.stories import (
    CLOSED,
    Step,
    Stories,
    Until,
    find_stand_in,
    make_story_test,
    play,
    press,
    sees,
    type_text,
)
from tests.hierarchy.guidance_world import Organisation

pytestmark = pytest.mark.long


def click(row: str) -> Step:
    """Click this row of the tree."""
    return lambda app: app.screen.query_one(Tree).click(read_tree_ids(app).index(row))


def break_file(app: ConsoleApp):
    """Another program writes a bad comms.json for the dreamer."""
    (find_world(app).folder / "dreamer" / "comms.json").write_text('{"reports_to": 7}')
    find_stand_in(app).bus.publish(AgentFileChanged(subject="dreamer", file="comms.json", how="on disk"))


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
        Until("none waits", lambda app: find_world(app).bubbles.list_bubbles(state=BubbleState.QUEUED) == []),
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


def make_agent(id: str, reports_to: str, *, worked: bool = True, tier: int = 4, broken: str = "") -> AgentView:
    activity = AgentActivity("broken" if broken else "idle", sessions=int(worked))
    return AgentView(id, "", reports_to, tier, "default", "", (), activity, broken)


def test_more_findings_than_are_listed_have_a_sign():
    counts = {number: hierarchy.TABS["findings"].count_items([None] * number, None) for number in (0, 2, 200)}
    assert counts == {0: "", 2: "2", 200: "200+"}


NAMES = [f"n{number}" for number in range(12)]


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*NAMES, "owner", "ghost", ""])), st.booleans())
def test_each_agent_is_drawn_once_whatever_its_leader(reports_to: dict[str, str], worked: bool):
    agents = [make_agent(name, leader, worked=worked) for name, leader in reports_to.items()]
    nodes = make_tree_nodes(agents, folds=FoldState(show_all=True))
    assert sorted(node.id for node in nodes if node.agent) == sorted(reports_to)
