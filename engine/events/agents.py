"""Agents, the guidance that leaders give and the findings they receive (SPEC 1)."""

from __future__ import annotations

from engine.events.bus import Event
from engine.model.text import count, name_list


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
    """An agent does no more work; its folder stays."""

    def sentence(self) -> str:
        return f"{self.subject} was retired"


class AgentFileChanged(Event, topics="agents memory"):
    """A file of an agent (`subject`) was edited (SPEC 4.1); `file` is "" when a folder without such files came or went.
    `how`: "in the console", "by the engine", or "on disk" for another program."""

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
        return f"guidance of {name_list(self.sources)} went to {self.subject}: {count(self.tokens, 'token')}"


class SoulRewritten(Event, topics="agents"):
    """The "Inherited Wisdom" of an agent's `soul.md` was written anew (SPEC 1.6)."""

    leaders: tuple[str, ...]

    def sentence(self) -> str:
        return f"the soul of {self.subject} was updated from {name_list(self.leaders)}"


class TeachingRefreshed(Event):
    """A round of soul enrichment reached every worker (SPEC 1.6): so many souls were rewritten, so many said already
    what they would."""

    taught: int
    unchanged: int

    def sentence(self) -> str:
        return f"teaching: {count(self.taught, 'soul')} updated, {self.unchanged} unchanged"


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
        harm = f"{self.told_bad} of {self.told} sessions with it failed, {self.untold_bad} of {self.untold} without"
        return f"guidance {self.subject} may harm {self.agent}: {harm}"


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


class BubbleQueued(Event, topics="changes agents"):
    """A learning passed all gates of SPEC 1.7 and waits to go up to `leader`."""

    agent: str
    leader: str

    def sentence(self) -> str:
        return f"a finding of {self.agent} is waiting to go to {self.leader}"


class BubbleApproved(Event, topics="changes agents"):
    """The operator lets words of others go up to `leader`: the next round takes them."""

    agent: str
    leader: str

    def sentence(self) -> str:
        return f"you approved a finding of {self.agent} for {self.leader}"


class BubbleRefused(Event, topics="changes agents"):
    """A learning stays where it is; `gate` says which gate refused it, `reason` why."""

    agent: str
    gate: str
    reason: str

    def sentence(self) -> str:
        return f"a finding of {self.agent} was refused by {self.gate}: {self.reason}"


class MemoryBubbleFlushed(Event, topics="changes agents"):
    """Bubbles became, or joined, patterns of a leader (`subject`), in this order (SPEC 1.8), with the confidence and
    importance, 0 to 1, that took each through the gates."""

    bubbles: tuple[str, ...]
    patterns: tuple[str, ...]
    agents: tuple[str, ...]
    confidences: tuple[float, ...]
    importances: tuple[float, ...]

    def sentence(self) -> str:
        return f"{count(len(self.bubbles), 'finding')} of {name_list(self.agents)} went to {self.subject}"


class ProfileEdited(Event, topics="agents"):
    """A leader's profile (`subject`) was changed by the operator: which section, and which item of it."""

    section: str
    key: str

    def sentence(self) -> str:
        return f"the profile of {self.subject} was edited: {self.section}, {self.key}"


class CloudSyncFailed(Event):
    """What machines share could not be sent or fetched (SPEC 1.8, 1.9, 4.5): `subject` is "leadership" or "summaries".
    What is unsent waits."""

    message: str
    unsent: int

    def sentence(self) -> str:
        return f"{self.subject} not shared with other machines: {self.message}; {self.unsent} unsent"
