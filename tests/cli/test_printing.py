"""What verbs print of sessions, settings, decisions and cards (SPEC 9.8): no internal names, no escape sequences."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from clawpy_console.cli.printing import (
    find_printer,
    format_time,
    paint_session_outcome,
    render_document,
    strip_colours,
)
from clawpy_console.cli.printing.system import DECISION_LABELS
from clawpy_console.cli.printing.work import CARD_LABELS
from clawpy_console.cli.verbs import VERBS
from clawpy_console.fields.work import LEARNED_FORMS
from engine.api.documents import document as as_json
from engine.model import (
    LEFT_OUT,
    SESSION_LABELS,
    Bubble,
    BubbleState,
    Bucket,
    ChangeSet,
    ChangeState,
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
    Verdict,
)
from engine.model.guidance import GateResult
from tests.api.stand_in import STATED_CONFIDENCE, make_card

AT = datetime(2026, 1, 5, 9, tzinfo=UTC)
COSTS = ("costThisHour", "costCapPerHour", "costToday", "costCapPerDay", "costThisMonth", "costCapPerMonth")


@pytest.mark.parametrize(
    "state, result, check, word",
    [
        ("succeeded", "succeeded", None, "finished"),
        ("succeeded", "succeeded", {"failed": 0, "errors": 0}, "finished"),
        ("succeeded", "failed", {"failed": 1, "errors": 0}, "1 test failed"),
        ("succeeded", "failed", None, "problem found"),
        ("succeeded", "failed", {"failed": 2, "errors": 1}, "2 tests failed, 1 error"),
        ("failed", "failed", {"failed": 1, "errors": 0}, "failed"),
        ("cannot_run", "cannot_run", None, "could not run"),
    ],
)
def test_a_session_says_how_it_ended_or_how_many_tests_failed(
    state: str, result: str, check: dict[str, Any] | None, word: str
):
    assert (
        strip_colours(paint_session_outcome({"state": state, "result": result, "check": check, "flow": "run_tests"}))
        == word
    )


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
    others = dict.fromkeys(("sandbox", "error", "summary"), "") | dict.fromkeys(("check", "flow", "result"))
    session = {"id": "sess_1", "state": "running", "workspace": "/srv/shop", "targetChannel": "koji-core", **others}
    printed = render_document("undo", {"prediction": None, "session": session, "changeSet": None})
    assert printed.splitlines()[-1] == "It is being stopped: `clawpy work sess_1` shows how it ends."


def test_a_text_from_outside_has_no_escape_sequences():
    item = {"id": "task_1", "state": "open", "title": "round\x1b[31m it", "note": "", "waitsFor": []}
    assert render_document("tasks", {"tasks": [item]}, colour=True) == "○ open     \x1b[2mtask_1\x1b[0m  round it"


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
    item = {"id": "task_1", "state": state, "title": "Lint", "note": note, "waitsFor": []}
    assert render_document("tasks", {"tasks": [item]}) == line


def test_the_status_lists_what_happened_below_its_number_and_one_reason_each():
    instant = "2026-01-05T09:00:00Z"
    session = {"endedAt": instant, "state": "succeeded", "result": "succeeded", "mode": "approved", "check": None}
    ran = [session | {"flow": "lint", "prompt": f"run {number}"} for number in range(8)]
    ran[0]["result"] = "failed"
    ran[1]["state"], ran[2]["state"] = "failed", "cannot_run"
    ran[-1]["mode"] = "autonomous"
    held_back = {
        "createdAt": instant,
        "rail": "gate",
        "prompt": "lint",
        "reason": "autonomous mode is off; quiet hours",
    }
    away = {
        "at": instant,
        "ran": ran,
        "blocked": 3 * [held_back],
        "approved": 8,
        "approvedByItself": 0,
        "rejected": 0,
        "decisions": 7,
        "spent": 0,
    }
    missing = ["autonomous mode is off", "quiet hours", "the Twin is still learning"]
    document = {
        "engine": "none", "state": "WATCHING", "stateSince": instant, "cause": "enabled", "holds": [], "problems": [],
        "crossPollStatus": dict.fromkeys(COSTS, 0.0), "phase": {"number": 0, "learning": ""}, "running": [],
        "dndUntil": None,
        "byItself": {"missing": missing, "words": "does not act by itself yet: long"},
        "silenceSeconds": 0, "nextCycleAt": None, "pending": 2,
        "keysInFile": "", "since": away | {"learnt": dict.fromkeys(LEARNED_FORMS, 0)}, "decisions": [],
        "waiting": [{"id": "change_1", "title": "land 1 file?"}, {"id": "pred_1", "title": "fix it\n" * 99}],
    }  # fmt: skip
    time = format_time(as_json(AT))
    assert render_document("status", document).splitlines()[2:] == [
        "  2 cards pending",
        "  needs you  change_1  land 1 file?",
        f"  needs you  pred_1  {'fix it ' * 14}f…",
        "  does not act by itself yet: autonomous mode is off, and for 2 other reasons",
        f"since {time}",
        "  done       8 sessions, 1 found a problem, 2 did not finish",
        f"    {time}  finished  by itself: run 7",
        *(f"    {time}  finished  run {number}" for number in (6, 5, 4, 3)),
        "    and 3 earlier ones; `clawpy work` lists them",
        "  blocked    3 by the rails: gate 3",
        f"    {time}  gate  lint: autonomous mode is off, and for 1 other reason  (3 times)",
        "  approved   8, 1 could not run",
        "  dismissed  0",
        "  learned    nothing new, from 7 decisions",
    ]


WORDS = [
    *((signal, DECISION_LABELS) for signal in DecisionSignal),
    *((state, SESSION_LABELS) for state in (*SessionState, *Outcome)),
    *((status, CARD_LABELS) for status in Status),
]


@pytest.mark.parametrize("value, labels", WORDS, ids=lambda value: getattr(value, "name", ""))
def test_no_decision_session_or_card_is_printed_by_an_internal_name(value: str, labels: dict[str, str]):
    assert labels.get(value, value) in GLOSSARY


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


GLOSSARY = {
    "pending", "approved", "edited", "dismissed", "kept", "undone", "discarded", "expired", "done by you",
    "queued", "running", "finished", "failed", "could not run", "stopped", "blocked", "interrupted", "withdrawn",
}  # fmt: skip
"""What a person may read of cards, sessions and decisions."""


@pytest.mark.parametrize(
    "stated, status, is_shown",
    [(True, Status.PENDING, True), (False, Status.PENDING, False), (True, Status.EXECUTED, False)],
)
def test_a_pending_card_is_new_once_its_confidence_is_stated(stated: bool, status: Status, is_shown: bool):
    new_card = make_card(
        "pred_1", AT, has_novel_pair=True, status=status, parts=replace(STATED_CONFIDENCE, stated=stated)
    )
    assert ("NEW" in render_document("cards", {"predictions": [as_json(new_card)]})) is is_shown


VERDICTS = (
    RailVerdict("rate", Verdict.ALLOW, "fine"),
    RailVerdict("content", Verdict.BLOCK, "force push", "git-publish-force"),
    RailVerdict("cost", Verdict.ASK, "dear"),
    RailVerdict("gate", Verdict.ASK, "a person decides"),
)


def test_a_card_shows_which_rail_blocks_or_asks():
    document = {"predictions": [as_json(make_card("pred_x", AT, verdicts=VERDICTS))]}
    text = render_document("propose", document)
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


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_and_action_names_a_function_that_prints_it(verb: str):
    assert all(callable(find_printer(verb, action)) for action in (None, *VERBS[verb].actions))
