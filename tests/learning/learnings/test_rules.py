"""What rules take out of the record of a session (SPEC 6.6, 6.7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.learning.learnings.rules import (
    Finding,
    SessionRecord,
    Statement,
    correction_findings,
    find_learnings,
)
from engine.model import (
    LearningKind,
    LearningType,
    PermissionAnswer,
    PermissionRequest,
    SessionState,
)
from engine.model.learnings import Correction
from tests.conftest import MONDAY_MORNING
from tests.learning.learnings.world import fact, view

TEST = "tests/test_cart.py::test_total"


def learnt(**more: Any) -> list[Finding]:
    return find_learnings(SessionRecord(more.pop("view", view("s1")), **more))


def request(answer: PermissionAnswer | None, by: str = "operator", title: str = "git push origin main") -> Any:
    return PermissionRequest(
        "perm_1", "s1", "ada", "/shop", "exec", title, title, "it pushes", MONDAY_MORNING, MONDAY_MORNING, answer, by=by
    )


def test_a_break_that_was_mended_is_established_by_tests_and_weighs_what_it_cost() -> None:
    healed = fact("ValidationHealed", "s1", failing=[TEST], attempts=2, cost=0)
    (one,) = learnt(entries=(healed,), view=replace(view("s1"), cost=250_000))
    assert (one.about, one.phase, one.kind) == (f"healed/{TEST}", "corrective", LearningKind.TASK)
    assert one.type is LearningType.PROCEDURAL
    assert (one.confidence.value, one.confidence.reasons) == (0.9, ("tests confirmed it",))
    # a failure 0.4, 10 of 30 minutes of 0.2, a quarter of half a dollar of 0.15, 1 of 5 things of 0.25
    assert one.importance.value == pytest.approx(0.4 + 0.2 / 3 + 0.075 + 0.05, abs=0.006)
    assert one.importance.reasons[0] == "a failure was avoided: +0.40"


@pytest.mark.parametrize(
    ("kind", "payload", "about", "phase"),
    [
        ("ValidationFailed", {"failing": [TEST]}, f"unmended/{TEST}", "corrective"),
        ("RetryRepeated", {"failing": [TEST]}, f"circles/{TEST}", "observations"),
        (
            "AgentErred",
            {"tool": "edit", "message": "no file /tmp/tree/a.py"},
            "erred/edit/no file /a.py",
            "observations",
        ),
        ("ToolRefused", {"tool": "exec", "what": "rm -rf /", "rule": "wipe"}, "refused/wipe/rm -rf /", "escalation"),
        ("WorkOverlapped", {"files": ["a.py"], "conflicting": []}, "overlap/a.py", "observations"),
        ("ChangeSetDiscarded", {"session_id": "s1"}, "discarded/round cart totals", "intent-alignment"),
        ("LandingUndone", {"session_id": "s1"}, "undone/round cart totals", "intent-alignment"),
    ],
)
def test_facts_of_the_ledger_teach(kind: str, payload: dict[str, Any], about: str, phase: str) -> None:
    (one,) = learnt(entries=(fact(kind, "s1", **payload),))
    assert (one.about, one.phase) == (about, phase)
    assert one.text
    assert one.confidence.reasons
    assert one.importance.reasons


def test_what_went_on_in_another_session_and_what_failed_for_want_of_something_teach_nothing() -> None:
    assert learnt(entries=(fact("ChangeSetDiscarded", "c1", session_id="s1", continued_in="s2"),)) == []
    assert learnt(entries=(fact("LandingUndone", "c1", session_id="s1", left=1),)) == []
    assert learnt(view=replace(view("s1"), state=SessionState.CANCELLED, error="stopped")) == []
    (one,) = learnt(view=replace(view("s1"), state=SessionState.FAILED, error="no network in 30 s"))
    assert one.about == "failed/no network in # s"


def test_answers_of_the_operator_teach_and_those_of_nobody_do_not() -> None:
    (denied,) = learnt(permissions=(request(PermissionAnswer.DENY_ONCE),))
    assert (denied.type, denied.about) == (LearningType.DIRECTIVE, "denied/exec/git push origin main")
    assert (denied.phase, denied.confidence.value) == ("escalation", 0.9)
    (allowed,) = learnt(permissions=(request(PermissionAnswer.ALLOW_SESSION),))
    assert allowed.about.startswith("allowed/")
    assert learnt(permissions=(request(PermissionAnswer.DENY_ONCE, by="nobody"),)) == []
    again = request(PermissionAnswer.ALLOW_SESSION, by="operator (perm_0, for this session)")
    assert learnt(permissions=(again, request(None))) == []
    refused = fact("ToolRefused", "s1", tool="exec", what="git push origin main", rule="denied", reason="by operator")
    told = learnt(entries=(refused,), permissions=(request(PermissionAnswer.DENY_ONCE),))
    assert [one.about for one in told] == ["denied/exec/git push origin main"], "his answer tells of it"
    assert [one.about for one in learnt(entries=(refused,))] == ["refused/denied/git push origin main"], (
        "a policy's does not"
    )


def test_an_edit_teaches_what_was_put_in_and_where_nothing_was_what_was_taken_out() -> None:
    put_in = correction_findings(Correction("Round the totals.", "Round the totals. Leave the fixtures alone. Go."))
    assert [one.text for one in put_in] == ["Leave the fixtures alone"]
    assert put_in[0].confidence.reasons == ("you confirmed it",)
    taken = correction_findings(Correction("Round the totals. Also update the docs.", "Round the totals."))
    assert [one.text for one in taken] == ["Not wanted: Also update the docs."]
    assert correction_findings(Correction("Round the totals", "round the  totals.")) == []


def test_sentences_are_as_sure_as_who_said_them_and_likings_are_the_humans() -> None:
    said = (
        Statement("decision", "We use Decimal for money", "agent"),
        Statement("fact", "Port 8080 is the proxy's", "program"),
        Statement("correction", "No, the rate is 19 percent", "operator"),
        Statement("fact", "I prefer short names", "operator", preference=True),
        Statement("fact", "port 8080 is the proxy's!", "agent"),
    )
    one, two, three, four = learnt(statements=said)
    assert [each.confidence.value for each in (one, two, three, four)] == [0.4, 0.5, 0.9, 0.9]
    assert [each.type.value for each in (one, two, three)] == ["directive", "declarative", "corrective"]
    assert [each.kind for each in (three, four)] == [LearningKind.INSTITUTIONAL, LearningKind.PROXY]
    assert three.importance.value > two.importance.value, "to go against it is work that is thrown away"
