"""Follow-ups (SPEC 2.10): a session that has ended may propose one next step.

Which step, a table says by the flow that ended, or the flow's own result does (`facts["next"]` names a flow). What it
proposes is what the templates see once the session is over: so it is filled from real evidence, and gone with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from engine.clock import Clock
from engine.model import Card, Proposal, Refusal, SessionState, SessionView
from engine.prediction.kinds import HANDED_OVER
from engine.storage.database import Database
from engine.storage.facts_read import Facts, FactsRead

log = logging.getLogger(__name__)

CURSOR = "cards.follow_ups"
STALE = timedelta(hours=24)
"""A session that ended longer ago asks for nothing any more."""

AFTER_RED = (
    "undo_landing", "apply_fix", "rehearse_revert", "bisect", "hunt_flakes", "still_red", "rerun_failing", HANDED_OVER,
)  # fmt: skip
AFTER: Mapping[str, tuple[str, ...]] = {
    "fix_lint": (HANDED_OVER,),
    "rehearse_merge": (HANDED_OVER,),
    "unfinished_operation": (HANDED_OVER,),
}
"""Kinds of cards that may follow, the best first: `AFTER_RED` when tests failed, else by the flow that ended. A flow's
result that names its next step itself goes first."""

Choose = Callable[[Sequence[Proposal]], Proposal | None]


def next_kinds(view: SessionView, now: datetime) -> tuple[str, ...]:
    """Kinds that may follow this session, the best first; none unless it ran to its end within a day. One that found
    something wrong (it failed, SPEC 2.12) is followed by what it names."""
    if view.state not in (SessionState.SUCCEEDED, SessionState.FAILED) or view.flow is None:
        return ()
    if view.ended_at is None or now - view.ended_at > STALE:
        return ()
    if view.next_step:
        return (view.next_step,)
    if view.state is SessionState.FAILED:
        return ()
    red = view.check is not None and view.check.failed + view.check.errors > 0
    if red:  # a flow is not followed by itself: it would find the same
        return tuple(kind for kind in AFTER_RED if kind != view.flow)
    return AFTER.get(view.flow, ())


def choose(kinds: Sequence[str], proposals: Sequence[Proposal]) -> Proposal | None:
    """The proposal of the first kind that there is one of."""
    return next((one for kind in kinds for one in proposals if one.kind == kind), None)


class FollowUps:
    """Follows the ends of sessions with a durable cursor, each handled once, and once again harmlessly.

    `offer(workspace, choose, after)` looks at a workspace, withdraws the cards whose evidence is gone, and makes the
    card of the proposal that `choose` takes; `after` is the channel it follows from.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        facts: Facts,
        session: Callable[[str], SessionView],
        offer: Callable[[str, Choose, str], Card | None],
    ) -> None:
        self._clock = clock
        self._facts = FactsRead(database, facts, CURSOR, lambda fact: fact.kind == "SessionEnded")
        self._session = session
        self._offer = offer
        self._busy = threading.Lock()

    def catch_up(self) -> list[Card]:
        """Take in the ends of all sessions since the last time; returns the cards made. One thread at a time: who
        comes meanwhile leaves it to the other."""
        if not self._busy.acquire(blocking=False):
            return []
        try:
            made: list[Card] = []
            self._facts.each(lambda facts: made.extend(card for one in facts for card in self._after(one.subject)))
            return made
        finally:
            self._busy.release()

    def _after(self, session_id: str) -> list[Card]:
        try:
            view = self._session(session_id)
            now = self._clock.now()
            kinds = next_kinds(view, now)
            tested = view.check is not None and view.ended_at is not None and now - view.ended_at <= STALE
            if not kinds and not tested:
                return []
            card = self._offer(view.workspace, lambda proposals: choose(kinds, proposals), view.channel)
        except Refusal as refusal:
            log.warning("no follow-up of %s: %s", session_id, refusal)
            return []
        return [] if card is None else [card]
