"""The channel and the agent of a piece of work, also by the meaning of a prompt (SPEC 2.4)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.config import ChannelSettings, FixedSettings, Settings
from engine.hierarchy.organisation import first_organisation
from engine.memory.embedding import LocalEmbedder, NoEmbedder
from engine.memory.helper import Helper
from engine.model import AgentView, Randomness, Refusal, SessionState
from engine.prediction.routing import RECENT, PromptPlacer, Route, Router
from engine.storage.database import Database
from tests.prediction.deciding import World

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
CHANNELS = ["koji-core", "chronicle-hub", "garden"]
SERVING = {"koji-core": "backend_builder", "chronicle-hub": "chronicler", "garden": "gardener"}


def router(
    *, at: datetime = NOW, means: Route | None = None, randomness: Randomness | None = None, channels: Any = SERVING
) -> Router:
    settings = Settings(channels={name: ChannelSettings(agent=agent) for name, agent in channels.items()})
    place = lambda prompt, channel: means or Route(channel)  # noqa: E731
    return Router(FixedSettings(settings), FakeClock(at), randomness or Randomness(7), place)


def route_of(prose: str = "", *, by: Router | None = None, **options: Any) -> Route:
    return (by or router()).route(prose, **({"triggered": {}, "routed": {}} | options))


def test_a_named_channel_goes_first_then_affinity_and_the_channel_has_its_agent() -> None:
    assert route_of(named="garden", affinity="koji-core") == Route("garden", "gardener")
    assert route_of(affinity="chronicle-hub") == Route("chronicle-hub", "chronicler")


def test_a_prompt_goes_by_its_meaning_and_a_flow_does_not() -> None:
    means = Route("koji-core", "frontend_builder", "by meaning, 61%", b"vector")
    assert route_of("fix the menu", by=router(means=means)) == means
    assert route_of(by=router(means=means)).why == "round-robin", "a flow means what it does"


@pytest.mark.parametrize("options", [{"named": "gardn"}, {"affinity": "gardn"}, {"by": router(channels={})}])
def test_an_unregistered_channel_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        route_of(**options)
    assert refused.value.code == "unknown_channel"


def test_the_round_robin_passes_over_channels_that_were_triggered_recently() -> None:
    just = NOW - RECENT + timedelta(microseconds=1)
    assert route_of(triggered={"koji-core": just}).channel == "chronicle-hub"
    assert route_of(triggered={"koji-core": NOW - RECENT}).channel == "chronicle-hub", "least recently triggered first"
    everywhere = {"koji-core": NOW - RECENT * 2, "chronicle-hub": NOW - RECENT * 3, "garden": just}
    assert route_of(triggered=everywhere).channel == "chronicle-hub"


def test_the_last_step_is_a_seeded_draw_by_time_of_day() -> None:
    def draws(hour: int) -> list[str]:
        at = NOW.replace(hour=hour)
        asked = router(at=at, randomness=Randomness(3))
        return [route_of(by=asked, triggered=dict.fromkeys(CHANNELS, at)).channel for _ in range(300)]

    evening, afternoon = 20, 14
    assert draws(evening) == draws(evening)
    assert Counter(draws(evening)).most_common(1)[0][0] == "chronicle-hub"
    assert Counter(draws(afternoon)).most_common(1)[0][0] == "koji-core"


PROMPTS = Path(__file__).with_name("placing_prompts.jsonl")
"""60 prompts with the channel and agent that their writer means. None of them helped to choose weights or threshold."""

AGENTS = [AgentView(item.id, item.title, item.reports_to, 4, "", item.domain, ()) for item in first_organisation()]


class HideableEmbedder:
    """The shipped embedder, which `hidden` takes away; a text is read once."""

    def __init__(self) -> None:
        self.helper = Helper()
        self.made: dict[str, bytes] = {}
        self.hidden = False

    def __call__(self, texts: list[str]) -> list[bytes]:
        if self.hidden:
            raise NoEmbedder("it is hidden")
        missing = [text for text in texts if text not in self.made]
        vectors = LocalEmbedder(self.helper).embed(missing) if missing else []
        self.made |= {text: vector.vector for text, vector in zip(missing, vectors, strict=True)}
        return [self.made[text] for text in texts]


@pytest.fixture(scope="module")
def embedding() -> Iterator[HideableEmbedder]:
    shipped = HideableEmbedder()
    yield shipped
    shipped.helper.close()


def placing(
    database: Database, embed: HideableEmbedder, settings: Settings | None = None, agents: list[AgentView] = AGENTS
) -> PromptPlacer:
    return PromptPlacer(database, FixedSettings(settings or Settings()), embed=embed, agents=lambda: agents)


@pytest.mark.long
def test_nine_of_ten_prompts_go_to_the_channel_that_is_meant(database: Database, embedding: HideableEmbedder) -> None:
    asked = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    place = placing(database, embedding).place
    routes = [(item, place(item["prompt"])) for item in asked]
    right = [prompt for prompt, route in routes if route.channel == prompt["channel"]]
    exact = [prompt for prompt, route in routes if (route.channel, route.agent) == (prompt["channel"], prompt["agent"])]
    meant, met = Counter(item["channel"] for item in asked), Counter(item["channel"] for item in right)
    print(f"\n{'channel':<16}{'prompts':>8}{'right':>7}")
    for channel, number in meant.items():
        print(f"{channel:<16}{number:>8}{met[channel]:>7}")
    print(f"{'in all':<16}{len(asked):>8}{len(right):>7}, with the agent {len(exact)}")
    for prompt, route in routes:
        if route.channel != prompt["channel"]:
            print(f"  {prompt['channel']} → {route.channel or 'round-robin'}: {prompt['prompt']}")
    assert len(asked) == 60
    assert len(right) >= 54
    assert len(exact) >= 42


def test_an_agent_that_is_missing_or_serves_a_channel_gives_way_to_the_channels_own(
    database: Database, embedding: HideableEmbedder
) -> None:
    prompt = "Build a date picker component in Vue"
    without = [agent for agent in AGENTS if agent.id != "frontend_builder"]
    broken = [
        replace(agent, broken="comms.json is missing") if agent.id == "frontend_builder" else agent for agent in AGENTS
    ]
    for agents in (without, broken):
        assert placing(database, embedding, agents=agents).place(prompt).agent == "backend_builder"
    busy = Settings().channels | {"research": ChannelSettings(agent="frontend_builder", specialty="analysis")}
    route = placing(database, embedding, Settings(channels=busy)).place(prompt)
    assert (route.channel, route.agent) == ("koji-core", "backend_builder")


def test_own_channels_and_agents_are_found_by_their_descriptions(
    database: Database, embedding: HideableEmbedder
) -> None:
    own = Settings().channels | {"legal": ChannelSettings(agent="lawyer", specialty="contracts, licences, privacy")}
    route = placing(database, embedding, Settings(channels=own)).place("Compare the licences in these two contracts")
    assert (route.channel, route.agent) == ("legal", "lawyer")
    admin = AgentView("sre", "Site reliability", "cto", 4, "", "servers, monitoring, alerts", ())
    route = placing(database, embedding, agents=[*AGENTS, admin]).place("Set up alerts for CPU load on the servers")
    assert (route.channel, route.agent) == ("koji-core", "sre")


@pytest.mark.parametrize("prompt", ["ok", "hello there", "continue"])
def test_a_prompt_that_asks_for_no_work_has_no_channel(
    database: Database, embedding: HideableEmbedder, prompt: str
) -> None:
    route = placing(database, embedding).place(prompt)
    assert (route.channel, route.agent) == ("", "")
    assert route.meaning, "it is kept: where it is sent teaches where the like goes"


def test_a_prompt_goes_where_a_similar_one_succeeded(
    database: Database, clock: FakeClock, embedding: HideableEmbedder
) -> None:
    place = placing(database, embedding).place
    world = World(database, clock, place=place)
    world.sessions.serves = "a model"
    first = "Write the release notes of version 4.1"
    assert place("Write the release notes of version 4.2").channel == "chronicle-hub"

    def done(channel: str, state: SessionState) -> None:
        card = world.propose(first, channel=channel)
        world.cards.approve(card.id)
        world.sessions.end(card.id, state)

    done("garden", SessionState.FAILED)
    assert place("Write the release notes of version 4.2").channel == "chronicle-hub", "what failed teaches nothing"
    done("garden", SessionState.SUCCEEDED)
    route = place("Write the release notes of version 4.2")
    assert (route.channel, route.agent, route.why) == ("garden", "gardener", f"like “{first}”")
    assert place("Write a poem about release notes").channel == "dream-weaver", "another act is not alike"
    assert "like “Write the release" in world.propose("Write the release notes of 4.3").reasoning
