"""What verbs print of sessions, settings, decisions and cards (SPEC 9.8): no internal names, no escape sequences."""

from datetime import UTC, datetime
from typing import Any

import pytest

from clawpy_console.cli.printing import find_printer, paint_session_outcome, render_document, strip_colours
from clawpy_console.cli.printing.system import DECISION_LABELS
from clawpy_console.cli.printing.work import CARD_LABELS
from clawpy_console.cli.verbs import VERBS
from engine.api.documents import document as as_json
from engine.model import (
    SESSION_LABELS,
    Bubble,
    BubbleState,
    Bucket,
    CheckResult,
    DecisionSignal,
    FactDraft,
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
from tests.support.card_rows import make_card
from tests.support.helpers import make_session_view

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


@pytest.mark.parametrize(
    "changes, word",
    [
        ({}, "finished"),
        ({"facts": {HAS_PROBLEM: True}}, "problem found"),
        ({"check": CheckResult("pytest", 1, failed=2, errors=1)}, "2 tests failed, 1 error"),
        ({"state": SessionState.CANNOT_RUN}, "could not run"),
    ],
)
def test_a_session_says_how_it_ended_or_how_many_tests_failed(changes: dict[str, Any], word: str):
    session = as_json(make_session_view(**{"state": SessionState.SUCCEEDED} | changes))
    assert strip_colours(paint_session_outcome(session)) == word


def test_a_text_from_outside_has_no_escape_sequences():
    task = Task("task_1", "round\x1b[31m it", "open", "koji-core", "/srv/shop", "operator", AT, AT)
    assert (
        render_document("tasks", {"tasks": [as_json(task)]}, colour=True) == "○ open     \x1b[2mtask_1\x1b[0m  round it"
    )


def test_a_draft_is_listed_with_its_fact():
    draft = FactDraft("draft_1", "2026-01-05", "It rains.", "", Bucket.AREAS, "", "", "", "", AT)
    assert render_document("drafts", {"drafts": [as_json(draft)]}).startswith("draft_1  It rains.\n")


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
