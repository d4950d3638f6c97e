"""Events about memory, learnings, candidates, and the Twin's examples, answers and training (SPEC 4, 5, 6, 8)."""

from __future__ import annotations

from engine.events import Event
from engine.model.rails import describe_decider
from engine.wording import because, count, in_words


class CloudMemoryRecalled(Event):
    """The prompt of a model call of an agent (`subject`) had summaries that other machines shared (SPEC 4.5):
    `memories` are their ids, `origins` their homes."""

    session_id: str
    call: str
    memories: tuple[str, ...]
    origins: tuple[str, ...]


class LearningsExtracted(Event, topics="learnings"):
    """The learnings of a session (`subject`) were written (SPEC 6.6). `entries` is their number, `scopes` are their
    phases, such as "observations" or "corrective". `by` is "rules" or "rules and model"."""

    entries: int
    scopes: tuple[str, ...]
    by: str

    def sentence(self) -> str:
        return f"session {self.subject} left {count(self.entries, 'learning')}, found by {self.by}"


class LearningPromoted(Event, topics="learnings"):
    """An entry (`subject`) was promoted to `scope` from these `sources`, which are from these `sessions` (SPEC 6.5).
    `by` is "recurrence", "establishment", "operator" or "model"."""

    scope: str
    sources: tuple[str, ...]
    sessions: tuple[str, ...]
    by: str

    def sentence(self) -> str:
        return f"learning {self.subject} was promoted to {self.scope}, from {count(len(self.sessions), 'session')}"


class LearningReinforced(Event, topics="learnings"):
    """These `sessions` found an entry (`subject`) again (SPEC 6.2)."""

    sessions: tuple[str, ...]


class LearningsCompacted(Event, topics="learnings"):
    """Entries of one scope (`subject` is its folder) with the same meaning were merged: each of `folded` into the entry
    at the same position of `into` (SPEC 6.6)."""

    folded: tuple[str, ...]
    into: tuple[str, ...]


class LearningJudged(Event):
    """A model judged whether an entry of a project (`subject`) is valid beyond it (SPEC 6.4): `verdict` is
    "generalises", "does not" or "no answer"."""

    verdict: str
    reason: str

    def sentence(self) -> str:
        verdict = {"generalises": "is valid beyond its project", "does not": "is valid in its project only"}
        return f"learning {self.subject} {verdict.get(self.verdict, 'was not judged')}{because(self.reason)}"


class LearningRetracted(Event, topics="learnings changes"):
    """An entry (`subject`) is no longer valid (SPEC 6.5). `queued` are the entries that were promoted from it and now
    wait for the operator; `sessions` are the sessions that it came from."""

    reason: str
    queued: tuple[str, ...]
    sessions: tuple[str, ...]

    def sentence(self) -> str:
        queued = f"; {len(self.queued)} promoted from it need your decision" if self.queued else ""
        return f"learning {self.subject} was retracted{because(self.reason)}{queued}"


class LearningKept(Event, topics="learnings changes"):
    """The operator decided that an entry (`subject`) under review is valid."""

    template = "you kept learning {subject}"


class FactPromoted(Event, topics="memory changes"):
    """A fact (`subject`) was added to layer G (SPEC 4.8). `by` is "operator" or "nightly". `draft` is the id of its
    draft, "" for none."""

    by: str
    draft: str = ""

    def sentence(self) -> str:
        return f"fact {self.subject} was kept by {describe_decider(self.by)}"


class FactRejected(Event, topics="memory changes"):
    """The operator dismissed the draft of a fact (`subject`)."""

    template = "the draft {subject} was dismissed"


class NightlyFinished(Event, topics="memory changes"):
    """The night work for the local day `subject` (`2026-01-05`) ended (SPEC 4.8). A model promoted `promoted` facts,
    `drafted` drafts wait for the operator, and the `cost` is in micro-dollars. `reason` says why nothing was
    promoted."""

    promoted: int
    drafted: int
    cost: int
    reason: str = ""

    def sentence(self) -> str:
        facts = f"{count(self.promoted, 'fact')} kept, {self.drafted} drafted"
        return f"night of {self.subject}: {facts}{because(self.reason)}"


class MemoryForgotten(Event, topics="memory cards permissions sessions changes tasks agents log learnings adaptation"):
    """The operator deleted memories (SPEC 4.10). The event has only the number of places that had them."""

    places: int

    def sentence(self) -> str:
        return f"you deleted memory in {count(self.places, 'place')}"


class OverlayFoundHarmful(Event, topics="adaptation changes"):
    """Work goes worse with an active effect (`subject` is the overlay). Of `with_runs` with it `with_good` went well,
    and of `without_runs`, randomly chosen to go without it, `without_good` (SPEC 5.7). `difference` is the difference
    of these shares, with the interval from `low` to `high`, all from -1 to 1. `agent` "" means any agent."""

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


class CandidateDrafted(Event, topics="adaptation"):
    """A candidate (`subject`) was drafted from these `records` (SPEC 5.3). `score` is the highest of their scores."""

    type: str
    title: str
    score: float
    records: tuple[str, ...]

    template = "candidate {subject}: {title}"


class CandidateWeighed(Event, topics="adaptation changes"):
    """The evidence in other records changed the `status` of a candidate (`subject`) to "review", or back to
    "drafted"."""

    status: str
    score: float
    corroborated_by: tuple[str, ...]
    against: tuple[str, ...]

    def sentence(self) -> str:
        where = "needs your decision" if self.status == "review" else f"is {self.status} again"
        evidence = f"{len(self.corroborated_by)} for it" + (f", {len(self.against)} against" if self.against else "")
        return f"candidate {self.subject} {where}: score {self.score:.0f}, {evidence}"


class CandidatePromoted(Event, topics="adaptation changes"):
    """The effect of a candidate (`subject`) is active. `by` is "operator", "autonomy" or "api"."""

    type: str
    title: str
    by: str
    reason: str = ""

    def sentence(self) -> str:
        return f"activated by {describe_decider(self.by)}: {self.subject}, {self.title}"


class CandidateRejected(Event, topics="adaptation changes"):
    """A candidate (`subject`) was rejected."""

    type: str
    title: str
    by: str
    reason: str = ""

    def sentence(self) -> str:
        return f"rejected by {describe_decider(self.by)}: {self.subject}, {self.title}{because(self.reason)}"


class CandidateRolledBack(Event, topics="adaptation changes"):
    """The effect of a candidate (`subject`) was removed."""

    type: str
    title: str
    by: str
    reason: str = ""

    def sentence(self) -> str:
        return f"rolled back by {describe_decider(self.by)}: {self.subject}, {self.title}{because(self.reason)}"


class CandidateDecisionUndone(Event, topics="adaptation changes"):
    """The operator undid the last decision on a candidate (`subject`), which has its earlier `status` again."""

    type: str
    title: str
    status: str

    def sentence(self) -> str:
        state = {"review": "in review", "promoted": "active"}.get(self.status, in_words(self.status))
        return f"your decision was undone: {self.subject}, {self.title}, is {state} again"


class PairsExported(Event):
    """A batch of preference pairs was written to a file (SPEC 8.3). It has no subject."""

    pairs: int
    file: str

    def sentence(self) -> str:
        return f"{count(self.pairs, 'preference pair')} written to {self.file}"


class TwinAnswered(Event):
    """The Twin model (`subject`) was asked. `reason` says why its answer could not be used (SPEC 2.3)."""

    usable: bool
    reason: str

    def sentence(self) -> str:
        if self.usable:
            return f"Twin model {self.subject} answered"
        return f"Twin model {self.subject} gave no usable answer{because(self.reason)}"


class TrainingMoved(Event, topics="training"):
    """A training run (`subject`) changed its state (SPEC 8.4). `note` says why."""

    state: str
    note: str

    def sentence(self) -> str:
        return f"training {self.subject} is {in_words(self.state)}{because(self.note)}"
