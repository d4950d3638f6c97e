"""The state of the console: the topics that are read, and the screens in use."""

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.state import TOPICS, AppState, find_used_screens
from engine.events import Event
from engine.model import MICRO, Hold
from engine.model.rails import CostState
from tests.console.driving import running, until_shown
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW, read_agents


def test_the_topics_of_events_are_those_of_the_screens():
    topics = {topic for kind in Event.kinds.values() for topic in kind.topics}
    assert topics <= {*TOPICS, "training"}, "the insights screen reads trainings itself"


async def test_a_failing_topic_leaves_the_others(console: ConsoleApp, engine: StandIn):
    def broken():
        raise RuntimeError("no such table: agents")

    engine.agents.list = broken
    async with running(console, notifications=True) as pilot:
        assert console.state.cards
        assert console.state.tasks
        await until_shown(pilot, "no such table")


@pytest.mark.parametrize(
    "app_state, screens",
    [
        (AppState(), set()),
        (AppState(agents=tuple(read_agents())), {"hierarchy"}),
        (AppState(served=(("koji-core", "openai:gpt-5"),)), {"hierarchy", "costs"}),
        (AppState(costs=CostState(0, 0, 3, MICRO, MICRO, MICRO)), {"costs"}),
        (AppState(holds=(Hold("pause", "d pressed", NOW),)), {"safety"}),
        (AppState(has_learnings=True), {"learning"}),
        (AppState(used=frozenset({"insights"})), {"insights"}),
    ],
)
def test_screens_in_use(app_state: AppState, screens: set[str]):
    assert find_used_screens(app_state) == screens
