"""Follow-ups (SPEC 2.10): a session that has ended may propose one next step. Pure.

Which step, a table says by the flow that ended, or the flow's own result does (`SessionView.next_step`). The step must
be among the proposals that the templates make now: so it has evidence, and goes when the evidence goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from engine.model import Proposal, SessionState, SessionView
from engine.prediction.kinds import FIX_BY_AGENT

MAX_AGE = timedelta(hours=24)
"""A session that ended longer ago asks for nothing any more."""

FOLLOW_UPS_OF_FAILED_TESTS = (
    "undo_landing", "apply_fix", "rehearse_revert", "bisect", "hunt_flakes", "still_red", "rerun_failing", FIX_BY_AGENT,
)  # fmt: skip
FOLLOW_UPS_BY_FLOW: Mapping[str, tuple[str, ...]] = {
    "fix_lint": (FIX_BY_AGENT,),
    "rehearse_merge": (FIX_BY_AGENT,),
    "unfinished_operation": (FIX_BY_AGENT,),
}
"""Kinds of cards that may follow, the best first: `FOLLOW_UPS_OF_FAILED_TESTS` when tests failed, else by the flow that
ended. A flow's result that names its next step itself goes first."""


def is_recent(view: SessionView, now: datetime) -> bool:
    """Whether the session ended within a day."""
    return view.ended_at is not None and now - view.ended_at <= MAX_AGE


def next_kinds(view: SessionView, now: datetime) -> tuple[str, ...]:
    """Kinds that may follow this session, the best first; none unless it ran to its end within a day."""
    if view.state is not SessionState.SUCCEEDED or view.flow is None or not is_recent(view, now):
        return ()
    if view.next_step:
        return (view.next_step,)
    tests_failed = view.check is not None and view.check.failed + view.check.errors > 0
    if tests_failed:  # a flow is not followed by itself: it would find the same
        return tuple(kind for kind in FOLLOW_UPS_OF_FAILED_TESTS if kind != view.flow)
    return FOLLOW_UPS_BY_FLOW.get(view.flow, ())


def first_proposal_of(kinds: Sequence[str], proposals: Sequence[Proposal]) -> Proposal | None:
    """The proposal of the first of `kinds` that there is one of."""
    return next((proposal for kind in kinds for proposal in proposals if proposal.kind == kind), None)
