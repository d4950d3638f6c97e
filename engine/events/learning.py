"""Memory, learnings and candidates for better behaviour (SPEC 4, 5, 6)."""

from __future__ import annotations

from typing import ClassVar

from engine.events.bus import Event, because, by, event
from engine.model.text import count


@event
class LearningsExtracted(Event):
    """What a session (`subject`) learnt was written down (SPEC 6.6): so many `entries`, in `scopes` such as
    "observations" or "corrective"; `by` is "rules" or "rules and model"."""

    topics: ClassVar = ("learnings",)

    entries: int
    scopes: tuple[str, ...]
    by: str

    def sentence(self) -> str:
        return f"session {self.subject} left {count(self.entries, 'learning')}, found by {self.by}"


@event
class LearningPromoted(Event):
    """An entry (`subject`) went up to `scope`; `sources` are the entries that it came from, and the `sessions` are
    those that it is owed to (SPEC 6.5). `by` is "recurrence", "establishment", "operator" or "model"."""

    topics: ClassVar = ("learnings",)

    scope: str
    sources: tuple[str, ...]
    sessions: tuple[str, ...]
    by: str

    def sentence(self) -> str:
        return f"learning {self.subject} was promoted to {self.scope}, from {count(len(self.sessions), 'session')}"


@event
class LearningReinforced(Event):
    """`sessions` said again what an entry (`subject`) says already (SPEC 6.2)."""

    topics: ClassVar = ("learnings",)

    sessions: tuple[str, ...]

    def sentence(self) -> str:
        return f"learning {self.subject} was repeated by {count(len(self.sessions), 'session')}"


@event
class LearningsCompacted(Event):
    """Entries of one scope (`subject` is its folder) that say the same were folded into one of them each: `folded` into
    `into`, in this order (SPEC 6.6)."""

    topics: ClassVar = ("learnings",)

    folded: tuple[str, ...]
    into: tuple[str, ...]

    def sentence(self) -> str:
        return f"{count(len(self.folded), 'learning')} of {self.subject} merged with others of the same content"


@event
class LearningJudged(Event):
    """Whether an entry of a project (`subject`) holds beyond it (SPEC 6.4): `verdict` is "generalises", "does not" or
    "no answer", which promotes nothing."""

    verdict: str
    reason: str

    def sentence(self) -> str:
        verdict = {"generalises": "is valid beyond its project", "does not": "is valid in its project only"}
        return f"learning {self.subject} {verdict.get(self.verdict, 'was not judged')}{because(self.reason)}"


@event
class LearningRetracted(Event):
    """An entry (`subject`) holds no longer (SPEC 6.5). `queued` were promoted from it and wait for the operator's word;
    `sessions` are those that it was owed to."""

    topics: ClassVar = ("learnings", "changes")

    reason: str
    queued: tuple[str, ...]
    sessions: tuple[str, ...]

    def sentence(self) -> str:
        queued = f"; {len(self.queued)} promoted from it need your decision" if self.queued else ""
        return f"learning {self.subject} was retracted{because(self.reason)}{queued}"


@event
class LearningKept(Event):
    """The operator looked at an entry (`subject`) whose source was retracted, and it goes on holding."""

    topics: ClassVar = ("learnings", "changes")

    def sentence(self) -> str:
        return f"you kept learning {self.subject}"


@event
class FactPromoted(Event):
    """A fact (`subject`) joined layer G (SPEC 4.8). `by` is "operator" or "nightly"; `draft` its draft, "" for none."""

    topics: ClassVar = ("memory", "changes")

    by: str
    draft: str = ""

    def sentence(self) -> str:
        return f"fact {self.subject} was kept by {by(self.by)}"


@event
class FactRejected(Event):
    """The operator turned a draft of a fact (`subject`) down."""

    topics: ClassVar = ("memory", "changes")

    def sentence(self) -> str:
        return f"the draft {self.subject} was dismissed"


@event
class NightlyFinished(Event):
    """The day `subject` (local, `2026-01-05`) was worked through (SPEC 4.8): facts that a model promoted, drafts that
    wait for the operator, what it cost, and why there was no promotion."""

    topics: ClassVar = ("memory", "changes")

    promoted: int
    drafted: int
    cost: int
    reason: str = ""

    def sentence(self) -> str:
        summary = f"{count(self.promoted, 'fact')} kept, {self.drafted} drafted"
        return f"night of {self.subject}: {summary}{because(self.reason)}"


@event
class MemoryForgotten(Event):
    """Something was forgotten at the operator's word (SPEC 4.10); of it only the number of places is known."""

    topics: ClassVar = ("memory", "sessions")

    places: int

    def sentence(self) -> str:
        return f"you deleted memory in {count(self.places, 'place')}"


@event
class OverlayFoundHarmful(Event):
    """An effect in force (`subject` is the overlay) goes with worse work: of `with_runs` that had it `with_good` went
    well, of `without_runs` that were chosen by chance to do without it `without_good` (SPEC 5.7). `difference` of the
    shares, with its interval from `low` to `high`, -1 to 1. `agent` "" means any."""

    topics: ClassVar = ("adaptation", "changes")

    candidate_id: str
    type: str
    agent: str
    with_runs: int
    with_good: int
    without_runs: int
    without_good: int
    difference: float
    low: float
    high: float

    def sentence(self) -> str:
        with_it = f"{self.with_good} of {self.with_runs} runs went well with it"
        without = f"{self.without_good} of {self.without_runs} without"
        return f"active candidate {self.candidate_id} seems to make work worse: {with_it}, {without}"


@event
class CandidateDrafted(Event):
    """A change of behaviour (`subject`) was proposed (SPEC 5.3), from these `records`, which scored so high."""

    topics: ClassVar = ("adaptation",)

    type: str
    title: str
    score: float
    records: tuple[str, ...]

    def sentence(self) -> str:
        return f"candidate {self.subject}: {self.title}"


@event
class CandidateWeighed(Event):
    """What other records say of a candidate moved it to another `status`: "review", or "drafted" again."""

    topics: ClassVar = ("adaptation", "changes")

    status: str
    score: float
    corroborated_by: tuple[str, ...]
    against: tuple[str, ...]

    def sentence(self) -> str:
        where = "needs your decision" if self.status == "review" else f"is {self.status} again"
        evidence = f"{len(self.corroborated_by)} for it" + (f", {len(self.against)} against" if self.against else "")
        return f"candidate {self.subject} {where}: score {self.score:.0f}, {evidence}"


@event
class CandidatePromoted(Event):
    """The effect of a candidate is in force. `by` is "operator", "autonomy" or "api"."""

    topics: ClassVar = ("adaptation", "changes")

    type: str
    title: str
    by: str
    reason: str = ""

    def sentence(self) -> str:
        return f"activated by {by(self.by)}: {self.subject}, {self.title}"


@event
class CandidateRejected(Event):
    """It was turned down; it comes up again only when new evidence outweighs that."""

    topics: ClassVar = ("adaptation", "changes")

    type: str
    title: str
    by: str
    reason: str = ""

    def sentence(self) -> str:
        return f"rejected by {by(self.by)}: {self.subject}, {self.title}{because(self.reason)}"


@event
class CandidateRolledBack(Event):
    """Its effect was taken back: what was done before is done again, exactly."""

    topics: ClassVar = ("adaptation", "changes")

    type: str
    title: str
    by: str
    reason: str = ""

    def sentence(self) -> str:
        return f"rolled back by {by(self.by)}: {self.subject}, {self.title}{because(self.reason)}"


@event
class CandidateDecisionUndone(Event):
    """The operator undid the last decision on a candidate; it has its earlier `status` again."""

    topics: ClassVar = ("adaptation", "changes")

    type: str
    title: str
    status: str

    def sentence(self) -> str:
        state = {"review": "in review", "promoted": "active"}.get(self.status, self.status.replace("_", " "))
        return f"your decision was undone: {self.subject}, {self.title}, is {state} again"
