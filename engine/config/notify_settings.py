"""The settings of notifications: their surfaces, and the addresses that the surfaces may have (SPEC 10.2).

An address with a password or a token in it is a key (SPEC 11.1), so it is not in the settings file. `url = "key"` says
that it is stored with the keys, under `notify-SURFACE`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field

from engine.config.section import Section, checked, url_problem, without_slash


class Surface(StrEnum):
    """A device or service that shows notifications (SPEC 10.2)."""

    PHONE = "phone"
    WATCH = "watch"
    GLASSES = "glasses"
    DISCORD = "discord"
    WEB = "web"
    DESKTOP = "desktop"


STORED_WITH_KEYS = "key"
"""Stands in the place of an address that is stored with the keys."""

DESKTOP_SCHEME, SPEAK_SCHEME = "desktop", "speak"
"""Schemes that only this program knows: notifications on this machine's desktop, and this machine's voice."""

OPEN_SCHEMES = frozenset(
    {"ntfy", "ntfys", "json", "jsons", "dbus", "glib", "gnome", "macosx", "windows", DESKTOP_SCHEME, SPEAK_SCHEME}
)
"""Services whose addresses need no secret. The address of any other service contains one."""

_SECRET_PARAMETER = re.compile(r"(?i)token|auth|pass|pwd|secret|key|^[+:-]")
"""Names of parameters that may carry a secret. Names that begin with a sign are headers and fields."""

ADDRESS_FORMAT = (
    'an address, for example "ntfy://ntfy.sh/my-secret-topic" or "desktop://", or "key" for one stored with the keys'
)


def address_key_name(surface: str) -> str:
    """The name under which the address of a surface is stored with the keys."""
    return f"notify-{surface}"


def address_variable(surface: str) -> str:
    """The environment variable for the address of a surface. It comes before the settings."""
    return f"CLAWPY_NOTIFY_{surface.upper()}_URL"


def address_problem(url: str) -> str:
    """Why an address may not be in the settings file, in words that never repeat it; "" if it may."""
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
    """`[notify]`: how notifications are sent.

    A notification that is not urgent waits `digestMinutes`, and is then sent as one with others of its sort. With 0
    nothing waits. `gateway` is the address at which a phone reaches the gateway, such as
    `https://laptop.tailnet.ts.net`. With it, cards on ntfy have buttons.
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
