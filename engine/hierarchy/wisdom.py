"""The port to what goes down and up the organisation (SPEC 1.5 to 1.10): `engine.wisdom`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from engine.clock import Clock
from engine.hierarchy import profile_text
from engine.hierarchy.agents import Agents
from engine.hierarchy.bubbles import Bubbles
from engine.hierarchy.cascade import Cascade, SoulSeeds
from engine.hierarchy.cascade_config import CascadeConfig
from engine.hierarchy.discoveries import Correction, Discoveries
from engine.hierarchy.forgetting import WisdomTexts
from engine.hierarchy.guidance_block import Count
from engine.hierarchy.guided import GuidedSessions, Lost
from engine.hierarchy.profiles import Decided, Profiles
from engine.hierarchy.prompt_part import LeadershipGuidance
from engine.hierarchy.sharing import ProfileStore, Sharing
from engine.hierarchy.teaching import Teaching
from engine.hierarchy.tiers import capabilities
from engine.storage.database import Database, Transaction
from engine.storage.facts_read import Facts
from engine.values import (
    Bubble,
    BubbleState,
    FlushReport,
    Guidance,
    LeaderProfile,
    Learning,
    Learnt,
    Lesson,
    MovePreview,
    PatternVersion,
    ProfileEdit,
    ProfilePreview,
    Randomness,
    Refusal,
    TeachingState,
    Waiting,
)


class Wisdom:
    """Guidance, teaching, bubbles and profiles of one home. Callable from any thread.

    `count` says how many tokens a text is; `facts` is the ledger; `seconds` how long a session took; `correction` what
    the operator made of a card; `decided` what leaders decided in their own words; `store` the leadership shared with
    other machines, if any; `lost` which files a workspace had once.
    """

    def __init__(
        self,
        database: Database,
        agents: Agents,
        *,
        clock: Clock,
        randomness: Randomness,
        count: Count,
        facts: Facts,
        seconds: Callable[[str], float],
        correction: Callable[[str], Correction | None],
        decided: Decided = lambda leaders: {},
        store: Callable[[], ProfileStore | None] = lambda: None,
        lost: Lost = lambda workspace, paths: (),
    ) -> None:
        self._agents = agents

        def shared() -> bool:
            return store() is not None

        self._profiles = Profiles(database, SoulSeeds(agents), randomness=randomness, decided=decided, shared=shared)
        self._cascade = Cascade(agents, self._profiles, clock=clock, count=count)
        self._sharing = Sharing(database, self._profiles, store, synced=self._synced)
        self._teaching = Teaching(
            database, agents, lambda agent: self._cascade.guidance(agent, in_prompts=False), clock=clock
        )
        self._bubbles = Bubbles(
            database, agents, self._profiles, randomness=randomness, exchange=self._sharing.exchange
        )
        self._discoveries = Discoveries(
            database, facts=facts, offer=self._bubbles.offer, seconds=seconds, correction=correction
        )
        self._guided = GuidedSessions(database, self._profiles, clock=clock, facts=facts, lost=lost)
        self.texts = WisdomTexts(database, self._profiles, shared=shared)
        """What is searched, and emptied, when somebody's words are forgotten."""
        self.part = LeadershipGuidance(self._cascade)
        """The part "guidance" of every prompt."""

    def _synced(self, leader: str) -> bool:
        """Whether its tier is shared between machines; of one who is gone what it left is."""
        try:
            return capabilities(self._agents.get(leader).tier).cloud_synced
        except Refusal:
            return True

    @property
    def config(self) -> CascadeConfig:
        """`wisdom_cascade_config.json` as it is now."""
        return self._agents.config.current

    def origin(self) -> str:
        """What this home is called in what machines share."""
        return self._profiles.lasting_origin()

    @property
    def interval(self) -> timedelta:
        """How often `round` is to be called."""
        return timedelta(seconds=self.config.m2_interval_seconds)

    def round(self) -> FlushReport:
        """What comes round: the queue is flushed, what leaders say is looked through for what has outlived its time,
        and with `enable_m2` souls are taught (SPEC 1.6, 1.8, 5.1)."""
        report = self.flush()
        self._guided.review()
        if self.config.enable_m2:
            self._teaching.round()
        return report

    def guidance(self, agent_id: str) -> Guidance:
        """What the agent's next prompt will carry, and what was cut. Raises `Refusal` `unknown_agent`."""
        return self._cascade.guidance(agent_id)

    def applied(
        self, tx: Transaction, told: Mapping[str, Any], *, agent: str, call: str, session_id: str, workspace: str
    ) -> None:
        """A call with this provenance was made: what it carried of its leaders is recorded (SPEC 1.10)."""
        self._cascade.applied(tx, told, agent=agent, call=call, session_id=session_id, workspace=workspace)

    def preview_move(self, agent_id: str, reports_to: str) -> MovePreview:
        """The agent's guidance before and after a move. Raises `Refusal` as the move would."""
        return self._cascade.preview_move(agent_id, reports_to)

    def profile(self, leader: str) -> LeaderProfile:
        """What a leader has to say. Raises `Refusal` `unknown_agent`."""
        self._agents.get(leader)
        return self._profiles.get(leader)

    def edit_profile(
        self, leader: str, section: str, *, key: str = "", value: str | Sequence[str] = ""
    ) -> LeaderProfile:
        """Make one change of a leader's profile. Raises `Refusal` as `revise_profile`."""
        said = value if isinstance(value, str) else tuple(value)
        return self.revise_profile(leader, [ProfileEdit(section, said, key)])

    def profile_text(self, profile: LeaderProfile) -> str:
        """A profile as a text to edit, under the headings of `soul.md`."""
        return profile_text.written(profile)

    def profile_edits(self, before: LeaderProfile, text: str) -> tuple[ProfileEdit, ...]:
        """What makes a profile say what an edited `profile_text` says; none where they say the same."""
        return profile_text.edits(before, text)

    def revise_profile(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """Make changes of a leader's profile, all or none. Raises `Refusal`: `unknown_agent`, `bad_section`,
        `bad_profile`."""
        self._agents.get(leader)
        return self._profiles.edit(leader, edits)

    def preview_profile(self, leader: str, edits: Sequence[ProfileEdit]) -> ProfilePreview:
        """What these changes would make of the profile, and whose prompts would change. Raises `Refusal` as
        `revise_profile`."""
        self._agents.get(leader)
        profile = self._profiles.preview(leader, edits)
        return ProfilePreview(profile, self._cascade.preview_profile(profile))

    def history(self, leader: str, key: str) -> list[PatternVersion]:
        """Every wording that a pattern has and had, the newest first."""
        return self._profiles.history(leader, key)

    def offer(self, learning: Learning) -> Bubble:
        """Put a learning before the gates (SPEC 1.7). Raises `Refusal`: `unknown_agent`, `bad_learning`."""
        return self._bubbles.offer(learning)

    def discover(self) -> int:
        """Take in what the ledger tells since the last time: what became of guided work, and what agents found out.
        Returns how many learnings were offered."""
        self._guided.catch_up()
        return self._discoveries.catch_up()

    def bubbles(self, *, state: BubbleState | None = None, agent: str = "", limit: int = 100) -> Sequence[Bubble]:
        """Learnings on their way up, those refused and those that arrived, the newest first; with `agent` those that
        it sent or receives."""
        return self._bubbles.list(state=state, agent=agent, limit=limit)

    def learnt(self, workspace: str) -> Sequence[Learnt]:
        """What was found out in a workspace and is a pattern of a leader now, the newest first (SPEC 1.12)."""
        return self._bubbles.learnt(workspace)

    def approve(self, bubble_id: str) -> Bubble:
        """Let words of others go up, at the operator's word (SPEC 6.8). Raises `Refusal`: `unknown_bubble`,
        `not_waiting`."""
        return self._bubbles.approve(bubble_id)

    def waiting(self) -> Sequence[Waiting]:
        """What of the queue is among what waits for the operator (SPEC 9.3), by leader."""
        return self._bubbles.waiting()

    def flush(self) -> FlushReport:
        """Let queued bubbles become patterns now (SPEC 1.8)."""
        self.discover()
        return self._bubbles.flush()

    def teaching(self, agent_id: str) -> TeachingState:
        """When the agent was and will be taught, and what would change. Raises `Refusal` `unknown_agent`."""
        return self._teaching.state(agent_id)

    def teach(self) -> list[Lesson]:
        """Teach every worker now, whether M2 comes round or not."""
        return self._teaching.round()
