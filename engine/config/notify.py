"""Settings of notifications (SPEC 10.2): where each surface is reached.

An address that holds a password or a token is a key (SPEC 11.1) and does not stand here: `url = "key"` says that it is
kept with the keys, under `notify-SURFACE`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field

from engine.config.agents import Section, checked, url_problem, without_slash


class Surface(StrEnum):
    """A device or service that shows notifications (SPEC 10.2)."""

    PHONE = "phone"
    WATCH = "watch"
    GLASSES = "glasses"
    DISCORD = "discord"
    WEB = "web"
    DESKTOP = "desktop"


STORED_WITH_KEYS = "key"
"""In the place of an address: it is kept with the keys."""

DESKTOP, SPEAK = "desktop", "speak"
"""Schemes of our own: a notification of this machine's desktop, and this machine's voice."""

OPEN_SCHEMES = frozenset(
    {"ntfy", "ntfys", "json", "jsons", "dbus", "glib", "gnome", "macosx", "windows", DESKTOP, SPEAK}
)
"""Addresses of these services need no secret; those of all others have one in them."""

_SECRET_PARAMETER = re.compile(r"(?i)token|auth|pass|pwd|secret|key|^[+:-]")
"""Parameters that may carry one; the last are headers and fields."""

ADDRESS_FORMAT = (
    'an address, for example "ntfy://ntfy.sh/my-secret-topic" or "desktop://", or "key" for one stored with the keys'
)


def key_name(surface: str) -> str:
    """Under which name the keys hold the address of a surface."""
    return f"notify-{surface}"


def variable(surface: str) -> str:
    """The variable of the environment that holds it."""
    return f"CLAWPY_NOTIFY_{surface.upper()}_URL"


def address_problem(url: str) -> str:
    """Why an address may not stand in the settings, in words that never repeat it; "" when it may."""
    if url in ("", STORED_WITH_KEYS):
        return ""
    try:
        parts = urlsplit(url)
        named = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return f"is not an address; expected {ADDRESS_FORMAT}"
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[!-~]*", url):
        return f"is not an address; expected {ADDRESS_FORMAT}"
    has_secret_parameter = any(_SECRET_PARAMETER.search(name) for name, _ in named)
    if parts.scheme not in OPEN_SCHEMES or "@" in parts.netloc or has_secret_parameter:
        return 'this address may contain a secret: store it with `clawpy notify set SURFACE`, which writes "key" here'
    return ""


class SurfaceSettings(Section):
    """`[notify.SURFACE]`"""

    url: Annotated[str, checked(address_problem), Field(description=ADDRESS_FORMAT)] = ""


class NotifySettings(Section):
    """`[notify]`: what is not urgent waits `digestMinutes` for the like and then goes with it as one; 0: it does not.

    `gateway` is the address by which a phone reaches the gateway, as `https://laptop.tailnet.ts.net`: with it cards on
    ntfy have buttons.
    """

    digest_minutes: Annotated[float, Field(ge=0, le=24 * 60)] = 5
    gateway: Annotated[
        str,
        checked(url_problem, optional=True),
        AfterValidator(without_slash),
        Field(description='an address, for example "https://laptop.tailnet.ts.net"'),
    ] = ""
    phone: SurfaceSettings = SurfaceSettings()
    watch: SurfaceSettings = SurfaceSettings()
    glasses: SurfaceSettings = SurfaceSettings()
    discord: SurfaceSettings = SurfaceSettings()
    web: SurfaceSettings = SurfaceSettings()
    desktop: SurfaceSettings = SurfaceSettings()

    def of(self, surface: Surface) -> SurfaceSettings:
        """The section of one surface."""
        section: SurfaceSettings = getattr(self, surface.value)
        return section
