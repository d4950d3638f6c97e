"""An engine's life, its settings, its doors, and what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from engine.events.bus import Event, because, event, joined
from engine.model.text import count


@event
class EngineStarted(Event):
    version: str
    recovered: tuple[str, ...] = ()

    def sentence(self) -> str:
        return "; ".join([f"engine {self.version} started", *self.recovered])


@event
class EngineStopped(Event):
    pass


@event
class StateChanged(Event):
    """The state machine of SPEC 7.1 moved."""

    topics: ClassVar = ("autonomy",)

    before: str
    after: str
    cause: str

    def sentence(self) -> str:
        return f"{self.before} → {self.after}: {self.cause}"


@event
class SettingChanged(Event):
    topics: ClassVar = ("settings", "autonomy", "costs", "phase")
    value: str

    def sentence(self) -> str:
        if self.subject == "dnd":
            return "do not disturb ended" if self.value == "off" else f"do not disturb until {self.value}"
        return f"setting {self.subject} is now {self.value or 'empty'}"


@event
class WorkspaceAdded(Event):
    """A repository (`subject`) is looked after from now on, until the engine ends: a console was opened in it."""

    topics: ClassVar = ("place", "settings", "autonomy")

    def sentence(self) -> str:
        return f"{self.subject} is looked after too"


@event
class GatewayOpened(Event):
    """The gateway listens at an address (`subject`); `words` say who reaches it and where its token comes from."""

    topics: ClassVar = ("place",)

    words: str

    def sentence(self) -> str:
        return f"listening at {self.subject} ({self.words})"


@event
class GatewayClosed(Event):
    """The gateway at an address (`subject`) listens no more."""

    topics: ClassVar = ("place",)

    def sentence(self) -> str:
        return f"no longer listening at {self.subject}"


@event
class NotificationsGivenUp(Event):
    """A number of notifications for a surface (the subject) were not delivered and are tried no further (SPEC 10.2)."""

    topics: ClassVar = ("changes",)

    number: int
    reason: str

    def sentence(self) -> str:
        return f"{count(self.number, 'notification')} to your {self.subject} not delivered{because(self.reason)}"


@event
class FaultReported(Event):
    """Something went wrong that work can go on without: said once, with what, where and how to mend it."""

    topics: ClassVar = ("settings",)

    where: str
    message: str

    def sentence(self) -> str:
        return f"fault in {self.where}: {self.message}"


@event
class RowsLetGo(Event):
    """Rows that were kept for the days of the settings went, so many by table; their sums by day stay (SPEC 4.2)."""

    rows: Mapping[str, int]

    def sentence(self) -> str:
        removed = [f"{number:,} {table.replace('_', ' ')}" for table, number in self.rows.items()]
        return f"deleted by age: {', '.join(removed) or 'nothing'}"


# Agents, the guidance and findings that pass between them, and what they share (SPEC 1).


@event
class AgentAdded(Event):
    topics: ClassVar = ("agents",)
    reports_to: str

    def sentence(self) -> str:
        return f"{self.subject} was added under {self.reports_to or 'nobody'}"


@event
class AgentMoved(Event):
    topics: ClassVar = ("agents",)
    before: str
    after: str

    def sentence(self) -> str:
        return f"{self.subject} moved from {self.before or 'nobody'} to {self.after or 'nobody'}"


@event
class AgentRetired(Event):
    topics: ClassVar = ("agents",)

    def sentence(self) -> str:
        return f"{self.subject} was retired"


@event
class AgentFileChanged(Event):
    """A file of an agent (`subject`) was edited (SPEC 4.1), or, without `file`, a folder came or went that has none of
    an agent's files. `how`: "in the console", "by the engine", or "on disk" when another program did it, or nobody said
    who."""

    topics: ClassVar = ("agents", "memory")

    file: str
    how: str

    def sentence(self) -> str:
        if not self.file:
            return f"the folder of agent {self.subject} was added or removed {self.how}"
        return f"{self.file} of {self.subject} was edited {self.how}"


@event
class TierAssigned(Event):
    """The operator said which tier an agent is; None lets the other rules decide again (SPEC 1.2)."""

    topics: ClassVar = ("agents",)

    tier: int | None

    def sentence(self) -> str:
        if self.tier is None:
            return f"the rules decide the tier of {self.subject} again"
        return f"you set the tier of {self.subject} to {self.tier}"


@event
class GuidanceApplied(Event):
    """A call of an agent's model (`subject` is the agent) carried its leaders' guidance (SPEC 1.10). `items` lead to
    what was said, for instance `cto#patterns/api_first`, `wordings` tell how, in the same order."""

    session_id: str
    call: str
    chain: tuple[str, ...]
    sources: tuple[str, ...]
    items: tuple[str, ...]
    wordings: tuple[str, ...]
    tokens: int

    def sentence(self) -> str:
        return f"guidance of {joined(self.sources)} went to {self.subject}: {count(self.tokens, 'token')}"


@event
class SoulRewritten(Event):
    """The "Inherited Wisdom" of an agent's `soul.md` was written anew (SPEC 1.6)."""

    topics: ClassVar = ("agents",)

    leaders: tuple[str, ...]

    def sentence(self) -> str:
        return f"the soul of {self.subject} was updated from {joined(self.leaders)}"


@event
class TeachingRefreshed(Event):
    """A round of soul enrichment reached every worker (SPEC 1.6): so many souls were rewritten, so many said already
    what they would."""

    taught: int
    unchanged: int

    def sentence(self) -> str:
        return f"teaching: {count(self.taught, 'soul')} updated, {self.unchanged} unchanged"


@event
class GuidanceFoundNoisy(Event):
    """Something that leaders say (`subject`, for instance `cto#patterns/api_first`) goes with worse work of an agent.

    Of `told` sessions that carried it `told_bad` ended badly, of `untold` of the same agent without it `untold_bad`;
    with 95 % confidence, however often one looks, its share is worse by more than `harm`, from 0 to 1 (see
    `hierarchy.outcomes`).
    """

    leader: str
    agent: str
    wording: str
    told: int
    told_bad: int
    untold: int
    untold_bad: int
    harm: float

    def sentence(self) -> str:
        counts = f"{self.told_bad} of {self.told} sessions with it failed, {self.untold_bad} of {self.untold} without"
        return f"guidance {self.subject} may harm {self.agent}: {counts}"


@event
class GuidanceFoundStale(Event):
    """Something that leaders say (`subject`) has outlived its time: it is `days` old where `most` are the rule, or
    names files that are `gone` (see `hierarchy.outcomes`). `told` sessions of the last 30 days carried it."""

    leader: str
    wording: str
    days: int
    most: int
    told: int
    gone: tuple[str, ...] = ()

    def sentence(self) -> str:
        if self.gone:
            return f"guidance {self.subject} of {self.leader} names what no longer exists: {joined(self.gone)}"
        return f"guidance {self.subject} of {self.leader} is {count(self.days, 'day')} old; the limit is {self.most}"


@event
class BubbleQueued(Event):
    """A learning passed all gates of SPEC 1.7 and waits to go up to `leader`."""

    topics: ClassVar = ("changes", "agents")

    agent: str
    leader: str

    def sentence(self) -> str:
        return f"a finding of {self.agent} is waiting to go to {self.leader}"


@event
class BubbleApproved(Event):
    """The operator lets words of others go up to `leader`: the next round takes them."""

    topics: ClassVar = ("changes", "agents")

    agent: str
    leader: str

    def sentence(self) -> str:
        return f"you approved a finding of {self.agent} for {self.leader}"


@event
class BubbleRefused(Event):
    """A learning stays where it is; `gate` says which gate refused it, `reason` why."""

    topics: ClassVar = ("changes", "agents")

    agent: str
    gate: str
    reason: str

    def sentence(self) -> str:
        return f"a finding of {self.agent} was refused by {self.gate}: {self.reason}"


@event
class MemoryBubbleFlushed(Event):
    """Bubbles became, or joined, patterns of a leader (`subject`), in this order (SPEC 1.8), with the confidence and
    importance, 0 to 1, that took each through the gates."""

    topics: ClassVar = ("changes", "agents")

    bubbles: tuple[str, ...]
    patterns: tuple[str, ...]
    agents: tuple[str, ...]
    confidences: tuple[float, ...]
    importances: tuple[float, ...]

    def sentence(self) -> str:
        return f"{count(len(self.bubbles), 'finding')} of {joined(self.agents)} went to {self.subject}"


@event
class ProfileEdited(Event):
    """A leader's profile (`subject`) was changed by the operator: which section, and which item of it."""

    topics: ClassVar = ("agents",)

    section: str
    key: str

    def sentence(self) -> str:
        return f"the profile of {self.subject} was edited: {self.section}, {self.key}"


@event
class CloudSyncFailed(Event):
    """What machines share could not be sent or fetched (SPEC 1.8, 1.9, 4.5): `subject` is "leadership" or "summaries".
    What is unsent waits."""

    message: str
    unsent: int

    def sentence(self) -> str:
        return f"{self.subject} not shared with other machines: {self.message}; {self.unsent} unsent"


@event
class CloudMemoryRecalled(Event):
    """A call of an agent's model (`subject` is the agent) was served summaries that other machines shared (SPEC 4.5):
    which `memories`, and from which homes."""

    session_id: str
    call: str
    memories: tuple[str, ...]
    origins: tuple[str, ...]

    def sentence(self) -> str:
        return f"{self.subject} received {count(len(self.memories), 'shared note')} from {joined(self.origins)}"
