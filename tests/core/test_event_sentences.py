"""Every fact that the ledger keeps is a sentence: `clawpy run` and `clawpy serve` print it."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from engine import events
from engine.events import (
    AgentMoved,
    CandidateDecisionUndone,
    CandidatePromoted,
    CandidateRejected,
    CandidateWeighed,
    ChangeSetDiscarded,
    ChangeSetLanded,
    Event,
    GuidanceApplied,
    LearningRetracted,
    NightlyFinished,
    PermissionAnswered,
    RowsLetGo,
    SettingChanged,
    TierAssigned,
    ToolsUsed,
    ValidationFailed,
    WorkOverlapped,
)

KINDS = [
    var
    for var in vars(events).values()
    if isinstance(var, type) and issubclass(var, Event) and var is not Event and not var.volatile
]


def as_in_the_ledger(fact: Event) -> str:
    """The sentence of a fact that was written as JSON and read again."""
    return Event.kinds[fact.kind](subject=fact.subject, **json.loads(json.dumps(fact.payload()))).sentence()


TOLD_BY_OTHERS = {"PermitIssued", "CostReserved", "CostSettled", "SessionQueued", "EngineStopped"}


def example(kind: type[Event], *, empty: bool) -> Event:
    """A fact of `kind`, each of its fields with a value of its type; `empty` lists name nothing."""
    hints = get_type_hints(kind)
    return kind(**{field.name: value(hints[field.name], field.name, empty) for field in fields(kind)})


def value(hint: Any, name: str, empty: bool) -> Any:
    if isinstance(hint, UnionType):
        return None if empty else value(get_args(hint)[0], name, empty)
    if get_origin(hint) is tuple:
        return () if empty else (value(get_args(hint)[0], name, empty),) * 5
    if get_origin(hint) is not None:
        return {} if empty else {f"{name}-key": 3}
    if name == "tier":
        return 3
    if name == "until":
        return "2026-01-05T12:00:00+00:00"
    return {str: f"some-{name}", int: 0 if empty else 7, float: 0.5, bool: not empty}[hint]


@pytest.mark.parametrize("empty", [False, True], ids=["filled", "empty"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_is_a_sentence(kind: type[Event], empty: bool) -> None:
    line = as_in_the_ledger(example(kind, empty=empty))
    assert (line == "") is (kind.__name__ in TOLD_BY_OTHERS)
    assert kind.__name__ not in line
    assert not re.search(r"\w=|[\[\]{}]|None", line), line
    assert line == " ".join(line.split())


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        (
            NightlyFinished(subject="2026-01-05", promoted=2, drafted=0, cost=0, reason="nothing happened"),
            "night of 2026-01-05: 2 facts kept, 0 drafted; nothing happened",
        ),
        (
            RowsLetGo(rows={"memory_events": 3, "cost_entries": 1}),
            "deleted by age: 3 memory events, 1 cost entries",
        ),
        (ChangeSetLanded(subject="change_1", session_id="sess_1", files=3), "landed: change_1, 3 files"),
        (ChangeSetDiscarded(subject="change_1", session_id="sess_1"), "changes change_1 were discarded"),
        (
            ChangeSetDiscarded(subject="change_1", session_id="sess_1", continued_in="sess_2"),
            "changes change_1 continue in session sess_2",
        ),
        (
            CandidatePromoted(subject="cand_1", type="t", title="Heal once", by="operator"),
            "activated by you: cand_1, Heal once",
        ),
        (
            CandidateRejected(subject="cand_1", type="t", title="Heal once", by="operator", reason="too dear"),
            "rejected by you: cand_1, Heal once; too dear",
        ),
        (
            CandidateDecisionUndone(subject="cand_1", type="t", title="Heal once", status="review"),
            "your decision was undone: cand_1, Heal once, is in review again",
        ),
        (
            CandidateWeighed(subject="cand_1", status="review", score=61.2, corroborated_by=("a", "b"), against=("c",)),
            "candidate cand_1 needs your decision: score 61, 2 for it, 1 against",
        ),
        (AgentMoved(subject="ui", before="cto", after="lead"), "ui moved from cto to lead"),
        (TierAssigned(subject="ui", tier=None), "the rules decide the tier of ui again"),
        (SettingChanged(subject="dnd", value="off"), "do not disturb ended"),
        (SettingChanged(subject="console.theme", value="paper"), "setting console.theme is now paper"),
        (
            PermissionAnswered(session_id="sess_1", tool="exec", answer="deny-session", by="operator"),
            "you denied exec in session sess_1 for the whole session",
        ),
        (
            GuidanceApplied(
                subject="koji-core", session_id="s", call="c", chain=(), sources=("cto", "lead"), items=(),
                wordings=(), tokens=240,
            ),
            "guidance of cto, lead went to koji-core: 240 tokens",
        ),
        (
            ToolsUsed(subject="sess_1", agent="ui", calls=("read", "exec:git", "read", "write", "list")),
            "ui made 5 tool calls in session sess_1: read, exec:git, write and 1 more",
        ),
        (
            ValidationFailed(agent="ui", attempts=1, cost=20_000, failing=("a::b",), reason="the budget is spent"),
            "ui gave up on 1 failing test (a::b) after 1 attempt and $0.02; the budget is spent",
        ),
        (
            WorkOverlapped(
                subject="change_2", session_id="s2", agent="ui", other="change_1", other_session_id="s1",
                files=("a.py",), conflicting=("a.py",),
            ),
            "changes change_2 and change_1 touch the same files: a.py; 1 file in conflict",
        ),
        (
            LearningRetracted(subject="entry_1", reason="it was wrong", queued=("entry_2",), sessions=()),
            "learning entry_1 was retracted; it was wrong; 1 promoted from it need your decision",
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_them(fact: Event, line: str) -> None:
    assert as_in_the_ledger(fact) == line
