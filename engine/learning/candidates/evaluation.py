"""Evaluates learning records: from which of them candidates are drafted (SPEC 5.2), and how well others support a
candidate (SPEC 5.3). Pure.

Records from which a candidate was drafted are no evidence for it, and each session counts once. Records against a
candidate are listed but do not change its score: the operator compares both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from statistics import fmean

from engine.events.work import name_command
from engine.files import read_table
from engine.frozen import frozen
from engine.learning import may_be_same
from engine.lessons import list_content_words, normalise
from engine.model.adaptation import (
    Candidate,
    CandidateStatus,
    CandidateType,
    FixTemplate,
    FlowOffload,
    LearningRecord,
    PolicyTweak,
    PromptFragment,
    RecordKind,
    RoutingHint,
    make_dedupe_key,
)
from engine.text import jaccard

# -- the records from which candidates are drafted

MIN_OPPORTUNITY_SCORE = 60.0
"""Minimum score of a record from which a candidate can be drafted. For example, a record of kind `failed_tdd` with this
score leads to a fix template. With a lower score, it only supports a template drafted from another record."""

MAX_OPPORTUNITIES = 25
"""Maximum number of opportunities that a round tries."""

KINDS_OF_TYPE = {
    CandidateType(type): frozenset(map(RecordKind, kinds))
    for type, kinds in read_table(__file__, "record_kinds.toml").items()
}
"""The kinds of records from which each type of candidate is drafted (SPEC 5.2)."""


@frozen
class Opportunity:
    """A record from which a candidate of this type could be drafted."""

    type: CandidateType
    record: LearningRecord

    @property
    def key(self) -> str:
        """The unique key of the candidate that is drafted from it."""
        return make_dedupe_key(self.type, self.record.scope_type, self.record.scope_id, self.record.source_label)


def find_candidate_types(kind: RecordKind) -> tuple[CandidateType, ...]:
    """The types that can be drafted from a kind of record."""
    return tuple(type for type, kinds in KINDS_OF_TYPE.items() if kind in kinds)


def select_opportunities(records: Iterable[LearningRecord], known_keys: Collection[str] = ()) -> list[Opportunity]:
    """The best `MAX_OPPORTUNITIES` opportunities from records with `MIN_OPPORTUNITY_SCORE` points or more, best first.

    Opportunities with `known_keys` are left out. Each key has one opportunity: that of the record with the highest
    score, and of several such records the newest. The other records of the key can support the candidate.
    """
    strong = (record for record in records if record.score >= MIN_OPPORTUNITY_SCORE)
    opportunities = (Opportunity(type, record) for record in strong for type in find_candidate_types(record.kind))
    new_opportunities = (opportunity for opportunity in opportunities if opportunity.key not in known_keys)
    best_by_key = {opportunity.key: opportunity for opportunity in sorted(new_opportunities, key=_rank)}
    return sorted(best_by_key.values(), key=_rank, reverse=True)[:MAX_OPPORTUNITIES]


def _rank(opportunity: Opportunity) -> tuple[float, datetime, str]:
    """The sort key of an opportunity: the higher, the better."""
    return opportunity.record.score, opportunity.record.at, opportunity.key + opportunity.record.id


# -- the evidence for and against a candidate

LIVE_STATUSES = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.ACTIVE)
"""Statuses of candidates that were neither rejected nor rolled back."""

MIN_REVIEW_SCORE = 60.0
"""Minimum score of a candidate in review."""

MAX_UNCORROBORATED = 45.0
"""Maximum score of a candidate without supporting records."""

SUPPORT_MEAN_WEIGHT, SUPPORT_BONUS, MAX_SUPPORT_BONUS = 0.85, 5.0, 15.0
"""The weight of the mean score of supporting records, the points for each of them, and their maximum: see
`compute_score`."""

MIN_FACT_SIMILARITY = 0.6
"""Minimum Jaccard similarity of the words of two facts that support each other."""


@frozen
class Evaluation:
    """A score from 0 to 100, and the records for and against the candidate."""

    score: float
    corroborated_by: tuple[str, ...]
    against: tuple[str, ...]
    reason: str

    @property
    def has_passed(self) -> bool:
        """Whether the candidate goes to review."""
        return bool(self.corroborated_by) and self.score >= MIN_REVIEW_SCORE


def compute_score(drafted: float, scores: Sequence[float]) -> float:
    """The maximum over n of `min(100, 0.85·mean + min(15, 5·n))` of the n highest `scores` of supporting records. It is
    at least `drafted`, of which at most 45 count. So an additional supporting record never lowers it."""
    strongest = sorted(scores, reverse=True)
    supported = (
        SUPPORT_MEAN_WEIGHT * fmean(strongest[:number]) + min(MAX_SUPPORT_BONUS, SUPPORT_BONUS * number)
        for number in range(1, len(strongest) + 1)
    )
    return round(min(100.0, max(min(MAX_UNCORROBORATED, drafted), *supported, 0.0)), 6)


def select_supporting(
    candidate: Candidate, draft_records: Sequence[LearningRecord], records: Iterable[LearningRecord]
) -> list[LearningRecord]:
    """The records that support a candidate, in the order of `records`.

    They have its scope, and either its label or a fact similar to its own fact. Records of sessions from which it was
    drafted are left out. Of each other session, the record with the highest score counts.
    """
    draft_sessions = {record.session_id for record in draft_records if record.session_id}
    facts = [_find_kept_fact(record) for record in draft_records]

    def supports(record: LearningRecord) -> bool:
        if (record.scope_type, record.scope_id) != (candidate.scope_type, candidate.scope_id):
            return False
        if record.id in candidate.drafted_from or record.session_id in draft_sessions:
            return False
        return record.source_label == candidate.source_label or any(
            _do_facts_agree(_find_kept_fact(record), fact) for fact in facts
        )

    return _select_best_of_each_session(filter(supports, records))


def _select_best_of_each_session(records: Iterable[LearningRecord]) -> list[LearningRecord]:
    """Of each session the first record with the highest score. A record without a session counts alone."""
    best: dict[str, LearningRecord] = {}
    for record in records:
        session = record.session_id or record.id
        if session not in best or record.score > best[session].score:
            best[session] = record
    return list(best.values())


def _find_kept_fact(record: LearningRecord) -> str:
    """The fact that the operator kept, "" for any other record."""
    return str(record.details["text"]) if "kept" in record.details else ""


def _do_facts_agree(fact: str, other: str) -> bool:
    """Whether two facts are similar and do not contradict each other.

    A fact may have words that the other does not have. If they have different content words in the same place, they
    count as a contradiction ("We install with uv" and "We install with pip"), because words alone do not show whether
    one is a synonym of the other.
    """
    if jaccard(normalise(fact).split(), normalise(other).split()) < MIN_FACT_SIMILARITY or not may_be_same(fact, other):
        return False
    changes = SequenceMatcher(None, list_content_words(fact), list_content_words(other), autojunk=False).get_opcodes()
    return all(tag != "replace" for tag, *_ in changes)


def evaluate(
    candidate: Candidate,
    draft_records: Sequence[LearningRecord],
    records: Sequence[LearningRecord],
    *,
    active_since: datetime | None = None,
) -> Evaluation:
    """Evaluate a candidate by the `records` of its scope. It was drafted from `draft_records`. `active_since` is
    None for a candidate that is not active."""
    supporting = select_supporting(candidate, draft_records, records)
    score = compute_score(
        max((record.score for record in draft_records), default=0.0), [record.score for record in supporting]
    )
    drafted_since = min((record.at for record in draft_records), default=candidate.created_at)
    against = [
        record
        for record in records
        if record.id not in candidate.drafted_from and speaks_against(candidate, record, drafted_since, active_since)
    ]
    reason = f"{_describe_support(len(supporting))}: {score:.0f} of 100"
    if against:
        reason += f"; {len(against)} against it"
    return Evaluation(score, tuple(record.id for record in supporting), tuple(record.id for record in against), reason)


def _describe_support(number: int) -> str:
    """The number of supporting records in words."""
    if not number:
        return "no other record supports it yet"
    return "1 other record supports it" if number == 1 else f"{number} other records support it"


def speaks_against(
    candidate: Candidate, record: LearningRecord, drafted_since: datetime, active_since: datetime | None
) -> bool:
    """Whether a record of the agent that a candidate is about is evidence against its effect. `drafted_since` is the
    time of the first record of the draft, `active_since` None for a candidate that is not active."""
    if candidate.agent_id and record.agent != candidate.agent_id:
        return False
    is_after_draft = record.at >= drafted_since
    match candidate.effect, record.kind:
        case FixTemplate() as template, RecordKind.FAILED_TDD:  # the test failed while the repair was active
            was_active = active_since is not None and record.at > active_since
            return was_active and record.details["test"] in template.failing
        case PolicyTweak() as tweak, RecordKind.SUCCESSFUL_HEAL:  # a repair needed more than the tighter limit
            return _exceeds_limit(record, tweak)
        case RoutingHint(), RecordKind.FAILED_TDD:  # tests fail even with the present, more expensive model
            return is_after_draft
        case PromptFragment(), RecordKind.GUIDANCE_NOISY:  # work went worse with other guidance of the agent
            return is_after_draft and record.source_label != candidate.source_label
        case FlowOffload() as flow, RecordKind.AGENT_ERROR:
            return is_after_draft and _is_error_of_flow(record, flow)
    return False


def _exceeds_limit(heal: LearningRecord, tweak: PolicyTweak) -> bool:
    """Whether a repair by an agent needed more than a limit allows. A landed change set has no number of attempts."""
    if "landed" in heal.details:
        return False
    needs_more_tries = tweak.tries is not None and heal.details["attempts"] - 1 > tweak.tries
    needs_more_money = tweak.cost is not None and heal.details["cost"] > tweak.cost
    return needs_more_tries or needs_more_money


def _is_error_of_flow(error: LearningRecord, flow: FlowOffload) -> bool:
    """Whether a command of a flow could not run."""
    failed_command = str(error.details["message"]).partition(": ")[0]
    # "exec" alone is a program whose name is not recorded, which may be any
    flow_commands = {name_command([line]) for line in flow.commands} - {"exec"}
    return error.details["tool"] == "exec" and failed_command in flow_commands
