"""Memory, learnings and candidates for better behaviour (SPEC 4, 5, 6)."""

from __future__ import annotations

from engine.events.bus import Event, because


class LearningsExtracted(
    Event, topics="learnings", says="session {subject} left {entries:count learning}, found by {by}"
):
    """What a session (`subject`) learnt was written down (SPEC 6.6): so many `entries`, in `scopes` such as
    "observations" or "corrective"; `by` is "rules" or "rules and model"."""

    entries: int
    scopes: tuple[str, ...]
    by: str


class LearningPromoted(
    Event, topics="learnings", says="learning {subject} was promoted to {scope}, from {sessions:count session}"
):
    """An entry (`subject`) went up to `scope`; `sources` are the entries that it came from, and the `sessions` are
    those that it is owed to (SPEC 6.5). `by` is "recurrence", "establishment", "operator" or "model"."""

    scope: str
    sources: tuple[str, ...]
    sessions: tuple[str, ...]
    by: str


class LearningReinforced(Event, topics="learnings", says="learning {subject} was repeated by {sessions:count session}"):
    """`sessions` said again what an entry (`subject`) says already (SPEC 6.2)."""

    sessions: tuple[str, ...]


class LearningsCompacted(
    Event, topics="learnings", says="{folded:count learning} of {subject} merged with others of the same content"
):
    """Entries of one scope (`subject` is its folder) that say the same were folded into one of them each: `folded` into
    `into`, in this order (SPEC 6.6)."""

    folded: tuple[str, ...]
    into: tuple[str, ...]


class LearningJudged(Event):
    """Whether an entry of a project (`subject`) holds beyond it (SPEC 6.4): `verdict` is "generalises", "does not" or
    "no answer", which promotes nothing."""

    verdict: str
    reason: str

    def sentence(self) -> str:
        verdict = {"generalises": "is valid beyond its project", "does not": "is valid in its project only"}
        return f"learning {self.subject} {verdict.get(self.verdict, 'was not judged')}{because(self.reason)}"


class LearningRetracted(Event, topics="learnings changes"):
    """An entry (`subject`) holds no longer (SPEC 6.5). `queued` were promoted from it and wait for the operator's word;
    `sessions` are those that it was owed to."""

    reason: str
    queued: tuple[str, ...]
    sessions: tuple[str, ...]

    def sentence(self) -> str:
        queued = f"; {len(self.queued)} promoted from it need your decision" if self.queued else ""
        return f"learning {self.subject} was retracted{because(self.reason)}{queued}"


class LearningKept(Event, topics="learnings changes", says="you kept learning {subject}"):
    """The operator looked at an entry (`subject`) whose source was retracted, and it goes on holding."""


class FactPromoted(Event, topics="memory changes", says="fact {subject} was kept by {by:by}"):
    """A fact (`subject`) joined layer G (SPEC 4.8). `by` is "operator" or "nightly"; `draft` its draft, "" for none."""

    by: str
    draft: str = ""


class FactRejected(Event, topics="memory changes", says="the draft {subject} was dismissed"):
    """The operator turned a draft of a fact (`subject`) down."""


class NightlyFinished(
    Event,
    topics="memory changes",
    says="night of {subject}: {promoted:count fact} kept, {drafted} drafted{reason:because}",
):
    """The day `subject` (local, `2026-01-05`) was worked through (SPEC 4.8): facts that a model promoted, drafts that
    wait for the operator, what it cost, and why there was no promotion."""

    promoted: int
    drafted: int
    cost: int
    reason: str = ""


class MemoryForgotten(Event, topics="memory sessions", says="you deleted memory in {places:count place}"):
    """Something was forgotten at the operator's word (SPEC 4.10); of it only the number of places is known."""

    places: int


class OverlayFoundHarmful(
    Event,
    topics="adaptation changes",
    says="active candidate {candidate_id} seems to make work worse: {with_good} of {with_runs} runs went well with it, "
    "{without_good} of {without_runs} without",
):
    """An effect in force (`subject` is the overlay) goes with worse work: of `with_runs` that had it `with_good` went
    well, of `without_runs` that were chosen by chance to do without it `without_good` (SPEC 5.7). `difference` of the
    shares, with its interval from `low` to `high`, -1 to 1. `agent` "" means any."""

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


class CandidateDrafted(Event, topics="adaptation", says="candidate {subject}: {title}"):
    """A change of behaviour (`subject`) was proposed (SPEC 5.3), from these `records`, which scored so high."""

    type: str
    title: str
    score: float
    records: tuple[str, ...]


class CandidateWeighed(Event, topics="adaptation changes"):
    """What other records say of a candidate moved it to another `status`: "review", or "drafted" again."""

    status: str
    score: float
    corroborated_by: tuple[str, ...]
    against: tuple[str, ...]

    def sentence(self) -> str:
        where = "needs your decision" if self.status == "review" else f"is {self.status} again"
        evidence = f"{len(self.corroborated_by)} for it" + (f", {len(self.against)} against" if self.against else "")
        return f"candidate {self.subject} {where}: score {self.score:.0f}, {evidence}"


class CandidatePromoted(Event, topics="adaptation changes", says="activated by {by:by}: {subject}, {title}"):
    """The effect of a candidate is in force. `by` is "operator", "autonomy" or "api"."""

    type: str
    title: str
    by: str
    reason: str = ""


class CandidateRejected(
    Event, topics="adaptation changes", says="rejected by {by:by}: {subject}, {title}{reason:because}"
):
    """It was turned down; it comes up again only when new evidence outweighs that."""

    type: str
    title: str
    by: str
    reason: str = ""


class CandidateRolledBack(
    Event, topics="adaptation changes", says="rolled back by {by:by}: {subject}, {title}{reason:because}"
):
    """Its effect was taken back: what was done before is done again, exactly."""

    type: str
    title: str
    by: str
    reason: str = ""


class CandidateDecisionUndone(Event, topics="adaptation changes"):
    """The operator undid the last decision on a candidate; it has its earlier `status` again."""

    type: str
    title: str
    status: str

    def sentence(self) -> str:
        state = {"review": "in review", "promoted": "active"}.get(self.status, self.status.replace("_", " "))
        return f"your decision was undone: {self.subject}, {self.title}, is {state} again"
