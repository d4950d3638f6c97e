"""Findings by rules from the record of a session (SPEC 6.6, 6.7)."""

from typing import Any

import pytest

from engine.learning.learnings import Basis, Finding, Impact, SessionRecord, Statement, rate_confidence, rate_importance
from engine.learning.learnings.rules import find_learnings
from engine.model import LearningKind, LearningType, PermissionAnswer, PermissionRequest, Score
from tests.learning.learnings.chain_world import make_view
from tests.support import MONDAY_MORNING


def find_findings(**fields: Any) -> list[Finding]:
    """The findings of a session whose record has these fields."""
    return find_learnings(SessionRecord(make_view("s1"), **fields))


def make_permission_request(answer: PermissionAnswer | None, by: str = "operator") -> PermissionRequest:
    """A request for `git push` with its answer."""
    title = "git push origin main"
    return PermissionRequest(
        "perm_1", "s1", "ada", "/shop", "exec", title, title, "it pushes", MONDAY_MORNING, MONDAY_MORNING, answer, by=by
    )


def test_only_permission_answers_of_the_operator_are_findings():
    (denied,) = find_findings(permissions=(make_permission_request(PermissionAnswer.DENY_ONCE),))
    assert (denied.type, denied.about) == (LearningType.DIRECTIVE, "denied/exec/git push origin main")
    assert (denied.phase, denied.basis) == ("escalation", Basis.OPERATOR)
    (allowed,) = find_findings(permissions=(make_permission_request(PermissionAnswer.ALLOW_SESSION),))
    assert allowed.about.startswith("allowed/")
    assert find_findings(permissions=(make_permission_request(PermissionAnswer.DENY_ONCE, by="nobody"),)) == []
    reused = make_permission_request(PermissionAnswer.ALLOW_SESSION, by="operator (perm_0, for this session)")
    assert find_findings(permissions=(reused, make_permission_request(None))) == []


def test_the_confidence_of_a_statement_depends_on_its_speaker_and_preferences_are_of_the_operator():
    statements = (
        Statement("decision", "We use Decimal for money", "agent"),
        Statement("fact", "Port 8080 is the proxy's", "program"),
        Statement("correction", "No, the rate is 19 percent", "operator"),
        Statement("fact", "I prefer short names", "operator", preference=True),
        Statement("fact", "port 8080 is the proxy's!", "agent"),
    )
    claim, output, correction, preference = find_findings(statements=statements)
    assert [finding.basis.value[0] for finding in (claim, output, correction, preference)] == [0.4, 0.5, 0.9, 0.9]
    assert [finding.type.value for finding in (claim, output, correction)] == ["directive", "declarative", "corrective"]
    assert [finding.kind for finding in (correction, preference)] == [LearningKind.INSTITUTIONAL, LearningKind.PROXY]
    assert rate_importance(correction.impact).value > rate_importance(output.impact).value


def test_confidence_comes_from_how_it_was_established():
    expected = {Basis.TESTS: 0.9, Basis.OPERATOR: 0.9, Basis.REPEATED: 0.75, Basis.SINGLE: 0.5, Basis.MODEL: 0.4}
    assert {basis: rate_confidence(basis).value for basis in Basis} == expected
    assert rate_confidence(Basis.REPEATED, 3) == Score(0.75, ("it was observed repeatedly (3 times)",))


@pytest.mark.parametrize(
    "effects, value",
    [
        ((False, 0.0, 0, 0), 0.0),
        ((True, 600, 100_000, 2), 0.6),
        ((True, 1800, 500_000, 5), 1.0),
        ((True, 1e9, 10**12, 10**6), 1.0),
    ],
)
def test_importance_comes_from_what_was_affected(effects: Any, value: float):
    assert (importance := rate_importance(Impact(*effects))).value == value
    assert importance.reasons
