"""Sends a note to a surface, with Apprise or a program of this machine (SPEC 10.2).

An address may contain a token (SPEC 11.1), and the error of a library may contain the address. So errors are described
in our own words.
"""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from engine.api.notify.addresses import Address
from engine.api.notify.local_programs import desktop_command, speech_command
from engine.api.notify.notes import Note
from engine.api.notify.service_messages import Button, adapt
from engine.config.service_settings import DESKTOP_SCHEME, SPEAK_SCHEME
from engine.frozen import frozen
from engine.installed import NOTIFY, extra_not_installed, has_extra

TIMEOUT_S = 15.0
"""Maximum number of seconds of one delivery."""

RETRYABLE_STATUS = frozenset({408, 425, 429})
"""Status codes below 500 after which a delivery is tried again."""

# Apprise's log may contain addresses, and would be printed over the screen. Its result is enough.
_apprise_log = logging.getLogger("apprise")
_apprise_log.propagate = False
_apprise_log.addHandler(logging.NullHandler())


@frozen
class Failure:
    """The reason of a failed delivery. If `lasting`, it will fail again until the operator fixes it."""

    words: str
    lasting: bool = False


def deliver(address: Address, note: Note, buttons: Mapping[str, Button]) -> Failure | None:
    """Deliver a note; returns None on success. `buttons` are by action. Callable from any thread; takes at most about
    `TIMEOUT_S`."""
    if address.service == DESKTOP_SCHEME:
        return _run(desktop_command(note))
    if address.service == SPEAK_SCHEME:
        return _run(speech_command(note))
    if not has_extra(NOTIFY):
        return Failure(str(extra_not_installed(NOTIFY)), lasting=True)
    return _send(address, note, buttons)


def _send(address: Address, note: Note, buttons: Mapping[str, Button]) -> Failure | None:
    import apprise
    from apprise import plugins

    asset = apprise.AppriseAsset(
        app_id="clawpy", app_desc="Clawpy Console", app_url="", async_mode=False, http_redirects=False,
        image_url_mask=None, image_url_logo=None, service_timeout=TIMEOUT_S, allow_templates=False,
    )  # fmt: skip
    fields: dict[str, Any] | None = plugins.url_to_dict(address.url)  # type: ignore[no-untyped-call]
    if fields is None:
        return Failure("there is no such service, or its address is incomplete", lasting=True)
    title, body = adapt(note, buttons, fields)
    service = apprise.Apprise.instantiate(fields, asset=asset)
    if service is None:
        return Failure("its address is incomplete, or the service cannot be used on this machine", lasting=True)
    carrier = apprise.Apprise(asset=asset)
    carrier.add(service)
    kind = apprise.NotifyType.INFO if note.good else apprise.NotifyType.WARNING
    result = carrier.notify(
        body=body, title=title, notify_type=kind, body_format=apprise.NotifyFormat.TEXT, timeout=TIMEOUT_S
    )
    if result:
        return None
    if result.status.name == "TIMEOUT":
        return Failure(f"it did not accept the notification within {TIMEOUT_S:g} s")
    return describe_failure([entry.message for entry in result.logs()])


def describe_failure(messages: Sequence[str]) -> Failure:
    """The failure that the log lines of Apprise report, in our own words."""
    for line in messages:
        if match := re.search(r"error=(\d{3})\d{0,2}\b", line):
            status = int(match[1])
            return Failure(
                f"the server answers {status}", lasting=400 <= status < 500 and status not in RETRYABLE_STATUS
            )
        if "onnection error" in line:
            return Failure("it cannot be reached")
    return Failure("it did not accept the notification")


def _run(command: Sequence[str]) -> Failure | None:
    if not command:
        return Failure("this machine has no program for notifications; see `clawpy doctor`", lasting=True)
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return Failure(f"it did not accept the notification within {TIMEOUT_S:g} s")
    except OSError as error:
        return Failure(f"{command[0]} cannot be run: {error.strerror}", lasting=True)
    return None if process.returncode == 0 else Failure(f"{command[0]} ended with {process.returncode}")
