"""Every verb's document, through the one entrance that all doors use."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from engine.api.operations import OPERATIONS, dispatch
from engine.model import Refusal
from tests.api.stand_in import StandIn

CARD_FIELDS = {
    "id", "prompt", "targetAgent", "targetChannel", "confidence", "reasoning", "createdAt", "status", "source", "kind",
    "workspace", "runner", "flow", "parameters", "band", "verdicts", "decidedBy", "outcome", "snoozedUntil", "note",
    "session",
}  # fmt: skip


def ask(engine: StandIn, verb: str, **arguments: Any) -> dict[str, Any]:
    document = dispatch(engine, verb, arguments)  # type: ignore[arg-type]
    return json.loads(json.dumps(document))  # every document is JSON


def refused(engine: StandIn, verb: str, **arguments: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        ask(engine, verb, **arguments)
    assert caught.value.message
    assert caught.value.fix
    return caught.value


def test_cards_of_named_workspaces_and_channels_only(engine: StandIn) -> None:
    assert [one["id"] for one in ask(engine, "cards", workspaces=["/srv/other"])["predictions"]] == ["pred_abd2"]
    assert ask(engine, "cards", channel="garden")["predictions"] == []


def test_what_was_listed_counts_as_shown(engine: StandIn) -> None:
    ask(engine, "cards")
    assert engine.cards.shown == []
    ask(engine, "cards", shown=True)
    assert engine.cards.shown == ["pred_abc1", "pred_abd2"]


def test_predict_says_what_is_pending_and_what_the_cycle_did(engine: StandIn) -> None:
    document = ask(engine, "predict", workspaces=["/srv/shop"])
    assert [one["id"] for one in document["predictions"]] == ["pred_abc1"]
    assert document["created"] == ["pred_abc1"]
    assert document["withdrawn"] == ["pred_old"]
    assert document["errors"] == ["gh: not there"]


def test_dismiss_snooze_undo(engine: StandIn) -> None:
    assert ask(engine, "dismiss", id="pred_abc1")["prediction"]["status"] == "rejected"
    assert ask(engine, "undo", id="pred_abc1")["prediction"]["status"] == "pending"
    ask(engine, "snooze", id="pred_abc1")
    ask(engine, "snooze", id="pred_abc1", seconds=60)
    assert engine.cards.spans == [timedelta(hours=2), timedelta(minutes=1)]
    assert refused(engine, "snooze", id="pred_abc1", seconds=0).code == "bad_arguments"
    assert str(refused(engine, "approve", id=None)).startswith("the argument id is missing or empty")


@pytest.mark.parametrize("wanted", ["chg_x1", "sess_aaa", "sess_a", "chg", "x1", "aaa"])
def test_work_takes_a_session_or_a_change_set_and_the_beginning_of_either(engine: StandIn, wanted: str) -> None:
    document = ask(engine, "work", id=wanted, lines=2, diff=True)
    assert document["session"]["id"] == "sess_aaa"
    assert document["prediction"]["id"] == "pred_abc1"
    assert document["changeSet"]["files"][0]["path"] == "a.py"
    assert [line["text"] for line in document["transcript"]] == ["line 2", "line 3"]
    [file] = document["diff"]
    assert (file["hunks"].count("@@ -"), file["landedHunks"]) == (2, [2])


@pytest.mark.parametrize(("verb", "state"), [("land", "landed"), ("branch", "branched"), ("discard", "discarded")])
def test_deciding_on_a_change_set(engine: StandIn, verb: str, state: str) -> None:
    engine.cards.approve("pred_abc1")
    assert ask(engine, verb, id="pred_abc1")["changeSet"]["state"] == state


def test_nothing_to_land_says_why(engine: StandIn) -> None:
    assert refused(engine, "land", id="pred_abd2").code == "no_change_set"
    engine.changes.things.clear()
    assert "changed no file" in refused(engine, "land", id="sess_aaa").message


def test_stop_and_resume(engine: StandIn) -> None:
    assert refused(engine, "resume").code == "not_held"
    assert ask(engine, "stop", reason="lunch")["holds"][0]["reason"] == "lunch"
    assert refused(engine, "resume", word="month").code == "not_held"
    after = ask(engine, "resume")
    assert ([(one["word"], one["reason"]) for one in after["lifted"]], after["holds"]) == ([("stop", "lunch")], [])


def test_check(engine: StandIn) -> None:
    assert ask(engine, "check", command="ls") == {"verdict": "allow", "rule": "", "reason": "nothing found"}
    assert ask(engine, "check", command="rm -rf /")["verdict"] == "block"
    assert ask(engine, "check", prompt="send an e-mail to Ann")["verdict"] == "ask"


def test_using_a_deciding_verb_means_that_the_operator_is_there(engine: StandIn) -> None:
    for verb in ("status", "cards", "work", "agents", "tasks", "config"):
        ask(engine, verb)
    assert engine.heard == []
    ask(engine, "dismiss", id="pred_abc1")
    ask(engine, "tasks", action="add", title="x")
    assert engine.heard == ["clawpy dismiss", "clawpy tasks"]


@pytest.mark.parametrize(
    ("verb", "arguments", "code"),
    [
        ("fly", {}, "unknown_verb"),
        ("approve", {}, "bad_arguments"),
        ("approve", {"id": 3}, "bad_arguments"),
        ("approve", {"id": "x" * 200_000}, "bad_arguments"),
        ("approve", {"id": "pred_abc1", "wait": "yes"}, "bad_arguments"),
        ("approve", {"id": "pred_abc1", "force": True}, "bad_arguments"),
        ("cards", {"workspaces": "x"}, "bad_arguments"),
        ("cards", {"all": True, "limit": 0}, "bad_arguments"),
        ("cards", {"all": True, "limit": True}, "bad_arguments"),
        ("check", {"command": "a", "prompt": "b"}, "bad_arguments"),
        ("status", [], "bad_arguments"),
        ("status", None, "bad_arguments"),
    ],
)
def test_whatever_a_program_sends_is_answered(engine: StandIn, verb: str, arguments: Any, code: str) -> None:
    with pytest.raises(Refusal) as caught:
        dispatch(engine, verb, arguments)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_the_arguments_of_every_operation_can_be_checked() -> None:
    assert all(operation.arguments.model_fields is not None for operation in OPERATIONS.values())
