"""One round of prediction (SPEC 2): sense → propose → select → cards; `selection` does the third step.

Reading and judging happen before the one transaction that withdraws and creates; nothing slow runs inside it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime, timedelta

from engine.config import Settings
from engine.frozen import frozen
from engine.model import (
    Assignment,
    CalibrationCheck,
    Card,
    CycleReport,
    Phase,
    Proposal,
    Randomness,
    Refusal,
    SessionState,
    SessionView,
    Signal,
    Source,
    sanitise,
)
from engine.model.text import count
from engine.prediction import card_rules
from engine.prediction.approvals import Approvals
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.kinds import FIX_BY_AGENT, KINDS_BY_INSPECTION
from engine.prediction.routing import Router
from engine.prediction.selection import LAST_CHECKED, CardSelector, Intake, Selection, WorkspaceFindings
from engine.prediction.twin import ConfidenceEstimate, EmbeddedTwin
from engine.storage import state as stored
from engine.storage.ledger import LedgerCursor

# Follow-ups (SPEC 2.10): a session that has ended may propose one next step. Pure.
#
# Which step, a table says by the flow that ended, or the flow's own result does (`SessionView.next_step`). The step
# must be among the proposals that the templates make now: so it has evidence, and goes when the evidence goes.


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


log = logging.getLogger(__name__)

Contexts = Callable[[Sequence[str]], Sequence[WorkspaceContext]]
"""Reads the contexts of workspaces, side by side; slow."""

Propose = Callable[[WorkspaceContext, list[Exception]], Sequence[Proposal]]
"""Proposes for a context; errors go into the list."""

FOLLOW_UP_CURSOR = "cards.follow_ups"


@frozen
class _Running:
    """A cycle under way: what will come of it, and which workspaces it looks at."""

    report: Future[CycleReport]
    workspaces: frozenset[str]


class Predictions:
    """`engine.predictions`: runs cycles, one at a time."""

    def __init__(
        self,
        store: CardStore,
        approvals: Approvals,
        router: Router,
        twin: EmbeddedTwin,
        randomness: Randomness,
        *,
        contexts: Contexts,
        workspaces: Callable[[], Sequence[str]],
        propose: Propose,
    ) -> None:
        self._store = store
        self._database = store.database
        self._approvals = approvals
        self._twin = twin
        self._contexts = contexts
        self._workspaces = workspaces
        self._propose = propose
        self._intake = Intake(store)
        self._selector = CardSelector(store, approvals, router, twin, self._intake, randomness)
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._last_contexts: dict[str, WorkspaceContext] = {}
        """Each workspace as it was looked at last."""
        self._ended = LedgerCursor(store.ledger, FOLLOW_UP_CURSOR, lambda fact: fact.kind == "SessionEnded")
        self._following = threading.Lock()

    def run_cycle(self, *, workspaces: Sequence[str] | None = None, requested: bool = False) -> CycleReport:
        """One cycle, in this thread. Never two at once: a second call waits for the report of the first, or runs one of
        its own after it when the first leaves out a requested workspace.

        Raises `Refusal` `stopped` when the kill switch is thrown and the operator `requested` it; otherwise that is
        an error of the report.
        """
        requested_paths = list(self._workspaces() if workspaces is None else workspaces)
        cycle, is_mine = self._take_turn(requested_paths)
        while not is_mine and not cycle.workspaces.issuperset(requested_paths):
            wait([cycle.report])
            cycle, is_mine = self._take_turn(requested_paths)
        if not is_mine:
            return replace(cycle.report.result(), fresh=False)
        try:
            outcome: CycleReport | BaseException = self._cycle(requested_paths, requested)
        except BaseException as error:
            outcome = error
        with self._lock:
            self._running = None
        if isinstance(outcome, BaseException):
            cycle.report.set_exception(outcome)
        else:
            cycle.report.set_result(outcome)
        return cycle.report.result()

    def _take_turn(self, workspaces: Sequence[str]) -> tuple[_Running, bool]:
        """The cycle that runs, or else a new one that the caller has to run."""
        with self._lock:
            if self._running is not None:
                return self._running, False
            self._running = _Running(Future(), frozenset(workspaces))
            return self._running, True

    def signals(self, workspace: str) -> tuple[Signal, ...]:
        """The six signals of the workspace as the last cycle saw them; empty before the first one."""
        return self._last_contexts[workspace].signals if workspace in self._last_contexts else ()

    def remarks(self) -> dict[str, str]:
        """By workspace what the last cycle had to say of it, where that is anything: why there may be no cards."""
        return {workspace: context.remark for workspace, context in self._last_contexts.items() if context.remark}

    def last_checked(self) -> dict[str, datetime]:
        """When each workspace was looked at last, by an earlier engine too; without those that no cycle has seen."""
        with self._database.read() as session:
            times: dict[str, str] = stored.get(session, LAST_CHECKED, {})
        return {workspace: datetime.fromisoformat(at) for workspace, at in times.items()}

    def estimate(self, proposal: Proposal, assignment: Assignment) -> ConfidenceEstimate:
        """The confidence of what no cycle found: a suggestion of an agent or a program."""
        clock, context = self._store.clock, self.situation(proposal.workspace)
        return self._twin.estimate(
            proposal, assignment, context=context, phase=self.phase(), now=clock.now(), local=clock.local()
        )

    def situation(self, workspace: str) -> str:
        """The situation of a workspace in words, as preference pairs keep it (SPEC 8.2): as the last cycle saw it, else
        as it is now, which takes a look."""
        if workspace not in self._last_contexts:
            return "".join(context.text for context in self._contexts([workspace]))
        return self._last_contexts[workspace].text

    def phase(self) -> Phase:
        """How far the operator's decisions carry (SPEC 2.6)."""
        with self._database.read() as session:
            return self._twin.phase(session)

    def calibration(self) -> CalibrationCheck:
        """Whether stated confidences come true (SPEC 8.6)."""
        return self._twin.calibrator.check()

    def follow_up(self) -> list[Card]:
        """Cards for what sessions that have ended since the last time lead to (SPEC 2.10); none while stopped. One
        thread at a time: a second call returns at once."""
        if self._store.safety.kill_switch.stop_reason() or not self._following.acquire(blocking=False):
            return []
        try:
            cards: list[Card | None] = []
            self._ended.each(lambda facts: cards.extend([self._after(fact.subject) for fact in facts]))
            return [card for card in cards if card is not None]
        finally:
            self._following.release()

    def _after(self, session_id: str) -> Card | None:
        """The card that follows a session. Its workspace is looked at also where none can, after a run of the tests:
        cards whose evidence is gone are withdrawn."""
        try:
            view = self._approvals.launcher.session(session_id)
            now = self._store.clock.now()
            kinds = next_kinds(view, now)
            if not kinds and (view.check is None or not is_recent(view, now)):
                return None
            return self._offer_next(view.workspace, kinds, view.channel)
        except Refusal as refusal:
            log.warning("no follow-up of %s: %s", session_id, refusal)
            return None

    def _cycle(self, requested_paths: Sequence[str], requested: bool) -> CycleReport:
        clock, store = self._store.clock, self._store
        began = clock.monotonic()
        stopped = store.safety.kill_switch.stop_reason()
        if stopped:
            if requested:
                raise Refusal("stopped", stopped, "clawpy resume")
            return CycleReport(errors=(stopped,))
        store.expire_due()
        store.follow_landings()
        store.credit_kept()
        self.follow_up()
        active_paths = [path for path in requested_paths if not store.is_off(path)]
        errors = [
            f"{path}: autonomy is off, so it gets no cards"
            for path in requested_paths
            if path not in active_paths and requested
        ]
        all_findings = self._find_proposals(active_paths, errors)
        if requested:
            errors += [
                f"{findings.context.workspace}: no commit yet; most cards need a history, so make a commit"
                for findings in all_findings
                if findings.context.git is not None and not findings.context.git.head
            ]
            errors += [f"{path}: {remark}" for path, remark in self.remarks().items() if path in active_paths]
        with self._database.read() as session:
            leaving = self._intake.leaving(session, all_findings, clock.now())
            room = self._intake.room(session, leaving, clock.now())
        proposals = [proposal for findings in all_findings for proposal in findings.proposals]
        selection = self._selector.select(proposals, self._last_contexts, errors, room=room, leaving=leaving)
        if requested and selection.is_full:
            errors.append(_full(store.settings.current))
        created, withdrawn = self._database.write(
            lambda tx: self._intake.apply(tx, all_findings, selection, tuple(errors), clock.monotonic() - began)
        )
        return CycleReport(tuple(created), tuple(withdrawn), tuple(errors), clock.monotonic() - began)

    def _offer_next(self, workspace: str, kinds: Sequence[str], after: str) -> Card | None:
        """The first of `kinds` that the workspace suggests now, as a card that follows from the channel `after`. What a
        session did is new evidence: cards that asked for it are withdrawn at once."""
        if self._store.is_off(workspace):
            return None
        errors: list[str] = []
        findings = self._find_proposals([workspace], errors)
        proposals = [proposal for found in findings for proposal in found.proposals]
        with self._database.read() as session:
            possible = self._intake.may_follow(session, proposals, self._store.clock.now())
            chosen = first_proposal_of(kinds, possible)
            older = self._intake.other_evidence(session, chosen) if chosen else set()
        selection = Selection()
        if chosen is not None:
            room = card_rules.Room(self._store.settings.current, ())  # a follow-up takes no place
            chosen = replace(chosen, source=Source.FOLLOW_UP)
            selection = self._selector.select([chosen], self._last_contexts, errors, room=room, leaving=older)
        for row in selection.rows:
            row.from_channel = after
        for error in errors:
            log.warning("while looking for a follow-up: %s", error)
        return self._database.write(lambda tx: self._intake.add_follow_up(tx, findings, selection))

    def _find_proposals(self, workspaces: Sequence[str], errors: list[str]) -> list[WorkspaceFindings]:
        """Contexts and what they suggest; what failed goes into `errors` and hinders nothing else."""
        findings: list[WorkspaceFindings] = []
        for context in self._contexts(workspaces) if workspaces else ():
            self._last_contexts[context.workspace] = context
            unknown = context.inspection.unknown
            messages = [*context.errors, *(f"{look}: {error}" for look, error in unknown.items())]
            failed: list[Exception] = []
            proposals = self._propose(context, failed)
            for error in failed:
                log.error("not everything was proposed for %s", context.workspace, exc_info=error)
                messages.append(f"{type(error).__name__}: {sanitise(str(error))}")
            errors += [f"{context.workspace}: {words}" for words in messages]
            findings.append(
                WorkspaceFindings(
                    context,
                    tuple(proposals),
                    complete=context.git is not None and not context.errors and not failed,
                    unseen=frozenset(kind for look in unknown for kind in KINDS_BY_INSPECTION[look]),
                )
            )
        return findings


def _full(settings: Settings) -> str:
    """Why nothing is offered although something was found."""
    per_workspace, in_all = count(settings.max_pending_cards, "card"), settings.max_pending_cards_in_all
    return (
        f"there is more, but at most {per_workspace} may wait in a workspace (maxPendingCards) and {in_all} in all "
        "(maxPendingCardsInAll): decide some first"
    )
