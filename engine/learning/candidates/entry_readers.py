"""Reads ledger entries into learning records: a function for each kind of entry, with its formula (SPEC 5.1).

A record with `MIN_OPPORTUNITY_SCORE` points or more can become a candidate (SPEC 5.3). The formulas give that many
points to events after which an agent could act differently, and fewer to plain success. `Sources` supplies what an
entry does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.config.sections import ACP_PREFIX, MODEL
from engine.learning.candidates.records import Part, Reading
from engine.model import MICRO, PermissionAnswer, Trust
from engine.model.adaptation import LearningRecord, RecordKind
from engine.model.learnings import distil_rule, find_added_sentences, normalise
from engine.model.text import count, jaccard, money, quote
from engine.statistics import share

FULL_COST_MICROUSD = MICRO // 2
"""Cost of healing in micro-dollars that gives all points for cost. It is the default cap in the settings."""

FULL_BREADTH = 5
"""Number of tests, files or repetitions that gives all points for their number."""

MAX_TESTS = 5
"""Maximum number of tests of one session that become records, the first by name."""

MAX_ADDED_SENTENCES = 5
"""Maximum number of sentences of one edit that become records."""

STOP_WORDS = frozenset(
    ["the", "and", "with", "for", "also", "please", "that", "this", "then", "into", "from", "its", "all", "too", "but"]
)
"""Words that `make_slug` leaves out."""

_ERROR_CODE = re.compile(r"^([a-z][a-z_]{2,40}): ")
"""The error code at the beginning of a tool's message."""

_VARYING_PART = re.compile(r"(?:[\w.~-]*/)+[\w.-]*|\S*\d\S*|[`'\"“”‘’][^`'\"“”‘’]*[`'\"“”‘’]")
"""The paths, numbers and quoted names in a text."""

NewRecords = Iterator[LearningRecord]
"""The records that a reader makes of one entry."""


def _read_validation(reading: Reading) -> NewRecords:
    """The validation of a session ended. If the tests passed in the end, see `score_heal`. If they still failed: 45
    points, 10 for each attempt to fix them up to 30, up to 15 for the cost, up to 10 for the number of failing
    tests."""
    attempts, cost, failing, agent = reading.values("attempts", "cost", "failing", "agent")
    session_id = reading.entry.subject
    details = reading.select("attempts", "cost")
    if reading.entry.kind == "ValidationHealed":
        parts = score_heal(attempts, cost, len(failing))
        yield from _make_test_records(reading, RecordKind.SUCCESSFUL_HEAL, parts, failing, agent, session_id, details)
        return
    tries = max(0, attempts - 1)
    parts = (
        (45.0, "tests still failed"),
        (10.0 * min(3, tries), f"{count(tries, 'attempt')} to fix them"),
        (15.0 * share(cost, FULL_COST_MICROUSD), _describe_cost(cost)),
        (10.0 * share(len(failing), FULL_BREADTH), count(len(failing), "test")),
    )
    details["gave_up"] = reading.entry.payload["reason"]
    yield from _make_test_records(reading, RecordKind.FAILED_TDD, parts, failing, agent, session_id, details)


def score_heal(attempts: int, cost: int, failing: int) -> tuple[Part, ...]:
    """The points of a repair after which tests passed: 60, 20 divided by the number of attempts, up to 10 for the cost,
    up to 10 for the number of tests."""
    tries = max(1, attempts - 1)
    return (
        (60.0, "failing tests were fixed"),
        (20.0 / tries, f"at attempt {tries}"),
        (10.0 * share(cost, FULL_COST_MICROUSD), _describe_cost(cost)),
        (10.0 * share(failing, FULL_BREADTH), count(failing, "test")),
    )


def _make_test_records(
    reading: Reading,
    kind: RecordKind,
    parts: Sequence[Part],
    tests: Iterable[str],
    agent: str,
    session_id: str,
    details: Mapping[str, Any],
) -> NewRecords:
    """A record for each test, in the scope of its workspace. A change set that was `landed` gives each test one record,
    however often it is read."""
    failing = sorted(map(str, tests))
    for test in failing[:MAX_TESTS]:
        yield reading.record(
            kind,
            reading.workspace_scope,
            parts,
            {"test": test, "failing": failing, **details},
            cause=test,
            key=test,
            once=f"{details['landed']}/{test}" if "landed" in details else "",
            agent=agent,
            session_id=session_id,
        )


def _read_retry(reading: Reading) -> NewRecords:
    """Attempts changed nothing: 45 points, 10 for each attempt up to 30, up to 25 for their cost."""
    agent, attempts, cost = reading.values("agent", "attempts", "cost")
    tries = max(0, attempts - 1)
    parts = (
        (45.0, "another attempt left the same tests failing"),
        (10.0 * min(3, tries), f"{count(tries, 'attempt')} made"),
        (25.0 * share(cost, FULL_COST_MICROUSD), _describe_cost(cost)),
    )
    details = reading.select("attempts", "cost", "failing")
    yield reading.record(RecordKind.REPEATED_RETRY, ("agent", agent), parts, details, session_id=reading.entry.subject)


def _read_overlap(reading: Reading) -> NewRecords:
    """Two agents changed the same files. If both can land: 20 points, 4 for each file up to 20. If only one can: 50
    points, up to 25 for the share of files that conflict, 4 for each of these up to 20."""
    agent, session_id, files, conflicting = reading.values("agent", "session_id", "files", "conflicting")
    parts: tuple[Part, ...] = (
        (50.0, "only one of the two can land"),
        (25.0 * share(len(conflicting), len(files)), f"{len(conflicting)} of {_count_common(files)} conflict"),
        (4.0 * min(FULL_BREADTH, len(conflicting)), count(len(conflicting), "conflict")),
    )
    if not conflicting:
        parts = (20.0, "both can land"), (4.0 * min(FULL_BREADTH, len(files)), _count_common(files))
    details = reading.select("files", "conflicting", "other")
    details |= {"change_set": reading.entry.subject, "other_session": reading.entry.payload["other_session_id"]}
    yield reading.record(RecordKind.TASK_CONFLICT, ("agent", agent), parts, details, session_id=session_id)


def _read_exceeded_budget(reading: Reading) -> NewRecords:
    """A budget blocked work: 50 points, up to 10 for the share that was spent, up to 40 for the amount above it. There
    is one record a day, even if the budget blocks the agent many times."""
    agent = reading.entry.subject
    day = reading.entry.at.astimezone(reading.zone).date().isoformat()
    spent, budget = reading.values("spent", "budget")
    parts = (
        (50.0, f"the day's budget of {money(budget)} blocked work"),
        (10.0 * share(spent, budget), f"{money(spent)} of it was spent"),
        (40.0 * share(max(0, spent - budget), budget), "it was exceeded"),
    )
    details = {"spent": spent, "budget": budget, "day": day}
    yield reading.record(RecordKind.BUDGET_INCIDENT, ("agent", agent), parts, details, once=f"{agent}/{day}")


def _read_card_approval(reading: Reading) -> NewRecords:
    """The operator approved a card. Unchanged: 20 points, since nothing needs to change. After an edit of its prompt,
    each added sentence gets 50 points, up to 40 for the share of words that changed, and 10 if words were added."""
    by = reading.entry.payload["decided_by"]
    if by == "autonomy":
        return
    edit = reading.sources.card_correction(reading.entry.subject) if reading.entry.payload.get("edited") else None
    if edit is None:
        part = (20.0, "a card was approved unchanged")
        yield reading.record(RecordKind.HUMAN_APPROVAL, reading.workspace_scope, [part], {"by": by}, cause="card")
        return
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
        yield reading.record(
            RecordKind.HUMAN_APPROVAL,
            ("agent", edit.agent),
            parts,
            details,
            cause=f"edited:{edit.channel}:{make_slug(distil_rule(sentence).text)}",
            key=f"edit {number}",
            session_id=edit.session,
        )


def _read_permission(reading: Reading) -> NewRecords:
    """The operator allowed a tool: 25 points for one call, 30 for the session. Nothing needs to change."""
    tool, answer, session_id = reading.values("tool", "answer", "session_id")
    if not PermissionAnswer(answer).allows or reading.entry.payload.get("by"):  # `by`: an earlier answer was reused
        return
    part = (25.0, "a tool was allowed once")
    if answer == PermissionAnswer.ALLOW_SESSION:
        part = (30.0, "a tool was allowed for the whole session")
    yield reading.record(
        RecordKind.HUMAN_APPROVAL,
        reading.workspace_scope,
        [part],
        {"tool": tool},
        cause=f"permission:{tool}",
        session_id=session_id,
    )


def _read_landing(reading: Reading) -> NewRecords:
    """Changes were landed or committed: 25 points, 2 for each file up to 10, once for each change set. The tests that
    they fixed get records too, see `score_heal`."""
    payload = reading.entry.payload
    is_branch = reading.entry.kind == "ChangeSetBranched"
    files = payload.get("landed", 0) if is_branch else payload["files"]
    if payload.get("left") or (is_branch and not files):  # the operator has not decided on the rest yet
        return
    session_id = str(payload["session_id"])
    change_set = reading.entry.subject
    yield reading.record(
        RecordKind.HUMAN_APPROVAL,
        reading.workspace_scope,
        [(25.0, "changes were landed"), (2.0 * min(FULL_BREADTH, files), count(files, "file"))],
        {"files": files},
        cause="change_set",
        once=change_set,
        session_id=session_id,
    )
    repair = reading.sources.healed_tests(session_id)
    if repair is not None:
        causes = sorted({cause for cause in repair.tests.values() if cause})
        details = {"causes": causes, "project": repair.project, "landed": change_set, "cost": repair.cost}
        healed = score_heal(1, repair.cost, len(repair.tests))
        yield from _make_test_records(
            reading, RecordKind.SUCCESSFUL_HEAL, healed, repair.tests, repair.agent, session_id, details
        )


def _read_kept_fact(reading: Reading) -> NewRecords:
    """The operator kept a fact: 65 points, 10 if it is in the operator's own words or was measured, 5 for each time
    that the same fact was kept before, up to 20."""
    kept_fact = reading.sources.kept_fact(reading.entry.subject) if reading.entry.payload["by"] == "operator" else None
    if kept_fact is None or not kept_fact.fact:
        return
    cause = f"fact:{'-'.join(normalise(kept_fact.fact).split())[:80]}"
    before = reading.before(RecordKind.HUMAN_APPROVAL, cause, reading.workspace_scope)
    parts = (
        (65.0, f"you kept {quote(kept_fact.fact, 120)} as a fact"),
        (10.0 * (kept_fact.trust is not Trust.QUOTED), "in your own words, or measured"),
        (5.0 * min(4, before), _describe_earlier("the same fact was kept", before)),
    )
    details = {"kept": reading.entry.subject, "text": kept_fact.fact, "trust": kept_fact.trust.value}
    yield reading.record(RecordKind.HUMAN_APPROVAL, reading.workspace_scope, parts, details, cause=cause)


def _read_error(reading: Reading) -> NewRecords:
    """An error: 50 points for a call that a tool refused, 45 for a command that could not run or did not end, and 30
    for a model or program that failed, since guidance cannot prevent that. 10 more if it has an error code, and 5 for
    each time that it happened before, up to 20."""
    agent, tool, message = map(str, reading.values("agent", "tool", "message"))
    coded = None if tool == "exec" else _ERROR_CODE.match(message)
    if tool == "exec":
        part = (45.0, "a command could not run or did not finish")
    elif coded:
        part = (50.0, f"{tool} refused the call")
    elif tool == MODEL or tool.startswith(ACP_PREFIX):
        part = (30.0, "a model or program failed")
    else:
        part = (50.0, f"a call of {tool} was wrong")
    scope = ("agent", agent)
    cause = f"{tool}/{coded[1] if coded else make_slug(message)}"
    before = reading.before(RecordKind.AGENT_ERROR, cause, scope)
    parts = (
        part,
        (10.0 * (coded is not None), "the tool said what was wrong"),
        (5.0 * min(4, before), _describe_earlier("it happened", before)),
    )
    yield reading.record(
        RecordKind.AGENT_ERROR,
        scope,
        parts,
        {"tool": tool, "message": message},
        cause=cause,
        key=f"{tool}/{message}",
        session_id=reading.entry.subject,
    )


def _read_findings(reading: Reading) -> NewRecords:
    """Findings reached a leader: up to 50 points for their confidence, up to 50 for their importance."""
    columns = reading.values("bubbles", "patterns", "agents", "confidences", "importances")
    for bubble, pattern, agent, confidence, importance in zip(*columns, strict=True):
        parts = (
            (50.0 * share(confidence, 1.0), f"confidence {confidence:.2f}"),
            (50.0 * share(importance, 1.0), f"importance {importance:.2f}"),
        )
        details = {"bubble": bubble, "leader": reading.entry.subject, "pattern": pattern}
        yield reading.record(RecordKind.SUCCESSFUL_BUBBLE, ("agent", agent), parts, details, key=bubble)


def _read_guidance(reading: Reading) -> NewRecords:
    """Guidance was in a prompt: 20 points, 2 for each item up to 20, 5 for each leader up to 15."""
    items, leaders, session_id = reading.values("items", "sources", "session_id")
    parts = (
        (20.0, "guidance was in the prompt"),
        (2.0 * min(10, len(items)), count(len(items), "item")),
        (5.0 * min(3, len(leaders)), f"by {count(len(leaders), 'leader')}"),
    )
    details = reading.select("call", "sources", "items")
    scope = ("agent", reading.entry.subject)
    yield reading.record(RecordKind.GUIDANCE_APPLIED, scope, parts, details, session_id=session_id)


def _read_harm(reading: Reading) -> NewRecords:
    """Work with an item of guidance or with an overlay fails more often: 60 points, up to 40 for the difference of the
    shares (all 40 from one half on). A harmful overlay is rolled back, and counts against similar candidates."""
    payload = reading.entry.payload
    is_overlay = reading.entry.kind == "OverlayFoundHarmful"
    harm = max(0.0, -payload["high"]) if is_overlay else payload["harm"]
    parts = (
        (60.0, "work with it fails more often than by chance"),
        (40.0 * share(harm, 0.5), f"by {harm:.0%} at least"),
    )
    cause = "overlay" if is_overlay else ""
    yield reading.record(
        RecordKind.GUIDANCE_NOISY, ("agent", payload["agent"]), parts, _add_reference(reading), cause=cause
    )


def _read_stale_guidance(reading: Reading) -> NewRecords:
    """Guidance is older than its limit: 40 points, up to 20 for the time above the limit (all 20 at twice the limit), 2
    for each recent session with it up to 20."""
    days, max_days, session_count, leader = reading.values("days", "most", "told", "leader")
    parts = (
        (40.0, "it is past its age limit"),
        (20.0 * share(days - max_days, max_days), f"{count(days, 'day')} old; the limit is {max_days}"),
        (2.0 * min(10, session_count), f"{count(session_count, 'session')} used it recently"),
    )
    yield reading.record(RecordKind.STALE_GUIDANCE, ("leader", leader), parts, _add_reference(reading))


def _add_reference(reading: Reading) -> Mapping[str, Any]:
    """The fields of an entry about guidance, with its reference."""
    return {"ref": reading.entry.subject, **reading.entry.payload}


def _read_teaching(reading: Reading) -> NewRecords:
    """Guidance was written into souls: 10 points, up to 40 for the share of souls that changed."""
    taught, unchanged = reading.values("taught", "unchanged")
    parts = (
        (10.0, "guidance was written into soul.md"),
        (40.0 * share(taught, taught + unchanged), count(taught, "soul")),
    )
    yield reading.record(RecordKind.TEACHING_REFRESH, ("leader", ""), parts, reading.entry.payload)


def _read_sync_failure(reading: Reading) -> NewRecords:
    """The shared database could not be reached: 40 points, 2 for each unsent row up to 30, 5 for each earlier outage
    up to 30."""
    scope = ("leader", "")
    cause = reading.entry.subject
    unsent = reading.entry.payload["unsent"]
    before = reading.before(RecordKind.CLOUD_SYNC_FAILURE, cause, scope)
    parts = (
        (40.0, "the shared database could not be reached"),
        (2.0 * min(15, unsent), f"{unsent} unsent"),
        (5.0 * min(6, before), f"{count(before, 'outage')} before"),
    )
    yield reading.record(RecordKind.CLOUD_SYNC_FAILURE, scope, parts, reading.entry.payload, cause=cause)


def _read_recall(reading: Reading) -> NewRecords:
    """A memory of another machine was useful here: 45 points, 5 for each time that it was before, up to 40."""
    scope = ("agent", reading.entry.subject)
    memories, origins, session_id = reading.values("memories", "origins", "session_id")
    for memory, origin in zip(memories, origins, strict=True):
        before = reading.before(RecordKind.CLOUD_MEMORY_RECALL_HIT, memory, scope)
        parts = (
            (45.0, "another machine's finding was useful"),
            (5.0 * min(8, before), _describe_earlier("it was useful", before)),
        )
        yield reading.record(
            RecordKind.CLOUD_MEMORY_RECALL_HIT,
            scope,
            parts,
            {"memory": memory, "origin": origin},
            cause=memory,
            key=memory,
            session_id=session_id,
        )


def _count_common(files: list[str]) -> str:
    """The number of common files in words."""
    return f"{count(len(files), 'file')} in common"


def _describe_earlier(event: str, number: int) -> str:
    """How often an event happened before, in words."""
    return f"{event} once before" if number == 1 else f"{event} {number} times before"


def _describe_cost(cost: int) -> str:
    """A cost in micro-dollars, in words."""
    return f"{money(cost)} spent on it"


def make_slug(text: str) -> str:
    """The words of a text without names, paths and numbers, joined by hyphens. Errors and edits whose texts differ only
    in such details have the same slug."""
    without_details = _VARYING_PART.sub(" ", text.lower())
    words = [word for word in re.findall(r"[a-z]{3,}", without_details) if word not in STOP_WORDS]
    return "-".join(words[:6])[:60]


READER_OF_KIND: Mapping[str, Callable[[Reading], NewRecords]] = {
    "ValidationFailed": _read_validation,
    "ValidationHealed": _read_validation,
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
