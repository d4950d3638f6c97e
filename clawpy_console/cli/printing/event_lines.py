"""What a fact of the ledger is in words: the lines of `clawpy run` and `clawpy serve` (SPEC 7.5).

Every kind that the ledger keeps has its sentence here, or is told by another one's; a test goes over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from clawpy_console.cli.printing.style import count, time
from engine import kind_title
from engine.values import Tier

MOST = 3
"""Names that a line tells before it counts the others."""

TIERS = {int(one): one.word for one in Tier}

ELSEWHERE = frozenset(
    {"PermitIssued", "CostReserved", "CostSettled", "SessionQueued", "OperatorActed", "EngineStopped"}
)
"""Facts that belong to another line."""


def in_words(kind: str, subject: str, payload: Mapping[str, Any]) -> str:
    """A fact as one line. One of a kind that a newer release recorded is told by its fields."""
    told = WORDS.get(kind)
    if told is not None:
        return told(SimpleNamespace(subject=subject, **payload))
    return " ".join([kind, subject, *(f"{name}={value}" for name, value in payload.items())])


def _cycle(event: Any) -> str:
    done = f"started {event.acted}" if event.acted else event.reason or "nothing that may run by itself"
    held = [f"{len(event.blocked)} blocked"] if event.blocked else []
    held += [f"{count(len(event.kept), 'card')} left to you"] if event.kept else []
    return ", ".join([f"autonomous cycle: {done}", *held]) + _also(event.errors)


def _night(event: Any) -> str:
    return (
        f"night of {event.subject}: {count(event.promoted, 'fact')} kept, {event.drafted} drafted{_why(event.reason)}"
    )


def _why(reason: str) -> str:
    return f"; {reason}" if reason else ""


def _also(errors: Sequence[str]) -> str:
    return "".join(f"; {error}" for error in errors)


def _names(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`, each name once."""
    each = list(dict.fromkeys(names))
    more = len(each) - MOST
    return ", ".join(each[:MOST]) + (f" and {more} more" if more > 0 else "") or "nobody"


def _money(microusd: int) -> str:
    return f"${microusd / 1e6:.2f}"


def _red(event: Any) -> str:
    return f"{count(len(event.failing), 'red test')} ({_names(event.failing)})" if event.failing else "red tests"


def _after(event: Any) -> str:
    return f"after {count(event.attempts, 'attempt')} and {_money(event.cost)}"


def _changed(event: Any) -> str:
    if not event.file:
        return f"the folder of agent {event.subject} came or went {event.how}"
    return f"{event.file} of {event.subject} was edited {event.how}"


def _tier(event: Any) -> str:
    if event.tier is None:
        return f"the rules decide again which tier {event.subject} is"
    return f"{event.subject} is of tier {event.tier} from now on, at the operator's word"


def _setting(event: Any) -> str:
    if event.subject == "dnd":
        return "do not disturb ended" if event.value == "off" else f"do not disturb until {event.value}"
    return f"setting {event.subject} is now {event.value or 'empty'}"


def _discarded(event: Any) -> str:
    if event.continued_in:
        return f"change set {event.subject} went on in session {event.continued_in}"
    return f"change set {event.subject} was thrown away"


def _answered(event: Any) -> str:
    verb, _, lasts = str(event.answer).partition("-")
    said = "allowed" if verb == "allow" else "denied"
    span = "for the whole session" if lasts == "session" else "this once"
    return f"{event.by} {said} {event.tool} in session {event.session_id} {span}"


def _overlapped(event: Any) -> str:
    told = f"change set {event.subject} touches what {event.other} touches: {_names(event.files)}"
    return f"{told}; {count(len(event.conflicting), 'file')} in conflict" if event.conflicting else told


def _stands(status: str) -> str:
    return {"review": "in review", "promoted": "active"}.get(status, status.replace("_", " "))


def _weighed(event: Any) -> str:
    where = "waits for your word" if event.status == "review" else f"is {event.status} again"
    against = f", {len(event.against)} against" if event.against else ""
    told = f"{len(event.corroborated_by)} for it{against}"
    return f"candidate {event.subject} {where}: score {event.score:.0f}, {told}"


def _harmful(event: Any) -> str:
    whose = f" of {event.agent}" if event.agent else ""
    return (
        f"{event.candidate_id}, in force, seems to do harm to the work{whose}: {event.with_good} of "
        f"{event.with_runs} went well with it, {event.without_good} of {event.without_runs} without"
    )


def _noisy(event: Any) -> str:
    return (
        f"{event.subject} may do {event.agent} harm: {event.told_bad} of {event.told} sessions told of it ended badly, "
        f"{event.untold_bad} of {event.untold} without"
    )


def _stale(event: Any) -> str:
    if event.gone:
        return f"{event.subject}, which {event.leader} says, names what is gone: {_names(event.gone)}"
    return f"{event.subject}, which {event.leader} says, is {count(event.days, 'day')} old; {event.most} are the rule"


def _judged(event: Any) -> str:
    verdict = {"generalises": "holds beyond its project", "does not": "holds in its project only"}
    said = verdict.get(event.verdict, "was not judged")
    return f"learning {event.subject} {said}{_why(event.reason)}"


WORDS: Mapping[str, Callable[[Any], str]] = {
    # The engine, its settings and doors
    "EngineStarted": lambda e: "; ".join([f"engine {e.version} started", *e.recovered]),
    "StateChanged": lambda e: f"{e.before} → {e.after}: {e.cause}",
    "SettingChanged": _setting,
    "GatewayOpened": lambda e: f"listening at {e.subject} ({e.words})",
    "GatewayClosed": lambda e: f"no longer listening at {e.subject}",
    "NotificationsGivenUp": lambda e: (
        f"{count(e.number, 'notification')} not delivered to the {e.subject}, and tried no further{_why(e.reason)}"
    ),
    "FaultReported": lambda e: f"fault in {e.where}: {e.message}",
    "RowsLetGo": lambda e: (
        f"kept long enough: {', '.join(f'{n} of {table}' for table, n in e.rows.items()) or 'nothing'}"
    ),
    # Cards, tasks, the Twin
    "CycleFinished": lambda e: f"cards: {e.created} new, {e.withdrawn} withdrawn" + _also(e.errors),
    "AutonomousCycleFinished": _cycle,
    "PredictionCreated": lambda e: (
        f"card {e.subject}: {e.flow or 'prose'} on {e.channel}, "
        f"{f'{e.confidence:.0%}, ' if e.stated else ''}{TIERS.get(e.tier, e.tier)}, {e.source}"
    ),
    "PredictionConfirmed": lambda e: f"approved by {e.decided_by}: {e.subject}",
    "PredictionRejected": lambda e: f"dismissed by {e.decided_by}: {e.subject}",
    "DismissalExplained": lambda e: f"dismissed as {e.reason.replace('-', ' ')}: {e.subject}",
    "MuteLifted": lambda e: f"no longer muted: cards “{kind_title(e.card_kind)}” ({e.subject})",
    "PredictionSnoozed": lambda e: f"put off until {time(e.until)}: {e.subject}",
    "PredictionExpired": lambda e: f"{'withdrawn' if e.withdrawn else 'expired'}: {e.subject}, {e.reason}",
    "PredictionReopened": lambda e: f"pending again: {e.subject}",
    "PredictionReassigned": lambda e: (
        f"card {e.subject} would be done by {e.served}"
        if e.served
        else f"nobody would do card {e.subject}{_why(e.note)}"
    ),
    "PredictionExecuted": lambda e: f"executed: {e.subject}, {e.outcome.replace('_', ' ')}",
    "TaskAdded": lambda e: f"task {e.subject}: {e.title}",
    "TaskChanged": lambda e: f"task {e.subject}: {e.state}",
    "PairsExported": lambda e: f"{count(e.pairs, 'preference pair')} written to {e.file}",
    "TwinAnswered": lambda e: (
        f"Twin model {e.subject} answered"
        if e.usable
        else f"Twin model {e.subject} gave no answer of use{_why(e.reason)}"
    ),
    "TrainingMoved": lambda e: f"training {e.subject} is {str(e.state).replace('_', ' ')}{_why(e.note)}",
    # Rails, costs, holds
    "TriggerBlocked": lambda e: f"blocked by {e.rail}: {e.subject}, {e.reason}",
    "LoopDetected": lambda e: f"loop: {e.reason}",
    "CostWarned": lambda e: f"cost: {_money(e.spent)} of the {e.window}'s {_money(e.cap)}",
    "BudgetExceeded": lambda e: f"budget of {e.subject}: {_money(e.spent)} of {_money(e.budget)}",
    "HoldPlaced": lambda e: f"{e.subject}: {e.reason}",
    "HoldLifted": lambda e: f"the {e.subject} ended: {e.reason}",
    # Sessions and what they changed
    "SessionStarted": lambda e: f"session {e.subject} started for {e.prediction_id}, sandbox {e.sandbox}",
    "SessionEnded": lambda e: f"session {e.subject} {e.state}, {_money(e.cost)}: {e.summary}",
    "PermissionAsked": lambda e: f"session {e.session_id} asks leave for {e.tool}: {e.title}",
    "PermissionAnswered": _answered,
    "PermissionWithdrawn": lambda e: f"nobody need answer {e.subject} any more: {e.reason}",
    "ToolRefused": lambda e: f"session {e.subject} was not let use {e.tool}, by {e.rule}: {e.reason}",
    "AgentErred": lambda e: f"{e.agent} in session {e.subject}: {e.tool or 'it'} failed, {e.message}",
    "ToolsUsed": lambda e: (
        f"{e.agent} made {count(len(e.calls), 'tool call')} in session {e.subject}: {_names(e.calls)}"
    ),
    "ChangeSetReady": lambda e: f"change set {e.subject} waits: {count(e.files, 'file')}",
    "ChangeSetLanded": lambda e: (
        f"landed: {e.subject}, {count(e.files, 'file')}" + (f", {e.left} left" if e.left else "")
    ),
    "ChangeSetCommented": lambda e: f"change set {e.subject} has {count(e.comments, 'comment')}",
    "ChangeSetNarrowed": lambda e: f"the rest of change set {e.subject} was discarded",
    "ChangeSetBranched": lambda e: f"change set {e.subject} was committed to the branch {e.branch}",
    "ChangeSetDiscarded": _discarded,
    "LandingUndone": lambda e: f"landing undone: {e.subject}",
    "WorkOverlapped": _overlapped,
    "ValidationFailed": lambda e: f"{e.agent} gave up on {_red(e)} {_after(e)}{_why(e.reason)}",
    "ValidationHealed": lambda e: f"{e.agent} mended {_red(e)} {_after(e)}",
    "RetryRepeated": lambda e: f"{e.agent} tried again, and the same tests stay red: {_names(e.failing)}",
    # Agents and what flows between them
    "AgentAdded": lambda e: f"{e.subject} joined, and reports to {e.reports_to or 'nobody'}",
    "AgentMoved": lambda e: f"{e.subject} reports to {e.after or 'nobody'} now, no longer to {e.before or 'nobody'}",
    "AgentRetired": lambda e: f"{e.subject} was retired",
    "AgentFileChanged": _changed,
    "TierAssigned": _tier,
    "ProfileEdited": lambda e: f"the profile of {e.subject} was edited: {e.section}, {e.key}",
    "GuidanceApplied": lambda e: f"guidance of {_names(e.sources)} went to {e.subject}: {count(e.tokens, 'token')}",
    "GuidanceFoundNoisy": _noisy,
    "GuidanceFoundStale": _stale,
    "WisdomTaught": lambda e: f"the soul of {e.subject} was taught what {_names(e.leaders)} say",
    "TeachingRefreshed": lambda e: f"teaching: {count(e.taught, 'soul')} rewritten, {e.unchanged} as they were",
    "BubbleApproved": lambda e: f"you let a finding of {e.agent} go up to {e.leader}",
    "BubbleQueued": lambda e: f"a finding of {e.agent} waits to go up to {e.leader}",
    "BubbleRefused": lambda e: f"a finding of {e.agent} stays with it, refused at {e.gate}: {e.reason}",
    "MemoryBubbleFlushed": lambda e: f"{count(len(e.bubbles), 'finding')} of {_names(e.agents)} went up to {e.subject}",
    "CloudSyncFailed": lambda e: f"{e.subject} not shared with other machines: {e.message}; {e.unsent} unsent",
    "CloudMemoryRecalled": lambda e: (
        f"{e.subject} was told {count(len(e.memories), 'shared note')} from {_names(e.origins)}"
    ),
    # Memory, learnings, behaviour
    "LearningsExtracted": lambda e: f"session {e.subject} left {count(e.entries, 'learning')}, found by {e.by}",
    "LearningPromoted": lambda e: (
        f"learnt: {e.subject} holds in {e.scope} now, from {count(len(e.sessions), 'session')}"
    ),
    "LearningReinforced": lambda e: f"{count(len(e.sessions), 'session')} said again what {e.subject} says",
    "LearningsCompacted": lambda e: f"{count(len(e.folded), 'learning')} of {e.subject} said the same, and are one now",
    "LearningJudged": _judged,
    "LearningRetracted": lambda e: (
        f"learning {e.subject} was retracted{_why(e.reason)}"
        + (f"; {len(e.queued)} promoted from it wait for your word" if e.queued else "")
    ),
    "LearningKept": lambda e: f"learning {e.subject} goes on holding, at the operator's word",
    "FactPromoted": lambda e: f"fact {e.subject} is kept for good, by {e.by}",
    "FactRejected": lambda e: f"the draft {e.subject} of a fact was turned down",
    "NightlyFinished": _night,
    "MemoryForgotten": lambda e: f"forgotten in {count(e.places, 'place')}, at the operator's word",
    "OverlayFoundHarmful": _harmful,
    "CandidateDrafted": lambda e: f"candidate {e.subject}: {e.title}",
    "CandidateWeighed": _weighed,
    "CandidatePromoted": lambda e: f"active by {e.by}: {e.subject}, {e.title}",
    "CandidateRejected": lambda e: f"turned down by {e.by}: {e.subject}, {e.title}{_why(e.reason)}",
    "CandidateRolledBack": lambda e: f"rolled back by {e.by}: {e.subject}, {e.title}{_why(e.reason)}",
    "CandidateDecisionUndone": lambda e: (
        f"your decision was undone: {e.subject}, {e.title}, is {_stands(e.status)} again"
    ),
}
"""The sentence of each kind."""
