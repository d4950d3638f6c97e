"""Events about what is learned (SPEC 1, 4, 5, 6, 8): guidance of leaders and findings that go up to them, memory,
learnings, candidates, and the Twin's examples, answers and training."""

from __future__ import annotations

from engine.events import Event, list_names
from engine.model.rails import describe_decider
from engine.wording import because, count, in_words

# -- guidance


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


# -- findings and profiles


class BubbleQueued(Event, topics="changes agents"):
    """A finding of `agent` passed all gates of SPEC 1.7 and waits to go up to `leader`."""

    agent: str
    leader: str

    template = "a finding of {agent} is waiting to go to {leader}"


class BubbleApproved(Event, topics="changes agents"):
    """The operator approved a finding for `leader`; the next round takes it."""

    agent: str
    leader: str

    template = "you approved a finding of {agent} for {leader}"


class BubbleRefused(Event, topics="changes agents"):
    """The gate `gate` refused a finding of `agent`, for `reason`."""

    agent: str
    gate: str
    reason: str

    template = "a finding of {agent} was refused by {gate}: {reason}"


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

    template = "the profile of {subject} was edited: {section}, {key}"


# -- memory


class CloudMemoryRecalled(Event):
    """The prompt of a model call of an agent (`subject`) had summaries that other machines shared (SPEC 4.5):
    `memories` are their ids, `origins` their homes."""

    session_id: str
    call: str
    memories: tuple[str, ...]
    origins: tuple[str, ...]


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


# -- learnings


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


# -- candidates


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


# -- the Twin


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
