"""Reads ledger entries into learning records: a function for each kind of entry, with its formula (SPEC 5.1).

`reflection` calls them. A record has a score from 0 to 100, which is the sum of its parts, and each part has a
reason. From `MIN_OPPORTUNITY_SCORE` points on, a candidate can be drafted from it (SPEC 5.3). The formulas give that
many points to events after which an agent could act differently, and fewer to plain success. `CandidateSources`
supplies what an entry does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from engine.config import ACP_PREFIX, MODEL
from engine.inference import compute_share
from engine.learning.candidates import EntryReading, RecordIdentity, ScorePart
from engine.lessons import distil_rule, find_added_sentences, normalise
from engine.model import PermissionAnswer, Trust
from engine.model.adaptation import LearningRecord, RecordKind
from engine.model.decisions import Correction
from engine.text import jaccard, quote
from engine.wording import MICRO, count, money

FULL_COST_MICROUSD = MICRO // 2
"""Cost of healing in micro-dollars that gives all points for cost. It is the default cap in the settings."""

FULL_BREADTH = 5
"""Number of tests, files or conflicts that gives all points for their number."""

MAX_TESTS = 5
"""Maximum number of tests of one session that become records, the first by name."""

MAX_ADDED_SENTENCES = 5
"""Maximum number of sentences of one edit that become records."""

# -- points


def _score_each(points: float, max_counted: int, number: int, noun: str, ending: str = "") -> ScorePart:
    """`points` for each of a `number` of things, of which at most `max_counted` count."""
    return points * min(max_counted, number), count(number, noun) + ending


def _score_earlier(points: float, max_counted: int, number: int, event: str) -> ScorePart:
    """`points` for each time that an event happened before, of which at most `max_counted` count."""
    times = "once" if number == 1 else f"{number} times"
    return points * min(max_counted, number), f"{event} {times} before"


def _score_cost(points: float, cost: int) -> ScorePart:
    """Up to `points` for a cost in micro-dollars."""
    return points * compute_share(cost, FULL_COST_MICROUSD), f"{money(cost)} spent on it"


# -- tests


def _read_healed_tests(reading: EntryReading) -> Iterator[LearningRecord]:
    """The tests of a session passed in the end, see `score_heal`."""
    attempts, cost, failing = reading.values("attempts", "cost", "failing")
    parts, details = score_heal(attempts, cost, len(failing)), reading.select("attempts", "cost")
    yield from _make_test_records(reading, RecordKind.SUCCESSFUL_HEAL, parts, failing, details)


def score_heal(attempts: int, cost: int, failing: int) -> tuple[ScorePart, ...]:
    """The points of a repair after which tests passed: 60, 20 divided by the number of attempts, up to 10 for the cost,
    up to 10 for the number of tests."""
    tries = max(1, attempts - 1)
    return (
        (60.0, "failing tests were fixed"),
        (20.0 / tries, f"at attempt {tries}"),
        _score_cost(10.0, cost),
        _score_each(2.0, FULL_BREADTH, failing, "test"),
    )


def _read_failed_tests(reading: EntryReading) -> Iterator[LearningRecord]:
    """The tests of a session still failed: 45 points, 10 for each attempt to fix them up to 30, up to 15 for the cost,
    up to 10 for the number of failing tests."""
    attempts, cost, failing, reason = reading.values("attempts", "cost", "failing", "reason")
    parts = (
        (45.0, "tests still failed"),
        _score_each(10.0, 3, max(0, attempts - 1), "attempt", " to fix them"),
        _score_cost(15.0, cost),
        _score_each(2.0, FULL_BREADTH, len(failing), "test"),
    )
    details = reading.select("attempts", "cost") | {"gave_up": reason}
    yield from _make_test_records(reading, RecordKind.FAILED_TDD, parts, failing, details)


def _make_test_records(
    reading: EntryReading,
    kind: RecordKind,
    parts: Iterable[ScorePart],
    tests: Iterable[str],
    details: Mapping[str, Any],
    *,
    agent: str = "",
) -> Iterator[LearningRecord]:
    """A record for each test, in the scope of its workspace. A change set that was `landed` gives each test one record,
    however often it is read."""
    failing = sorted(map(str, tests))
    for test in failing[:MAX_TESTS]:
        unique_by = f"{details['landed']}/{test}" if "landed" in details else ""
        identity = RecordIdentity(cause=test, key=test, unique_by=unique_by)
        test_details = {"test": test, "failing": failing, **details}
        yield reading.record(kind, reading.workspace_scope, parts, test_details, identity, agent=agent)


def _read_retry(reading: EntryReading) -> Iterator[LearningRecord]:
    """Attempts changed nothing: 45 points, 10 for each attempt up to 30, up to 25 for their cost."""
    agent, attempts, cost = reading.values("agent", "attempts", "cost")
    parts = (
        (45.0, "another attempt left the same tests failing"),
        _score_each(10.0, 3, max(0, attempts - 1), "attempt", " made"),
        _score_cost(25.0, cost),
    )
    details = reading.select("attempts", "cost", "failing")
    yield reading.record(RecordKind.REPEATED_RETRY, ("agent", agent), parts, details)


# -- overlaps, budgets and errors


def _read_overlap(reading: EntryReading) -> Iterator[LearningRecord]:
    """Two agents changed the same files, see `_score_overlap`."""
    agent, files, conflicting = reading.values("agent", "files", "conflicting")
    parts = _score_overlap(len(files), len(conflicting))
    details = reading.select("files", "conflicting", "other")
    details |= {"change_set": reading.entry.subject, "other_session": reading.entry.payload["other_session_id"]}
    yield reading.record(RecordKind.TASK_CONFLICT, ("agent", agent), parts, details)


def _score_overlap(files: int, conflicting: int) -> tuple[ScorePart, ...]:
    """The points of an overlap in a number of files. If both changes can land: 20 points, 4 for each file up to 20. If
    only one can: 50 points, up to 25 for the share of files that conflict, 4 for each of these up to 20."""
    common = _score_each(4.0, FULL_BREADTH, files, "file", " in common")
    if not conflicting:
        return (20.0, "both can land"), common
    return (
        (50.0, "only one of the two can land"),
        (25.0 * compute_share(conflicting, files), f"{conflicting} of {common[1]} conflict"),
        _score_each(4.0, FULL_BREADTH, conflicting, "conflict"),
    )


def _read_exceeded_budget(reading: EntryReading) -> Iterator[LearningRecord]:
    """A budget blocked work: 50 points, up to 10 for the share that was spent, up to 40 for the amount above it. There
    is one record a day, even if the budget blocks the agent many times."""
    agent = reading.entry.subject
    day = reading.entry.at.astimezone(reading.zone).date().isoformat()
    spent, budget = reading.values("spent", "budget")
    parts = (
        (50.0, f"the day's budget of {money(budget)} blocked work"),
        (10.0 * compute_share(spent, budget), f"{money(spent)} of it was spent"),
        (40.0 * compute_share(max(0, spent - budget), budget), "it was exceeded"),
    )
    details = {"spent": spent, "budget": budget, "day": day}
    identity = RecordIdentity(unique_by=f"{agent}/{day}")
    yield reading.record(RecordKind.BUDGET_INCIDENT, ("agent", agent), parts, details, identity)


_ERROR_CODE = re.compile(r"^([a-z][a-z_]{2,40}): ")
"""The error code at the beginning of a tool's message."""


def _read_error(reading: EntryReading) -> Iterator[LearningRecord]:
    """An error: 50 points for a call of a tool, and 30 for a model or coding agent that failed, since guidance cannot
    prevent that. 10 more if the tool gave an error code, and 5 for each time that it happened before, up to 20."""
    agent, tool, message = map(str, reading.values("agent", "tool", "message"))
    coded = None if tool == "exec" else _ERROR_CODE.match(message)
    is_model = tool == MODEL or tool.startswith(ACP_PREFIX)
    kind, scope = RecordKind.AGENT_ERROR, ("agent", agent)
    cause = f"{tool}/{coded[1] if coded else make_cause_slug(message)}"
    parts = (
        (30.0, "a model or program failed") if is_model else (50.0, f"a call of {tool} failed"),
        (10.0 * (coded is not None), "the tool said what was wrong"),
        _score_earlier(5.0, 4, reading.count_earlier(kind, cause, scope), "it happened"),
    )
    details = {"tool": tool, "message": message}
    yield reading.record(kind, scope, parts, details, RecordIdentity(cause, f"{tool}/{message}"))


def _read_sync_failure(reading: EntryReading) -> Iterator[LearningRecord]:
    """The shared database could not be reached: 40 points, 2 for each unsent row up to 30, 5 for each earlier outage
    up to 30."""
    kind, scope, cause = RecordKind.CLOUD_SYNC_FAILURE, ("leader", ""), reading.entry.subject
    unsent = reading.entry.payload["unsent"]
    parts = (
        (40.0, "the shared database could not be reached"),
        (2.0 * min(15, unsent), f"{unsent} unsent"),
        _score_each(5.0, 6, reading.count_earlier(kind, cause, scope), "outage", " before"),
    )
    yield reading.record(kind, scope, parts, reading.entry.payload, RecordIdentity(cause))


# -- what the operator decides


def _read_card_approval(reading: EntryReading) -> Iterator[LearningRecord]:
    """The operator approved a card. Unchanged: 20 points, since nothing needs to change. After an edit of its prompt,
    each added sentence gets 50 points, up to 40 for the share of words that changed, and 10 if words were added."""
    payload = reading.entry.payload
    by = payload["decided_by"]
    if by == "autonomy":
        return
    edit = reading.sources.find_correction(reading.entry.subject) if payload.get("edited") else None
    if edit is not None:
        yield from _read_edit(reading, edit, by)
        return
    kind, part = RecordKind.HUMAN_APPROVAL, (20.0, "a card was approved unchanged")
    yield reading.record(kind, reading.workspace_scope, [part], {"by": by}, RecordIdentity("card"))


def _read_edit(reading: EntryReading, edit: Correction, by: str) -> Iterator[LearningRecord]:
    """The operator edited a card's prompt before approving it: a record for each added sentence."""
    changed = 1.0 - jaccard(edit.original.lower().split(), edit.edited.lower().split())
    for number, sentence in enumerate(find_added_sentences(edit.original, edit.edited)[:MAX_ADDED_SENTENCES]):
        added = len(sentence.split())
        parts = (
            (50.0, "you edited it before approving it"),
            (40.0 * changed, f"{changed:.0%} of its words changed"),
            (10.0 * (added > 0), f"{count(added, 'word')} added"),
        )
        details = {
            "card": reading.entry.subject,
            "original": edit.original[:500],
            "edited": edit.edited[:500],
            "added": sentence[:300],
            "kind": edit.kind,
            "channel": edit.channel,
            "by": by,
        }
        identity = RecordIdentity(
            cause=f"edited:{edit.channel}:{make_cause_slug(distil_rule(sentence).text)}", key=f"edit {number}"
        )
        scope = ("agent", edit.agent)
        yield reading.record(RecordKind.HUMAN_APPROVAL, scope, parts, details, identity, session_id=edit.session)


def _read_permission(reading: EntryReading) -> Iterator[LearningRecord]:
    """The operator allowed a tool: 25 points for one call, 30 for the session. Nothing needs to change."""
    tool, answer = reading.values("tool", "answer")
    if not PermissionAnswer(answer).allows or reading.entry.payload.get("by"):  # `by`: an earlier answer was reused
        return
    part = (25.0, "a tool was allowed once")
    if answer == PermissionAnswer.ALLOW_SESSION:
        part = (30.0, "a tool was allowed for the whole session")
    scope, cause = reading.workspace_scope, f"permission:{tool}"
    yield reading.record(RecordKind.HUMAN_APPROVAL, scope, [part], {"tool": tool}, RecordIdentity(cause))


def _read_landing(reading: EntryReading) -> Iterator[LearningRecord]:
    """Changes were landed or committed: 25 points, 2 for each file up to 10, once for each change set. The tests that
    they fixed get records too, see `score_heal`."""
    payload, change_set = reading.entry.payload, reading.entry.subject
    is_branch = reading.entry.kind == "ChangeSetBranched"
    files = payload.get("landed", 0) if is_branch else payload["files"]
    if payload.get("left") or (is_branch and not files):  # the operator has not decided on the rest yet
        return
    kind, scope, details = RecordKind.HUMAN_APPROVAL, reading.workspace_scope, {"files": files}
    parts = (25.0, "changes were landed"), _score_each(2.0, FULL_BREADTH, files, "file")
    yield reading.record(kind, scope, parts, details, RecordIdentity("change_set", unique_by=change_set))
    repair = reading.sources.find_healed_tests(str(payload["session_id"]))
    if repair is not None:
        causes = sorted({cause for cause in repair.tests.values() if cause})
        details = {"causes": causes, "project": repair.project, "landed": change_set, "cost": repair.cost}
        healed = score_heal(1, repair.cost, len(repair.tests))
        kind = RecordKind.SUCCESSFUL_HEAL
        yield from _make_test_records(reading, kind, healed, repair.tests, details, agent=repair.agent)


def _read_kept_fact(reading: EntryReading) -> Iterator[LearningRecord]:
    """The operator kept a fact: 65 points, 10 if it is in the operator's own words or was measured, 5 for each time
    that the same fact was kept before, up to 20."""
    kind, scope, fact_id = RecordKind.HUMAN_APPROVAL, reading.workspace_scope, reading.entry.subject
    kept_fact = reading.sources.find_kept_fact(fact_id) if reading.entry.payload["by"] == "operator" else None
    if kept_fact is None or not kept_fact.fact:
        return
    cause = f"fact:{'-'.join(normalise(kept_fact.fact).split())[:80]}"
    parts = (
        (65.0, f"you kept {quote(kept_fact.fact, 120)} as a fact"),
        (10.0 * (kept_fact.trust is not Trust.QUOTED), "in your own words, or measured"),
        _score_earlier(5.0, 4, reading.count_earlier(kind, cause, scope), "the same fact was kept"),
    )
    details = {"kept": fact_id, "text": kept_fact.fact, "trust": kept_fact.trust.value}
    yield reading.record(kind, scope, parts, details, RecordIdentity(cause))


# -- guidance and recall


def _read_findings(reading: EntryReading) -> Iterator[LearningRecord]:
    """Findings reached a leader: up to 50 points for their confidence, up to 50 for their importance."""
    columns = reading.values("bubbles", "patterns", "agents", "confidences", "importances")
    for bubble, pattern, agent, confidence, importance in zip(*columns, strict=True):
        parts = (
            (50.0 * compute_share(confidence, 1.0), f"confidence {confidence:.2f}"),
            (50.0 * compute_share(importance, 1.0), f"importance {importance:.2f}"),
        )
        details = {"bubble": bubble, "leader": reading.entry.subject, "pattern": pattern}
        yield reading.record(RecordKind.SUCCESSFUL_BUBBLE, ("agent", agent), parts, details, RecordIdentity(key=bubble))


def _read_guidance(reading: EntryReading) -> Iterator[LearningRecord]:
    """Guidance was in a prompt: 20 points, 2 for each item up to 20, 5 for each leader up to 15."""
    items, leaders = reading.values("items", "sources")
    parts = (
        (20.0, "guidance was in the prompt"),
        _score_each(2.0, 10, len(items), "item"),
        (5.0 * min(3, len(leaders)), f"by {count(len(leaders), 'leader')}"),
    )
    details = reading.select("call", "sources", "items")
    yield reading.record(RecordKind.GUIDANCE_APPLIED, ("agent", reading.entry.subject), parts, details)


def _read_harm(reading: EntryReading) -> Iterator[LearningRecord]:
    """Work with an item of guidance or with an overlay fails more often: 60 points, up to 40 for the difference of the
    shares (all 40 from one half on). A harmful overlay is rolled back, and counts against similar candidates."""
    payload = reading.entry.payload
    is_overlay = reading.entry.kind == "OverlayFoundHarmful"
    harm = max(0.0, -payload["high"]) if is_overlay else payload["harm"]
    parts = (
        (60.0, "work with it fails more often than by chance"),
        (40.0 * compute_share(harm, 0.5), f"by {harm:.0%} at least"),
    )
    scope, identity = ("agent", payload["agent"]), RecordIdentity("overlay" if is_overlay else "")
    yield reading.record(RecordKind.GUIDANCE_NOISY, scope, parts, _make_reference_details(reading), identity)


def _read_stale_guidance(reading: EntryReading) -> Iterator[LearningRecord]:
    """Guidance is older than its limit: 40 points, up to 20 for the time above the limit (all 20 at twice the limit), 2
    for each recent session with it up to 20."""
    days, max_days, session_count, leader = reading.values("days", "most", "told", "leader")
    parts = (
        (40.0, "it is past its age limit"),
        (20.0 * compute_share(days - max_days, max_days), f"{count(days, 'day')} old; the limit is {max_days}"),
        _score_each(2.0, 10, session_count, "session", " used it recently"),
    )
    yield reading.record(RecordKind.STALE_GUIDANCE, ("leader", leader), parts, _make_reference_details(reading))


def _make_reference_details(reading: EntryReading) -> Mapping[str, Any]:
    """The fields of an entry about guidance, with its reference."""
    return {"ref": reading.entry.subject, **reading.entry.payload}


def _read_teaching(reading: EntryReading) -> Iterator[LearningRecord]:
    """Guidance was written into souls: 10 points, up to 40 for the share of souls that changed."""
    taught, unchanged = reading.values("taught", "unchanged")
    parts = (
        (10.0, "guidance was written into soul.md"),
        (40.0 * compute_share(taught, taught + unchanged), count(taught, "soul")),
    )
    yield reading.record(RecordKind.TEACHING_REFRESH, ("leader", ""), parts, reading.entry.payload)


def _read_recall(reading: EntryReading) -> Iterator[LearningRecord]:
    """A memory of another machine was useful here: 45 points, 5 for each time that it was before, up to 40."""
    kind, scope = RecordKind.CLOUD_MEMORY_RECALL_HIT, ("agent", reading.entry.subject)
    for memory, origin in zip(*reading.values("memories", "origins"), strict=True):
        earlier = _score_earlier(5.0, 8, reading.count_earlier(kind, memory, scope), "it was useful")
        parts = (45.0, "another machine's finding was useful"), earlier
        details = {"memory": memory, "origin": origin}
        yield reading.record(kind, scope, parts, details, RecordIdentity(cause=memory, key=memory))


# -- signatures

STOP_WORDS = {
    "the", "and", "with", "for", "also", "please", "that", "this", "then", "into", "from", "its", "all", "too", "but",
}  # fmt: skip
"""Words that `make_cause_slug` leaves out."""

_VARYING_PART = re.compile(r"(?:[\w.~-]*/)+[\w.-]*|\S*\d\S*|[`'\"“”‘’][^`'\"“”‘’]*[`'\"“”‘’]")
"""The paths, numbers and quoted names in a text."""


def make_cause_slug(text: str) -> str:
    """The words of a text without names, paths and numbers, joined by hyphens. Errors and edits whose texts differ only
    in such details have the same slug."""
    without_details = _VARYING_PART.sub(" ", text.lower())
    words = [word for word in re.findall(r"[a-z]{3,}", without_details) if word not in STOP_WORDS]
    return "-".join(words[:6])[:60]


READER_OF_KIND: Mapping[str, Callable[[EntryReading], Iterator[LearningRecord]]] = {
    "ValidationFailed": _read_failed_tests,
    "ValidationHealed": _read_healed_tests,
    "RetryRepeated": _read_retry,
    "WorkOverlapped": _read_overlap,
    "BudgetExceeded": _read_exceeded_budget,
    "PredictionConfirmed": _read_card_approval,
    "PermissionAnswered": _read_permission,
    "ChangeSetLanded": _read_landing,
    "ChangeSetNarrowed": _read_landing,
    "ChangeSetBranched": _read_landing,
    "FactPromoted": _read_kept_fact,
    "AgentErred": _read_error,
    "MemoryBubbleFlushed": _read_findings,
    "GuidanceApplied": _read_guidance,
    "GuidanceFoundNoisy": _read_harm,
    "OverlayFoundHarmful": _read_harm,
    "GuidanceFoundStale": _read_stale_guidance,
    "TeachingRefreshed": _read_teaching,
    "CloudSyncFailed": _read_sync_failure,
    "CloudMemoryRecalled": _read_recall,
}
"""The reader of each kind of ledger entry. `reflection` reads `ToolsUsed`."""
