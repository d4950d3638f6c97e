"""Writes the text of notifications in the form that a surface takes (SPEC 10.2, 10.3). Pure.

Text of agents and models is hostile and leaves the machine here: it is sanitised, and secrets are removed (SPEC 11.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engine.api.notify.matrix import Form, Happening
from engine.api.notify.moments import Moment
from engine.frozen import frozen
from engine.model import Tier, sanitise
from engine.model.secrets import redact

TITLE = "🔮 Cross-Pollination"
CATEGORY = "CROSSPOLL_PREDICTION"
THREAD = "crosspoll"
SOUND = "prediction.caf"
ACTIONS = ("approve", "reject", "snooze")

MAX_CHARS = 300
"""Characters of a text; phones show less."""

MAX_DIGEST_LINES = 10
"""Lines of a digest; the rest is counted."""

HAPTICS = ("success", "notice", "failure")
"""What a tap on the wrist means, weakest first."""

QUIET_FORMS = frozenset({Form.SILENT, Form.BADGE, Form.REFRESH})
"""Forms that make no sound."""

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


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
        aps |= {"badge": self.badge} | ({"category": self.category} if self.category else {}) | {"thread-id": THREAD}
        about: dict[str, Any] = {"predictionId": self.prediction_id, "targetChannel": self.channel}
        about |= {} if self.confidence is None else {"confidence": round(self.confidence, 4)}
        about |= {"haptic": self.haptic}
        return (
            {"aps": aps}
            | {name: value for name, value in about.items() if value != ""}
            | ({"actions": list(self.actions)} if self.actions else {})
        )


def note(moment: Moment, form: Form, *, pending: int, now: datetime, secrets: Iterable[str] = ()) -> Note:
    """The note of a moment in a form, while `pending` cards wait."""
    words = clean_line(moment.words, secrets)
    percent = f"{round(100 * moment.confidence)}%" if moment.confidence is not None and moment.stated else ""
    # Before the Twin has learnt, the tier's word; what is broken or about to be lost says so always.
    risk = moment.tier.word if moment.tier and (not moment.stated or moment.tier is Tier.BROKEN) else ""
    base = Note(
        form,
        TITLE,
        words,
        subtitle=_joined(moment.channel, risk, percent and f"{percent} confidence"),
        badge=pending,
        prediction_id=moment.card_id,
        channel=moment.channel,
        confidence=moment.confidence,
        good=moment.happening not in (Happening.FAILED, Happening.COST, Happening.PAUSED),
    )
    match form:
        case Form.CARD:
            actions = ACTIONS if is_complete(moment, words) else ACTIONS[1:]
            return replace(base, sound=SOUND, category=CATEGORY, actions=actions)
        case Form.BANNER:
            return replace(base, sound=SOUND)
        case Form.BADGE | Form.REFRESH | Form.HAPTIC_BADGE:
            ago = _joined(moment.channel, risk, percent, f"{format_age(now - moment.at)} ago")
            text = f"“{words}”\n{ago}" if moment.confidence is not None else words
            haptic = "notice" if form is Form.HAPTIC_BADGE else ""
            return replace(base, title=badge_text(pending), subtitle="", body=text, haptic=haptic)
        case Form.HAPTIC:
            title, haptic = ("✅", "success") if base.good else ("❌", "failure")
            return replace(base, title=title, subtitle="", haptic=haptic)
        case Form.PAUSE:
            return replace(base, title="⏸", subtitle="")
        case Form.SPOKEN:
            if moment.confidence is None:
                return replace(base, title="", subtitle="")
            whole = is_complete(moment, words)
            ask = "Say approve or skip." if whole else "Say skip, or read it before you approve."
            answers = ACTIONS[:2] if whole else ACTIONS[1:2]
            return replace(base, title="", subtitle="", body=spoken_text(moment, words), actions=answers, ask=ask)
        case Form.EMBED:
            return replace(base, title="🔮 " + base.subtitle, subtitle="")
        case Form.TICK | Form.CROSS:
            return replace(base, title="", subtitle="", body=f"{form.value} {words}")
        case Form.RESULT:
            return replace(base, title=f"✅ {moment.channel}".rstrip(), subtitle="")
        case Form.STATUS:
            return replace(base, title="", subtitle="", body=f"⏸ {words}")
    return base


def _joined(*parts: str) -> str:
    return " • ".join(part for part in parts if part)


def digest(notes: Sequence[Note]) -> Note:
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
        TITLE,
        "\n".join(lines),
        subtitle=f"{len(notes)} notifications",
        sound=SOUND if loud else "",
        badge=last.badge,
        good=all(note.good for note in notes),
    )


def clean_line(text: str, secrets: Iterable[str]) -> str:
    """One line of at most `MAX_CHARS` characters, without control characters and secrets."""
    line = " ".join(redact(sanitise(text), secrets).split())
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"


def is_complete(moment: Moment, words: str) -> bool:
    """Whether a card may be approved from its note: the whole prompt is there, and the content filter does not ask."""
    return not moment.asks and words == " ".join(sanitise(moment.words).split())


def spoken_text(moment: Moment, words: str) -> str:
    """A card as it is read aloud."""
    assert moment.confidence is not None
    risk = moment.tier.word.capitalize() if moment.tier and not moment.stated else ""
    confidence = risk or f"Confidence {spell_number(round(100 * moment.confidence))} percent"
    return f"Cross-pollination suggestion: {words.rstrip('.')}. {confidence}."


def spell_number(value: int) -> str:
    """A number from 0 to 100 in words."""
    if value >= 100:
        return "one hundred"
    if value < 20:
        return _ONES[max(0, value)]
    tens, ones = divmod(value, 10)
    return _TENS[tens] + (f"-{_ONES[ones]}" if ones else "")


def badge_text(pending: int) -> str:
    """The short form of the status bar (SPEC 10.3)."""
    return f"🔮 {pending}"


def format_age(span: timedelta) -> str:
    """How long ago: `2m`, `3h`, `4d`; `0m` for less than a minute."""
    minutes = max(0, int(span.total_seconds() // 60))
    if minutes < 60:
        return f"{minutes}m"
    return f"{minutes // 60}h" if minutes < 48 * 60 else f"{minutes // 1440}d"
