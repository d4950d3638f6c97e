"""Decides which ledger entries are notified, on which surface and in which form, and writes the texts (SPEC 10.2).
Pure.

The outbox stores only the id of the ledger entry. The text is made when it is sent, so a card that was decided or
forgotten meanwhile (SPEC 4.10) is not sent. Texts of agents and models may be hostile, and they leave the machine here.
So they are sanitised, and secrets are removed (SPEC 11.1).

It has three steps, each pure: an entry of the ledger has a kind (`find_notification_kind`), its content is read when it
is sent (`make_content`), and each surface shows that in a form (`make_note`). `notes.toml` has the form of each kind on
each surface, as the table of SPEC 10.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from engine.api.documents import Document
from engine.config.external_sections import Surface
from engine.files import read_table
from engine.frozen import frozen
from engine.model import PROBLEM_FOUND, Card, DecidedBy, Refusal, SessionState, SessionView, Source, Status, Tier
from engine.redaction import redact
from engine.storage.ledger import LedgerEntry
from engine.text import one_line, plain, sanitise
from engine.wording import money, short_span

# -- forms


class NotificationKind(StrEnum):
    """The seven kinds of notified events, with the names of SPEC 10.2."""

    NEW_MEDIUM = "new card, medium"
    NEW_HIGH = "new card, high"
    ACTED = "auto-executed"
    COMPLETED = "completed"
    FAILED = "failed"
    COST = "cost near cap"
    PAUSED = "paused"


class Form(StrEnum):
    """The appearance of a notification."""

    CARD = "banner + card"
    """With buttons to approve, reject and snooze."""
    BANNER = "banner"
    SILENT = "silent"
    """It is shown without a sound."""
    BADGE = "badge"
    """Only the number of cards, without a sound or a tap."""
    HAPTIC = "haptic"
    """A tap, which differs between success and failure."""
    HAPTIC_BADGE = "haptic + badge"
    REFRESH = "refresh"
    PAUSE = "⏸"
    SPOKEN = "spoken"
    EMBED = "embed"
    TICK = "✅"
    CROSS = "❌"
    RESULT = "result"
    STATUS = "status"


class Urgency(StrEnum):
    """The timing of a notification. Low ones are collected, and urgent ones are sent even in quiet hours."""

    LOW = "low"
    NORMAL = "normal"
    URGENT = "urgent"


_TABLE = read_table(__file__, "notes.toml")

FORMS: Mapping[NotificationKind, Mapping[Surface, Form]] = {
    NotificationKind(kind): {Surface(surface): Form(form) for surface, form in row["forms"].items()}
    for kind, row in _TABLE.items()
}
URGENCY = {NotificationKind(kind): Urgency(row["urgency"]) for kind, row in _TABLE.items()}

# -- content

HIGH_CONFIDENCE = 0.6
"""Minimum stated confidence of a high card, which has the SUGGESTED badge (SPEC 2.5). The card of a broken test is
always high."""

NOTIFIED_KINDS = frozenset({"PredictionCreated", "PredictionConfirmed", "SessionEnded", "CostWarned", "StateChanged"})
"""The kinds of ledger entries that may be notified."""

FAILED_STATES = frozenset(
    {SessionState.FAILED, SessionState.CANNOT_RUN, SessionState.BLOCKED, SessionState.INTERRUPTED}
)

NEW_CARDS = frozenset({NotificationKind.NEW_MEDIUM, NotificationKind.NEW_HIGH})


@frozen
class NotificationContent:
    """The content of a notification, independent of the surface."""

    kind: NotificationKind
    at: datetime
    text: str
    """A sentence about the event, or the prompt of a card."""
    card_id: str = ""
    channel: str = ""
    confidence: float | None = None
    """That of the card, from 0 to 1; None without a card."""
    has_stated_confidence: bool = False
    """Whether the confidence is shown to people."""
    tier: Tier | None = None
    """That of the card; None without a card."""
    must_be_read: bool = False
    """Whether a person must look at the card itself, because the content filter asks or no sandbox works."""


def find_notification_kind(entry: LedgerEntry) -> NotificationKind | None:
    """The kind of event of a ledger entry, None for an entry that is not notified."""
    payload = entry.payload
    match entry.kind:
        case "PredictionCreated" if payload["source"] != Source.OPERATOR:  # who made the card needs no note about it
            is_confident = payload.get("stated", False) and payload["confidence"] >= HIGH_CONFIDENCE
            is_high = is_confident or payload.get("tier") == Tier.AT_RISK  # older entries have no tier
            return NotificationKind.NEW_HIGH if is_high else NotificationKind.NEW_MEDIUM
        case "PredictionConfirmed" if payload["decided_by"] == DecidedBy.AUTONOMY:
            return NotificationKind.ACTED
        case "SessionEnded" if payload["state"] == SessionState.SUCCEEDED:
            return NotificationKind.COMPLETED
        case "SessionEnded" if payload["state"] in FAILED_STATES:
            return NotificationKind.FAILED
        case "CostWarned":
            return NotificationKind.COST
        case "StateChanged" if payload["after"] == "PAUSED":
            return NotificationKind.PAUSED
    return None


def make_content(
    entry: LedgerEntry, card_of: Callable[[str], Card], session_of: Callable[[str], SessionView], now: datetime
) -> NotificationContent | None:
    """The content to send about a ledger entry now; None if it is no longer needed."""
    kind, payload = find_notification_kind(entry), entry.payload
    match kind:
        case None:
            return None
        case NotificationKind.COST:
            cap, spent = payload["cap"], payload["spent"]
            share = 100 * spent // cap if cap else 100
            text = f"{share} % of the {payload['window']}'s cap: {money(spent)} of {money(cap)}"
            return NotificationContent(kind, entry.at, text)
        case NotificationKind.PAUSED:
            return NotificationContent(kind, entry.at, f"Paused: {payload['cause']}")
        case NotificationKind.COMPLETED | NotificationKind.FAILED:
            return _make_session_content(kind, entry, session_of)
    try:
        card = card_of(entry.subject)
    except Refusal:  # forgotten
        return None
    is_waiting = card.status is Status.PENDING and card.expires_at > now and not card.is_snoozed(now)
    if kind in NEW_CARDS and not is_waiting:
        return None
    return NotificationContent(
        kind,
        entry.at,
        card.assignment.prompt,
        card_id=card.id,
        channel=card.assignment.channel,
        confidence=card.confidence,
        has_stated_confidence=card.has_stated_confidence,
        tier=card.tier,
        must_be_read=card.asks_about_content or card.needs_confirmation,
    )


def _make_session_content(
    kind: NotificationKind, entry: LedgerEntry, session_of: Callable[[str], SessionView]
) -> NotificationContent:
    """The result of a session, even if the session was forgotten."""
    payload = entry.payload
    try:
        session: SessionView | None = session_of(entry.subject)
    except Refusal:
        session = None
    result = payload["summary"] or (session.prompt if session else "") or payload["state"]
    if kind is NotificationKind.FAILED:
        outcome = "Could not run" if payload["state"] == SessionState.CANNOT_RUN else "Failed"
        result = (session.error if session else "") or result
    else:
        outcome = PROBLEM_FOUND.capitalize() if session and session.has_problem else "Done"
    return NotificationContent(
        kind,
        entry.at,
        f"{outcome}: {result}",
        card_id=payload["prediction_id"],
        channel=session.channel if session else "",
    )


# -- notes

CARD_TITLE = "🔮 Cross-Pollination"
APS_CATEGORY = "CROSSPOLL_PREDICTION"
APS_THREAD = "crosspoll"
APS_SOUND = "prediction.caf"
CARD_ACTIONS = ("approve", "reject", "snooze")

MAX_CHARS = 300
"""Maximum number of characters of a text. Phones show less."""

MAX_DIGEST_LINES = 10
"""Maximum number of lines of a digest; the other notes are only counted."""

HAPTICS = ("success", "notice", "failure")
"""The meanings of a tap on the wrist, weakest first."""

QUIET_FORMS = frozenset({Form.SILENT, Form.BADGE, Form.REFRESH})
"""Forms that make no sound."""


@frozen
class Note:
    """One notification as it is delivered."""

    form: Form
    title: str
    body: str
    subtitle: str = ""
    sound: str = ""
    badge: int = 0
    """The number of pending cards."""
    category: str = ""
    prediction_id: str = ""
    channel: str = ""
    confidence: float | None = None
    actions: tuple[str, ...] = ()
    """The possible actions on the card."""
    is_good_news: bool = True
    haptic: str = ""
    """One of `HAPTICS`, "" for no tap."""
    question: str = ""
    """A question to be answered by voice, "" for none."""

    @property
    def text(self) -> str:
        """Subtitle and body, for services without subtitles."""
        return f"{self.subtitle}\n{self.body}" if self.subtitle else self.body

    @property
    def payload(self) -> Document:
        """The push message for a phone."""
        aps: Document = {"alert": {"title": self.title, "subtitle": self.subtitle, "body": self.body}}
        if self.sound:
            aps["sound"] = self.sound
        elif not self.haptic:
            aps |= {"content-available": 1, "interruption-level": "passive"}
        aps["badge"] = self.badge
        if self.category:
            aps["category"] = self.category
        aps["thread-id"] = APS_THREAD
        about: Document = {
            "predictionId": self.prediction_id or None,
            "targetChannel": self.channel or None,
            "confidence": None if self.confidence is None else round(self.confidence, 4),
            "haptic": self.haptic or None,
            "actions": list(self.actions) or None,
        }
        return {"aps": aps} | {name: value for name, value in about.items() if value is not None}


def make_note(
    content: NotificationContent, form: Form, *, pending: int, now: datetime, secrets: Iterable[str] = ()
) -> Note:
    """The note of a content in a form, while `pending` cards wait."""
    line = clean_line(content.text, secrets)
    note = Note(
        form,
        CARD_TITLE,
        line,
        subtitle=_join(content.channel, _word_risk(content), _word_confidence(content, " confidence")),
        badge=pending,
        prediction_id=content.card_id,
        channel=content.channel,
        confidence=content.confidence,
        is_good_news=content.kind not in (NotificationKind.FAILED, NotificationKind.COST, NotificationKind.PAUSED),
    )
    match form:
        case Form.CARD:
            actions = CARD_ACTIONS if is_complete(content, line) else CARD_ACTIONS[1:]
            return replace(note, sound=APS_SOUND, category=APS_CATEGORY, actions=actions)
        case Form.BANNER:
            return replace(note, sound=APS_SOUND)
        case Form.SPOKEN:
            return _speak(replace(note, title="", subtitle=""), content, line)
        case Form.EMBED:
            return replace(note, title="🔮 " + note.subtitle, subtitle="")
        case Form.RESULT:
            return replace(note, title=f"✅ {content.channel}".rstrip(), subtitle="")
        case Form.TICK | Form.CROSS:
            return replace(note, title="", subtitle="", body=f"{form.value} {line}")
        case Form.STATUS:
            return replace(note, title="", subtitle="", body=f"⏸ {line}")
        case Form.BADGE | Form.REFRESH | Form.HAPTIC_BADGE | Form.HAPTIC | Form.PAUSE:
            return _fit_on_watch(replace(note, subtitle=""), content, now)
    return note


def _word_risk(content: NotificationContent) -> str:
    """The word of a card's tier, in place of a confidence that is not stated. Cards of work at risk always have it."""
    tier = content.tier
    return tier.word if tier and (not content.has_stated_confidence or tier is Tier.AT_RISK) else ""


def _word_confidence(content: NotificationContent, unit: str = "") -> str:
    """The confidence of a card in percent, followed by `unit`; "" while none is stated."""
    if content.confidence is None or not content.has_stated_confidence:
        return ""
    return f"{round(100 * content.confidence)}%{unit}"


def _fit_on_watch(note: Note, content: NotificationContent, now: datetime) -> Note:
    """The note in one of the forms of a watch. A badge has the number of cards as its title."""
    match note.form:
        case Form.HAPTIC:
            title, haptic = ("✅", "success") if note.is_good_news else ("❌", "failure")
            return replace(note, title=title, haptic=haptic)
        case Form.PAUSE:
            return replace(note, title="⏸")
    body = note.body
    if content.confidence is not None:
        age = f"{short_span(now - content.at)} ago"
        body = f"“{body}”\n{_join(content.channel, _word_risk(content), _word_confidence(content), age)}"
    haptic = "notice" if note.form is Form.HAPTIC_BADGE else ""
    return replace(note, title=f"🔮 {note.badge}", body=body, haptic=haptic)


def _speak(note: Note, content: NotificationContent, line: str) -> Note:
    """The note as it is read aloud. For a card it ends with a question, which can be answered by voice."""
    if content.confidence is None:
        return note
    risk = content.tier.word.capitalize() if content.tier and not content.has_stated_confidence else ""
    confidence = risk or f"Confidence {round(100 * content.confidence)} percent"
    note = replace(note, body=f"Cross-pollination suggestion: {line.rstrip('.')}. {confidence}.")
    if is_complete(content, line):
        return replace(note, actions=("approve", "reject"), question="Say approve or skip.")
    return replace(note, actions=("reject",), question="Say skip, or read it before you approve.")


def _join(*parts: str) -> str:
    """The parts that are not empty, with dots between them."""
    return " • ".join(filter(None, parts))


def clean_line(text: str, secrets: Iterable[str]) -> str:
    """One line of at most `MAX_CHARS` characters, without control characters and secrets."""
    return plain(redact(sanitise(text), secrets), MAX_CHARS)


def is_complete(content: NotificationContent, line: str) -> bool:
    """Whether a card may be approved from its note: the note has the whole prompt, and nothing asks for a look at the
    card."""
    return not content.must_be_read and line == one_line(content.text)


def make_digest(notes: Sequence[Note]) -> Note:
    """Combine at least two notes for one surface, oldest first, into one."""
    newest = notes[-1]
    taps = [note.haptic for note in notes if note.haptic]
    if taps or newest.form in (Form.BADGE, Form.REFRESH):
        # A watch face has room for one note; its number counts all cards, and only the strongest tap is felt.
        return replace(newest, haptic=max(taps, key=HAPTICS.index, default=""))
    lines = [f"• {note.subtitle}: {note.body}" if note.subtitle else f"• {note.body}" for note in notes]
    if len(lines) > MAX_DIGEST_LINES:
        lines = [*lines[: MAX_DIGEST_LINES - 1], f"• and {len(lines) - MAX_DIGEST_LINES + 1} more"]
    has_sound = any(note.sound for note in notes)
    return Note(
        Form.BANNER if has_sound else newest.form,
        CARD_TITLE,
        "\n".join(lines),
        subtitle=f"{len(notes)} notifications",
        sound=APS_SOUND if has_sound else "",
        badge=newest.badge,
        is_good_news=all(note.is_good_news for note in notes),
    )
