"""The channel and the agent of a prompt by its meaning, with the embedder that comes with the program (SPEC 2.4)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.config.settings import ChannelSettings, Settings
from engine.hierarchy.agent_folders import load_first_roles
from engine.memory.embedding import LocalEmbedder
from engine.memory.helper import Helper
from engine.model import AgentView
from engine.prediction.placing import PromptPlacer
from engine.prediction.routing import Route
from engine.storage.database import Database
from tests.prediction.deciding import DecisionWorld

pytestmark = pytest.mark.long
"""The embedder is a process that takes a second to start."""

EXAMPLES = [
    json.loads(line) for line in Path(__file__).with_name("placing_prompts.jsonl").read_text("utf-8").splitlines()
]
"""60 prompts with the channel and agent that their writer means. None of them helped to choose weights or threshold."""

AGENTS = [
    AgentView(agent_id, role.title, role.reports_to, 4, "", role.domain, ())
    for agent_id, role in load_first_roles().items()
]


@pytest.fixture(scope="module")
def embed() -> Iterator[Callable[[list[str]], list[bytes]]]:
    """The embedder that comes with the program."""
    helper = Helper()
    yield lambda texts: [embedding.vector for embedding in LocalEmbedder(helper).embed(texts)]
    helper.close()


@pytest.fixture
def place(database: Database, embed: Callable[[list[str]], list[bytes]]) -> Callable[..., Route]:
    """Places a prompt for the first organisation of a home and one channel of the operator."""
    legal = ChannelSettings(agent="lawyer", specialty="contracts, licences, privacy")
    own = Settings(channels=Settings().channels | {"legal": legal})
    placer = PromptPlacer(database, embed=embed, agents=lambda: AGENTS)
    return lambda prompt, channel, settings=own: placer.place(prompt, channel, settings)


def test_nine_of_ten_prompts_go_to_the_channel_that_is_meant(place: Callable[..., Route]):
    wrong = [
        f"{channel or 'no channel'} instead of {example['channel']}: {example['prompt']}"
        for example in EXAMPLES
        if (channel := place(example["prompt"], "").channel) != example["channel"]
    ]
    print(*wrong, sep="\n")  # for the table of benchmarks
    assert len(wrong) <= len(EXAMPLES) / 10


def test_seven_of_ten_prompts_go_to_the_agent_that_is_meant(place: Callable[..., Route]):
    routes = [(example, place(example["prompt"], "")) for example in EXAMPLES]
    right = sum((route.channel, route.agent) == (example["channel"], example["agent"]) for example, route in routes)
    print(right, "with the agent")
    assert right >= len(EXAMPLES) * 7 / 10


def test_a_channel_of_the_operator_is_found_by_its_specialty(place: Callable[..., Route]):
    route = place("Compare the licences in these two contracts", "")
    assert (route.channel, route.agent) == ("legal", "lawyer")


def test_a_prompt_goes_where_a_similar_one_succeeded(database: Database, clock: FakeClock, place: Callable[..., Route]):
    world = DecisionWorld(database, clock, placer=place)
    world.sessions.text_executor = "a model"
    first = world.propose("Write the release notes of version 4.1", channel="garden")
    world.cards.approve(first.id)
    world.sessions.end(first.id)
    like = f"like “{first.assignment.prompt}”"
    route = place("Write the release notes of version 4.2", "")
    assert (route.channel, route.agent, route.why) == ("garden", "gardener", like)
    assert like in world.propose("Write the release notes of version 4.2").reasoning
