"""The risk of a card: what it changes, and why approving it may need a second key."""

from __future__ import annotations

from clawpy_console.formats import one_line
from engine.model import Card, RailVerdict, Verdict

CHANGES_BY_FLOW = {
    "keep_commits": "makes a branch", "prepare_environment": "installs packages",
    "undo_landing": "undoes a landing", "reclaim_space": "deletes what is not needed any more",
}  # fmt: skip
"""The changes of flows that change something else than files which wait to be landed."""

NO_SANDBOX = "no sandbox on this machine"


def describe_changes(flow: str | None, check_only: bool, without_sandbox: bool) -> str:
    """The changes that a card may make. Nothing that runs without a sandbox is called read-only."""
    if check_only:
        return "only checks, without a sandbox" if without_sandbox else "read-only"
    return CHANGES_BY_FLOW.get(flow or "", "you land the changes")


def approval_risk(card: Card) -> str:
    """Why a card is risky, "" when it is not: no sandbox works here, the content filter asks, or it touches production.

    Approving such a card needs a second, distinct key.
    """
    return "; ".join(filter(None, (NO_SANDBOX if card.needs_confirmation else "", _rail_reason(card))))


def _rail_reason(card: Card) -> str:
    for verdict in card.verdicts:
        if verdict.rail == "content" and verdict.verdict is Verdict.ASK:
            return one_line(verdict.reason)
        if "production" in verdict.rule.split(","):
            reasons = (part for part in verdict.reason.split("; ") if "production" in part)
            return one_line(next(reasons, verdict.reason))
    return ""


def blocking_verdict(card: Card) -> RailVerdict | None:
    """The first rail that would block the card now."""
    return next((verdict for verdict in card.verdicts if verdict.verdict is Verdict.BLOCK), None)
