"""Delivers notes to surfaces: finds and checks the address of each, and sends a note in the form that its service
shows, with Apprise or a program of this machine (SPEC 10.2).

An address may contain a token (SPEC 11.1), so it is never in a repr, log, error or document. The error of a library may
contain the address, so errors are described in our own words.

`Sender` calls `deliver`; `clawpy notify set` stores an address, and `doctor` checks all of them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engine.api.documents import Document
from engine.api.notify.notes import QUIET_FORMS, Form, Note, get_setting_name, is_switched_on
from engine.api_keys import ENVIRONMENT, Keys
from engine.config import SettingsSource
from engine.config.sections import (
    DESKTOP_SCHEME,
    OPEN_SCHEMES,
    SERVICE_ADDRESS,
    SPEAK_SCHEME,
    STORED_WITH_KEYS,
    Surface,
    find_address_problem,
    make_address_key_name,
    make_address_variable,
)
from engine.frozen import frozen
from engine.home import Home
from engine.installed import (
    NOTIFY,
    has_extra,
    make_not_installed_refusal,
)
from engine.model import Refusal
from engine.settings_store import SettingsStore

if TYPE_CHECKING:
    from engine.services import Services

EXAMPLE = 'for example "ntfys://ntfy.sh/my-secret-topic"; see https://appriseit.com/services/ for others'
"""An example of an address, for errors."""

EXAMPLE_FIX = "clawpy notify set {}, then paste, for example, ntfys://ntfy.sh/my-secret-topic"


@frozen
class Address:
    """An address and its source: "environment", "keyring", "file" or "settings". `url` is only for deliveries."""

    surface: Surface
    url: str = field(repr=False)
    source: str

    @property
    def service(self) -> str:
        """The kind of service, such as `ntfy`. It is the scheme of the URL."""
        return self.url.partition("://")[0]


class Addresses:
    """Finds addresses. Reading a keyring may take 3 s, so it is asked only for addresses that the settings mention."""

    def __init__(self, settings: SettingsSource, keys: Keys, *, environment: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self._keys = keys
        self._environment = environment
        self._stored_urls: dict[Surface, str] = {}  # addresses from the key stores

    def is_configured(self, surface: Surface) -> bool:
        """Whether an address is set. Quick."""
        return bool(self._read_url_in_environment(surface) or self._read_url_in_settings(surface))

    def find(self, surface: Surface) -> Address | None:
        """The address of a surface, None if none is set.

        Raises `Refusal`: `no_address` if the settings say that it is stored and it is not, `bad_address` if it is
        malformed, and as `KeyFile.get`.
        """
        url, source = self._read_url_in_environment(surface), ENVIRONMENT
        if not url:
            url, source = self._read_url_in_settings(surface), "settings"
        if url == STORED_WITH_KEYS:
            key = self._keys.get(make_address_key_name(surface))
            if key is None:
                message = f'notify.{surface.value}.url is "key", but no address is stored for {surface.value}'
                fix = f"clawpy notify set {surface.value}, or set {make_address_variable(surface)}"
                raise Refusal("no_address", message, fix)
            url, source = key.value, key.source
            self._stored_urls[surface] = url
        if not url:
            return None
        if not SERVICE_ADDRESS.fullmatch(url):  # the error does not repeat it, because it may be a secret
            raise Refusal("bad_address", f"what is stored for {surface.value} is not an address", EXAMPLE)
        return Address(surface, url, source)

    def secrets(self) -> tuple[str, ...]:
        """Parts of all known addresses that may be secret, to be removed from what is sent."""
        urls = [*map(self._read_url_in_environment, Surface), *self._stored_urls.values()]
        return tuple(part for url in urls if url for part in find_secret_parts(url))

    def _read_url_in_environment(self, surface: Surface) -> str:
        return self._environment.get(make_address_variable(surface), "").strip()

    def _read_url_in_settings(self, surface: Surface) -> str:
        return self._settings.current.notify.get_surface(surface).url


def find_secret_parts(url: str) -> tuple[str, ...]:
    """An address and its parts that may be secret. For services without secrets, the path is not one of them."""
    try:
        split = urlsplit(url)
        inside = [split.username, split.password, *split.query.replace("=", "&").split("&")]
        if split.scheme not in OPEN_SCHEMES:
            inside += [split.hostname, *split.path.split("/")]
    except ValueError:
        inside = []
    return (url, *(part for part in inside if part))


def is_known_service(url: str) -> bool:
    """Whether an address is complete and its service is supported. Raises `Refusal` `not_installed` without Apprise."""
    if url.partition("://")[0] in (DESKTOP_SCHEME, SPEAK_SCHEME):
        return True
    if not has_extra(NOTIFY):
        raise make_not_installed_refusal(NOTIFY)
    import apprise

    return apprise.Apprise.instantiate(url) is not None


def store_address(home: Home, name: str, url: str, *, in_file: bool, write: Callable[[str, str], Any]) -> Document:
    """Set the address of a surface. If it may contain a secret, this process stores it in the key stores.
    `write(key, value)` writes the setting. Raises `Refusal` `bad_address`, `not_installed`, and as `Keys.set`."""
    surface, url = Surface(name), url.strip()
    if not url:
        fix = f"{EXAMPLE}; to remove the address: clawpy config unset notify.{surface}.url"
        raise Refusal("bad_address", f"no address was given, so the one for {surface} was not changed", fix)
    if not SERVICE_ADDRESS.fullmatch(url):
        raise Refusal("bad_address", "that is not an address", EXAMPLE)
    if not is_known_service(url):
        fix = "see https://appriseit.com/services/ for the format"
        raise Refusal("bad_address", "that is not the address of a known service, or it is incomplete", fix)
    source = "settings"
    if find_address_problem(url):
        export = f"either export {make_address_variable(surface)}=… where clawpy is started"
        keep = f"keep it in a file that only you can read: clawpy notify set {surface} --store file"
        keyring_fix = f"{export}, or {keep}"
        source = Keys(home).set(make_address_key_name(surface), url, consent_file=in_file, keyring_fix=keyring_fix)
        url = STORED_WITH_KEYS
    write(f"notify.{surface}.url", url)
    current = SettingsStore(home.config_file).current
    off = "" if is_switched_on(surface, current) else f"; first: clawpy config set {get_setting_name(surface)} true"
    return {
        "surface": surface.value,
        "source": source,
        "message": f"the address for {surface} is stored in the {source}; test it: clawpy notify test {name}{off}",
    }


TIMEOUT_S = 15.0
"""Maximum number of seconds of one delivery."""

RETRYABLE_STATUS = frozenset({408, 425, 429})
"""Status codes below 500 after which a delivery is tried again."""

# Apprise's log may contain addresses, and would be printed over the screen. Its result is enough.
_apprise_log = logging.getLogger("apprise")
_apprise_log.propagate = False
_apprise_log.addHandler(logging.NullHandler())


@frozen
class DeliveryFailure:
    """The reason of a failed delivery. If `lasting`, it will fail again until the operator fixes it."""

    message: str
    lasting: bool = False


def deliver(address: Address, note: Note, buttons: Mapping[str, Button]) -> DeliveryFailure | None:
    """Deliver a note; returns None on success. `buttons` are by action. Callable from any thread; takes at most about
    `TIMEOUT_S`."""
    if address.service == DESKTOP_SCHEME:
        return _run(make_desktop_command(note))
    if address.service == SPEAK_SCHEME:
        return _run(make_speech_command(note))
    if not has_extra(NOTIFY):
        return DeliveryFailure(str(make_not_installed_refusal(NOTIFY)), lasting=True)
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
        return DeliveryFailure("there is no such service, or its address is incomplete", lasting=True)
    title, body = adapt(note, buttons, fields)
    service = apprise.Apprise.instantiate(fields, asset=asset)
    if service is None:
        return DeliveryFailure("its address is incomplete, or the service cannot be used on this machine", lasting=True)
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
        if match := re.search(r"error=(\d{3})\d{0,2}\b", line):
            status = int(match[1])
            return DeliveryFailure(
                f"the server answers {status}", lasting=400 <= status < 500 and status not in RETRYABLE_STATUS
            )
        if "onnection error" in line:
            return DeliveryFailure("it cannot be reached")
    return DeliveryFailure("it did not accept the notification")


def _run(command: Sequence[str]) -> DeliveryFailure | None:
    if not command:
        return DeliveryFailure("this machine has no program for notifications; see `clawpy doctor`", lasting=True)
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return DeliveryFailure(f"it did not accept the notification within {TIMEOUT_S:g} s")
    except OSError as error:
        return DeliveryFailure(f"{command[0]} cannot be run: {error.strerror}", lasting=True)
    return None if process.returncode == 0 else DeliveryFailure(f"{command[0]} ended with {process.returncode}")


BUTTON_LIFETIME = timedelta(hours=4)
"""Time during which a button works. After that, the card can be decided in the console."""

ACTION_PATHS = {"approve": "confirm", "reject": "reject", "snooze": "snooze"}
"""The last part of the gateway's path for each action."""

ACTION_LABELS = {"approve": "Approve", "reject": "Dismiss", "snooze": "Snooze"}

IssuePass = Callable[..., str]
"""The type of `Gateway.issue_pass`, which returns a credential for a single request, "" if nothing listens."""

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


def make_buttons(engine: Services, issue_pass: IssuePass, card_id: str, actions: Sequence[str]) -> Mapping[str, Button]:
    """Make a button for each action on a card. Buttons call the gateway; if it does not listen, there are none.

    A notification passes through foreign servers, so it never has the token. Each button has a pass for one action on
    one card, valid for a few hours.
    """
    base = engine.settings.current.notify.gateway
    if not base or not card_id:
        return {}
    until = (engine.clock.now() + BUTTON_LIFETIME).timestamp()
    paths = {action: f"/api/v1/predictions/{card_id}/{ACTION_PATHS[action]}" for action in actions}
    passes = {action: issue_pass("POST", path, until=until) for action, path in paths.items()}
    return {action: Button(base + paths[action], word) for action, word in passes.items() if word}


Deliver = Callable[[Address, Note, Mapping[str, Button]], DeliveryFailure | None]
"""The type of `deliver`."""


def adapt(note: Note, buttons: Mapping[str, Button], fields: Document) -> tuple[str, str]:
    """Add the options of a service to the `fields` of Apprise. Returns (title, body) in the form that it shows."""
    match fields["schema"]:
        case "ntfy" | "ntfys":
            fields |= _make_ntfy_fields(note, buttons)
        case "json" | "jsons":
            if buttons and note.question:  # the program that receives the push can answer the question
                note = replace(note, body=f"{note.body} {note.question}")
            answers = {
                name: {"url": button.url, "authorization": button.authorization} for name, button in buttons.items()
            }
            fields["payload"] = fields.get("payload", {}) | note.payload | ({"answers": answers} if answers else {})
        case "discord":
            is_embed = note.form in (Form.EMBED, Form.RESULT)  # Apprise sends Markdown as an embed
            fields |= {"avatar": False} | ({"format": "markdown"} if is_embed else {})
            return _escape_for_discord(note.title, is_embed=is_embed), _escape_for_discord(note.text, is_embed=is_embed)
    return note.title, note.text


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
