"""Writes the text of notifications in the form that a surface takes (SPEC 10.2, 10.3). Pure.

Text of agents and models is hostile and leaves the machine here: it is sanitised, and secrets are removed (SPEC 11.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engine.api.notify.content import NotificationContent
from engine.api.notify.forms import Form, NotificationKind
from engine.frozen import frozen
from engine.model import Tier, sanitise
from engine.model.secrets import redact

CARD_TITLE = "🔮 Cross-Pollination"
APS_CATEGORY = "CROSSPOLL_PREDICTION"
APS_THREAD = "crosspoll"
APS_SOUND = "prediction.caf"
CARD_ACTIONS = ("approve", "reject", "snooze")

MAX_CHARS = 300
"""Characters of a text; phones show less."""

MAX_DIGEST_LINES = 10
"""Lines of a digest; the rest is counted."""

HAPTICS = ("success", "notice", "failure")
"""Meanings of a tap on the wrist, weakest first."""

QUIET_FORMS = frozenset({Form.SILENT, Form.BADGE, Form.REFRESH})
"""Forms that make no sound."""


@frozen
class Note:
    """One notification. `badge` is the number of pending cards; `actions` what can be done with the card; `haptic` one
    of `HAPTICS`, "" for none; `ask` asks for an answer by voice, where one can be heard."""

    form: Form
    title: str
    body: str
    subtitle: str = ""
    sound: str = ""
    badge: int = 0
    category: str = ""
    prediction_id: str = ""
    channel: str = ""
    confidence: float | None = None
    actions: tuple[str, ...] = ()
    good: bool = True
    haptic: str = ""
    ask: str = ""

    @property
    def text(self) -> str:
        """Subtitle and body, for services without subtitles."""
        return f"{self.subtitle}\n{self.body}" if self.subtitle else self.body

    @property
    def payload(self) -> dict[str, Any]:
        """The push message for a phone."""
        aps: dict[str, Any] = {"alert": {"title": self.title, "subtitle": self.subtitle, "body": self.body}}
        if self.sound:
            aps |= {"sound": self.sound}
        elif not self.haptic:
            aps |= {"content-available": 1, "interruption-level": "passive"}
        aps |= (
            {"badge": self.badge} | ({"category": self.category} if self.category else {}) | {"thread-id": APS_THREAD}
        )
        about: dict[str, Any] = {"predictionId": self.prediction_id, "targetChannel": self.channel}
        about |= {} if self.confidence is None else {"confidence": round(self.confidence, 4)}
        about |= {"haptic": self.haptic}
        return (
            {"aps": aps}
            | {name: value for name, value in about.items() if value != ""}
            | ({"actions": list(self.actions)} if self.actions else {})
        )


def make_note(
    content: NotificationContent, form: Form, *, pending: int, now: datetime, secrets: Iterable[str] = ()
) -> Note:
    """The note of a content in a form, while `pending` cards wait."""
    words = clean_line(content.words, secrets)
    percent = f"{round(100 * content.confidence)}%" if content.confidence is not None and content.stated else ""
    # Before the Twin has learnt, the tier's word; what is broken or about to be lost says so always.
    risk = content.tier.word if content.tier and (not content.stated or content.tier is Tier.BROKEN) else ""
    base = Note(
        form,
        CARD_TITLE,
        words,
        subtitle=_joined(content.channel, risk, percent and f"{percent} confidence"),
        badge=pending,
        prediction_id=content.card_id,
        channel=content.channel,
        confidence=content.confidence,
        good=content.kind not in (NotificationKind.FAILED, NotificationKind.COST, NotificationKind.PAUSED),
    )
    match form:
        case Form.CARD:
            actions = CARD_ACTIONS if is_complete(content, words) else CARD_ACTIONS[1:]
            return replace(base, sound=APS_SOUND, category=APS_CATEGORY, actions=actions)
        case Form.BANNER:
            return replace(base, sound=APS_SOUND)
        case Form.BADGE | Form.REFRESH | Form.HAPTIC_BADGE:
            ago = _joined(content.channel, risk, percent, f"{format_age(now - content.at)} ago")
            text = f"“{words}”\n{ago}" if content.confidence is not None else words
            haptic = "notice" if form is Form.HAPTIC_BADGE else ""
            return replace(base, title=badge_text(pending), subtitle="", body=text, haptic=haptic)
        case Form.HAPTIC:
            title, haptic = ("✅", "success") if base.good else ("❌", "failure")
            return replace(base, title=title, subtitle="", haptic=haptic)
        case Form.PAUSE:
            return replace(base, title="⏸", subtitle="")
        case Form.SPOKEN:
            if content.confidence is None:
                return replace(base, title="", subtitle="")
            whole = is_complete(content, words)
            ask = "Say approve or skip." if whole else "Say skip, or read it before you approve."
            answers = CARD_ACTIONS[:2] if whole else CARD_ACTIONS[1:2]
            return replace(base, title="", subtitle="", body=spoken_text(content, words), actions=answers, ask=ask)
        case Form.EMBED:
            return replace(base, title="🔮 " + base.subtitle, subtitle="")
        case Form.TICK | Form.CROSS:
            return replace(base, title="", subtitle="", body=f"{form.value} {words}")
        case Form.RESULT:
            return replace(base, title=f"✅ {content.channel}".rstrip(), subtitle="")
        case Form.STATUS:
            return replace(base, title="", subtitle="", body=f"⏸ {words}")
    return base


def _joined(*parts: str) -> str:
    return " • ".join(part for part in parts if part)


def make_digest(notes: Sequence[Note]) -> Note:
    """Several notes of one surface as one; they come oldest first, and there are at least two."""
    last = notes[-1]
    taps = [note.haptic for note in notes if note.haptic]
    if taps or last.form in (Form.BADGE, Form.REFRESH):
        # A face has room for one, and the number counts all; of several taps the strongest is felt.
        return replace(last, haptic=max(taps, key=HAPTICS.index, default=""))
    lines = [f"• {note.subtitle}: {note.body}" if note.subtitle else f"• {note.body}" for note in notes]
    if len(lines) > MAX_DIGEST_LINES:
        lines = [*lines[: MAX_DIGEST_LINES - 1], f"• and {len(lines) - MAX_DIGEST_LINES + 1} more"]
    loud = any(note.sound for note in notes)
    return Note(
        Form.BANNER if loud else last.form,
        CARD_TITLE,
        "\n".join(lines),
        subtitle=f"{len(notes)} notifications",
        sound=APS_SOUND if loud else "",
        badge=last.badge,
        good=all(note.good for note in notes),
    )


def clean_line(text: str, secrets: Iterable[str]) -> str:
    """One line of at most `MAX_CHARS` characters, without control characters and secrets."""
    line = " ".join(redact(sanitise(text), secrets).split())
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"


def is_complete(content: NotificationContent, words: str) -> bool:
    """Whether a card may be approved from its note: the whole prompt is there, and the content filter does not ask."""
    return not content.asks and words == " ".join(sanitise(content.words).split())


def spoken_text(content: NotificationContent, words: str) -> str:
    """A card as it is read aloud."""
    assert content.confidence is not None
    risk = content.tier.word.capitalize() if content.tier and not content.stated else ""
    confidence = risk or f"Confidence {round(100 * content.confidence)} percent"
    return f"Cross-pollination suggestion: {words.rstrip('.')}. {confidence}."


def badge_text(pending: int) -> str:
    """The short form of the status bar (SPEC 10.3)."""
    return f"🔮 {pending}"


def format_age(span: timedelta) -> str:
    """An age: `2m`, `3h`, `4d`; `0m` for less than a minute."""
    minutes = max(0, int(span.total_seconds() // 60))
    if minutes < 60:
        return f"{minutes}m"
    return f"{minutes // 60}h" if minutes < 48 * 60 else f"{minutes // 1440}d"
