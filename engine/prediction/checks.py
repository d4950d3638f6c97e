"""One check of the workspaces, which makes cards (SPEC 2): sense → propose → select → cards. `selection` does the third
step.

The workspaces are read and the cards are chosen first. One transaction then withdraws old cards and creates new ones,
so nothing slow runs inside it.

A session that has ended may lead to one next step (SPEC 2.10). Its workspace is then read, and at most this one card is
made. The card must be among the present proposals, so it has evidence, and it is withdrawn when the evidence is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from engine.config.settings import Settings
from engine.events.work import ChangeSetLanded, CycleFinished, LandingUndone
from engine.frozen import frozen
from engine.model import Card, CheckReport, Refusal, Result, SessionView
from engine.prediction import find_next_kinds
from engine.prediction.approvals import Approvals
from engine.prediction.card_rows import (
    CardRow,
    load_card,
    load_own_session_ids,
    load_pending_cards,
    make_card_of_row,
)
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.dismissals import read_mute_index
from engine.prediction.problems import find_unsolved_problem, had_failing_tests, knows_problems
from engine.prediction.routing import Router
from engine.prediction.selection import (
    CardSelection,
    CardSelector,
    Findings,
    find_content_block,
    find_leaving_cards,
    is_done_by_operator,
    renew_reasons,
)
from engine.prediction.stack import NO_PLACE, Room
from engine.prediction.templates import Proposed
from engine.prediction.twin import EmbeddedTwin
from engine.randomness import Randomness
from engine.storage import state
from engine.storage.database import Transaction
from engine.storage.ledger import LedgerCursor, LedgerEntry
from engine.storage.validation_runs import ValidationRun
from engine.text import sanitise
from engine.wording import count, join_names

log = logging.getLogger(__name__)

FOLLOW_UP_CURSOR = "cards.follow_ups"
"""Name of the cursor in the ledger of `follow_up`."""

SESSION_EVENTS = frozenset({"SessionStarted", "SessionEnded"})
"""The kinds of events about sessions that `follow_up` reads."""

CHANGE_EVENTS = frozenset({"ChangeSetLanded", "ChangeSetBranched", "ChangeSetDiscarded", "LandingUndone"})
"""The kinds of events about changes that `follow_up` reads. A problem may be solved by them, or be back."""

MAX_CHANGE_EVENTS = 50
"""Number of the newest of these events that are compared with the time of the last check."""

CHANGED_REMARK = "something was landed or undone since the last check; `clawpy predict` checks again"
"""What is said in place of a problem that may be solved by now."""

MAX_SESSION_AGE = timedelta(hours=24)
"""A session that ended longer ago leads to no next step any more."""

LAST_CHECKED_KEY = "cards.looked"
"""Key in the state table: when each workspace was last checked."""

REMARKS_KEY = "cards.remarks"
"""Key in the state table: what the last check of each workspace had to say, "" for nothing."""

HELD_BACK_KEY = "cards.held_back"
"""Key in the state table: the cards of each workspace that the content filter held back in the last check, in words."""


@frozen
class CheckSources:
    """The functions by which a check reads the workspaces, and gets proposals."""

    prepare: Callable[[], None]
    """It is called before contexts are read, and brings up to date what they contain."""
    read_contexts: Callable[[Sequence[str]], Sequence[WorkspaceContext]]
    """Reads the contexts of workspaces. It is slow, because it asks git."""
    note_activity: Callable[[datetime], None]
    """It is called with a time if somebody but us changed the files of a workspace last at that time."""
    read_test_runs: Callable[[str], Sequence[ValidationRun]]
    """The runs of a workspace's tests on the operator's files, newest first."""
    list_workspaces: Callable[[], Sequence[str]]
    propose: Callable[[WorkspaceContext], Proposed]


class _Plan(NamedTuple):
    """The findings of a check by workspace, and the rows that may become cards."""

    findings: Mapping[str, Findings]
    selection: CardSelection

    @property
    def errors(self) -> tuple[str, ...]:
        """What could not be read, proposed or routed."""
        return *(error for found in self.findings.values() for error in found.errors), *self.selection.errors


class _Changes(NamedTuple):
    """The cards that a check created, and the ids of those that it withdrew."""

    created: list[Card]
    withdrawn: list[str]


class CardChecks:
    """The service `engine.checks`: checks workspaces, one check at a time."""

    def __init__(
        self,
        store: CardStore,
        approvals: Approvals,
        router: Router,
        twin: EmbeddedTwin,
        randomness: Randomness,
        sources: CheckSources,
    ) -> None:
        self._store = store
        self._database = store.database
        self._sessions = approvals.launcher
        self._sources = sources
        self._selector = CardSelector(store, approvals, router, twin, randomness)
        self._lock = threading.RLock()
        self.is_checking = False
        """Whether a check runs now."""
        self._last_contexts: dict[str, WorkspaceContext] = {}
        """By workspace: its context in the last check."""
        followed_events = SESSION_EVENTS | CHANGE_EVENTS
        self._cursor = LedgerCursor(store.ledger, FOLLOW_UP_CURSOR, lambda entry: entry.kind in followed_events)

    def run(self, *, workspaces: Sequence[str] | None = None, requested: bool = False) -> CheckReport:
        """Check these workspaces, or all, in this thread. If a check runs already, this call waits for its end.

        While the engine is stopped there are no cards. The report names that as its error, or, if the operator
        `requested` the check, `Refusal` `stopped` is raised.
        """
        with self._lock:
            self.is_checking = True
            try:
                paths = self._sources.list_workspaces() if workspaces is None else workspaces
                return self._run(list(paths), requested=requested)
            finally:
                self.is_checking = False

    def read_remarks(self) -> dict[str, str]:
        """What the last check of each workspace, also by an earlier engine, had to say: why there may be no cards, or
        else the newest problem that still holds; and how many cards are held back. A workspace of which it had nothing
        to say is left out."""
        remarks, held_back, checked = self._read_state(REMARKS_KEY, HELD_BACK_KEY, LAST_CHECKED_KEY)
        decided = self._store.ledger.read_newest(MAX_CHANGE_EVENTS, kinds=tuple(CHANGE_EVENTS))
        for number, entry in enumerate(decided):
            checked_at = checked.get(entry.workspace)
            if checked_at is None or entry.at <= datetime.fromisoformat(checked_at):
                continue
            if remarks.get(entry.workspace) or self._is_problem_back(entry, decided[number:]):
                remarks[entry.workspace] = CHANGED_REMARK
        sentences = {
            workspace: "; ".join(filter(None, (remarks.get(workspace), held_back.get(workspace))))
            for workspace in self._sources.list_workspaces()
        }
        return {workspace: words for workspace, words in sentences.items() if words}

    def _is_problem_back(self, entry: LedgerEntry, earlier: Sequence[LedgerEntry]) -> bool:
        """Whether this entry says that a landing was undone, and tests failed before that landing. `earlier` are the
        entries up to it, newest first."""
        if entry.kind != LandingUndone.__name__:
            return False
        landed = (each.at for each in earlier if (each.kind, each.subject) == (ChangeSetLanded.__name__, entry.subject))
        return had_failing_tests(self._sources.read_test_runs(entry.workspace), next(landed, entry.at))

    def read_last_checked(self) -> dict[str, datetime]:
        """By workspace: when it was last checked, also by an earlier engine. Without workspaces that never were."""
        [times] = self._read_state(LAST_CHECKED_KEY)
        return {workspace: datetime.fromisoformat(at) for workspace, at in times.items()}

    def describe_situation(self, workspace: str) -> str:
        """The situation of a workspace in words, as preference pairs keep it (SPEC 8.2). It is that of the last check;
        if there was none yet, the workspace is read now."""
        if workspace not in self._last_contexts:
            return "".join(context.text for context in self._read_contexts([workspace]))
        return self._last_contexts[workspace].text

    def follow_up(self, checked: Collection[str] = ()) -> list[Card]:
        """Make cards for the next steps of the sessions that ended since the last call (SPEC 2.10), and name
        again what is a problem where a session started or was stopped, or where changes were decided, except in the
        workspaces that are `checked` next. While the engine is stopped nothing is done, and these sessions wait."""
        cards: list[Card] = []

        def handle(entries: Sequence[LedgerEntry]) -> None:
            for session_id in dict.fromkeys(entry.subject for entry in entries if entry.kind in SESSION_EVENTS):
                cards.extend(self._follow_session(session_id))
            decided = dict.fromkeys(entry.workspace for entry in entries if entry.kind in CHANGE_EVENTS)
            self._refresh([path for path in decided if path not in checked and not self._store.is_off(path)])

        if not self._store.safety.kill_switch.find_obstacle():
            with self._lock:
                self._cursor.handle_new(handle)
        return cards

    def _follow_session(self, session_id: str) -> list[Card]:
        """Make the card that follows a session, if the session ended within a day. After a run of the tests, and after
        any problem, the workspace is read even if nothing may follow, because cards may have lost their evidence. It is
        also read if the session was stopped, or if it starts where a problem is named, because that may change."""
        try:
            view = self._sessions.get(session_id)
        except Refusal as refusal:
            log.warning("no follow-up of %s: %s", session_id, refusal)
            return []
        is_recent = self._store.clock.now() - (view.ended_at or view.created_at) <= MAX_SESSION_AGE
        kinds = find_next_kinds(view)
        is_news = view.result is Result.CANCELLED if view.state.is_over else view.workspace in self.read_remarks()
        is_followed = kinds or view.check or view.has_problem or is_news
        if not is_recent or not is_followed or self._store.is_off(view.workspace):
            return []
        return self._make_next_step(view, kinds)

    def _make_next_step(self, view: SessionView, kinds: Sequence[str]) -> list[Card]:
        """Read the workspace of a session, and make the card of the first of these kinds that follows its work."""
        plan = self._plan([view.workspace], kinds)
        for row in plan.selection.rows:
            row.from_channel = view.channel
        return self._apply_follow_up(plan).created

    def _refresh(self, workspaces: Sequence[str]) -> None:
        """Read workspaces, withdraw the cards that lost their evidence, and name again what is a problem there."""
        if workspaces:
            self._apply_follow_up(self._plan(workspaces, kinds=()))

    def _apply_follow_up(self, plan: _Plan) -> _Changes:
        """Store a plan that is no whole check. What could not be read is logged."""
        for error in plan.errors:
            log.warning("while looking for a follow-up: %s", error)
        return self._database.write(partial(self._store_plan, plan))

    def _run(self, paths: Sequence[str], *, requested: bool) -> CheckReport:
        """See `run`. The caller holds the lock."""
        store, clock = self._store, self._store.clock
        began = clock.monotonic()
        stopped = store.safety.kill_switch.find_obstacle()
        if stopped:
            if requested:
                raise Refusal("stopped", stopped, "clawpy resume")
            return CheckReport(errors=(stopped,))
        store.expire_due()
        store.follow_landings()
        store.credit_kept()
        self.follow_up(paths)
        off = [path for path in paths if store.is_off(path)]
        plan = self._plan([path for path in paths if path not in off])
        held_back = {workspace: _describe_held_back(plan.selection, workspace) for workspace in plan.findings}
        errors = plan.errors
        if requested:
            skipped = (f"{path}: autonomy is off, so it gets no cards" for path in off)
            errors = *skipped, *errors, *_explain_few_cards(plan, held_back, store.settings.current)

        def apply(tx: Transaction) -> _Changes:
            changes = self._store_plan(plan, tx)
            _update_state(tx, HELD_BACK_KEY, held_back)
            created, withdrawn, seconds = len(changes.created), len(changes.withdrawn), clock.monotonic() - began
            tx.record(CycleFinished(created=created, withdrawn=withdrawn, seconds=seconds, errors=errors))
            return changes

        created, withdrawn = self._database.write(apply)
        return CheckReport(tuple(created), tuple(withdrawn), errors, clock.monotonic() - began)

    def _plan(self, workspaces: Sequence[str], kinds: Sequence[str] | None = None) -> _Plan:
        """Read workspaces, and plan cards of all that is proposed there. With `kinds`, plan at most one card: of the
        first of these kinds that is proposed and can be a card now. If that card is shown already, none is made."""
        findings = self._collect_findings(workspaces, can_replace=kinds is None)
        with self._database.read() as session:
            cards = self._store.read_pending()
            leaving = find_leaving_cards(session, cards, findings, self._store.clock.now())
            staying = [card for card in cards if card.id not in leaving]
            return _Plan(findings, self._selector.select(session, findings, staying, kinds))

    def _collect_findings(self, workspaces: Sequence[str], *, can_replace: bool) -> dict[str, Findings]:
        """Read each workspace and collect its proposals."""
        contexts = self._read_contexts(workspaces) if workspaces else ()
        self._last_contexts |= {context.workspace: context for context in contexts}
        return {context.workspace: self._find_proposals(context, can_replace=can_replace) for context in contexts}

    def _read_contexts(self, workspaces: Sequence[str]) -> Sequence[WorkspaceContext]:
        """Prepare a check and read its contexts. Files that changed are a sign of the operator."""
        self._sources.prepare()
        contexts = self._sources.read_contexts(workspaces)
        for context in contexts:
            if context.silence is not None:
                self._sources.note_activity(context.now - context.silence)
        return contexts

    def _find_proposals(self, context: WorkspaceContext, *, can_replace: bool) -> Findings:
        """The proposals for a workspace. What failed is among the errors; the rest goes on."""
        proposed = self._sources.propose(context)
        for error in proposed.errors:
            log.error("not everything was proposed for %s", context.workspace, exc_info=error)
        messages = [
            *context.errors,
            *(f"{inspection}: {error}" for inspection, error in context.inspection.unknown.items()),
            *(f"{type(error).__name__}: {sanitise(str(error))}" for error in proposed.errors),
        ]
        refusal = None if context.git else self._store.workspace_refusal(context.workspace)
        return Findings(
            context,
            proposed.proposals,
            errors=(refusal.message,) if refusal else tuple(f"{context.workspace}: {words}" for words in messages),
            is_complete=context.git is not None and not context.errors and not proposed.errors,
            can_replace=can_replace,
        )

    def _store_plan(self, plan: _Plan, tx: Transaction) -> _Changes:
        """Store the result of a check. Rows without a place are dropped."""
        pending, findings = load_pending_cards(tx.session), plan.findings
        withdrawn = sorted(find_leaving_cards(tx.session, pending, findings, tx.now))
        for card_id in withdrawn:
            row = load_card(tx.session, card_id)
            found, reason = findings[row.workspace], "its reason no longer applies"
            own_sessions = load_own_session_ids(tx.session, row.workspace, row.created_at)
            by_operator = is_done_by_operator(row, found.context, own_sessions)
            if by_operator:
                reason = "you did it yourself"
            elif found.can_replace and found.has_subject(row.about):
                reason = "another card says what is there now"
            self._store.withdraw(tx, row, reason, by_operator=by_operator)
        staying = [card for card in pending if card.id not in withdrawn]
        renew_reasons(tx.session, staying, findings)
        self._store_remarks(tx, findings)
        changes = self._add_cards(tx, plan.selection.rows, staying)
        return _Changes(changes.created, withdrawn + changes.withdrawn)

    def _store_remarks(self, tx: Transaction, findings: Mapping[str, Findings]) -> None:
        """Store when each workspace was checked, and what the check has to say of it: why there may be no cards, or
        else the newest problem that still holds. If it could not read whether the problem that was found before still
        holds, that one stays."""
        before, remarks = state.get(tx.session, REMARKS_KEY, {}), {}
        mutes = read_mute_index(tx.session, tx.now)
        for workspace, found in findings.items():
            context = found.context
            if knows_problems(context) or not before.get(workspace):
                muted = [new for new in found.proposals if mutes.covers(*new.about, tier=new.tier)]
                reason = next(iter(context.reasons_for_no_cards), "")
                remarks[workspace] = reason or find_unsolved_problem(context, muted)
        _update_state(tx, REMARKS_KEY, remarks)
        checked_at = {workspace: found.context.now.isoformat() for workspace, found in findings.items()}
        _update_state(tx, LAST_CHECKED_KEY, checked_at)

    def _add_cards(self, tx: Transaction, rows: Sequence[CardRow], staying: Sequence[Card]) -> _Changes:
        """Add the rows that have a place beside the cards that stay; the other cards of the change are displaced."""
        store, changes = self._store, _Changes([], [])
        unavailable = self._selector.find_unavailable(tx.session, rows, tx.now, staying)
        room = Room(store.settings.current, staying, tx.now)
        for row in rows:
            if verdict := find_content_block(row):
                store.safety.pipeline.hold_back(tx, row.id, row.assignment, row.verdicts, verdict)
                continue
            is_new = row.fingerprint not in unavailable and row.about not in {card.about for card in changes.created}
            seating = room.take(make_card_of_row(row)) if is_new else NO_PLACE
            if not seating.has_place:
                continue
            for card_id in seating.displaced:
                store.withdraw(tx, load_card(tx.session, card_id), "made room for something more urgent")
            changes.withdrawn.extend(seating.displaced)
            changes.created.append(store.add(tx, row))
        return changes

    def _read_state(self, *keys: str) -> list[dict[str, Any]]:
        """What is stored under each of these keys in the state table, by workspace, all after the same check."""
        with self._database.read() as session:
            return [state.get(session, key, {}) for key in keys]


def _update_state(tx: Transaction, key: str, by_workspace: Mapping[str, str]) -> None:
    """Store values of workspaces under a key in the state table; those of other workspaces stay."""
    state.put(tx, key, state.get(tx.session, key, {}) | by_workspace)


def _describe_held_back(selection: CardSelection, workspace: str) -> str:
    """The number of cards of a workspace that the content filter holds back, and why; "" for none."""
    blocks = [find_content_block(row) for row in selection.rows if row.workspace == workspace]
    reasons = [verdict.reason for verdict in blocks if verdict is not None]
    if not reasons:
        return ""
    are, them = ("is", "it") if len(reasons) == 1 else ("are", "them")
    why = join_names(list(dict.fromkeys(reasons)), 1)
    return f"{count(len(reasons), 'card')} {are} held back by the content rail ({why}); the safety screen lists {them}"


def _explain_few_cards(plan: _Plan, held_back: Mapping[str, str], settings: Settings) -> list[str]:
    """Why workspaces may have few cards or none: what they lack, what the content filter holds back, and whether the
    stack is full."""
    reasons = [
        f"{workspace}: {reason}"
        for workspace, found in plan.findings.items()
        for reason in found.context.reasons_for_no_cards
    ]
    reasons += [f"{workspace}: {words}" for workspace, words in held_back.items() if words]
    if plan.selection.is_full:
        reasons.append(
            f"there is more, but at most {count(settings.max_pending_cards, 'card')} may wait in a workspace "
            f"(maxPendingCards) and {settings.max_pending_cards_in_all} in all (maxPendingCardsInAll): decide some "
            "first"
        )
    return reasons
