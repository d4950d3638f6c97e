"""Values of adaptation (SPEC 5): learning records, candidates, effects, overlays and lift.

A *record* is something that happened once; a *candidate* proposes a change of behaviour; its *effect* is the change;
an *overlay* is an active effect; its *lift* is how much better sessions went with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, fields
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from engine.frozen import frozen
from engine.model.base import Refusal
from engine.model.trust import Trust

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class RecordKind(StrEnum):
    """What reflection captures (SPEC 5.1)."""

    FAILED_TDD = "failed_tdd"
    SUCCESSFUL_HEAL = "successful_heal"
    REPEATED_RETRY = "repeated_retry"
    TASK_CONFLICT = "task_conflict"
    BUDGET_INCIDENT = "budget_incident"
    HUMAN_APPROVAL = "human_approval"
    AGENT_ERROR = "agent_error"
    SUCCESSFUL_BUBBLE = "successful_bubble"
    GUIDANCE_APPLIED = "guidance_applied"
    GUIDANCE_NOISY = "guidance_noisy"
    STALE_GUIDANCE = "stale_guidance"
    TEACHING_REFRESH = "teaching_refresh"
    CLOUD_SYNC_FAILURE = "cloud_sync_failure"
    CLOUD_MEMORY_RECALL_HIT = "cloud_memory_recall_hit"
    TOOL_SEQUENCE = "tool_sequence"


@frozen
class LearningRecord:
    """Something that happened, weighed. `score` from 0 to 100, `reason` says how it was reckoned.

    `source_label` is what recurs: the kind, and where a kind has different causes a signature of the cause after a
    slash (`failed_tdd/tests/test_cart.py::test_total`). `scope_type` is "agent", "workspace" or "leader". `fact` is the
    number of the fact in the ledger that it was made of, `details` what that fact said.
    """

    id: str
    at: datetime
    kind: RecordKind
    source_label: str
    scope_type: str
    scope_id: str
    score: float
    reason: str
    workspace: str = ""
    agent: str = ""
    session_id: str = ""
    fact: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)


class CandidateType(StrEnum):
    """What kind of behaviour a candidate changes (SPEC 5.2)."""

    PROMPT_FRAGMENT = "prompt_fragment"
    FIX_TEMPLATE = "fix_template"
    ROUTING_HINT = "routing_hint"
    POLICY_TWEAK = "validator_policy_tweak"
    FLOW_OFFLOAD = "flow_offload"


Size = Annotated[int, Ge(0)]


class _Effect:
    """What a candidate changes. Each is of one `kind`."""

    __slots__ = ()
    kind: ClassVar[CandidateType]

    def to_json(self) -> dict[str, Any]:
        """For storage and for programs; `effect_from_json` reads it."""
        values = {_KEYS.get(field.name, field.name): getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind.value} | {
            key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
        }


@frozen
class PromptFragment(_Effect):
    """Lines that prompts carry."""

    guidance: tuple[str, ...]

    kind: ClassVar[CandidateType] = CandidateType.PROMPT_FRAGMENT


MAX_PATCH = 40_000
"""Characters of a diff that a fix template keeps; of a longer one it keeps the words alone."""


@frozen
class FixTemplate(_Effect):
    """A repair that worked. Agents are told `repairs` when one of the tests that are red is among `failing`. `patch` is
    the diff of git that turned them green, "" where it is not known, and `causes` the signatures that the failures had
    (see `flows.causes.Cause.signature`): where a failure is alike, a card offers the patch. `project` is the folder of
    the workspace whose tests they are, "" for its top."""

    failing: tuple[str, ...]
    repairs: tuple[str, ...]
    patch: str = ""
    causes: tuple[str, ...] = ()
    project: str = ""

    kind: ClassVar[CandidateType] = CandidateType.FIX_TEMPLATE


@frozen
class KnownFix:
    """A fix template as a card offers it: the `id` of its candidate, the `title` of the change that it comes from, and
    when the tests turned green."""

    id: str
    title: str
    at: datetime
    template: FixTemplate

    def alike(self, test: str, signature: str) -> bool:
        """Whether a failing test fails as one did before the fix: with the same signature; where either is not known,
        when it is the same test."""
        if signature and self.template.causes:
            return signature in self.template.causes
        return test in self.template.failing


@frozen
class RoutingHint(_Effect):
    """A model for calls that belong to `channel` ("" for any) and whose prompt has at most `longest_prompt` characters
    (None for any). `why` is said with each choice. A name as in `tools.json`, `PROVIDER:MODEL`."""

    model: str
    channel: str = ""
    longest_prompt: Size | None = None
    why: str = ""

    kind: ClassVar[CandidateType] = CandidateType.ROUTING_HINT


@frozen
class PolicyTweak(_Effect):
    """Lower bounds for healing: `tries` after the first run, `cost` in micro-dollars; None leaves one as it is. They
    only ever tighten (SPEC 5.4)."""

    tries: Size | None = None
    cost: Size | None = None

    kind: ClassVar[CandidateType] = CandidateType.POLICY_TWEAK


@frozen
class FlowOffload(_Effect):
    """Commands that agents run again and again, as a flow `name` that needs no model."""

    name: str
    title: str
    commands: tuple[str, ...]

    kind: ClassVar[CandidateType] = CandidateType.FLOW_OFFLOAD


Effect = PromptFragment | FixTemplate | RoutingHint | PolicyTweak | FlowOffload


_KEYS = {"longest_prompt": "longestPrompt"}
_EFFECTS: tuple[type[Effect], ...] = (PromptFragment, FixTemplate, RoutingHint, PolicyTweak, FlowOffload)


def effect_from_json(stored: Mapping[str, Any]) -> Effect:
    """The inverse of `to_json`. Raises `Refusal` `bad_effect`, which says what is wrong."""
    fields = dict(stored) | {name: stored[key] for name, key in _KEYS.items() if key in stored}
    try:
        return _reader(CandidateType(str(stored.get("kind")))).validate_json(json.dumps(fields), strict=True)
    except ValueError as error:
        raise Refusal("bad_effect", f"a stored effect cannot be read: {error}", "reject its candidate") from error


@cache
def _reader(kind: CandidateType) -> TypeAdapter[Effect]:
    from pydantic import TypeAdapter  # not before it is needed

    return TypeAdapter(next(effect for effect in _EFFECTS if effect.kind is kind))


class CandidateStatus(StrEnum):
    """Where a candidate stands (SPEC 5.3)."""

    DRAFTED = "drafted"  # scored; too little corroborates it so far, it waits for more evidence
    REVIEW = "review"  # corroborated; it waits for the operator
    PROMOTED = "promoted"  # its effect is in force
    REJECTED = "rejected"
    ROLLED_BACK = "rolled_back"  # its effect was in force; it can be promoted again

    @property
    def decided(self) -> bool:
        """True when somebody said what shall become of it."""
        return self not in (CandidateStatus.DRAFTED, CandidateStatus.REVIEW)


class CandidateMove(StrEnum):
    """What can happen to a candidate."""

    CORROBORATE = "corroborate"  # records it was not drafted from bear it out
    WEAKEN = "weaken"  # later ones do not any more
    APPROVE = "approve"
    REJECT = "reject"
    ROLL_BACK = "roll back"
    REOPEN = "reopen"  # rejected, and new evidence outweighs that
    UNDO = "undo"  # the operator's last decision never was: it stands as before it


CANDIDATE_MOVES: Mapping[tuple[CandidateStatus, CandidateMove], CandidateStatus] = {
    (CandidateStatus.DRAFTED, CandidateMove.CORROBORATE): CandidateStatus.REVIEW,
    (CandidateStatus.DRAFTED, CandidateMove.REJECT): CandidateStatus.REJECTED,
    (CandidateStatus.REVIEW, CandidateMove.WEAKEN): CandidateStatus.DRAFTED,
    (CandidateStatus.REVIEW, CandidateMove.APPROVE): CandidateStatus.PROMOTED,
    (CandidateStatus.REVIEW, CandidateMove.REJECT): CandidateStatus.REJECTED,
    (CandidateStatus.PROMOTED, CandidateMove.ROLL_BACK): CandidateStatus.ROLLED_BACK,
    (CandidateStatus.ROLLED_BACK, CandidateMove.APPROVE): CandidateStatus.PROMOTED,
    (CandidateStatus.ROLLED_BACK, CandidateMove.REJECT): CandidateStatus.REJECTED,
    (CandidateStatus.REJECTED, CandidateMove.REOPEN): CandidateStatus.DRAFTED,
}
"""Everything that is not here is refused, but for `UNDO`: from what a decision led to back to where it was made."""

DECISIONS = frozenset({CandidateMove.APPROVE, CandidateMove.REJECT, CandidateMove.ROLL_BACK})
"""What somebody decides; the other moves follow of evidence."""


def candidate_after(candidate_id: str, status: CandidateStatus, move: CandidateMove) -> CandidateStatus:
    """The status after `move`. Raises `Refusal`: `already_decided`, `not_corroborated` for the approval of one that
    too little bears out, `nothing_to_roll_back` for one that is not in force."""
    following = CANDIDATE_MOVES.get((status, move))
    if following is not None:
        return following
    if move is CandidateMove.ROLL_BACK:
        raise Refusal("nothing_to_roll_back", f"candidate {candidate_id} {_IN_WORDS[status]}, so it has no effect")
    if status is CandidateStatus.DRAFTED:
        raise Refusal(
            "not_corroborated",
            f"candidate {candidate_id} {_IN_WORDS[status]}",
            f"it comes up for review when there is more evidence: clawpy candidates show {candidate_id}",
        )
    message = f"candidate {candidate_id} {_IN_WORDS[status]}"
    fix = f"roll it back first: clawpy candidates rollback {candidate_id}"
    raise Refusal("already_decided", message, fix if status is CandidateStatus.PROMOTED else "")


_IN_WORDS = {
    CandidateStatus.DRAFTED: "has too little evidence from other records yet",
    CandidateStatus.REVIEW: "is waiting for review",
    CandidateStatus.PROMOTED: "is already active",
    CandidateStatus.REJECTED: "was already rejected",
    CandidateStatus.ROLLED_BACK: "was already rolled back",
}


def dedupe_key(type: CandidateType, scope_type: str, scope_id: str, source_label: str) -> str:
    """What there is one candidate of (SPEC 5.3), for instance `routing_hint:agent:cto:budget_incident`."""
    return f"{type.value}:{scope_type}:{scope_id}:{source_label}"


@frozen
class Candidate:
    """A proposed change to how the system acts.

    `score`, 0 to 100, is that of its last evaluation (see `learning.candidates.evaluation`). `agent_id`, `run_kind` and
    `workspace` say where the effect applies, "" for any. `drafted_from`, `corroborated_by` and `against` are ids of
    records: those it was made of, those that bear it out, and those that speak against it. `decided_by` is "operator",
    "autonomy" or "api", "" while nobody decided; `reason` is what was said then, or why it stands where it stands.
    `trust` says whose words the effect is made of: words of others are promoted by the operator alone.
    """

    id: str
    type: CandidateType
    scope_type: str
    scope_id: str
    source_label: str
    title: str
    status: CandidateStatus
    score: float
    effect: Effect
    created_at: datetime
    changed_at: datetime
    agent_id: str = ""
    run_kind: str = ""
    workspace: str = ""
    drafted_from: tuple[str, ...] = ()
    corroborated_by: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    decided_by: str = ""
    reason: str = ""
    trust: Trust = Trust.QUOTED

    @property
    def dedupe_key(self) -> str:
        """What there is one candidate of."""
        return dedupe_key(self.type, self.scope_type, self.scope_id, self.source_label)


@frozen
class Overlay:
    """An effect that is, or was, in force: where as in `Candidate`, `since` when, `until` None while it still is."""

    id: str
    candidate_id: str
    type: CandidateType
    agent_id: str
    run_kind: str
    workspace: str
    effect: Effect
    since: datetime
    until: datetime | None = None
    trust: Trust = Trust.QUOTED

    def applies(self, agent_id: str, run_kind: str | None, workspace: str) -> bool:
        """Whether it is for this agent, kind of run (None where kinds do not matter) and workspace ("" is none)."""
        return (
            self.agent_id in ("", agent_id)
            and self.workspace in ("", workspace)
            and (run_kind is None or self.run_kind in ("", run_kind))
        )


@frozen
class Lift:
    """What an overlay does to the share of runs that go well (SPEC 5.7): `difference` of the shares with and without,
    with its interval from `low` to `high`, -1 to 1. Each end is wrong in at most a tenth of all cases, over the whole
    life of the overlay and however often one looks.

    `verdict`: "not enough evidence", "helps", "harms" or "makes no difference".
    """

    overlay_id: str
    with_runs: int
    with_good: int
    without_runs: int
    without_good: int
    difference: float
    low: float
    high: float
    verdict: str


@frozen
class EffectPreview:
    """How things are done now, and how they would be done, as lines; a screen shows the difference."""

    before: tuple[str, ...]
    after: tuple[str, ...]


@frozen
class Station:
    """One station of SPEC 5.3: detect, draft, score, corroborate, review, and promote or reject. `state` is "done",
    "now", "ahead" or "failed", `words` what came of it; `at` None while it is ahead."""

    name: str
    at: datetime | None
    words: str
    state: str


@frozen
class CandidateView:
    """All that the operator decides by. `records` are those that the candidate names, oldest first; `overlays` what it
    put in force, newest first; `lift` is that of the newest, None for what is not tested."""

    candidate: Candidate
    records: tuple[LearningRecord, ...]
    preview: EffectPreview
    lift: Lift | None
    overlays: tuple[Overlay, ...]
    stations: tuple[Station, ...]
