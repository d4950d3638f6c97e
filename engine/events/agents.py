"""Events about agents, the guidance of their leaders, the findings that leaders receive, and the exchange of profiles
and summaries with other machines (SPEC 1).
"""

from __future__ import annotations

from engine.events.event import Event, list_names
from engine.model.text import count


class AgentAdded(Event, topics="agents"):
    """An agent (`subject`) got a folder and a leader, "" for none."""

    reports_to: str

    def sentence(self) -> str:
        return f"{self.subject} was added under {self.reports_to or 'nobody'}"


class AgentMoved(Event, topics="agents"):
    """An agent has another leader, "" for none."""

    before: str
    after: str

    def sentence(self) -> str:
        return f"{self.subject} moved from {self.before or 'nobody'} to {self.after or 'nobody'}"


class AgentRetired(Event, topics="agents"):
    """An agent was retired. It does no more work; its folder stays."""

    def sentence(self) -> str:
        return f"{self.subject} was retired"


class AgentFileChanged(Event, topics="agents memory"):
    """A file of an agent (`subject`) was edited (SPEC 4.1). `file` is "" if a folder without such files was added or
    removed. `how` is "in the console", "by the engine", or "on disk" for another program."""

    file: str
    how: str

    def sentence(self) -> str:
        if not self.file:
            return f"the folder of agent {self.subject} was added or removed {self.how}"
        return f"{self.file} of {self.subject} was edited {self.how}"


class TierAssigned(Event, topics="agents"):
    """The operator set the tier of an agent; None lets the rules decide again (SPEC 1.2)."""

    tier: int | None

    def sentence(self) -> str:
        if self.tier is None:
            return f"the rules decide the tier of {self.subject} again"
        return f"you set the tier of {self.subject} to {self.tier}"


class GuidanceApplied(Event):
    """The prompt of a model call of an agent (`subject`) had guidance of its leaders (SPEC 1.10). `items` are the
    references of the guidance, for instance `cto#patterns/api_first`, and `wordings` the versions of their texts, in
    the same order."""

    session_id: str
    call: str
    chain: tuple[str, ...]
    sources: tuple[str, ...]
    items: tuple[str, ...]
    wordings: tuple[str, ...]
    tokens: int

    def sentence(self) -> str:
        return f"guidance of {list_names(self.sources)} went to {self.subject}: {count(self.tokens, 'token')}"


class SoulRewritten(Event, topics="agents"):
    """The section "Inherited Wisdom" in an agent's `soul.md` was written again (SPEC 1.6)."""

    leaders: tuple[str, ...]

    def sentence(self) -> str:
        return f"the soul of {self.subject} was updated from {list_names(self.leaders)}"


class TeachingRefreshed(Event):
    """A round of soul enrichment handled every worker (SPEC 1.6): `taught` souls were rewritten, and `unchanged` souls
    had the same text already."""

    taught: int
    unchanged: int

    def sentence(self) -> str:
        return f"teaching: {count(self.taught, 'soul')} updated, {self.unchanged} unchanged"


class GuidanceFoundNoisy(Event):
    """An agent works worse with an item of guidance (`subject`, for instance `cto#patterns/api_first`) than without it.

    `told` is the number of sessions with the item in their prompts; `told_bad` of them ended badly. `untold` and
    `untold_bad` are the same for sessions without the item. `wording` is the version of its text. With 95 % confidence
    over all checks, the share of bad sessions is larger by more than `harm`, from 0 to 1 (see
    `hierarchy.guided_sessions`).
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
        harm = f"{self.told_bad} of {self.told} sessions with it failed, {self.untold_bad} of {self.untold} without"
        return f"guidance {self.subject} may harm {self.agent}: {harm}"


class GuidanceFoundStale(Event):
    """An item of guidance (`subject`) is too old (see `hierarchy.guided_sessions`).

    `days` is its age, and `most` the maximum age for its kind, in days. `told` is the number of sessions of the last 30
    days that had it in their prompts. `wording` is the version of its text.
    """

    leader: str
    wording: str
    days: int
    most: int
    told: int

    def sentence(self) -> str:
        return f"guidance {self.subject} of {self.leader} is {count(self.days, 'day')} old; the limit is {self.most}"


class BubbleQueued(Event, topics="changes agents"):
    """A finding of `agent` passed all gates of SPEC 1.7 and waits to go up to `leader`."""

    agent: str
    leader: str

    def sentence(self) -> str:
        return f"a finding of {self.agent} is waiting to go to {self.leader}"


class BubbleApproved(Event, topics="changes agents"):
    """The operator approved a finding for `leader`; the next round takes it."""

    agent: str
    leader: str

    def sentence(self) -> str:
        return f"you approved a finding of {self.agent} for {self.leader}"


class BubbleRefused(Event, topics="changes agents"):
    """The gate `gate` refused a finding of `agent`, for `reason`."""

    agent: str
    gate: str
    reason: str

    def sentence(self) -> str:
        return f"a finding of {self.agent} was refused by {self.gate}: {self.reason}"


class MemoryBubbleFlushed(Event, topics="changes agents"):
    """Findings became patterns of a leader (`subject`) or were merged into some (SPEC 1.8). All fields are in the same
    order. The confidences and importances, 0 to 1, are those with which the findings passed the gates."""

    bubbles: tuple[str, ...]
    patterns: tuple[str, ...]
    agents: tuple[str, ...]
    confidences: tuple[float, ...]
    importances: tuple[float, ...]

    def sentence(self) -> str:
        return f"{count(len(self.bubbles), 'finding')} of {list_names(self.agents)} went to {self.subject}"


class ProfileEdited(Event, topics="agents"):
    """The operator changed an item in the profile of a leader (`subject`)."""

    section: str
    key: str

    def sentence(self) -> str:
        return f"the profile of {self.subject} was edited: {self.section}, {self.key}"


class CloudSyncFailed(Event):
    """An exchange with the shared database failed (SPEC 1.8, 1.9, 4.5). `subject` is "leadership" or "summaries";
    `unsent` rows wait."""

    message: str
    unsent: int

    def sentence(self) -> str:
        return f"{self.subject} not shared with other machines: {self.message}; {self.unsent} unsent"
