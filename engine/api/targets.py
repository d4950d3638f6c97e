"""Finds the card, session and change set for an id in a request.

The id may be that of any of the three. The beginning of an id is enough if no other id begins with it. The prefix
before the underscore may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from engine.api.documents import Document, document
from engine.frozen import frozen
from engine.model import UNDONE, Card, ChangeSet, Refusal, SessionState, SessionView, sanitise

if TYPE_CHECKING:
    from engine.services import Services

T = TypeVar("T")

SHOWN_TRANSCRIPT_LINES = 40
"""Number of lines of a transcript that are shown by default."""


@frozen
class Target:
    """A card, its session and its change set; each is None if it does not exist."""

    card: Card | None
    session: SessionView | None
    change_set: ChangeSet | None

    def document(self) -> Document:
        """The JSON of all three."""
        return {
            "prediction": document(self.card),
            "session": document(self.session),
            "changeSet": document(self.change_set),
        }

    @property
    def card_id(self) -> str:
        """The id of the card. Raises `Refusal` `no_card`."""
        if self.card is None:
            raise Refusal("no_card", "that session belongs to no card", "see `clawpy cards --all`")
        return self.card.id

    @property
    def change_set_id(self) -> str:
        """The id of the change set. Raises `Refusal` `no_change_set`, which says why there is none."""
        if self.change_set is not None:
            return self.change_set.id
        if self.session is None:
            raise Refusal("no_change_set", "this card has not run yet", "approve it first: clawpy approve ID")
        session = self.session
        if not session.state.over:
            raise Refusal("no_change_set", f"{session.id} is still running", "wait until it finishes: clawpy work ID")
        if session.error == UNDONE:
            reason = "left no changes: they were discarded when its card was undone"
        elif session.state is SessionState.SUCCEEDED:
            reason = "changed no files"
        else:
            reason = f"is {session.state} and left no changes"
        raise Refusal("no_change_set", f"{session.id} {reason}", "there is nothing to land or discard")


def find_target(engine: Services, prefix: str, *, see: str = "clawpy cards") -> Target:
    """The target whose id is `prefix` or begins with it. `see` is the verb that lists ids, for the error. Raises
    `Refusal`: `unknown_id`, `ambiguous_id`."""
    if (card := get_or_none(engine.cards.get, prefix, "unknown_card")) is not None:
        return _of_card(engine, card)
    if (session := get_or_none(engine.sessions.get, prefix, "unknown_session")) is not None:
        return _of_session(engine, session)
    cards, sessions, changes = (
        service.ids_with_prefix(prefix) for service in (engine.cards, engine.sessions, engine.changes)
    )
    found_id = match_prefix(prefix, [*cards, *sessions, *changes], see=see)
    if found_id in cards:
        return _of_card(engine, engine.cards.get(found_id))
    session_id = engine.changes.get(found_id).session_id if found_id in changes else found_id
    return _of_session(engine, engine.sessions.get(session_id))


def match_prefix(
    prefix: str, ids: Iterable[str], *, what: str = "card, session or changes", see: str = "clawpy cards"
) -> str:
    """The only id that equals `prefix` or begins with it. Raises `Refusal` `unknown_id`, `ambiguous_id`."""
    ids = list(dict.fromkeys(ids))
    if prefix in ids:
        return prefix
    matches = [id for id in ids if prefix and (id.startswith(prefix) or id.partition("_")[2].startswith(prefix))]
    if len(matches) == 1:
        return matches[0]
    shown_prefix = sanitise(prefix)[:60]
    if not matches:
        if prefix.startswith("cand_"):
            see = f"clawpy candidates show {shown_prefix}"
        raise Refusal("unknown_id", f"there is no {what} with the id {shown_prefix}", f"see `{see}`")
    examples = ", ".join(matches[:3]) + (", …" if len(matches) > 3 else "")
    raise Refusal("ambiguous_id", f"{shown_prefix} begins {len(matches)} ids: {examples}", "give more of the id")


def document_with_transcript(engine: Services, target: Target, lines: int) -> Document:
    """The document of a target, with the last `lines` of the transcript."""
    reply = target.document()
    if target.session is not None and lines:
        after = max(0, target.session.lines - lines)
        reply["transcript"] = document(engine.sessions.transcript(target.session.id, after=after, limit=lines))
    return reply


def get_or_none(get: Callable[[str], T], id: str, unknown_code: str) -> T | None:
    """The result of `get` for an id, None if it raises `Refusal` with `unknown_code`."""
    try:
        return get(id)
    except Refusal as refusal:
        if refusal.code != unknown_code:
            raise
        return None


def _of_card(engine: Services, card: Card) -> Target:
    session = get_or_none(engine.sessions.get, card.session_id, "unknown_session") if card.session_id else None
    return Target(card, session, engine.changes.for_session(session.id) if session else None)


def _of_session(engine: Services, session: SessionView) -> Target:
    card = get_or_none(engine.cards.get, session.prediction_id, "unknown_card")
    return Target(card, session, engine.changes.for_session(session.id))
