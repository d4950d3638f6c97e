"""The service `engine.cards`: reads cards, and carries out the operator's decisions on them (SPEC 2.7, 2.9).

`PromptCards` makes cards of prompts, `Approvals` starts approved ones, `CardStore` stores every change.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlmodel import col, desc, select

from engine.events import MuteLifted
from engine.model import (
    UNDONE,
    Card,
    DecidedBy,
    DecisionSignal,
    DismissReason,
    Mute,
    Refusal,
    SessionState,
    SessionView,
    Status,
)
from engine.prediction import card_rules
from engine.prediction.approvals import ApprovalRequest, Approvals
from engine.prediction.card_rows import CardRow, card_of, load_card
from engine.prediction.card_rules import DEFAULT_SNOOZE, MAX_SNOOZE
from engine.prediction.card_store import CardStore
from engine.prediction.dismissals import describe_switch_off, end_mute, read_mutes
from engine.prediction.kinds import kind_title
from engine.prediction.prompt_cards import PromptCards
from engine.storage.database import Transaction
from engine.storage.rows import ids_with_prefix, load

MAX_TITLE_CHARS = 60
"""Maximum length of a card's prompt in a refusal."""


class Cards:
    """`engine.cards`. Blocking calls of milliseconds, from any thread."""

    def __init__(
        self, store: CardStore, approvals: Approvals, prompt_cards: PromptCards, *, reverse: Callable[[str], bool]
    ) -> None:
        """`reverse(session_id)` undoes what a session landed. It returns False if nothing was landed, and raises
        `Refusal` if later edits would be lost or the landing is undone already."""
        self.store = store
        self.approvals = approvals
        self._database = store.database
        self._reverse_landing = reverse
        self.propose = prompt_cards.propose
        self.propose_again = prompt_cards.propose_again
        self._add_again = prompt_cards.add_again
        self.get = store.get
        self.expire_due = store.expire_due
        self.follow_landings = store.follow_landings
        self.rails = approvals.preview
        self.describe_sandbox = approvals.describe_sandbox
        self.recover = approvals.recover
        self.refresh_runners = approvals.refresh_runners

    # -- reading

    def pending(self, *, channel: str | None = None, include_snoozed: bool = False) -> list[Card]:
        """The stack from the top (SPEC 2.11). A woken card is hidden until there is a place for it."""
        now = self.store.clock.now()
        cards = [card for card in self.store.pending() if not card.is_expired(now)]
        hidden = card_rules.ids_without_place(cards, now, self.store.settings.current)
        return [
            card
            for card in card_rules.sort_cards(cards, now)
            if (include_snoozed or not (card.snoozed(now) or card.id in hidden))
            and channel in (None, card.assignment.channel)
        ]

    def correction(self, card_id: str) -> tuple[str, str] | None:
        """See `CardRow.correction`. Raises `Refusal` `unknown_card`."""
        with self._database.read() as session:
            return load_card(session, card_id).correction

    def ids_with_prefix(self, prefix: str) -> list[str]:
        """Ids of cards of any age with this prefix; see `engine.storage.rows`."""
        with self._database.read() as session:
            return ids_with_prefix(session, col(CardRow.id), prefix)

    def recent(self, limit: int = 50, *, workspaces: Sequence[str] = (), channel: str | None = None) -> list[Card]:
        """Cards of any status, newest first: of these workspaces, or of all if none is named, and of `channel` if that
        is given."""
        query = select(CardRow).order_by(desc(col(CardRow.created_at)), desc(col(CardRow.id))).limit(limit)
        if workspaces:
            query = query.where(col(CardRow.workspace).in_(workspaces))
        if channel is not None:
            query = query.where(CardRow.target_channel == channel)
        with self._database.read() as session:
            return [card_of(row) for row in session.exec(query)]

    def similar(self, card_id: str) -> tuple[int, int]:
        """How many similar cards the operator approved, and how many they decided (SPEC 2.5)."""
        with self._database.read() as session:
            row = load_card(session, card_id)
            return self.store.decisions.count_similar(session, row.kind, row.target_channel, row.workspace)

    # -- deciding

    def approve(
        self,
        card_id: str,
        *,
        edit: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        by: DecidedBy = DecidedBy.OPERATOR,
        without_sandbox: bool = False,
    ) -> Card:
        """Approve a card and start it.

        `edit` is a new prompt, or new parameters of a flow as text; `parameters` are new parameters as data. A prompt
        that names a flow turns the card into that flow. A sentence in place of parameters turns a flow into work for an
        agent or a model: the card then shows the new runner, and a second call approves it. `without_sandbox`: see
        `ApprovalRequest`.

        Raises `Refusal`: `unknown_card`, `already_decided`, `no_runner`, `bad_parameters`, `empty_prompt`,
        `secret_in_text`, `no_sandbox` (none works here, and the operator did not confirm that), `blocked` (by a rail),
        `needs_acknowledgement` (a rail asks the operator, or the runner changed; the card now shows it), or why the
        session could not start. After a refusal the card is as before, or pending with the reason in its note.
        """
        request = ApprovalRequest(by, without_sandbox=without_sandbox)
        return self.approvals.approve(card_id, edit=edit, parameters=parameters, request=request)

    def trigger(self, card_id: str, *, force: bool = False, by: str) -> Card:
        """Run a card for a program (SPEC 3.1). All rails are asked as for cards that run by themselves; `force` skips
        only the rate (SPEC 3.2). `by` is the start of the chain (SPEC 3.3): the program, or the channel that it works
        for. Raises `Refusal` as `approve`; the card is then pending."""
        return self.approvals.approve(card_id, request=ApprovalRequest(DecidedBy.AUTONOMY, by, force))

    def dismiss(self, card_id: str, *, reason: DismissReason | None = None, by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """Dismiss a card and mute its subject for 7 days, twice as long after each further time (SPEC 2.9). The note of
        the returned card says if this switched its kind off.

        Raises `Refusal` `unknown_card`, `already_decided`."""
        return self._with_switch_note(
            self.store.change(card_id, lambda tx, row: self.store.dismiss(tx, row, by, reason))
        )

    def explain(self, card_id: str, reason: DismissReason) -> Card:
        """Store the reason of a dismissal; the last one counts. The returned card has a note as after `dismiss`.

        Raises `Refusal` `unknown_card`, `not_dismissed`."""
        return self._with_switch_note(self.store.change(card_id, lambda tx, row: self.store.explain(tx, row, reason)))

    def _with_switch_note(self, card: Card) -> Card:
        """The dismissed card, with a note if the dismissal switched its kind off."""
        for mute in self.muted():
            if not mute.subject and mute.kind == card.kind and mute.workspace in (card.workspace, ""):
                return replace(card, note=describe_switch_off(mute))
        return card

    def muted(self) -> list[Mute]:
        """The mutes that follow from dismissals (SPEC 2.9), newest first."""
        with self._database.read() as session:
            return read_mutes(session, self.store.clock.now())

    def unmute(self, mute_id: str) -> Mute:
        """End a mute from the next cycle on. Raises `Refusal` `unknown_mute`."""

        def work(tx: Transaction) -> Mute:
            muted = read_mutes(tx.session, tx.now)
            mute = next((mute for mute in muted if mute.id == mute_id), None)
            if mute is None:
                raise Refusal("unknown_mute", f"nothing is muted as {mute_id}", "clawpy muted lists what is")
            end_mute(tx, mute)
            tx.record(
                MuteLifted(subject=mute.id, workspace=mute.workspace, card_kind=mute.kind, title=kind_title(mute.kind))
            )
            return mute

        return self._database.write(work)

    def snooze(self, card_id: str, *, span: timedelta = DEFAULT_SNOOZE) -> Card:
        """Hide a card for `span`, in (0, 30 days]; its 24 h begin anew when it wakes. Gives no signal.

        Raises `Refusal` `unknown_card`, `already_decided`, `bad_span`.
        """
        if not timedelta(0) < span <= MAX_SNOOZE:
            raise Refusal("bad_span", f"cannot snooze for {span}", "give a time of up to 30 days, for example --for 2h")
        return self.store.change(card_id, lambda tx, row: self.store.snooze(tx, row, span))

    def undo(self, card_id: str) -> Card:
        """Undo the last decision on a card (SPEC 2.7).

        A snooze ends. A dismissed card, or an approved one whose session has not started, is pending again. A running
        session is stopped; landed changes are reversed. For a check that ran by itself only the signal changes (SPEC
        8.1). Raises `Refusal` `unknown_card`, `nothing_to_undo`, or why a landing cannot be reversed.
        """
        store, launcher = self.store, self.approvals.launcher
        with store.deciding:
            with self._database.read() as session:
                row = load_card(session, card_id)
            view = launcher.of_card(card_id) if row.status == Status.APPROVED else None
            if view is not None and not view.state.over:
                row = self._database.write(lambda tx: _request_undo(tx, card_id))
                if row.status == Status.APPROVED:
                    launcher.stop(view.id, UNDONE)
                    return self.get(card_id)
            if row.status != Status.EXECUTED:
                return store.change(card_id, store.bring_back)
            if not (row.ran_by_itself and row.check_only):
                self._reverse(row)
            return store.change(card_id, lambda tx, row: store.retract_approval(tx, row, DecisionSignal.UNDONE, tx.now))

    def mark_shown(self, card_ids: Iterable[str]) -> None:
        """Mark cards as shown to the operator; unknown and decided ones are ignored."""
        ids = set(card_ids)
        new = {card.id for card in self.store.pending() if card.id in ids and card.shown_at is None}

        def work(tx: Transaction) -> None:
            for card_id in sorted(new):
                row = load(tx.session, CardRow, card_id)
                if row is not None and row.status == Status.PENDING and row.shown_at is None:
                    row.shown_at = tx.now

        if new:
            self._database.write(work)

    def mark_reviewed(self, card_id: str) -> None:
        """Mark the result of a card that ran by itself as reviewed, so that keeping it counts (SPEC 8.1). Other cards
        are ignored."""

        def work(tx: Transaction) -> None:
            row = load(tx.session, CardRow, card_id)
            if row is not None and row.ran_by_itself:
                row.shown_at = tx.now

        self._database.write(work)

    def session_ended(self, tx: Transaction, view: SessionView) -> None:
        """Store the outcome of a session on its card. Sessions call this in the transaction of their end. If the engine
        stopped while the session ran, its work is a pending card again, unless it had begun by itself."""
        row = load(tx.session, CardRow, view.prediction_id)
        if row is None or row.status != Status.APPROVED:
            return
        self.store.store_session_end(tx, row, view)
        unwanted = row.undo_requested_at is not None or row.decided_by == DecidedBy.AUTONOMY
        if view.state is SessionState.INTERRUPTED and not unwanted:
            self._add_again(tx, row, "interrupted: the engine stopped while it ran")

    def _reverse(self, row: CardRow) -> None:
        """Undo what the session of an executed card landed. Raises `Refusal` as `undo`."""
        if row.session_id is not None and self._reverse_landing(row.session_id):
            return
        title = f"“{textwrap.shorten(row.prompt, MAX_TITLE_CHARS, placeholder='…')}”"
        if row.check_only:
            raise Refusal("nothing_to_undo", f"{title} was read-only and changed nothing", "there is nothing to undo")
        session = self.approvals.launcher.of_card(row.id)
        has_waiting_changes = session is not None and session.change_set_id is not None
        command = (
            f"discard {row.id}` discards what waits" if has_waiting_changes else f"work {row.id}` shows what it did"
        )
        raise Refusal("nothing_to_undo", f"{title} has no landed changes", f"`clawpy {command}")


def _request_undo(tx: Transaction, card_id: str) -> CardRow:
    """Mark a card as undone, unless its session ended meanwhile; returns its row."""
    row = load_card(tx.session, card_id)
    if row.status == Status.APPROVED:
        row.undo_requested_at = tx.now
    return row
