"""Delivers a note to a surface, in the form that its service shows, with Apprise or a program of this machine (SPEC
10.2).

The error of a library may contain an address, and with it a token (SPEC 11.1), so errors are described in our own
words. A `Sender` calls `deliver`.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from engine.api.documents import Document
from engine.api.notify.addresses import Address
from engine.api.notify.notes import QUIET_FORMS, Form, Note
from engine.config.external_sections import DESKTOP_SCHEME, SPEAK_SCHEME
from engine.frozen import frozen
from engine.installed import (
    NOTIFY,
    has_extra,
    make_not_installed_refusal,
)

TIMEOUT_S = 15.0
"""Maximum number of seconds of one delivery."""

RETRYABLE_STATUS = frozenset({408, 425, 429})
"""Status codes below 500 after which a delivery is tried again."""

ACTION_LABELS = {"approve": "Approve", "reject": "Dismiss", "snooze": "Snooze"}

_MARKDOWN = re.compile(r"([*_`~|>#\\\[\]])")
"""Characters that have a meaning in Discord's Markdown."""

# Apprise's log may contain addresses, and would be printed over the screen. Its result is enough.
_apprise_log = logging.getLogger("apprise")
_apprise_log.propagate = False
_apprise_log.addHandler(logging.NullHandler())


@frozen
class DeliveryFailure:
    """The reason of a failed delivery. If `is_lasting`, it will fail again until the operator fixes it."""

    message: str
    is_lasting: bool = False


@frozen
class Button:
    """A button that sends a POST request to `url` with this credential."""

    url: str
    credential: str = field(repr=False)

    @property
    def authorization(self) -> str:
        """The value of the header of this name."""
        return f"Bearer {self.credential}"


Deliver = Callable[[Address, Note, Mapping[str, Button]], DeliveryFailure | None]
"""The type of `deliver`."""


def deliver(address: Address, note: Note, buttons: Mapping[str, Button]) -> DeliveryFailure | None:
    """Deliver a note; returns None on success. `buttons` are by action. Callable from any thread; takes at most about
    `TIMEOUT_S`."""
    if address.service == DESKTOP_SCHEME:
        return _run(make_desktop_command(note), purpose="notifications")
    if address.service == SPEAK_SCHEME:
        return _run(make_speech_command(note), purpose="speech")
    if not has_extra(NOTIFY):
        return DeliveryFailure(str(make_not_installed_refusal(NOTIFY)), is_lasting=True)
    return _send(address, note, buttons)


def _send(address: Address, note: Note, buttons: Mapping[str, Button]) -> DeliveryFailure | None:
    import apprise
    from apprise import plugins

    asset = apprise.AppriseAsset(
        app_id="clawpy", app_desc="Clawpy Console", app_url="", async_mode=False, http_redirects=False,
        image_url_mask=None, image_url_logo=None, service_timeout=TIMEOUT_S, allow_templates=False,
    )  # fmt: skip
    fields: Document | None = plugins.url_to_dict(address.url)  # type: ignore[no-untyped-call]
    if fields is None:
        return DeliveryFailure("there is no such service, or its address is incomplete", is_lasting=True)
    title, body, fields = adapt(note, buttons, fields)
    service = apprise.Apprise.instantiate(fields, asset=asset)
    if service is None:
        return DeliveryFailure(
            "its address is incomplete, or the service cannot be used on this machine", is_lasting=True
        )
    carrier = apprise.Apprise(asset=asset)
    carrier.add(service)
    kind = apprise.NotifyType.INFO if note.is_good_news else apprise.NotifyType.WARNING
    result = carrier.notify(
        body=body, title=title, notify_type=kind, body_format=apprise.NotifyFormat.TEXT, timeout=TIMEOUT_S
    )
    if result:
        return None
    if result.status.name == "TIMEOUT":
        return DeliveryFailure(f"it did not accept the notification within {TIMEOUT_S:g} s")
    return describe_failure([entry.message for entry in result.logs()])


def describe_failure(messages: Sequence[str]) -> DeliveryFailure:
    """The failure that the log lines of Apprise report, in our own words."""
    for line in messages:
        if match := re.search(r"error=(\d{3})\d{0,2}\b", line):  # ntfy adds two digits to the status
            status = int(match[1])
            return DeliveryFailure(
                f"the server answers {status}", is_lasting=400 <= status < 500 and status not in RETRYABLE_STATUS
            )
        if "connection error" in line.casefold():
            return DeliveryFailure("it cannot be reached")
    return DeliveryFailure("it did not accept the notification")


def _run(command: Sequence[str], *, purpose: str) -> DeliveryFailure | None:
    if not command:
        return DeliveryFailure(f"this machine has no program for {purpose}; see `clawpy doctor`", is_lasting=True)
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return DeliveryFailure(f"it did not accept the notification within {TIMEOUT_S:g} s")
    except OSError as error:
        return DeliveryFailure(f"{command[0]} cannot be run: {error.strerror}", is_lasting=True)
    return None if process.returncode == 0 else DeliveryFailure(f"{command[0]} ended with {process.returncode}")


def adapt(note: Note, buttons: Mapping[str, Button], fields: Document) -> tuple[str, str, Document]:
    """The (title, body, fields) of a note in the form that its service shows. `fields` are those of its address in
    Apprise."""
    match fields["schema"]:
        case "ntfy" | "ntfys":
            fields = fields | _make_ntfy_fields(note, buttons)
        case "json" | "jsons":
            if buttons and note.question:  # the program that receives the push can answer the question
                note = replace(note, body=f"{note.body} {note.question}")
            answers = {
                name: {"url": button.url, "authorization": button.authorization} for name, button in buttons.items()
            }
            payload = fields.get("payload", {}) | note.payload | ({"answers": answers} if answers else {})
            fields = fields | {"payload": payload}
        case "discord":
            is_embed = note.form in (Form.EMBED, Form.RESULT)  # Apprise sends Markdown as an embed
            title, body = (_escape_for_discord(text, is_embed=is_embed) for text in (note.title, note.text))
            return title, body, fields | {"avatar": False} | ({"format": "markdown"} if is_embed else {})
    return note.title, note.text, fields


def _make_ntfy_fields(note: Note, buttons: Mapping[str, Button]) -> Document:
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
    fields = {"priority": _choose_ntfy_priority(note), "include_image": False}
    return fields | ({"actions": json.dumps(actions)} if actions else {})


def _choose_ntfy_priority(note: Note) -> str:
    if note.haptic in ("notice", "failure") or note.form is Form.PAUSE:
        return "high"
    if note.haptic:
        return "default"
    if note.form in (Form.SILENT, Form.REFRESH):
        return "min"
    return "low" if note.form in QUIET_FORMS else "default"


def _escape_for_discord(text: str, *, is_embed: bool) -> str:
    """The text as Discord shows it literally, and without mentions, which would notify people. Apprise escapes the
    Markdown of an embed."""
    literal = text if is_embed else _MARKDOWN.sub(r"\\\1", text)
    return literal.replace("@", "@\u200b")


def make_desktop_command(note: Note) -> list[str]:
    """The command that shows a note on the desktop; empty if this machine has none."""
    if sys.platform == "darwin":
        script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
        return ["osascript", "-e", script, note.title or "clawpy", note.text]
    if program := shutil.which("notify-send"):
        import html  # not before the first notification

        urgency = "low" if note.form in QUIET_FORMS else "normal"
        return [
            program,
            "--app-name=clawpy",
            f"--urgency={urgency}",
            "--",
            note.title or "clawpy",
            html.escape(note.text, quote=False),
        ]
    return []


def make_speech_command(note: Note) -> list[str]:
    """The command that reads a note aloud; empty if this machine has none."""
    for name, options in (("say", []), ("spd-say", ["--wait", "--"]), ("espeak-ng", ["--"]), ("espeak", ["--"])):
        if program := shutil.which(name):
            return [program, *options, note.text.lstrip("-")]
    return []
