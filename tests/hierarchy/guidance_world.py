"""A small organisation on disk, with the real services that guide it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlmodel import col, select

from engine.clock import FakeClock
from engine.config.settings import FixedSettings
from engine.hierarchy.agents import Agents, ReadActivity
from engine.hierarchy.bubbles import Bubbles
from engine.hierarchy.guidance import Cascade
from engine.hierarchy.guided_sessions import GuidedSessions
from engine.hierarchy.profile_rows import ProfileEntry, ProfileSharing
from engine.hierarchy.profiles import Profiles
from engine.hierarchy.teaching import Teaching, run_round
from engine.model import FlushReport, LeaderProfile, OfferedFinding, ProfileEdit, Score, Trust
from engine.randomness import Randomness
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.storage.shared import SharedDatabase

SOUL = """# {name}

## Domain

{domain}

## Principles

- {name} keeps it simple.
- {name} measures first.

## Learned patterns

- {name}_first: Write the test before the code of {name}.

## Guardrails

- {name} never deploys on a Friday.

## Recent decisions

- {name} chose SQLite.
"""


@dataclass
class Organisation:
    """The services of one organisation, the folder of its agents, and its settings file `config`."""

    folder: Path
    config: Path
    agents: Agents
    profiles: Profiles
    cascade: Cascade
    bubbles: Bubbles
    teaching: Teaching
    guided_sessions: GuidedSessions
    database: Database

    def write_agent(self, name: str, under: str, tier: int, *, soul: str | None = None):
        """Write the folder of an agent without the engine, as an editor does."""
        archetypes = {1: "ceo", 2: "executive", 3: "lead", 4: "builder", 5: "junior"}
        agent = self.folder / name
        agent.mkdir(parents=True, exist_ok=True)
        (agent / "comms.json").write_text(json.dumps({"reports_to": under, "domain": "code tests"}))
        (agent / "tools.json").write_text(json.dumps({"archetype": archetypes[tier]}))
        (agent / "soul.md").write_text(SOUL.format(name=name, domain="code tests") if soul is None else soul)

    def configure(self, **settings: object):
        """Replace the settings of guidance."""
        self.config.write_text(json.dumps(settings))

    def call(self, agent: str, session_id: str = "ses", call: str = "call_1", workspace: str = ""):
        """Record a call of the agent's model, whose prompt has the present guidance of its leaders."""
        provenance = self.cascade.guidance(agent).provenance
        self.database.write(
            lambda tx: self.guided_sessions.record_applied(
                tx, provenance, agent=agent, call=call, session_id=session_id, workspace=workspace
            )
        )

    def run_round(self) -> FlushReport:
        return run_round(self.bubbles, self.guided_sessions, self.teaching)

    def read_kinds(self) -> list[str]:
        """The kinds of all entries of the ledger, oldest first."""
        return [entry.kind for entry in reversed(Ledger(self.database).read_newest(200))]


def make_world(
    tmp_path: Path,
    database: Database,
    clock: FakeClock,
    *,
    shared: SharedDatabase | None = None,
    read_activity: ReadActivity = dict,
    seed: int = 1,
    members: Sequence[tuple[str, str, int]] = (
        ("ceo", "owner", 1), ("cto", "ceo", 2), ("lead", "cto", 3), ("worker", "lead", 4), ("junior", "worker", 5),
    ),
) -> Organisation:  # fmt: skip
    """An organisation of `members` (name, leader, tier); by default owner ← ceo ← cto ← lead ← worker ← junior."""
    folder, config = tmp_path / "agents", tmp_path / "wisdom_cascade_config.json"
    agents = Agents(
        folder, cascade_config=config, settings=FixedSettings(), record=database.record, read_activity=read_activity
    )
    randomness = Randomness(seed)
    profiles = Profiles(database, agents, randomness=randomness, load_decisions=lambda leaders: {})
    cascade = Cascade(agents, profiles, clock=clock, nearer_lessons=lambda request: frozenset())
    sharing = ProfileSharing(database, agents, shared, merge_rows=profiles.merge_rows)
    world = Organisation(
        folder,
        config,
        agents,
        profiles,
        cascade,
        Bubbles(database, agents, profiles, randomness=randomness, exchange=sharing.exchange),
        Teaching(database, agents, cascade, clock=clock),
        GuidedSessions(database, profiles, ledger=Ledger(database)),
        database,
    )
    for name, under, tier in members:
        world.write_agent(name, under, tier)
    return world


def edit_profile(
    profiles: Profiles, leader: str, section: str, *, key: str = "", value: str | Sequence[str]
) -> LeaderProfile:
    """Make one edit of the operator; returns the profile after it."""
    return profiles.edit(leader, [ProfileEdit(section, value if isinstance(value, str) else tuple(value), key)])


def make_learning(number: int | str = 1, *, text: str = "", category: str = "code", agent: str = "worker",
                  confidence: float = 0.9, importance: float = 0.8, trust: Trust = Trust.OPERATOR
                  ) -> OfferedFinding:  # fmt: skip
    """A learning in the operator's words that passes every gate, unless its arguments say otherwise."""
    text = text or f"alpha{number} beta{number} gamma{number} delta{number}"
    return OfferedFinding(
        f"learning:{number}", text, category, agent, f"ses_{number}",
        Score(confidence, ("tests confirmed it",)), Score(importance, ("a failure was avoided",)), trust=trust,
    )  # fmt: skip


def list_learned_texts(world: Organisation) -> list[str]:
    """The texts of the lead's patterns that came from findings."""
    return [pattern.text for pattern in world.profiles.read("lead").patterns if pattern.sources]


def read_versions(database: Database, leader: str, key: str) -> list[str]:
    """The texts of all stored versions of a pattern, newest first; "" for one that was removed."""
    query = select(ProfileEntry).where(ProfileEntry.leader == leader, ProfileEntry.key == key)
    with database.read() as session:
        return [entry.text for entry in session.exec(query.order_by(col(ProfileEntry.at).desc()))]
