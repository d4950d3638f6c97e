"""Every verb's document, through the one entrance that all doors use."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from engine.api.calling import exit_status
from engine.api.find import match
from engine.api.operations import OPERATIONS, dispatch
from engine.model import Refusal
from tests.api.stand_in import StandIn, asked

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


def test_cards_are_documents_with_the_gateways_names(engine: StandIn) -> None:
    [first, second] = ask(engine, "cards")["predictions"]
    assert first.keys() >= CARD_FIELDS
    assert (first["targetChannel"], first["targetAgent"], first["flow"]) == (
        "koji-core",
        "backend_builder",
        "run_tests",
    )
    assert first["createdAt"] == "2026-01-05T09:30:00Z"
    assert first["estimatedCost"] == 0.05
    assert (first["status"], first["source"], second["workspace"]) == ("pending", "template", "/srv/other")


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


def test_propose_makes_a_card(engine: StandIn) -> None:
    [one] = ask(engine, "propose", text="tidy the cart", workspace="/srv/shop")["predictions"]
    assert (one["prompt"], one["source"]) == ("tidy the cart", "operator")
    assert refused(engine, "propose", text=" ", workspace="/srv/shop").code == "bad_arguments"


def test_approve_answers_with_the_three_pieces_of_the_lap(engine: StandIn) -> None:
    document = ask(engine, "approve", id="pred_abc1", edit="paths: []")
    assert document["prediction"]["status"] == "confirmed"
    assert document["session"]["id"] == "sess_aaa"
    assert document["changeSet"]["id"] == "chg_x1"
    assert engine.sessions.waited == []
    assert refused(engine, "approve", id="pred_abc1").code == "already_decided"


def test_approve_waits_when_told_to(engine: StandIn) -> None:
    ask(engine, "approve", id="pred_abc1", wait=True)
    assert engine.sessions.waited == ["sess_aaa"]


def test_dismiss_snooze_undo(engine: StandIn) -> None:
    assert ask(engine, "dismiss", id="pred_abc1")["prediction"]["status"] == "rejected"
    assert ask(engine, "undo", id="pred_abc1")["prediction"]["status"] == "pending"
    ask(engine, "snooze", id="pred_abc1")
    ask(engine, "snooze", id="pred_abc1", seconds=60)
    assert engine.cards.spans == [timedelta(hours=2), timedelta(minutes=1)]
    assert refused(engine, "snooze", id="pred_abc1", seconds=0).code == "bad_arguments"


@pytest.mark.parametrize("wanted", ["chg_x1", "sess_aaa", "sess_a", "chg", "x1", "aaa"])
def test_work_takes_a_session_or_a_change_set_and_the_beginning_of_either(engine: StandIn, wanted: str) -> None:
    document = ask(engine, "work", id=wanted, lines=2, diff=True)
    assert document["session"]["id"] == "sess_aaa"
    assert document["prediction"]["id"] == "pred_abc1"
    assert document["changeSet"]["files"][0]["path"] == "a.py"
    assert [line["text"] for line in document["transcript"]] == ["line 2", "line 3"]
    [file] = document["diff"]
    assert (file["hunks"].count("@@ -"), file["landedHunks"]) == (2, [2])


def test_work_without_an_id_lists(engine: StandIn) -> None:
    document = ask(engine, "work")
    assert [one["id"] for one in document["sessions"]] == ["sess_aaa"]
    assert [one["id"] for one in document["changeSets"]] == ["chg_x1"]


@pytest.mark.parametrize(("verb", "state"), [("land", "landed"), ("branch", "branched"), ("discard", "discarded")])
def test_deciding_on_a_change_set(engine: StandIn, verb: str, state: str) -> None:
    engine.cards.approve("pred_abc1")
    assert ask(engine, verb, id="pred_abc1")["changeSet"]["state"] == state


def test_nothing_to_land_says_why(engine: StandIn) -> None:
    assert refused(engine, "land", id="pred_abd2").code == "no_change_set"
    engine.changes.things.clear()
    assert "changed no file" in refused(engine, "land", id="sess_aaa").message


def test_beginnings_of_ids(engine: StandIn) -> None:
    assert ask(engine, "dismiss", id="abc")["prediction"]["id"] == "pred_abc1"
    assert refused(engine, "dismiss", id="pred_ab").code == "ambiguous_id"
    assert refused(engine, "dismiss", id="nothing").code == "unknown_id"
    with pytest.raises(Refusal):
        match("", ["pred_1"])


def test_status(engine: StandIn) -> None:
    document = ask(engine, "status")
    assert document["state"] == "WATCHING"
    assert document["holds"] == []
    assert document["crossPollStatus"] == {
        "enabled": True, "lastTriggerAt": "2026-01-05T09:30:00Z", "totalTriggers": 47, "loopDetectionCount": 1,
        "costThisHour": 0.15, "costCapPerHour": 2.0, "costToday": 1.2, "costCapPerDay": 20.0,
        "costThisMonth": 9.0, "costCapPerMonth": 200.0,
    }  # fmt: skip
    assert document["pending"] == 2


def test_stop_and_resume(engine: StandIn) -> None:
    assert refused(engine, "resume").code == "not_held"
    assert ask(engine, "stop", reason="lunch")["holds"][0]["reason"] == "lunch"
    assert refused(engine, "resume", word="month").code == "not_held"
    after = ask(engine, "resume")
    assert ([(one["word"], one["reason"]) for one in after["lifted"]], after["holds"]) == ([("stop", "lunch")], [])


def test_agents(engine: StandIn) -> None:
    assert len(ask(engine, "agents")["agents"]) == 19
    shown = ask(engine, "agents", action="show", id="junior_backend")
    assert shown["chain"] == ["backend_builder", "backend_lead", "cto", "ceo"]
    assert shown["chainEnd"] == "reaches the owner"
    assert shown["agent"]["tierRule"] == "archetype junior_worker in tools.json"
    assert ask(engine, "agents", action="add", id="tester", reportsTo="cto")["chain"] == ["cto", "ceo"]
    assert ask(engine, "agents", action="move", id="tester", reportsTo="cro")["chain"] == ["cro", "ceo"]
    assert ask(engine, "agents", action="retire", id="tester")["retired"] is True
    assert ask(engine, "agents", action="show", id="tester")["retired"] is True
    assert refused(engine, "agents", action="show", id="nobody").code == "unknown_agent"
    assert refused(engine, "agents", action="promote").code == "bad_arguments"


def test_permissions(engine: StandIn) -> None:
    for name in ("perm_a1", "perm_a2", "perm_b1"):
        asked(engine, name)
    one = ask(engine, "permissions")["permissions"][0]
    assert (one["id"], one["waitedSeconds"], one["answer"], one["detail"]) == ("perm_a1", 60.0, None, "git push")
    assert refused(engine, "permissions", action="allow", id="a").code == "ambiguous_id"
    assert (
        refused(engine, "permissions", action="deny", id="zzz").message
        == "there is no permission request with the id zzz"
    )
    allowed = ask(engine, "permissions", action="allow", id="a1")["permissions"][0]
    assert (allowed["answer"], allowed["by"]) == ("allow-once", "operator")
    assert refused(engine, "permissions", action="deny", id="a1").code == "permission_answered"
    denied = ask(engine, "permissions", action="deny", id="perm_a2", session=True)["permissions"][0]
    assert denied["answer"] == "deny-session"
    assert ask(engine, "permissions")["permissions"] == []  # the third asked for the same thing in the same session
    assert len(ask(engine, "permissions", all=True)["permissions"]) == 3
    assert engine.heard == ["clawpy permissions"] * 5  # answers, not looks


def test_tasks(engine: StandIn) -> None:
    task = ask(engine, "tasks", action="add", title="cart rounding", channel="koji-core")["task"]
    assert ask(engine, "tasks", state="open")["tasks"] == [task]
    assert ask(engine, "tasks", action="done", id=task["id"])["task"]["state"] == "done"
    assert refused(engine, "tasks", action="add", title="x", channel="nope").code == "unknown_channel"


def test_config(engine: StandIn) -> None:
    assert ask(engine, "config")["settings"]["quietHoursStart"] == 23
    got = ask(engine, "config", key="quietHoursStart")
    assert (got["value"], got["origin"], got["accepted"]) == (23, "default", "a whole number from 0 to 23")
    assert ask(engine, "config", action="set", key="quietHoursStart", value="22")["value"] == 22
    assert ask(engine, "config", action="set", key="quietHoursStart", value=21)["value"] == 21
    assert ask(engine, "config", action="unset", key="quietHoursStart")["value"] == 23
    assert refused(engine, "config", action="set", key="quietHoursStart", value="25").code == "bad_config"
    box = '{kind = "openai", baseUrl = "http://127.0.0.1:8000/v1"}'
    assert ask(engine, "config", action="set", key="providers.box", value=box)["value"]["kind"] == "openai"
    gone = ask(engine, "config", action="unset", key="providers.box")
    assert (gone["value"], gone["origin"]) == (None, "default"), "what the operator made has no default"
    assert refused(engine, "config", action="unset", key="providers.box").code == "not_set"


def test_check(engine: StandIn) -> None:
    assert ask(engine, "check", command="ls") == {"verdict": "allow", "rule": "", "reason": ""}
    assert ask(engine, "check", command="rm -rf /")["verdict"] == "block"
    assert ask(engine, "check", prompt="write to Ann")["verdict"] == "ask"
    lines = [{"id": 7, "command": "ls"}, {"prompt": "x"}, {}, 3, {"command": 1}, {"command": "a", "prompt": "b"}]
    results = ask(engine, "check", lines=lines)["results"]
    assert [result.get("verdict") or result["error"]["code"] for result in results] == [
        "allow", "ask", "bad_line", "bad_line", "bad_line", "bad_line",
    ]  # fmt: skip
    assert results[0]["id"] == 7


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
        ("check", {"lines": {}}, "bad_arguments"),
        ("status", [], "bad_arguments"),
        ("status", None, "bad_arguments"),
    ],
)
def test_whatever_a_program_sends_is_answered(engine: StandIn, verb: str, arguments: Any, code: str) -> None:
    with pytest.raises(Refusal) as caught:
        dispatch(engine, verb, arguments)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_a_session_that_ended_badly_is_a_failure() -> None:
    for result, status in (("succeeded", 0), ("failed", 1), ("cancelled", 1), ("cannot_run", 3)):
        assert exit_status({"session": {"result": result}}) == status
    assert exit_status({"session": None}) == 0
    assert exit_status({"session": None, "prediction": {"status": "pending", "note": "not done"}}) == 1
    assert exit_status({"session": None, "prediction": {"status": "confirmed"}}) == 0


def test_the_arguments_of_every_operation_can_be_checked() -> None:
    assert all(operation.arguments.model_fields is not None for operation in OPERATIONS.values())
