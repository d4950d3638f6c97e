"""What verbs print of sessions, settings, decisions and cards (SPEC 9.8): no internal names, no escape sequences."""

from datetime import UTC, datetime

import pytest

from clawpy_console.cli.main import find_printer, render_document
from clawpy_console.cli.printing.system import DECISION_LABELS
from clawpy_console.cli.printing.work import CARD_LABELS
from clawpy_console.cli.verbs import VERBS
from engine.api.documents import document as as_json
from engine.model import (
    SESSION_LABELS,
    Bucket,
    DecisionSignal,
    FactDraft,
    Outcome,
    RailVerdict,
    SessionState,
    Status,
    Task,
    Verdict,
)
from tests.support.card_rows import make_card

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


def test_a_text_from_outside_has_no_escape_sequences():
    task = Task("task_1", "round\x1b[31m it", "open", "koji-core", "/srv/shop", "operator", AT, AT)
    assert (
        render_document("tasks", {"tasks": [as_json(task)]}, colour=True) == "○ open     \x1b[2mtask_1\x1b[0m  round it"
    )


def test_a_task_that_was_tried_says_in_words_how_that_ended():
    task = Task(
        "task_1", "round it", "failed", "koji-core", "/srv/shop", "operator", AT, AT, note="cannot_run: no ruff"
    )
    assert "could not run  task_1  round it  no ruff" in render_document("tasks", {"tasks": [as_json(task)]})


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
