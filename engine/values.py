"""The small frozen types that services share: ids, money, states, and what a card, a trigger, a permit are.

Standard library only, so that a screen can draw them before anything heavy is imported.
All instants are aware `datetime` in UTC; all money is whole micro-dollars (`int`, 1 USD = 1_000_000).
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

MICRO = 1_000_000


def microusd(dollars: float) -> int:
    """Dollars as whole micro-dollars, rounded half to even."""
    return round(dollars * MICRO)


def dollars(amount: int) -> float:
    """Micro-dollars as dollars, for showing and for JSON."""
    return amount / MICRO


class Randomness:
    """Where ids and chance come from; seeded, it gives the same sequence again (ARCHITECTURE rule 7)."""

    def __init__(self, seed: int | None = None) -> None:
        self._random: random.Random = random.Random(seed) if seed is not None else secrets.SystemRandom()
        self._lock = threading.Lock()

    def new_id(self, prefix: str) -> str:
        """A fresh id such as `pred_7k2m9x4qd1ab`: 12 characters of 36 after the prefix."""
        with self._lock:
            return f"{prefix}_" + "".join(self._random.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=12))

    def pick(self, weights: Mapping[str, float]) -> str:
        """One key, drawn with probability proportional to its weight; weights sum to more than 0."""
        with self._lock:
            return self._random.choices(list(weights), weights=list(weights.values()))[0]

    def uniform(self) -> float:
        """A number in [0, 1)."""
        with self._lock:
            return self._random.random()


class Refusal(Exception):
    """Something that was asked for and is not done, told so that the operator can mend it (SPEC 9.8, 11.2).

    `code` is a stable word for programs, `message` says what and where, `fix` says how to mend it.
    """

    def __init__(self, code: str, message: str, fix: str = "") -> None:
        super().__init__(message if not fix else f"{message} ({fix})")
        self.code = code
        self.message = message
        self.fix = fix


class Status(StrEnum):
    """Where a card stands (SPEC 2.7); sent and shown as stored."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    EXECUTED = "executed"


class Outcome(StrEnum):
    """How a decided card ended (SPEC 2.7)."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    WITHDRAWN = "withdrawn"


class DecidedBy(StrEnum):
    """Who decided a card."""

    OPERATOR = "operator"
    AUTONOMY = "autonomy"
    API = "api"


class Source(StrEnum):
    """What made a card (SPEC 2.7)."""

    TEMPLATE = "template"
    TWIN_MODEL = "twin-model"
    PREDICTOR_HOOK = "predictor-hook"
    EMBEDDED_TWIN = "embedded-twin"
    OPERATOR = "operator"
    FOLLOW_UP = "follow-up"


class TriggerType(StrEnum):
    """What asked for an execution (SPEC 2.7, 3.1)."""

    MANUAL = "manual"
    AUTONOMOUS = "autonomous"
    CRON = "cron"
    FOLLOW_UP = "follow-up"
    HEARTBEAT = "heartbeat"
    RETRY = "retry"


class Verdict(StrEnum):
    """What a rail says: go on, a person must look, or no (SPEC 3.5)."""

    ALLOW = "allow"
    ASK = "ask"
    BLOCK = "block"


class Band(StrEnum):
    """What a confidence means (SPEC 2.5)."""

    DISCARDED = "discarded"  # [0, 0.3)
    CARD = "card"  # [0.3, 0.6)
    SUGGESTED = "suggested"  # [0.6, 0.8)
    ACT = "act"  # [0.8, 1]


class PartOfDay(StrEnum):
    """Morning review, afternoon deep work, evening summary (SPEC 2.1); night is the rest."""

    MORNING = "morning"  # 05:00-11:59
    AFTERNOON = "afternoon"  # 12:00-17:59
    EVENING = "evening"  # 18:00-22:59
    NIGHT = "night"  # 23:00-04:59


def part_of_day(local: datetime) -> PartOfDay:
    """The part of the day that a local time falls into."""
    if 5 <= local.hour < 12:
        return PartOfDay.MORNING
    if 12 <= local.hour < 18:
        return PartOfDay.AFTERNOON
    if 18 <= local.hour < 23:
        return PartOfDay.EVENING
    return PartOfDay.NIGHT


@dataclass(frozen=True, slots=True)
class Assignment:
    """Exactly what is to be done; a permit is bound to its digest (SPEC 3.1).

    `flow` names a deterministic flow, or is None for prose that needs a runner which takes prose.
    `parameters` are the flow's, JSON-able; `workspace` is an absolute path.
    """

    prompt: str
    channel: str
    workspace: str
    runner: str
    flow: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over every field; any edit changes it."""
        canonical = json.dumps(
            [self.prompt, self.channel, self.workspace, self.runner, self.flow, dict(self.parameters)],
            sort_keys=True,
            ensure_ascii=True,
        )
        return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Signal:
    """What one collector found (SPEC 2.1): relevance in [0, 1], its weight in the sum, evidence in words."""

    name: str
    weight: float
    relevance: float
    evidence: tuple[str, ...] = ()
    error: str = ""

    @property
    def share(self) -> float:
        """weight x relevance: what it adds to the ranking."""
        return self.weight * self.relevance


@dataclass(frozen=True, slots=True)
class ConfidenceParts:
    """The four terms of SPEC 2.5, each in [0, 1], before weighting; `total` is what bands use."""

    twin: float
    pattern: float
    urgency: float
    time: float
    total: float
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RailVerdict:
    """One rail's word on one trigger, with its reason in words."""

    rail: str
    verdict: Verdict
    reason: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A request to execute (SPEC 3.1), as the safety pipeline sees it.

    `acknowledged_digest`: the digest whose `ask` the operator saw before approving, or "".
    `approval_bound`: Wilson's lower bound of the operator's past approval of like cards (SPEC 2.5), 0 if unknown.
    """

    prediction_id: str
    type: TriggerType
    assignment: Assignment
    agent: str
    confidence: float
    estimate: int
    decided_by: DecidedBy
    from_channel: str = "owner"
    phase: int = 0
    approval_bound: float = 0.0
    acknowledged_digest: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class Permit:
    """The one thing that lets work start (SPEC 3.1): persisted, single-use, bound to `digest`."""

    id: str
    prediction_id: str
    digest: str
    trigger_type: TriggerType
    issued_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Ruling:
    """The pipeline's decision on a trigger: every rail's verdict in order, and a permit or what blocked it."""

    verdicts: tuple[RailVerdict, ...]
    permit: Permit | None
    blocked_by: RailVerdict | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A piece of work that the state of a workspace suggests, before it is a card (SPEC 2.1, 2.3c).

    `facts` identify the evidence: same workspace, kind and facts = same fingerprint = same card (SPEC 2.9).
    `evidence_at` is when the evidence arose, `usual_hours` how long the like usually waits: urgency (SPEC 2.5).
    `channel` is the task's channel affinity, "" if it has none.
    """

    kind: str
    workspace: str
    prompt: str
    reasoning: str
    facts: Mapping[str, Any]
    flow: str | None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    channel: str = ""
    evidence_at: datetime | None = None
    usual_hours: float = 24.0
    signals: tuple[Signal, ...] = ()
    source: Source = Source.TEMPLATE
    task_id: str | None = None

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex, 32 characters) over workspace, kind and facts."""
        text = json.dumps([self.workspace, self.kind, dict(self.facts)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Card:
    """A prediction as the operator sees it. Names follow SPEC 9.8 where they leave the engine."""

    id: str
    kind: str
    assignment: Assignment
    agent: str
    confidence: float
    band: Band
    parts: ConfidenceParts | None
    reasoning: str
    status: Status
    source: Source
    created_at: datetime
    expires_at: datetime
    signals: tuple[Signal, ...] = ()
    verdicts: tuple[RailVerdict, ...] = ()
    estimate: int = 0
    check_only: bool = True
    undo_note: str = ""
    novel: bool = False
    snoozed_until: datetime | None = None
    shown_at: datetime | None = None
    decided_by: DecidedBy | None = None
    decided_at: datetime | None = None
    outcome: Outcome | None = None
    session_id: str | None = None
    task_id: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """What would carry out an assignment (SPEC 2.7, 3.8, 3.9), asked before a card is shown and before it is approved.

    `takes` is False when no runner does; `reason` then says which one is missing. `estimate` in micro-dollars.
    """

    takes: bool
    reason: str = ""
    check_only: bool = True
    undo_note: str = ""
    sandbox: str = ""
    estimate: int = 0


class DecisionSignal(StrEnum):
    """What the operator's behaviour said about a card (SPEC 8.1)."""

    APPROVED = "approved"
    ORIGINAL = "original"  # what an edit replaced, beside the approval of what it became
    DISMISSED = "dismissed"
    KEPT = "kept"  # executed by itself and not undone within 24 h
    UNDONE = "undone"
    DISCARDED = "discarded"
    EXPIRED = "expired"  # after it was shown
    DID_HIMSELF = "did_himself"


@dataclass(frozen=True, slots=True)
class DecidedCard:
    """A card at the moment of its signal: what learners and preference pairs need of it (SPEC 8.1, 8.2).

    `context` is the situation in words as it was when the card was made; `evidence_at` when its evidence arose.
    """

    prediction_id: str
    kind: str
    channel: str
    workspace: str
    flow: str
    prompt: str
    confidence: float
    decided_by: DecidedBy
    context: str = ""
    evidence_at: datetime | None = None
    original_prompt: str = ""
    """What the prompt was before the operator edited it; "" when it was not edited."""


@dataclass(frozen=True, slots=True)
class PastDecision:
    """One signal of SPEC 8.1, as learners read it. `chosen` is its label, `weight` in (0, 1] how much it says.

    `part` and `weekend` are of the operator's own time; `waited_hours` from the evidence to the decision.
    """

    kind: str
    channel: str
    workspace: str
    flow: str
    words: frozenset[str]
    part: PartOfDay
    weekend: bool
    chosen: bool
    weight: float
    waited_hours: float | None
    at: datetime


@dataclass(frozen=True, slots=True)
class CalibrationCheck:
    """Whether stated confidences come true (SPEC 2.6, 8.6). `error` is the expected calibration error over 10 bins on
    `held_out` decisions, `bound` the 95th percentile of what perfectly calibrated scores would show."""

    held_out: int
    holds: bool
    reason: str
    error: float | None = None
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """How far the operator's decisions carry (SPEC 2.6): 0 templates, 1 a Twin, 2 a Twin whose confidence holds."""

    number: int
    decisions: int
    reason: str


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What a prediction cycle did. `withdrawn` are ids of cards, `errors` words, `seconds` wall time.

    `fresh` is False for who came while the cycle was running and got its report.
    """

    created: tuple[Card, ...] = ()
    withdrawn: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    seconds: float = 0.0
    fresh: bool = True


class SessionState(StrEnum):
    """Where a session stands (SPEC 3.8)."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    INTERRUPTED = "interrupted"

    @property
    def over(self) -> bool:
        """True when the session will not change any more."""
        return self not in (SessionState.QUEUED, SessionState.RUNNING)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a run of the project's own tests said. `durations` are seconds by test id, slowest first."""

    tool: str
    passed: int
    failed: int
    skipped: int = 0
    errors: int = 0
    seconds: float = 0.0
    failing: tuple[str, ...] = ()
    durations: tuple[tuple[str, float], ...] = ()

    @property
    def green(self) -> bool:
        """True when nothing failed and at least one test ran."""
        return self.failed == 0 and self.errors == 0 and self.passed > 0


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session as screens and verbs see it."""

    id: str
    prediction_id: str
    prompt: str
    workspace: str
    channel: str
    agent: str
    runner: str
    flow: str | None
    state: SessionState
    mode: str  # "approved" or "autonomous"
    sandbox: str
    cwd: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    tokens: int
    cost: int
    summary: str
    error: str = ""
    check: CheckResult | None = None
    change_set_id: str | None = None
    lines: int = 0


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One line of a session's transcript. kind: "command", "output", "note", "error" or "exit"."""

    number: int
    at: datetime
    kind: str
    text: str


class ChangeState(StrEnum):
    """Where a change set stands (SPEC 3.9)."""

    WAITING = "waiting"
    LANDED = "landed"
    BRANCHED = "branched"
    DISCARDED = "discarded"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file of a change set. status: "added", "modified", "deleted", "renamed", "mode"; lines None for binary."""

    path: str
    status: str
    added: int | None
    removed: int | None
    old_path: str = ""


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What a session changed, waiting to be landed."""

    id: str
    session_id: str
    prediction_id: str
    workspace: str
    state: ChangeState
    files: tuple[FileChange, ...]
    title: str
    created_at: datetime
    decided_at: datetime | None = None
    branch: str = ""
    check: CheckResult | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One file of a change set as a screen shows it: `hunks` is sanitised unified diff text, "" for binary files.

    status as in `FileChange`; `cut` says that `hunks` was too long and ends early.
    """

    path: str
    status: str
    old_path: str
    binary: bool
    hunks: str
    cut: bool = False


@dataclass(frozen=True, slots=True)
class LandPreview:
    """Whether a change set would land now (SPEC 3.9). `conflicts`: files that both sides changed; `in_the_way`: what
    stands where a file must go; `unsupported`: files that cannot be landed, with the reason in words."""

    clean: bool
    conflicts: tuple[str, ...] = ()
    in_the_way: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    files: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """One entry of the task board. state: open, running, done, failed."""

    id: str
    title: str
    state: str
    channel: str
    workspace: str
    source: str
    created_at: datetime
    updated_at: datetime
    session_id: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """Something that stops or pauses the engine until its own word lifts it (SPEC 3.7)."""

    word: str  # "stop", "pause", "month"
    reason: str
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class CostState:
    """Settled plus reserved cost in each window, and the caps, all in micro-dollars (SPEC 3.4)."""

    hour: int
    day: int
    month: int
    hour_cap: int
    day_cap: int
    month_cap: int


@dataclass(frozen=True, slots=True)
class AgentView:
    """A member of the hierarchy as its folder says. `broken` holds the reason when the folder cannot be read."""

    id: str
    title: str
    reports_to: str
    tier: int
    tier_rule: str
    domain: str
    channels: tuple[str, ...]
    state: str = "idle"
    tokens: int = 0
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One entry of the operator's queue (SPEC 9.3): what waits, since when, and where a key leads."""

    kind: str  # "change_set", "permission", "bubble", "candidate", "interrupted"
    id: str
    title: str
    since: datetime
    session_id: str | None = None


# Text from agents, models, files and git is hostile: escapes and control characters never reach a terminal.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, ended by BEL or ST
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[@-_]?"  # two-character escapes, stray ESC
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def sanitise(text: str, *, tab_size: int = 4) -> str:
    """`text` without escape sequences, C0/C1 controls (newline kept, tab expanded) and direction overrides."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text)).expandtabs(tab_size)


_PROMPT_WORD = re.compile(r"[a-z0-9_]{3,}")


def prompt_words(prompt: str) -> frozenset[str]:
    """The words by which prompts are compared: lower case, three characters or more."""
    return frozenset(_PROMPT_WORD.findall(prompt.lower()))


def as_tuple(items: Sequence[Any] | None) -> tuple[Any, ...]:
    """A sequence read from JSON as a tuple; None is empty."""
    return tuple(items or ())
