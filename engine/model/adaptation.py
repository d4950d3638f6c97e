"""Values of adaptation (SPEC 5): learning records, candidates, effects, overlays and lift.

A *record* describes something that happened once. A *candidate* proposes a change of behaviour, and its *effect* is the
change. An *overlay* is an active effect. Its *lift* is the difference between sessions with and without it.

`engine.learning.candidates` makes candidates. Prompts, flows, retries and the choice of a model use the overlays.
`CANDIDATE_MOVES` is the whole life of a candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from engine.frozen import frozen
from engine.model.prompts import RunKind, Trust
from engine.model.refusal import Refusal

MAX_PATCH_CHARS = 40_000
"""Maximum length of a diff in a fix template; a longer one is left out."""


# -- records


class RecordKind(StrEnum):
    """The kind of a learning record (SPEC 5.1)."""

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
    """Something that happened, with a score."""

    id: str
    at: datetime
    kind: RecordKind
    source_label: str
    """The same for records with the same cause: the kind, and a signature of the cause after a slash if the kind has
    different causes (`failed_tdd/tests/test_cart.py::test_total`)."""
    scope_type: str
    """ "agent", "workspace" or "leader"."""
    scope_id: str
    score: float
    """From 0 to 100."""
    reason: str
    """How the score was computed."""
    workspace: str = ""
    agent: str = ""
    session_id: str = ""
    ledger_id: int = 0
    """The id of its ledger entry."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Fields of that entry."""


# -- effects


class CandidateType(StrEnum):
    """The sort of change that a candidate proposes (SPEC 5.2)."""

    PROMPT_FRAGMENT = "prompt_fragment"
    FIX_TEMPLATE = "fix_template"
    ROUTING_HINT = "routing_hint"
    POLICY_TWEAK = "validator_policy_tweak"
    FLOW_OFFLOAD = "flow_offload"


_KEY_OF_FIELD = {"longest_prompt": "longestPrompt"}
_FIELD_OF_KEY = {key: name for name, key in _KEY_OF_FIELD.items()}
"""The fields of effects whose JSON key is another word, and the reverse."""


class _Effect:
    """The change of a candidate. Each class has one `kind`."""

    __slots__ = ()
    kind: ClassVar[CandidateType]

    def to_json(self) -> dict[str, Any]:
        """For storage and for programs; `effect_from_json` reads it."""
        values = {_KEY_OF_FIELD.get(field.name, field.name): getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind.value} | {
            key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
        }


@frozen
class PromptFragment(_Effect):
    """Lines that are added to prompts."""

    guidance: tuple[str, ...]

    kind: ClassVar[CandidateType] = CandidateType.PROMPT_FRAGMENT


@frozen
class FixTemplate(_Effect):
    """A repair that worked. Agents get `repairs` when a test in `failing` fails."""

    failing: tuple[str, ...]
    repairs: tuple[str, ...]
    patch: str = ""
    """The git diff that fixed the tests, "" for unknown. A card offers it for a failure with the same cause."""
    causes: tuple[str, ...] = ()
    """Signatures of the failures (see `flows.causes.Cause.signature`)."""
    project: str = ""
    """The folder of the tests' project in the workspace, "" for its top."""

    kind: ClassVar[CandidateType] = CandidateType.FIX_TEMPLATE


@frozen
class KnownFix:
    """A fix template that a card offers: with the `id` of its candidate, the `title` of its change, and the time of the
    fix."""

    id: str
    title: str
    at: datetime
    template: FixTemplate

    def has_same_cause(self, test: str, signature: str) -> bool:
        """Whether a test fails for the same cause: with the same signature, or, if one is unknown, the same test."""
        if signature and self.template.causes:
            return signature in self.template.causes
        return test in self.template.failing


@frozen
class ModelRun:
    """A run for which a model is chosen."""

    agent: str
    channel: str
    run_kind: str = RunKind.TASK
    prompt: str = ""
    workspace: str = ""


@frozen
class RoutingHint(_Effect):
    """A model, `PROVIDER:MODEL`, for calls on `channel` ("" for any) with a prompt of at most `longest_prompt`
    characters (None for any). `why` is shown with each choice."""

    model: str
    channel: str = ""
    longest_prompt: int | None = None
    why: str = ""

    kind: ClassVar[CandidateType] = CandidateType.ROUTING_HINT


@frozen
class PolicyTweak(_Effect):
    """Lower limits of healing: `tries` after the first run, `cost` in micro-dollars; None for no change. They never
    raise a limit (SPEC 5.4)."""

    tries: int | None = None
    cost: int | None = None

    kind: ClassVar[CandidateType] = CandidateType.POLICY_TWEAK


@frozen
class FlowOffload(_Effect):
    """Commands that agents repeat, as a flow `name` that needs no model."""

    name: str
    title: str
    commands: tuple[str, ...]

    kind: ClassVar[CandidateType] = CandidateType.FLOW_OFFLOAD


Effect = PromptFragment | FixTemplate | RoutingHint | PolicyTweak | FlowOffload


_EFFECTS: Mapping[CandidateType, type[Effect]] = {
    effect.kind: effect for effect in (PromptFragment, FixTemplate, RoutingHint, PolicyTweak, FlowOffload)
}


def effect_from_json(stored: Mapping[str, Any]) -> Effect:
    """The inverse of `to_json`."""
    values: dict[str, Any] = {
        _FIELD_OF_KEY.get(key, key): tuple(value) if isinstance(value, list) else value
        for key, value in stored.items()
        if key != "kind"
    }
    return _EFFECTS[CandidateType(stored["kind"])](**values)


# -- candidates and overlays


class CandidateStatus(StrEnum):
    """The status of a candidate (SPEC 5.3)."""

    DRAFTED = "drafted"  # it waits for more evidence
    REVIEW = "review"  # it waits for the operator
    ACTIVE = "promoted"  # its effect is used; the value is the word of stored rows and JSON
    REJECTED = "rejected"
    ROLLED_BACK = "rolled_back"  # its effect was active; it can be activated again

    @property
    def is_decided(self) -> bool:
        """Whether somebody decided on it."""
        return self not in (CandidateStatus.DRAFTED, CandidateStatus.REVIEW)


class CandidateMove(StrEnum):
    """A transition of a candidate."""

    CORROBORATE = "corroborate"  # other records support it
    WEAKEN = "weaken"  # they no longer do
    APPROVE = "approve"
    REJECT = "reject"
    ROLL_BACK = "roll back"
    UNDO = "undo"  # the operator's last decision is undone


CANDIDATE_MOVES: Mapping[tuple[CandidateStatus, CandidateMove], CandidateStatus] = {
    (CandidateStatus.DRAFTED, CandidateMove.CORROBORATE): CandidateStatus.REVIEW,
    (CandidateStatus.DRAFTED, CandidateMove.REJECT): CandidateStatus.REJECTED,
    (CandidateStatus.REVIEW, CandidateMove.WEAKEN): CandidateStatus.DRAFTED,
    (CandidateStatus.REVIEW, CandidateMove.APPROVE): CandidateStatus.ACTIVE,
    (CandidateStatus.REVIEW, CandidateMove.REJECT): CandidateStatus.REJECTED,
    (CandidateStatus.ACTIVE, CandidateMove.ROLL_BACK): CandidateStatus.ROLLED_BACK,
    (CandidateStatus.ROLLED_BACK, CandidateMove.APPROVE): CandidateStatus.ACTIVE,
    (CandidateStatus.ROLLED_BACK, CandidateMove.REJECT): CandidateStatus.REJECTED,
}
"""The legal transitions; all others are refused, except `UNDO`, which returns to the status before a decision."""

DECIDING_MOVES = frozenset({CandidateMove.APPROVE, CandidateMove.REJECT, CandidateMove.ROLL_BACK})
"""Transitions that are decisions; the others follow from evidence."""


def compute_candidate_status(candidate_id: str, status: CandidateStatus, move: CandidateMove) -> CandidateStatus:
    """The status after `move`. Raises `Refusal`: `already_decided`, `not_corroborated` for an approval with too little
    evidence, `nothing_to_roll_back` for a candidate that is not active."""
    new_status = CANDIDATE_MOVES.get((status, move))
    if new_status is not None:
        return new_status
    message = f"candidate {candidate_id} {_STATUS_IN_WORDS[status]}"
    if move is CandidateMove.ROLL_BACK:
        raise Refusal("nothing_to_roll_back", f"{message}, so it has no effect")
    if status is CandidateStatus.DRAFTED:
        raise Refusal(
            "not_corroborated",
            message,
            f"it comes up for review when there is more evidence: clawpy candidates show {candidate_id}",
        )
    fix = f"roll it back first: clawpy candidates rollback {candidate_id}"
    raise Refusal("already_decided", message, fix if status is CandidateStatus.ACTIVE else "")


_STATUS_IN_WORDS = {
    CandidateStatus.DRAFTED: "has too little evidence from other records yet",
    CandidateStatus.REVIEW: "is waiting for review",
    CandidateStatus.ACTIVE: "is already active",
    CandidateStatus.REJECTED: "was already rejected",
    CandidateStatus.ROLLED_BACK: "was already rolled back",
}


def make_dedupe_key(type: CandidateType, scope_type: str, scope_id: str, source_label: str) -> str:
    """The unique key of a candidate (SPEC 5.3), for example `routing_hint:agent:cto:budget_incident`."""
    return f"{type.value}:{scope_type}:{scope_id}:{source_label}"


@frozen
class Candidate:
    """A proposed change in how agents act."""

    id: str
    type: CandidateType
    scope_type: str
    scope_id: str
    source_label: str
    title: str
    status: CandidateStatus
    score: float
    """From 0 to 100, of the last evaluation (see `learning.candidates.evaluation`)."""
    effect: Effect
    created_at: datetime
    changed_at: datetime
    agent_id: str = ""
    """The agent that the effect applies to, "" for all; likewise `run_kind` and `workspace`."""
    run_kind: str = ""
    workspace: str = ""
    drafted_from: tuple[str, ...] = ()
    """Ids of the records that it was drafted from."""
    corroborated_by: tuple[str, ...] = ()
    """Ids of the records that support it."""
    against: tuple[str, ...] = ()
    """Ids of the records against it."""
    decided_by: str = ""
    """ "operator", "autonomy" or "api", "" before a decision."""
    reason: str = ""
    """The reason of its status."""
    trust: Trust = Trust.QUOTED
    """Only the operator activates a quote."""

    @property
    def dedupe_key(self) -> str:
        """The unique key of the candidate."""
        return make_dedupe_key(self.type, self.scope_type, self.scope_id, self.source_label)


@frozen
class Overlay:
    """An effect that is active since `since`. `until` is the end of that, None while it is active. The agent, kind of
    run and workspace are as in `Candidate`."""

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

    def applies_to(self, agent_id: str, run_kind: str | None, workspace: str) -> bool:
        """Whether it applies to this agent, kind of run (None for all) and workspace ("" for none)."""
        return (
            self.agent_id in ("", agent_id)
            and self.workspace in ("", workspace)
            and (run_kind is None or self.run_kind in ("", run_kind))
        )


class LiftVerdict(StrEnum):
    """The result of a trial."""

    NOT_ENOUGH = "not enough evidence"
    HELPS = "helps"
    HARMS = "harms"
    NO_DIFFERENCE = "makes no difference"


@frozen
class Lift:
    """How an overlay changes the share of runs that go well (SPEC 5.7): the `difference` of the shares with and without
    it, and its interval from `low` to `high`, -1 to 1. Each end is wrong with a probability of at most a tenth, however
    often it is read."""

    overlay_id: str
    with_runs: int
    with_good: int
    without_runs: int
    without_good: int
    difference: float
    low: float
    high: float
    verdict: LiftVerdict


@frozen
class EffectPreview:
    """The behaviour before and after a candidate becomes active, as lines. A screen shows their difference."""

    before: tuple[str, ...]
    after: tuple[str, ...]


@frozen
class Stage:
    """One stage of SPEC 5.3: detect, draft, score, corroborate, review, and promote or reject. `state` is "done",
    "now", "ahead" or "failed"; `words` is its result, `at` its time."""

    name: str
    at: datetime | None
    words: str
    state: str


@frozen
class CandidateView:
    """A candidate with its details. `records` are those that it names, oldest first; `overlays` are those of its terms,
    newest first; `lift` is that of the newest, None if it is not measured."""

    candidate: Candidate
    records: tuple[LearningRecord, ...]
    preview: EffectPreview
    lift: Lift | None
    overlays: tuple[Overlay, ...]
    stages: tuple[Stage, ...]
