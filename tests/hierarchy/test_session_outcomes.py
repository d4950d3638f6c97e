"""The outcome of a session, by how it ends and what happens to its changes (SPEC 1.10, 5.7)."""

from typing import Any

import pytest

from engine.hierarchy.session_outcomes import compute_next_outcome

Step = tuple[str, dict[str, Any]]
"""The kind and the payload of a ledger entry about a session."""

SUCCEEDED: Step = ("SessionEnded", {"state": "succeeded"})
TESTS_FAILED: Step = ("ValidationFailed", {})
READY: Step = ("ChangeSetReady", {})
LANDED: Step = ("ChangeSetLanded", {})
BRANCHED: Step = ("ChangeSetBranched", {})


def make_ended(state: str) -> Step:
    return "SessionEnded", {"state": state}


def make_discarded(**payload: str) -> Step:
    return "ChangeSetDiscarded", payload


def make_undone(**payload: int) -> Step:
    return "LandingUndone", payload


@pytest.mark.parametrize(
    "steps, expected",
    [
        ([SUCCEEDED], "good"),
        ([make_ended("failed")], "bad"),
        ([make_ended("blocked")], "bad"),
        ([make_ended("cancelled")], ""),
        ([make_ended("interrupted")], ""),
        ([READY, SUCCEEDED], "open"),
        ([READY, SUCCEEDED, LANDED], "good"),
        ([READY, ("ChangeSetLanded", {"left": 1}), LANDED, make_undone(left=1)], "good"),
        ([READY, SUCCEEDED, BRANCHED], "good"),
        ([READY, SUCCEEDED, make_discarded()], "bad"),
        ([READY, SUCCEEDED, make_discarded(continued_in="sess_2")], ""),
        ([READY, SUCCEEDED, LANDED, make_undone()], "bad"),
        ([TESTS_FAILED, READY, SUCCEEDED], "bad"),
        ([TESTS_FAILED, SUCCEEDED, LANDED], "good"),  # the operator landed it although tests fail
    ],
)
def test_the_last_decision_on_a_session_is_its_outcome_also_when_it_is_read_twice(steps: list[Step], expected: str):
    outcome = ""
    for _ in range(2):
        for kind, payload in steps:
            outcome = compute_next_outcome(kind, payload, outcome)
        assert outcome == expected
