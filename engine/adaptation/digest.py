"""Which records call for a change of behaviour, and of what kind (SPEC 5.2, 5.3: detect). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from engine.adaptation.weighing import OPPORTUNITY
from engine.values.adaptation import CandidateType, LearningRecord, RecordKind, dedupe_key

TOP = 5
"""So many candidates are drafted at once."""

SOURCES: Mapping[CandidateType, frozenset[RecordKind]] = {
    CandidateType.PROMPT_FRAGMENT: frozenset(
        {
            RecordKind.HUMAN_APPROVAL,
            RecordKind.AGENT_ERROR,
            RecordKind.GUIDANCE_APPLIED,
            RecordKind.GUIDANCE_NOISY,
            RecordKind.STALE_GUIDANCE,
            RecordKind.TEACHING_REFRESH,
            RecordKind.CLOUD_MEMORY_RECALL_HIT,
        }
    ),
    CandidateType.FIX_TEMPLATE: frozenset({RecordKind.FAILED_TDD, RecordKind.SUCCESSFUL_HEAL}),
    CandidateType.ROUTING_HINT: frozenset(
        {RecordKind.BUDGET_INCIDENT, RecordKind.TASK_CONFLICT, RecordKind.SUCCESSFUL_BUBBLE}
    ),
    CandidateType.POLICY_TWEAK: frozenset(
        {
            RecordKind.REPEATED_RETRY,
            RecordKind.STALE_GUIDANCE,
            RecordKind.GUIDANCE_NOISY,
            RecordKind.CLOUD_SYNC_FAILURE,
        }
    ),
    CandidateType.FLOW_OFFLOAD: frozenset({RecordKind.TOOL_SEQUENCE}),
}
"""What each type is drafted from (SPEC 5.2). Every kind is somewhere; one may be in two.

SPEC 5.1 has no kind of its own for some of the sources of prompt fragments that SPEC 5.2 names. Memory extraction and
summaries of research are in `human_approval` (facts that the operator keeps: what a session says is what the night
draws them from, whatever its channel) and `cloud_memory_recall_hit` (summaries that serve); drafts and evaluations are
in `human_approval` (what he makes of a proposed prompt); what agents err in, again and again, is one more.
"""


@dataclass(frozen=True, slots=True)
class Opportunity:
    """A record from which a candidate of this type could be drafted."""

    type: CandidateType
    record: LearningRecord

    @property
    def key(self) -> str:
        """What there is one candidate of."""
        return dedupe_key(self.type, self.record.scope_type, self.record.scope_id, self.record.source_label)


def types_of(kind: RecordKind) -> tuple[CandidateType, ...]:
    """What can be drafted from a kind of record."""
    return tuple(type for type, kinds in SOURCES.items() if kind in kinds)


def opportunities(
    records: Iterable[LearningRecord],
    known: Collection[str] = (),
    *,
    limit: int = TOP,
    least: float = OPPORTUNITY,
) -> list[Opportunity]:
    """The best `limit` opportunities: of records from `least` points on, one for each key that is not `known`.

    Of several records of a key it is the one with the highest score, then the newest; the others are held out, to bear
    it out or not. Keys come by score, then the newest first.
    """
    best: dict[str, Opportunity] = {}
    for record in records:
        if record.score < least:
            continue
        for type in types_of(record.kind):
            one = Opportunity(type, record)
            if one.key in known:
                continue
            former = best.get(one.key)
            if former is None or _rank(one) > _rank(former):
                best[one.key] = one
    return sorted(best.values(), key=_rank, reverse=True)[:limit]


def _rank(one: Opportunity) -> tuple[float, object, str]:
    return one.record.score, one.record.at, one.key + one.record.id
