"""Settings of retention (SPEC 4.2): for how many days the rows of a table are kept."""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, field_validator
from pydantic.fields import FieldInfo

from engine.config.agents import Section, checked, url_problem, without_slash

# `[gateway]`: where the API for a phone, a script or another agent listens, and whom it lets in (SPEC 10.1).


PORT = 8477
"""The default port."""

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_ORIGIN = re.compile(r"https?://[a-z0-9.:\[\]-]{1,260}")


def _name_problem(name: str) -> str:
    fault = f"{name[:80]!r} is not a host name; write it in lower case, without a port or https://"
    return "" if _NAME.fullmatch(name) else fault


def _origin_problem(origin: str) -> str:
    fault = f"{origin[:80]!r} is not an origin; write, for example, https://phone.example, without a path"
    return "" if _ORIGIN.fullmatch(origin) else fault


class GatewaySettings(Section):
    """`[gateway]`. With `enabled` the console and `clawpy run` open it too; `clawpy serve` opens it anyway.

    `host` is an address of this machine. One that others reach needs `certificate` and `certificateKey` (PEM files),
    or `tunnel = true`: your word that something in front of it encrypts. `hosts` are further names it is called by,
    `origins` the web pages that may call it, as `["https://phone.example"]`.
    """

    enabled: bool = False
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = PORT
    certificate: str = ""
    certificate_key: str = ""
    tunnel: bool = False
    hosts: Annotated[tuple[str, ...], checked(_name_problem)] = ()
    origins: Annotated[tuple[str, ...], checked(_origin_problem)] = ()

    @field_validator("host", mode="after")
    @classmethod
    def _an_address(cls, value: str) -> str:
        if value == "localhost":
            return "127.0.0.1"
        try:
            return str(ipaddress.ip_address(value.strip("[]")))
        except ValueError as error:
            raise ValueError(
                f"{value[:80]!r} is not an address; write, for example, 127.0.0.1, or 0.0.0.0 for all"
            ) from error


# Settings of notifications (SPEC 10.2): where each surface is reached.
#
# An address that holds a password or a token is a key (SPEC 11.1) and does not stand here: `url = "key"` says that it
# is kept with the keys, under `notify-SURFACE`.


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


MAX_DAYS = 36_500
"""Days; for longer than this, keep forever with 0."""


def _days(minimum: int, reason: str) -> FieldInfo:
    """The days that a table accepts: 0, or at least `minimum`, for this `reason`."""

    def check(value: int | None) -> int | None:
        if value and not minimum <= value <= MAX_DAYS:
            raise ValueError(
                f"{value} is not accepted; expected 0 (keep forever) or {minimum} to {MAX_DAYS} days: {reason}"
            )
        return value

    kind: FieldInfo = Field(description=f"0 (keep forever) or days from {minimum} to {MAX_DAYS}")
    kind.metadata.append(AfterValidator(check))
    return kind


EVENT_DAYS = _days(35, "agents' work of the last 30 days is analysed")
RECORD_DAYS = _days(90, "candidates are drafted from the last 90 days")
RUN_DAYS = _days(35, "recent test failures are needed")
COST_DAYS = _days(35, "the monthly caps are computed from them")
TRIGGER_DAYS = _days(35, "the rails need their recent blocks")


class RetentionSettings(Section):
    """`[retention]`: days that rows are kept, by table; 0 is for ever. Sums by day are kept always.

    What the program still needs is kept however old it is: see `engine.retention`.
    """

    memory_events: Annotated[int, EVENT_DAYS] = 0
    learning_records: Annotated[int, RECORD_DAYS] = 180
    validation_runs: Annotated[int, RUN_DAYS] = 0
    cost_entries: Annotated[int, COST_DAYS] = 0
    crosspoll_log: Annotated[int, TRIGGER_DAYS] = 0


class WorkspaceRetention(Section):
    """`[workspaces."/path".retention]`: the same for one workspace. What is not named is as in `[retention]`."""

    memory_events: Annotated[int | None, EVENT_DAYS] = None
    learning_records: Annotated[int | None, RECORD_DAYS] = None
    validation_runs: Annotated[int | None, RUN_DAYS] = None
    cost_entries: Annotated[int | None, COST_DAYS] = None
    crosspoll_log: Annotated[int | None, TRIGGER_DAYS] = None
