"""Adapts a note to ntfy, to Discord and to programs that read JSON: its text, options, and buttons (SPEC 10.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from engine.api.notify.notes import QUIET_FORMS, Form, Note
from engine.frozen import frozen

if TYPE_CHECKING:
    from engine.services import Services

BUTTON_LIFETIME = timedelta(hours=4)
"""Time during which a button works. After that, the card can be decided in the console."""

ACTION_PATHS = {"approve": "confirm", "reject": "reject", "snooze": "snooze"}
"""The last part of the gateway's path for each action."""

ACTION_LABELS = {"approve": "Approve", "reject": "Dismiss", "snooze": "Snooze"}

PassFor = Callable[..., str]
"""The type of `Gateway.pass_for`, which returns a credential for a single request, "" if nothing listens."""

_MARKDOWN = re.compile(r"([*_`~|>#\\\[\]])")
"""Characters that have a meaning in Discord's Markdown."""


@frozen
class Button:
    """A button that sends a POST request to `url` with this credential."""

    url: str
    credential: str = field(repr=False)

    @property
    def authorization(self) -> str:
        """The value of the header of this name."""
        return f"Bearer {self.credential}"


def make_buttons(engine: Services, pass_for: PassFor, card_id: str, actions: Sequence[str]) -> Mapping[str, Button]:
    """Make a button for each action on a card. Buttons call the gateway; if it does not listen, there are none.

    A notification passes through foreign servers, so it never has the token. Each button has a pass for one action on
    one card, valid for a few hours.
    """
    base = engine.settings.current.notify.gateway
    if not base or not card_id:
        return {}
    until = (engine.clock.now() + BUTTON_LIFETIME).timestamp()
    paths = {action: f"/api/v1/predictions/{card_id}/{ACTION_PATHS[action]}" for action in actions}
    passes = {action: pass_for("POST", path, until=until) for action, path in paths.items()}
    return {action: Button(base + paths[action], word) for action, word in passes.items() if word}


def adapt(note: Note, buttons: Mapping[str, Button], fields: dict[str, Any]) -> tuple[str, str]:
    """Add the options of a service to the `fields` of Apprise. Returns (title, body) in the form that it shows."""
    match fields["schema"]:
        case "ntfy" | "ntfys":
            fields |= _ntfy_fields(note, buttons)
        case "json" | "jsons":
            if buttons and note.ask:  # the program that receives the push can answer the question
                note = replace(note, body=f"{note.body} {note.ask}")
            answers = {
                name: {"url": button.url, "authorization": button.authorization} for name, button in buttons.items()
            }
            fields["payload"] = fields.get("payload", {}) | note.payload | ({"answers": answers} if answers else {})
        case "discord":
            is_embed = note.form in (Form.EMBED, Form.RESULT)  # Apprise sends Markdown as an embed
            fields |= {"avatar": False} | ({"format": "markdown"} if is_embed else {})
            return _discord_text(note.title, is_embed=is_embed), _discord_text(note.text, is_embed=is_embed)
    return note.title, note.text


def _ntfy_fields(note: Note, buttons: Mapping[str, Button]) -> dict[str, Any]:
    """The fields of ntfy: its priority, and buttons that call an address."""
    actions = [
        {
            "action": "http",
            "label": ACTION_LABELS[name],
            "url": buttons[name].url,
            "method": "POST",
            "headers": {"Authorization": buttons[name].authorization},
            "clear": True,
        }
        for name in note.actions
        if name in buttons
    ]
    fields = {"priority": _ntfy_priority(note), "include_image": False}
    return fields | ({"actions": json.dumps(actions)} if actions else {})


def _ntfy_priority(note: Note) -> str:
    if note.haptic in ("notice", "failure") or note.form is Form.PAUSE:
        return "high"
    if note.haptic:
        return "default"
    if note.form in (Form.SILENT, Form.REFRESH):
        return "min"
    return "low" if note.form in QUIET_FORMS else "default"


def _discord_text(text: str, *, is_embed: bool) -> str:
    """The text as Discord shows it literally, and without mentions, which would notify people. Apprise escapes the
    Markdown of an embed."""
    literal = text if is_embed else _MARKDOWN.sub(r"\\\1", text)
    return literal.replace("@", "@\u200b")
