"""What there is to say of one agent: read from the engine's ports, in a thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from engine.values import (
    AgentView,
    Bubble,
    BubbleState,
    Guidance,
    LeaderProfile,
    Refusal,
    SessionView,
    TeachingState,
)

if TYPE_CHECKING:
    from engine import Engine

T = TypeVar("T")

MOST_BUBBLES = 200
MOST_SESSIONS = 200


@dataclass(frozen=True, slots=True)
class Serves:
    """A channel that an agent serves, and by what: the runner of the settings, what stands in for it, the model."""

    channel: str
    runner: str
    fallback: tuple[str, ...] = ()
    model: str = ""


@dataclass(frozen=True, slots=True)
class May:
    """What `tools.json` of an agent says: names or patterns of tools, models by kind of run, dollars a day."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    models: tuple[tuple[str, str], ...] = ()
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Portrait:
    """An agent as the screen shows it. `leaders` are id and tier from the direct one upward. `faults` say in words
    what could not be read; the rest stands all the same."""

    agent: AgentView
    folder: str = ""
    soul: str = ""
    leaders: tuple[tuple[str, int], ...] = ()
    chain_end: str = ""
    may: May | None = None
    serves: tuple[Serves, ...] = ()
    guidance: Guidance | None = None
    profile: LeaderProfile | None = None
    bubbles: tuple[Bubble, ...] = ()
    teaching: TeachingState | None = None
    sessions: tuple[SessionView, ...] = ()
    faults: tuple[str, ...] = ()

    def bubbles_of(self, state: BubbleState) -> int:
        """How many of its own bubbles are in this state."""
        return sum(one.state is state and one.learning.agent == self.agent.id for one in self.bubbles)


@dataclass(frozen=True, slots=True)
class Overview:
    """The organisation as a whole: what wants mending, what goes up and down, by the settings of the cascade."""

    problems: tuple[str, ...] = ()
    queued: int = 0
    m1: bool = True
    m2: bool = False
    budget: int = 0
    interval: float = 0.0
    bubbling: bool = True
    folder: str = ""
    bubbles: tuple[Bubble, ...] = ()


@dataclass(slots=True)
class _Reader:
    """Reads part by part: what fails is said, and takes nothing else along."""

    faults: list[str] = field(default_factory=list)

    def part(self, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except Refusal as refusal:
            self.faults.append(str(refusal))
        except (OSError, ValueError) as error:
            self.faults.append(str(error))
        return otherwise


def overview(engine: Engine) -> Overview:
    """How the whole stands. Blocking."""
    config = engine.wisdom.config
    queued = tuple(engine.wisdom.bubbles(state=BubbleState.QUEUED, limit=MOST_BUBBLES))
    return Overview(
        problems=tuple(engine.hierarchy.problems()),
        queued=len(queued),
        m1=config.enable_m1,
        m2=config.enable_m2,
        budget=config.m1_token_budget,
        interval=config.m2_interval_seconds,
        bubbling=config.enable_upward_bubbling,
        folder=str(engine.home.agents),
        bubbles=queued,
    )


def portrait(engine: Engine, agent: AgentView) -> Portrait:
    """All there is to say of `agent`, who is in the organisation now or was retired. Blocking."""
    if agent.state == "retired":
        return Portrait(agent, str(engine.home.agents / ".retired" / agent.id))
    people, wisdom, name = engine.hierarchy, engine.wisdom, agent.id
    read = _Reader()
    lineage = read.part(lambda: people.lineage(name), None)
    guidance = read.part(lambda: wisdom.guidance(name), None)
    return Portrait(
        agent=agent,
        folder=str(engine.home.agents / name),
        soul=read.part(lambda: people.soul(name), ""),
        leaders=tuple((one.id, one.tier) for one in lineage.leaders) if lineage else (),
        chain_end=lineage.chain.words if lineage else "",
        may=None if agent.broken else read.part(lambda: _may(engine, name), None),
        serves=tuple(_serves(engine, channel) for channel in agent.channels),
        guidance=guidance,
        profile=read.part(lambda: wisdom.profile(name), None) if guidance is not None and not guidance.hops else None,
        bubbles=tuple(read.part(lambda: wisdom.bubbles(agent=name, limit=MOST_BUBBLES), ())),
        teaching=read.part(lambda: wisdom.teaching(name), None),
        sessions=tuple(read.part(lambda: engine.sessions.list(agent=name, limit=MOST_SESSIONS), [])),
        faults=tuple(dict.fromkeys(read.faults)),
    )


def _may(engine: Engine, name: str) -> May:
    tools = engine.hierarchy.tools(name)
    return May(
        tuple(tools.allow), tuple(tools.ask), tuple(tools.deny), tuple(tools.models.items()),
        None if tools.budget is None else tools.budget.usd_per_day,
    )  # fmt: skip


def _serves(engine: Engine, channel: str) -> Serves:
    one = engine.settings.current.channels.get(channel)
    return Serves(channel, "") if one is None else Serves(channel, one.runner, one.fallback, one.model)
