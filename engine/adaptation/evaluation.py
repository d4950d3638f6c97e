"""What other records say of a candidate (SPEC 5.3: corroborate). Pure.

Only records that it was not drafted from count, and of each session only one: what happened three times in one session
was seen once. Those that speak against it are named beside; the score is that of SPEC 5.3 all the same, for it is the
operator who weighs the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from engine.adaptation.weighing import mean
from engine.values.adaptation import (
    Candidate,
    Effect,
    FixTemplate,
    FlowOffload,
    LearningRecord,
    PolicyTweak,
    PromptFragment,
    RecordKind,
    RoutingHint,
)

PASS = 60.0
"""From so many points on a candidate comes up for review."""

ALONE = 45.0
"""The most for one that nothing bears out; it fails."""

MEAN_WEIGHS, BONUS, MOST_BONUS = 0.85, 5.0, 15.0

NEW_AGAIN = 3
"""A rejected candidate comes up again after at least so many new records that bear it out."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A score from 0 to 100, the records that make it, and those that speak against the candidate."""

    score: float
    corroborated_by: tuple[str, ...]
    against: tuple[str, ...]
    reason: str

    @property
    def passed(self) -> bool:
        """Whether it comes up for review."""
        return bool(self.corroborated_by) and self.score >= PASS

    @property
    def outweighed(self) -> bool:
        """Whether at least as many records speak against it as for it: then nobody but the operator promotes it."""
        return len(self.against) >= len(self.corroborated_by)


def corroborated_score(drafted: float, scores: Sequence[float]) -> float:
    """`min(100, 0.85·mean + min(15, 5·n))` over the held-out `scores`; without any the draft's own, at most 45."""
    if not scores:
        return min(ALONE, drafted)
    return round(min(100.0, MEAN_WEIGHS * mean(scores) + min(MOST_BONUS, BONUS * len(scores))), 6)


def held_out(candidate: Candidate, drafted: Iterable[LearningRecord], records: Iterable[LearningRecord]) -> list[str]:
    """Ids of the records that bear a candidate out: see `matching`."""
    return [one.id for one in matching(candidate, drafted, records)]


def matching(
    candidate: Candidate, drafted: Iterable[LearningRecord], records: Iterable[LearningRecord]
) -> list[LearningRecord]:
    """Records of the candidate's label and scope that it was not drafted from: of each session the weightiest, and none
    of a session that it was drafted from. In the order of `records`."""
    used = {one.session_id for one in drafted if one.session_id}
    own = set(candidate.drafted_from)
    best: dict[str, LearningRecord] = {}
    for one in records:
        alike = (one.source_label, one.scope_type, one.scope_id) == (
            candidate.source_label,
            candidate.scope_type,
            candidate.scope_id,
        )
        if not alike or one.id in own or (one.session_id and one.session_id in used):
            continue
        unit = one.session_id or one.id
        if unit not in best or one.score > best[unit].score:
            best[unit] = one
    return list(best.values())


def evaluate(
    candidate: Candidate,
    drafted: Sequence[LearningRecord],
    records: Sequence[LearningRecord],
    *,
    promoted_at: datetime | None = None,
) -> Evaluation:
    """What the `records` of a candidate's scope say of it, `drafted` being those it was made of. `promoted_at`: since
    when its effect is in force."""
    found = matching(candidate, drafted, records)
    score = corroborated_score(max((one.score for one in drafted), default=0.0), [one.score for one in found])
    begin = min((one.at for one in drafted), default=candidate.created_at)
    against = [one for one in records if one.id not in candidate.drafted_from]
    against = [one for one in against if speaks_against(candidate, one, begin, promoted_at)]
    if found:
        bear = "1 other record bears" if len(found) == 1 else f"{len(found)} other records bear"
        words = f"{bear} it out: {score:.0f} of 100"
    else:
        words = f"no other record bears it out yet: {score:.0f} of 100"
    if against:
        words += f"; {len(against)} against it"
    return Evaluation(score, tuple(one.id for one in found), tuple(one.id for one in against), words)


def speaks_against(
    candidate: Candidate, record: LearningRecord, begin: datetime, promoted_at: datetime | None = None
) -> bool:
    """Whether a record of the agent that a candidate concerns is evidence against its effect.

    A repair: the test stayed red though the repair was in force. A tighter bound: a heal that it would have cut short.
    A cheaper model: work that stays red with the present one, since the evidence began. A fragment: guidance to the
    same agent that went with worse work. A flow: a command of it that could not run.
    """
    told, effect = record.details, candidate.effect
    if candidate.agent_id and record.agent != candidate.agent_id:
        return False
    match effect:
        case FixTemplate():
            red = record.kind is RecordKind.FAILED_TDD and told.get("test") in effect.failing
            return red and promoted_at is not None and record.at > promoted_at
        case PolicyTweak() if record.kind is RecordKind.SUCCESSFUL_HEAL and "landed" not in told:
            tries, cost = int(told.get("attempts", 1)) - 1, int(told.get("cost", 0))
            return (effect.tries is not None and tries > effect.tries) or (
                effect.cost is not None and cost > effect.cost
            )
        case RoutingHint():
            return record.kind is RecordKind.FAILED_TDD and record.at >= begin
        case PromptFragment():
            noisy = record.kind is RecordKind.GUIDANCE_NOISY and record.source_label != candidate.source_label
            return noisy and record.at >= begin
        case FlowOffload() if record.kind is RecordKind.AGENT_ERROR and told.get("tool") == "exec":
            said = str(told.get("message", ""))
            return record.at >= begin and any(
                said.startswith(f"exec:{' '.join(one.split()[:2])}") for one in effect.commands
            )
    return False


def outweighs(
    candidate: Candidate, drafted: Sequence[LearningRecord], records: Sequence[LearningRecord], rejected_at: datetime
) -> bool:
    """Whether what came after a rejection is enough to ask again: at least as many new records bear the candidate out
    as the operator had before him then, drafts included, no fewer than three, and they pass by themselves."""
    new = [one for one in matching(candidate, drafted, records) if one.at > rejected_at]
    had = len(candidate.drafted_from) + len(candidate.corroborated_by)
    enough = len(new) >= max(NEW_AGAIN, had)
    return enough and corroborated_score(0.0, [one.score for one in new]) >= PASS


def same_change(one: Effect, other: Effect) -> bool:
    """Whether two effects come to the same, whatever speaks for them: a repair of a test that both name, the same model
    for the same work, else the very same."""
    match one, other:
        case FixTemplate(), FixTemplate():
            return bool({*one.failing} & {*other.failing}) and one.repairs == other.repairs
        case RoutingHint(), RoutingHint():
            return (one.model, one.channel) == (other.model, other.channel)
    return one == other
