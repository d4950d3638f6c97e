"""The states of sessions and cards and the verdicts of rails: their signs, their tones and the words for them."""

from __future__ import annotations

from engine.model import PROBLEM_FOUND, Verdict
from engine.model.text import failures

VERDICT_SIGNS = {Verdict.ALLOW: ("✓", "grey"), Verdict.ASK: ("▲", "wants"), Verdict.BLOCK: ("✗", "wrong")}
"""Sign and tone of each verdict of a rail."""

SESSION_LABELS = {"succeeded": "finished", "cannot_run": "could not run", "cancelled": "stopped"}
"""States of sessions and outcomes of cards whose stored name is not a word that you would use."""

CARD_LABELS = {"confirmed": "approved", "rejected": "dismissed", "executed": "finished"}
"""The same for the states of cards."""

DECISION_LABELS = {"original": "edited", "did_himself": "done by you"}
"""The same for your decisions."""

SESSION_SIGNS = {
    "queued": ("○", "faint"), "running": ("◐", "accent"), "succeeded": ("✓", "grey"), "failed": ("✗", "wrong"),
    "cannot_run": ("○", "wants"), "cancelled": ("✗", "grey"), "blocked": ("✗", "wrong"),
    "interrupted": ("✗", "wants"), "discarded": ("✗", "grey"),
}  # fmt: skip
"""Sign and tone of each state of a session."""

PROBLEM_SIGN = ("▲", "wants")
"""Sign and tone of a session that ran to its end and found a problem."""

TEST_RUNS = (None, "run_tests")
"""The flows whose outcome is the number of tests that failed; None is an agent's work. Other flows use tests only as a
means."""


def session_outcome(state: str, result: str | None, flow: str | None, failed: int, errors: int) -> tuple[str, str, str]:
    """Sign, tone and words of how a session stands. Its tests `failed`, or had `errors`."""
    if state == "succeeded" and result == "failed":
        return (*PROBLEM_SIGN, failures(failed, errors) if flow in TEST_RUNS and failed + errors else PROBLEM_FOUND)
    return (*SESSION_SIGNS[state], SESSION_LABELS.get(state, state))
