"""The service `engine.wisdom`: guidance, profiles, findings and teaching of one home (SPEC 1.5 to 1.10)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from engine.clock import Clock
from engine.hierarchy import profile_text
from engine.hierarchy.agents import Agents
from engine.hierarchy.bubbles import Bubbles
from engine.hierarchy.cascade import Cascade
from engine.hierarchy.cascade_config import CascadeConfig, Watched
from engine.hierarchy.guided import FindDeletedFiles, GuidedSessions
from engine.hierarchy.profile_text import seed_profile
from engine.hierarchy.profiles import Decided, Profiles, WisdomTexts
from engine.hierarchy.sharing import PostgresStore, Sharing
from engine.hierarchy.teaching import Teaching
from engine.hierarchy.tiers import leads
from engine.model import FlushReport, LeaderProfile, ProfileEdit, ProfilePreview, Randomness, Refusal
from engine.storage.database import Database
from engine.storage.ledger import Ledger


class Wisdom:
    """Guidance, teaching, bubbles and profiles of one home. Callable from any thread.

    `facts` is the ledger; `decided` what leaders decided in their own words;
    `store` the leadership shared with other machines, if any; `lost` which files a workspace had once. What is put here
    by name is documented where it is defined.
    """

    def __init__(
        self,
        database: Database,
        agents: Agents,
        *,
        clock: Clock,
        randomness: Randomness,
        facts: Ledger,
        decided: Decided = lambda leaders: {},
        store: PostgresStore | None = None,
        lost: FindDeletedFiles = lambda workspace, paths: (),
    ) -> None:
        self._agents = agents
        self._souls: Watched[LeaderProfile] = Watched()
        profiles = self._profiles = Profiles(database, self._seed, randomness=randomness, decided=decided)
        cascade = self.cascade = Cascade(agents, profiles, clock=clock)
        sharing = Sharing(database, profiles, store, synced=self._synced)
        bubbles = self._bubbles = Bubbles(database, agents, profiles, randomness=randomness, exchange=sharing.exchange)
        self._teaching = Teaching(database, agents, cascade, clock=clock)
        self._guided = GuidedSessions(database, profiles, clock=clock, facts=facts, lost=lost)
        self.texts = WisdomTexts(database, profiles)
        """What is searched, and emptied, when somebody's words are forgotten."""
        self.origin = profiles.lasting_origin
        self.history = profiles.history
        self.guidance, self.applied = cascade.guidance, cascade.applied
        self.preview_move = cascade.preview_move
        self.offer, self.approve, self.flush = bubbles.offer, bubbles.approve, bubbles.flush
        self.bubbles, self.learnt, self.waiting = bubbles.list, bubbles.learnt, bubbles.waiting
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
        """What comes round: the queue is flushed, what leaders say is looked through for what has outlived its time,
        and with `enable_m2` souls are taught (SPEC 1.6, 1.8, 5.1)."""
        report = self.flush()
        self._guided.review()
        if self.config.enable_m2:
            self.teach()
        return report

    def profile(self, leader: str) -> LeaderProfile:
        """What a leader has to say. Raises `Refusal` `unknown_agent`."""
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
        return profile_text.written(profile)

    def profile_edits(self, before: LeaderProfile, text: str) -> tuple[ProfileEdit, ...]:
        """What makes a profile say what an edited `profile_text` says; none where they say the same. Raises `Refusal`
        `bad_profile` for a heading that no profile has."""
        return profile_text.edits(before, text)

    def revise_profile(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """Make changes of a leader's profile, all or none. Raises `Refusal`: `unknown_agent`, `bad_section`,
        `bad_profile`."""
        self._agents.get(leader)
        return self._profiles.edit(leader, edits)

    def undo_profile(self, leader: str) -> LeaderProfile:
        """Make what the last `revise_profile` of a leader changed as it was before. Raises `Refusal`: `unknown_agent`,
        `nothing_to_undo`."""
        self._agents.get(leader)
        return self._profiles.undo(leader)

    def preview_profile(self, leader: str, edits: Sequence[ProfileEdit]) -> ProfilePreview:
        """What these changes would make of the profile, and whose prompts would change. Raises `Refusal` as
        `revise_profile`."""
        self._agents.get(leader)
        profile = self._profiles.preview(leader, edits)
        emptied = (edit.section for edit in edits if not edit.value and not edit.key)
        from_soul = tuple(section for section in emptied if getattr(profile, section))
        return ProfilePreview(profile, self.cascade.preview_profile(profile), from_soul)

    def retract(self, lesson: str) -> list[str]:
        """A lesson is taken back: no leader says it, nothing of it goes up, and souls that were taught lose it now.
        Returns the leaders that said it."""
        self._bubbles.drop(lesson)
        leaders = self._profiles.drop(lesson)
        if leaders and self._teaching.last() is not None:
            self.teach()
        return leaders

    def _seed(self, leader: str) -> LeaderProfile:
        """What a leader's `soul.md` says, read again when it changed; nothing when it cannot be read."""
        try:
            file = self._agents.soul_file(leader)
            return self._souls.get(leader, (file,), lambda: seed_profile(leader, self._agents.soul(leader)))
        except (OSError, ValueError, Refusal):
            return LeaderProfile(leader)

    def _synced(self, leader: str) -> bool:
        """Whether its tier is shared between machines; of one who is gone what it left is."""
        try:
            return leads(self._agents.get(leader).tier)
        except Refusal:
            return True
