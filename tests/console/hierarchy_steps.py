"""Steps of stories about the hierarchy screen, over the real services of the organisation."""

from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.agent_tree import Tree
from clawpy_console.screens.hierarchy import HierarchyScreen
from tests.console.stories import Step, Until, press
from tests.hierarchy.guidance_world import Organisation

WIDE = (150, 45)
"""Columns and rows of a wide terminal."""
TABS = ("who", "guidance", "findings", "teaching", "work")


def find_world(app: ConsoleApp) -> Organisation:
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


def offers(action: str, offered: bool, *parameters: str) -> Until:
    """The key of this action is offered, or is not."""
    return Until(f"{action} {offered}", lambda app: bool(app.screen.check_action(action, parameters)) is offered)


def tree_shows(*ids: str) -> Until:
    """The tree has these rows."""
    return Until(f"{ids} in the tree", lambda app: {*ids} <= {*read_tree_ids(app)})


def tree_hides(*ids: str) -> Until:
    """The tree has none of these rows."""
    return Until(f"no {ids} in the tree", lambda app: not {*ids} & {*read_tree_ids(app)})


def edit_text(text: str, before: str = "") -> tuple[Step, ...]:
    """Write `text` in the editor, in place of `before` or of everything."""

    def act(app: ConsoleApp):
        area = app.screen.query_one("#text", TextArea)
        area.text = area.text.replace(before, text) if before else text

    return Until("the editor", lambda app: app.screen.query("#text")), act


def soul_has(agent: str, text: str) -> Until:
    """The saved soul of an agent has this text."""
    return Until(text, lambda app: text in (find_world(app).folder / agent / "soul.md").read_text())


def guidance_has(text: str) -> Until:
    """The guidance of the backend builder has this text."""
    return Until(text, lambda app: text in find_world(app).cascade.guidance("backend_builder").block)
