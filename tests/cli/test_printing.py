"""What verbs print of sessions, settings, decisions and cards (SPEC 9.8): no internal names, no escape sequences."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from clawpy_console.cli.printing import find_printer, paint_session_outcome, render_document, strip_colours
from clawpy_console.cli.printing.system import DECISION_LABELS
from clawpy_console.cli.printing.work import CARD_LABELS
from clawpy_console.cli.verbs import VERBS
from engine.api.documents import document as as_json
from engine.model import (
    LEFT_OUT,
    SESSION_LABELS,
    Bubble,
    BubbleState,
    Bucket,
    ChangeSet,
    ChangeState,
    CheckResult,
    DecisionSignal,
    DraftState,
    FactDraft,
    FileChange,
    OfferedFinding,
    Outcome,
    RailVerdict,
    Score,
    SessionState,
    Status,
    Task,
    Verdict,
)
from engine.model.guidance import GateResult
from engine.model.sessions import HAS_PROBLEM
from tests.api.stand_in import STATED_CONFIDENCE, make_card, make_session

AT = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_and_action_names_a_function_that_prints_it(verb: str):
    assert all(callable(find_printer(verb, action)) for action in (None, *VERBS[verb].actions))


GLOSSARY = {
    "pending", "approved", "edited", "dismissed", "kept", "undone", "discarded", "expired", "done by you",
    "queued", "running", "finished", "failed", "could not run", "stopped", "blocked", "interrupted", "withdrawn",
}  # fmt: skip
"""What a person may read of cards, sessions and decisions."""

STORED_VALUES = [
    *((signal, DECISION_LABELS) for signal in DecisionSignal),
    *((state, SESSION_LABELS) for state in (*SessionState, *Outcome)),
    *((status, CARD_LABELS) for status in Status),
]
"""What is stored of decisions, sessions and cards, each with the labels of its printer."""


@pytest.mark.parametrize("value, labels", STORED_VALUES, ids=lambda value: getattr(value, "name", ""))
def test_no_decision_session_or_card_is_printed_by_an_internal_name(value: str, labels: dict[str, str]):
    assert labels.get(value, value) in GLOSSARY


def make_task(state: str = "open", title: str = "Lint", note: str = "") -> dict[str, Any]:
    """The document of a task."""
    return as_json(Task("task_1", title, state, "koji-core", "/srv/shop", "operator", AT, AT, note=note))


@pytest.mark.parametrize(
    "changes, word",
    [
        ({}, "finished"),
        ({"check": CheckResult("pytest", 1, failed=0)}, "finished"),
        ({"check": CheckResult("pytest", 1, failed=1)}, "1 test failed"),
        ({"facts": {HAS_PROBLEM: True}}, "problem found"),
        ({"check": CheckResult("pytest", 1, failed=2, errors=1)}, "2 tests failed, 1 error"),
        ({"state": SessionState.FAILED, "check": CheckResult("pytest", 1, failed=1)}, "failed"),
        ({"state": SessionState.CANNOT_RUN}, "could not run"),
    ],
)
def test_a_session_says_how_it_ended_or_how_many_tests_failed(changes: dict[str, Any], word: str):
    session = as_json(make_session("sess_1", "pred_1", AT, **changes))
    assert strip_colours(paint_session_outcome(session)) == word


def test_a_setting_without_a_value_is_not_set():
    document = {"settings": {"workspaces": {"/srv/shop": {"retention": {"memoryEvents": 60, "costEntries": None}}}}}
    assert render_document("config", document | {"file": "config.toml"}).splitlines() == [
        'workspaces."/srv/shop".retention.memoryEvents = 60',
        '# workspaces."/srv/shop".retention.costEntries is not set',
        "# config.toml",
    ]


def test_do_not_disturb_is_off_in_one_sentence():
    printed = render_document("dnd", {"dndUntil": None, "quiet": True})
    assert printed == "Do not disturb is off; quiet hours still apply."


def test_the_undo_of_running_work_says_that_it_is_being_stopped():
    session = as_json(make_session("sess_1", "pred_1", AT, state=SessionState.RUNNING, ended_at=None))
    printed = render_document("undo", {"prediction": None, "session": session, "changeSet": None})
    assert printed.splitlines()[-1] == "It is being stopped: `clawpy work sess_1` shows how it ends."


def test_a_text_from_outside_has_no_escape_sequences():
    document = {"tasks": [make_task(title="round\x1b[31m it")]}
    assert render_document("tasks", document, colour=True) == "○ open     \x1b[2mtask_1\x1b[0m  round it"


def test_tasks_that_are_left_out_are_named_with_the_way_to_them():
    shown = render_document("tasks", {"tasks": [make_task()], "more": True})
    assert shown.splitlines()[1:] == ["there are more than these 1: `clawpy tasks list --limit 1000`"]


@pytest.mark.parametrize(
    "state, note, line",
    [
        ("failed", "problem found: 1 failed", "▲ problem found  task_1  Lint  1 failed"),
        ("failed", "cannot_run: no linter", "○ could not run  task_1  Lint  no linter"),
        ("failed", "failed: exit 2", "✗ failed   task_1  Lint  exit 2"),
        ("open", "cancelled: by you", "○ open     task_1  Lint  stopped: by you"),
    ],
)
def test_a_task_says_how_its_session_ended_in_your_words(state: str, note: str, line: str):
    assert render_document("tasks", {"tasks": [make_task(state, note=note)]}) == line


@pytest.mark.parametrize(
    "state, label",
    [(DraftState.WAITING, ""), (DraftState.PROMOTED, "  kept"), (DraftState.REJECTED, "  dismissed")],
)
def test_a_draft_that_was_decided_is_kept_or_dismissed(state: DraftState, label: str):
    draft = FactDraft("draft_1", "2026-01-05", "It rains.", "", Bucket.AREAS, "", "", "", "", AT, state)
    first, *_ = render_document("drafts", {"drafts": [as_json(draft)]}).splitlines()
    assert first == f"draft_1{label}  It rains."


@pytest.mark.parametrize(
    "statuses, refused, steps",
    [
        (("modified",), "", "land, branch or discard it"),
        (("modified", LEFT_OUT), "", "land the other files or discard it"),
        (("modified", "modified"), "a submodule", "land the other files or discard it"),
        ((LEFT_OUT,), "", "copy what you need, then discard it"),
    ],
)
def test_changes_say_what_can_be_done_with_them(statuses: tuple[str, ...], refused: str, steps: str):
    *others, last = [FileChange(f"{number}.py", status, 1, 1) for number, status in enumerate(statuses)]
    files = (*others, replace(last, refused=refused))
    change = ChangeSet("change_1", "sess_1", "", "/shop", ChangeState.WAITING, files, "Fix it", AT)
    assert steps in render_document("work", {"prediction": None, "session": None, "changeSet": as_json(change)})


@pytest.mark.parametrize(
    "stated, status, is_shown",
    [(True, Status.PENDING, True), (False, Status.PENDING, False), (True, Status.EXECUTED, False)],
)
def test_a_pending_card_is_new_once_its_confidence_is_stated(stated: bool, status: Status, is_shown: bool):
    new_card = make_card(
        "pred_1", AT, has_novel_pair=True, status=status, parts=replace(STATED_CONFIDENCE, stated=stated)
    )
    assert ("NEW" in render_document("cards", {"predictions": [as_json(new_card)]})) is is_shown


def test_a_card_shows_which_rail_blocks_or_asks():
    verdicts = (
        RailVerdict("rate", Verdict.ALLOW, "fine"),
        RailVerdict("content", Verdict.BLOCK, "force push", "git-publish-force"),
        RailVerdict("cost", Verdict.ASK, "dear"),
        RailVerdict("gate", Verdict.ASK, "a person decides"),
    )
    text = render_document("propose", {"predictions": [as_json(make_card("pred_x", AT, verdicts=verdicts))]})
    assert text.endswith("\n    block content: force push\n    ask cost: dear")


def test_the_list_of_candidates_says_why_one_needs_more_evidence():
    proposal = {
        "id": "cand_2", "status": "drafted", "score": 60, "title": "Round to even", "type": "prompt_fragment",
        "runKind": "", "workspace": "", "targetAgent": "", "draftedFrom": ["rec_1"], "corroboratedBy": ["rec_2"],
        "against": [], "reason": "cand_1 already proposes that",
    }  # fmt: skip
    document = {"candidates": [proposal], "counts": {"review": 0}, "records": 2, "mode": "manual"}
    assert render_document("candidates", document).splitlines() == [
        "cand_2  ○ needs more evidence  score 60  Round to even",
        "    guidance in prompts, for every agent, all runs; evidence for: 2, against: 0; cand_1 already proposes that",
    ]


def test_a_refused_finding_is_listed_with_the_gate_that_refused_it():
    learning = OfferedFinding("learning:1", "Prices are cents", "", "cto", "", Score(0.5, ()), Score(0.8, ()))
    gates = (GateResult(1, "enabled", True, "sending up is on"), GateResult(2, "confidence", False, "0.50 of 0.75"))
    refused = Bubble("bub_1", learning, "ceo", BubbleState.REFUSED, gates, AT)
    lines = render_document("bubbles", {"bubbles": as_json([refused])}).splitlines()
    assert lines[0] == "bub_1  Prices are cents"
    assert lines[1].startswith("  ✗ refused  cto → ceo, ")
    assert lines[2:] == ["  ✗ 2 confidence: 0.50 of 0.75"]
