"""Changes of the organisation on the hierarchy screen: moves, tiers, souls, guidance, retirement (SPEC 1, 9.1)."""

import pytest
from textual.widgets import Input

from tests.console.hierarchy_steps import (
    WIDE,
    edit_text,
    find_world,
    guidance_has,
    open_agent,
    shows_agent,
    soul_has,
    tree_hides,
    tree_shows,
)
from tests.console.stories import CLOSED, Step, Stories, Until, make_story_test, press, sees, type_text

pytestmark = pytest.mark.long


def reports_to(agent: str, leader: str) -> Until:
    """The agent reports to this leader."""
    return Until(f"{agent} under {leader}", lambda app: find_world(app).agents.get(agent).reports_to == leader)


def dreamer_has_tier(tier: int) -> Until:
    """`dreamer` has this tier, in its file and on the screen."""
    return Until(
        f"tier {tier}", lambda app: find_world(app).agents.get("dreamer").tier == app.screen.agent.tier == tier
    )


def has_retired(*ids: str) -> Until:
    """These agents are retired, and no others."""
    return Until(f"retired {ids}", lambda app: [item.id for item in find_world(app).agents.list_retired()] == [*ids])


def fill_field(name: str, text: str) -> Step:
    """Replace the text of a field of a dialog."""
    return lambda app: setattr(app.screen.query_one(f"#{name}", Input), "value", text)


STORIES: Stories = {
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
    "a tier is given and taken back": (
        *open_agent("dreamer"),
        press("t 3"),
        dreamer_has_tier(3),
        sees("by tier_assignments in wisdom_cascade_config.json"),
        press("t a"),
        dreamer_has_tier(4),
        press("u"),
        dreamer_has_tier(3),
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
        Until("retired", lambda app: "librarian" in [item.id for item in find_world(app).agents.list_retired()]),
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
}


test_story = pytest.mark.usefixtures("world")(make_story_test(STORIES, size=WIDE))
