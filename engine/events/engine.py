"""An engine's life, its settings, its doors, what goes wrong; agents and what passes between them (1)."""

from __future__ import annotations

from collections.abc import Mapping

from engine.events.bus import Event
from engine.model.text import count


class EngineStarted(Event):
    version: str
    recovered: tuple[str, ...] = ()

    def sentence(self) -> str:
        return "; ".join([f"engine {self.version} started", *self.recovered])


class EngineStopped(Event):
    pass


class StateChanged(Event, topics="autonomy", says="{before} → {after}: {cause}"):
    """The state machine of SPEC 7.1 moved."""

    before: str
    after: str
    cause: str


class SettingChanged(Event, topics="settings autonomy costs phase"):
    value: str

    def sentence(self) -> str:
        if self.subject == "dnd":
            return "do not disturb ended" if self.value == "off" else f"do not disturb until {self.value}"
        return f"setting {self.subject} is now {self.value or 'empty'}"


class WorkspaceAdded(Event, topics="place settings autonomy", says="{subject} is looked after too"):
    """A repository (`subject`) is looked after from now on, until the engine ends: a console was opened in it."""


class GatewayOpened(Event, topics="place", says="listening at {subject} ({words})"):
    """The gateway listens at an address (`subject`); `words` say who reaches it and where its token comes from."""

    words: str


class GatewayClosed(Event, topics="place", says="no longer listening at {subject}"):
    """The gateway at an address (`subject`) listens no more."""


class NotificationsGivenUp(
    Event, topics="changes", says="{number:count notification} to your {subject} not delivered{reason:because}"
):
    """A number of notifications for a surface (the subject) were not delivered and are tried no further (SPEC 10.2)."""

    number: int
    reason: str


class FaultReported(Event, topics="settings", says="fault in {where}: {message}"):
    """Something went wrong that work can go on without: said once, with what, where and how to mend it."""

    where: str
    message: str


class RowsLetGo(Event):
    """Rows that were kept for the days of the settings went, so many by table; their sums by day stay (SPEC 4.2)."""

    rows: Mapping[str, int]

    def sentence(self) -> str:
        removed = [f"{number:,} {table.replace('_', ' ')}" for table, number in self.rows.items()]
        return f"deleted by age: {', '.join(removed) or 'nothing'}"


# -- agents


class AgentAdded(Event, topics="agents", says="{subject} was added under {reports_to:or nobody}"):
    reports_to: str


class AgentMoved(Event, topics="agents", says="{subject} moved from {before:or nobody} to {after:or nobody}"):
    before: str
    after: str


class AgentRetired(Event, topics="agents", says="{subject} was retired"):
    pass


class AgentFileChanged(Event, topics="agents memory"):
    """A file of an agent (`subject`) was edited (SPEC 4.1), or, without `file`, a folder came or went that has none of
    an agent's files. `how`: "in the console", "by the engine", or "on disk" when another program did it, or nobody said
    who."""

    file: str
    how: str

    def sentence(self) -> str:
        if not self.file:
            return f"the folder of agent {self.subject} was added or removed {self.how}"
        return f"{self.file} of {self.subject} was edited {self.how}"


class TierAssigned(Event, topics="agents"):
    """The operator said which tier an agent is; None lets the other rules decide again (SPEC 1.2)."""

    tier: int | None

    def sentence(self) -> str:
        if self.tier is None:
            return f"the rules decide the tier of {self.subject} again"
        return f"you set the tier of {self.subject} to {self.tier}"


class GuidanceApplied(Event, says="guidance of {sources:joined} went to {subject}: {tokens:count token}"):
    """A call of an agent's model (`subject` is the agent) carried its leaders' guidance (SPEC 1.10). `items` lead to
    what was said, for instance `cto#patterns/api_first`, `wordings` tell how, in the same order."""

    session_id: str
    call: str
    chain: tuple[str, ...]
    sources: tuple[str, ...]
    items: tuple[str, ...]
    wordings: tuple[str, ...]
    tokens: int


class SoulRewritten(Event, topics="agents", says="the soul of {subject} was updated from {leaders:joined}"):
    """The "Inherited Wisdom" of an agent's `soul.md` was written anew (SPEC 1.6)."""

    leaders: tuple[str, ...]


class TeachingRefreshed(Event, says="teaching: {taught:count soul} updated, {unchanged} unchanged"):
    """A round of soul enrichment reached every worker (SPEC 1.6): so many souls were rewritten, so many said already
    what they would."""

    taught: int
    unchanged: int


class GuidanceFoundNoisy(
    Event,
    says="guidance {subject} may harm {agent}: {told_bad} of {told} sessions with it failed, "
    "{untold_bad} of {untold} without",
):
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


class GuidanceFoundStale(Event):
    """Something that leaders say (`subject`) has outlived its time: it is `days` old where `most` are the rule
    (see `hierarchy.outcomes`). `told` sessions of the last 30 days carried it."""

    leader: str
    wording: str
    days: int
    most: int
    told: int

    def sentence(self) -> str:
        return f"guidance {self.subject} of {self.leader} is {count(self.days, 'day')} old; the limit is {self.most}"


class BubbleQueued(Event, topics="changes agents", says="a finding of {agent} is waiting to go to {leader}"):
    """A learning passed all gates of SPEC 1.7 and waits to go up to `leader`."""

    agent: str
    leader: str


class BubbleApproved(Event, topics="changes agents", says="you approved a finding of {agent} for {leader}"):
    """The operator lets words of others go up to `leader`: the next round takes them."""

    agent: str
    leader: str


class BubbleRefused(Event, topics="changes agents", says="a finding of {agent} was refused by {gate}: {reason}"):
    """A learning stays where it is; `gate` says which gate refused it, `reason` why."""

    agent: str
    gate: str
    reason: str


class MemoryBubbleFlushed(
    Event, topics="changes agents", says="{bubbles:count finding} of {agents:joined} went to {subject}"
):
    """Bubbles became, or joined, patterns of a leader (`subject`), in this order (SPEC 1.8), with the confidence and
    importance, 0 to 1, that took each through the gates."""

    bubbles: tuple[str, ...]
    patterns: tuple[str, ...]
    agents: tuple[str, ...]
    confidences: tuple[float, ...]
    importances: tuple[float, ...]


class ProfileEdited(Event, topics="agents", says="the profile of {subject} was edited: {section}, {key}"):
    """A leader's profile (`subject`) was changed by the operator: which section, and which item of it."""

    section: str
    key: str


class CloudSyncFailed(Event, says="{subject} not shared with other machines: {message}; {unsent} unsent"):
    """What machines share could not be sent or fetched (SPEC 1.8, 1.9, 4.5): `subject` is "leadership" or "summaries".
    What is unsent waits."""

    message: str
    unsent: int


class CloudMemoryRecalled(Event, says="{subject} received {memories:count shared note} from {origins:joined}"):
    """A call of an agent's model (`subject` is the agent) was served summaries that other machines shared (SPEC 4.5):
    which `memories`, and from which homes."""

    session_id: str
    call: str
    memories: tuple[str, ...]
    origins: tuple[str, ...]
