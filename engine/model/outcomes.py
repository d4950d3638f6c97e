"""What became of a session that had something to go by: guidance, an overlay (SPEC 1.10, 5.7). Pure."""

from __future__ import annotations

from collections.abc import Mapping

SESSION_FACTS = frozenset({"SessionEnded", "ValidationFailed"})
CHANGE_FACTS = frozenset(
    {"ChangeSetReady", "ChangeSetLanded", "ChangeSetBranched", "ChangeSetDiscarded", "LandingUndone"}
)
"""Kinds of facts that say it; the ones are about the session itself, the others name it."""


def session_of(kind: str, subject: str, payload: Mapping[str, object]) -> str:
    """The session that a fact of these kinds is about."""
    return subject if kind in SESSION_FACTS else str(payload.get("session_id", ""))


def judged(kind: str, payload: Mapping[str, object], before: str) -> str:
    """How a session stands after a fact about it: "", "open" (its changes wait), "good" or "bad".

    Good is what ended well and left no changes, or whose changes were taken; bad is what failed, was blocked, stayed
    red, or whose changes were thrown away or taken back. The operator's word on the changes is the last one. What was
    cancelled or interrupted says nothing.
    """
    match kind:
        case "ChangeSetReady":
            return before or "open"
        case "ChangeSetLanded" | "ChangeSetBranched":
            return "good"
        case "LandingUndone":
            return before if payload.get("left") else "bad"  # other parts stand
        case "ChangeSetDiscarded":
            return "" if payload.get("continued_in") else "bad"
        case "ValidationFailed":
            return "bad"
        case "SessionEnded" if payload.get("state") in ("failed", "blocked"):
            return "bad"
        case "SessionEnded" if payload.get("state") == "succeeded":
            return before or "good"
    return before
