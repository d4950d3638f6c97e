"""The channel and the agent of a prompt by its meaning, with the embedder that comes with the program (SPEC 2.4)."""

import json
from collections.abc import Iterator
from operator import eq
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.config import ChannelSettings, FixedSettings, Settings
from engine.hierarchy.organisation import load_first_roles
from engine.memory.embedding import LocalEmbedder
from engine.memory.helper import Helper
from engine.model import AgentView, SessionState
from engine.prediction.routing import PromptPlacer, Route
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


class CachedEmbedder:
    """The shipped embedder, which embeds each text once."""

    def __init__(self):
        self.helper = Helper()
        self.vectors: dict[str, bytes] = {}

    def __call__(self, texts: list[str]) -> list[bytes]:
        missing = [text for text in texts if text not in self.vectors]
        new = LocalEmbedder(self.helper).embed(missing) if missing else []
        self.vectors |= {text: embedding.vector for text, embedding in zip(missing, new, strict=True)}
        return [self.vectors[text] for text in texts]


@pytest.fixture(scope="module")
def embed() -> Iterator[CachedEmbedder]:
    embedder = CachedEmbedder()
    yield embedder
    embedder.helper.close()


class Placer:
    """Places prompts for the first organisation of a home."""

    def __init__(self, database: Database, embed: CachedEmbedder):
        self._database, self._embed = database, embed
        self.agents = list(AGENTS)
        self.channels = dict(Settings().channels)

    def place(self, prompt: str, channel: str = "") -> Route:
        settings = FixedSettings(Settings(channels=self.channels))
        return PromptPlacer(self._database, settings, embed=self._embed, agents=lambda: self.agents).place(
            prompt, channel
        )

    def find_channel_and_agent(self, prompt: str) -> tuple[str, str]:
        route = self.place(prompt)
        return route.channel, route.agent


@pytest.fixture
def placer(database: Database, embed: CachedEmbedder) -> Placer:
    return Placer(database, embed)


def test_nine_of_ten_prompts_go_to_the_channel_that_is_meant(placer: Placer):
    wrong = [
        f"{channel or 'no channel'} instead of {example['channel']}: {example['prompt']}"
        for example in EXAMPLES
        if (channel := placer.place(example["prompt"]).channel) != example["channel"]
    ]
    print(*wrong, sep="\n")  # for the table of benchmarks
    assert len(wrong) <= len(EXAMPLES) / 10


def test_seven_of_ten_prompts_go_to_the_agent_that_is_meant(placer: Placer):
    meant = [(example["channel"], example["agent"]) for example in EXAMPLES]
    placed = [placer.find_channel_and_agent(example["prompt"]) for example in EXAMPLES]
    right = sum(map(eq, placed, meant))
    print(right, "with the agent")
    assert right >= len(EXAMPLES) * 7 / 10


def test_a_channel_of_the_operator_is_found_by_its_specialty(placer: Placer):
    placer.channels["legal"] = ChannelSettings(agent="lawyer", specialty="contracts, licences, privacy")
    assert placer.find_channel_and_agent("Compare the licences in these two contracts") == ("legal", "lawyer")


def test_an_agent_of_the_operator_is_found_by_its_domain(placer: Placer):
    placer.agents.append(AgentView("sre", "Site reliability", "cto", 4, "", "servers, monitoring, alerts", ()))
    assert placer.find_channel_and_agent("Set up alerts for CPU load on the servers") == ("koji-core", "sre")


NOTES, NEXT_NOTES = ("Write the release notes of version 4.1", "Write the release notes of version 4.2")


@pytest.fixture
def world(database: Database, clock: FakeClock, placer: Placer) -> DecisionWorld:
    world = DecisionWorld(database, clock, placer=placer.place)
    world.sessions.text_executor = "a model"
    return world


def run_notes(world: DecisionWorld, state: SessionState):
    """Run `NOTES` on a channel that is not meant for it."""
    card = world.propose(NOTES, channel="garden")
    world.cards.approve(card.id)
    world.sessions.end(card.id, state)


def test_a_prompt_goes_where_a_similar_one_succeeded(placer: Placer, world: DecisionWorld):
    run_notes(world, SessionState.SUCCEEDED)
    route = placer.place(NEXT_NOTES)
    assert (route.channel, route.agent, route.why) == ("garden", "gardener", f"like “{NOTES}”")
    assert f"like “{NOTES}”" in world.propose(NEXT_NOTES).reasoning
