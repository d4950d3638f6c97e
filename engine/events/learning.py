"""Memory, learnings and candidates for better behaviour (SPEC 4, 5, 6)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningsExtracted(Event):
    """What a session (`subject`) learnt was written down (SPEC 6.6): so many `entries`, in `scopes` such as
    "observations" or "corrective"; `by` is "rules" or "rules and model"."""

    entries: int
    scopes: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningPromoted(Event):
    """An entry (`subject`) went up to `scope`; `sources` are the entries that it came from, and the `sessions` are
    those that it is owed to (SPEC 6.5). `by` is "recurrence", "establishment", "operator" or "model"."""

    scope: str
    sources: tuple[str, ...]
    sessions: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningReinforced(Event):
    """`sessions` said again what an entry (`subject`) says already (SPEC 6.2)."""

    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningsCompacted(Event):
    """Entries of one scope (`subject` is its folder) that say the same were folded into one of them each: `folded` into
    `into`, in this order (SPEC 6.6)."""

    folded: tuple[str, ...]
    into: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningJudged(Event):
    """Whether an entry of a project (`subject`) holds beyond it (SPEC 6.4): `verdict` is "generalises", "does not" or
    "no answer", which promotes nothing."""

    verdict: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRetracted(Event):
    """An entry (`subject`) holds no longer (SPEC 6.5). `queued` were promoted from it and wait for the operator's word;
    `sessions` are those that it was owed to."""

    reason: str
    queued: tuple[str, ...]
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningKept(Event):
    """The operator looked at an entry (`subject`) whose source was retracted, and it goes on holding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPromoted(Event):
    """A fact (`subject`) joined layer G (SPEC 4.8). `by` is "operator" or "nightly"; `draft` its draft, "" for none."""

    by: str
    draft: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRejected(Event):
    """The operator turned a draft of a fact (`subject`) down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyFinished(Event):
    """The day `subject` (local, `2026-01-05`) was worked through (SPEC 4.8): facts that a model promoted, drafts that
    wait for the operator, what it cost, and why there was no promotion."""

    promoted: int
    drafted: int
    cost: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForgotten(Event):
    """Something was forgotten at the operator's word (SPEC 4.10); of it only the number of places is known."""

    places: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayFoundHarmful(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateDrafted(Event):
    """A change of behaviour (`subject`) was proposed (SPEC 5.3), from these `records`, which scored so high."""

    type: str
    title: str
    score: float
    records: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateWeighed(Event):
    """What other records say of a candidate moved it to another `status`: "review", or "drafted" again."""

    status: str
    score: float
    corroborated_by: tuple[str, ...]
    against: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePromoted(Event):
    """The effect of a candidate is in force. `by` is "operator", "autonomy" or "api"."""

    type: str
    title: str
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRejected(Event):
    """It was turned down; it comes up again only when new evidence outweighs that."""

    type: str
    title: str
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRolledBack(Event):
    """Its effect was taken back: what was done before is done again, exactly."""

    type: str
    title: str
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateDecisionUndone(Event):
    """The operator took his last decision on a candidate back: it stands as before it, at `status`."""

    type: str
    title: str
    status: str
