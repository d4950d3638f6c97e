"""Follow-ups (SPEC 2.10): a session that has ended may propose one next step. Pure.

Which step, a table says by the flow that ended, or the flow's own result does (`facts["next"]` names a flow). What it
proposes is what the templates see once the session is over: so it is filled from real evidence, and gone with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from engine.model import Proposal, SessionState, SessionView
from engine.prediction.kinds import FIX_BY_AGENT

CURSOR = "cards.follow_ups"
MAX_AGE = timedelta(hours=24)
"""A session that ended longer ago asks for nothing any more."""

AFTER_FAILED_TESTS = (
    "undo_landing", "apply_fix", "rehearse_revert", "bisect", "hunt_flakes", "still_red", "rerun_failing", FIX_BY_AGENT,
)  # fmt: skip
AFTER: Mapping[str, tuple[str, ...]] = {
    "fix_lint": (FIX_BY_AGENT,),
    "rehearse_merge": (FIX_BY_AGENT,),
    "unfinished_operation": (FIX_BY_AGENT,),
}
"""Kinds of cards that may follow, the best first: `AFTER_FAILED_TESTS` when tests failed, else by the flow that ended.
A flow's result that names its next step itself goes first."""


def is_recent(view: SessionView, now: datetime) -> bool:
    """Whether the session ended within a day."""
    return view.ended_at is not None and now - view.ended_at <= MAX_AGE


def next_kinds(view: SessionView, now: datetime) -> tuple[str, ...]:
    """Kinds that may follow this session, the best first; none unless it ran to its end within a day."""
    if view.state is not SessionState.SUCCEEDED or view.flow is None or not is_recent(view, now):
        return ()
    if view.next_step:
        return (view.next_step,)
    red = view.check is not None and view.check.failed + view.check.errors > 0
    if red:  # a flow is not followed by itself: it would find the same
        return tuple(kind for kind in AFTER_FAILED_TESTS if kind != view.flow)
    return AFTER.get(view.flow, ())


def choose(kinds: Sequence[str], proposals: Sequence[Proposal]) -> Proposal | None:
    """The proposal of the first kind that there is one of."""
    return next((proposal for kind in kinds for proposal in proposals if proposal.kind == kind), None)
