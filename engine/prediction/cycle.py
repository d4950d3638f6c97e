"""One check of the workspaces, which makes cards (SPEC 2): sense → propose → select → cards. `selection` does the third
step.

The workspaces are read and the cards are chosen first. One transaction then withdraws old cards and creates new ones,
so nothing slow runs inside it.

A session that has ended may lead to one next step (SPEC 2.10). That is a round in its workspace which makes at most
this one card. The card must be among the present proposals, so it has evidence, and it is withdrawn when the evidence
is gone.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from engine.config import Settings, SettingsSource
from engine.events import CycleFinished
from engine.frozen import frozen
from engine.model import (
    Assignment,
    CalibrationCheck,
    Card,
    CycleReport,
    Phase,
    Proposal,
    RailVerdict,
    Randomness,
    Refusal,
    Result,
    Source,
    sanitise,
)
from engine.model.text import count, join_names
from engine.prediction.approvals import Approvals
from engine.prediction.card_rows import load_card, load_own_session_ids, load_pending_cards, make_card_of_row
from engine.prediction.card_rules import NO_PLACE, Room
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.kinds import KINDS, find_next_kinds
from engine.prediction.problems import find_unsolved_problem, knows_problems
from engine.prediction.routing import Router
from engine.prediction.selection import (
    CardSelector,
    Findings,
    Selection,
    find_content_block,
    find_leaving_cards,
    is_done_by_operator,
    renew_reasons,
)
from engine.prediction.tasks import TaskBoard
from engine.prediction.twin import ConfidenceEstimate, EmbeddedTwin
from engine.storage import state
from engine.storage.database import Transaction
from engine.storage.ledger import LedgerCursor, LedgerEntry

log = logging.getLogger(__name__)

Contexts = Callable[[Sequence[str]], Sequence[WorkspaceContext]]
"""Reads the contexts of workspaces. It is slow, because it asks git."""

Propose = Callable[[WorkspaceContext, list[Exception]], Sequence[Proposal]]
"""Returns the proposals for a context. Errors are added to the list."""

FOLLOW_UP_CURSOR = "cards.follow_ups"
"""Name of the cursor in the ledger of `follow_up`."""

FOLLOWED = frozenset({"SessionStarted", "SessionEnded"})
"""The kinds of events about sessions that `follow_up` reads."""

DECIDED = frozenset({"ChangeSetLanded", "ChangeSetBranched", "ChangeSetDiscarded", "LandingUndone"})
"""The kinds of events about changes that `follow_up` reads. A problem may be solved by them, or be back."""

LAST_CHECKED = "cards.looked"
"""Key in the state table: when each workspace was last checked."""

REMARKS = "cards.remarks"
"""Key in the state table: what the last check of each workspace had to say, "" for nothing."""

HELD_BACK = "cards.held_back"
"""Key in the state table: the cards of each workspace that the content filter held back in the last cycle, in words."""

MAX_AGE = timedelta(hours=24)
"""A session that ended longer ago leads to no next step any more."""


@frozen
class RoundPreparation:
    """Brings up to date what a round is about to read: the tasks, and what was learned. What fails is reported, and the
    round goes on without it."""

    tasks: TaskBoard
    settings: SettingsSource
    workspaces: Callable[[], Sequence[str]]
    stop_reason: Callable[[], str]
    """The kill switch: why nothing may run now, "" when it may."""
    pulse: Callable[[], object]
    """Makes tasks of the heartbeats that are due."""
    learn: Callable[[], object]
    """Makes candidates of what happened (SPEC 5.6)."""
    report: Callable[[str, str], None]

    def run(self) -> None:
        """Do all of it. While the engine is stopped, no heartbeat is due."""
        if not self.stop_reason():
            self.pulse()  # what is due is a card of this very round, also of one that a verb asks for
        if folder := self.settings.current.tasks_dir:
            self._read_task_files(folder)
        try:
            self.learn()
        except Exception as error:  # cards that do not come of what was learned come all the same
            self.report("adaptation", f"what happened was not weighed: {error}")

    def _read_task_files(self, folder: str) -> None:
        """Read the files of `tasksDir` into the task board; a fault changes nothing there."""
        try:
            self.tasks.update_from_files(Path(folder).expanduser(), self.workspaces())
        except (OSError, UnicodeDecodeError) as error:
            self.report("tasksDir", f"{folder} cannot be read: {error}; fix it, or: clawpy config set tasksDir ''")


@frozen
class RoundSources:
    """The functions by which a round reads the workspaces, and gets proposals."""

    prepare: Callable[[], None]
    """It is called before contexts are read; see `RoundPreparation`."""
    contexts: Contexts
    note_activity: Callable[[str, datetime], None]
    """It is called with a workspace and a time if somebody but us changed its files last at that time."""
    workspaces: Callable[[], Sequence[str]]
    propose: Propose


class _Plan(NamedTuple):
    """The findings of a round by workspace, and the rows that may become cards."""

    findings: dict[str, Findings]
    selection: Selection


class _Changes(NamedTuple):
    """The cards that a round created, and the ids of those that it withdrew."""

    created: list[Card]
    withdrawn: list[str]


class CardCycle:
    """The service `engine.card_cycle`: runs cycles, one at a time."""

    def __init__(
        self,
        store: CardStore,
        approvals: Approvals,
        router: Router,
        twin: EmbeddedTwin,
        randomness: Randomness,
        sources: RoundSources,
    ) -> None:
        self._store = store
        self._database = store.database
        self._approvals = approvals
        self._twin = twin
        self._sources = sources
        self._selector = CardSelector(store, approvals, router, twin, randomness)
        self._lock = threading.RLock()
        self.is_checking = False
        """Whether a cycle runs now."""
        self._last_contexts: dict[str, WorkspaceContext] = {}
        """By workspace: its context in the last cycle."""
        self._ended = LedgerCursor(store.ledger, FOLLOW_UP_CURSOR, lambda entry: entry.kind in FOLLOWED | DECIDED)

    def run_cycle(self, *, workspaces: Sequence[str] | None = None, requested: bool = False) -> CycleReport:
        """Run one cycle in this thread. If one is running already, this call waits for its end.

        While the engine is stopped there are no cards. The report names that as its error, or, if the operator
        `requested` the cycle, `Refusal` `stopped` is raised.
        """
        with self._lock:
            self.is_checking = True
            try:
                return self._run_cycle(
                    list(self._sources.workspaces() if workspaces is None else workspaces), requested
                )
            finally:
                self.is_checking = False

    def remarks(self) -> dict[str, str]:
        """By workspace: why there may be no cards, or else the newest problem that still holds; and how many cards are
        held back. Without workspaces of which their last check, also by an earlier engine, found none of these."""
        with self._database.read() as session:
            remarks: dict[str, str] = state.get(session, REMARKS, {})
            held_back: dict[str, str] = state.get(session, HELD_BACK, {})
        sentences = {
            workspace: [remarks.get(workspace, ""), held_back.get(workspace, "")]
            for workspace in self._sources.workspaces()
        }
        return {workspace: "; ".join(filter(None, found)) for workspace, found in sentences.items() if any(found)}

    def last_checked(self) -> dict[str, datetime]:
        """By workspace: when it was last checked, also by an earlier engine. Without workspaces that never were."""
        with self._database.read() as session:
            times: dict[str, str] = state.get(session, LAST_CHECKED, {})
        return {workspace: datetime.fromisoformat(at) for workspace, at in times.items()}

    def estimate(self, proposal: Proposal, assignment: Assignment) -> ConfidenceEstimate:
        """The confidence of a suggestion by an agent or a program, which no cycle found."""
        clock, context = self._store.clock, self.situation(proposal.workspace)
        return self._twin.estimate(
            proposal, assignment, context=context, phase=self.phase(), now=clock.now(), local=clock.local()
        )

    def situation(self, workspace: str) -> str:
        """The situation of a workspace in words, as preference pairs keep it (SPEC 8.2). It is that of the last cycle;
        if there was none yet, the workspace is read now."""
        if workspace not in self._last_contexts:
            return "".join(context.text for context in self._read_contexts([workspace]))
        return self._last_contexts[workspace].text

    def phase(self) -> Phase:
        """How far the operator's decisions carry (SPEC 2.6)."""
        with self._database.read() as session:
            return self._twin.phase(session)

    def calibration(self) -> CalibrationCheck:
        """Whether stated confidences come true (SPEC 8.6)."""
        return self._twin.calibrator.check()

    def follow_up(self, checked: Collection[str] = ()) -> list[Card]:
        """Make cards for the next steps of the sessions that ended since the last call (SPEC 2.10), and name
        again what is a problem where a session started or was stopped, or where changes were decided, except in the
        workspaces that are `checked` next. While the engine is stopped nothing is done, and these sessions wait."""
        cards: list[Card] = []

        def handle(entries: Sequence[LedgerEntry]) -> None:
            for session_id in dict.fromkeys(entry.subject for entry in entries if entry.kind in FOLLOWED):
                cards.extend(self._follow_session(session_id))
            decided = dict.fromkeys(entry.workspace for entry in entries if entry.kind in DECIDED)
            self._check([path for path in decided if path not in checked and not self._store.is_off(path)], ())

        if not self._store.safety.kill_switch.stop_reason():
            with self._lock:
                self._ended.handle_new(handle)
        return cards

    def _follow_session(self, session_id: str) -> list[Card]:
        """Make the card that follows a session, if the session ended within a day. After a run of the tests, and after
        any problem, the workspace is read even if nothing may follow, because cards may have lost their evidence. It is
        also read if the session was stopped, or if it starts where a problem is named, because that may change."""
        try:
            view = self._approvals.launcher.get(session_id)
        except Refusal as refusal:
            log.warning("no follow-up of %s: %s", session_id, refusal)
            return []
        is_recent = self._store.clock.now() - (view.ended_at or view.created_at) <= MAX_AGE
        kinds = find_next_kinds(view)
        is_news = view.result is Result.CANCELLED if view.state.over else view.workspace in self.remarks()
        is_followed = kinds or view.check or view.has_problem or is_news
        if not is_recent or not is_followed or self._store.is_off(view.workspace):
            return []
        return self._check([view.workspace], kinds, view.channel)

    def _check(self, workspaces: Sequence[str], kinds: Sequence[str], channel: str = "") -> list[Card]:
        """Read workspaces, and make the card of the first of these kinds that follows work on a channel."""
        if not workspaces:
            return []
        errors: list[str] = []
        plan = self._plan(workspaces, errors, kinds)
        for row in plan.selection.rows:
            row.from_channel = channel
        for error in errors:
            log.warning("while looking for a follow-up: %s", error)
        return self._database.write(lambda tx: self._store_plan(tx, plan)).created

    def _run_cycle(self, paths: Sequence[str], requested: bool) -> CycleReport:
        """See `run_cycle`. The caller holds the lock."""
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
        self.follow_up(paths)
        active_paths = [path for path in paths if not store.is_off(path)]
        errors: list[str] = []
        plan = self._plan(active_paths, errors)
        held_back = _find_held_back(plan)
        if requested:
            off = [f"{path}: autonomy is off, so it gets no cards" for path in paths if path not in active_paths]
            errors = [*off, *errors, *_collect_reasons_for_no_cards(plan.findings)]
            errors += [f"{workspace}: {words}" for workspace, words in held_back.items() if words]
            errors += [_describe_no_room(store.settings.current)] if plan.selection.is_full else []

        def apply(tx: Transaction) -> _Changes:
            changes = self._store_plan(tx, plan)
            state.put(tx, HELD_BACK, state.get(tx.session, HELD_BACK, {}) | held_back)
            created, withdrawn, seconds = len(changes.created), len(changes.withdrawn), clock.monotonic() - began
            tx.record(CycleFinished(created=created, withdrawn=withdrawn, seconds=seconds, errors=tuple(errors)))
            return changes

        changes = self._database.write(apply)
        seconds = clock.monotonic() - began
        return CycleReport(tuple(changes.created), tuple(changes.withdrawn), tuple(errors), seconds)

    def _plan(
        self, workspaces: Sequence[str], errors: list[str], follow_up_kinds: Sequence[str] | None = None
    ) -> _Plan:
        """Read workspaces, and plan a round. With `follow_up_kinds` there is at most one row: of the first of these
        kinds that is proposed and can be a card now. If that card is shown already, there is none."""
        findings = self._find_proposals(workspaces, errors, can_replace=follow_up_kinds is None)
        proposals = [proposal for found in findings.values() for proposal in found.proposals]
        with self._database.read() as session:
            now = self._store.clock.now()
            cards = self._store.pending()
            leaving = find_leaving_cards(session, cards, findings, now)
            staying = [card for card in cards if card.id not in leaving]
            awake = [card for card in staying if not card.snoozed(now)]
            unavailable = self._selector.find_unavailable(session, proposals, now, staying)
            if follow_up_kinds is not None:
                shown = {card.fingerprint for card in awake}
                proposals = _select_next_step(proposals, follow_up_kinds, unavailable - shown)
            proposals = [proposal for proposal in proposals if proposal.fingerprint not in unavailable]
            room = Room(self._store.settings.current, awake, now)
            return _Plan(findings, self._selector.select(session, proposals, self._last_contexts, errors, room))

    def _find_proposals(
        self, workspaces: Sequence[str], errors: list[str], *, can_replace: bool
    ) -> dict[str, Findings]:
        """Read each workspace and collect its proposals. What fails is added to `errors`; the rest goes on."""
        findings = {}
        for context in self._read_contexts(workspaces) if workspaces else ():
            self._last_contexts[context.workspace] = context
            unknown = context.inspection.unknown
            messages = [*context.errors, *(f"{check}: {error}" for check, error in unknown.items())]
            failed: list[Exception] = []
            proposals = self._sources.propose(context, failed)
            for error in failed:
                log.error("not everything was proposed for %s", context.workspace, exc_info=error)
                messages.append(f"{type(error).__name__}: {sanitise(str(error))}")
            refusal = None if context.git else self._store.workspace_refusal(context.workspace)
            errors += [refusal.message] if refusal else [f"{context.workspace}: {message}" for message in messages]
            complete = context.git is not None and not context.errors and not failed
            unchecked = frozenset(
                kind.name for kind in KINDS.values() if not unknown.keys().isdisjoint(kind.inspections)
            )
            findings[context.workspace] = Findings(context, tuple(proposals), complete, unchecked, can_replace)
        return findings

    def _read_contexts(self, workspaces: Sequence[str]) -> Sequence[WorkspaceContext]:
        """Prepare a round and read its contexts. Files that changed are a sign of the operator."""
        self._sources.prepare()
        contexts = self._sources.contexts(workspaces)
        for context in contexts:
            if context.silence is not None:
                self._sources.note_activity(context.workspace, context.now - context.silence)
        return contexts

    def _store_plan(self, tx: Transaction, plan: _Plan) -> _Changes:
        """Store the result of a round. Rows without a place are dropped."""
        findings, rows = plan.findings, plan.selection.rows
        store, pending = self._store, load_pending_cards(tx.session)
        withdrawn = self._withdraw_leaving(tx, pending, findings)
        checked_at = {workspace: found.context.now.isoformat() for workspace, found in findings.items()}
        state.put(tx, LAST_CHECKED, state.get(tx.session, LAST_CHECKED, {}) | checked_at)
        self._store_remarks(tx, findings)
        pending = [card for card in pending if card.id not in withdrawn]
        renew_reasons(tx.session, pending, findings)
        unavailable = self._selector.find_unavailable(tx.session, rows, tx.now, pending)
        room = Room(store.settings.current, [card for card in pending if not card.snoozed(tx.now)], tx.now)
        cards: list[Card] = []
        for row in rows:
            if verdict := find_content_block(row):
                store.safety.pipeline.hold_back(tx, row.id, row.assignment, row.verdicts, verdict)
                continue
            is_new = row.fingerprint not in unavailable and row.about not in {card.about for card in cards}
            seating = room.take(make_card_of_row(row)) if is_new else NO_PLACE
            if not seating.has_place:
                continue
            for card_id in seating.displaced:
                store.withdraw(tx, load_card(tx.session, card_id), "made room for something more urgent")
            withdrawn += seating.displaced
            cards.append(store.add(tx, row))
        return _Changes(cards, withdrawn)

    def _store_remarks(self, tx: Transaction, findings: Mapping[str, Findings]) -> None:
        """Store what this check has to say of each workspace: why there may be no cards, or else the newest problem
        that still holds. If it could not read whether the problem that was found before still holds, that one stays."""
        remarks: dict[str, str] = state.get(tx.session, REMARKS, {})
        for workspace, found in findings.items():
            context = found.context
            if knows_problems(context) or not remarks.get(workspace):
                muted = self._selector.select_muted(tx.session, found.proposals, tx.now)
                remarks[workspace] = next(iter(context.reasons_for_no_cards), "") or find_unsolved_problem(
                    context, muted
                )
        state.put(tx, REMARKS, remarks)

    def _withdraw_leaving(
        self, tx: Transaction, pending: Sequence[Card], findings: Mapping[str, Findings]
    ) -> list[str]:
        """Withdraw the cards that must go; returns their ids."""
        withdrawn = sorted(find_leaving_cards(tx.session, pending, findings, tx.now))
        for card_id in withdrawn:
            row = load_card(tx.session, card_id)
            found = findings[row.workspace]
            session_ids = load_own_session_ids(tx.session, row.workspace, row.created_at)
            by_operator = is_done_by_operator(row, found.context, session_ids)
            if by_operator:
                reason = "you did it yourself"
            elif found.can_replace and any(proposal.about == row.about for proposal in found.proposals):
                reason = "another card says what is there now"
            else:
                reason = "its reason no longer applies"
            self._store.withdraw(tx, row, reason, by_operator=by_operator)
        return withdrawn


def _find_held_back(plan: _Plan) -> dict[str, str]:
    """By workspace: which cards the content filter holds back, in words; "" for none."""
    verdicts = defaultdict[str, list[RailVerdict]](list)
    for row in plan.selection.rows:
        if verdict := find_content_block(row):
            verdicts[row.workspace].append(verdict)
    return {workspace: _describe_held_back(verdicts[workspace]) for workspace in plan.findings}


def _describe_held_back(verdicts: Sequence[RailVerdict]) -> str:
    """The number of cards that the content filter holds back, and why; "" for none."""
    if not verdicts:
        return ""
    number, reasons = len(verdicts), list(dict.fromkeys(verdict.reason for verdict in verdicts))
    return (
        f"{count(number, 'card')} {'is' if number == 1 else 'are'} held back by the content rail "
        f"({join_names(reasons, 1)}); the safety screen lists {'it' if number == 1 else 'them'}"
    )


def _collect_reasons_for_no_cards(findings: Mapping[str, Findings]) -> list[str]:
    """Why workspaces may have few cards or none, with the workspace before each reason."""
    return [
        f"{workspace}: {reason}"
        for workspace, found in findings.items()
        for reason in found.context.reasons_for_no_cards
    ]


def _select_next_step(
    proposals: Sequence[Proposal], kinds: Sequence[str], unavailable: Collection[str]
) -> list[Proposal]:
    """The proposal of the first of these kinds that is not among the `unavailable` fingerprints, as a next step."""
    possible = [proposal for proposal in proposals if proposal.fingerprint not in unavailable]
    first = next((proposal for kind in kinds for proposal in possible if proposal.kind == kind), None)
    return [replace(first, source=Source.FOLLOW_UP)] if first else []


def _describe_no_room(settings: Settings) -> str:
    """Why there is no card although something was found."""
    per_workspace, in_all = count(settings.max_pending_cards, "card"), settings.max_pending_cards_in_all
    return (
        f"there is more, but at most {per_workspace} may wait in a workspace (maxPendingCards) and {in_all} in all "
        "(maxPendingCardsInAll): decide some first"
    )
