"""The service `engine.wisdom`: guidance, profiles, findings and teaching of one home (SPEC 1.5 to 1.10)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from engine.clock import Clock
from engine.hierarchy import profile_text
from engine.hierarchy.agents import Agents
from engine.hierarchy.bubbles import Bubbles
from engine.hierarchy.cascade import Cascade
from engine.hierarchy.cascade_config import CascadeConfig, FileCache
from engine.hierarchy.guided import FindDeletedFiles, GuidedSessions
from engine.hierarchy.profile_text import seed_profile
from engine.hierarchy.profiles import LoadDecisions, Profiles, WisdomTexts
from engine.hierarchy.sharing import PostgresStore, Sharing
from engine.hierarchy.teaching import Teaching
from engine.hierarchy.tiers import is_leader
from engine.model import FlushReport, LeaderProfile, ProfileEdit, ProfilePreview, Randomness, Refusal
from engine.storage.database import Database
from engine.storage.ledger import Ledger


class Wisdom:
    """Guidance, teaching, bubbles and profiles of one home. Callable from any thread.

    `facts` is the ledger; `decided` reads captured decisions of leaders; `store` is the leadership shared with other
    machines, if any; `lost` finds files that a workspace had once.
    """

    def __init__(
        self,
        database: Database,
        agents: Agents,
        *,
        clock: Clock,
        randomness: Randomness,
        facts: Ledger,
        decided: LoadDecisions = lambda leaders: {},
        store: PostgresStore | None = None,
        lost: FindDeletedFiles = lambda workspace, paths: (),
    ) -> None:
        self._agents = agents
        self._souls: FileCache[LeaderProfile] = FileCache()
        profiles = self._profiles = Profiles(database, self._seed, randomness=randomness, decided=decided)
        cascade = self.cascade = Cascade(agents, profiles, clock=clock)
        sharing = Sharing(database, profiles, store, synced=self._synced)
        bubbles = self._bubbles = Bubbles(database, agents, profiles, randomness=randomness, exchange=sharing.exchange)
        self._teaching = Teaching(database, agents, cascade, clock=clock)
        self._guided = GuidedSessions(database, profiles, clock=clock, facts=facts, lost=lost)
        self.texts = WisdomTexts(database, profiles)
        """Erases texts that the operator wants forgotten."""
        self.origin = profiles.stored_origin
        self.history = profiles.history
        self.guidance, self.applied = cascade.guidance, cascade.applied
        self.preview_move = cascade.preview_move
        self.offer, self.approve, self.flush = bubbles.offer, bubbles.approve, bubbles.flush
        self.bubbles, self.learnt, self.waiting = bubbles.list, bubbles.list_accepted, bubbles.waiting
        self.teaching, self.teach = self._teaching.state, self._teaching.round
        self.follow = self._guided.catch_up

    @property
    def config(self) -> CascadeConfig:
        """`wisdom_cascade_config.json` as it is now."""
        return self._agents.config.current

    @property
    def interval(self) -> timedelta:
        """How often `round` is to be called."""
        return timedelta(seconds=self.config.m2_interval_seconds)

    def round(self) -> FlushReport:
        """Flush the queue, look for outdated guidance, and with `enable_m2` write guidance into souls (SPEC 1.6, 1.8,
        5.1)."""
        report = self.flush()
        self._guided.review()
        if self.config.enable_m2:
            self.teach()
        return report

    def profile(self, leader: str) -> LeaderProfile:
        """The profile of a leader. Raises `Refusal` `unknown_agent`."""
        self._agents.get(leader)
        return self._profiles.get(leader)

    def edit_profile(
        self, leader: str, section: str, *, key: str = "", value: str | Sequence[str] = ""
    ) -> LeaderProfile:
        """Make one change of a leader's profile. Raises `Refusal` as `revise_profile`."""
        text = value if isinstance(value, str) else tuple(value)
        return self.revise_profile(leader, [ProfileEdit(section, text, key)])

    def profile_text(self, profile: LeaderProfile) -> str:
        """A profile as a text to edit, under the headings of `soul.md`."""
        return profile_text.format_profile(profile)

    def profile_edits(self, before: LeaderProfile, text: str) -> tuple[ProfileEdit, ...]:
        """The edits that turn a profile into an edited `profile_text`. Raises `Refusal` `bad_profile` for an unknown
        heading."""
        return profile_text.parse_edits(before, text)

    def revise_profile(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """Make changes of a leader's profile, all or none. Raises `Refusal`: `unknown_agent`, `bad_section`,
        `bad_profile`."""
        self._agents.get(leader)
        return self._profiles.edit(leader, edits)

    def undo_profile(self, leader: str) -> LeaderProfile:
        """Undo the last `revise_profile` of a leader. Raises `Refusal`: `unknown_agent`, `nothing_to_undo`."""
        self._agents.get(leader)
        return self._profiles.undo(leader)

    def preview_profile(self, leader: str, edits: Sequence[ProfileEdit]) -> ProfilePreview:
        """The profile after these changes, and the agents whose prompts change. Raises `Refusal` as
        `revise_profile`."""
        self._agents.get(leader)
        profile = self._profiles.preview(leader, edits)
        emptied = (edit.section for edit in edits if not edit.value and not edit.key)
        from_soul = tuple(section for section in emptied if getattr(profile, section))
        return ProfilePreview(profile, self.cascade.preview_profile(profile), from_soul)

    def retract(self, lesson: str) -> list[str]:
        """Remove a retracted lesson from profiles, queue and souls. Returns the leaders that had it."""
        self._bubbles.drop(lesson)
        leaders = self._profiles.drop(lesson)
        if leaders and self._teaching.last() is not None:
            self.teach()
        return leaders

    def _seed(self, leader: str) -> LeaderProfile:
        """The profile in a leader's `soul.md`, cached until the file changes; empty if it cannot be read."""
        try:
            file = self._agents.soul_file(leader)
            return self._souls.get(leader, (file,), lambda: seed_profile(leader, self._agents.soul(leader)))
        except (OSError, ValueError, Refusal):
            return LeaderProfile(leader)

    def _synced(self, leader: str) -> bool:
        """Whether the profile of a leader is shared between machines: by its tier, or because the agent is gone."""
        try:
            return is_leader(self._agents.get(leader).tier)
        except Refusal:
            return True
